"""Small files that many tests read."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

Run = Callable[..., "subprocess.CompletedProcess[str]"]


def write_jsonl(path: Path, rows: Sequence[dict[str, object]]) -> Path:
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    return path


PAIRS = [
    {"id": "a", "sentence1": "The bakery opens at seven.", "sentence2": "Bread is sold from seven.", "score": 3.5},
    {"id": "b", "sentence1": "The server restarted twice.", "sentence2": "Two reboots were logged.", "score": 4.0},
    {"id": "c", "sentence1": "Tulips bloom in spring.", "sentence2": "The invoice is overdue.", "score": 0.0},
    {"id": "d", "sentence1": "He sold the red bicycle.", "sentence2": "He bought the red bicycle.", "score": 2.0},
    {"id": "e", "sentence1": "Rain is expected tonight.", "sentence2": "Rain is expected tonight.", "score": 5.0},
]
