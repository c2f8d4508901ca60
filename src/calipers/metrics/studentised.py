"""The studentised bootstrap: how far a resampled estimate lies from the estimate, in standard errors of its own.

Percentiles of resampled values are too narrow where a few examples carry the loss: a resample that misses them has a
small value and a small error. Measured in its own error it lies far off, and the interval becomes as wide as the
sample's ignorance. The errors follow from influence values (see `paired.influence`), for a mean exactly.
`docs/statistics.md` shows the simulations by which this was chosen.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from statistics import NormalDist

import numpy as np

from calipers.metrics import bootstrap
from calipers.metrics.arrays import Counts, Floats, Statistic, once
from calipers.metrics.jackknife import Jackknifed
from calipers.metrics.moments import moment_sums_of
from calipers.metrics.paired import has_closed_form, influence

MOST_TO_LEAVE_OUT = 20_000  # units; beyond, leaving out one at a time takes minutes where there is no closed form
_MOST_UNDEFINED = 0.01  # share of resamples
_ROUNDING = 1e-15  # relative, of each of the sums over examples that an influence value is the difference of


@dataclass(frozen=True)
class Pivot:
    """An estimate, its standard error, and what (resampled estimate − estimate) / its own error came out as.

    What is true of a value is read off the same numbers: `interval` and `chance_of` agree with each other.
    """

    estimate: float
    error: float  # 0: nothing varies
    ratios: Floats  # sorted; infinite where a resample has an error of 0
    skewness: float = 0.0  # of what the units add to the estimate, over √n: how skewed the estimate is itself

    def interval(self, confidence: float) -> tuple[float, float] | None:
        """The middle `confidence` share, or None where an end is not bounded by the sample.

        >>> Pivot(1.0, 0.5, np.linspace(-2.0, 4.0, 101)).interval(0.5)
        (-0.25, 1.25)
        """
        if self.error == 0.0:
            return self.estimate, self.estimate
        last = len(self.ratios) - 1  # np.quantile would bring a module that takes as long as all the rest
        low, high = (self.ratios[round(last * share)] for share in ((1 - confidence) / 2, (1 + confidence) / 2))
        if not (np.isfinite(low) and np.isfinite(high)):
            return None
        return float(self.estimate - high * self.error), float(self.estimate - low * self.error)

    def chance_of(self, bound: float, *, more: bool = False) -> float:
        """The chance that the true value is at least `bound`, or `more` than it. It never rises with the bound.

        >>> Pivot(1.0, 0.5, np.linspace(-2.0, 2.0, 5)).chance_of(0.5)
        0.8
        """
        if self.error == 0.0 or np.isinf(bound):
            return float(self.estimate > bound if more else self.estimate >= bound)
        place = (self.estimate - bound) / self.error
        return float(np.searchsorted(self.ratios, place, side="left" if more else "right") / len(self.ratios))


def error_statistic(added: Floats) -> Statistic:
    """Squared standard errors of each resample, float64[3, r]: of the change, of change and base together, of the base.

    `added` are influence values, float64[2, n]: those of the base, and of what it is changed to. They are held alone.

    >>> error_statistic(np.array([[0.0, 0.0], [-1.0, 1.0]]))(np.array([[1.0, 2.0], [1.0, 0.0]]))
    array([[0.5, 0. ],
           [0. , 0. ],
           [0. , 0. ]])
    """
    n, whole = added.shape[1], bool(np.isfinite(added).all())

    def columns(part: slice) -> tuple[Floats, Floats]:
        base, changed = added[:, part]
        return (changed - base, base) if whole else (np.nan_to_num(changed - base), np.nan_to_num(base))

    sums = moment_sums_of(columns, n)

    def statistic(counts: Counts) -> Floats:
        d, a, dd, da, aa = sums(counts) / n
        return np.asarray(np.stack([dd - d * d, da - d * a, aa - a * a]) / n)

    return statistic


def make_pivot(
    estimate: float, drawn: Floats, added: Floats, squared_errors: Floats, *, rounding: float
) -> Pivot | None:
    """Of an estimate, its resampled values, float64[r], with their squared errors, and what each unit adds to it (its
    influence), float64[n]; None where it is undefined in more than 1 % of the resamples, or in the sample. An error up
    to `rounding` is none."""
    defined = ~(np.isnan(drawn) | np.isnan(squared_errors))
    if defined.mean() < 1 - _MOST_UNDEFINED or not defined.any() or not np.isfinite(estimate):
        return None
    centred, units = np.nan_to_num(added) - np.nan_to_num(added).mean(), len(added)
    error = float(np.sqrt(np.mean(centred**2) / units))
    if error <= rounding:
        return Pivot(estimate, 0.0, np.zeros(1))
    errors = np.sqrt(np.maximum(0.0, squared_errors[defined]))
    moved = drawn[defined] - estimate
    moved[np.abs(moved) <= 1e-9 * error] = 0.0
    with np.errstate(divide="ignore", invalid="ignore"):
        ratios = np.where(moved == 0.0, 0.0, moved / np.where(errors > 1e-6 * error, errors, 0.0))
    # A sample shows less of the skewness than there is: the side of the longer tail is stretched.
    skewness = float(np.mean(centred**3) / np.mean(centred**2) ** 1.5 / np.sqrt(units))
    ratios *= np.where(ratios < 0, 1 + max(0.0, skewness), 1 + max(0.0, -skewness))
    return Pivot(estimate, error * _widening(units), np.sort(ratios), skewness)


def percentile_pivot(estimate: float, drawn: Floats) -> Pivot | None:
    """Where no errors are at hand: resampled values as they are, so that an interval holds their middle share."""
    defined = drawn[~np.isnan(drawn)]
    if len(defined) < (1 - _MOST_UNDEFINED) * len(drawn) or not len(defined) or not np.isfinite(estimate):
        return None
    return Pivot(estimate, 1.0, np.sort(estimate - defined))


def _widening(units: int) -> float:
    """Of the error of few units, which a sample shows too small; by simulation, docs/statistics.md."""
    return (units + 5) / (units - 1) if units > 1 else 1.0


@dataclass(frozen=True)
class PairedDraws:
    """Two statistics on the same resamples. What follows from influence is None where there are too many units to leave
    each one out."""

    values: Floats  # float64[2]
    drawn: Floats  # float64[2, r]
    added: Floats | None  # float64[2, n]: the influence of each unit
    squared_errors: Floats | None  # float64[3, r]: see `error_statistic`
    units: int
    spread: float = 1.0  # by how much more the statistics vary between samples than between resamples of one

    def difference(self, sign: float = 1.0) -> Pivot | None:
        """sign · (second − first)."""
        estimate, drawn = sign * (self.values[1] - self.values[0]), sign * (self.drawn[1] - self.drawn[0])
        return self._pivot(float(estimate), drawn, 0.0, sign)

    def share(self, sign: float = 1.0) -> Pivot | None:
        """The same as a share of the size of the first. The first must not be 0."""
        first = float(self.values[0])
        with np.errstate(divide="ignore", invalid="ignore"):
            estimate = sign * (self.values[1] - first) / abs(first)
            drawn = sign * (self.drawn[1] - self.drawn[0]) / np.abs(self.drawn[0])
            return self._pivot(float(estimate), drawn, 1.0, sign / abs(first))

    def _pivot(self, estimate: float, drawn: Floats, relative: float, scale: float) -> Pivot | None:
        """`relative` is 1 for a share, whose influence is (d − (b − a) / a · a's) / |a|, d that on the difference."""
        if self.units < 2:
            return None  # every resample of one unit is that unit
        if self.added is None or self.squared_errors is None:
            return percentile_pivot(estimate, drawn)
        (a, b), (first, second), errors = self.added, self.drawn, self.squared_errors
        ratio = relative * (self.values[1] - self.values[0]) / self.values[0] if relative else 0.0
        ratios = relative * (second - first) / first if relative else np.zeros_like(first)
        squared = errors[0] - 2 * ratios * errors[1] + ratios**2 * errors[2]
        squared = squared / first**2 if relative else squared
        rounding = abs(scale) * _ROUNDING * self.units * max(*np.abs(self.values), np.nan_to_num(np.abs(a)).max())
        pivot = make_pivot(estimate, drawn, scale * (b - a - ratio * a), squared, rounding=float(rounding))
        return replace(pivot, error=self.spread * pivot.error) if pivot else None


def alone(statistic: Statistic) -> tuple[Statistic, Statistic]:
    """A pair whose difference is the statistic itself."""
    return (lambda counts: np.zeros(counts.shape[1])), statistic


def draw_pairs(
    pairs: Iterable[tuple[Statistic, Statistic]],
    units: int,
    *,
    resamples: int,
    seed: int,
    threads: int = 1,
    most: int = MOST_TO_LEAVE_OUT,
) -> list[PairedDraws]:
    """Every pair of statistics on the same resamples of `units`, the errors too where there are at most `most` or where
    the influence of all of them has a closed form. Pairs are taken one after the other, and of each only what resamples
    need is kept."""
    prepared = list[_Prepared]()
    for pair in pairs:
        prepared.append(_prepare(pair, units, threads=threads, most=most))
        del pair
    rows = [statistic for each in prepared for statistic in each.rows]
    drawn = bootstrap.distribution(rows, units, resamples=resamples, seed=seed, threads=threads)
    ends = np.cumsum([2 if each.added is None else 5 for each in prepared])
    return [
        PairedDraws(each.values, here[:2], each.added, None if each.added is None else here[2:], units)
        for each, here in zip(prepared, np.split(drawn, ends[:-1]), strict=True)
    ]


@dataclass(frozen=True)
class _Prepared:
    """A pair before it is drawn: its values, float64[2], the influence of each unit, float64[2, n], and what is asked
    of each resample."""

    values: Floats
    added: Floats | None
    rows: tuple[Statistic, ...]


def _prepare(pair: tuple[Statistic, Statistic], units: int, *, threads: int, most: int) -> _Prepared:
    rows = tuple(each.statistic if isinstance(each, Jackknifed) else each for each in pair)
    values = np.array([once(statistic, units) for statistic in pair])
    if units > most and not all(map(has_closed_form, pair)):
        return _Prepared(values, None, rows)
    added = np.empty((2, units))
    for row, statistic in zip(added, pair, strict=True):
        row[:] = influence(statistic, units, threads=threads)
    return _Prepared(values, added, (*rows, error_statistic(added)))


def _quantile(ordered: Floats, share: float) -> float:
    """np.quantile of ascending values; it would bring a module that takes as long as all the rest.

    >>> _quantile(np.array([1.0, 2.0, 4.0]), 0.75)
    3.0
    """
    place = share * (len(ordered) - 1)
    below = min(int(place), len(ordered) - 2)
    return float(ordered[below] + (place - below) * (ordered[below + 1] - ordered[below])) if below >= 0 else ordered[0]


def units_to_settle(pivot: Pivot, distance: float, units: int, *, confidence: float, power: float = 0.85) -> int | None:
    """About how many units show with the chance `confidence` on which side of a bound a value is that lies `distance`
    from it, in the share `power` of samples; None for a distance of 0.

    It is planned for 85 %, so that 80 % are reached where the sample shows the error too small. What skewness adds to
    quantiles, and to how far the end of an interval varies between samples, shrinks with the root of the number.

    >>> units_to_settle(Pivot(0.0, 1.0, np.linspace(-1.645, 1.645, 101)), 1.0, 100, confidence=0.999)
    1523
    """
    error = pivot.error / _widening(units)
    if distance == 0 or not np.isfinite(distance):
        return None
    if error == 0:
        return units
    finite = pivot.ratios[np.isfinite(pivot.ratios)]
    end = _quantile(finite, confidence) if distance > 0 else -_quantile(finite, 1 - confidence)
    normal, beyond = NormalDist().inv_cdf(confidence), NormalDist().inv_cdf(power)
    extra, skewness = max(0.0, float(end) - normal), pivot.skewness if distance < 0 else -pivot.skewness
    needed = float(units)
    for _ in range(30):
        shrunk = np.sqrt(units / needed)
        quantile = (normal + extra * shrunk) * _widening(int(needed))
        # An end L + q·e varies by Var L + 2 q Cov(L, e) + q² Var e; of a gamma distribution, by its skewness alone.
        tilt = 1.5 * quantile * skewness * shrunk  # a sample shows less of the skewness than there is
        reach = quantile + beyond * np.sqrt(max(0.25, 1 + tilt + 0.375 * tilt**2))
        needed = max(2.0, units * (reach * error / abs(distance)) ** 2)
    return int(np.ceil(needed))
