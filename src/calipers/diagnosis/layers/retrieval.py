"""Layer 2, retrieval and ranking: what a search finds, in which order, and how easily that changes.

Quality is that of the retrieval task, per stage. Stability and robustness need no judgements: they compare lists of
results by Jaccard's overlap. Every figure is a mean over queries (over groups for paraphrases), so a bootstrap over
them gives its interval, and a paired one that of a difference.

A query without a direction (layers.directions) finds nothing: it is 0 in every figure of quality, 0 where its list is
compared with one that is not empty, and left out where both are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from calipers.core import Columns, Encoder, Figure, Metric, Outcomes, Progress, RequestError, Statistic, figure_tables
from calipers.diagnosis.layer import RESAMPLES, Layer
from calipers.diagnosis.layers import retrieval_parts as parts_of
from calipers.diagnosis.layers import retrieval_robustness as robustness
from calipers.diagnosis.layers.retrieval_parts import Found, Part, RankingOptions
from calipers.metrics import bootstrap
from calipers.metrics.means import mean_statistic
from calipers.runs.space import Space

Floats = NDArray[np.float64]


def run(model: Encoder | None, space: Space, options: RankingOptions, progress: Progress) -> Outcomes:
    """Outcomes over queries, and over groups of paraphrases where there are any: one column per figure.

    `model` is asked for edited queries; without one, or with vectors already computed, robustness is unknown.
    """
    if space.queries is None or not len(space.queries):
        raise RequestError("the layer retrieval looks at the results of queries: give --queries, or a --dataset")
    if space.searched is None:
        raise RequestError("the layer retrieval reads what a search found: Space.searched is missing")
    found = parts_of.read(space, options)
    steps: tuple[tuple[str, Callable[[], Part]], ...] = (
        ("Quality", lambda: parts_of.quality(space, found, options)),
        ("Directions", lambda: parts_of.without_direction(space, found, options)),
        ("Reversals", lambda: parts_of.order(space, found, options)),
        ("Beside the baseline", lambda: parts_of.beside(space, found, options)),
        ("Precisions of vectors", lambda: parts_of.precisions(space, found, options)),
        ("Index settings", lambda: parts_of.indexed(space, found, options)),
        ("Edited queries", lambda: robustness.edited(model, space, found, options, progress)),
        ("Paraphrases", lambda: robustness.paraphrased(space, found, options)),
    )
    parts = []
    for label, step in steps:
        progress.start(label, 0)
        parts.append(step())
    return assemble(space, found, parts, options)


def assemble(space: Space, found: Found, parts: Sequence[Part], options: RankingOptions) -> Outcomes:
    assert space.queries is not None
    groups = space.paraphrases.ids if space.paraphrases else ()
    queries = len(space.queries)
    columns: dict[str, Floats] = {}
    for part in parts:
        for name, values in part.columns.items():
            columns[name] = np.full(queries + len(groups), np.nan)
            start = queries if part.unit == "group" else 0
            columns[name][start : start + len(values)] = values
    figures = make_figures(parts, columns, options)
    return Outcomes(
        ids=(*space.queries.ids, *(f"{id}/group" for id in groups)),
        columns=columns,
        texts={"query": (*space.queries.texts, *("" for _ in groups))},
        details={
            **figure_tables(figures, [named for part in parts for named in part.named]),
            "retrieval_counts": parts_of.count_table(found, len(space.corpus)),
        },
        counts={
            "documents": len(space.corpus),
            "queries": queries,
            **{k: n for p in parts for k, n in p.counts.items()},
        },
        notes=tuple(figure.warning for figure in figures if figure.warning),
    )


def make_figures(parts: Sequence[Part], columns: Columns, options: RankingOptions) -> list[Figure]:
    """Every figure in the order of METRICS; an unknown one says why."""
    unit = {name: part.unit for part in parts for name in part.columns}
    sampled = {name for part in parts if not part.exact for name in part.columns}
    why = {name: reason for part in parts for name, reason in part.unknown.items()}
    known = [m for m in measures(options) if m.name in unit and np.isfinite(columns[m.name]).any()]
    drawn = {}
    if known:
        examples = len(next(iter(columns.values())))
        statistics = [metric.statistic(columns) for metric in known]
        rows = bootstrap.distribution(statistics, examples, resamples=RESAMPLES, seed=options.seed)
        drawn = {metric.name: row for metric, row in zip(known, rows, strict=True)}
    figures = []
    for metric in measures(options):
        if metric.name in drawn:
            values = columns[metric.name][np.isfinite(columns[metric.name])]
            figure = _figure(metric, values, drawn[metric.name], unit[metric.name], options)
            figures.append(replace(figure, exact=metric.name not in sampled))
        elif metric.name in why:
            figures.append(_unknown(metric, why[metric.name], options))
        elif metric.name in unit:
            figures.append(_unknown(metric, "no query has what it is about", options))
    return figures


def _figure(metric: Metric, values: Floats, drawn: Floats, unit: str, options: RankingOptions) -> Figure:
    kind = parts_of.kind_of(metric.name, options)
    value = float(values.mean())
    return Figure(
        name=metric.name,
        value=value,
        count=len(values),
        unit=unit,
        higher_is_better=kind.higher_is_better,
        meaning=kind.meaning,
        interval=bootstrap.percentile_interval(drawn, confidence=options.confidence) if len(values) > 1 else None,
        standard_error=float(values.std(ddof=1) / np.sqrt(len(values))) if len(values) > 1 else None,
        level=kind.level,
        warning=kind.warn(metric.name, value),
        digits=metric.digits,
    )


def _unknown(metric: Metric, reason: str, options: RankingOptions) -> Figure:
    kind = parts_of.kind_of(metric.name, options)
    return Figure(metric.name, None, 0, "query", kind.higher_is_better, kind.meaning, level=kind.level, reason=reason)


def _mean(column: str) -> Callable[[Columns], Statistic]:
    return lambda columns: mean_statistic(columns[column])


def measures(options: RankingOptions) -> tuple[Metric, ...]:
    return tuple(
        Metric(
            name,
            kind.about,
            _mean(name),
            higher_is_better=bool(kind.higher_is_better),
            thresholds=kind.thresholds,
            digits=kind.digits,
            needs=(name,),
            minor=kind.higher_is_better is None,
        )
        for name, kind in parts_of.kinds(options).items()
    )


LAYER = Layer(
    name="retrieval",
    about="what a search finds, in which order, and how easily that changes",
    unit="query",
    metrics=measures(RankingOptions()),
    run=run,
    options=RankingOptions,
    metrics_for=measures,
)
