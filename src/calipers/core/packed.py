"""Many texts without a Python object for each: their bytes, in a file that is mapped where they are long."""

from __future__ import annotations

import mmap
import shutil
import tempfile
import weakref
from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from typing import Any, NamedTuple, overload

import numpy as np

_FEW = 100_000  # texts: so many are a list
_IN_MEMORY = 1 << 24  # bytes: longer ones are no list
_WAITING = 1 << 22  # bytes of packed texts, and of where they begin: more are in a file
_AT_ONCE = 8_192  # texts that are read together


class Packed(NamedTuple):
    """The bytes of texts, one after the other, and where each begins; the last number is where the last one ends."""

    content: mmap.mmap | bytes
    starts: memoryview


class PackedTexts(Sequence[str]):
    """A sequence of texts, equal to any other of the same texts. Where they are long or many they are in a file that is
    mapped; what is read becomes a text while it is needed."""

    def __init__(self, size: int, pack: Callable[[], Packed]) -> None:
        """`pack` is called once, for the first text that is needed."""
        self._size, self._pack = size, pack
        self._single = 0  # texts that were read by themselves

    @cached_property
    def _packed(self) -> Packed:
        return self._pack()

    def __len__(self) -> int:
        return self._size

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
        content = self._packed.content
        if isinstance(content, mmap.mmap) and hasattr(mmap, "MADV_DONTNEED"):
            content.madvise(mmap.MADV_DONTNEED)

    def __arrow_array__(self, type: Any = None) -> Any:
        """What pyarrow asks for: a column that shares the bytes."""
        import pyarrow

        starts, content = (pyarrow.py_buffer(part) for part in (self._packed.starts, self._packed.content))
        return pyarrow.LargeStringArray.from_buffers(len(self), starts, content)

    def _text(self, place: int) -> str:
        content, starts = self._packed
        return content[starts[place] : starts[place + 1]].decode()


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
        self._waiting, self._starts = bytearray(), array("q", [0])
        self._size = self._count = 0  # bytes and texts
        self._files: tuple[Any, Any] | None = None  # of the bytes, and of where they begin

    def __len__(self) -> int:
        return self._count

    def append(self, text: str) -> None:
        if self._few is not None:
            self._few.append(text)
        encoded = text.encode()
        self._size += len(encoded)
        self._waiting += encoded
        self._starts.append(self._size)
        self._grow(1)

    def append_arrow(self, column: Any) -> None:
        """An array of texts as arrow holds it. Of many, no text becomes an object."""
        import pyarrow

        if self._few is not None or column.null_count or column.type != pyarrow.string():
            for text in column.to_pylist():
                self.append(text)
            return
        column.validate(full=True)  # that the bytes are UTF-8
        _, places, content = column.buffers()
        starts = np.frombuffer(places, np.int32)[column.offset :][: len(column) + 1].astype(np.int64)
        self._waiting += memoryview(content or b"")[starts[0] : starts[-1]]
        self._starts.frombytes((starts[1:] + (self._size - starts[0])).tobytes())
        self._size += int(starts[-1] - starts[0])
        self._grow(len(column))

    def _grow(self, texts: int) -> None:
        self._count += texts
        if self._count > _FEW or self._size > _IN_MEMORY:
            self._few = None
        if self._few is None and len(self._waiting) + 8 * len(self._starts) > min(_WAITING, _IN_MEMORY):
            self._write()

    def _write(self) -> None:
        """What waits goes into files."""
        if self._files is None:
            self._files = tempfile.TemporaryFile(), tempfile.TemporaryFile()  # noqa: SIM115 (closed with the packer)
            for file in self._files:
                weakref.finalize(self, file.close)
        for file, part in zip(self._files, (self._waiting, self._starts), strict=True):
            file.write(part)
        self._waiting, self._starts = bytearray(), array("q")

    def finish(self) -> Sequence[str]:
        if self._few is not None:
            return self._few
        packed = self.pack()
        return PackedTexts(self._count, lambda: packed)

    def pack(self) -> Packed:
        """The same of any number, for who makes `PackedTexts` later."""
        if self._files is None:
            return Packed(bytes(self._waiting), memoryview(self._starts))
        self._write()
        content, starts = self._files
        with content, starts:
            content.write(bytes(-self._size % 8))
            starts.seek(0)
            shutil.copyfileobj(starts, content, _WAITING)
            content.flush()
            mapped = mmap.mmap(content.fileno(), 0, access=mmap.ACCESS_READ)
        return Packed(mapped, memoryview(mapped)[-8 * (self._count + 1) :].cast("q"))
