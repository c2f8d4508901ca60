"""A stored run as the result file that mteb writes and reads: one JSON document per task of MTEB.

The scores are on mteb's scale, 0 to 1, under mteb's names. Calipers' own facts (run, intervals, how many examples, the
fingerprint of the data) stand beside them under `calipers`, where mteb lets them be.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from calipers.core import ModelInfo, RequestError, Result
from calipers.core.benchmarks import TASKS, MtebTaskFacts
from calipers.core.errors import install
from calipers.rendering.numbers import plural
from calipers.rendering.variants import base_name, variant

_TYPES = {"sentence-similarity": "cosine_spearman", "retrieval": "ndcg_at_10", "reranking": "map_at_1000"}
_HUNDRED = {"sentence-similarity"}  # tasks whose metrics we give times 100


def find_task(result: Result, name: str | None = None) -> MtebTaskFacts:
    """The task of MTEB that a run measured: the one that the user names, else the one whose data it read."""
    if result.task not in _TYPES:
        run = f"the run {result.run_id} is of the task {result.task}"
        raise RequestError(f"{run}, which MTEB does not have: expected one of {', '.join(_TYPES)}")
    task = _named(name, result.dataset.name or "default") if name else official_task(result)
    if task is None:
        raise RequestError(f"{_why_not(result)}: if they belong to a task of MTEB, name it with `mteb_task`")
    if task.main_score not in scores(result):
        judged = f"MTEB's task {task.name} is judged by {task.main_score}"
        raise RequestError(f"{judged}, which the run {result.run_id} of {result.task} does not have")
    return task


def official_task(result: Result) -> MtebTaskFacts | None:
    """The task whose official data the run measured, by mteb's rules; None where that is not certain. The fingerprint
    tells it, or the hub id of the data with the split and the number of examples."""
    return next((task for task in TASKS if is_official(result, task)), None)


def is_official(result: Result, task: MtebTaskFacts) -> bool:
    """Whether the run is of all examples of this task, and by its rules."""
    if task.main_score != _TYPES.get(result.task):
        return False
    if bool(result.options.get("ignore_identical_ids")) != task.ignores_identical_ids:
        return False
    if result.fingerprint in task.fingerprints:
        return True
    source = result.dataset
    whole = source.requested is None and len(result.outcomes) == (task.examples or len(result.outcomes))
    return whole and _hub_id(result) == task.path.lower() and source.split in (None, task.split)


def _hub_id(result: Result) -> str:
    return result.dataset.path.removeprefix("hub:").rstrip("/\\").lower()


def _why_not(result: Result) -> str:
    """Why no task of MTEB is certain: data that only have the name of one are not its data."""
    folder = re.split(r"[/\\]", _hub_id(result))[-1]
    kind = _TYPES[result.task]
    for task in TASKS:
        if task.main_score == kind and folder in (task.path.rpartition("/")[2].lower(), task.name.lower()):
            named = f"{result.dataset.path} has the name of MTEB's {task.name}"
            return f"{named}, and is not known to be its data ({_sizes(result, task)})"
    return f"which task of MTEB {result.dataset.path} belongs to is not known"


def _sizes(result: Result, task: MtebTaskFacts) -> str:
    """How many examples were scored, and of how many where mteb's figure is of another number."""
    scored, unit = len(result.outcomes), plural(str(result.bootstrap.get("unit", "example")))
    return f"{scored:,} {unit}" if task.examples in (0, scored) else f"{scored:,} of {task.examples:,} {unit}"


def title(result: Result, task: MtebTaskFacts) -> str:
    """The name of the task, with the number of examples where the data are its own only because the user says so."""
    return f"MTEB {task.name}" if is_official(result, task) else f"MTEB {task.name} ({_sizes(result, task)})"


def document(result: Result, task: MtebTaskFacts) -> dict[str, Any]:
    """What mteb's TaskResult writes to disk. mteb was not used, so its version is null. Without a requested revision of
    the data the fingerprint of the rows stands in: nothing is claimed that nobody checked."""
    named = scores(result)
    row = {
        **named,
        "main_score": named[task.main_score],
        "hf_subset": result.dataset.name or "default",
        "languages": list(task.languages),
        "calipers": {**_facts(result), "official_data": is_official(result, task)},
    }
    return {
        "dataset_revision": result.dataset.revision or result.fingerprint,
        "task_name": task.name,
        "mteb_version": None,
        "scores": {split(result, task) or task.split: [row]},
        "evaluation_time": float(result.timing.get("total_seconds", 0.0)),
        "kg_co2_emissions": None,
        "date": datetime.fromisoformat(result.created).timestamp(),
        "evaluation_phases": None,
    }


def merge(documents: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Several splits or subsets of one task as one document. The same one twice is an error: which would count?"""
    first, *others = documents
    merged = {**first, "scores": {part: list(rows) for part, rows in first["scores"].items()}}
    for other in others:
        if other["dataset_revision"] != first["dataset_revision"] and not _is_fingerprint(first, other):
            raise RequestError(f"the runs of {first['task_name']} are over different revisions of its data")
        for part, rows in other["scores"].items():
            have = merged["scores"].setdefault(part, [])
            if {row["hf_subset"] for row in have} & {row["hf_subset"] for row in rows}:
                raise RequestError(f"two runs measure {first['task_name']}, split {part}: give one of them")
            have.extend(rows)
        merged["evaluation_time"] += other["evaluation_time"]
        merged["date"] = max(merged["date"], other["date"])
    return merged


def scores(result: Result) -> dict[str, float]:
    """The run's metrics under mteb's names, 0 to 1, with six decimals as mteb writes them."""
    return {_metric(name, result.task): _scaled(value, result.task) for name, value in result.metrics.items()}


_SPLITS = {"train": "train", "dev": "dev", "val": "validation", "valid": "validation", "validation": "validation"}


def split(result: Result, task: MtebTaskFacts | None = None) -> str | None:
    """The split that was read; of a single file the one that its name tells; None where neither tells. A task of MTEB
    has one name for the split that others call dev or validation."""
    name = re.split(r"[/\\]", result.dataset.path)[-1].split(".")[0]
    read = result.dataset.split or {**_SPLITS, "test": "test"}.get(name)
    return task.split if task and {read, task.split} <= {"dev", "validation"} else read


def warnings(result: Result, task: MtebTaskFacts) -> list[str]:
    """What keeps the figures from standing beside those of others."""
    if is_official(result, task):
        return []
    run, lines = f"the run {result.run_id}", []
    if result.dataset.requested is not None:
        lines.append(f"{run} scored {len(result.outcomes)} chosen rows: this is not a result on all of them")
    else:
        lines.append(f"{run} is not known to be of MTEB's own data of {task.name} ({_sizes(result, task)})")
    if task.ignores_identical_ids and not result.options.get("ignore_identical_ids"):
        lines.append(f"{run} counts documents with the id of their query, which MTEB's {task.name} leaves out")
    return lines


# --- the model ---------------------------------------------------------------------------------------------------

_HUB_NAME = re.compile(r"[\w.-]+/[\w.-]+")
_NO_REVISION = "no_revision_available"  # in mteb


def model_name(model_id: str) -> str:
    """mteb wants owner/name, and makes a folder of it.

    >>> model_name("BAAI/bge-small-en-v1.5"), model_name("http://localhost:80/embed"), model_name("enc/model_int8.onnx")
    ('BAAI/bge-small-en-v1.5', 'calipers/http_localhost_80_embed', 'calipers/enc-model_int8')
    """
    name = short_name(model_id)
    return name if _HUB_NAME.fullmatch(name) else "calipers/" + re.sub(r"[^\w.-]+", "_", name)


def short_name(reference: str) -> str:
    """A hub id as it is; of a path its last part, since the rest is nobody's business. A graph is called after the
    folder of its model, with its own name where that is not the usual one.

    >>> short_name("org/name"), short_name("/tmp/models/mine/"), short_name("./data/pairs.csv")
    ('org/name', 'mine', 'pairs.csv')
    >>> short_name("./enc/onnx/model_quantized.onnx"), short_name("./enc/model.onnx"), short_name("int8.onnx")
    ('enc-model_quantized', 'enc', 'int8')
    """
    if "://" in reference:
        return reference
    parts = [part for part in re.split(r"[/\\]+", reference) if part not in ("", ".", "..")]
    if parts and parts[-1].endswith(".onnx"):
        stem, folders = parts[-1].removesuffix(".onnx"), [part for part in parts[:-1] if part != "onnx"]
        return "-".join([*folders[-1:], *([stem] if stem != "model" or not folders else [])])
    is_hub = len(parts) <= 2 and not reference.startswith((".", "/", "~")) and ":" not in reference
    is_file = bool(parts) and bool(re.search(r"\.(jsonl?|csv|tsv|parquet|txt|npy)$", parts[-1]))
    return reference if is_hub and not is_file else (parts[-1] if parts else reference)


def is_hub_name(name: str) -> bool:
    return bool(_HUB_NAME.fullmatch(name))


def model_folder(info: ModelInfo, revision: str | None = None) -> str:
    """Where mteb's `ResultCache` looks for the results of a model below `results`: OWNER__NAME/REVISION, and below that
    experiments/VARIANT for another precision or fewer dimensions. `revision` is the usual form's."""
    name = model_name(base_name(info.model_id)).replace("/", "__")
    place = f"{name}/{revision or model_revision(info)}"
    return f"{place}/experiments/{experiment_name(info)}" if variant(info) else place


def experiment_name(info: ModelInfo) -> str:
    """mteb's name of a variant's folder: its settings, sorted."""
    return "__".join(f"{name}_{value}" for name, value in sorted(variant(info).items()))


def model_revision(info: ModelInfo) -> str:
    """The commit of a hub model where one was requested; else 40 hexadecimal digits over content and settings, or
    mteb's word for none where only the revision of the model that a variant was made from would do."""
    commit = info.settings.get("revision")
    if isinstance(commit, str) and re.fullmatch("[0-9a-f]{40}", commit):
        return commit
    return _NO_REVISION if variant(info) else _revision(info)


def model_meta(info: ModelInfo, revision: str | None = None) -> dict[str, Any]:
    """What mteb's `model_meta.json` holds, without which `ResultCache.load_results` passes over a folder. What a run
    does not tell is null."""
    length, unknown = info.settings.get("max_length"), dict.fromkeys(_UNKNOWN_FACTS)
    stated = {
        "name": model_name(base_name(info.model_id)),
        "revision": revision or model_revision(info),
        "experiment_kwargs": variant(info) or None,
        "max_tokens": length if isinstance(length, int) else None,
        "framework": {"torch": ["PyTorch"], "onnx": ["ONNX"]}.get(info.backend, []),
    }
    fixed = {"loader_kwargs": {}, "modalities": ["text"], "model_type": ["dense"], "is_cross_encoder": False}
    return {**unknown, **fixed, **stated}


_UNKNOWN_FACTS = (
    *("loader", "release_date", "languages", "n_parameters", "n_active_parameters_override", "n_embedding_parameters"),
    *("memory_usage_mb", "embed_dim", "license", "open_weights", "public_training_code", "public_training_data"),
    *("reference", "similarity_fn_name", "use_instructions", "training_datasets", "adapted_from", "superseded_by"),
    *("citation", "contacts", "experiment_kwargs", "output_dtypes", "extra_requirements_groups"),
)


def _revision(info: ModelInfo) -> str:
    """40 hexadecimal digits over the model's content and settings."""
    parts = [info.fingerprint, info.backend, dict(info.settings)]
    return hashlib.sha256(json.dumps(parts, sort_keys=True, default=str).encode()).hexdigest()[:40]


def one_model(results: Sequence[Result], what: str) -> ModelInfo:
    """The model of all runs. Names can agree where models do not, so fingerprints decide."""
    first = results[0].model
    for result in results:
        if result.model.model_id != first.model_id:
            names = list(dict.fromkeys(one.model.model_id for one in results))
            raise RequestError(
                f"{what}, and these runs are of {len(names)} models ({', '.join(names)}): report one at a time"
            )
        if result.model.fingerprint != first.fingerprint:
            raise RequestError(
                f"{what}, and the runs {results[0].run_id} and {result.run_id} are of two models with the name "
                f"{first.model_id} ({first.path} and {result.model.path}, fingerprints {first.fingerprint[:15]} and "
                f"{result.model.fingerprint[:15]}): report one at a time"
            )
    return first


# --- parts -------------------------------------------------------------------------------------------------------


def _metric(name: str, task: str) -> str:
    """
    >>> _metric("ndcg@10", "retrieval"), _metric("hit@10", "retrieval"), _metric("map", "reranking")
    ('ndcg_at_10', 'hit_rate_at_10', 'map_at_1000')
    """
    if name == "map" and task == "reranking":
        return "map_at_1000"  # mteb's ranking of up to 1,000 candidates, which none of its tasks exceeds
    return re.sub(r"^hit@", "hit_rate@", name).replace("@", "_at_")


def _facts(result: Result) -> dict[str, Any]:
    return {
        "run": result.run_id,
        "examples": len(result.outcomes),
        "requested": result.dataset.requested,
        "fingerprint": result.fingerprint,
        "confidence": result.bootstrap.get("confidence"),
        "intervals": {
            _metric(name, result.task): [_scaled(end, result.task) for end in ends] if ends else None
            for name, ends in result.intervals.items()
        },
    }


def _scaled(value: float, task: str) -> float:
    return round(value / (100.0 if task in _HUNDRED else 1.0), 6)


def _is_fingerprint(*documents: dict[str, Any]) -> bool:
    """Fingerprints are of the rows, so those of two splits differ; a revision is of all of them."""
    return all(str(d["dataset_revision"]).startswith("sha256:") for d in documents)


def _named(name: str, subset: str) -> MtebTaskFacts:
    for task in TASKS:
        if task.name == name:
            return task
    try:
        from mteb import get_task
    except ImportError as error:
        names = ", ".join(task.name for task in TASKS)
        reason = f"{name!r} is not one of the MTEB tasks that are known without mteb ({names})"
        raise RequestError(f"{reason}: {install('mteb')}") from error
    try:
        metadata = get_task(name).metadata
    except KeyError as error:
        raise RequestError(f"mteb has no task {name!r}: {str(error).strip(chr(34))}") from error
    languages = metadata.hf_subsets_to_langscripts
    if subset not in languages:
        raise RequestError(f"MTEB's task {name} has no subset {subset!r}: expected one of {', '.join(languages)}")
    return MtebTaskFacts(name, str(metadata.dataset["path"]), str(metadata.main_score), tuple(languages[subset]))
