"""Statistics that know what they are without each example, so that nothing is computed n times.

Leaving out one example at a time costs O(n²) for most statistics; of the ones here the n values follow from sums and
counts of the whole sample in O(n log n). `paired.influence` uses them at any number of examples.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from calipers.metrics.arrays import Array, Bools, Counts, Floats, Ints, Statistic, narrow, once, tie_starts

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
        statistic = self.statistic  # alone, or what it is called by would keep what `left_out` needs
        return Jackknifed(
            lambda counts: change(statistic(counts)), lambda: change(self.left_out()), self._exchanged(change)
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

        statistic = self.statistic
        return Jackknifed(lambda counts: statistic(counts[rows]), left_out)


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
    """For each example, how many others are higher or equal in x and in y: whole numbers[n], in as few bits as hold
    them. `equal` counts the example."""

    higher: Array  # in both
    higher_x_equal_y: Array
    equal_x_higher_y: Array
    equal: Array  # in both


def neighbours(x: Array, y: Array) -> Neighbours:
    """Of ranks from 0 on, equal ones for equal values."""
    higher = _higher_in_both(x, y)
    _, higher_x_equal_y = _block_ends(y, x)
    equal, equal_x_higher_y = _block_ends(x, y)
    return Neighbours(higher, higher_x_equal_y, equal_x_higher_y, equal)


def _above_and_equal(ranks: Array) -> tuple[Floats, Floats]:
    """For each example, how many have a higher rank, and how many the same, itself among them."""
    sizes = np.bincount(ranks).astype(np.float64)
    return (len(ranks) - np.cumsum(sizes))[ranks], sizes[ranks]


def _block_ends(outer: Array, inner: Array) -> tuple[Array, Array]:
    """How many have the same outer and inner rank, and how many of the same outer rank have a higher inner one."""
    order = narrow(np.lexsort((inner, outer)), len(outer))
    key = outer[order].astype(np.int64)
    groups = tie_starts(key)
    key *= int(inner.max(initial=0)) + 1
    key += inner[order]
    blocks = tie_starts(key)
    del key
    block_ends = _ends(blocks, len(order))
    equal, behind = np.empty_like(block_ends), np.empty_like(block_ends)
    behind[order] = _ends(groups, len(order)) - block_ends
    block_ends -= np.repeat(narrow(blocks, len(order) + 1), np.diff(blocks, append=len(order)))
    equal[order] = block_ends
    return equal, behind


def _ends(starts: Ints, size: int) -> Array:
    """For each row, where its group ends."""
    return np.repeat(narrow(np.append(starts[1:], size), size + 1), np.diff(starts, append=size))


def _higher_in_both(x: Array, y: Array) -> Array:
    """For each example, how many have a higher x and a higher y; in O(n log n), one bit of y after the other.

    Two different ranks part at one bit: the higher one has a 1 there. Among the rows that share the bits above, in the
    order of x, the ones behind a row's ties in x are counted.
    """
    counts = narrow(np.zeros(len(x)), len(x))
    rows = narrow(np.argsort(x, kind="stable"), len(x))
    width = int(x.max(initial=0)) + 1
    for bit in reversed(range(int(y.max(initial=0)).bit_length())):
        prefix = y[rows] >> (bit + 1)
        order = np.argsort(prefix, kind="stable")
        rows, key = rows[order], prefix[order].astype(np.int64)
        del prefix, order
        group_ends = _ends(tie_starts(key), len(rows))
        key *= width
        key += x[rows]
        tie_ends = _ends(tie_starts(key), len(rows))
        del key
        one: Bools = ((y[rows] >> bit) & 1).astype(bool)
        before = narrow(np.append(0, np.cumsum(one)), len(rows) + 1)
        zeros = np.flatnonzero(~one)
        counts[rows[zeros]] += before[group_ends[zeros]] - before[tie_ends[zeros]]
    return counts


def pearson_left_out(x: Floats, y: Floats) -> tuple[Floats, Floats, Floats]:
    """Covariance and both variances without each example, as means of products of centred and scaled columns."""

    def without(terms: Floats) -> Floats:
        with np.errstate(invalid="ignore", divide="ignore"):
            np.subtract(terms.sum(), terms, out=terms)
            return np.asarray(np.divide(terms, len(x) - 1, out=terms))

    mx, my, covariance = without(x.copy()), without(y.copy()), without(x * y)
    covariance -= mx * my
    mx *= mx
    my *= my
    return covariance, without(x * x) - mx, without(y * y) - my


def spearman_left_out(x: Array, y: Array) -> tuple[Floats, Floats, Floats]:
    """Sums of products of ranks about their means, and both sums of squares, without each example.

    A mean rank less a half is how many examples are lower, equal ones counting a half: without example i it falls by 1
    for those above i, and by a half for those that are equal.
    """
    n, both = len(x), _half_above(neighbours(x, y))
    ranks_x, ranks_y = _half_ranks(x), _half_ranks(y)
    products = ranks_x * ranks_y
    np.subtract(products.sum(), products, out=products)
    products -= _sums_above(x, ranks_y) - ranks_y / 2
    products -= _sums_above(y, ranks_x) - ranks_x / 2
    both -= 0.25
    products += both
    del both, ranks_x, ranks_y
    products -= (n - 1) ** 3 / 4
    return products, _spread_left_out(x), _spread_left_out(y)


def _half_above(near: Neighbours) -> Floats:
    """Of each example the others that are above it in both, equal ones counting a half in each."""
    above = near.higher + (near.higher_x_equal_y + near.equal_x_higher_y) / 2
    above += near.equal / 4
    return np.asarray(above)


def _half_ranks(ranks: Array) -> Floats:
    """Mean ranks less a half."""
    higher, equal = _above_and_equal(ranks)
    return np.asarray(len(ranks) - higher - equal / 2)


def _spread_left_out(ranks: Array) -> Floats:
    """The sum of squares of ranks about their mean, without each example."""
    sizes = np.bincount(ranks).astype(np.float64)
    return (((len(ranks) - 1) ** 3 - _cubes_left_out(sizes, sizes[ranks])) / 12)[ranks]


def _sums_above(ranks: Ints, values: Floats) -> Floats:
    """For each example the sum of the values of those above it, and half the sum of those that are equal."""
    sums = np.bincount(ranks, values)
    return np.asarray((sums.sum() - np.cumsum(sums) + sums / 2)[ranks])


def _cubes_left_out(sizes: Floats, equal: Floats) -> Floats:
    """Σ t³ over the groups of t equal values, without an example of each group: each of its t members adds t². `equal`
    has the t of each example."""
    return np.asarray(np.square(equal).sum() - sizes**3 + (sizes - 1) ** 3)


def kendall_left_out(x: Ints, y: Ints) -> tuple[Floats, Floats, Floats]:
    """Twice the concordant less the discordant pairs, and twice the pairs that are untied in x and in y, without each
    example."""
    n, near = len(x), neighbours(x, y)
    higher, higher_x_equal_y, equal_x_higher_y, equal = (part.astype(np.float64) for part in vars(near).values())
    (higher_x, equal_x), (higher_y, equal_y) = _above_and_equal(x), _above_and_equal(y)
    up_down = higher_x - higher - higher_x_equal_y
    down_up = higher_y - higher - equal_x_higher_y
    equal_y_lower_x = equal_y - higher_x_equal_y - equal
    down_down = (n - higher_x - equal_x) - down_up - equal_y_lower_x
    own = higher + down_down - up_down - down_up
    untied_x, untied_y = n - equal_x, n - equal_y
    return own.sum() - 2 * own, untied_x.sum() - 2 * untied_x, untied_y.sum() - 2 * untied_y
