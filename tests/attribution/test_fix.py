"""Which changes a fix tries."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from calipers.artifacts.recipe import Recipe
from calipers.attribution import fix
from calipers.attribution.changes import Change, other_settings
from calipers.attribution.culprits import CulpritSearch
from calipers.attribution.parts import Part
from calipers.attribution.records import FrontierLine
from calipers.attribution.trials import Evaluation
from calipers.comparison.records import Label
from tests.support.attributions import CULPRIT

NEAREST = Change("the settings of the target x86-vnni", Recipe("w8a8", per_channel=True))


class View:
    def owners_of(self, tensors: frozenset[str]) -> set[str]:
        return {f"node_{name}" for name in tensors}


def together(
    monkeypatch: pytest.MonkeyPatch, evaluate: Callable[[Change], Evaluation | None]
) -> list[tuple[int, int, Label]]:
    """How many nodes each attempt has in 16 bits, how many tensors in float, and its label. Suspects are a to d by
    their damage, then e."""

    def tried(case: Any, graph: Any, change: Change) -> Evaluation | None:
        return evaluate(change)

    monkeypatch.setattr(fix, "try_change", tried)
    damages = {"b": 3, "a": 4, "c": 2, "d": 1}
    culprits = [replace(CULPRIT, tensors=(name,), damage=damage) for name, damage in damages.items()]
    others = (Part("embeddings", None, ("e",), ("node_e",)),)
    search: Any = CulpritSearch(SimpleNamespace(view=View()), tuple(culprits), frozenset("abcd"), others)  # type: ignore[arg-type]
    made = fix.try_together(None, search, NEAREST)  # type: ignore[arg-type]
    return [(len(c.recipe.wide) if c.recipe else 0, len(c.tensors), e.label) for c, e in made]


def seen(label: Label, speedup: float = 2.0) -> Evaluation:
    return Evaluation(1.0, label, passes=label == "PASS", size=23, p50=1.0, speedup=speedup)


def test_settings_get_16_bits_for_as_few_culprits_as_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    attempts = together(monkeypatch, lambda c: seen("PASS" if c.recipe and len(c.recipe.wide) >= 2 else "AT_RISK"))
    assert attempts == [(1, 0, "AT_RISK"), (2, 0, "PASS")]


def test_where_16_bits_are_slower_than_float_the_fewest_culprits_stay_in_float(monkeypatch: pytest.MonkeyPatch) -> None:
    def evaluate(change: Change) -> Evaluation:
        if change.recipe and change.recipe.wide:
            return seen("PASS", speedup=0.5)
        return seen("PASS" if {"a", "b", "c"} <= change.tensors else "AT_RISK")

    attempts = together(monkeypatch, evaluate)
    assert attempts == [(1, 0, "PASS"), (0, 1, "AT_RISK"), (0, 2, "AT_RISK"), (0, 4, "PASS"), (0, 3, "PASS")]


def test_the_next_suspects_follow_the_culprits_and_the_budget_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    left = [seen("AT_RISK")] * 6
    attempts = together(monkeypatch, lambda c: left.pop() if left else None)
    assert [attempt[:2] for attempt in attempts] == [(1, 0), (2, 0), (4, 0), (0, 1), (0, 2), (0, 4)]
    left = [seen("AT_RISK")] * 7
    assert together(monkeypatch, lambda c: left.pop() if left else None)[-1][:2] == (0, 5)


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
