"""Vectors kept on disk by content: the same texts, prompt and model are embedded once.

A file is named after a hash of everything that decides its content. It is written to a temporary name and moved in
place, and read as a memory map. The folder is bounded: what was not used for the longest time is removed first.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calipers.core import SILENT, Encoder, InferenceError, ModelInfo, Progress, RequestError, on_side
from calipers.core.files import whole_file
from calipers.core.models import truncated_by
from calipers.core.room import make_room
from calipers.metrics.arrays import slices

WINDOW = 65_536  # texts that are encoded at a time; a larger corpus is written to its file window by window
MOST_BYTES = 10_000_000_000
_DIGEST = hashlib.sha256().digest_size  # bytes behind the array
_ABANDONED = 86_400.0  # seconds after which the temporary file of a run that died may go


class VectorCache:
    """`folder` is made when it is first needed; `most_bytes` bounds what it holds."""

    def __init__(self, folder: Path, most_bytes: int = MOST_BYTES) -> None:
        if most_bytes < 1:
            raise RequestError(f"the vector cache must be allowed at least 1 byte, found {most_bytes}")
        self.folder = folder
        self.most_bytes = most_bytes

    def find(self, key: str, rows: int, damaged: list[str] | None = None) -> NDArray[np.float32] | None:
        """The vectors of a key, float32[rows, d], mapped from their file; None where there are none to be read. A file
        that is not as it was written counts as absent, and is named in `damaged`."""
        file = self.folder / f"{key}.npy"
        if not file.exists():
            return None
        why = why_damaged(file)
        vectors: NDArray[Any] = np.load(file, mmap_mode="r", allow_pickle=False) if why is None else np.empty(0)
        if why is None and (vectors.ndim != 2 or len(vectors) != rows or vectors.dtype != np.float32):
            why = f"it holds {vectors.dtype} {list(vectors.shape)} for {rows} texts"
        if why is not None:
            if damaged is not None:
                damaged.append(f"kept vectors in {file} count as absent: {why}")
            return None
        with suppress(OSError):
            os.utime(file)  # it was used now
        return np.asarray(vectors) if rows == 0 else vectors

    def write(self, key: str, model: Encoder, texts: Sequence[str], prompt: str | None, progress: Progress) -> None:
        """Encode the texts into the file of the key. A run that is stopped half-way leaves nothing under that name."""
        file = self.folder / f"{key}.npy"
        before = truncated_by(model)
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with whole_file(file) as part:
                _encode_into(part, model, texts, prompt, progress)
                _seal(part)
            if cut := truncated_by(model) - before:
                with whole_file(_cut_file(file)) as part:
                    part.write_text(str(cut))
        except OSError as error:
            raise RequestError(
                f"vectors cannot be kept in {self.folder}: {error.strerror} (`no_cache` keeps none)"
            ) from error
        self.shrink(keep=file)

    def truncated(self, key: str) -> int:
        """How many of the texts of a key the model cut."""
        try:
            return int(_cut_file(self.folder / f"{key}.npy").read_text())
        except (OSError, ValueError):
            return 0

    def shrink(self, keep: Path | None = None) -> None:
        """Remove what was used longest ago until the folder is small enough; `keep` stays whatever its size."""
        files = []
        for file in self.folder.glob("*"):
            with suppress(OSError):  # another process may remove it at the same time
                files.append((file.stat().st_mtime, file.stat().st_size, file))
        total = sum(size for _, size, _ in files)
        for used, size, file in sorted(files):
            abandoned = file.suffix == ".part" and time.time() - used > _ABANDONED
            if abandoned or (total > self.most_bytes and file.suffix == ".npy" and file != keep):
                with suppress(OSError):
                    file.unlink()
                    total -= size
                    _cut_file(file).unlink(missing_ok=True)


def _cut_file(vectors: Path) -> Path:
    """Where it is kept how many texts were cut; it is there where some were."""
    return vectors.with_suffix(".cut")


def _reserve(file: Path) -> None:
    """Claim the disk space of a mapped file: a page that finds none would end the process."""
    if hasattr(os, "posix_fallocate"):
        with file.open("rb+") as content:
            os.posix_fallocate(content.fileno(), 0, max(1, os.fstat(content.fileno()).st_size))


def _seal(file: Path) -> None:
    """Put the SHA-256 of the array behind it, where nothing that reads .npy files looks."""
    with file.open("rb+") as content:
        digest = hashlib.file_digest(content, "sha256").digest()
        content.seek(0, os.SEEK_END)
        content.write(digest)


def why_damaged(file: Path) -> str | None:
    """Why a file of vectors is not as it was written; None where it is."""
    try:
        with file.open("rb") as content:
            size = os.fstat(content.fileno()).st_size - _DIGEST
            total = hashlib.sha256()
            while size > 0 and (block := content.read(min(size, 1 << 20))):
                total.update(block)
                size -= len(block)
            if content.read() != total.digest():
                return "the checksum behind them is not theirs"
    except OSError as error:
        return str(error.strerror)
    return None


def _encode_into(part: Path, model: Encoder, texts: Sequence[str], prompt: str | None, progress: Progress) -> None:
    table: NDArray[Any] | None = None
    for start in range(0, max(1, len(texts)), WINDOW):
        window = model.encode(texts[start : start + WINDOW], prompt=prompt, progress=progress)
        if table is None:
            shape = (len(texts), window.shape[1])
            table = np.lib.format.open_memmap(part, mode="w+", dtype=np.float32, shape=shape)
            _reserve(part)
        table[start : start + len(window)] = window
    assert isinstance(table, np.memmap)
    table.flush()


class CachedEncoder:
    """An encoder whose vectors are looked up first, by its identity, the prompt and the texts.

    Without a cache or an identity (an endpoint may change unseen) every text is encoded. Other abilities of the
    model that layers use (`pieces`) are passed on.
    """

    def __init__(self, model: Encoder, identity: str | None, cache: VectorCache | None) -> None:
        self.info: ModelInfo = model.info
        self.counts: Counter[str] = Counter()  # texts that were "encoded" and "reused", and "truncated" of both
        self.damaged: list[str] = []  # kept vectors that could not be used, and why
        self._model = model
        self._identity = identity
        self._cache = cache
        if hasattr(model, "pieces"):
            self.pieces = model.pieces

    @property
    def encoded(self) -> int:
        return self.counts["encoded"]

    @property
    def reused(self) -> int:
        return self.counts["reused"]

    @property
    def truncated(self) -> int:
        return self.counts["truncated"]

    def side(self, side: str) -> CachedEncoder:
        """The same for queries or documents, of which some models make vectors in different ways."""
        model = on_side(self._model, side)
        if model is self._model:
            return self
        sided = CachedEncoder(model, self._identity and f"{self._identity} {side}", self._cache)
        sided.counts, sided.damaged = self.counts, self.damaged
        return sided

    def encode(
        self, texts: Sequence[str], *, prompt: str | None = None, progress: Progress = SILENT
    ) -> NDArray[np.float32]:
        """float32[n, d], read-only where it is mapped from a file."""
        if self._cache is None or self._identity is None or not texts:
            self.counts["encoded"] += len(texts)
            return self._compute(texts, prompt, progress)
        key = text_key(self._identity, prompt, texts)
        stored = self._cache.find(key, len(texts), self.damaged)
        self.counts["encoded" if stored is None else "reused"] += len(texts)
        if stored is None:
            try:
                self._cache.write(key, self._model, texts, prompt, progress)
            except RequestError as error:  # a full disk costs time, no result
                self.damaged.append(str(error))
                return self._compute(texts, prompt, progress)
            stored = self._cache.find(key, len(texts))
        if stored is None:
            folder = self._cache.folder
            raise InferenceError(f"the vectors just written to {folder} cannot be read (`no_cache` keeps none)")
        self.counts["truncated"] += self._cache.truncated(key)
        return stored

    def _compute(self, texts: Sequence[str], prompt: str | None, progress: Progress) -> NDArray[np.float32]:
        before = truncated_by(self._model)
        vectors = _encode_all(self._model, texts, prompt, progress)
        self.counts["truncated"] += truncated_by(self._model) - before
        return vectors


def _encode_all(model: Encoder, texts: Sequence[str], prompt: str | None, progress: Progress) -> NDArray[np.float32]:
    """Of many texts window by window, into an array that need not be in memory."""
    vectors = model.encode(texts[:WINDOW], prompt=prompt, progress=progress)
    if len(texts) <= WINDOW:
        return vectors
    table = make_room((len(texts), vectors.shape[1]), vectors.dtype)
    table[:WINDOW] = vectors
    for part in slices(len(texts), WINDOW):
        if part.start:
            table[part] = model.encode(texts[part], prompt=prompt, progress=progress)
    return table


def text_key(identity: str, prompt: str | None, texts: Sequence[str]) -> str:
    """SHA-256 over the identity of the model, the prompt (None is not "") and the texts in their order.

    >>> text_key("m", None, ["ab", "c"]) == text_key("m", None, ["a", "bc"])
    False
    """
    total = hashlib.sha256(f"{identity}\0{prompt!r}\0".encode())
    for text in texts:
        content = text.encode("utf-8", "surrogatepass")
        total.update(len(content).to_bytes(8, "little"))
        total.update(content)
    return total.hexdigest()
