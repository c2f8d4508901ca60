"""The search for the smallest part of a graph whose restoration brings the metric back, in few evaluations."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from calipers.attribution.records import Trial
from calipers.comparison.records import Label
from calipers.core import CalipersError, Result


@dataclass(frozen=True)
class Measured:
    """What one graph came to. `value` is None where its output was dead."""

    value: float | None
    label: Label  # against the baseline
    passes: bool  # by the point estimate
    nodes: int = 0  # kept in float
    result: Result | None = None


class OutOfBudget(Exception):
    """No evaluation is left."""


@dataclass
class Ledger:
    """Evaluations, counted and remembered: the same set of tensors is measured once."""

    measure: Callable[[frozenset[str], str], Measured]  # the graph with these tensors in float
    budget: int
    # What is restored with these tensors anyway: sets that come to the same are measured once.
    closure: Callable[[frozenset[str]], frozenset[str]] = lambda tensors: tensors
    trials: list[Trial] = field(default_factory=list)
    known: dict[frozenset[str], Measured] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    ran_out: bool = False  # whether something was left untried

    def __call__(self, tensors: frozenset[str], what: str) -> Measured:
        found = self.seen(tensors)
        if found is None:
            found = self.count(what, lambda: self.measure(tensors, f"{what} (try {len(self.trials) + 1})"))
            self.known[self.closure(tensors)] = found
        return found

    def seen(self, tensors: frozenset[str]) -> Measured | None:
        return self.known.get(self.closure(tensors))

    def count(self, what: str, measure: Callable[[], Measured]) -> Measured:
        """A measurement within the budget, of whatever kind."""
        if len(self.trials) >= self.budget:
            self.ran_out = True
            raise OutOfBudget
        start = time.perf_counter()
        try:
            found = measure()
        except CalipersError as error:  # a graph that cannot be made or run is an answer: this way does not go
            if not self.notes:
                self.notes.append(f"{what} did not go: {error}")
            found = Measured(None, "INVALID", passes=False)
        self.trials.append(
            Trial(what, found.nodes, found.value, found.label, found.passes, time.perf_counter() - start)
        )
        return found


def smallest_prefix(
    order: Sequence[frozenset[str]], measure: Callable[[frozenset[str], str], Measured], name: Callable[[int], str]
) -> int | None:
    """How many of the first sets must be restored until the metric passes: doubled, then halved. None: not even all.

    About 2·log₂(n) measurements; when they run out, the smallest number that was seen to pass.

    >>> passing = Measured(1.0, "PASS", True)
    >>> failing = Measured(0.0, "REGRESSION", False)
    >>> smallest_prefix([frozenset({i}) for i in "abcdefgh"], lambda s, _: passing if "c" in s else failing, str)
    3
    """
    low, high = 0, 1
    best: int | None = None
    try:
        while not measure(_union(order[:high]), name(high)).passes:
            if high >= len(order):
                return None
            low, high = high, min(2 * high, len(order))
        best = high
        while high - low > 1:
            middle = (low + high) // 2
            if measure(_union(order[:middle]), name(middle)).passes:
                best = high = middle
            else:
                low = middle
    except OutOfBudget:
        pass
    return best


def drop_needless(
    chosen: Sequence[frozenset[str]],
    measure: Callable[[frozenset[str], str], Measured],
    name: Callable[[int], str],
    most: int = 4,
) -> list[int]:
    """The places of those that are needed: each of a few is left out in turn, and stays out where the metric passes.

    The last one is needed: without it the prefix did not pass.
    """
    kept = list(range(len(chosen)))
    try:
        for i in list(reversed(kept[:-1]))[:most]:
            rest = [place for place in kept if place != i]
            if measure(_union([chosen[place] for place in rest]), name(i)).passes:
                kept = rest
    except OutOfBudget:
        pass
    return kept


def _union(sets: Sequence[frozenset[str]]) -> frozenset[str]:
    return frozenset().union(*sets)
