"""Which changed settings of a reference give the answers of another model: one setting, then two, then three."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations

import numpy as np

from calipers.core import CalipersError, Progress
from calipers.fidelity.changes import Changes, Reference, SettingChange
from calipers.fidelity.distances import cosines, gaps
from calipers.fidelity.records import Tried
from calipers.metrics.arrays import Floats, Vectors

HALF = 0.03  # the largest gap that half precision explains
_SHORT = (30, 60, 120)  # tokens of a text that no usual limit cuts, or where too few are as short
_ENOUGH = 8  # short texts
_FEW = 6  # texts on which pairs of settings are tried first
_MOST_SHORT = 20
_EXTENDED = 6  # pairs to which a third setting is added
_USUAL = (32, 64, 100, 120, 128, 192, 200, 250, 256, 300, 384, 400, 500, 510, 512, 768, 1000, 1024, 2048, 4096)
_GRID = 10


@dataclass(frozen=True)
class Explanation:
    """The changes that come nearest, and whether they explain the answers, up to rounding at least. `apart` are the
    gaps of all texts with them."""

    changes: Changes
    explained: bool
    apart: Floats
    tried: tuple[Tried, ...]


@dataclass
class Search:
    """The texts, the answers of the other model to them, and what was tried."""

    reference: Reference
    texts: Sequence[str]
    answers: Vectors
    tolerance: float
    progress: Progress
    tried: list[Tried] = field(default_factory=list)

    def explain(self) -> Explanation:
        changes, explained = self._explain_short(self._spread(self._short()))
        if explained:
            changes, explained = self._explain_long(changes)
        return Explanation(changes, explained, self.gaps(changes, range(len(self.texts))), tuple(self.tried))

    def gaps(self, changes: Changes, places: Iterable[int]) -> Floats:
        rows = list(places)
        vectors = self.reference.encode([self.texts[i] for i in rows], changes)
        return gaps(vectors, self.answers[rows])

    def fits(self, apart: Floats) -> bool:
        """Equal up to the tolerance, or all moved by as little as half precision rounds."""
        return bool(apart.max() <= self.tolerance or (apart.min() > self.tolerance and apart.max() <= HALF))

    def _try(self, changes: Changes, places: Sequence[int]) -> Floats:
        try:
            apart = self.gaps(changes, places)
        except CalipersError:  # more tokens than the model takes, or a prompt where vectors are already computed
            return np.full(len(places), 2.0)
        finally:
            self.progress.advance(1)
        near = cosines(apart)
        settings = {change.setting: change.other for change in changes}
        self.tried.append(Tried(settings, float(near.min()), float(np.median(near))))
        return apart

    def _short(self) -> list[int]:
        """Texts that no usual limit cuts, spread over all of them; the shortest where all are long."""
        sizes = self.reference.count_tokens(self.texts)
        by_limit = ([i for i, size in enumerate(sizes) if size <= limit] for limit in _SHORT)
        short = next((rows for rows in by_limit if len(rows) >= _ENOUGH), None)
        return short or sorted(range(len(sizes)), key=lambda i: sizes[i])[:3]

    def _spread(self, short: list[int]) -> list[int]:
        """Some of them, with those whose spaces or characters are odd."""
        odd = [i for i in short if self.reference.is_odd(self.texts[i])][:_MOST_SHORT]
        return sorted({*short[:: max(1, len(short) // _MOST_SHORT)], *odd})

    def _explain_short(self, short: list[int]) -> tuple[Changes, bool]:
        candidates = self.reference.candidates()
        self.progress.start("Trying settings", len(candidates) + 1)
        none = self._try((), short)
        if self.fits(none):
            return (), True
        scores: dict[Changes, Floats] = {(): none}
        for change in candidates:
            scores[(change,)] = self._try((change,), short)
        if (best := self._best(scores)) is not None:
            return best, True
        few = short[:: max(1, len(short) // _FEW)]
        pairs = [(a, b) for a, b in combinations(candidates, 2) if a.setting != b.setting and not _overlap(a, b)]
        if (best := self._confirmed(pairs, few, short, scores)) is not None:
            return best, True
        pairs.sort(key=lambda pair: float(np.median(scores.get(pair, none))))
        triples = [(*pair, c) for pair in pairs[:_EXTENDED] for c in candidates if _is_new(c, pair)]
        if (best := self._confirmed(triples, few, short, scores)) is not None:
            return best, True
        return min(scores, key=lambda changes: float(np.median(scores[changes]))), False

    def _confirmed(
        self, trials: Sequence[Changes], few: list[int], short: list[int], scores: dict[Changes, Floats]
    ) -> Changes | None:
        """The best of the trials that fit a few texts, and then all short ones."""
        self.progress.start("Trying settings together", len(trials))
        fitting: dict[Changes, Floats] = {}
        for changes in trials:
            scores[changes] = self._try(changes, few)
            if self.fits(scores[changes]) or scores[changes].max() <= HALF:
                fitting[changes] = self._try(changes, short)
        return self._best(fitting)

    def _best(self, scores: dict[Changes, Floats]) -> Changes | None:
        """The first that is exact, else the one with the smallest of the gaps that rounding explains."""
        exact = [changes for changes, apart in scores.items() if apart.max() <= self.tolerance]
        if exact:
            return exact[0]
        rounded = [changes for changes, apart in scores.items() if self.fits(apart)]
        return min(rounded, key=lambda changes: float(scores[changes].max()), default=None)

    # --- long texts: how many tokens are read ----------------------------------------------------------------------

    def _explain_long(self, changes: Changes) -> tuple[Changes, bool]:
        everything = self.gaps(changes, range(len(self.texts)))
        if self.fits(everything):
            return changes, True
        if not self.reference.can_cut:
            return changes, False
        level = self._level(everything)
        long = sorted(np.flatnonzero(everything > level).tolist(), key=lambda i: -len(self.texts[i]))[:3]
        added = self._find_cut(changes, long, level)
        if added is None:
            return changes, False
        final = (*changes, added)
        return final, bool(self.gaps(final, range(len(self.texts))).max() <= level)

    def _find_cut(self, changes: Changes, long: list[int], level: float) -> SettingChange | None:
        """Where long texts are cut; None where no length and no side explains them."""
        side = self.reference.side_change()
        if self._try((*changes, side), long).max() <= level:
            return side
        scores = {length: self._cut(changes, length, long) for length in self._lengths()}
        best = self._refine(changes, scores, long, level)
        if scores[best].max() > level:
            return None
        # Special tokens that are left out may be taken off a text that was cut before: that is no other length.
        framed = any(change.variation.frame is not None for change in changes)
        same = framed and abs(best - (self.reference.max_length or 0)) <= 2
        return replace(self.reference.length_change(best), is_named=not same)

    def _level(self, apart: Floats) -> float:
        """The gap of texts that nothing cuts: rounding, or the tolerance."""
        return max(self.tolerance, 3 * float(apart[self._short()].max()))

    def _lengths(self) -> list[int]:
        own = self.reference.max_length or 0
        return sorted({*_USUAL, own, max(own - 1, 8), max(own - 2, 8), own + 1, own + 2})

    def _cut(self, changes: Changes, length: int, places: Sequence[int]) -> Floats:
        return self._try((*changes, self.reference.length_change(length)), places)

    def _refine(self, changes: Changes, scores: dict[int, Floats], places: Sequence[int], level: float) -> int:
        """The length at which the gaps are smallest: usual ones, then those between the neighbours of the best."""
        while True:
            order = sorted(scores)
            best = min(order, key=lambda n: float(scores[n].max()))
            at = order.index(best)
            low, high = order[max(at - 1, 0)], order[min(at + 1, len(order) - 1)]
            between = {int(n) for n in np.linspace(low, high, _GRID)} - set(scores)
            if scores[best].max() <= level or not between:
                return best
            scores.update({length: self._cut(changes, length, places) for length in sorted(between)})


def _overlap(a: SettingChange, b: SettingChange) -> bool:
    """Whether one would replace the other."""
    return (a.variation.frame is not None and b.variation.frame is not None) or bool(a.edit and a.edit == b.edit)


def _is_new(change: SettingChange, others: Changes) -> bool:
    return all(change.setting != other.setting and not _overlap(change, other) for other in others)
