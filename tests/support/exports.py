"""Graphs that were exported before, by this test worker or another: torch.onnx takes two seconds for a tiny model.

What is kept lasts as long as one run of pytest. Tests of the export itself do not use it.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

PLACE = "CALIPERS_TEST_EXPORTS"  # the folder, which tests/conftest.py makes


def export_once(make: Callable[[Path], object], target: Path, model: Any, *settings: object) -> None:
    """`make(target)`, or a copy of what it made of a model with the same weights, code and settings."""
    folder = os.environ.get(PLACE)
    if not folder:
        make(target)
        return
    kept = Path(folder) / f"{_digest(model, settings)}.onnx"
    if kept.exists():
        shutil.copy(kept, target)
        return
    make(target)
    part = kept.with_name(f"{kept.name}.{os.getpid()}")
    shutil.copy(target, part)
    part.replace(kept)


def _digest(model: Any, settings: tuple[object, ...]) -> str:
    import torch

    kind, attention = type(model), model.config._attn_implementation
    content = hashlib.sha256(repr((kind, model.config.to_json_string(), attention, settings)).encode())
    for name, tensor in model.state_dict().items():
        content.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        content.update(tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return content.hexdigest()


@contextmanager
def known_exports() -> Iterator[None]:
    """Builds take the graphs that were exported before."""
    from calipers.artifacts import export

    def from_known(model: Any, target: Path, source: Any, rows: Any, options: Any) -> None:
        settings = options.static_shape, options.opset, options.pooled, source.pooling, source.normalize, source.ability
        tokens = [(row.ids.tolist(), row.type_ids.tolist()) for row in rows.tokens]
        texts = tokens, rows.pad_id, rows.longest, rows.first_position
        export_once(lambda path: plain(model, path, source, rows, options), target, model, settings, texts)

    plain = export.export
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(export, "export", from_known)
        yield
