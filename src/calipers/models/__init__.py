"""A reference to a Model: `torch:ID-or-dir`, `onnx:file-or-dir`, `static:dir`, `vectors:file`, `http(s)://…`."""

from __future__ import annotations

import importlib
from typing import cast

from calipers.core import Encoder
from calipers.models.options import ModelOptions
from calipers.models.source import BACKENDS, Source, find

__all__ = ["BACKENDS", "ModelOptions", "Source", "find", "load"]


def load(source: Source, options: ModelOptions) -> Encoder:
    module = importlib.import_module(f"calipers.models.{source.backend}")
    return cast(Encoder, module.load(source, options))
