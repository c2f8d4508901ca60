"""Many texts without a Python object for each: their bytes, in a file that is mapped where they are long."""

from __future__ import annotations

import mmap
import tempfile
import weakref
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from typing import Any, overload

import numpy as np

_FEW = 100_000  # texts: so many are a list
_IN_MEMORY = 1 << 24  # bytes: more are in a file
_AT_ONCE = 8_192  # texts that are read together


class PackedTexts(Sequence[str]):
    """A sequence of texts, equal to any other of the same texts. Memory: 8 bytes each, beside the bytes of short ones;
    what is read becomes a text while it is needed."""

    def __init__(self, content: mmap.mmap | bytes, ends: array[int]) -> None:
        self._content, self._ends = content, ends
        self._single = 0  # texts that were read by themselves

    def __len__(self) -> int:
        return len(self._ends)

    @overload
    def __getitem__(self, place: int) -> str: ...
    @overload
    def __getitem__(self, place: slice) -> list[str]: ...
    def __getitem__(self, place: int | slice) -> str | list[str]:
        if isinstance(place, slice):
            texts = [self._text(i) for i in range(*place.indices(len(self)))]
            self._release()
            return texts
        place = int(place)
        if not -len(self) <= place < len(self):
            raise IndexError(f"text {place} of {len(self)}")
        self._single += 1
        if self._single % _AT_ONCE == 0:
            self._release()
        return self._text(place % len(self))

    def __iter__(self) -> Iterator[str]:
        for start in range(0, len(self), _AT_ONCE):
            yield from self[start : start + _AT_ONCE]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sequence) or len(self) != len(other):
            return False
        starts = range(0, len(self), _AT_ONCE)
        return self is other or all(self[i : i + _AT_ONCE] == list(other[i : i + _AT_ONCE]) for i in starts)

    __hash__ = None  # type: ignore[assignment]

    def _release(self) -> None:
        """Pages that were read stay in the system's cache and no longer count as this process's memory."""
        if isinstance(self._content, mmap.mmap) and hasattr(mmap, "MADV_DONTNEED"):
            self._content.madvise(mmap.MADV_DONTNEED)

    def __arrow_array__(self, type: Any = None) -> Any:
        """What pyarrow asks for: a column that shares the bytes."""
        import pyarrow

        starts = pyarrow.py_buffer(array("q", [0]) + self._ends)
        return pyarrow.LargeStringArray.from_buffers(len(self), starts, pyarrow.py_buffer(self._content))

    def _text(self, place: int) -> str:
        start = self._ends[place - 1] if place else 0
        return self._content[start : self._ends[place]].decode()


def as_kept(texts: Sequence[str]) -> Sequence[str]:
    """Packed texts as they are, others as a tuple."""
    return texts if isinstance(texts, PackedTexts) else tuple(texts)


def may_repeat(texts: Iterable[str]) -> bool:
    """False where all texts differ; True where two are the same, or have the same hash. A set of a million texts would
    be as large as all else.

    >>> may_repeat(["a", "b"]), may_repeat(["a", "b", "a"])
    (False, True)
    """
    hashes = np.sort(np.fromiter(map(hash, texts), np.int64))
    return bool((hashes[1:] == hashes[:-1]).any())


class TextPlaces:
    """Where texts stand in a sequence of them. Memory: 16 bytes each, once a text is looked for.

    >>> TextPlaces(["a", "b", "a"]).of("a"), TextPlaces(["a"]).of("x")
    ([0, 2], [])
    """

    def __init__(self, texts: Sequence[str]) -> None:
        self._texts = texts

    @cached_property
    def _by_hash(self) -> tuple[array[int], array[int]]:
        """The hashes, ascending, and the place of each."""
        hashes = np.fromiter(map(hash, self._texts), np.int64, len(self._texts))
        order = np.argsort(hashes, kind="stable")
        return array("q", hashes[order].tobytes()), array("q", order.astype(np.int64).tobytes())

    def of(self, text: str) -> list[int]:
        """In their order."""
        hashes, order = self._by_hash
        wanted, places = hash(text), []
        for i in range(bisect_left(hashes, wanted), len(hashes)):
            if hashes[i] != wanted:
                break
            if self._texts[order[i]] == text:
                places.append(order[i])
        return places


class TextPacker:
    """Texts as they come; `finish` gives a list of a few, or packed ones, and is called once."""

    def __init__(self) -> None:
        self._few: list[str] | None = []
        self._waiting, self._ends = bytearray(), array("q")
        self._size = 0
        self._file: Any = None

    def __len__(self) -> int:
        return len(self._ends)

    def append(self, text: str) -> None:
        if self._few is not None:
            self._few.append(text)
        encoded = text.encode()
        self._size += len(encoded)
        self._waiting += encoded
        self._ends.append(self._size)
        if len(self._ends) > _FEW:
            self._few = None
        if len(self._waiting) > _IN_MEMORY:
            self._few = None
            if self._file is None:
                self._file = tempfile.TemporaryFile()  # noqa: SIM115 (closed with the packer)
                weakref.finalize(self, self._file.close)
            self._file.write(self._waiting)
            self._waiting = bytearray()

    def finish(self) -> Sequence[str]:
        if self._few is not None:
            return self._few
        if self._file is None:
            return PackedTexts(bytes(self._waiting), self._ends)
        with self._file as file:
            file.write(self._waiting)
            file.flush()
            return PackedTexts(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ), self._ends)
