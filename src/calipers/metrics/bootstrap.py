"""Bootstrap: the distribution of a statistic when the examples are drawn again, with replacement."""

from __future__ import annotations

import math
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from calipers.metrics.arrays import Counts, Floats, Ints, Statistic, slices
from calipers.metrics.draws import even_parts, whole_numbers
from calipers.metrics.running import scratch
from calipers.metrics.threads import one_thread_each

# Examples × resamples in hand at a time, per thread, or a few more. From 4 MB an array on, numpy asks for huge pages;
# smaller arrays spend their time in page faults (measured: 3.1 s for eight statistics at 1 << 18, 1.2 s at 1 << 19).
_CHUNK_CELLS = 1 << 19
_PICKS = 1 << 19  # in hand at a time: 4 MB
_MANY_ROWS = 1 << 18  # examples, whose counts are kept from one chunk to the next
_MOST_UNDEFINED = 0.01  # share of resamples
RESAMPLES = 10_000  # unless there are many units
_MANY, _FEWEST = 20_000, 1_000  # units from which on fewer resamples do, and how few


def enough_resamples(units: int) -> int:
    """As many resamples as what is shown needs: 10,000 up to 20,000 units, then fewer in proportion, at least 1,000.

    The end of a 95 % interval of R resamples is off by 2.67 σ / √R, where σ is the standard error of the statistic. A
    share of n units has at most σ = 50 / √n points: with R = 2·10⁸ / n an end is off by less than 0.0095 points,
    and two digits behind the point are shown.

    >>> [enough_resamples(n) for n in (50, 20_000, 40_000, 1_000_000)]
    [10000, 10000, 5000, 1000]
    """
    return max(_FEWEST, RESAMPLES * _MANY // max(_MANY, units))


def distribution(
    statistics: Sequence[Statistic], examples: int, *, resamples: int, seed: int, threads: int = 1
) -> Floats:
    """Every statistic on every resample: float64[statistics, resamples]; all statistics see the same resamples. One
    that gives several rows has as many rows here.

    Each chunk of resamples has its own generator: any number of threads gives the same bits. Memory is a chunk.
    """
    rows = max(1, -(-_CHUNK_CELLS // max(1, examples)))
    starts = range(0, resamples, rows)
    seeds = np.random.SeedSequence(seed).spawn(len(starts))

    def chunk(start: int, chunk_seed: np.random.SeedSequence) -> Floats:
        counts = draw(examples, min(rows, resamples - start), np.random.default_rng(chunk_seed))
        return np.vstack([statistic(counts) for statistic in statistics])

    # Almost 32 MB, taken and given back: from then on glibc's malloc keeps what smaller arrays give back instead of
    # asking for fresh pages each time (a third of the time of a comparison).
    np.empty((1 << 22) - 4096)
    with one_thread_each(), ThreadPoolExecutor(max_workers=threads) as pool:
        return np.concatenate(list(pool.map(chunk, starts, seeds)), axis=1)


def draw(examples: int, resamples: int, rng: np.random.Generator) -> Counts:
    """How often each example is drawn in each resample: float[examples, resamples], columns summing to examples. Counts
    of few are float64, as most statistics want them; those of many float32 in scratch, until the next are drawn."""
    counts = _times_drawn(examples, resamples, rng)
    if examples < _MANY_ROWS:
        return counts.astype(np.float64)
    drawn = scratch("drawn", counts.shape, np.float32)
    drawn[:] = counts
    return drawn


def _times_drawn(examples: int, resamples: int, rng: np.random.Generator) -> NDArray[np.uint8]:
    # A byte holds a count: of more than 255 examples none is drawn as often (once in 10⁵⁰⁰).
    counts = np.zeros(examples * resamples, np.uint8)
    parts = even_parts(examples, -(-_PICKS // resamples))
    for picks in whole_numbers(rng, examples, [(part.stop - part.start, resamples) for part in parts]):
        picks *= resamples
        picks += np.arange(resamples)
        np.add.at(counts, picks.ravel(), np.uint8(1))  # ten times slower with 1
    return counts.reshape(examples, resamples)


def grouped(statistic: Statistic, group: Ints) -> Statistic:
    """The statistic when groups of rows are drawn together: `counts` are then of the groups, int[g, r].

    >>> ratio = grouped(lambda c: np.array([1.0, 2.0, 6.0]) @ c / c.sum(axis=0), np.array([0, 0, 1]))
    >>> ratio(np.array([[1, 1], [1, 0]]))
    array([3. , 1.5])
    """
    width = _CHUNK_CELLS // max(1, len(group))  # resamples at a time: memory is bounded however many rows there are

    def of_groups(counts: Counts) -> Floats:
        parts = slices(counts.shape[1], width)
        return np.concatenate([statistic(np.asarray(counts[:, part])[group]) for part in parts])

    return of_groups


def interval(
    statistic: Statistic, examples: int, *, resamples: int, confidence: float, seed: int
) -> tuple[float, float] | None:
    """The percentile interval of one statistic."""
    drawn = distribution([statistic], examples, resamples=resamples, seed=seed)
    return percentile_interval(drawn[0], confidence=confidence, units=examples)


def expanded(confidence: float, units: int, *, spread: float = 1.0) -> float:
    """The share of the resampled values that an interval must hold to hold the truth with this `confidence`.

    Resampled means vary by √(1 − 1/n) too little, and the quantiles of few units are those of Student's distribution
    (the expanded percentile interval, Hesterberg 2015). Beyond some hundred units it changes nothing that is visible.
    `spread` is by how much more a statistic varies between samples than between resamples.

    >>> round(expanded(0.95, 20), 4), round(expanded(0.95, 10_000), 4)
    (0.9682, 0.95)
    """
    if units < 2:
        return confidence
    quantile = _student(reach(confidence), units - 1)
    return 2 * NormalDist().cdf(spread * quantile * math.sqrt(units / (units - 1))) - 1


def reach(confidence: float) -> float:
    """How many standard deviations to each side hold this share of a normal distribution, 0 < share < 1.

    >>> round(reach(0.95), 4), round(reach(1 - 2**-53), 1)
    (1.96, 8.2)
    """
    return NormalDist().inv_cdf(min((1 + confidence) / 2, math.nextafter(1, 0)))


def _student(z: float, freedom: int) -> float:
    """The quantile of Student's distribution where the normal one's is `z`, by the expansion of Cornish and Fisher
    (within 1 % from 3 degrees of freedom on)."""
    first = (z**3 + z) / 4
    second = (5 * z**5 + 16 * z**3 + 3 * z) / 96
    third = (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384
    return z + first / freedom + second / freedom**2 + third / freedom**3


def percentile_interval(
    values: Floats, *, confidence: float, units: int | None = None, spread: float = 1.0
) -> tuple[float, float] | None:
    """The middle `confidence` share of the resampled values, or None; a little more where they are of few `units` or
    the statistic varies by `spread` more: see `expanded`.

    Resamples in which the statistic is undefined are left out; with more than 1 % of them there is no interval.

    >>> percentile_interval(np.arange(101.0), confidence=0.5)
    (25.0, 75.0)
    >>> percentile_interval(np.array([1.0, np.nan]), confidence=0.9) is None
    True
    """
    defined = values[np.isfinite(values)]
    if len(defined) < (1 - _MOST_UNDEFINED) * len(values) or len(defined) == 0:
        return None
    share = confidence if units is None else expanded(confidence, units, spread=spread)
    low, high = np.quantile(defined, [(1 - share) / 2, (1 + share) / 2])
    return float(low), float(high)
