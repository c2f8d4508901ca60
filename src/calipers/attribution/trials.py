"""Trials: evaluations within a budget, and the search for the smallest set of tensors whose restoration passes."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

from calipers.attribution.records import Trial
from calipers.comparison.records import Label
from calipers.core import CalipersError, Result

_LEFT_OUT = 4  # sets, in turn, to see whether they are needed


@dataclass(frozen=True)
class Evaluation:
    """The metric of one graph. `value` is None where its output is invalid."""

    value: float | None
    label: Label  # against the baseline
    passes: bool  # by the point estimate
    nodes: int = 0  # kept in float
    result: Result | None = None
    size: int = 0  # bytes
    p50: float = 0.0  # milliseconds
    speedup: float | None = None  # times as fast as the float graph, timed in turn


INVALID = Evaluation(None, "INVALID", passes=False)
Evaluate = Callable[[frozenset[str], str], Evaluation]  # the graph with these tensors in float, and a label for it


class OutOfBudget(Exception):
    """No evaluation is left."""


@dataclass
class Ledger:
    """Evaluations, counted and remembered: the same set of tensors is evaluated once."""

    evaluate: Evaluate
    budget: int
    # What is restored together with these tensors: sets with the same closure are evaluated once.
    closure: Callable[[frozenset[str]], frozenset[str]] = lambda tensors: tensors
    trials: list[Trial] = field(default_factory=list)
    evaluations: dict[frozenset[str], Evaluation] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    ran_out: bool = False  # whether the budget left something untried
    reserved: int = 0  # evaluations that are kept for later
    kept_back: int = 0  # of the budget when it first ran out

    def __call__(self, tensors: frozenset[str], what: str) -> Evaluation:
        evaluation = self.seen(tensors)
        if evaluation is None:
            shown = f"{what} (try {len(self.trials) + 1} of at most {self.budget})"
            evaluation = self.count(what, lambda: self.evaluate(tensors, shown))
            self.evaluations[self.closure(tensors)] = evaluation
        return evaluation

    def surely(self, tensors: frozenset[str], what: str) -> Evaluation:
        """The same, where only the label PASS passes and not the point estimate alone."""
        evaluation = self(tensors, what)
        return replace(evaluation, passes=evaluation.label == "PASS")

    def seen(self, tensors: frozenset[str]) -> Evaluation | None:
        return self.evaluations.get(self.closure(tensors))

    def is_sure(self, tensors: frozenset[str]) -> bool:
        """Whether this set was evaluated and has the label PASS."""
        evaluation = self.seen(tensors)
        return evaluation is not None and evaluation.label == "PASS"

    def count(self, what: str, evaluate: Callable[[], Evaluation]) -> Evaluation:
        """An evaluation of any kind within the budget."""
        if len(self.trials) >= self.budget - self.reserved:
            self.ran_out = True
            self.kept_back = self.kept_back or self.reserved
            raise OutOfBudget
        start = time.perf_counter()
        try:
            result = evaluate()
        except CalipersError as error:  # a graph that cannot be made or run is a result: this change is not possible
            if not self.notes:
                self.notes.append(f"{what} failed: {error}")
            result = INVALID
        seconds = time.perf_counter() - start
        self.trials.append(Trial(what, result.nodes, result.value, result.label, result.passes, seconds))
        return result


def shortage(ledger: Ledger) -> str:
    """What ran out, as the number of trials shows it.

    >>> shortage(Ledger(lambda tensors, what: INVALID, 24, ran_out=True, kept_back=12))
    'the search for culprits stopped at its share of 12 of the 24 evaluations: a larger `budget` allows more'
    """
    if len(ledger.trials) >= ledger.budget or not ledger.kept_back:
        return f"the budget of {ledger.budget} evaluations ran out: a larger `budget` allows more"
    share = ledger.budget - ledger.kept_back
    rest = f"its share of {share} of the {ledger.budget} evaluations: a larger `budget` allows more"
    return f"the search for culprits stopped at {rest}"


def smallest_prefix(order: Sequence[frozenset[str]], evaluate: Evaluate, name: Callable[[int], str]) -> int | None:
    """How many of the first sets must be restored until the metric passes: doubled, then halved. None: not even all.

    It takes about 2·log₂(n) evaluations; when they run out, the result is the smallest number that was seen to pass.

    >>> passing = Evaluation(1.0, "PASS", True)
    >>> failing = Evaluation(0.0, "REGRESSION", False)
    >>> smallest_prefix([frozenset({i}) for i in "abcdefgh"], lambda s, _: passing if "c" in s else failing, str)
    3
    """
    low, high = 0, 1
    best: int | None = None
    with suppress(OutOfBudget):
        while not evaluate(frozenset().union(*order[:high]), name(high)).passes:
            if high >= len(order):
                return None
            low, high = high, min(2 * high, len(order))
        best = high
        while high - low > 1:
            middle = (low + high) // 2
            if evaluate(frozenset().union(*order[:middle]), name(middle)).passes:
                best = high = middle
            else:
                low = middle
    return best


def drop_needless(chosen: Sequence[frozenset[str]], evaluate: Evaluate, name: Callable[[int], str]) -> list[int]:
    """The positions of the sets that are needed: a few are left out in turn, and stay out where the metric passes."""
    kept = list(range(len(chosen)))
    with suppress(OutOfBudget):
        for i in kept[-2::-1][:_LEFT_OUT]:  # without the last one the prefix did not pass
            rest = [position for position in kept if position != i]
            if evaluate(frozenset().union(*(chosen[position] for position in rest)), name(i)).passes:
                kept = rest
    return kept
