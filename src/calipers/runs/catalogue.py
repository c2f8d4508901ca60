"""Everything that a stored run may be of: tasks by their names, layers of a diagnosis as `diagnose/LAYER`."""

from __future__ import annotations

from dataclasses import replace
from importlib import import_module
from typing import Any

from calipers import tasks
from calipers.core import Measurement

DIAGNOSE = "diagnose/"
_LAYERS = "calipers.diagnosis.layers"  # by name: diagnosis stands above runs, and only who asks for a layer pays for it


def find(name: str) -> Measurement[Any]:
    """What a run of this name measured: enough to show, compare and report it."""
    if not name.startswith(DIAGNOSE):
        return tasks.find(name)
    layer: Measurement[Any] = replace(import_module(_LAYERS).find(name.removeprefix(DIAGNOSE)), name=name)
    return layer
