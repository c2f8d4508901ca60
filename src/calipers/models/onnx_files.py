"""What the bytes of an .onnx file tell without parsing it: 2 GB are not read for one bit, and onnx is not needed."""

from __future__ import annotations

import mmap
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from calipers.core import ModelError

# A StringStringEntryProto of TensorProto.external_data: key (1) "location", value (2) with its length as a varint.
_LOCATION = re.compile(rb"\x0a\x08location\x12([\x80-\xff]?[\x00-\x7f])")


def quantises_dynamically(file: Path) -> bool:
    """Whether a row's answer depends on its neighbours: one range is taken over the whole batch.

    DynamicQuantizeLinear and the fused DynamicQuantizeMatMul do that. Operator names stand in the file as plain text.
    """
    with _content(file) as content:
        return content.find(b"DynamicQuantize") >= 0


def weight_files(file: Path) -> list[Path]:
    """The graph and the files that hold its external weights: those it names, and those named after it."""
    beside = [p for p in file.parent.iterdir() if p.name.startswith(file.name) and p.is_file()]
    beside += file.parent.glob(f"{file.stem}*.data")
    named = [file.parent / name for name in external_names(file)]
    return list(dict.fromkeys([*beside, *(p for p in named if p.is_file())]))


def external_names(file: Path) -> list[str]:
    """The files, relative to the graph's folder, in which it says that weights lie; each once, sorted."""
    found = set()
    with _content(file) as content:
        for match in _LOCATION.finditer(content):
            length = match[1][0] if len(match[1]) == 1 else (match[1][0] & 0x7F) | (match[1][1] << 7)
            found.add(content[match.end() : match.end() + length].decode("utf-8", "replace"))
    return sorted(name for name in found if name and "\0" not in name)


@contextmanager
def _content(file: Path) -> Iterator[mmap.mmap]:
    if not file.stat().st_size:
        raise ModelError(f"{file} is empty: expected an ONNX graph")
    with file.open("rb") as handle, mmap.mmap(handle.fileno(), 0, access=mmap.ACCESS_READ) as content:
        yield content
