"""Statistics that know what they are without each example, so that nothing is computed n times.

Leaving out one example at a time costs O(n²) for most statistics; of the ones here the n values follow from sums and
counts of the whole sample in O(n log n). `paired.influence` uses them at any number of examples.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from calipers.metrics.arrays import Bools, Counts, Floats, Ints, Statistic, once, tie_starts

# Of rows that are the outcomes of two models, one after the other: which examples have those of the first, 0 or 1,
# float64[n, r], to the statistic of this mixture and of the other one, float64[r] each.
Exchanged = Callable[[Floats], tuple[Floats, Floats]]


@dataclass(frozen=True)
class Jackknifed:
    """A statistic with its values when each example is left out, float64[n]; NaN where one is undefined.

    >>> mean = Jackknifed(lambda c: np.array([1.0, 3.0]) @ c / c.sum(axis=0), lambda: np.array([3.0, 1.0]))
    >>> mean(np.ones((2, 1))), mean.left_out()
    (array([2.]), array([3., 1.]))
    """

    statistic: Statistic
    left_out: Callable[[], Floats]
    exchanged: Exchanged | None = None  # where there is a way that is faster than `statistic`, twice

    def __call__(self, counts: Counts) -> Floats:
        return self.statistic(counts)

    def then(self, change: Callable[[Floats], Floats]) -> Jackknifed:
        """The same statistic on another scale, such as its exponential."""
        return Jackknifed(
            lambda counts: change(self.statistic(counts)), lambda: change(self.left_out()), self._exchanged(change)
        )

    def _exchanged(self, change: Callable[[Floats], Floats]) -> Exchanged | None:
        if (exchanged := self.exchanged) is None:
            return None

        def changed(first: Floats) -> tuple[Floats, Floats]:
            one, other = exchanged(first)
            return change(one), change(other)

        return changed

    def among(self, rows: Ints, examples: int) -> Jackknifed:
        """The same statistic of some rows of more examples: the others do not matter."""
        if len(rows) == examples:
            return self

        def left_out() -> Floats:
            values = np.full(examples, once(self.statistic, len(rows)))
            values[rows] = self.left_out()
            return values

        return Jackknifed(lambda counts: self.statistic(counts[rows]), left_out)


def ratio_left_out(part: Floats, whole: Floats) -> Floats:
    """Σ part / Σ whole without each example.

    >>> ratio_left_out(np.array([1.0, 2.0, 3.0]), np.array([1.0, 1.0, 2.0]))
    array([1.66666667, 1.33333333, 1.5       ])
    """
    with np.errstate(invalid="ignore", divide="ignore"):
        ratios = (part.sum() - part) / (whole.sum() - whole)
    return np.where(np.isfinite(ratios), ratios, np.nan)


@dataclass(frozen=True)
class Neighbours:
    """For each example, how many others are higher or equal in x and in y: float64[n]. `equal` counts the example."""

    higher: Floats  # in both
    higher_x_equal_y: Floats
    equal_x_higher_y: Floats
    equal: Floats  # in both
    higher_x: Floats  # whatever y is
    higher_y: Floats
    equal_x: Floats
    equal_y: Floats


def neighbours(x: Ints, y: Ints) -> Neighbours:
    """Of ranks from 0 on, equal ones for equal values."""
    sizes_x, sizes_y = np.bincount(x), np.bincount(y)
    above_x, above_y = (len(x) - np.cumsum(sizes) for sizes in (sizes_x, sizes_y))
    by_x, by_y = (
        _block_ends(x, y),
        _block_ends(y, x),
    )  # (equal in both, behind that block among those equal in the first)
    return Neighbours(
        higher=_higher_in_both(x, y).astype(np.float64),
        higher_x_equal_y=by_y[1],
        equal_x_higher_y=by_x[1],
        equal=by_x[0],
        higher_x=above_x[x].astype(np.float64),
        higher_y=above_y[y].astype(np.float64),
        equal_x=sizes_x[x].astype(np.float64),
        equal_y=sizes_y[y].astype(np.float64),
    )


def _block_ends(outer: Ints, inner: Ints) -> tuple[Floats, Floats]:
    """How many have the same outer and inner rank, and how many of the same outer rank have a higher inner one."""
    order = np.lexsort((inner, outer))
    key = outer[order] * (int(inner.max(initial=0)) + 1) + inner[order]
    blocks, groups = tie_starts(key), tie_starts(outer[order])
    block_ends, group_ends = _ends(blocks, len(order)), _ends(groups, len(order))
    equal, behind = np.empty(len(order)), np.empty(len(order))
    equal[order] = block_ends - np.repeat(blocks, np.diff(blocks, append=len(order)))
    behind[order] = group_ends - block_ends
    return equal, behind


def _ends(starts: Ints, size: int) -> Ints:
    """For each row, where its group ends."""
    return np.repeat(np.append(starts[1:], size), np.diff(starts, append=size))


def _higher_in_both(x: Ints, y: Ints) -> Ints:
    """For each example, how many have a higher x and a higher y; in O(n log n), one bit of y after the other.

    Two different ranks part at one bit: the higher one has a 1 there. Among the rows that share the bits above, in the
    order of x, the ones behind a row's ties in x are counted.
    """
    counts = np.zeros(len(x), np.int64)
    rows = np.argsort(x, kind="stable")
    width = int(x.max(initial=0)) + 1
    for bit in reversed(range(int(y.max(initial=0)).bit_length())):
        prefix = y[rows] >> (bit + 1)
        order = np.argsort(prefix, kind="stable")
        rows, prefix = rows[order], prefix[order]
        one: Bools = ((y[rows] >> bit) & 1).astype(bool)
        before = np.append(0, np.cumsum(one))
        behind = (
            before[_ends(tie_starts(prefix), len(rows))]
            - before[_ends(tie_starts(prefix * width + x[rows]), len(rows))]
        )
        counts[rows[~one]] += behind[~one]
    return counts


def pearson_left_out(x: Floats, y: Floats) -> tuple[Floats, Floats, Floats]:
    """Covariance and both variances without each example, as means of products of centred and scaled columns."""
    n = len(x) - 1
    with np.errstate(invalid="ignore", divide="ignore"):
        mx, my, xx, yy, xy = ((terms.sum() - terms) / n for terms in (x, y, x * x, y * y, x * y))
    return xy - mx * my, xx - mx**2, yy - my**2


def spearman_left_out(x: Ints, y: Ints) -> tuple[Floats, Floats, Floats]:
    """Sums of products of ranks about their means, and both sums of squares, without each example.

    A mean rank less a half is how many examples are lower, equal ones counting a half: without example i it falls by 1
    for those above i, and by a half for those that are equal.
    """
    n, near = len(x), neighbours(x, y)
    ranks_x, ranks_y = (
        n - higher - equal / 2 for higher, equal in ((near.higher_x, near.equal_x), (near.higher_y, near.equal_y))
    )
    both = near.higher + (near.higher_x_equal_y + near.equal_x_higher_y) / 2 + near.equal / 4
    products = (ranks_x * ranks_y).sum() - ranks_x * ranks_y
    products -= _sums_above(x, ranks_y) - ranks_y / 2
    products -= _sums_above(y, ranks_x) - ranks_x / 2
    products += both - 0.25
    covariance = products - (n - 1) ** 3 / 4
    spread_x, spread_y = (((n - 1) ** 3 - _cubes_left_out(equal)) / 12 for equal in (near.equal_x, near.equal_y))
    return covariance, spread_x, spread_y


def _sums_above(ranks: Ints, values: Floats) -> Floats:
    """For each example the sum of the values of those above it, and half the sum of those that are equal."""
    sums = np.bincount(ranks, values)
    return np.asarray((sums.sum() - np.cumsum(sums) + sums / 2)[ranks])


def _cubes_left_out(equal: Floats) -> Floats:
    """Σ t³ over the groups of t equal values, without each example: each of a group's t members adds t²."""
    return np.asarray((equal**2).sum() - equal**3 + (equal - 1) ** 3)


def kendall_left_out(x: Ints, y: Ints) -> tuple[Floats, Floats, Floats]:
    """Twice the concordant less the discordant pairs, and twice the pairs that are untied in x and in y, without each
    example."""
    n, near = len(x), neighbours(x, y)
    up_down = near.higher_x - near.higher - near.higher_x_equal_y
    down_up = near.higher_y - near.higher - near.equal_x_higher_y
    equal_y_lower_x = near.equal_y - near.higher_x_equal_y - near.equal
    down_down = (n - near.higher_x - near.equal_x) - down_up - equal_y_lower_x
    own = near.higher + down_down - up_down - down_up
    untied_x, untied_y = n - near.equal_x, n - near.equal_y
    return own.sum() - 2 * own, untied_x.sum() - 2 * untied_x, untied_y.sum() - 2 * untied_y
