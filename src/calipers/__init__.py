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
    from calipers.api import evaluate
    from calipers.comparing import compare
    from calipers.core import CalipersError, Result, Verdict
    from calipers.data import DataOptions
    from calipers.diagnosing import diagnose
    from calipers.models import ModelOptions
    from calipers.store import Store
    from calipers.trust import Trust

_HOMES = {
    "evaluate": "calipers.api",
    "compare": "calipers.comparing",
    "diagnose": "calipers.diagnosing",
    "CalipersError": "calipers.core",
    "Result": "calipers.core",
    "Verdict": "calipers.core",
    "DataOptions": "calipers.data",
    "ModelOptions": "calipers.models",
    "Store": "calipers.store",
    "Trust": "calipers.trust",
}


def __getattr__(name: str) -> Any:
    """Import what is asked for when it is asked for: `import calipers` alone costs nothing."""
    if name not in _HOMES:
        raise AttributeError(f"module 'calipers' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
