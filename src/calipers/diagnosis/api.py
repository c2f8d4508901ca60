"""diagnose: why does search with this model fail? Texts are embedded once, and every layer reads the same space."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from datetime import UTC, datetime
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calipers import models
from calipers.comparison import verdict
from calipers.comparison.records import Verdict
from calipers.core import (
    SILENT,
    Dataset,
    Encoder,
    InvalidOutput,
    Metric,
    Model,
    ModelInfo,
    Outcomes,
    Progress,
    RequestError,
    Result,
    read_figures,
)
from calipers.diagnosis import adaptation as adapting
from calipers.diagnosis import layers
from calipers.diagnosis.layers import Layer, Space, retrieval_parts
from calipers.diagnosis.layers.retrieval_kinds import DEPTH
from calipers.diagnosis.records import Diagnosis, Finding
from calipers.models import ModelOptions
from calipers.runs import api, catalogue, directions, embedding
from calipers.runs.embedding import Asking, Inputs, Material
from calipers.runs.record import MetricValues, make_result
from calipers.runs.store import Store
from calipers.runs.vector_cache import CachedEncoder, VectorCache

__all__ = ["Inputs", "Wishes", "diagnose"]

_ATTRIBUTES = "attributes"
# The layers whose primary metric makes a verdict. The shape of a space is neither good nor bad by itself.
DECIDING = ("retrieval",)


@dataclass(frozen=True)
class Wishes:
    """How it is diagnosed. Without `layers` all that the inputs allow are run; `options` are those of the layers."""

    layers: tuple[str, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict)
    model_options: ModelOptions = field(default_factory=ModelOptions)
    query_prompt: str | None = None
    passage_prompt: str | None = None
    rerank: str | None = None
    rerank_k: int = 100
    mteb: tuple[Any, ...] = ()  # names of tasks and benchmarks, or mteb's own task objects
    adaptation: str | None = None
    mlm_head: str | None = None
    resamples: int = api.RESAMPLES
    confidence: float = api.CONFIDENCE


def diagnose(
    model: str | Model,
    inputs: Inputs,
    *,
    baseline: str | Model | None = None,
    wishes: Wishes | None = None,
    store: Store | None = None,
    vectors: VectorCache | None = None,
    progress: Progress = SILENT,
) -> Diagnosis:
    """Every layer on a model, and on a baseline with a verdict. Data are read before a model is loaded.

    Results are kept in `store` as runs of the tasks diagnose/LAYER, vectors in `vectors`, if they are given. A layer
    that was not asked for by name and cannot be run on these inputs is left out with its reason.
    """
    wish = wishes or Wishes()
    start = time.perf_counter()
    chosen = _choose_layers(wish, inputs)
    adapting.check(wish.adaptation, baseline, inputs.sts)
    for side in (model, baseline, wish.rerank, wish.mlm_head):
        if isinstance(side, str):
            models.find(side)
    if store:
        store.check_writable()
    products = any(layer.name == _ATTRIBUTES for layer in chosen)
    material = embedding.read(inputs, products=products) if chosen else embedding.nothing()
    _refuse_too_many(wish.options.get("k"), material if chosen else None)
    asked = replace(wish, options=_told_by(material, wish.options))
    first = None
    if baseline is not None:
        first = _alive(_examine(baseline, material, chosen, asked, None, store, vectors, progress))
    second = _examine(model, material, chosen, asked, first, store, vectors, progress)
    findings = _judge(first, second, asked, progress) if first else second.findings
    if first is None and second.dead:
        raise second.dead
    return Diagnosis(
        model=second.info,
        baseline=first.info if first else None,
        dataset=material.dataset.source,
        fingerprint=material.dataset.fingerprint,
        counts=material.counts(),
        findings=findings,
        created=datetime.now(UTC).isoformat(timespec="milliseconds"),
        timing={**second.timing, "total_seconds": round(time.perf_counter() - start, 3)},
        notes=(
            *material.notes,
            *second.info.notes,
            *second.notes,
            *(f"the baseline: {note}" for note in (first.notes if first else ())),
        ),
        scorecard=adapting.of_findings(
            (baseline, first.findings if first else ()),
            (model, second.findings),
            (inputs, material.dataset, asked),
            store=store,
            progress=progress,
        ),
    )


def _choose_layers(wish: Wishes, inputs: Inputs) -> list[Layer]:
    """Those asked for by name, else all; none where only mteb was asked for."""
    if wish.mteb and not wish.layers and inputs.has_no_texts:
        return []
    chosen = [layers.find(name) for name in dict.fromkeys(wish.layers)] or list(layers.LAYERS.values())
    if inputs.attributes and not any(layer.name == _ATTRIBUTES for layer in chosen):
        raise RequestError("--attributes gives words to the layer attributes: add it to --layers")
    known = {f.name for layer in chosen for f in fields(layer.options)}
    for name, value in wish.options.items():
        if value is not None and name not in known:
            of = ", ".join(layer.name for layer in chosen)
            raise RequestError(f"--{name.replace('_', '-')} is not an option of the layers asked for ({of})")
    return chosen


def _refuse_too_many(k: int | None, material: Material | None) -> None:
    """More results than documents would be figures at a depth that no list has."""
    if k is not None and material is not None and k > (documents := material.counts()["documents"]):
        raise RequestError(f"--k must be at most the number of documents, which is {documents:,}, found {k:,}")


def _told_by(material: Material, options: Mapping[str, Any]) -> Mapping[str, Any]:
    """The options with what the data say: that grades are ESCI's, and which words and columns state attributes."""
    if material.esci and options.get("grades") is None:
        options = {**options, "grades": "esci"}
    if found := material.products:
        options = {**options, "dictionary": found.dictionary, "products": found.fingerprint}
    return options


# --- one model ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Examined:
    """What came of one model. `dead` is why it has no findings; `shown` are its first results."""

    info: ModelInfo
    findings: tuple[Finding, ...] = ()
    shown: NDArray[np.int64] | None = None
    timing: Mapping[str, float] = field(default_factory=dict)
    dead: InvalidOutput | None = None
    entities: tuple[str, ...] = ()  # of the knowledge probe
    notes: tuple[str, ...] = ()


def _examine(
    model: str | Model,
    material: Material,
    chosen: Sequence[Layer],
    wish: Wishes,
    first: _Examined | None,
    store: Store | None,
    vectors: VectorCache | None,
    progress: Progress,
) -> _Examined:
    start = time.perf_counter()
    progress.start("Loading the model", 0)
    asking = _asking(wish)
    encoder, plain = embedding.load_encoder(model, material, asking, vectors)
    try:
        space = embedding.embed(encoder, material, asking, progress) if chosen else embedding.NOWHERE
        space = embedding.search(space, encoder.info, material, asking, progress)
        if first is not None and first.shown is not None:
            space = replace(space, reference=first.shown)
        if any(layer.name == "knowledge" for layer in chosen):
            same = first.entities if first else material.entities
            space = adapting.probe_space(space, model, encoder, same, wish.mlm_head, wish.model_options)
        embedded = time.perf_counter()
        findings = [_run(layer, encoder, space, material, wish, store, progress) for layer in chosen]
        if all(f.result is None for f in findings) and not wish.mteb:
            raise RequestError(findings[0].reason or "no layer can be run on these inputs")
        findings += [_general(plain, wish, store, progress)] if wish.mteb else []
    except InvalidOutput as error:
        return _Examined(encoder.info, dead=error)
    timing = {"vectors_seconds": round(embedded - start, 3), "texts_encoded": encoder.encoded}
    timing |= {"texts_reused": encoder.reused}
    shown = None
    if space.searched:
        options = _options(layers.find("retrieval"), wish)
        shown = retrieval_parts.read(space, options).shown
    notes = tuple(directions.tell(space)) if chosen else ()
    return _Examined(encoder.info, tuple(findings), shown, timing, entities=tuple(space.entities), notes=notes)


def _asking(wish: Wishes) -> Asking:
    return Asking(
        model_options=wish.model_options,
        query_prompt=wish.query_prompt,
        passage_prompt=wish.passage_prompt,
        rerank=wish.rerank,
        rerank_k=wish.rerank_k,
        depth=max(DEPTH, int(wish.options.get("k") or 0)),
    )


def _alive(examined: _Examined) -> _Examined:
    """A dead candidate is a verdict, a dead baseline an error."""
    if examined.dead:
        told = examined.dead.reason
        raise InvalidOutput(f"the baseline cannot be compared with: {told}", examined.dead.rows)
    return examined


# --- layers ------------------------------------------------------------------------------------------------------


def _options(layer: Layer, wish: Wishes) -> Any:
    known = {f.name for f in fields(layer.options)}
    given = {"confidence": wish.confidence, **{n: v for n, v in wish.options.items() if v is not None}}
    return layer.options(**{name: value for name, value in given.items() if name in known})


def _run(
    layer: Layer,
    encoder: CachedEncoder,
    space: Space,
    material: Material,
    wish: Wishes,
    store: Store | None,
    progress: Progress,
) -> Finding:
    start = time.perf_counter()
    if layer.spare and layer.name not in wish.layers and (why := layer.spare(space)):
        return Finding(layer.name, layer.about, None, reason=why)
    try:
        options = _options(layer, wish)
        outcomes = layer.run(encoder, space, options, progress)
    except RequestError as error:
        if layer.name in wish.layers:
            raise
        return Finding(layer.name, layer.about, None, reason=str(error))
    seconds = round(time.perf_counter() - start, 3)
    result = to_result(layer, outcomes, options, encoder.info, material.dataset, wish, seconds)
    if store:
        store.save(result)
    return Finding(layer.name, layer.about, result)


def to_result(
    layer: Layer, outcomes: Outcomes, options: Any, info: ModelInfo, dataset: Dataset, wish: Wishes, seconds: float
) -> Result:
    """A layer's outcomes as a run like any other: its figures are the metrics."""
    known = {figure.name: figure for figure in read_figures(outcomes) if figure.value is not None}
    values = MetricValues(
        {name: float(figure.value or 0.0) for name, figure in known.items()},
        {name: figure.interval for name, figure in known.items()},
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
            "confidence": wish.confidence,
            "resamples": layer.resamples,
            "seed": _seed(wish),
        },
        request=_request(info, wish),
        warnings=(*info.notes, *outcomes.notes),
        timing={"load_seconds": 0.0, "inference_seconds": seconds, "metrics_seconds": 0.0, "total_seconds": seconds},
    )


def _request(info: ModelInfo, wish: Wishes) -> dict[str, Any]:
    told = {"rerank": wish.rerank, "query_prompt": wish.query_prompt, "passage_prompt": wish.passage_prompt}
    given = {name: value for name, value in {**wish.options, **told}.items() if value is not None}
    return {"given": {"model": info.model_id, **given}, "defaulted": {"rerank_k": wish.rerank_k}}


def _seed(wish: Wishes) -> int:
    return int(wish.options.get("seed") or 42)


# --- general language --------------------------------------------------------------------------------------------


def _general(model: Encoder, wish: Wishes, store: Store | None, progress: Progress) -> Finding:
    """Scores of mteb's tasks as one more finding."""
    from calipers.diagnosis import mteb_figures
    from calipers.interop import mteb

    result = mteb.measure(
        model, list(wish.mteb), progress=progress, resamples=wish.resamples, confidence=wish.confidence
    )
    if store:
        store.save(result)
    return Finding("mteb", "general language ability, by tasks of the mteb package", mteb_figures.with_figures(result))


# --- beside a baseline -------------------------------------------------------------------------------------------


def _forgetting(before: Result, after: Result, judged: Verdict) -> Result:
    from calipers.diagnosis import mteb_figures

    return mteb_figures.with_forgetting(before, after, judged)


def _judge(first: _Examined, second: _Examined, wish: Wishes, progress: Progress) -> tuple[Finding, ...]:
    """Each layer of both on the same examples; a dead candidate is INVALID in each that the baseline has."""
    progress.start("Comparing", 0)
    mine = {finding.layer: finding for finding in second.findings}
    found = []
    for before in first.findings:
        after = mine.get(before.layer, before)
        if before.result is None:
            found.append(after)
        elif second.dead:
            found.append(replace(before, result=None, verdict=_invalid(before, second, wish), reason=str(second.dead)))
        elif after.result is None:
            found.append(after)
        else:
            judged = _compare(before.result, after.result, wish)
            general = after.layer == "mteb"
            own = _forgetting(before.result, after.result, judged) if general else after.result
            found.append(replace(after, result=own, verdict=judged))
    return tuple(found)


def _measures(result: Result) -> list[Metric]:
    task = catalogue.find(result.task)
    return list(task.measures(task.options(**result.options)))


def _compare(before: Result, after: Result, wish: Wishes) -> Verdict:
    known = [m for m in _measures(before) if m.name in before.metrics and m.name in after.metrics]
    return verdict.compare(before, after, known, _terms(before, wish))


def _invalid(before: Finding, second: _Examined, wish: Wishes) -> Verdict:
    assert before.result is not None
    assert second.dead is not None
    why = second.dead.reason
    known = [m for m in _measures(before.result) if m.name in before.result.metrics]
    return verdict.invalid(before.result, second.info.model_id, why, known, _terms(before.result, wish))


def _terms(before: Result, wish: Wishes) -> verdict.Terms:
    name = before.task.removeprefix(catalogue.DIAGNOSE)
    primary = next(iter(before.metrics))
    return verdict.Terms(
        thresholds={},
        deciding=(primary,) if name in (*DECIDING, "mteb") else (),
        confidence=wish.confidence,
        resamples=wish.resamples,
        seed=_seed(wish),
        threads=wish.model_options.workers,
        worst=10 if name in DECIDING else 0,
    )
