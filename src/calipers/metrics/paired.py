"""Paired statistics: what each example contributes to a difference, and whether the difference could be chance.

Nothing here knows a metric: a statistic is a function of how often each example counts (see `bootstrap`).
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from statistics import NormalDist

import numpy as np

from calipers.metrics.arrays import Floats, Statistic

_CELLS = 1 << 19  # examples × left-out examples in hand at a time; see bootstrap


def influence(statistic: Statistic, examples: int, *, threads: int = 1) -> Floats:
    """What each example adds to the statistic: n·θ − (n − 1)·θ without it, less θ (Tukey's pseudo-values, centred).

    For a mean this is the example's value less the mean. NaN where the statistic needs that example to be defined.

    >>> influence(lambda counts: np.array([1.0, 2.0, 6.0]) @ counts / counts.sum(axis=0), 3)
    array([-2., -1.,  3.])
    """
    width = max(1, _CELLS // max(1, examples))

    def leave_out(start: int) -> Floats:
        stop = min(start + width, examples)
        counts = np.ones((examples, stop - start))
        counts[np.arange(start, stop), np.arange(stop - start)] = 0.0
        return statistic(counts)

    with ThreadPoolExecutor(max_workers=threads) as pool:
        without = np.concatenate(list(pool.map(leave_out, range(0, examples, width))))
    whole = statistic(np.ones((examples, 1)))[0]
    return np.asarray((examples - 1) * (whole - without))


def permutation_p(differences: Floats, delta: float, *, permutations: int, seed: int) -> float:
    """Two-sided p-value of "no difference": how often random signs make the mean as far from 0 as it is.

    `differences` are what each example adds to the candidate's statistic less what it adds to the baseline's, and
    `delta` the difference of the two. The drawn signs count as one more permutation, so the value is never 0.

    >>> permutation_p(np.zeros(5), 0.0, permutations=99, seed=1)
    1.0
    """
    each = np.nan_to_num(differences) + delta  # uncentred: its mean is the difference itself
    if not each.any():
        return 1.0
    rng = np.random.default_rng(seed)
    seen, bound, values = 0, abs(delta) * (1 - 1e-12), each.astype(np.float32)
    for start in range(0, permutations, 256):
        rows = min(256, permutations - start)
        bits = rng.integers(0, 256, size=(rows, -(-len(each) // 8)), dtype=np.uint8)  # a sign is one bit
        signs = np.unpackbits(bits, axis=1, count=len(each)).astype(np.float32)
        # Σ ±dᵢ = 2·Σ of those drawn + − Σ of all
        means = (2.0 * (signs @ values) - each.sum()) / len(each)
        seen += int((np.abs(means) >= bound).sum())
    return (seen + 1) / (permutations + 1)


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


def examples_to_settle(examples: int, distance: float, spread: float, *, confidence: float, power: float = 0.8) -> int:
    """About how many examples a value needs that lies `distance` from a bound and has this standard deviation now.

    With that many, a value at the same place is on its side of the bound in the share `confidence` of the resamples
    with the probability `power`. A distance of 0 cannot be settled: 0.

    >>> examples_to_settle(100, 1.0, 1.0, confidence=0.95)
    619
    """
    if not distance > 0:
        return 0
    z = NormalDist().inv_cdf
    return int(np.ceil(examples * ((z(confidence) + z(power)) * spread / distance) ** 2))
