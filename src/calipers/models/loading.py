"""Loading the model behind a reference: the backends of each ability, and which revision counts for whom."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from dataclasses import replace
from typing import cast

from calipers.core import Encoder, Model, ModelError, RequestError
from calipers.core.errors import boundary
from calipers.core.inputs import expand
from calipers.core.references import clean
from calipers.models import identity, sandbox
from calipers.models.hybrid import combine, settle
from calipers.models.options import ModelOptions
from calipers.models.source import Source, encoder_of, find

# What a task may need of a model, and each backend's module and function for it: `load(source, options) -> Model`.
_ENCODERS = {backend: f"{backend}.load" for backend in ("torch", "onnx", "static", "vectors", "http")}
ABILITIES = {
    "encode": _ENCODERS,
    "retrieve": {**_ENCODERS, "bm25": "bm25.load", "hybrid": "hybrid.combine"},
    "score": {backend: f"{backend}.load_scorer" for backend in ("torch", "onnx", "http")},
    "fill-mask": {"torch": "torch_masked.load", "onnx": "onnx.load_masked", "http": "http_masked.load"},
}


def load_model(reference: str, *, ability: str = "encode", options: ModelOptions | None = None) -> Model:
    """The model behind a reference, ready to use. `ability` is what it must be able to do: a key of `ABILITIES`.

    >>> model = load_model("./model", options=ModelOptions(pooling="cls"))
    >>> model.encode(["a text"]).shape
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
    if source.backend == "hybrid":
        return _hybrid(source, options)
    refuse_revision(source, options)
    module, function = able[source.backend].split(".")
    with boundary(ModelError, f"{name} cannot be loaded"):
        if sandbox.is_needed(source, options):
            files, size = identity.fingerprint(source, options), identity.size(source, options)
            sandbox.try_out(source, options, ability, files, size)
        model = getattr(importlib.import_module(f"calipers.models.{module}"), function)(source, options)
        return cast(Model, identity.sign(model, source, options))


def _hybrid(source: Source, options: ModelOptions) -> Model:
    """The options are the encoder's."""
    settle(source)  # before the encoder is loaded
    encoder = load(encoder_of(source), options)
    return cast(Model, combine(cast(Encoder, encoder), source))


def refuse_revision(source: Source, options: ModelOptions) -> None:
    """A revision of what is on this machine would be ignored."""
    if options.revision and not _pinned(source, options):
        name = clean(source.reference)
        raise RequestError(f"`ModelOptions.revision` is for models of the hub, and {name} is on this machine")


def options_beside(model: object, options: ModelOptions, others: Sequence[object]) -> ModelOptions:
    """The options as they count for one of several models: a revision is for those from the hub, if any are."""
    if options.revision is None or not isinstance(model, str):
        return options
    if _pinned(find(model), options) or not any(isinstance(o, str) and _pinned(find(o), options) for o in others):
        return options
    return replace(options, revision=None)


def _pinned(source: Source, options: ModelOptions) -> bool:
    """Whether a revision decides what is read: of the model, of its settings elsewhere, or of code that it names."""
    source = encoder_of(source)
    local_settings = not options.model_id or expand(options.model_id).is_dir()
    fetched = source.path is None or (source.backend == "onnx" and not local_settings)
    return fetched or options.trust_remote_code
