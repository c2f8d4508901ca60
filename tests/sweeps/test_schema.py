"""The JSON Schema of a registry says what the reader says: an independent validator agrees with `--check`."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from calipers.sweeps.registry import check_registry
from calipers.sweeps.schema import registry_schema
from tests.support.samples import Run
from tests.support.sweeps import MODELS

ROOT = Path(__file__).parents[2]
TASKS = "tasks: [{id: sts, task: sentence-similarity, dataset: pairs.jsonl}]\n"


def page_example() -> str:
    """The registry of docs/sweep.md."""
    blocks = re.findall(r"```yaml\n(.*?)```", (ROOT / "docs" / "sweep.md").read_text(encoding="utf-8"), re.DOTALL)
    return next(block for block in blocks if "models:" in block).replace("./models/fleet-*", "./models/fleet")


GOOD = {
    "the page's": page_example(),
    "that of the tests": MODELS,
    "numbers for words": "models: [{id: 7, reference: x, group: 3, priority: 1}]\n" + TASKS,
    "one alone instead of a list": "models: [{reference: x, precisions: w8a8, tasks: sts}]\n" + TASKS,
    "flags with dashes": "models: [{reference: x, max-length: 64, model-revision: main}]\n" + TASKS,
    "a matrix over references": "models: [{id: m, matrix: {reference: [x, y]}}]\n" + TASKS,
    "a matrix over options": "models: [{reference: x, matrix: {pooling: [mean, cls], max_length: [64, 128]}}]\n"
    + TASKS,
    "no baseline": "models: [{reference: x, baseline: null}, {id: y, reference: y, baseline: none}]\n" + TASKS,
    "defaults": "defaults: {samples: 9, pooling: cls, precisions: [w8a8], top_k: 20}\nmodels: [{reference: x}]\n"
    + TASKS,
    "exclusions": "exclude: ['a/*', {model: b, precision: w8a8}]\nmodels: [{reference: x}]\n" + TASKS,
    "thresholds": "thresholds: {cosine_spearman: '2.0,4.0', 'ndcg@10': [5%, 10%]}\nmodels: [{reference: x}]\n" + TASKS,
    "artifacts by name": "models: [{reference: x, artifacts: {int8: a.onnx}}]\n" + TASKS,
    "a list of artifacts": "models: [{reference: x, artifacts: [a.onnx, b.onnx]}]\n" + TASKS,
}
BAD = {
    "an unknown key of a model": "models: [{reference: x, poling: cls}]\n" + TASKS,
    "an unknown key of a task": "models: [{reference: x}]\ntasks: [{task: fill-mask, sampels: 3}]\n",
    "an unknown section": "modles: []\nmodels: [{reference: x}]\n" + TASKS,
    "an unknown default": "defaults: {sampels: 3}\nmodels: [{reference: x}]\n" + TASKS,
    "an unknown axis": "models: [{reference: x, matrix: {poling: [cls]}}]\n" + TASKS,
    "an unknown precision": "models: [{reference: x, precisions: [w9a9]}]\n" + TASKS,
    "an unknown task": "models: [{reference: x}]\ntasks: [{task: simlarity}]\n",
    "an unknown choice": "models: [{reference: x, pooling: middle}]\n" + TASKS,
    "a text for a number": "models: [{reference: x, max_length: long}]\n" + TASKS,
    "a number below its limit": "models: [{reference: x, max_length: 0}]\n" + TASKS,
    "a list for a text": "models: [{reference: x, id: [a]}]\n" + TASKS,
    "no reference": "models: [{id: a}]\n" + TASKS,
    "no tasks": "models: [{reference: x}]\n",
    "no mapping": "[1, 2]",
    "a model that is a number": "models: [7]\n" + TASKS,
}


def verdicts(text: str, folder: Path) -> tuple[list[str], list[str]]:
    """What the schema says, and what the reader says."""
    validator = jsonschema.Draft202012Validator(registry_schema())
    path = folder / "registry.yaml"
    path.write_text(text, encoding="utf-8")
    errors = [error.message for error in validator.iter_errors(yaml.safe_load(text))]
    return errors, check_registry(path)[1]


def test_the_schema_is_one() -> None:
    jsonschema.Draft202012Validator.check_schema(registry_schema())


@pytest.mark.parametrize("name", GOOD)
def test_the_schema_accepts_what_is_read(tmp_path: Path, name: str) -> None:
    assert verdicts(GOOD[name], tmp_path) == ([], [])


@pytest.mark.parametrize("name", BAD)
def test_the_schema_refuses_what_is_refused(tmp_path: Path, name: str) -> None:
    by_schema, by_reader = verdicts(BAD[name], tmp_path)
    assert by_schema
    assert by_reader


def test_the_schema_names_every_option() -> None:
    schema = registry_schema()
    model, task = (schema["properties"][name]["items"]["properties"] for name in ("models", "tasks"))
    assert {"id", "reference", "group", "priority", "baseline", "precisions", "artifacts", "pooling"} <= set(model)
    assert {"max_length", "max-length", "ep", "model-revision"} <= set(model)
    assert {"id", "task", "dataset", "columns", "samples", "top_k", "dataset-name", "window"} <= set(task)
    assert model["max_length"]["minimum"] == 1


def test_the_command_prints_it(calipers: Run) -> None:
    printed: Any = json.loads(calipers("schema", "sweep").stdout)
    assert printed == json.loads(json.dumps(registry_schema()))
