"""Which changes a fix tries."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from calipers.artifacts.recipe import Recipe
from calipers.attribution import fix
from calipers.attribution.changes import Change, other_settings
from calipers.attribution.culprits import CulpritSearch
from calipers.attribution.records import FrontierLine
from calipers.attribution.trials import Evaluation
from calipers.comparison.records import Label
from tests.support.attributions import counted


def test_settings_and_nodes_are_tried_together_where_neither_is_sure(monkeypatch: pytest.MonkeyPatch) -> None:
    nearest = Change("a scale for each channel", Recipe("w8a8", per_channel=True))
    both = replace(nearest, how="a scale for each channel, with nodes kept in float", tensors=frozenset("a"))
    labels: list[Label] = ["PASS", "INCONCLUSIVE"]
    changes: list[Change] = []

    def tried(case: Any, graph: Any, change: Change) -> Evaluation:
        changes.append(change)
        return Evaluation(1.0, labels.pop(0), passes=True)

    def with_culprits(label: Label) -> tuple[Change, Evaluation] | None:
        """After an evaluation of the culprits alone that has this label."""
        case = SimpleNamespace(ledger=counted(set()))
        case.ledger.evaluations[frozenset("a")] = Evaluation(1.0, label, passes=True)
        search: Any = CulpritSearch(None, (), frozenset("a"))  # type: ignore[arg-type]
        return fix.with_culprits(case, search, nearest)  # type: ignore[arg-type]

    monkeypatch.setattr(fix, "try_change", tried)
    assert with_culprits("INCONCLUSIVE") == (both, Evaluation(1.0, "PASS", passes=True))
    assert with_culprits("INCONCLUSIVE") is None
    assert with_culprits("PASS") is None
    assert changes == [both] * 2


def line(name: str, label: Label, size: int, p50: float) -> FrontierLine:
    return FrontierLine(name, 80.0, label, size, p50, 8.5 / p50)


def test_the_smallest_that_passes_comes_first_then_the_fastest_and_what_is_slower_than_float_last() -> None:
    lines = [
        line("slow", "PASS", 20_000_000, 15.3),
        line("broken", "REGRESSION", 10_000_000, 2.0),
        line("large", "PASS", 30_000_000, 2.0),
        line("small", "PASS", 23_000_000, 4.0),
        line("small and fast", "PASS", 23_050_000, 3.0),
    ]
    order = [one.name for one in sorted(lines, key=fix.rank)]
    assert order == ["small and fast", "small", "large", "slow", "broken"]
    assert lines[0].slower
    assert not lines[2].slower


def test_settings_are_tried_from_the_cheapest_on() -> None:
    changes = [change.how for change in other_settings(Recipe("w8a8"))]
    assert changes == [
        "a scale for each channel and results of products in float",
        "the same with SmoothQuant (0.5)",
        "a scale for each channel",
        "the same with ranges by percentile 99.99",
        "the same with ranges by entropy",
    ]
    assert [c.how for c in other_settings(Recipe("int8-dynamic"))] == ["a scale for each channel"]
    assert other_settings(Recipe("fp16")) == []


def test_what_suits_the_processor_is_tried_first_and_the_rest_on_top_of_it() -> None:
    first, *rest = [change.recipe for change in other_settings(Recipe("w8a8"), "x86-vnni")]
    assert first == Recipe("w8a8", per_channel=True, float_outputs=True, unsigned=True)
    assert [recipe.unsigned for recipe in rest if recipe] == [True, False, True, True]
    arm = other_settings(Recipe("w8a8"), "arm64")
    assert [change.how for change in arm] == [change.how for change in other_settings(Recipe("w8a8"))]
    has_all = other_settings(first, "x86-vnni")
    assert has_all[0].how == "the settings that it has with SmoothQuant (0.5)"
    assert all(change.recipe != first for change in has_all)


def test_culprits_get_16_bits_before_they_stay_in_float() -> None:
    mixed = Change("x", Recipe("w8a8", wide=("a",))).widening(["b", "a"])
    assert mixed is not None
    assert mixed.recipe == Recipe("w8a8", wide=("a", "b"))
    assert not mixed.tensors
    assert Change("x", Recipe("w8a16")).widening(["b"]) is None
    assert Change("x", None).widening(["b"]) is None
    assert Change("x", Recipe("w8a8")).widening([]) is None
