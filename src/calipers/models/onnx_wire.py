"""The bytes of a graph, as far as they name other files. The package onnx is not needed, and weights are skipped."""

from __future__ import annotations

import mmap
from collections.abc import Iterator

# Message of onnx.proto → its fields that hold a message in which a tensor may lie. An entry: key (1) and value (2).
_PARTS: dict[str, dict[int, str]] = {
    "model": {7: "graph", 20: "training", 25: "function"},
    "training": {1: "graph", 2: "graph"},
    "function": {7: "node", 11: "attribute"},
    "graph": {1: "node", 5: "tensor", 15: "sparse"},
    "node": {5: "attribute"},
    "attribute": {5: "tensor", 6: "graph", 10: "tensor", 11: "graph", 22: "sparse", 23: "sparse"},
    "sparse": {1: "tensor", 2: "tensor"},
    "tensor": {13: "entry"},
}


def locations(content: mmap.mmap) -> Iterator[str]:
    """The files that tensors at any depth say their values lie in. ValueError where the bytes are no ONNX graph."""
    if content.find(b"location") < 0:
        return
    waiting = [("model", 0, len(content))]
    while waiting:
        kind, begin, end = waiting.pop()
        parts = _PARTS[kind]
        for number, low, high in _fields(content, begin, end):
            part = parts.get(number)
            if part == "entry":
                yield from _location(content, low, high)
            elif part:
                waiting.append((part, low, high))


def _location(content: mmap.mmap, begin: int, end: int) -> Iterator[str]:
    entry = {number: content[low:high] for number, low, high in _fields(content, begin, end)}  # the last one counts
    if entry.get(1) == b"location":
        yield entry.get(2, b"").decode("utf-8", "surrogateescape")


def _fields(content: mmap.mmap, begin: int, end: int) -> Iterator[tuple[int, int, int]]:
    """Number, begin and end of every field of a message; numbers are skipped."""
    at = begin
    while at < end:
        tag, at = _varint(content, at, end)
        size, kind = 0, tag & 7
        if kind == 0:
            _, at = _varint(content, at, end)
        elif kind in (1, 5):
            size = 8 if kind == 1 else 4
        elif kind == 2:
            size, at = _varint(content, at, end)
        else:
            raise ValueError(f"a field of kind {kind} at byte {at:,}")
        if at + size > end:
            raise ValueError(f"a field ends beyond its message at byte {at:,}")
        if kind == 2:
            yield tag >> 3, at, at + size
        at += size


def _varint(content: mmap.mmap, at: int, end: int) -> tuple[int, int]:
    """A number in groups of seven bits, the lowest first, and where it ends."""
    value = shift = 0
    while at < end and shift < 70:
        byte = content[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at
    raise ValueError(f"a number without an end at byte {at:,}")
