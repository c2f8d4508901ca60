"""Traffic: has it left what a score was calibrated on? A log against a trust score, two sets of texts by a model."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from calipers.core import SILENT, DataError, Progress, RequestError
from calipers.core.inputs import number_of, numbered_lines, open_input, parse_json
from calipers.core.options import Options, option
from calipers.data.texts import load_texts
from calipers.metrics import drift as metrics
from calipers.metrics import predictors
from calipers.metrics.drift import ALARM, Martingale, TwoSamples
from calipers.models import ModelOptions
from calipers.reliability.trust import Trust
from calipers.runs import embedding
from calipers.runs.vector_cache import VectorCache
from calipers.tasks import outputs

_SHOWN = 10  # queries that are named
_LEAST = 20  # real queries of a score
_LEAST_TEXTS = 10  # of a side: two for each fold
_NEW = 0.01  # a p-value below it is named


@dataclass(frozen=True)
class Watch:
    """A log's queries against the calibration's: `capital` of the bet, the place of the `alarm` (None: none), and the
    queries that are new, with their p-values."""

    queries: int
    skipped: int
    capital: float
    highest: float
    alarm: int | None
    new: tuple[tuple[str, float], ...]

    @property
    def sentence(self) -> str:
        if self.alarm is None:
            return (
                f"No alarm in {self.queries:,} queries: the bet against them reached {self.highest:.3g} of {ALARM:g}; "
                "the promise stands as far as these tell."
            )
        return (
            f"ALARM at query {self.alarm:,} of {self.queries:,}: the traffic is not what the score was calibrated on, "
            "and its promise is void. Calibrate it again with judged queries of today."
        )

    def to_dict(self) -> dict[str, Any]:
        named = [{"query": query, "p": p} for query, p in self.new]
        return {"schema": "calipers/watch/1", **asdict(self), "new": named, "sentence": self.sentence}


def watch(trust: Trust, log: Path, *, seed: int = 42) -> Watch:
    """The queries of a service's log, in their order, against the real queries of the score. Lines without predictors
    are skipped."""
    if seed < 0:
        raise RequestError(f"`seed` must be at least 0, found {seed}")
    if not trust.reference or len(next(iter(trust.reference.values()))) < _LEAST:
        raise RequestError(
            f"the trust score remembers fewer than {_LEAST} real queries: fit it again with `queries` or `calibrate`"
        )
    rows, skipped = _read_log(log)
    if not rows:
        raise DataError(
            f"{log} holds no scored query: expected the lines that the service logs, or the answers of `trust` as jsonl"
        )
    names = tuple(trust.reference)
    if any(row.get(name) is None for _, row in rows for name in ("stability", "coherence")):
        names = tuple(name for name in names if name not in ("stability", "coherence"))  # scores alone
    bet = Martingale.fit(predictors.matrix(trust.reference, names), seed=seed)
    values = [(query, bet.add(np.array([_value(row, name) for name in names]))) for query, row in rows]
    strange = sorted((pair for pair in values if pair[1] < _NEW), key=lambda pair: pair[1])
    return Watch(
        bet.count, skipped + len(rows) - bet.count, bet.capital, bet.highest, bet.alarm_at, tuple(strange[:_SHOWN])
    )


def _value(row: Mapping[str, Any], name: str) -> float:
    value = number_of(row.get(name))
    return math.nan if value is None else value


def _read_log(path: Path) -> tuple[list[tuple[str, Mapping[str, Any]]], int]:
    rows: list[tuple[str, Mapping[str, Any]]] = []
    skipped = 0
    for number, line in _lines(path):
        entry = parse_json(line.decode("utf-8", "replace"), f"{path} line {number}")
        facts = entry.get("predictors", entry) if isinstance(entry, dict) else {}
        if isinstance(facts, dict) and number_of(facts.get("top_score")) is not None and "gap" in facts:
            rows.append((str(entry.get("query") or entry.get("id") or number), facts))
        else:
            skipped += 1
    return rows, skipped


def _lines(path: Path) -> Iterator[tuple[int, bytes]]:
    with open_input(path) as file:
        yield from ((number, line) for number, line in numbered_lines(file, str(path)) if line.strip())


@dataclass(frozen=True)
class DriftOptions(Options):
    """Two sets of texts, and how they are compared."""

    reference: str = option("", "Texts of before: a file or folder with queries.jsonl.", group="Data", metavar="A")
    current: str = option("", "Texts of today, in the same formats.", group="Data", metavar="B")
    confidence: float = option(0.95, "Of the interval.", group="Test", above=0, below=1, metavar="P")
    seed: int = option(42, "Of folds and resamples.", group="Test", at_least=0)


@dataclass(frozen=True)
class Drift:
    """Two sets of texts by one model. An `alarm`: the whole interval of the AUROC is above 0.5.

    `reference` and `current` are where they were read from, `counts` how many texts each has, `new` those of today
    that are least like the ones of before, with their ids.
    """

    model_id: str
    reference: str
    current: str
    counts: tuple[int, int]
    test: TwoSamples
    new: tuple[tuple[str, str], ...]

    @property
    def alarm(self) -> bool:
        return self.test.alarm

    @property
    def sentence(self) -> str:
        low, high = self.test.interval or (math.nan, math.nan)
        numbers = f"AUROC {self.test.auroc:.3f}, interval {low:.3f} to {high:.3f}"
        if self.alarm:
            return f"ALARM: a classifier tells the two sets apart on held-out texts ({numbers}; 0.5 is chance)."
        return f"No alarm: a classifier does not tell the two sets apart on held-out texts ({numbers}; 0.5 is chance)."

    def to_dict(self) -> dict[str, Any]:
        return {
            "schema": "calipers/drift/1",
            "model_id": self.model_id,
            "reference": {"path": self.reference, "texts": self.counts[0]},
            "current": {"path": self.current, "texts": self.counts[1]},
            "auroc": self.test.auroc,
            "interval": self.test.interval,
            "alarm": self.alarm,
            "sentence": self.sentence,
            "new": [{"id": id, "text": text} for id, text in self.new],
        }


def drift(
    model: str,
    *,
    options: DriftOptions,
    model_options: ModelOptions | None = None,
    vectors: VectorCache | None = None,
    progress: Progress = SILENT,
) -> Drift:
    """Embed both sets and test whether they differ. Texts that both sets hold count on both sides.

    >>> drift("./model", options=DriftOptions(reference="june.txt", current="july.txt")).alarm
    False
    """
    sides = [load_texts(place, "queries") for place in (options.reference, options.current)]
    for side in sides:
        if len(side) < _LEAST_TEXTS:
            raise DataError(f"{side.source.path} holds {len(side)} texts: a test needs at least {_LEAST_TEXTS}")
    progress.start("Loading the model", 0)
    ids: dict[str, list[str]] = {}
    encoder, _ = embedding.open_encoder(model, ids, model_options or ModelOptions(), vectors)
    arrays = []
    for side in sides:
        embedded = encoder.encode(side.columns["text"], progress=progress)
        outputs.refuse_rows(outputs.not_finite(embedded), side.ids, "NaN or infinite numbers", "texts")
        arrays.append(embedded)
    test = metrics.two_samples(arrays[0], arrays[1], seed=options.seed, confidence=options.confidence)
    return Drift(
        encoder.info.model_id,
        sides[0].source.path,
        sides[1].source.path,
        (len(sides[0]), len(sides[1])),
        test,
        _name(sides[1].ids, sides[1].columns["text"], test.new),
    )


def _name(ids: Sequence[str], texts: Sequence[str], rows: Sequence[int]) -> tuple[tuple[str, str], ...]:
    return tuple((ids[row], texts[row]) for row in rows[:_SHOWN])
