"""Layer 4, certainty: can a query's results be trusted before anyone looks at them?

Stability, coherence and reliability of every query (metrics.trust), and what they are worth where queries are judged:
AUROC, Brier score and expected calibration error of a probability that a logistic map makes of them, out of fold. With
a model in hand, also how well gibberish, vague queries and queries of another domain are distinguished from real ones.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from calipers.core import (
    Columns,
    DataError,
    Encoder,
    Metric,
    Named,
    Outcomes,
    Progress,
    Statistic,
    figure_tables,
    on_side,
)
from calipers.core.choices import CODECS
from calipers.core.figures import Figure
from calipers.data import odd_queries
from calipers.diagnosis.layer import LayerOptions, kinds_of, make_layer, metric_of, setting
from calipers.diagnosis.layers import shapes
from calipers.metrics import assessment, bootstrap, codecs, geometry, probabilities, search
from calipers.metrics import trust as metrics
from calipers.metrics.arrays import Array, Floats
from calipers.metrics.assessment import Assessment, IntervalEstimate
from calipers.metrics.means import mean_statistic
from calipers.metrics.trust import TrustParts
from calipers.runs.space import LEAST, Space, Texts, directed, put_back

FIGURES = kinds_of("certainty", confident=metrics.CONFIDENT)
_STORED = tuple(f"stability/{name}" for name in CODECS)
ODD = ("gibberish", "vague", "out_of_domain")  # queries that deserve no answer
_PARTS = ("reliability", "confident_queries", "stability", "coherence")
_NAMED = 5


@dataclass(frozen=True)
class CertaintyOptions(LayerOptions):
    k: int = setting(metrics.K, "How many results a user sees.", metavar="K", at_least=2)
    codec: str = setting("int8", "How vectors are stored.", choices=CODECS)
    relevant_from: float = setting(1.0, "Grades from here on are relevant.", metavar="GRADE", above=0)
    folds: int = setting(5, "Of the cross-validation of probabilities.")
    odd: int = setting(200, "How many odd queries of each kind, at most; 0 for none.")
    resamples: int = setting(assessment.RESAMPLES, "For intervals.")

    @property
    def drawing(self) -> dict[str, Any]:
        """What decides an interval, as keywords."""
        return {"resamples": self.resamples, "confidence": self.confidence, "seed": self.seed}


def run(model: Encoder | None, space: Space, options: CertaintyOptions, progress: Progress) -> Outcomes:
    """One row per query: its parts and, where it is judged, whether it succeeds and how likely that seemed.

    A query without a direction (runs.space) has no parts and is NaN in every column.
    """
    queries = space.queries
    if queries is None or not len(queries):
        raise DataError("the layer certainty needs queries, and there are none: give `queries`")
    if len(space.corpus) < LEAST:
        raise DataError(f"certainty needs a corpus of at least {LEAST} documents, found {len(space.corpus)}")
    directions = directed(space)
    outcomes = _run(model, directions.space, options, progress)
    return put_back(outcomes, directions.queries, queries.ids, {"query": tuple(queries.texts)})


def _run(model: Encoder | None, space: Space, options: CertaintyOptions, progress: Progress) -> Outcomes:
    queries = space.queries
    assert queries is not None
    progress.start("Certainty", 0)
    codec = space.corpus.codec(options.codec, options.seed)
    rows = search.nearest_rows(queries.vectors, space.corpus.vectors, options.k, similarity=space.similarity)
    parts = metrics.parts_in(queries.vectors, space.corpus.vectors, rows, codec)
    labels = np.full(len(queries), np.nan)
    if len(space.qrels):
        labels = metrics.success(rows, space.qrels, space.corpus.ids, relevant_from=options.relevant_from)
    judged = assessment.assess(parts, labels, folds=options.folds, **options.drawing)
    stored = {
        f"stability/{name}": codecs.stability(queries.vectors, space.corpus.codec(name, options.seed))
        for name in CODECS
    }
    map_table, kept = shapes.project(space.corpus.vectors, queries.vectors, labels, options.seed)
    figures = [
        *_part_figures(_part_columns(parts) | stored, options),
        *_judged_figures(judged),
        *_odd_figures(model, space, parts, codec, options, progress),
    ]
    columns = _part_columns(parts) | stored | {name: getattr(parts, name) for name in metrics.FEATURES}
    if not judged.reason:
        columns |= {"success": labels, "probability": judged.probabilities["logistic"]}
    return Outcomes(
        ids=queries.ids,
        columns=columns,
        texts={"query": tuple(queries.texts)},
        details={**figure_tables(figures, _named(queries, labels, judged)), **_tables(judged), "map": map_table},
        counts={
            "documents": len(space.corpus),
            "queries": len(queries),
            "queries_judged": int(np.isfinite(labels).sum()),
            "queries_succeed": int(np.nansum(labels)),
            **({"map_neighbours_kept": kept} if np.isfinite(kept) else {}),
        },
        notes=tuple(figure.warning for figure in figures if figure.warning),
    )


# --- figures -----------------------------------------------------------------------------------------------------


def _figure(name: str, measured: IntervalEstimate, count: int, error: float | None = None) -> Figure:
    if not np.isfinite(measured.value):
        return FIGURES[name].unknown("no query has it")
    return FIGURES[name].figure(measured.value, count, interval=measured.interval, standard_error=error)


def _part_columns(parts: TrustParts) -> dict[str, Floats]:
    """What each figure of the parts is the mean of, float64[q], by figure."""
    confident = np.where(np.isnan(parts.reliability), np.nan, parts.reliability > metrics.CONFIDENT)
    return {name: confident if name == "confident_queries" else getattr(parts, name) for name in _PARTS}


def _part_figures(columns: Mapping[str, Floats], options: CertaintyOptions) -> list[Figure]:
    figures = []
    for name, values in columns.items():
        estimate = geometry.mean_estimate(values)
        interval = bootstrap.interval(mean_statistic(values), len(values), **options.drawing)
        measured = IntervalEstimate(estimate.value, interval)
        figures.append(_figure(name, measured, estimate.count, estimate.standard_error))
    return figures


def _judged_figures(judged: Assessment) -> list[Figure]:
    if judged.reason:
        reason = judged.reason if judged.count else "no query is judged: give judgements (`qrels`)"
        return [FIGURES[name].unknown(reason) for name in _JUDGED]
    qualities = {quality.name: quality for quality in judged.qualities}
    figures = [
        _figure(name, getattr(qualities[score], quality), judged.count) for name, (score, quality, _) in _JUDGED.items()
    ]
    return [_warned(figure, judged, qualities["base_rate"].brier.value) for figure in figures]


def _warned(figure: Figure, judged: Assessment, constant: float) -> Figure:
    """Two figures warn: a calibrated score that is no better than a constant, and an R_q that adds nothing."""
    if figure.name == "brier" and figure.value is not None:
        level = f"at or above {constant:.3f}, the Brier score of the base rate"
        warning = f"brier is {figure.value:.3f}, {level}: the score says no more than how often queries succeed"
        return replace(figure, level=level, warning=warning if figure.value >= constant else None)
    if figure.name == "reliability_auroc":
        interval = judged.gain.interval
        adds = interval is not None and interval[0] > 0
        level = "not surely above the AUROC of the top cosine"
        return replace(figure, level=level, warning=None if adds else judged.sentences[0])
    return figure


# --- odd queries -------------------------------------------------------------------------------------------------


def _odd_texts(space: Space, queries: Texts, options: CertaintyOptions) -> dict[str, tuple[Sequence[str], str]]:
    """Queries of each kind that deserve no answer, and which they are, in words."""
    most, texts = options.odd, space.corpus.texts
    foreign, which = space.foreign, " (the given ones)"
    if not space.foreign:
        bundled = odd_queries.foreign(texts, queries.texts)
        foreign, which = bundled.queries, f" (bundled ones about {', '.join(bundled.domains)})"
    return {
        "gibberish": (odd_queries.gibberish(most, seed=options.seed), ""),
        "vague": (odd_queries.vague(texts, most), ""),
        "out_of_domain": (foreign[:most], which),
    }


def _odd_figures(
    model: Encoder | None,
    space: Space,
    real: TrustParts,
    codec: codecs.Codec,
    options: CertaintyOptions,
    progress: Progress,
) -> list[Figure]:
    """How well each kind is distinguished from the real queries; unknown without a model that can encode them."""
    names = [f"{kind}_auroc" for kind in ODD]
    if model is None or model.info.backend == "vectors" or not options.odd:
        return [FIGURES[name].unknown("there is no model in hand to embed such queries") for name in names]
    assert space.queries is not None
    figures = []
    for (kind, (texts, which)), name in zip(_odd_texts(space, space.queries, options).items(), names, strict=True):
        parts = real.take(np.empty(0, np.int64))
        if texts:
            vectors = on_side(model, "query").encode(texts, prompt=space.queries.prompt, progress=progress)
            alive = vectors[geometry.norms(vectors) > 0]
            rows = search.nearest_rows(alive, space.corpus.vectors, options.k, similarity=space.similarity)
            parts = metrics.parts_in(alive, space.corpus.vectors, rows, codec) if len(alive) else parts
        detection = assessment.detect(kind, parts, real, folds=options.folds, **options.drawing)
        if detection.reason:
            figures.append(FIGURES[name].unknown(detection.reason))
            continue
        figure = _figure(name, detection.auroc, detection.count + detection.real)
        meaning = f"{figure.meaning[:-1]}{which}; 5 % false alarms find {detection.found:.0%} of them."
        figures.append(replace(figure, meaning=meaning))
    return figures


# --- outcomes ----------------------------------------------------------------------------------------------------


def _tables(judged: Assessment) -> dict[str, Columns]:
    """The curves of the calibrated score, for the report."""
    if judged.reason:
        return {}
    points, risk = judged.curves["logistic"], judged.risks["logistic"]
    ends = np.array([point.interval or (np.nan, np.nan) for point in points])
    stated = {key: np.array([getattr(point, key) for point in points]) for key in ("probability", "share", "count")}
    return {
        "reliability_curve": {**stated, "low": ends[:, 0], "high": ends[:, 1]},
        "risk_coverage": {"threshold": risk.threshold, "coverage": risk.coverage, "risk": risk.risk},
    }


def _named(queries: Texts, labels: Floats, judged: Assessment) -> list[Named]:
    """The queries that the calibrated score was most wrong about, either way."""
    if judged.reason:
        return []
    p = judged.probabilities["logistic"]
    named = []
    for order, label, note in (
        (-p, 0, "seemed sure, and no relevant result is among the first"),
        (p, 1, "seemed hopeless, and a relevant result is among the first"),
    ):
        rows = np.flatnonzero((labels == label) & np.isfinite(p))
        first = rows[np.argsort(order[rows], kind="stable")][:_NAMED].tolist()
        named += [Named("auroc", queries.ids[i], str(queries.texts[i]), float(p[i]), note) for i in first]
    return named


# --- metrics -----------------------------------------------------------------------------------------------------


def _judged_only(statistic: Callable[[Array, Array], Statistic], score: str) -> Callable[[Columns], Statistic]:
    """Over the queries that are judged: the others count for nothing."""

    def prepare(columns: Columns) -> Statistic:
        rows = np.flatnonzero(np.isfinite(columns["success"]) & np.isfinite(columns[score]))
        inner = statistic(columns[score][rows], columns["success"][rows])
        return lambda counts: inner(counts[rows])

    return prepare


# Of judged queries, by figure: the score in the assessment, its quality, and the statistic over outcome columns.
_JUDGED: dict[str, tuple[str, str, Callable[[Columns], Statistic]]] = {
    "auroc": ("logistic", "auroc", _judged_only(probabilities.auroc_statistic, "probability")),
    "brier": ("logistic", "brier", _judged_only(probabilities.brier_statistic, "probability")),
    "ece": ("logistic", "ece", _judged_only(probabilities.ece_statistic, "probability")),
    "reliability_auroc": ("reliability", "auroc", _judged_only(probabilities.auroc_statistic, "reliability")),
    "top_score_auroc": ("top_score", "auroc", _judged_only(probabilities.auroc_statistic, "top_score")),
}


def _metrics() -> tuple[Metric, ...]:
    """The parts are compared even where neither way is good: then higher counts as better."""
    parts = [replace(metric_of(FIGURES[name]), needs=(), minor=False, higher_is_better=True) for name in _PARTS]
    judged = [
        replace(FIGURES[name].metric(statistic), needs=("probability", "success"))
        for name, (_, _, statistic) in _JUDGED.items()
    ]
    return (*parts, *judged, *(metric_of(FIGURES[name]) for name in _STORED))


LAYER = make_layer("certainty", run, CertaintyOptions, _metrics())
