"""The testsets of winml-cli, read as they are: a list of models with `hf_id`, `task` and `dataset_config`."""

from __future__ import annotations

import json

from calipers import tasks
from calipers.core import RequestError
from calipers.sweeps.located import Located

# Their key in `dataset_config` → ours in a task.
_DATA = {"path": "dataset", "name": "dataset_name", "split": "split", "revision": "revision", "samples": "samples",
         "columns_mapping": "columns", "seed": "seed", "shuffle": "shuffle", "streaming": "streaming"}  # fmt: skip


def is_testset(content: Located) -> bool:
    """A list of mappings with `hf_id`, by itself or as the only section `models`."""
    entries = _entries(content)
    return bool(entries) and all(isinstance(e.value, dict) and "hf_id" in e.value for e in entries)


def _entries(content: Located) -> list[Located]:
    if isinstance(content.value, list):
        return list(content.value)
    models = content.value.get("models") if isinstance(content.value, dict) else None
    return list(models.value) if models is not None and isinstance(models.value, list) else []


def convert(content: Located) -> tuple[Located, list[str]]:
    """The testset as a registry, and notes on what cannot be measured: tasks of other fields (images, tokens, …)."""
    models: dict[str, dict[str, Located]] = {}
    kept: dict[str, Located] = {}
    skipped: dict[str, int] = {}
    for entry in _entries(content):
        name = str(entry.value["task"].value) if "task" in entry.value else "feature-extraction"
        try:
            tasks.askable(name)
        except RequestError:
            skipped[name] = skipped.get(name, 0) + 1
            continue
        task = _task(entry, name)
        signature = json.dumps(task.plain(), sort_keys=True, default=str)
        kept.setdefault(signature, task)
        hub_id = str(entry.value["hf_id"].value)
        model = models.setdefault(hub_id, _model(entry, hub_id))
        model["tasks"].value.append(Located(signature, entry.line))
    ids = _ids(kept)
    for signature, task in kept.items():
        task.value["id"] = Located(ids[signature], task.line)
    for model in models.values():
        model["tasks"] = Located([Located(ids[e.value], e.line) for e in model["tasks"].value], model["tasks"].line)
    registry = {
        "models": Located([Located(model, model["id"].line) for model in models.values()], content.line),
        "tasks": Located(list(kept.values()), content.line),
    }
    notes = [f"{count} of the task {name} skipped: it is not measured here" for name, count in skipped.items()]
    return Located(registry, content.line), notes


def _model(entry: Located, hub_id: str) -> dict[str, Located]:
    copied = {key: entry.value[key] for key in ("group", "priority") if key in entry.value}
    place = Located(hub_id, entry.line)
    return {"id": place, "reference": place, **copied, "tasks": Located([], entry.line)}


def _task(entry: Located, name: str) -> Located:
    settings = entry.value.get("dataset_config")
    values = {"task": Located(name, entry.line)}
    if settings is not None and isinstance(settings.value, dict):
        values |= {_DATA[key]: value for key, value in settings.items() if key in _DATA}
    return Located(values, entry.line)


def _ids(kept: dict[str, Located]) -> dict[str, str]:
    """Each task by its name, with the dataset where several have it, with a number where that is not enough."""
    ids: dict[str, str] = {}
    for signature, task in kept.items():
        plain = task.plain()
        parts = [
            plain["task"],
            *(str(plain[k]).rpartition("/")[2] for k in ("dataset", "dataset_name") if plain.get(k)),
        ]
        id, number = "-".join(parts), 2
        while id in ids.values():
            id, number = f"{'-'.join(parts)}-{number}", number + 1
        ids[signature] = id
    return ids
