"""Stored runs as the `model-index` of a model card: the YAML at the top of a README on the hub."""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import TYPE_CHECKING, Any

from calipers.core import RequestError, Result, printable
from calipers.rendering import mteb_json

if TYPE_CHECKING:
    from huggingface_hub import EvalResult

# The hub's names of tasks, where it has one.
_TASKS = {
    "sentence-similarity": ("sentence-similarity", "Sentence similarity"),
    "fill-mask": ("fill-mask", "Fill-mask"),
    "reranking": ("text-ranking", "Reranking"),
    "retrieval": ("information-retrieval", "Retrieval"),
    "pair-classification": ("text-classification", "Pair classification"),
    "pair-correlation": ("sentence-similarity", "Pair correlation"),
}


def model_index(results: Sequence[Result], *, mteb_task: str | None = None) -> str:
    """The front matter of a card, from `---` to `---`: runs of one model, at least one. Each metric has its interval in
    `args`. Of a path on this machine only the last part is shown."""
    from huggingface_hub import ModelCardData

    info = mteb_json.one_model(results, "a model card is about one model")
    _refuse_repeats(results)
    shared = _shared_names(results)
    measured = [one for result in results for one in _eval_results(result, mteb_task, shared)]
    name = " + ".join(mteb_json.short_name(part) for part in info.model_id.split(" + "))
    card = ModelCardData(model_name=printable(name), eval_results=measured)
    return f"---\n{card.to_yaml()}\n---\n"


def _eval_results(result: Result, mteb_task: str | None, shared: Container[str]) -> list[EvalResult]:
    from huggingface_hub import EvalResult

    kind, task_name = _TASKS.get(result.task, (result.task, result.task))
    return [
        EvalResult(
            task_type=kind,
            task_name=task_name,
            metric_type=name,
            metric_name=name,
            metric_value=round(float(value), 6),
            metric_args=_interval(result, name),
            **_dataset(result, mteb_task, shared),
        )
        for name, value in result.metrics.items()
    ]


def _dataset(result: Result, mteb_task: str | None, shared: Container[str]) -> dict[str, Any]:
    """Under MTEB's name where the data are MTEB's or the user says so, so that cards about the same data can be
    recognised; else under their own, with a fingerprint where several data are called the same."""
    source = result.dataset
    task = mteb_json.find_task(result, mteb_task) if mteb_task else mteb_json.official_task(result)
    place = _place(result)
    if place in shared:
        place = f"{place} ({result.fingerprint.removeprefix('sha256:')[:8]})"
    return {
        "dataset_type": task.path if task else place,
        "dataset_name": mteb_json.title(result, task) if task else f"{place}{_chosen(result)}",
        "dataset_config": source.name or "default",
        "dataset_split": mteb_json.split(result, task) or (task.split if task else None),
        "dataset_revision": source.revision,
        "dataset_args": {"examples": len(result.outcomes), "fingerprint": result.fingerprint},
    }


def _place(result: Result) -> str:
    return printable(mteb_json.short_name(result.dataset.path.removeprefix("hub:")))


def _chosen(result: Result) -> str:
    """Says that not all rows were scored."""
    source = result.dataset
    if source.requested is None:
        return ""
    rows = source.rows_read - source.rows_blank
    return f" ({len(result.outcomes):,} of {rows:,} rows)" if rows else f" ({len(result.outcomes):,} chosen rows)"


def _shared_names(results: Sequence[Result]) -> set[str]:
    """Names that data at different places would have on the card."""
    paths: dict[str, set[str]] = {}
    for result in results:
        paths.setdefault(_place(result), set()).add(result.dataset.path)
    return {name for name, several in paths.items() if len(several) > 1}


def _interval(result: Result, name: str) -> dict[str, Any] | None:
    ends = result.intervals.get(name)
    confidence = result.bootstrap.get("confidence")
    return {"interval": [round(float(end), 6) for end in ends], "confidence": confidence} if ends else None


def _refuse_repeats(results: Sequence[Result]) -> None:
    """A card has one place for a task, dataset and split: figures of two runs would stand there under one name."""
    seen: dict[tuple[Any, ...], str] = {}
    for result in results:
        key = (result.task, result.dataset.path, result.dataset.name, mteb_json.split(result), result.dataset.revision)
        if key in seen:
            raise RequestError(f"the runs {seen[key]} and {result.run_id} measure the same: give one of them")
        seen[key] = result.run_id
