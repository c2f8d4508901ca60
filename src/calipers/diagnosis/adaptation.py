"""What the scorecard of an adaptation needs beside the layers: MLM heads, domain perplexity, general similarity, how
frequent the queries are, and what mteb's scores say was forgotten."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from calipers import models
from calipers.comparison import verdict
from calipers.comparison.records import Comparison, Verdict
from calipers.core import SILENT, Dataset, DataSource, Metric, Model, Progress, RequestError, Result, ShowsHalo
from calipers.core.choices import ADAPTATIONS
from calipers.core.datasets import fingerprint
from calipers.core.figures import Figure, Named, figure_tables
from calipers.core.rounding import percentage
from calipers.data import corpora
from calipers.diagnosis import scorecard
from calipers.diagnosis.layer import kinds_of
from calipers.diagnosis.layers import Space
from calipers.diagnosis.layers.words import Unsplittable, plain_words
from calipers.diagnosis.options import DiagnosisOptions
from calipers.diagnosis.records import Scorecard
from calipers.diagnosis.scorecard import Frequency
from calipers.interop.mteb_results import drops
from calipers.metrics import geometry
from calipers.models import ModelOptions
from calipers.models.tokenizer_files import read_json
from calipers.runs import api
from calipers.runs.embedding import CorpusInputs
from calipers.runs.record import MetricValues, make_result
from calipers.runs.store import Store
from calipers.tasks import fill_mask, similarity

_LOADING = ("revision", "dtype", "device", "threads", "allow_pickle", "trust_remote_code")  # a head is no encoder
_TEXTS, _TOKENS = 500, 3000  # of the corpus, for pseudo-perplexity
_SIMILARITY, _FILL_MASK = similarity.TASK.name, fill_mask.TASK.name


def check(adaptation: str | None, baseline: object, sts: str | None) -> None:
    """Refuse options that do not go together, before anything is read."""
    if adaptation is None:
        if sts:
            raise RequestError("`sts` is the general check of a scorecard: set `adaptation` as well")
        return
    if adaptation not in ADAPTATIONS:
        raise RequestError(f"`adaptation` must be one of {', '.join(ADAPTATIONS)}, found {adaptation!r}")
    if baseline is None:
        raise RequestError("`adaptation` reports what a training changed: name the model before it as `baseline`")


# --- heads and entities ------------------------------------------------------------------------------------------


def find_head(model: str | Model, mlm_head: str | None, options: ModelOptions) -> Any:
    """The masked language model on this model's own states: with its own head if it has one, else with the head of
    `mlm_head`. None where there is neither: an embedding model has usually lost its head."""
    if not isinstance(model, str):
        return model if isinstance(model, ShowsHalo) else None
    source = models.find(model)
    if source.backend != "torch":
        if mlm_head:
            raise RequestError(f"`mlm_head` needs the states of a PyTorch model, and {model} is {source.backend}")
        return None
    loading = ModelOptions(**{name: getattr(options, name) for name in _LOADING})
    if _has_head(source, loading):
        return models.load(source, loading, "fill-mask")
    if mlm_head is None:
        return None
    from calipers.models import torch_masked

    head = models.find(mlm_head)
    if head.backend != "torch":
        raise RequestError(f"`mlm_head` must be a PyTorch model with an MLM head, and {mlm_head} is {head.backend}")
    return models.identity.sign(torch_masked.graft(source, head, loading), source, loading)


def _has_head(source: models.Source, options: ModelOptions) -> bool:
    from calipers.models.torch_weights import find_folder

    architectures = read_json(find_folder(source, options) / "config.json").get("architectures") or [""]
    return str(architectures[0]).endswith(("ForMaskedLM", "ForPreTraining"))


def probe_space(
    space: Space,
    model: str | Model,
    entities: Sequence[str],
    mlm_head: str | None,
    options: ModelOptions,
) -> Space:
    """The space with the given entities of the knowledge probe, and with a head."""
    return replace(space, entities=tuple(entities), head=find_head(model, mlm_head, options))


# --- the scorecard -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Side:
    """A model and the results of the layers about it, by layer."""

    model: str | Model
    results: Mapping[str, Result]


def score(
    options: DiagnosisOptions,
    model_options: ModelOptions,
    inputs: CorpusInputs,
    dataset: Dataset,
    baseline: Side,
    candidate: Side,
    measures: Mapping[str, Sequence[Metric]],
    *,
    store: Store | None = None,
    progress: Progress = SILENT,
) -> Scorecard:
    """The layers' results, general similarity and domain perplexity, read as an adaptation."""
    reasons = {}
    before, after = dict(baseline.results), dict(candidate.results)
    if inputs.sts:
        for side, results in ((baseline, before), (candidate, after)):
            loading = model_options
            if side is baseline and isinstance(side.model, str):
                loading = models.identity.baseline_options(models.find(side.model), model_options)
            results[_SIMILARITY] = api.evaluate(
                side.model,
                task=_SIMILARITY,
                dataset=inputs.sts,
                model_options=loading,
                resamples=options.resamples,
                confidence=options.confidence,
                store=store,
                reuse=True,
                timed=False,
                progress=progress,
            )
    else:
        reasons[_SIMILARITY] = "general ability was not checked: set `sts`"
    texts = domain_texts(dataset, options.seed)
    first, second = (perplexity(side.model, texts, options, model_options, progress) for side in (baseline, candidate))
    if first and second:
        before[_FILL_MASK], after[_FILL_MASK] = first, second
    else:
        reasons[_FILL_MASK] = _no_head(baseline.model, candidate.model)
    threads = model_options.workers
    terms = verdict.Terms({}, (), options.confidence, options.resamples, options.seed, threads, worst=0)
    return scorecard.read(
        options.adaptation,  # type: ignore[arg-type]
        before,
        after,
        {**measures, _SIMILARITY: similarity.METRICS, _FILL_MASK: fill_mask.METRICS},
        frequency=query_frequency(dataset, path=inputs.dataset, queries=inputs.queries, source=inputs.source),
        reasons=reasons,
        terms=terms,
    )


def _no_head(*sides: str | Model) -> str:
    """Why there is no perplexity; `mlm_head` is suggested where it could be used."""
    reason = "there is no MLM head for both models"
    if all(isinstance(side, str) and models.find(side).backend == "torch" for side in sides):
        return f"{reason}: set `mlm_head` to a model that has one"
    return f"{reason}, and a head can be put on PyTorch models only"


def domain_texts(dataset: Dataset, seed: int) -> Dataset:
    """A sample of the documents, the same for every model."""
    corpus = dataset.tables["corpus"]
    rows = np.sort(geometry.sample(len(corpus), _TEXTS, seed=seed)).tolist()
    ids = tuple(corpus.ids[i] for i in rows)
    columns = {"input_column": [corpus.columns["text"][i] for i in rows]}
    return Dataset(ids, columns, DataSource(corpus.source.path, rows_read=len(ids)), fingerprint(ids, columns))


def perplexity(
    model: str | Model, texts: Dataset, options: DiagnosisOptions, model_options: ModelOptions, progress: Progress
) -> Result | None:
    """Fill-mask on domain texts; None where there is no head. A model in memory has one if it fills masks itself."""
    head = find_head(model, options.mlm_head, model_options)
    if head is None or not hasattr(head, "log_probs"):
        return None
    task_options = fill_mask.FillMaskOptions(tokens=_TOKENS, word_level=True)
    outcomes = fill_mask.run(head, texts, task_options, progress)
    columns = outcomes.columns
    metrics = [m for m in fill_mask.METRICS if all(c in columns for c in m.needs)]
    result = make_result(
        _FILL_MASK,
        asdict(task_options),
        head.info,
        outcomes,
        MetricValues({m.name: m.value(columns) for m in metrics}, {m.name: None for m in metrics}),
        dataset=texts.source,
        fingerprint=texts.fingerprint,
        bootstrap={"unit": "text", **{key: getattr(options, key) for key in ("confidence", "resamples", "seed")}},
        request={},
        environment={},
    )
    return replace(result, run_id="")  # it is not stored


# --- how frequent queries are ------------------------------------------------------------------------------------


def query_frequency(dataset: Dataset, *, path: str | None, queries: str | None, source: DataSource) -> Frequency | None:
    """By a column of the queries' file, else by how frequent their words are in the corpus; None without queries."""
    if not len(dataset):
        return None
    counted = corpora.load_query_counts(dataset=path, queries=queries, source=source)
    if counted:
        name, counts = counted
        how = f"Head and tail are the most and the least frequent third of the queries, by {name!r}."
        return Frequency(counts, how)
    frequencies = word_frequency(dataset.columns["query"], dataset.tables["corpus"].columns["text"])
    how = (
        "Head and tail are thirds of the queries by how frequent their words are in the corpus: the data have no "
        "column 'count' with how often a query is made."
    )
    return Frequency(dict(zip(dataset.ids, frequencies, strict=True)), how)


def word_frequency(queries: Sequence[str], texts: Sequence[str]) -> list[float]:
    """The mean of ln(1 + documents that have the word) over the words of each query; NaN for a query without words.

    >>> [round(v, 3) for v in word_frequency(["red mug", "teal", "!"], ["a red mug", "a red bowl"])]
    [0.896, 0.0, nan]
    """
    within: Counter[str] = Counter()
    for text in texts:
        within.update({word.casefold() for word in _words(text)})
    words = [[word.casefold() for word in _words(query)] for query in queries]
    return [float(np.mean([np.log1p(within[w]) for w in several])) if several else float("nan") for several in words]


def _words(text: str) -> list[str]:
    try:
        return plain_words(text)
    except Unsplittable:  # as many words as it has spaces
        return plain_words(text, "space")


# --- scores of mteb ----------------------------------------------------------------------------------------------

_MTEB = kinds_of("mteb")


def with_figures(result: Result, named: Sequence[Named] = (), more: Sequence[Figure] = ()) -> Result:
    """A run of the task mteb with its metrics as figures; `more` stand behind them."""
    figures = [
        _MTEB[name].figure(value, len(result.outcomes), interval=result.intervals.get(name))
        for name, value in result.metrics.items()
    ]
    details = {**result.outcomes.details, **figure_tables([*figures, *more], named)}
    return replace(result, outcomes=replace(result.outcomes, details=details))


def with_forgetting(before: Result, after: Result, verdict: Verdict) -> Result:
    """The candidate's run with what it lost against the baseline: each score that fell by name, and the mean.

    It warns where the verdict is a REGRESSION.
    """
    named = [
        Named("forgetting", drop.id, drop.id, drop.delta, f"{drop.baseline:.2f} → {drop.candidate:.2f}")
        for drop in drops(before, after)
        if drop.delta < 0
    ]
    primary = next(c for c in verdict.comparisons if c.decides)
    return with_figures(after, named, [_forgetting(primary, len(after.outcomes), verdict.label == "REGRESSION")])


def _forgetting(primary: Comparison, scores: int, warns: bool) -> Figure:
    lost = None if primary.delta is None else -primary.delta
    level = f"a loss of {percentage(primary.thresholds.at_risk)} of the baseline"
    warning = (
        f"forgetting is {lost:.2f}: the model has lost general language (catastrophic forgetting)" if warns else ""
    )
    return replace(_MTEB["forgetting"], level=level).figure(
        lost,
        scores,
        interval=(-primary.interval[1], -primary.interval[0]) if primary.interval else None,
        reason=primary.reason if lost is None else None,
        warning=warning or None,
    )
