"""Layer 4, certainty: can a query's results be trusted before anyone looks at them?

Stability, coherence and reliability of every query (metrics.trust), and what they are worth where queries are judged:
AUROC, Brier score and expected calibration error of a probability that a logistic map makes of them, out of fold. With
a model in hand, also how well gibberish, vague queries and queries of another domain are told from the real ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from calipers.core import Columns, DataError, Encoder, Named, Outcomes, Progress, RequestError, figure_tables
from calipers.data import odd_queries
from calipers.diagnosis.layer import Layer
from calipers.diagnosis.layers.certainty_figures import METRICS, OddTexts, judged_figures, odd_figure, part_figures
from calipers.metrics import assessment, codecs, geometry, search
from calipers.metrics import trust as metrics
from calipers.metrics.assessment import Assessment, Detection
from calipers.metrics.trust import TrustParts
from calipers.runs.directions import directed, put_back
from calipers.runs.space import Space, Texts

Floats = NDArray[np.float64]
_NAMED = 5


@dataclass(frozen=True)
class CertaintyOptions:
    k: int = metrics.K
    codec: str = "int8"
    relevant_from: float = 1.0  # grades from here on are relevant
    folds: int = 5
    odd: int = 200  # odd queries of each kind, at most; 0: none
    resamples: int = assessment.RESAMPLES
    confidence: float = 0.95
    seed: int = 42

    def __post_init__(self) -> None:
        if self.codec not in codecs.CODECS:
            raise RequestError(f"there is no codec {self.codec!r}: expected {', '.join(codecs.CODECS)}")
        if self.k < 2:
            raise RequestError(
                f"certainty asks how alike the first K results are: --k must be at least 2, found {self.k}"
            )


def run(model: Encoder | None, space: Space, options: CertaintyOptions, progress: Progress) -> Outcomes:
    """One row per query: its parts and, where it is judged, whether it succeeds and how likely that seemed.

    A query without a direction (layers.directions) has no parts and is NaN in every column.
    """
    queries = _checked(space)
    found = directed(space)
    outcomes = _run(model, found.space, options, progress)
    return put_back(outcomes, found.queries, queries.ids, {"query": tuple(queries.texts)})


def _run(model: Encoder | None, space: Space, options: CertaintyOptions, progress: Progress) -> Outcomes:
    queries = space.queries
    assert queries is not None
    progress.start("Certainty", 0)
    codec = codecs.fit(options.codec, space.corpus.vectors, seed=options.seed)
    rows = search.nearest(queries.vectors, space.corpus.vectors, options.k)[1]
    parts = metrics.parts_in(queries.vectors, space.corpus.vectors, rows, codec)
    labels = np.full(len(queries), np.nan)
    if len(space.qrels):
        labels = metrics.success(rows, space.qrels, space.corpus.ids, relevant_from=options.relevant_from)
    judged = assessment.assess(
        parts,
        labels,
        folds=options.folds,
        seed=options.seed,
        resamples=options.resamples,
        confidence=options.confidence,
    )
    asked = _odd_texts(model, space, options)
    odd = {kind: _detect(kind, some, model, space, parts, codec, options, progress) for kind, some in asked.items()}
    figures = [
        *part_figures(parts, resamples=options.resamples, confidence=options.confidence, seed=options.seed),
        *judged_figures(judged),
        *(odd_figure(kind, odd.get(kind), asked.get(kind)) for kind in KINDS),
    ]
    return Outcomes(
        ids=queries.ids,
        columns=_columns(parts, labels, judged),
        texts={"query": tuple(queries.texts)},
        details={**figure_tables(figures, _named(queries, labels, judged)), **_tables(judged)},
        counts={
            "documents": len(space.corpus),
            "queries": len(queries),
            "queries_judged": int(np.isfinite(labels).sum()),
            "queries_succeed": int(np.nansum(labels)),
        },
        notes=tuple(figure.warning for figure in figures if figure.warning),
    )


def _checked(space: Space) -> Texts:
    if space.queries is None or not len(space.queries):
        raise DataError("certainty is that of queries, and there are none: pass some with --queries")
    if len(space.corpus) < 3:
        raise DataError(f"certainty needs a corpus of at least 3 documents, found {len(space.corpus)}")
    return space.queries


# --- odd queries -------------------------------------------------------------------------------------------------

KINDS = ("gibberish", "vague", "out_of_domain")


def _odd_texts(model: Encoder | None, space: Space, options: CertaintyOptions) -> dict[str, OddTexts]:
    """Queries of each kind; none where there is no model to embed them: vectors already computed hold none."""
    if model is None or model.info.backend == "vectors" or not options.odd or space.queries is None:
        return {}
    most, texts = options.odd, space.corpus.texts
    foreign = OddTexts(space.foreign[:most], "those that were given")
    if not space.foreign:
        found = odd_queries.foreign(texts, space.queries.texts)
        foreign = OddTexts(found.queries[:most], f"bundled ones about {', '.join(found.domains)}")
    return {
        "gibberish": OddTexts(odd_queries.gibberish(most, seed=options.seed)),
        "vague": OddTexts(odd_queries.vague(texts, most)),
        "out_of_domain": foreign,
    }


def _detect(
    kind: str,
    odd: OddTexts,
    model: Encoder | None,
    space: Space,
    real: TrustParts,
    codec: codecs.Codec,
    options: CertaintyOptions,
    progress: Progress,
) -> Detection:
    assert model is not None
    assert space.queries is not None
    parts = real.take(np.empty(0, np.int64))
    if odd.texts:
        vectors = model.encode(odd.texts, prompt=space.queries.prompt, progress=progress)
        alive = vectors[geometry.norms(vectors) > 0]
        rows = search.nearest(alive, space.corpus.vectors, options.k)[1]
        parts = metrics.parts_in(alive, space.corpus.vectors, rows, codec) if len(alive) else parts
    return assessment.detect(
        kind,
        parts,
        real,
        folds=options.folds,
        seed=options.seed,
        resamples=options.resamples,
        confidence=options.confidence,
    )


# --- outcomes ----------------------------------------------------------------------------------------------------


def _columns(parts: TrustParts, labels: Floats, judged: Assessment) -> dict[str, Floats]:
    columns = {name: getattr(parts, name) for name in ("reliability", *metrics.FEATURES)}
    if judged.reason:
        return columns
    return {**columns, "success": labels, "probability": judged.probabilities["logistic"]}


def _tables(judged: Assessment) -> dict[str, Columns]:
    """The curves of the calibrated score, for the report."""
    if judged.reason:
        return {}
    points, risk = judged.curves["logistic"], judged.risks["logistic"]
    ends = np.array([point.interval or (np.nan, np.nan) for point in points])
    return {
        "reliability_curve": {
            "probability": np.array([point.probability for point in points]),
            "share": np.array([point.share for point in points]),
            "low": ends[:, 0],
            "high": ends[:, 1],
            "count": np.array([point.count for point in points]),
        },
        "risk_coverage": {"threshold": risk.threshold, "coverage": risk.coverage, "risk": risk.risk},
    }


def _named(queries: Texts, labels: Floats, judged: Assessment) -> list[Named]:
    """The queries that the calibrated score was most wrong about, either way."""
    if judged.reason:
        return []
    p = judged.probabilities["logistic"]
    sides: tuple[tuple[Floats, float, str], ...] = (
        (-p, 0, "seemed sure, and no relevant result is among the first"),
        (p, 1, "seemed hopeless, and a relevant result is among the first"),
    )
    return [
        Named("auroc", queries.ids[i], str(queries.texts[i]), float(p[i]), note)
        for order, label, note in sides
        for i in _first(order, np.flatnonzero((labels == label) & np.isfinite(p)))
    ]


def _first(order: Floats, rows: NDArray[np.intp]) -> Sequence[int]:
    return [int(row) for row in rows[np.argsort(order[rows], kind="stable")][:_NAMED]]


LAYER = Layer(
    name="certainty",
    about="a trust score per query: what it is made of, and how well it knows which queries fail",
    unit="query",
    metrics=METRICS,
    run=run,
    options=CertaintyOptions,
)
