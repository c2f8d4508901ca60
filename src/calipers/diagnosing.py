"""diagnose: why does search with this model fail? Texts are embedded once, and every layer reads the same space."""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from datetime import UTC, datetime
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calipers import api, cache, layers, models, verdict
from calipers.core import (
    SILENT,
    Dataset,
    DataSource,
    Diagnosis,
    Encoder,
    Finding,
    InvalidOutput,
    Model,
    ModelInfo,
    Outcomes,
    Progress,
    RequestError,
    Result,
    Verdict,
    name_some,
    read_figures,
)
from calipers.data import corpora
from calipers.layers import Layer, Space, Texts, retrieval_parts
from calipers.metrics import geometry
from calipers.models import ModelOptions
from calipers.store import Store
from calipers.tasks import retrieval
from calipers.tasks.search import WINDOW, exact_search
from calipers.vector_cache import CachedEncoder, VectorCache

TASK = "diagnose/"  # before the name of a layer: how its runs are called in the store
# The layers whose primary metric makes a verdict. The shape of a space is neither good nor bad by itself.
DECIDING = ("retrieval",)
_EMBEDDING = ("core/models.py", "models")  # what of ours can change a vector


@dataclass(frozen=True)
class Inputs:
    """What is read, by file or folder. `source` says split, samples (of queries), seed and shuffle."""

    dataset: str | None = None
    corpus: str | None = None
    queries: str | None = None
    qrels: str | None = None
    pairs: str | None = None
    pairs_above: float | None = None
    terms: str | None = None
    paraphrases: str | None = None
    source: DataSource = field(default_factory=lambda: DataSource(path=""))


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
    mteb: tuple[str, ...] = ()
    resamples: int = api.RESAMPLES
    confidence: float = api.CONFIDENCE


@dataclass(frozen=True)
class Material:
    """What was read."""

    dataset: Dataset
    pairs: corpora.Pairs | None
    terms: tuple[str, ...]
    groups: corpora.Groups | None
    notes: tuple[str, ...]
    esci: bool

    def counts(self) -> dict[str, int]:
        judged = sum(len(grades) for grades in self.dataset.columns["qrels"])
        found = {"documents": len(self.dataset.tables["corpus"]), "queries": len(self.dataset), "judgements": judged}
        found["pairs"] = len(self.pairs) if self.pairs else 0
        found["terms"] = len(self.terms)
        found["paraphrase_groups"] = len(self.groups.ids) if self.groups else 0
        return found


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
    chosen = _choose_layers(wish)
    for side in (model, baseline, wish.rerank):
        if isinstance(side, str):
            models.find(side)
    if store:
        store.check_writable()
    material = read(inputs)
    asked = replace(wish, options=_grades(wish.options, material))
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
        notes=(*material.notes, *second.info.notes),
    )


def _choose_layers(wish: Wishes) -> list[Layer]:
    chosen = [layers.find(name) for name in dict.fromkeys(wish.layers)] or list(layers.LAYERS.values())
    known = {f.name for layer in chosen for f in fields(layer.options)}
    for name, value in wish.options.items():
        if value is not None and name not in known:
            of = ", ".join(layer.name for layer in chosen)
            raise RequestError(f"--{name.replace('_', '-')} is not an option of the layers asked for ({of})")
    return chosen


def _grades(options: Mapping[str, Any], material: Material) -> Mapping[str, Any]:
    return {**options, "grades": "esci"} if material.esci and options.get("grades") is None else options


def read(inputs: Inputs) -> Material:
    """All inputs. Without a corpus the texts of the pairs are one."""
    notes: list[str] = []
    pairs = corpora.load_pairs(inputs.pairs, above=inputs.pairs_above) if inputs.pairs else None
    if pairs and pairs.above is not None:
        notes.append(f"{len(pairs)} of {pairs.read} pairs have a score from {pairs.above:g} on and count as positive")
    own = inputs.dataset or inputs.corpus or inputs.queries or inputs.qrels
    if pairs and not own:
        dataset = corpora.from_texts([*pairs.left, *pairs.right], str(inputs.pairs))
        notes.append(f"there is no corpus: the {dataset.counts['documents']:g} texts of the positive pairs are taken")
    else:
        dataset = corpora.load(
            dataset=inputs.dataset,
            corpus=inputs.corpus,
            queries=inputs.queries,
            qrels=inputs.qrels,
            source=inputs.source,
        )
    return Material(
        dataset=dataset,
        pairs=pairs,
        terms=corpora.load_terms(inputs.terms) if inputs.terms else (),
        groups=corpora.load_paraphrases(inputs.paraphrases) if inputs.paraphrases else None,
        notes=tuple(notes),
        esci=corpora.has_esci_labels(inputs.dataset, inputs.qrels),
    )


# --- one model ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Examined:
    """What came of one model. `dead` is why it has no findings; `shown` are its first results."""

    info: ModelInfo
    findings: tuple[Finding, ...] = ()
    shown: NDArray[np.int64] | None = None
    timing: Mapping[str, float] = field(default_factory=dict)
    dead: InvalidOutput | None = None


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
    encoder, plain = _load(model, material, wish, vectors)
    try:
        space = _search(embed(encoder, material, wish, progress), encoder.info, material, wish, progress)
        if first is not None and first.shown is not None:
            space = replace(space, reference=first.shown)
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
    return _Examined(encoder.info, tuple(findings), shown, timing)


def _alive(examined: _Examined) -> _Examined:
    """A dead candidate is a verdict, a dead baseline an error."""
    if examined.dead:
        told = str(examined.dead).removeprefix("INVALID: ")
        raise InvalidOutput(f"the baseline cannot be compared with: {told}", examined.dead.rows)
    return examined


def _load(
    model: str | Model, material: Material, wish: Wishes, vectors: VectorCache | None
) -> tuple[CachedEncoder, Encoder]:
    identity = None
    if isinstance(model, str):
        source = models.find(model)
        loaded: Any = models.load(source, wish.model_options, "encode")
        facts = models.identity.identity(source, wish.model_options, "encode") if vectors else None
        identity = cache.canonical([facts, cache.code_version(_EMBEDDING)]) if facts else None
    else:
        loaded = model
    if hasattr(loaded, "bind"):
        loaded = loaded.bind(text_ids(material))
    return CachedEncoder(loaded, identity, vectors), loaded


def text_ids(material: Material) -> dict[str, list[str]]:
    """Vectors may be stored under `ID/query`, `ID/document`, `ID/1` and `ID/2` (the two sides of a pair)."""
    known = {text: list(ids) for text, ids in retrieval.text_ids(material.dataset).items()}
    pairs = material.pairs
    for side, texts in (("1", pairs.left), ("2", pairs.right)) if pairs else ():
        for id, text in zip(pairs.ids, texts, strict=True):
            known.setdefault(text, []).append(f"{id}/{side}")
    return known


def embed(encoder: CachedEncoder, material: Material, wish: Wishes, progress: Progress) -> Space:
    """The space: corpus, queries, pairs and paraphrases with their vectors."""
    dataset = material.dataset
    wanted = retrieval.RetrievalOptions(query_prompt=wish.query_prompt, passage_prompt=wish.passage_prompt)
    query_prompt, passage_prompt = retrieval.prompts(encoder.info, wanted)
    corpus = dataset.tables["corpus"]

    def texts(ids: Sequence[str], values: Sequence[str], prompt: str | None) -> Texts:
        return Texts(tuple(ids), values, encoder.encode(values, prompt=prompt, progress=progress), prompt)

    space = Space(
        corpus=texts(corpus.ids, corpus.columns["text"], passage_prompt),
        queries=texts(dataset.ids, dataset.columns["query"], query_prompt) if len(dataset) else None,
        qrels=dataset.columns["qrels"],
        pairs=_pairs(encoder, material.pairs, progress) if material.pairs else None,
        terms=material.terms,
        paraphrases=_groups(encoder, material.groups, query_prompt, progress) if material.groups else None,
    )
    refuse_dead(space)
    return space


def _pairs(encoder: CachedEncoder, pairs: corpora.Pairs, progress: Progress) -> layers.Pairs:
    left, right = (encoder.encode(side, progress=progress) for side in (pairs.left, pairs.right))
    return layers.Pairs(pairs.ids, left, right)


def _groups(
    encoder: CachedEncoder, groups: corpora.Groups, prompt: str | None, progress: Progress
) -> layers.Groups:
    flat = [text for texts in groups.texts for text in texts]
    ids = [f"{id}/{i}" for id, texts in zip(groups.ids, groups.texts, strict=True) for i in range(len(texts))]
    vectors = encoder.encode(flat, prompt=prompt, progress=progress)
    which = np.repeat(np.arange(len(groups.ids)), [len(texts) for texts in groups.texts])
    return layers.Groups(groups.ids, Texts(tuple(ids), flat, vectors, prompt), which)


def refuse_dead(space: Space) -> None:
    """Vectors that are zero or not finite have no place in a space; the message names their rows."""
    sides: list[tuple[str, Sequence[str], Any]] = [("documents", space.corpus.ids, space.corpus.vectors)]
    sides += [("queries", space.queries.ids, space.queries.vectors)] if space.queries else []
    for what, ids, vectors in sides:
        length = geometry.norms(vectors)
        dead = [ids[int(i)] for i in np.flatnonzero(~np.isfinite(length) | (length == 0))]
        if dead:
            raise InvalidOutput(
                f"INVALID: the vectors of {len(dead)} of {len(ids)} {what} are zero or hold NaN or infinite numbers "
                f"(rows {name_some(dead)})",
                dead,
            )


# --- searching ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _SpaceSearch:
    """The search task's first stage, answered from vectors in hand."""

    space: Space
    info: ModelInfo

    def search(
        self, queries: Any, documents: Any, k: int, *, progress: Progress = SILENT
    ) -> tuple[NDArray[Any], NDArray[np.int64]]:
        assert self.space.queries is not None
        vectors = self.space.corpus.vectors
        windows = (geometry.unit(vectors[start : start + WINDOW]) for start in range(0, len(vectors), WINDOW))
        return exact_search(geometry.unit(self.space.queries.vectors), windows, k)


def _search(space: Space, info: ModelInfo, material: Material, wish: Wishes, progress: Progress) -> Space:
    """The space with what the search task finds in it: the first stage, and the second with a reranker."""
    if space.queries is None:
        if wish.rerank:
            raise RequestError("--rerank orders the results of queries: give --queries, or a --dataset")
        return space
    progress.start("Searching", 0)
    depth = max(retrieval_parts.DEPTH, int(wish.options.get("k") or 0))
    options = retrieval.RetrievalOptions(top_k=depth, rerank_k=wish.rerank_k)
    search: Any = _SpaceSearch(space, info)
    if wish.rerank:
        scorer: Any = models.load(models.find(wish.rerank), ModelOptions(threads=wish.model_options.threads), "score")
        search = retrieval.TwoStage(search, scorer)
    return replace(space, searched=retrieval.run(search, material.dataset, options, progress))


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
    options = _options(layer, wish)
    start = time.perf_counter()
    try:
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
    return Result(
        run_id=f"{datetime.now():%Y%m%d-%H%M%S}-{secrets.token_hex(3)}",
        created=datetime.now(UTC).isoformat(timespec="milliseconds"),
        task=f"{TASK}{layer.name}",
        options=asdict(options),
        model=info,
        dataset=dataset.source,
        fingerprint=dataset.fingerprint,
        request=_request(info, wish),
        metrics={name: float(figure.value or 0.0) for name, figure in known.items()},
        intervals={name: figure.interval for name, figure in known.items()},
        bootstrap={"unit": layer.unit, "confidence": wish.confidence, "resamples": wish.resamples, "seed": _seed(wish)},
        warnings=(*info.notes, *outcomes.notes),
        timing={"inference_seconds": seconds, "total_seconds": seconds},
        environment=api.environment(),
        outcomes=outcomes,
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
    from calipers.interop import mteb

    result = mteb.measure(
        model, list(wish.mteb), progress=progress, resamples=wish.resamples, confidence=wish.confidence
    )
    if store:
        store.save(result)
    return Finding("mteb", "general language ability, by tasks of the mteb package", result)


# --- beside a baseline -------------------------------------------------------------------------------------------


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
            found.append(replace(after, verdict=_compare(before.result, after.result, wish)))
    return tuple(found)


def measures_of(result: Result) -> list[Any]:
    """The metrics of a layer's run, or of mteb's scores."""
    if result.task.startswith(TASK):
        layer = layers.find(result.task.removeprefix(TASK))
        return list(layer.measures(layer.options(**result.options)))
    from calipers.tasks import mteb

    return list(mteb.TASK.metrics)


def _compare(before: Result, after: Result, wish: Wishes) -> Verdict:
    known = [m for m in measures_of(before) if m.name in before.metrics and m.name in after.metrics]
    return verdict.compare(before, after, known, _terms(before, wish))


def _invalid(before: Finding, second: _Examined, wish: Wishes) -> Verdict:
    assert before.result is not None
    why = str(second.dead).removeprefix("INVALID: ")
    known = [m for m in measures_of(before.result) if m.name in before.result.metrics]
    return verdict.invalid(before.result, second.info.model_id, why, known, _terms(before.result, wish))


def _terms(before: Result, wish: Wishes) -> verdict.Terms:
    name = before.task.removeprefix(TASK)
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
