"""NanoBEIR: reranking of BM25's first documents on up to thirteen small sets, per set and as their mean.

The mean is over sets: each counts the same, however many queries it has. With `compat` the figures are those of
sentence-transformers' CrossEncoderNanoBEIREvaluator, except that positives keep the order of the judgements: theirs is
the order of a Python set, which changes from process to process and matters where scores tie.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from calipers.core.datasets import Dataset
from calipers.core.errors import RequestError
from calipers.core.models import PairScorer, Progress
from calipers.core.options import option
from calipers.core.outcomes import Columns, Outcomes
from calipers.core.results import DefaultData, Metric, Statistic, Task
from calipers.metrics.means import macro_mean_statistic, mean_statistic
from calipers.tasks import reranking
from calipers.tasks.reranking import ListOptions, RerankingOptions

_NAMES = (
    "ClimateFEVER DBPedia FEVER FiQA2018 HotpotQA MSMARCO NFCorpus NQ QuoraRetrieval SCIDOCS ArguAna SciFact Touche2020"
)
SETS = {name.lower(): name for name in _NAMES.split()}
# Both retrieve arguments, unlike the rest: sentence-transformers leaves them out too.
USUAL = tuple(name for name in SETS if name not in ("arguana", "touche2020"))
_PLACES = {name: place for place, name in enumerate(SETS)}


@dataclass(frozen=True)
class NanoBEIROptions(ListOptions):
    sets: str = option(
        ",".join(USUAL),
        "msmarco,nq,… or all (thirteen). Default: the eleven without arguana and touche2020, as in "
        "sentence-transformers. --samples is then for each set.",
        group="Task",
        metavar="NAMES",
    )
    rerank_k: int = option(100, "How many results are reranked.", group="Task", metavar="K", at_least=1)

    def __post_init__(self) -> None:
        super().__post_init__()
        names = list(SETS) if self.sets == "all" else [name.strip().lower() for name in self.sets.split(",")]
        if unknown := [name for name in names if name not in SETS]:
            raise RequestError(f"`sets` names {unknown[0]!r}: expected all, or some of {','.join(SETS)}")
        if twice := [name for name in names if names.count(name) > 1]:
            raise RequestError(f"`sets` names {twice[0]} twice")
        object.__setattr__(self, "sets", ",".join(names))

    @property
    def splits(self) -> Mapping[str, str]:
        """Name of a set → its split in the data."""
        return {name: f"Nano{SETS[name]}" for name in self.sets.split(",")}


def run(model: PairScorer, dataset: Dataset, options: NanoBEIROptions, progress: Progress) -> Outcomes:
    """Outcomes of a reranking, and the place of each query's set in `SETS`, int8[q]."""
    shared = RerankingOptions(options.at_k, options.always_rerank_positives, compat=options.compat)
    outcomes = reranking.run(model, dataset, shared, progress)
    places = np.array([_PLACES[name] for name in dataset.columns["set"]], dtype=np.int8)
    return replace(outcomes, columns={**outcomes.columns, "set": places})


def metrics_for(options: NanoBEIROptions) -> tuple[Metric, ...]:
    """The means over sets, then each set's own as METRIC/SET."""
    each = [
        Metric(f"{name}/{part}", f"{about}, {part}", _of_set(name, part), digits=4, minor=True)
        for part in options.splits
        for name, about in reranking.columns_at(options.at_k).items()
    ]
    return (*_means(options), *each)


def _means(options: NanoBEIROptions) -> tuple[Metric, ...]:
    columns = reranking.columns_at(options.at_k).items()
    return tuple(Metric(name, f"{about}, mean over sets", _macro(name), digits=4) for name, about in columns)


def _macro(column: str) -> Callable[[Columns], Statistic]:
    return lambda columns: macro_mean_statistic(columns[column], columns["set"])


def _of_set(column: str, name: str) -> Callable[[Columns], Statistic]:
    return lambda columns: mean_statistic(np.where(columns["set"] == _PLACES[name], columns[column], np.nan))


TASK = Task(
    name="nanobeir",
    about="how much better a cross-encoder orders BM25's documents, on the sets of NanoBEIR and as their mean",
    ability="score",
    unit="query",
    columns=(),
    default_data=DefaultData("sentence-transformers/NanoBEIR-en", None, ""),
    metrics=_means(NanoBEIROptions()),
    check=reranking.check,
    run=run,
    options=NanoBEIROptions,
    data="nanobeir",
    metrics_for=metrics_for,
)
