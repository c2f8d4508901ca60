"""Contrast sets by hand: what the templates make of titles, and that nothing else of a title changes."""

from __future__ import annotations

import pytest

from calipers.shop import Extractor
from calipers.shop.contrasts import SETS, Contrast, make_contrasts

TITLES = [
    "Bramwyn green monitor 24 inch",
    "Vestrilo red monitor 27 inch",
    "Oruvi water bottle 500 ml",
    "Oruvi water bottle 0.5 L",
    "Oruvi water bottle 1 L",
    "Leather sleeve for iPad",
    "Desk lamp with dimmer",
    "オルヴィ リュック 緑 30L",
    "オルヴィ リュック 赤 20L",
    "iPad用ケース",
]
BRANDS = ["Bramwyn", "Vestrilo", "Oruvi", "オルヴィ"]


@pytest.fixture(scope="module")
def made() -> list[Contrast]:
    return make_contrasts(Extractor.from_files(brands=BRANDS), TITLES, most=20, seed=0)


def of(made: list[Contrast], kind: str) -> dict[int, Contrast]:
    return {contrast.title: contrast for contrast in made if contrast.kind == kind}


def test_a_colour_is_exchanged_and_nothing_else(made: list[Contrast]) -> None:
    colours = of(made, "colour")
    assert colours[0] == Contrast("colour", "monitor green", TITLES[0], "Bramwyn red monitor 24 inch", 0)
    assert colours[7].wrong == "オルヴィ リュック 赤 30L"  # in its own script
    assert set(colours) == {0, 1, 7, 8}


def test_amounts_are_exchanged_for_others_of_their_kind(made: list[Contrast]) -> None:
    amounts = of(made, "number")
    assert amounts[0].wrong == "Bramwyn green monitor 27 inch"
    assert amounts[2].query == "water bottle 500 ml"
    assert amounts[2].wrong == "Oruvi water bottle 1 L"  # 0.5 L is the same amount


def test_the_same_value_is_written_as_other_titles_write_it(made: list[Contrast]) -> None:
    assert of(made, "colour_respelled")[0].query == "monitor 緑"
    assert of(made, "number_respelled")[2].query == "water bottle 0.5 L"
    assert set(of(made, "number_respelled")) == {2, 3}
    assert of(made, "brand_respelled")[2].query.startswith("water bottle オルヴィ")


def test_what_a_query_denies_is_right_where_it_is_absent(made: list[Contrast]) -> None:
    denied = of(made, "negation")
    assert denied[0] == Contrast("negation", "monitor not green", "Bramwyn red monitor 24 inch", TITLES[0], 0)
    assert denied[7].query == "リュック 緑以外"
    assert denied[6] == Contrast("negation", "Desk lamp without dimmer", "Desk lamp", TITLES[6], 6)


def test_roles_are_exchanged_in_both_languages(made: list[Contrast]) -> None:
    roles = of(made, "role")
    assert roles[5] == Contrast("role", "iPad sleeve", TITLES[5], "Leather iPad for sleeve", 5)
    assert roles[9] == Contrast("role", "iPad ケース", TITLES[9], "ケース用iPad", 9)


def test_sets_are_bounded_seeded_and_in_order() -> None:
    extractor = Extractor.from_files(brands=BRANDS)
    one, two = (make_contrasts(extractor, TITLES * 9, most=3, seed=5) for _ in range(2))
    assert one == two
    assert [c.kind for c in one] == sorted((c.kind for c in one), key=SETS.index)
    assert all(sum(c.kind == kind for c in one) <= 3 for kind in SETS)
    assert make_contrasts(extractor, [], most=3, seed=0) == []
    assert make_contrasts(extractor, ["nothing to see", ""], most=3, seed=0) == []


def test_right_and_wrong_always_differ() -> None:
    for contrast in make_contrasts(Extractor.from_files(brands=BRANDS), TITLES, most=50, seed=3):
        assert contrast.right != contrast.wrong
        assert contrast.query not in (contrast.right, contrast.wrong)
