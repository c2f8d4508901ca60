"""The file that describes the figures of the layers."""

from __future__ import annotations

import pytest

from calipers.diagnosis import layer as figures
from calipers.diagnosis.layers import LAYERS

WORDS = {"k": 10, "deep": 100, "follows": 0.5, "nothing": 0.2, "literal": 0.1, "far": 0.7, "confident": 0.8}


@pytest.mark.parametrize("name", LAYERS)
def test_every_metric_of_a_layer_is_described_in_the_file(name: str) -> None:
    kinds = figures.kinds_of(name, **WORDS)
    assert {metric.name for metric in LAYERS[name].metrics} <= {*kinds}
    for kind in kinds.values():
        assert kind.meaning.endswith(".")
        assert "{" not in kind.name + kind.about + kind.meaning + kind.advice
        assert not (kind.above is not None and kind.below is not None)
        assert not kind.advice or any(limit is not None for limit in (kind.above, kind.below, kind.level))


# Which way is good, and from where on it is bad, as the method has it.
METHOD = {
    "alignment": (False, None),
    "uniformity": (False, None),
    "anisotropy": (False, "above 0.8"),
    "word_order_sensitivity": (True, "below 0.005"),
    "hubness_skewness": (False, "above 10"),
    "hubness_gini": (False, None),
}


@pytest.mark.parametrize("name", METHOD)
def test_directions_and_levels_are_those_of_the_method(name: str) -> None:
    kind = figures.kinds_of("geometry")[name]
    assert (kind.higher_is_better, kind.level_text) == METHOD[name]


def test_what_depends_on_the_context_says_so() -> None:
    kinds = figures.kinds_of("geometry")
    assert "same queries" in kinds["hubness_gini"].meaning
    assert "keywords" in kinds["word_order_sensitivity"].meaning
    assert "high enough" in kinds["intrinsic_dimension"].meaning


def test_a_family_has_its_figures_for_each_case(monkeypatch: pytest.MonkeyPatch) -> None:
    family = {
        "each": [{"part": "a", "limit": 0.5}, {"part": "b"}],
        "figures": {"{part}/x@{k}": {"meaning": "Of {part}.", "above": "{limit}", "advice": "look at {part}"}},
    }
    entries = {"defaults": {"digits": 1}, "figures": {"first": {"meaning": "It.", "better": "lower"}, "family": family}}
    monkeypatch.setattr(figures, "read_file", lambda: {"layer": entries})
    first, a, b = figures.kinds_of("layer", k=7).values()
    assert (first.name, first.higher_is_better, first.digits) == ("first", False, 1)
    assert (a.name, a.meaning, a.above) == ("a/x@7", "Of a.", 0.5)
    assert a.warning(0.75) == "a/x@7 is 0.8, above 0.5: look at a"
    assert (b.name, b.above, b.level_text, b.higher_is_better) == ("b/x@7", None, None, None)


def test_what_is_read_from_the_file_cannot_be_changed() -> None:
    kinds = figures.kinds_of("geometry")
    with pytest.raises(TypeError):
        kinds["anisotropy"] = kinds["alignment"]  # type: ignore[index]
