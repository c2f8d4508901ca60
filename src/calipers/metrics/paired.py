"""Paired statistics: what each example contributes to a difference, and whether the difference could be chance.

Nothing here knows a metric: a statistic is a function of how often each example counts (see `bootstrap`).
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from calipers.metrics.arrays import Floats, Statistic, once
from calipers.metrics.jackknife import Jackknifed
from calipers.metrics.means import ValueMean
from calipers.metrics.running import forget_scratch

_CELLS = 1 << 19  # examples × left-out examples in hand at a time; see bootstrap
_SIGNS = 1 << 24  # examples × permutations in hand at a time: 128 MB
FIRST_PERMUTATIONS, _NOT_SMALL = 1_999, 0.25  # see `is_clear`


def influence(statistic: Statistic, examples: int, *, threads: int = 1) -> Floats:
    """What each example adds to the statistic: n·θ − (n − 1)·θ without it, less θ (Tukey's pseudo-values, centred).

    For a mean this is the example's value less the mean. NaN where the statistic needs that example to be defined.

    >>> influence(lambda counts: np.array([1.0, 2.0, 6.0]) @ counts / counts.sum(axis=0), 3)
    array([-2., -1.,  3.])
    """
    if isinstance(statistic, ValueMean):
        return _influence_on_mean(statistic)
    whole = statistic(np.ones((examples, 1)))[0]
    if isinstance(statistic, Jackknifed):
        forget_scratch()  # of many examples it is a fifth of what is needed here
        added = statistic.left_out()
        np.subtract(whole, added, out=added)
        added *= examples - 1
        return added
    width = max(1, _CELLS // max(1, examples))

    def leave_out(start: int) -> Floats:
        stop = min(start + width, examples)
        counts = np.ones((examples, stop - start))
        counts[np.arange(start, stop), np.arange(stop - start)] = 0.0
        return statistic(counts)

    with ThreadPoolExecutor(max_workers=threads) as pool:
        without = np.concatenate(list(pool.map(leave_out, range(0, examples, width))))
    return np.asarray((examples - 1) * (whole - without))


def has_closed_form(statistic: Statistic) -> bool:
    """Whether the influence of all examples takes no more than a few passes over them."""
    return isinstance(statistic, (ValueMean, Jackknifed))


def _influence_on_mean(mean: ValueMean) -> Floats:
    """In closed form; an example without a value adds nothing, and the only value of a group is needed."""
    added = np.zeros(len(mean.values))
    groups = mean.places()
    for rows in groups:
        values = mean.values[rows]
        finite = np.isfinite(values)
        count = int(finite.sum())
        if count < 2:
            added[rows] = np.where(finite, np.nan, 0.0)
            continue
        centred = np.where(finite, values, 0.0) - values[finite].mean()
        added[rows] = np.where(finite, centred * ((len(added) - 1) / (count - 1) / len(groups)), 0.0)
    return added


def contributions(first: Statistic, second: Statistic, added: tuple[Floats, Floats]) -> Floats:
    """What each example adds to second − first, float64[n]; NaN where it says nothing. They sum to the difference,
    exactly for means and nearly for others.

    `added` is the influence of the examples on each. For a mean an example adds its share of its own difference.

    >>> first, second = ValueMean(np.array([1.0, np.nan])), ValueMean(np.array([0.5, np.nan]))
    >>> contributions(first, second, (np.zeros(2), np.zeros(2)))
    array([-0.5,  nan])
    """
    if isinstance(first, ValueMean) and isinstance(second, ValueMean):
        return np.asarray(second.shares * second.values - first.shares * first.values)
    return shares_of(once(second, len(added[0])) - once(first, len(added[0])), added)


def shares_of(delta: float, added: tuple[Floats, Floats] | Floats) -> Floats:
    """The same of a difference of statistics that are no means."""
    shares = added[1] - added[0]
    shares += delta
    shares /= len(added[0])
    return np.asarray(shares)


def permutation_p(differences: Floats, *, permutations: int, seed: int) -> float:
    """Two-sided p-value of "no difference": how often random signs make the sum as far from 0 as it is.

    `differences` are what each example adds to the difference of two statistics; examples that say nothing (NaN) are
    left out. The drawn signs count as one more permutation, so the value is never 0. The first ones do where they are
    clear.

    >>> permutation_p(np.zeros(5), permutations=99, seed=1)
    1.0
    """
    each = differences[np.isfinite(differences) & (differences != 0)]  # the sign of 0 changes nothing
    if not len(each):
        return 1.0
    rng = np.random.default_rng(seed)
    # Sums of the same numbers in another order differ by rounding: a tie must stay one.
    seen, done, bound = 0, 0, abs(each.sum()) - 1e-12 * np.abs(each).sum()
    most = max(1, min(256, _SIGNS // len(each)))
    while done < permutations and not is_clear(seen, done):
        rows = min(most, permutations - done)
        bits = rng.integers(0, 256, size=(rows, -(-len(each) // 8)), dtype=np.uint8)  # a sign is one bit
        signs = np.unpackbits(bits, axis=1, count=len(each)).astype(np.float64)
        # Σ ±dᵢ = 2·Σ of those drawn + − Σ of all
        sums = 2.0 * (signs @ each) - each.sum()
        seen += int((np.abs(sums) >= bound).sum())
        done += rows
    return (seen + 1) / (done + 1)


def is_clear(seen: int, done: int) -> bool:
    """Whether `seen` of so many permutations say enough: nobody calls a p-value small that is above a quarter in 1,999
    or more. Its standard error is 0.011 at most then. A value of a quarter or less is always the one of all
    permutations, so that no test at such a level rejects more often.

    >>> is_clear(500, 1_999), is_clear(499, 1_999), is_clear(500, 1_000)
    (True, False, False)
    """
    return done >= FIRST_PERMUTATIONS and seen > _NOT_SMALL * done


def holm(p_values: Sequence[float]) -> list[float]:
    """p-values as they are when all are looked at together (Holm's step-down), in the order given; at most 1.

    >>> holm([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    """
    adjusted, so_far = [0.0] * len(p_values), 0.0
    for place, i in enumerate(sorted(range(len(p_values)), key=lambda i: p_values[i])):
        so_far = max(so_far, (len(p_values) - place) * p_values[i])
        adjusted[i] = min(1.0, so_far)
    return adjusted
