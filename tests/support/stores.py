"""Runs for a store, and whether two are the same to the bit."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from calipers.core import DataSource, ModelInfo, Outcomes, Result
from calipers.runs.store import Store

ODD = ("a\x00b", "line\nbreak\r\n", "é e\u0301 \u202e", "𝕏 🎉", "quote \" ' \\", "")


def make(run_id: str, created: str = "2025-01-01T00:00:00.000+00:00", **more: Any) -> Result:
    return replace(BASE, run_id=run_id, created=created, **more)


BASE = Result(
    run_id="",
    created="",
    task="sentence-similarity",
    options={},
    model=ModelInfo("vectors", "odd/ü\x00 name", None, "none", "sha256:1", {"pooling": None, "dimensions": 3}),
    dataset=DataSource("pairs.csv", requested=6, streaming=True, columns_mapping={"id_column": ""}, rows_read=7),
    fingerprint="sha256:2",
    request={"given": {"model": "m"}, "defaulted": {"data_options": {"seed": 42, "split": None}}},
    metrics={"cosine_spearman": 0.1 + 0.2, "cosine_pearson": -1e-300},
    intervals={"cosine_spearman": (-0.0, 1 / 3), "cosine_pearson": None},
    bootstrap={"unit": "pair", "confidence": 0.95},
    warnings=("6 of 7 “rows”",),
    timing={"total_seconds": 0.1, "load_seconds": 0.0, "inference_seconds": 0.0, "metrics_seconds": 0.1},
    environment={"versions": {"numpy": "2"}, "cores": 2},
    outcomes=Outcomes(
        ids=(*ODD[:5], "last"),
        columns={
            "gold": np.array([0.0, -0.0, 5e-324, 1 / 3, np.nan, np.inf]),
            "cosine": np.array([0.1, 0.2, 0.3, 0.4, 0.5, 0.6], dtype=np.float32),
            "rank": np.array([2**62, -1, 0, 1, 2, 3]),
            "right": np.array([True, False, True, True, False, False]),
        },
        texts={"text_1": ODD, "text_2": ODD[::-1]},
    ),
)


def same(first: Result, second: Result) -> bool:
    """Field by field, outcomes bit by bit."""
    facts = [replace(result, outcomes=Outcomes((), {})) for result in (first, second)]
    return facts[0] == facts[1] and bits(first.outcomes) == bits(second.outcomes)


def bits(outcomes: Outcomes) -> tuple[Any, ...]:
    columns = [(name, str(values.dtype), values.tobytes()) for name, values in outcomes.columns.items()]
    return outcomes.ids, outcomes.texts, columns


def sql(place: Store, statement: str) -> Any:
    with closing(sqlite3.connect(place.folder / "calipers.db")) as database, database:
        return database.execute(statement).fetchone()


class Loaded(Exception):
    """A model would have been loaded."""


def refuse(*_: object) -> None:
    raise Loaded


def edit(path: Path, **entries: Any) -> None:
    content = json.loads(path.read_text()) if path.exists() else {}
    path.write_text(json.dumps({**content, **entries}))
