"""`diagnose`: why does search with a model fail? Texts are embedded once, and every layer reads the same space."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from datetime import UTC, datetime
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calipers import models
from calipers.comparison import verdict as verdicts
from calipers.comparison.records import Verdict
from calipers.comparison.slices import with_slices
from calipers.core import SILENT, Encoder, InvalidOutput, Metric, Model, ModelInfo, Outcomes, Progress, RequestError
from calipers.core.figures import read_figures
from calipers.core.references import clean
from calipers.core.results import Result
from calipers.data import labels
from calipers.diagnosis import adaptation, layers
from calipers.diagnosis.layers import Layer, Space, retrieval
from calipers.diagnosis.options import DiagnosisOptions
from calipers.diagnosis.records import Diagnosis, Finding, Scorecard
from calipers.metrics.search_timing import SearchWork, count_searches
from calipers.metrics.threads import at_most
from calipers.models import ModelOptions
from calipers.runs import catalogue, embedding, ranking, slices
from calipers.runs import space as spaces
from calipers.runs.embedding import CorpusInputs, Material, SearchOptions
from calipers.runs.ranking import OpenedModel
from calipers.runs.record import MetricValues, Resampling, make_result
from calipers.runs.store import Store
from calipers.runs.vector_cache import VectorCache
from calipers.tasks.search import IDENTICAL

_ATTRIBUTES = "attributes"
_PRODUCT_LAYERS = (_ATTRIBUTES, "knowledge", "contrasts", "remedies")  # that read the documents as products
SLICED = ("retrieval", _ATTRIBUTES)  # that read the results of queries: they need no vectors, and are shown by group
# The layers whose primary metric makes a verdict. The shape of a space is neither good nor bad by itself.
DECIDING = ("retrieval",)


def diagnose(
    model: str | Model,
    inputs: CorpusInputs,
    *,
    baseline: str | Model | None = None,
    options: DiagnosisOptions | None = None,
    model_options: ModelOptions | None = None,
    store: Store | None = None,
    vectors: VectorCache | None = None,
    progress: Progress = SILENT,
) -> Diagnosis:
    """Every layer on a model, and on a baseline with a verdict. Data are read before a model is loaded.

    Results are kept in `store` as runs of the tasks diagnose/LAYER, vectors in `vectors`, if they are given. A layer
    that is not requested by name and cannot be run on these inputs is skipped with its reason.

    >>> diagnosis = diagnose("./model", CorpusInputs(dataset="./shop"))
    >>> [finding.layer for finding in diagnosis.findings]
    ['geometry', 'retrieval', 'attributes', 'semantic_gap', 'knowledge', 'contrasts', 'certainty', 'remedies']
    """
    options = options or DiagnosisOptions()
    start = time.perf_counter()
    chosen = _choose_layers(options, inputs)
    adaptation.check(options.adaptation, baseline, inputs.sts)
    _refuse_sides([side for side in (model, baseline) if side is not None], options, model_options)
    if store:
        store.check_writable(optional=True)
    products = any(layer.name in _PRODUCT_LAYERS for layer in chosen)
    material = embedding.read(inputs, products=products) if chosen else embedding.nothing()
    k, documents = options.layer_options.get("k"), material.counts()["documents"]
    if chosen and k is not None and k > documents:  # figures at a depth that no list has
        raise RequestError(f"`k` must be at most the number of documents, {documents:,}, found {k:,}")
    options = replace(options, layer_options=_with_data_options(material, options.layer_options))
    _refuse_without_effect(options, material, baseline)
    groups = _groups(options.group_by, inputs, material)
    setting = _Setting(material, chosen, options, model_options or ModelOptions(), store, vectors, progress, groups)
    with at_most(setting.model_options.threads):
        first = None if baseline is None else _examine(baseline, setting.of(baseline, model), None, is_baseline=True)
    if first and first.dead:
        raise InvalidOutput(f"the baseline cannot be compared: {first.dead.reason}", first.dead.rows)
    with at_most(setting.model_options.threads), count_searches() as searches:
        second = _examine(model, setting.of(model, baseline), first)
    if second.dead and not first:  # beside a baseline it is a verdict
        raise second.dead
    baseline_notes = [f"the baseline: {note}" for note in first.notes] if first else []
    return Diagnosis(
        model=second.info,
        baseline=first.info if first else None,
        dataset=material.dataset.source,
        fingerprint=material.dataset.fingerprint,
        counts=material.counts(),
        findings=_judge(first, second, setting) if first else second.findings,
        created=datetime.now(UTC).isoformat(timespec="milliseconds"),
        timing={**second.timing, **searches.facts(), "total_seconds": round(time.perf_counter() - start, 3)},
        notes=(*material.notes, *second.info.notes, *second.notes, *baseline_notes),
        scorecard=_scorecard(inputs, setting, first, second),
        similarity=second.similarity,
    )


# Inputs and options that only some layers read.
_READERS = {
    "terms": ("geometry",),
    "paraphrases": ("retrieval",),
    "entities": ("knowledge",),
    "mlm_head": ("knowledge",),
    "out_of_domain": ("certainty",),
    "attributes": (_ATTRIBUTES, "contrasts", "remedies"),
    "columns": (_ATTRIBUTES, "contrasts", "remedies"),
    "rerank": ("retrieval", _ATTRIBUTES),
}


def _choose_layers(options: DiagnosisOptions, inputs: CorpusInputs) -> list[Layer]:
    """Those requested by name, else all; none where only mteb is requested. What none of them reads is refused."""
    only_mteb = bool(options.mteb) and not options.layers and inputs.has_no_texts
    chosen = [] if only_mteb else list(layers.select(options.layers)) or list(layers.LAYERS.values())
    names = {layer.name for layer in chosen}
    for record in (inputs, options):
        for name in record.changed():
            if name in _READERS and names.isdisjoint(_READERS[name]):
                raise RequestError(f"`{name}` is for the layer {' or '.join(_READERS[name])}: add it to `layers`")
    accepted = {f.name for layer in chosen for f in fields(layer.options)}
    for name, value in options.layer_options.items():
        if value is not None and name not in (*accepted, "seed"):
            raise RequestError(
                f"`{name}` is not an option of the requested layers ({', '.join(sorted(names)) or 'none'})"
            )
    return chosen


def _refuse_without_effect(options: DiagnosisOptions, material: Material, baseline: object) -> None:
    """What the data or the lack of a baseline leave without effect."""
    if options.query_prompt is not None and not len(material.dataset):
        raise RequestError("`query_prompt` has no effect without queries")
    if "resamples" in options.changed() and baseline is None and not options.mteb:
        raise RequestError("`resamples` is of the comparison with a `baseline`, and there is none")


def _refuse_sides(sides: Sequence[str | Model], options: DiagnosisOptions, model_options: ModelOptions | None) -> None:
    """Models that are not there, and what needs vectors where a model has none."""
    for reference in (*sides, options.rerank, options.mlm_head):
        if isinstance(reference, str) and not ranking.is_run(reference):
            models.find(reference)
    for side in sides:
        for name in ("adaptation", "mteb", "mlm_head") if ranking.ranks_by_itself(side) else ():
            if getattr(options, name):
                raise RequestError(f"`{name}` needs models that give vectors, and {_name(side)} orders documents")
    if any(map(ranking.encodes, sides)):
        return
    for name in ("query_prompt", "passage_prompt", "similarity"):
        if getattr(options, name) is not None:
            raise RequestError(f"`{name}` does not apply to {_name(sides[0])}, which has no vectors")
    if model_options:
        model_options.refuse_others(f"{_name(sides[0])}, which has no weights", "model_id", "threads", "sandbox")


def _name(side: str | Model) -> str:
    return clean(side) if isinstance(side, str) else side.info.model_id


def _with_data_options(material: Material, options: Mapping[str, Any]) -> Mapping[str, Any]:
    """The options with what the data add: that grades are ESCI's, and which words and columns state attributes."""
    if material.esci and options.get("grades") is None:
        options = {**options, "grades": "esci"}
    if products := material.products:
        options = {**options, "dictionary": products.dictionary, "products": products.fingerprint}
    return options


def _groups(names: Sequence[str], inputs: CorpusInputs, material: Material) -> tuple[slices.Labels, ...]:
    """What queries are grouped by; groups of paraphrases stand in no group."""
    if names and not len(material.dataset):
        raise RequestError("`group_by` groups queries, and there are none: give `queries`, or a `dataset`")
    place, queries = material.dataset.source, frozenset(material.dataset.ids)
    files = {name: getattr(inputs, name) for name in ("dataset", "corpus", "queries", "qrels")}
    groups = slices.find(names, lambda: labels.of_corpus(**files, source=place))
    return tuple(replace(each, among=queries) for each in groups)


# --- one model ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Setting:
    """What both models of a diagnosis share."""

    material: Material
    layers: Sequence[Layer]
    options: DiagnosisOptions
    model_options: ModelOptions
    store: Store | None
    vectors: VectorCache | None
    progress: Progress
    groups: tuple[slices.Labels, ...] = ()

    def of(self, model: str | Model, other: str | Model | None) -> _Setting:
        """For one of the two models."""
        return replace(self, model_options=models.options_beside(model, self.model_options, [other]))

    def keep(self, result: Result) -> Result:
        """The result, with a warning where the store does not take it."""
        return replace(result, warnings=(*result.warnings, *self.store.keep(result))) if self.store else result


@dataclass(frozen=True, eq=False)
class _Examined:
    """The findings about one model. `dead` is why it has none; `shown` are its first results."""

    model: str | Model
    info: ModelInfo
    findings: tuple[Finding, ...] = ()
    shown: NDArray[np.int64] | None = None
    timing: Mapping[str, float] = field(default_factory=dict)
    dead: InvalidOutput | None = None
    notes: tuple[str, ...] = ()
    similarity: str = "cosine"

    @property
    def side(self) -> adaptation.Side:
        return adaptation.Side(self.model, {f.layer: f.result for f in self.findings if f.result})


def _examine(model: str | Model, setting: _Setting, first: _Examined | None, *, is_baseline: bool = False) -> _Examined:
    """Every layer on one model; `first` is the baseline, whose results a candidate is compared on."""
    material, options, progress = setting.material, setting.options, setting.progress
    start = time.perf_counter()
    progress.start("Loading the model", 0)
    search = _search_options(setting)
    opened = ranking.open_model(model, material, search, setting.vectors, progress, is_baseline=is_baseline)
    try:
        space = opened.prepare() if setting.layers else embedding.NOWHERE
        with count_searches() as shared:
            space = embedding.search(space, opened.info, material, search, progress)
        if first is not None and first.shown is not None:
            space = replace(space, reference=first.shown)
        if opened.plain and any(layer.name == "knowledge" for layer in setting.layers):
            entities, head = material.entities, options.mlm_head
            space = adaptation.probe_space(space, model, entities, head, setting.model_options)
        embedded = time.perf_counter()
        findings = [_run(layer, opened, space, setting, shared) for layer in setting.layers]
        if all(f.result is None for f in findings) and not options.mteb:
            raise RequestError(findings[0].reason or "no layer can be run on these inputs")
        findings += [_general(opened.plain, setting)] if options.mteb and opened.plain else []
    except InvalidOutput as error:
        return _Examined(model, opened.info, dead=error)
    seconds = round(embedded - start, 3)
    return _Examined(
        model,
        opened.info,
        tuple(findings),
        retrieval.read(space, _layer_options(retrieval.LAYER, options)).shown if space.searched else None,
        {"vectors_seconds": seconds, **opened.counts},
        notes=(*opened.damaged, *(_notes(space, opened.info) if setting.layers else ())),
        similarity=space.similarity,
    )


def _notes(space: Space, info: ModelInfo) -> tuple[str, ...]:
    """Texts without a direction, texts that the model cuts, the pairs of a reranker among them, and documents that were
    no results."""
    left_out = IDENTICAL if space.searched and IDENTICAL in space.searched.notes else None
    pairs = space.searched.counts.get("reranked_pairs_truncated") if space.searched else None
    return (
        *spaces.notes_on_directions(space),
        *spaces.notes_on_truncation(space.truncated, info.settings),
        *((f"{pairs:,} reranked pairs are longer than the reranker reads and are cut",) if pairs else ()),
        *((left_out,) if left_out else ()),
    )


def _search_options(setting: _Setting) -> SearchOptions:
    options = setting.options
    shared = {
        name: getattr(options, name) for name in ("query_prompt", "passage_prompt", "similarity", "rerank", "rerank_k")
    }
    ranking = _layer_options(retrieval.LAYER, options)
    depth = max(ranking.deep, options.rerank_k if options.rerank else 0)
    return SearchOptions(
        model_options=setting.model_options, depth=depth, relevant_from=ranking.relevant_from, **shared
    )


# --- layers ------------------------------------------------------------------------------------------------------


def _layer_options(layer: Layer, options: DiagnosisOptions) -> Any:
    accepted = {f.name for f in fields(layer.options)}
    values = {"confidence": options.confidence, **{n: v for n, v in options.layer_options.items() if v is not None}}
    return layer.options(**{name: value for name, value in values.items() if name in accepted})


def _run(layer: Layer, opened: OpenedModel, space: Space, setting: _Setting, shared: SearchWork) -> Finding:
    """`shared` is the search whose results every layer reads; it counts as the retrieval layer's."""
    start = time.perf_counter()
    requested = layer.name in setting.options.layers
    try:
        if space.no_vectors and layer.name not in SLICED:
            raise RequestError(f"the layer {layer.name} describes vectors: {space.no_vectors}")
        if layer.skip_reason and not requested and (why := layer.skip_reason(space)):
            raise RequestError(why)
        options = _layer_options(layer, setting.options)
        with count_searches() as searches:
            outcomes = layer.run(opened.reader, space, options, setting.progress)
        cut = {f"{kind.replace(' ', '_')}_truncated": count for kind, count in space.truncated.items() if count}
        outcomes = replace(outcomes, counts={**outcomes.counts, **cut})
    except RequestError as error:
        if requested:
            raise
        return Finding(layer.name, layer.about, None, reason=str(error))
    seconds = round(time.perf_counter() - start, 3)
    if layer is retrieval.LAYER:
        searches.add(shared)
    spent = {"load_seconds": 0.0, "inference_seconds": seconds, "metrics_seconds": 0.0, "total_seconds": seconds}
    result = _to_result(layer, outcomes, options, opened.info, setting, spent | searches.facts())
    result = _sliced(layer, setting.keep(result), setting)
    return Finding(layer.name, layer.about, result)


def _sliced(layer: Layer, result: Result, setting: _Setting) -> Result:
    """The result by group, where the layer is about the results of queries."""
    groups = setting.groups if layer.name in SLICED else ()
    resampling = Resampling(setting.options.confidence, layer.resamples, setting.options.seed)
    return slices.slice_result(result, catalogue.find(result.task), groups, resampling)


def _to_result(
    layer: Layer, outcomes: Outcomes, options: Any, info: ModelInfo, setting: _Setting, timing: Mapping[str, float]
) -> Result:
    """A layer's outcomes as a run like any other: its figures are the metrics."""
    dataset = setting.material.dataset
    figures = {figure.name: figure for figure in read_figures(outcomes) if figure.value is not None}
    values = MetricValues(
        {name: float(figure.value or 0.0) for name, figure in figures.items()},
        {name: figure.interval for name, figure in figures.items()},
    )
    return make_result(
        f"{catalogue.DIAGNOSE}{layer.name}",
        asdict(options),
        info,
        outcomes,
        values,
        dataset=dataset.source,
        fingerprint=dataset.fingerprint,
        bootstrap={
            "unit": layer.unit,
            "confidence": setting.options.confidence,
            "resamples": layer.resamples,
            "seed": setting.options.seed,
        },
        request=_request(info, setting.options),
        warnings=(*info.notes, *outcomes.notes),
        timing=timing,
    )


def _request(info: ModelInfo, options: DiagnosisOptions) -> dict[str, Any]:
    values = {name: getattr(options, name) for name in ("rerank", "query_prompt", "passage_prompt", "similarity")}
    values["rerank"] = clean(options.rerank) if options.rerank else None
    values = {name: value for name, value in {**options.layer_options, **values}.items() if value is not None}
    return {"given": {"model": info.model_id, **values}, "defaulted": {"rerank_k": options.rerank_k}}


# --- general language --------------------------------------------------------------------------------------------


def _general(model: Encoder, setting: _Setting) -> Finding:
    """Scores of mteb's tasks as one more finding."""
    from calipers.interop import mteb

    options = setting.options
    resampling = Resampling(options.confidence, options.resamples)
    result = mteb.measure(model, list(options.mteb), progress=setting.progress, resampling=resampling)
    result = setting.keep(result)
    return Finding("mteb", "general language ability, by tasks of the mteb package", adaptation.with_figures(result))


# --- beside a baseline -------------------------------------------------------------------------------------------


def _judge(first: _Examined, second: _Examined, setting: _Setting) -> tuple[Finding, ...]:
    """Each layer of both on the same examples; a dead candidate is INVALID in each that the baseline has."""
    setting.progress.start("Comparing", 0)
    after = {finding.layer: finding for finding in second.findings}
    return tuple(_judge_layer(f, after.get(f.layer, f), second, setting) for f in first.findings)


def _judge_layer(before: Finding, after: Finding, second: _Examined, setting: _Setting) -> Finding:
    if before.result is None:
        return after
    threads = setting.model_options.workers
    if second.dead:
        metrics = [m for m in _measures(before.result) if m.name in before.result.metrics]
        terms = _terms(before.result, setting.options, threads)
        verdict = verdicts.invalid(before.result, second.info.model_id, second.dead.reason, metrics, terms)
        return replace(before, result=None, verdict=verdict, reason=str(second.dead))
    if after.result is None:
        return after
    verdict, result = compare_layers(before.result, after.result, setting.options, threads), after.result
    if after.layer in SLICED:
        shared = [m for m in _measures(result) if m.name in {c.metric for c in verdict.comparisons}]
        verdict = with_slices(verdict, setting.groups, shared, _terms(before.result, setting.options, threads))
    if after.layer == "mteb":
        result = adaptation.with_forgetting(before.result, result, verdict)
    return replace(after, result=result, verdict=verdict)


def _scorecard(inputs: CorpusInputs, setting: _Setting, first: _Examined | None, second: _Examined) -> Scorecard | None:
    """How the layers of both read as the training between them; None where none is named, or a model is dead."""
    if setting.options.adaptation is None or first is None or not first.findings or not second.findings:
        return None
    return adaptation.score(
        setting.options,
        setting.model_options,
        inputs,
        setting.material.dataset,
        first.side,
        second.side,
        {name: _measures(result) for name, result in first.side.results.items()},
        store=setting.store,
        progress=setting.progress,
    )


def _measures(result: Result) -> list[Metric]:
    task = catalogue.find(result.task)
    return list(task.measures(task.options(**result.options)))


def compare_layers(before: Result, after: Result, options: DiagnosisOptions, threads: int = 1) -> Verdict:
    """The figures that both runs of a layer have, compared."""
    shared = [m for m in _measures(before) if m.name in before.metrics and m.name in after.metrics]
    return verdicts.compare(before, after, shared, _terms(before, options, threads))


def _terms(before: Result, options: DiagnosisOptions, threads: int) -> verdicts.Terms:
    name = before.task.removeprefix(catalogue.DIAGNOSE)
    first = next(iter(before.metrics))
    deciding = (first,) if name == "mteb" or (name in DECIDING and first.startswith("ndcg@")) else ()
    worst = 10 if name in DECIDING else 0
    shared = options.confidence, options.resamples, options.seed, threads, worst, options.question
    return verdicts.Terms({}, deciding, *shared)
