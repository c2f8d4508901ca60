"""A reference to a Model: `torch:ID-or-dir`, `onnx:file-or-dir`, `static:dir`, `vectors:file`, `http(s)://…`,
`bm25`, `hybrid:MODEL+bm25`.

A module is imported when a name of it is needed: stored runs are compared without what loads models.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from calipers.models import hub as hub, identity as identity
    from calipers.models.loading import (
        ABILITIES as ABILITIES,
        load as load,
        load_model as load_model,
        options_beside as options_beside,
        refuse_revision as refuse_revision,
    )
    from calipers.models.options import ModelOptions as ModelOptions
    from calipers.models.source import BACKENDS as BACKENDS, Source as Source, find as find

_HOMES = {
    "loading": ("ABILITIES", "load", "load_model", "options_beside", "refuse_revision"),
    "options": ("ModelOptions",),
    "source": ("BACKENDS", "Source", "find"),
}
_MODULES = {name: module for module, names in _HOMES.items() for name in names}

__all__ = [*_MODULES, "hub", "identity"]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
    if name in __all__:
        return import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
