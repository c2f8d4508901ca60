"""mteb, the Massive Text Embedding Benchmark: our models in its tasks, its scores in our runs.

`as_mteb` makes an mteb model of any backend (mteb's protocols are structural), `run` gives main scores and `measure` a
Result of the task `mteb`; `import_results` reads mteb's own result files, and `drops` lists what a model lost. Examples
are in docs/mteb.md.
"""

from __future__ import annotations

import hashlib
import json
import logging
import time
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from calipers import models
from calipers.core.datasets import DataSource
from calipers.core.errors import CalipersError, DataError, InferenceError, RequestError, install, name_some
from calipers.core.models import SILENT, Encoder, Model, ModelInfo, PairScorer, Progress, on_side
from calipers.core.results import Result
from calipers.interop.mteb_results import Drop, MtebScores, TaskScore, drops, import_results, read_scores, to_result
from calipers.metrics.arrays import Vectors
from calipers.metrics.magnitudes import single
from calipers.models import ModelOptions
from calipers.models.tokenizer_files import first_line, read_json
from calipers.rendering.mteb_json import model_name
from calipers.runs.record import Resampling
from calipers.tasks import outputs
from calipers.tasks.rankers import PASSAGE_PROMPTS

__all__ = [
    "Drop",
    "MtebCrossEncoder",
    "MtebEncoder",
    "MtebScores",
    "TaskScore",
    "as_mteb",
    "drops",
    "find_tasks",
    "import_results",
    "measure",
    "read_scores",
    "run",
    "to_result",
]

_Batch = Mapping[str, Sequence[str]]  # mteb's loader: {"text": texts, …}


class _TaskMetadata(Protocol):
    name: str
    type: str
    modalities: Sequence[str]


class MtebTask(Protocol):
    """A task object of mteb."""

    metadata: _TaskMetadata
    _support_cross_encoder: bool


_SIMILARITIES = {"cosine": "cos_sim", "dot": "dot_score"}  # ours → the function of mteb
_FRAMEWORKS = {"torch": ["PyTorch"], "onnx": ["ONNX"], "static": ["NumPy"], "vectors": ["NumPy"], "http": ["API"]}
_DEAD_FROM = 10  # distinct texts with one and the same vector: fewer may differ only in what a tokenizer drops
_LOADER_ROWS = 512  # texts that mteb's loader hands over at a time; the model has batches of its own
_DIGITS = 6  # mteb's files keep so many: a score is the same whether it was measured now or read there


def _need_mteb() -> Any:
    try:
        import mteb
    except ImportError as error:
        raise RequestError(f"mteb tasks need the package mteb: {install('mteb')}") from error
    return mteb


# --- our models in mteb ------------------------------------------------------------------------------------------


def as_mteb(
    model: str | Model,
    *,
    options: ModelOptions | None = None,
    ability: str = "encode",
    prompts: Mapping[str, str] | None = None,
    similarity: str | None = None,
    progress: Progress = SILENT,
) -> MtebModel:
    """One of our models as an mteb model, for `mteb.evaluate` and `mteb.mock_run`.

    `model` is a loaded Encoder or PairScorer, or a reference; `options` and `ability` ("encode" or "score") say how a
    reference is loaded. `prompts` are texts by task name, task type or "query" and "document", or by both as in
    "STS-query". `similarity` is "cosine" or "dot". None takes what the model's own files say.
    """
    _need_mteb()
    loaded = _load(model, options, ability)
    if hasattr(loaded, "score"):
        return MtebCrossEncoder(loaded, progress)
    if not hasattr(loaded, "encode"):
        raise RequestError(f"{loaded.info.model_id} cannot be an mteb model: it neither encodes nor scores pairs")
    named_prompts = loaded.info.settings.get("prompts") or {} if prompts is None else prompts
    return MtebEncoder(loaded, dict(named_prompts), similarity or _declared_similarity(loaded.info), progress)


def _load(model: str | Model, options: ModelOptions | None, ability: str) -> Any:
    if not isinstance(model, str):
        if options is not None:
            raise RequestError("options are for loading a reference: this model is loaded already")
        return model
    if ability not in ("encode", "score"):
        raise RequestError(f"an mteb model can encode or score, found {ability!r}")
    return models.load(models.find(model), options or ModelOptions(), ability)


def _declared_similarity(info: ModelInfo) -> str:
    """The similarity that the model's files declare; cosine where they declare none."""
    if not info.path or info.backend not in ("torch", "static", "onnx"):
        return "cosine"
    place = Path(info.path)
    # a graph lies among the settings or, as on the hub, in a folder below them
    folders = [place.parent, place.parent.parent] if place.is_file() else [place]
    settings = (read_json(folder / "config_sentence_transformers.json") for folder in folders)
    declared = next((name for s in settings if (name := s.get("similarity_fn_name"))), "cosine")
    if declared not in tuple(_SIMILARITIES):
        raise RequestError(
            f"{info.model_id} declares {declared} similarity, which mteb does not have: "
            "give similarity='cosine' or 'dot'"
        )
    return str(declared)


class MtebEncoder:
    """mteb's EncoderProtocol. `zero_vectors` counts them by task, split and subset; mteb gives them a cosine of 0."""

    def __init__(self, model: Encoder, prompts: Mapping[str, str], similarity: str, progress: Progress) -> None:
        from mteb import similarity_functions

        if similarity not in _SIMILARITIES:
            raise RequestError(f"similarity must be one of {', '.join(_SIMILARITIES)}, found {similarity!r}")
        self.model = model
        self.prompts = prompts
        self.zero_vectors: Counter[str] = Counter()
        self.similarity = getattr(similarity_functions, _SIMILARITIES[similarity])
        self.similarity_pairwise = getattr(similarity_functions, f"pairwise_{_SIMILARITIES[similarity]}")
        self._progress = progress
        self.mteb_model_meta = make_meta(model.info, "dense", prompts, similarity)

    def encode(
        self,
        inputs: Iterable[_Batch],
        *,
        task_metadata: _TaskMetadata,
        hf_split: str,
        hf_subset: str,
        prompt_type: Any = None,
        **_: Any,
    ) -> Vectors:
        """float32[n, d]. mteb's batches are put together again: ours follow the lengths of all texts."""
        texts = _texts(inputs)
        if not texts:
            return np.zeros((0, 0), np.float32)
        side = None if prompt_type is None else str(getattr(prompt_type, "value", prompt_type))
        prompt = choose_prompt(self.prompts, str(task_metadata.name), str(task_metadata.type), side)
        chosen = {} if prompt is None else {"prompt": prompt}
        model = on_side(self.model, side) if side else self.model
        vectors = single(np.asarray(model.encode(texts, progress=self._progress, **chosen)))
        where = f"{task_metadata.name}/{hf_split}/{hf_subset}"
        _refuse_dead(vectors, texts, where)
        if zero := int(outputs.is_zero(vectors).sum()):
            self.zero_vectors[where] += zero
        return vectors


class MtebCrossEncoder:
    """mteb's CrossEncoderProtocol, for retrieval and reranking."""

    def __init__(self, model: PairScorer, progress: Progress) -> None:
        self.model = model
        self._progress = progress
        self.mteb_model_meta = make_meta(model.info, "cross-encoder", {}, None)

    def predict(
        self,
        inputs1: Iterable[_Batch],
        inputs2: Iterable[_Batch],
        *,
        task_metadata: _TaskMetadata,
        hf_split: str,
        hf_subset: str,
        **_: Any,
    ) -> Vectors:
        """float32[n]: how well the second text answers the first."""
        pairs = list(zip(_texts(inputs1), _texts(inputs2), strict=True))
        if not pairs:
            return np.zeros(0, np.float32)
        scores = outputs.one_score(np.asarray(self.model.score(pairs, progress=self._progress)), "mteb")
        _refuse_dead(scores, pairs, f"{task_metadata.name}/{hf_split}/{hf_subset}")
        return scores


MtebModel = MtebEncoder | MtebCrossEncoder


def _texts(batches: Iterable[_Batch]) -> list[str]:
    return [text for batch in batches for text in batch["text"]]


def _refuse_dead(values: Vectors, inputs: Sequence[Hashable], where: str) -> None:
    ids, unit = [f"{where}#{i}" for i in range(len(inputs))], f"inputs of {where}"
    outputs.refuse_rows(outputs.not_finite(values), ids, "NaN or infinite numbers", unit)
    if len(set(inputs)) >= _DEAD_FROM:
        outputs.refuse_constant(values, ids, "the same answer", unit)


def choose_prompt(prompts: Mapping[str, str], task: str, type_: str, side: str | None) -> str | None:
    """The prompt of the most special name that has one, in mteb's order; None where there is none.

    >>> choose_prompt({"query": "q: ", "passage": "p: ", "STS": "s: "}, "JSTS", "STS", "query")
    's: '
    >>> choose_prompt({"query": "q: ", "passage": "p: "}, "SciFact", "Retrieval", "document")
    'p: '
    >>> choose_prompt({"query": "q: "}, "JSTS", "STS", None)
    """
    sides = () if side is None else PASSAGE_PROMPTS if side == "document" else (side,)
    names = [*(f"{task}-{s}" for s in sides), task, *(f"{type_}-{s}" for s in sides), type_, *sides]
    return next((prompts[name] for name in names if name in prompts), None)


def make_meta(info: ModelInfo, kind: str, prompts: Mapping[str, str], similarity: str | None) -> Any:
    """mteb's ModelMeta. mteb keeps results under the name and the revision, so neither may be empty."""
    from mteb.models.model_meta import ModelMeta, ScoringFunction

    functions = {"cosine": ScoringFunction.COSINE, "dot": ScoringFunction.DOT_PRODUCT, None: None}
    length = info.settings.get("max_length")
    return ModelMeta.create_empty(
        overwrites={
            "name": model_name(info.model_id),
            "revision": revision(info, prompts, similarity),
            "framework": _FRAMEWORKS.get(info.backend, []),
            "similarity_fn_name": functions[similarity],
            "max_tokens": float(length) if isinstance(length, int) else None,
            "use_instructions": bool(prompts),
            "model_type": [kind],
        }
    )


def revision(info: ModelInfo, prompts: Mapping[str, str], similarity: str | None) -> str:
    """40 hexadecimal digits over the model's content (of an endpoint, its address) and all that decides its output."""
    parts = [info.fingerprint, info.backend, info.device, dict(info.settings), dict(prompts), similarity]
    return hashlib.sha256(json.dumps(parts, sort_keys=True, default=str).encode()).hexdigest()[:40]


# --- mteb's tasks on our models ----------------------------------------------------------------------------------


def run(
    model: str | Model | MtebModel,
    names: str | Sequence[str | MtebTask],
    *,
    languages: Sequence[str] | None = None,
    cache: Path | str | None = "mteb",
    progress: Progress = SILENT,
) -> list[TaskScore]:
    """The main score of every task, split and subset, sorted by name.

    `model` is a reference, a loaded model, or what `as_mteb` made. `names` is the name of a benchmark or of a task, or
    a list of such names and of mteb's own task objects; `languages` are codes such as "jpn" that narrow tasks given by
    name. `cache` is where mteb keeps finished results: "mteb" for its own place, a folder, or None. An endpoint may
    change behind its address and a task object behind its name, so neither is looked up there.
    """
    wrapped, tasks = _wrap(model, progress), find_tasks(names, languages)
    _refuse_unfit(wrapped, tasks)
    objects = set() if isinstance(names, str) else {id(name) for name in names if not isinstance(name, str)}
    scores: list[TaskScore] = []
    for number, task in enumerate(tasks, 1):
        progress.start(f"mteb {number}/{len(tasks)} {task.metadata.name}", 0)
        place = None if id(task) in objects or wrapped.model.info.backend == "http" else cache
        scores += _evaluate(wrapped, task, place)
    return sorted(scores, key=lambda score: score.id)


def measure(
    model: str | Model | MtebModel,
    names: str | Sequence[str | MtebTask],
    *,
    languages: Sequence[str] | None = None,
    cache: Path | str | None = "mteb",
    progress: Progress = SILENT,
    resampling: Resampling | None = None,
) -> Result:
    """The scores of `run` as a run of the task mteb, to be stored and compared."""
    start = time.perf_counter()
    wrapped = _wrap(model, progress)
    loaded = time.perf_counter()
    scores = run(wrapped, names, languages=languages, cache=cache, progress=progress)
    done = time.perf_counter()
    tasks = () if isinstance(names, str) else (n if isinstance(n, str) else n.metadata.name for n in names)
    named = names if isinstance(names, str) else name_some(sorted(tasks), 20)
    info, meta = wrapped.model.info, wrapped.mteb_model_meta
    return to_result(
        scores,
        info,
        source=DataSource("mteb", name=named, rows_read=len(scores)),
        request={
            "given": {"model": info.model_id, "mteb": named, "languages": list(languages or ())},
            "defaulted": {"mteb_name": meta.name, "mteb_revision": meta.revision},
        },
        timing=_timing(start, loaded, done),
        warnings=(*info.notes, *_zero_vector_warnings(wrapped)),
        resampling=resampling,
    )


def _wrap(model: str | Model | MtebModel, progress: Progress) -> MtebModel:
    return model if isinstance(model, MtebModel) else as_mteb(model, progress=progress)


def find_tasks(names: str | Sequence[str | MtebTask], languages: Sequence[str] | None = None) -> list[MtebTask]:
    """mteb's task objects for names of benchmarks and tasks, each once, in the order named."""
    mteb = _need_mteb()
    tasks: dict[str, MtebTask] = {}
    for name in [names] if isinstance(names, str) else names:
        for task in _tasks_of(mteb, name, languages) if isinstance(name, str) else [name]:
            tasks.setdefault(task.metadata.name, task)
    if not tasks:
        raise RequestError("no mteb task was named: expected a benchmark such as JMTEB-lite(v1), or names of tasks")
    return list(tasks.values())


def _tasks_of(mteb: Any, name: str, languages: Sequence[str] | None) -> list[MtebTask]:
    try:
        return list(mteb.get_benchmark(name).tasks)
    except KeyError as error:
        no_benchmark = error
    try:
        return [mteb.get_task(name, languages=languages)]
    except ValueError as error:
        raise RequestError(f"the mteb task {name} has no subset in {name_some(list(languages or ()))}") from error
    except KeyError as error:
        guesses = [str(e.args[0]).partition("Did you mean: ")[2].strip("?'") for e in (no_benchmark, error)]
        hint = " or ".join(filter(None, guesses))
        raise RequestError(
            f"mteb has no benchmark and no task named {name!r}{f': is it {hint}?' if hint else ''}"
        ) from error


def _evaluate(wrapped: MtebModel, task: MtebTask, cache: Path | str | None) -> list[TaskScore]:
    mteb, name = _need_mteb(), task.metadata.name
    try:
        place = None if cache is None else mteb.ResultCache(None if cache == "mteb" else cache)
        with _no_bars():
            results = mteb.evaluate(
                wrapped,
                task,
                cache=place,
                co2_tracker=False,
                show_progress_bar=False,
                encode_kwargs={"batch_size": _LOADER_ROWS, "show_progress_bar": False},
                public_only=False,  # else mteb goes on without the data where they are not found
            )
    except CalipersError:
        raise
    except OSError as error:  # no network, no such dataset, offline: all of them are
        raise DataError(f"the data of the mteb task {name} are not available: {first_line(error)}") from error
    except Exception as error:
        raise InferenceError(f"mteb failed on the task {name}: {first_line(error)}") from error
    return [score for result in results.task_results for score in _scores(result, str(task.metadata.type))]


@contextmanager
def _no_bars() -> Iterator[None]:
    """The bars of `datasets` would be drawn into ours, and into logs; what the hub says at each retry, into both."""
    import datasets

    shown = datasets.is_progress_bar_enabled()
    hub = logging.getLogger("huggingface_hub")
    level = hub.level
    datasets.disable_progress_bars()
    hub.setLevel(logging.ERROR)
    try:
        yield
    finally:
        hub.setLevel(level)
        if shown:
            datasets.enable_progress_bars()


def _scores(result: Any, type_: str) -> list[TaskScore]:
    return [
        TaskScore(
            task=result.task_name,
            split=split,
            subset=row["hf_subset"],
            main_score=round(float(row["main_score"]), _DIGITS),
            dataset_revision=str(result.dataset_revision),
            mteb_version=str(row.get("mteb_version") or result.mteb_version),
            type=type_,
            seconds=result.evaluation_time,
        )
        for split, rows in result.scores.items()
        for row in rows
    ]


def _refuse_unfit(wrapped: MtebModel, tasks: Sequence[MtebTask]) -> None:
    if with_more := [t.metadata.name for t in tasks if set(t.metadata.modalities) != {"text"}]:
        raise RequestError(f"the model reads texts, and these mteb tasks have more than texts: {name_some(with_more)}")
    unfit = [t.metadata.name for t in tasks if not t._support_cross_encoder]
    if unfit and isinstance(wrapped, MtebCrossEncoder):
        raise RequestError(f"a cross-encoder can retrieve and rerank, which these tasks do not: {name_some(unfit)}")


def _zero_vector_warnings(wrapped: MtebModel) -> list[str]:
    if not isinstance(wrapped, MtebEncoder) or not wrapped.zero_vectors:
        return []
    where, total = name_some(sorted(wrapped.zero_vectors)), wrapped.zero_vectors.total()
    return [f"texts with a zero vector: {total}, in {where}; mteb counts them as unlike every other"]


def _timing(start: float, loaded: float, done: float) -> dict[str, float]:
    now = time.perf_counter()
    laps = {"load": loaded - start, "inference": done - loaded, "metrics": now - done, "total": now - start}
    return {f"{name}_seconds": round(seconds, 4) for name, seconds in laps.items()}
