"""The search within a budget: few evaluations, none of them twice."""

from __future__ import annotations

import pytest

from calipers.attribution import trials
from calipers.attribution.trials import Evaluation, Ledger
from tests.support.attributions import counted


@pytest.mark.parametrize("guilty", [{"0"}, {"5"}, {"2", "9"}, {"31"}])
def test_the_smallest_prefix_is_found_in_few_measurements(guilty: set[str]) -> None:
    ledger = counted(guilty)
    found = trials.smallest_prefix([frozenset({str(i)}) for i in range(32)], ledger, str)
    assert found == max(map(int, guilty)) + 1
    assert len(ledger.trials) <= 10


def test_without_a_passing_prefix_there_is_none_and_the_budget_holds() -> None:
    sets = [frozenset({str(i)}) for i in range(8)]
    assert trials.smallest_prefix(sets, counted({"x"}), str) is None
    ledger = counted({"7"}, budget=2)
    assert trials.smallest_prefix(sets, ledger, str) is None
    assert len(ledger.trials) == 2


def test_what_is_not_needed_is_dropped_and_nothing_is_measured_twice() -> None:
    ledger = counted({"b", "d"})
    sets = [frozenset({name}) for name in "abcd"]
    assert trials.drop_needless(sets, ledger, str) == [1, 3]
    before = len(ledger.trials)
    ledger(frozenset({"b", "d"}), "again")
    assert len(ledger.trials) == before


def test_a_graph_that_cannot_be_run_is_an_answer() -> None:
    from calipers.core import ModelError

    def broken(tensors: frozenset[str], what: str) -> Evaluation:
        raise ModelError("no kernel")

    ledger = Ledger(broken, 3)
    assert ledger(frozenset("a"), "Restoring a").label == "INVALID"
    assert ledger.notes == ["Restoring a failed: no kernel"]


def test_what_is_reserved_is_not_spent() -> None:
    ledger = Ledger(lambda tensors, what: trials.INVALID, 5, reserved=2)
    trials.smallest_prefix([frozenset({str(i)}) for i in range(40)], ledger, str)
    assert len(ledger.trials) == 3
    ledger.reserved = 0
    trials.smallest_prefix([frozenset({f"other {i}"}) for i in range(40)], ledger, str)
    assert len(ledger.trials) == 5
