"""The same few examples of runs that have more, so that stored runs can be compared on a sample."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from calipers.core import CLUSTER, RequestError, Result, fingerprint
from calipers.data import DataOptions
from calipers.data.choose import choose
from calipers.data.columns import Record
from calipers.runs import catalogue


def cut(results: Sequence[Result], options: DataOptions) -> list[Result]:
    """The results on the same `samples` examples of those that all have. From runs over all rows these are the rows
    that `evaluate` takes with the same options."""
    assert options.samples is not None
    shared = set.intersection(*(set(result.outcomes.ids) for result in results))
    ids = [id for id in results[0].outcomes.ids if id in shared]
    if len(ids) < options.samples:
        raise RequestError(f"`samples` is {options.samples}, and these runs have {len(ids)} examples in common")
    source = options.source(results[0].dataset.path)
    chosen = tuple(record.id for record in choose((Record(id, "", {}, blank=False) for id in ids), source).kept)
    shorter = [_take(result, chosen, options) for result in results]
    _refuse_other_rows(results, shorter)
    return shorter


def _refuse_other_rows(results: Sequence[Result], shorter: Sequence[Result]) -> None:
    """Runs over other sets of rows have other fingerprints: then the texts of the examples must be the same."""
    if len({result.fingerprint for result in results}) == 1:
        return
    same = {result.fingerprint for result in shorter}
    if len(same) > 1 or not all(result.outcomes.texts for result in shorter):
        raise RequestError("these runs cannot be compared: their data differ under the same ids")


def _take(result: Result, ids: tuple[str, ...], options: DataOptions) -> Result:
    place = {id: i for i, id in enumerate(result.outcomes.ids)}
    whole = result.outcomes
    outcomes = whole.take(np.array([place[id] for id in ids], np.int64))
    columns, texts = outcomes.columns, outcomes.texts
    task = catalogue.find(result.task)
    metrics = [m for m in task.measures(task.options(**result.options)) if m.name in result.metrics]
    values = {metric.name: metric.value(columns) for metric in metrics}
    bootstrap = dict(result.bootstrap)
    if outcomes.clusters is not None and "clusters" in bootstrap:
        bootstrap["clusters"] = int(outcomes.clusters.max()) + 1
    return replace(
        result,
        outcomes=outcomes,
        metrics={name: value for name, value in values.items() if math.isfinite(value)},
        intervals={},
        bootstrap=bootstrap,
        dataset=replace(
            result.dataset,
            requested=options.samples,
            shuffle=options.shuffle,
            seed=options.seed,
            rows_read=max(result.dataset.rows_read, len(whole)),
        ),
        fingerprint=fingerprint(ids, {name: list(t) for name, t in texts.items() if name != CLUSTER}),
    )
