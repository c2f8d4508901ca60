"""Measure text encoders before they ship."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"
__all__ = [
    "CalipersError",
    "DataOptions",
    "ModelOptions",
    "Result",
    "Store",
    "Trust",
    "Verdict",
    "compare",
    "diagnose",
    "evaluate",
]

if TYPE_CHECKING:
    from calipers.comparison.api import compare
    from calipers.comparison.records import Verdict
    from calipers.core import CalipersError, Result
    from calipers.data import DataOptions
    from calipers.diagnosis.api import diagnose
    from calipers.models import ModelOptions
    from calipers.reliability import Trust
    from calipers.runs.api import evaluate
    from calipers.runs.store import Store

_HOMES = {
    "evaluate": "calipers.runs.api",
    "compare": "calipers.comparison.api",
    "diagnose": "calipers.diagnosis.api",
    "CalipersError": "calipers.core",
    "Result": "calipers.core",
    "Verdict": "calipers.comparison.records",
    "DataOptions": "calipers.data",
    "ModelOptions": "calipers.models",
    "Store": "calipers.runs.store",
    "Trust": "calipers.reliability",
}


def __getattr__(name: str) -> Any:
    """Import what is asked for when it is asked for: `import calipers` alone costs nothing."""
    if name not in _HOMES:
        raise AttributeError(f"module 'calipers' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
