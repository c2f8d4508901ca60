"""What models are measured on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from calipers.data import DataOptions
from calipers.models import ModelOptions

TASK = "sentence-similarity"  # unless another is named


@dataclass(frozen=True)
class Protocol:
    """What models are measured on: a task, its data and the options of both. None and empty are the default of
    `evaluate`; beside a stored run, what the run was measured on."""

    task: str | None = None
    task_options: Mapping[str, Any] = field(default_factory=dict)
    dataset: str | None = None
    columns: Mapping[str, str] = field(default_factory=dict)
    model_options: ModelOptions = field(default_factory=ModelOptions)
    data_options: DataOptions = field(default_factory=DataOptions)
