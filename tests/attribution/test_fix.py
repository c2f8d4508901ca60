"""Which changes a fix tries."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from calipers.artifacts.recipe import Recipe
from calipers.attribution import fix
from calipers.attribution.culprits import CulpritSearch
from calipers.attribution.trials import Evaluation
from calipers.comparison.records import Label
from tests.support.attributions import counted


def test_settings_and_nodes_are_tried_together_where_neither_is_sure(monkeypatch: pytest.MonkeyPatch) -> None:
    nearest = fix.Change("a scale for each channel", Recipe("w8a8", per_channel=True))
    both = replace(nearest, how="a scale for each channel, with nodes kept in float", tensors=frozenset("a"))
    labels: list[Label] = ["PASS", "INCONCLUSIVE"]
    changes: list[fix.Change] = []

    def tried(case: Any, graph: Any, change: fix.Change) -> Evaluation:
        changes.append(change)
        return Evaluation(1.0, labels.pop(0), passes=True)

    def with_culprits(label: Label) -> fix.Change | None:
        """After an evaluation of the culprits alone that has this label."""
        case = SimpleNamespace(ledger=counted(set()))
        case.ledger.evaluations[frozenset("a")] = Evaluation(1.0, label, passes=True)
        search: Any = CulpritSearch(None, (), frozenset("a"))  # type: ignore[arg-type]
        return fix.with_culprits(case, search, nearest)  # type: ignore[arg-type]

    monkeypatch.setattr(fix, "try_change", tried)
    assert with_culprits("INCONCLUSIVE") == both
    assert with_culprits("INCONCLUSIVE") is None
    assert with_culprits("PASS") is None
    assert changes == [both] * 2
