"""What the scorecard of an adaptation needs beside the layers: MLM heads, domain perplexity, general similarity, and
how frequent the queries are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Protocol

import numpy as np

from calipers import models
from calipers.comparison import verdict
from calipers.core import (
    SILENT,
    Dataset,
    DataSource,
    Encoder,
    Metric,
    Model,
    ModelInfo,
    Outcomes,
    Progress,
    RequestError,
    Result,
    ShowsHalo,
    fingerprint,
)
from calipers.data import corpora
from calipers.diagnosis import scorecard
from calipers.diagnosis.layers import Space
from calipers.diagnosis.layers.entities import mine
from calipers.diagnosis.layers.words import MissingExtra, plain_words
from calipers.diagnosis.records import Finding, Scorecard
from calipers.diagnosis.scorecard import Frequency
from calipers.metrics import geometry
from calipers.models import ModelOptions
from calipers.models.tokenizer import read_json
from calipers.runs import api, catalogue
from calipers.runs.record import MetricValues, make_result
from calipers.runs.store import Store
from calipers.tasks import fill_mask, similarity

ADAPTATIONS = ("mlm", "contrastive")
_TEXTS, _TOKENS = 500, 3000  # of the corpus, for pseudo-perplexity
_SIMILARITY, _FILL_MASK = similarity.TASK.name, fill_mask.TASK.name


@dataclass(frozen=True)
class Request:
    """What is asked: which adaptation, general pairs with scores, and the model whose MLM head is to be used."""

    adaptation: str
    sts: str | None = None
    mlm_head: str | None = None
    model_options: ModelOptions = field(default_factory=ModelOptions)
    confidence: float = api.CONFIDENCE
    resamples: int = api.RESAMPLES
    seed: int = 42


def check(adaptation: str | None, baseline: object, sts: str | None) -> None:
    """Refuse flags that do not go together, before anything is read."""
    if adaptation is None:
        if sts:
            raise RequestError("--sts is the general check of a scorecard: give --adaptation as well")
        return
    if adaptation not in ADAPTATIONS:
        raise RequestError(f"--adaptation must be one of {', '.join(ADAPTATIONS)}, found {adaptation!r}")
    if baseline is None:
        raise RequestError("--adaptation reads what training changed: give the model before it as --baseline")


# --- heads and entities ------------------------------------------------------------------------------------------


def find_head(model: str | Model, mlm_head: str | None, options: ModelOptions) -> Any:
    """The masked language model on this model's own states: under its own head if it has one, else under that of
    `mlm_head`. None where there is neither: an embedding model has usually lost its head."""
    if not isinstance(model, str):
        return model if isinstance(model, ShowsHalo) else None
    source = models.find(model)
    if source.backend != "torch":
        if mlm_head:
            raise RequestError(f"--mlm-head needs the states of a PyTorch model, and {model} is {source.backend}")
        return None
    wish = ModelOptions(
        revision=options.revision,
        dtype=options.dtype,
        device=options.device,
        threads=options.threads,
        allow_pickle=options.allow_pickle,
        trust_remote_code=options.trust_remote_code,
    )
    if _has_head(source, wish):
        return models.load(source, wish, "fill-mask")
    if mlm_head is None:
        return None
    from calipers.models import torch_masked

    head = models.find(mlm_head)
    if head.backend != "torch":
        raise RequestError(f"--mlm-head must be a PyTorch model with an MLM head, and {mlm_head} is {head.backend}")
    return torch_masked.graft(source, head, wish)


def _has_head(source: models.Source, options: ModelOptions) -> bool:
    from calipers.models.torch_weights import find_folder

    made = read_json(find_folder(source, options) / "config.json").get("architectures") or [""]
    return str(made[0]).endswith(("ForMaskedLM", "ForPreTraining"))


def probe_space(
    space: Space,
    model: str | Model,
    encoder: Encoder,
    entities: Sequence[str],
    mlm_head: str | None,
    options: ModelOptions,
) -> Space:
    """The space with the entities of the knowledge probe, which are the same for both models, and with a head."""
    try:
        found = tuple(entities) or mine(space.corpus.texts, encoder)
    except MissingExtra:
        found = ()  # the layer says which package is missing
    return replace(space, entities=found, head=find_head(model, mlm_head, options))


# --- the scorecard -----------------------------------------------------------------------------------------------


class Wishes(Protocol):
    """What of a diagnosis' wishes is read here."""

    @property
    def adaptation(self) -> str | None: ...
    @property
    def mlm_head(self) -> str | None: ...
    @property
    def model_options(self) -> ModelOptions: ...
    @property
    def confidence(self) -> float: ...
    @property
    def resamples(self) -> int: ...
    @property
    def options(self) -> Mapping[str, Any]: ...


class Inputs(Protocol):
    """What of its inputs is read here."""

    @property
    def dataset(self) -> str | None: ...
    @property
    def queries(self) -> str | None: ...
    @property
    def sts(self) -> str | None: ...
    @property
    def source(self) -> DataSource: ...


def of_findings(
    before: tuple[str | Model | None, Sequence[Finding]],
    after: tuple[str | Model, Sequence[Finding]],
    read: tuple[Inputs, Dataset, Wishes],
    *,
    store: Store | None,
    progress: Progress,
) -> Scorecard | None:
    """What the layers of both say about the training between them; None where none was named, or a model is dead."""
    inputs, dataset, wish = read
    if wish.adaptation is None or before[0] is None or not before[1] or not after[1]:
        return None
    seed = int(wish.options.get("seed") or 42)
    asked = Request(
        wish.adaptation, inputs.sts, wish.mlm_head, wish.model_options, wish.confidence, wish.resamples, seed
    )
    sides = [
        Side(model, {f.layer: f.result for f in found if f.result}) for model, found in ((before[0], before[1]), after)
    ]
    measures = {name: _measures(result) for name, result in sides[0].results.items()}
    frequency = query_frequency(dataset, path=inputs.dataset, queries=inputs.queries, source=inputs.source)
    return score(asked, sides[0], sides[1], measures, dataset, frequency, store=store, progress=progress)


def _measures(result: Result) -> Sequence[Metric]:
    found = catalogue.find(result.task)
    return list(found.measures(found.options(**result.options)))


@dataclass(frozen=True)
class Side:
    """A model and what the layers found about it, by layer."""

    model: str | Model
    results: Mapping[str, Result]


def score(
    asked: Request,
    baseline: Side,
    candidate: Side,
    measures: Mapping[str, Sequence[Metric]],
    dataset: Dataset,
    frequency: Frequency | None,
    *,
    store: Store | None = None,
    progress: Progress = SILENT,
) -> Scorecard:
    """The layers' results with general similarity and domain perplexity beside them, read as an adaptation."""
    reasons = {}
    before, after = dict(baseline.results), dict(candidate.results)
    known = dict(measures)
    if asked.sts:
        for side, results in ((baseline, before), (candidate, after)):
            results[_SIMILARITY] = _similarity(side.model, asked, store, progress)
        known[_SIMILARITY] = similarity.METRICS
    else:
        reasons[_SIMILARITY] = "what the model knew before was not checked: give --sts FILE"
    texts = domain_texts(dataset, asked.seed)
    found = [perplexity(side.model, texts, asked, progress) for side in (baseline, candidate)]
    if found[0] and found[1]:
        before[_FILL_MASK], after[_FILL_MASK] = found[0], found[1]
        known[_FILL_MASK] = fill_mask.METRICS
    else:
        reasons[_FILL_MASK] = _no_head(baseline.model, candidate.model)
    terms = verdict.Terms({}, (), asked.confidence, asked.resamples, asked.seed, asked.model_options.workers, worst=0)
    return scorecard.read(
        asked.adaptation,  # type: ignore[arg-type]
        before,
        after,
        known,
        frequency=frequency,
        reasons=reasons,
        terms=terms,
    )


def _no_head(*sides: str | Model) -> str:
    """Why there is no perplexity; --mlm-head is advised where it could be used."""
    told = "there is no MLM head for both models"
    if all(isinstance(side, str) and models.find(side).backend == "torch" for side in sides):
        return f"{told}: name a model that has one with --mlm-head"
    return f"{told}, and one can be put on the states of PyTorch models only"


def _similarity(model: str | Model, asked: Request, store: Store | None, progress: Progress) -> Result:
    return api.evaluate(
        model,
        task=_SIMILARITY,
        dataset=asked.sts,
        model_options=asked.model_options,
        resamples=asked.resamples,
        confidence=asked.confidence,
        store=store,
        reuse=True,
        progress=progress,
    )


def domain_texts(dataset: Dataset, seed: int) -> Dataset:
    """Some documents, the same for every model."""
    corpus = dataset.tables["corpus"]
    rows = np.sort(geometry.sample(len(corpus), _TEXTS, seed=seed)).tolist()
    ids = tuple(corpus.ids[i] for i in rows)
    columns = {"input_column": [corpus.columns["text"][i] for i in rows]}
    return Dataset(ids, columns, DataSource(corpus.source.path, rows_read=len(ids)), fingerprint(ids, columns))


def perplexity(model: str | Model, texts: Dataset, asked: Request, progress: Progress) -> Result | None:
    """Fill-mask on domain texts; None where there is no head. A model in memory has one if it fills masks itself."""
    head = find_head(model, asked.mlm_head, asked.model_options)
    if head is None or not hasattr(head, "log_probs"):
        return None
    options = fill_mask.FillMaskOptions(tokens=_TOKENS, word_level=True)
    outcomes = fill_mask.run(head, texts, options, progress)
    return _result(outcomes, asdict(options), head.info, texts, asked)


def _result(outcomes: Outcomes, options: dict[str, Any], info: ModelInfo, rows: Dataset, asked: Request) -> Result:
    columns = outcomes.columns
    known = [m for m in fill_mask.METRICS if all(c in columns for c in m.needs)]
    drawn = {"unit": "text", "confidence": asked.confidence, "resamples": asked.resamples, "seed": asked.seed}
    values = MetricValues({m.name: m.value(columns) for m in known}, {m.name: None for m in known})
    result = make_result(
        _FILL_MASK,
        options,
        info,
        outcomes,
        values,
        dataset=rows.source,
        fingerprint=rows.fingerprint,
        bootstrap=drawn,
        request={},
        environment={},
    )
    return replace(result, run_id="")  # it is not stored


# --- how frequent queries are ------------------------------------------------------------------------------------


def query_frequency(dataset: Dataset, *, path: str | None, queries: str | None, source: DataSource) -> Frequency | None:
    """By a column of the queries' file, else by how frequent their words are in the corpus; None without queries."""
    if not len(dataset):
        return None
    told = corpora.load_query_counts(dataset=path, queries=queries, source=source)
    if told:
        name, counts = told
        return Frequency(
            counts, f"Head and tail are the most and the least frequent third of the queries, by {name!r}."
        )
    found = word_frequency(dataset.columns["query"], dataset.tables["corpus"].columns["text"])
    how = "Head and tail are thirds of the queries by how frequent their words are in the corpus: how often they are "
    return Frequency(dict(zip(dataset.ids, found, strict=True)), how + "asked is not told (a column 'count').")


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
    except MissingExtra:  # without budoux a Japanese text is as many words as it has spaces
        return plain_words(text, "space")
