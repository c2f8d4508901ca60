"""What data that a task cannot read look like: which other task reads them."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

from calipers.core import Task
from calipers.core.inputs import expand

_FIRST = 1_000_000  # characters of a file that are looked at


def other_task(reference: str, task: Task[Any]) -> str | None:
    """A sentence that names the task for data of this kind; None where they are of no kind that is known, or of the
    kind that the task reads."""
    try:
        return _other_task(expand(reference), task)
    except (OSError, RuntimeError, ValueError):  # a name that is no path, or a home that is unknown
        return None


def _other_task(path: Path, task: Task[Any]) -> str | None:
    if path.is_dir():
        is_search = any(path.glob("corpus.*")) and any(path.glob("queries.*"))
        return _advise("retrieval", "a corpus with queries") if is_search and task.data != "beir" else None
    names = _columns(path) if path.is_file() else set()
    if {"query", "documents"} <= names or {"query", "positive"} <= names:
        kind = ("reranking", "queries with their documents")
    elif {"sentence1", "sentence2"} <= names and "score" in names:
        kind = ("sentence-similarity", "pairs with scores")
    elif {"sentence1", "sentence2"} <= names and "label" in names:
        kind = ("pair-classification", "pairs with labels")
    elif "text" in names:
        kind = ("fill-mask", "texts alone")
    else:
        return None
    return _advise(*kind) if kind[0] != task.name else None


def _advise(task: str, what: str) -> str:
    return f"These look like {what}: set `task` to {task}"


def _columns(path: Path) -> set[str]:
    """The names of the first row, as far as a plain file shows them."""
    try:
        with path.open(encoding="utf-8", newline="") as file:
            if path.suffix in (".txt", ".raw"):
                return {"text"}
            if path.suffix in (".csv", ".tsv"):
                delimiter = "\t" if path.suffix == ".tsv" else ","
                return set(next(csv.reader([file.readline(_FIRST)], delimiter=delimiter), []))
            first = json.loads(file.readline(_FIRST)) if path.suffix == ".jsonl" else None
    except (OSError, ValueError, RecursionError):
        return set()
    return set(first) if isinstance(first, dict) else set()
