"""A reference to a Model: `torch:ID-or-dir`, `onnx:file-or-dir`, `static:dir`, `vectors:file`, `http(s)://…`."""

from __future__ import annotations

import importlib
from typing import cast

from calipers.core import Model, ModelError, RequestError
from calipers.core.errors import boundary
from calipers.core.references import clean
from calipers.models import hub, identity, sandbox
from calipers.models.options import ModelOptions
from calipers.models.source import BACKENDS, Source, find

__all__ = ["ABILITIES", "BACKENDS", "ModelOptions", "Source", "find", "hub", "identity", "load", "load_model"]

# What a task may need of a model, and each backend's module and function for it: `load(source, options) -> Model`.
_ENCODERS = {backend: f"{backend}.load" for backend in ("torch", "onnx", "static", "vectors", "http")}
ABILITIES = {
    "encode": _ENCODERS,
    "retrieve": {**_ENCODERS, "bm25": "bm25.load"},
    "score": {backend: f"{backend}.load_scorer" for backend in ("torch", "onnx", "http")},
    "fill-mask": {"torch": "torch_masked.load", "onnx": "onnx.load_masked"},
}


def load_model(reference: str, *, ability: str = "encode", options: ModelOptions | None = None) -> Model:
    """The model behind a reference, ready to use. `ability` is what it must be able to do: a key of `ABILITIES`.

    >>> model = load_model("./model.onnx", options=ModelOptions(pooling="cls"))     # doctest: +SKIP
    >>> model.encode(["a text"]).shape                                              # doctest: +SKIP
    (1, 384)
    """
    if ability not in ABILITIES:
        raise RequestError(f"`ability` must be one of {', '.join(ABILITIES)}, found {ability!r}")
    return load(find(reference), options or ModelOptions(), ability)


def load(source: Source, options: ModelOptions, ability: str = "encode") -> Model:
    able = ABILITIES[ability]
    name = clean(source.reference)
    if source.backend not in able:
        raise ModelError(f"{name} ({source.backend}) cannot {ability}: that takes {' or '.join(able)}")
    module, function = able[source.backend].split(".")
    with boundary(ModelError, f"{name} cannot be loaded"):
        if sandbox.is_needed(source, options):
            files, size = identity.fingerprint(source, options), identity.size(source, options)
            sandbox.try_out(source, options, ability, files, size)
        model = getattr(importlib.import_module(f"calipers.models.{module}"), function)(source, options)
        return cast(Model, identity.sign(model, source, options))
