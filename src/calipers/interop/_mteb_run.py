"""Running mteb's tasks on our models."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from calipers.core import (
    SILENT,
    CalipersError,
    DataError,
    DataSource,
    InferenceError,
    Model,
    Progress,
    RequestError,
    Result,
    name_some,
)
from calipers.interop._mteb_model import MtebCrossEncoder, MtebEncoder, as_mteb, need_mteb
from calipers.interop._mteb_results import TaskScore, in_order, to_result
from calipers.models import ModelOptions
from calipers.runs.record import CONFIDENCE, RESAMPLES, SEED

# Texts that mteb's loader hands over at a time; how many the model sees at once is the model's own affair.
_LOADER_ROWS = 512
_DIGITS = 6  # mteb's files keep so many: a score is the same whether it was measured now or found there


def run(
    model: str | Model,
    names: str | Sequence[Any],
    *,
    options: ModelOptions | None = None,
    ability: str = "encode",
    prompts: Mapping[str, str] | None = None,
    similarity: str | None = None,
    languages: Sequence[str] | None = None,
    cache: Path | str | None = "mteb",
    progress: Progress = SILENT,
) -> list[TaskScore]:
    """The main score of every task, split and subset, sorted by name.

    `names` is the name of a benchmark or of a task, or a list of such names and of mteb's own task objects;
    `languages` are codes such as "jpn" that narrow tasks given by name. Data come from the hub or from its local cache.
    `cache` is where mteb keeps finished results: "mteb" for its own place, a folder, or None. An endpoint may change
    behind its address and a task object behind its name, so neither is looked up there.
    """
    return _run(_wrap(model, options, ability, prompts, similarity, progress), names, languages, cache, progress)


def measure(
    model: str | Model,
    names: str | Sequence[Any],
    *,
    options: ModelOptions | None = None,
    ability: str = "encode",
    prompts: Mapping[str, str] | None = None,
    similarity: str | None = None,
    languages: Sequence[str] | None = None,
    cache: Path | str | None = "mteb",
    progress: Progress = SILENT,
    resamples: int = RESAMPLES,
    confidence: float = CONFIDENCE,
    seed: int = SEED,
) -> Result:
    """The same as a run of the task mteb, to be stored and compared: a drop against a baseline is a verdict."""
    start = time.perf_counter()
    wrapped = _wrap(model, options, ability, prompts, similarity, progress)
    loaded = time.perf_counter()
    scores = _run(wrapped, names, languages, cache, progress)
    done = time.perf_counter()
    named = names if isinstance(names, str) else name_some(sorted(_name(n) for n in names), 20)
    meta = wrapped.mteb_model_meta
    return to_result(
        scores,
        wrapped.model.info,
        source=DataSource("mteb", name=named, rows_read=len(scores)),
        request={
            "given": {"model": wrapped.model.info.model_id, "mteb": named, "languages": list(languages or ())},
            "defaulted": {"mteb_name": meta.name, "mteb_revision": meta.revision},
        },
        timing=_timing(start, loaded, done),
        warnings=(*wrapped.model.info.notes, *_doubts(wrapped)),
        resamples=resamples,
        confidence=confidence,
        seed=seed,
    )


def find_tasks(names: str | Sequence[Any], languages: Sequence[str] | None = None) -> list[Any]:
    """mteb's task objects for names of benchmarks and tasks, each once, in the order named."""
    mteb = need_mteb()
    found: dict[str, Any] = {}
    for name in [names] if isinstance(names, str) else names:
        for task in _tasks_of(mteb, name, languages) if isinstance(name, str) else [name]:
            found.setdefault(task.metadata.name, task)
    if not found:
        raise RequestError("no mteb task was named: expected a benchmark such as JMTEB-lite(v1), or names of tasks")
    return list(found.values())


def _tasks_of(mteb: Any, name: str, languages: Sequence[str] | None) -> list[Any]:
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
        hint = " or ".join(guess for guess in guesses if guess)
        tail = f": is it {hint}?" if hint else ""
        raise RequestError(f"mteb has no benchmark and no task named {name!r}{tail}") from error


def _wrap(
    model: str | Model,
    options: ModelOptions | None,
    ability: str,
    prompts: Mapping[str, str] | None,
    similarity: str | None,
    progress: Progress,
) -> MtebEncoder | MtebCrossEncoder:
    return as_mteb(model, options=options, ability=ability, prompts=prompts, similarity=similarity, progress=progress)


def _run(
    wrapped: MtebEncoder | MtebCrossEncoder,
    names: str | Sequence[Any],
    languages: Sequence[str] | None,
    cache: Path | str | None,
    progress: Progress,
) -> list[TaskScore]:
    tasks = find_tasks(names, languages)
    _refuse_unfit(wrapped, tasks)
    given = set() if isinstance(names, str) else {id(name) for name in names if not isinstance(name, str)}
    found: list[TaskScore] = []
    for number, task in enumerate(tasks, 1):
        progress.start(f"mteb {number}/{len(tasks)} {task.metadata.name}", 0)
        kept = None if id(task) in given or wrapped.model.info.backend == "http" else cache
        found += _evaluate(wrapped, task, kept)
    return in_order(found)


def _evaluate(wrapped: MtebEncoder | MtebCrossEncoder, task: Any, cache: Path | str | None) -> list[TaskScore]:
    mteb, name = need_mteb(), task.metadata.name
    try:
        place = None if cache is None else mteb.ResultCache(None if cache == "mteb" else cache)
        with _no_bars():
            found = mteb.evaluate(
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
        raise DataError(f"the data of the mteb task {name} cannot be had: {_first_line(error)}") from error
    except Exception as error:
        raise InferenceError(f"mteb failed on the task {name}: {_first_line(error)}") from error
    return [score for result in found.task_results for score in _scores(result, str(task.metadata.type))]


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


def _refuse_unfit(wrapped: MtebEncoder | MtebCrossEncoder, tasks: Sequence[Any]) -> None:
    unread = [t.metadata.name for t in tasks if set(t.metadata.modalities) != {"text"}]
    if unread:
        raise RequestError(f"the model reads texts, and these mteb tasks have more than texts: {name_some(unread)}")
    if isinstance(wrapped, MtebCrossEncoder):
        unfit = [t.metadata.name for t in tasks if not t._support_cross_encoder]
        if unfit:
            raise RequestError(f"a cross-encoder can retrieve and rerank, which is not asked by {name_some(unfit)}")


def _doubts(wrapped: MtebEncoder | MtebCrossEncoder) -> list[str]:
    if not isinstance(wrapped, MtebEncoder) or not wrapped.zero_vectors:
        return []
    where, total = name_some(sorted(wrapped.zero_vectors)), sum(wrapped.zero_vectors.values())
    return [f"texts with a zero vector: {total}, in {where}; mteb counts them as unlike every other"]


def _timing(start: float, loaded: float, done: float) -> dict[str, float]:
    now = time.perf_counter()
    laps = {"load": loaded - start, "inference": done - loaded, "metrics": now - done, "total": now - start}
    return {f"{name}_seconds": round(seconds, 4) for name, seconds in laps.items()}


def _name(task: Any) -> str:
    return task if isinstance(task, str) else str(task.metadata.name)


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0] or type(error).__name__
