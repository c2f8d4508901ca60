"""A permutation test for statistics that are no means: which model gave which outcome is drawn anew for each example.

Signs of what each example contributes (`paired.permutation_p`) are exact for a mean, and too careful for a rank
correlation or a figure at the best threshold: the contributions of a single example say little about them. Here the
statistic itself is computed of every permutation. Exchanging asks for outcomes on one scale: those of a model that
says 0.9 where another says 0.4 would be spoiled by a mixture. So they are first replaced by something that leaves the
statistic as it is, such as their ranks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np

from calipers.metrics import paired
from calipers.metrics.arrays import Array, Floats, Statistic, narrow, tie_starts
from calipers.metrics.draws import even_parts, fair_coins
from calipers.metrics.jackknife import Exchanged, Jackknifed
from calipers.metrics.running import scratch
from calipers.metrics.threads import one_thread_each

_CELLS = 1 << 19  # outcomes × permutations in hand at a time; see bootstrap
_MANY_ROWS = 1 << 17  # examples, whose permutations are kept from one chunk to the next
_DRAWN = 1 << 18  # cells that are drawn at a time

Exchange = Callable[[Array], Array]  # a model's outcomes to what may be mixed with another model's


def ranks(values: Array) -> Floats:
    """Mean ranks from 1 on; NaN stays NaN.

    >>> ranks(np.array([0.5, 0.1, np.nan, 0.5])).tolist()
    [2.5, 1.0, nan, 2.5]
    """
    order = np.argsort(values, kind="stable")[: int((~np.isnan(values)).sum())]  # NaN is last
    order = narrow(order, len(values))
    starts = tie_starts(values[order])
    sizes = np.diff(starts, append=len(order))
    middles = (sizes + 1) / 2
    middles += starts
    places = np.full(len(values), np.nan)
    places[order] = np.repeat(middles, sizes)
    return places


def standard_scores(values: Array) -> Floats:
    """Values of mean 0 and standard deviation 1; zeros where all are equal, and NaN stays NaN.

    >>> standard_scores(np.array([1.0, 3.0])).tolist()
    [-1.0, 1.0]
    """
    centred = np.asarray(values, np.float64) - np.nanmean(values)
    spread = np.nanstd(centred)
    return np.asarray(centred / spread if spread > 0 else centred)


def as_they_are(values: Array) -> Array:
    """For outcomes that are on one scale by nature, such as classes."""
    return values


def exchange_p(
    both: Statistic, examples: int, delta: float, *, permutations: int, seed: int, threads: int = 1
) -> float:
    """Two-sided p-value of "no difference": how often models that are exchanged at random differ by `delta` or more.

    `both` is the statistic of the 2 × `examples` outcomes of the first model and then of the second. A permutation in
    which it is undefined counts as one that differs. The drawn models count as one more, so the value is never 0.
    """
    (p_value,) = exchange_ps([(both, delta)], examples, permutations=permutations, seed=seed, threads=threads)
    return p_value


def exchange_ps(
    tests: Iterable[tuple[Statistic, float]], examples: int, *, permutations: int, seed: int, threads: int = 1
) -> list[float]:
    """The same of several statistics, each with its delta, by the same permutations: all, or the first of them where
    these are clear. Of a statistic with a way of its own nothing else is kept: they may be made one after the other."""
    bounds, mixtures = list[float](), list[Exchanged]()
    for both, delta in tests:
        bounds.append(abs(delta) * (1 - 1e-9))
        mixtures.append(_mixtures(both))
        del both
    width = max(1, _CELLS // max(1, 2 * examples))
    sizes = [min(width, permutations - start) for start in range(0, permutations, width)]
    jobs = list(zip(sizes, np.random.SeedSequence(seed).spawn(len(sizes)), strict=True))
    seen, done = ([0] * len(bounds) for _ in range(2))

    def count(open_tests: Sequence[int], job: tuple[int, np.random.SeedSequence]) -> list[int]:
        first = _draw_owners(examples, job[0], np.random.default_rng(job[1]))
        differences = [np.subtract(*mixtures[i](first)) for i in open_tests]
        return [int((~(np.abs(d) < bounds[i])).sum()) for i, d in zip(open_tests, differences, strict=True)]

    with one_thread_each(), ThreadPoolExecutor(max_workers=threads) as pool:
        early = -(-paired.FIRST_PERMUTATIONS // width)
        for part in (jobs[:early], jobs[early:]):
            open_tests = [i for i, bound in enumerate(bounds) if bound and not paired.is_clear(seen[i], done[i])]
            counted = list(pool.map(partial(count, open_tests), part)) if open_tests else []
            for place, i in enumerate(open_tests):
                seen[i] += sum(counts[place] for counts in counted)
                done[i] += sum(size for size, _ in part)
    return [(s + 1) / (n + 1) if bound else 1.0 for s, n, bound in zip(seen, done, bounds, strict=True)]


def _draw_owners(examples: int, permutations: int, rng: np.random.Generator) -> Floats:
    """Which examples have the outcome of the first model, 0 or 1: float64[examples, permutations]; of many examples in
    scratch."""
    if examples < _MANY_ROWS:
        return fair_coins(rng, (examples, permutations))
    first = scratch("first", (examples, permutations), np.float64)
    for part in even_parts(examples, _DRAWN // permutations):
        first[part] = fair_coins(rng, first[part].shape)
    return first


def _mixtures(both: Statistic) -> Exchanged:
    """Who has what to the statistic of both mixtures: the fast way, if there is one."""

    def one_by_one(first: Floats) -> tuple[Floats, Floats]:
        one, other = (both(np.concatenate([rows, 1.0 - rows])) for rows in (first, 1.0 - first))
        return one, other

    return (both.exchanged if isinstance(both, Jackknifed) else None) or one_by_one
