"""A threshold that keeps a promise: with a stated confidence at most a stated share of what is answered fails.

Learn then Test (Angelopoulos et al. 2021) with exact binomial tails and a fixed sequence. One half of the judged
queries gives the map and the order in which thresholds are tried: from the one where the promise looks likeliest to
lower ones. The other half, which neither has seen, tests them in this order and stops at the first that fails. Each
test is: were the share of failures above `error`, so few failures among those answered would come with a probability of
at most 1 − confidence. With that order fixed no correction for many tests is needed.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from calipers.metrics import probabilities
from calipers.metrics.arrays import Array, Floats

_STEPS = 60  # thresholds that are tried, at most
_ERRORS = np.arange(1, 61) / 100
_MOST = 100_000  # judged queries that are still worth naming
_LIKELY = 0.5  # of the tail that passes: an estimate at the edge passes in one of two samples only


@dataclass(frozen=True)
class Promise:
    """`threshold` None: it cannot be given. `answered` is the share of the `count` tested queries from the threshold
    on, with the `failures` among them. `possible` is the lowest error that could be promised, at which a share
    `possible_answered` is answered; `needed` how many judged queries would give the requested one, None where no number
    does (below 100,000)."""

    error: float
    confidence: float
    count: int
    threshold: float | None = None
    answered: float = 0.0
    failures: int = 0
    possible: float | None = None
    possible_answered: float = 0.0
    needed: int | None = None

    @property
    def sentence(self) -> str:
        error, sure = _chosen(self.error), f"with {_chosen(self.confidence)} confidence"
        if self.threshold is not None:
            return (
                f"At {error} errors, {sure}, this model can answer {_measured(self.answered)} of queries "
                f"({self.failures} failures among {round(self.answered * self.count)} of {self.count} held-out ones)."
            )
        other = ""
        if self.possible is not None:
            possible = _measured(self.possible, self.error)
            other = f" at {possible} it can answer {_measured(self.possible_answered)} of queries."
        start = f"At {error} errors this model can answer nothing{';' if other else '.'}"
        more = (
            f"About {self.needed:,} judged queries would be needed for {error}."
            if self.needed
            else f"More judged queries would not give {error}: no part of these fails so rarely."
        )
        return f"{start}{other} ({sure[0].upper()}{sure[1:]}, on {self.count} held-out queries.) {more}"


def _chosen(share: float) -> str:
    """A share that somebody wrote, with their digits: 12.5%."""
    return f"{100 * share:.10g}%"


def _measured(share: float, *others: float) -> str:
    """A share without decimals, unless it would read as all, as none or as one of the others.

    >>> _measured(0.388), _measured(0.9968), _measured(1.0), _measured(0.2041, 0.2)
    ('39%', '99.7%', '100%', '20.4%')
    """
    apart = [other for other in (0.0, 1.0, *others) if other != share]
    texts = (f"{share:.{digits}%}" for digits in range(12))
    return next(text for digits, text in enumerate(texts) if text not in {f"{x:.{digits}%}" for x in apart})


@lru_cache(maxsize=1 << 16)
def binomial_tail(failures: int, count: int, rate: float) -> float:
    """The probability of at most so many failures among `count` at this rate, exact to rounding.

    >>> round(binomial_tail(1, 10, 0.1), 6)
    0.736099
    """
    if failures >= count:
        return 1.0
    terms = np.arange(failures + 1)
    logs = np.cumsum(np.log(np.maximum(count - terms + 1, 1)) - np.log(np.maximum(terms, 1)))
    logs -= math.log(count + 1)  # the first term is C(n, 0) = 1
    logs += terms * math.log(rate) + (count - terms) * math.log1p(-rate)
    top = logs.max()
    return float(min(1.0, math.exp(top) * np.exp(logs - top).sum()))


def order(scores: Array, labels: Array, tested: int, error: float) -> Floats:
    """Thresholds in the order of their tests, float64[t]: first where `tested` other queries are likeliest to show the
    promise, as far as these scores and labels tell, then lower ones. Empty where none is likely to."""
    curve = probabilities.risk_coverage(scores, labels)
    places = np.unique(np.linspace(0, len(curve.risk) - 1, min(_STEPS, len(curve.risk))).round().astype(int))
    tails = [_expected(curve.risk[i], curve.coverage[i], curve.count, tested, error) for i in places]
    if not tails:
        return np.empty(0)
    start = int(np.argmin(tails))
    return np.asarray(curve.threshold[places[start:]])


def _expected(risk: float, coverage: float, count: int, tested: int, error: float) -> float:
    """The tail that is to be expected on other queries; a share of failures is taken half a failure higher."""
    answered = round(coverage * tested)
    rate = (risk * coverage * count + 0.5) / (coverage * count + 1)
    return binomial_tail(round(rate * answered), answered, error) if answered else 1.0


def keep(scores: Array, labels: Array, thresholds: Floats, *, error: float, confidence: float) -> int | None:
    """The place of the last threshold that passes, all before it having passed; None where the first fails."""
    last = None
    for place, threshold in enumerate(thresholds):
        answered = scores >= threshold
        failures = int((1 - labels[answered]).sum())
        if binomial_tail(failures, int(answered.sum()), error) > 1 - confidence:
            break
        last = place
    return last


def promise(
    learned: tuple[Floats, Floats], tested: tuple[Floats, Floats], *, error: float, confidence: float = 0.95
) -> Promise:
    """From the scores and labels of the half that gave the map (out of fold) and of the half that tests it. A query
    that is never answered has the score −inf."""
    best = _promised(learned, tested, error, confidence)
    if best.threshold is not None:
        return best
    others = (_promised(learned, tested, float(other), confidence) for other in _ERRORS[error + 1e-9 < _ERRORS])
    possible = next((other for other in others if other.threshold is not None), None)
    whole = tuple(np.concatenate(pair) for pair in zip(learned, tested, strict=True))
    return Promise(
        error,
        confidence,
        len(tested[0]),
        possible=possible.error if possible else None,
        possible_answered=possible.answered if possible else 0.0,
        needed=next((n for n in _sizes(len(whole[0])) if _likely(whole[0], whole[1], n, error, confidence)), None),
    )


def _promised(
    learned: tuple[Floats, Floats], tested: tuple[Floats, Floats], error: float, confidence: float
) -> Promise:
    scores, labels = tested
    thresholds = order(*learned, len(scores), error)
    place = keep(scores, labels, thresholds, error=error, confidence=confidence)
    if place is None:
        return Promise(error, confidence, len(scores))
    answered = scores >= thresholds[place]
    failures = int((1 - labels[answered]).sum())
    return Promise(error, confidence, len(scores), float(thresholds[place]), float(answered.mean()), failures)


def _sizes(start: int) -> Iterator[int]:
    """Numbers of judged queries, each a tenth larger, in two figures."""
    size = float(start)
    while (size := size * 1.1) <= _MOST:
        yield int(round(size, 1 - math.floor(math.log10(size))))


def _likely(scores: Floats, labels: Floats, judged: int, error: float, confidence: float) -> bool:
    """Whether so many judged queries, half of them tested, are likely to show the promise."""
    curve = probabilities.risk_coverage(scores, labels)
    places = np.flatnonzero(curve.coverage * curve.count >= 10)
    return any(
        _expected(curve.risk[i], curve.coverage[i], curve.count, judged // 2, error) <= (1 - confidence) * _LIKELY
        for i in places[:: max(1, len(places) // _STEPS)]
    )
