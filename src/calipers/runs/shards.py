"""A model that answers shard by shard, and keeps each shard on disk where a folder is given.

Every run goes through here. Which rows share a batch follows from the shard alone, so a run that was stopped and goes
on gives the same bits as one that was not, whatever the number of workers.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from calipers.core import SILENT, MaskedTokens, Progress, on_side
from calipers.core.files import whole_file
from calipers.core.models import Arrays, truncated_by
from calipers.metrics.arrays import Vectors, slices
from calipers.models.batching import once_each

SHARD = 2_048  # texts, pairs or hidden tokens
COMPUTING = ("torch", "onnx", "http")  # backends that compute; the others look vectors up


@dataclass(frozen=True)
class ShardPart:
    """What this process does of the runs that several processes share: part `number` of so many, None for all.

    Of a search (`ranges`) it is a range of the corpus, embedded and searched. Else it is every n-th shard; the others
    are filled with noise unless they are on disk, so that the task comes to its end. What a run of a part returns is
    worthless: only its shards and hits are kept."""

    number: int | None
    parts: int
    ranges: bool


_WHOLE = ShardPart(None, 1, ranges=False)
_PART: ContextVar[ShardPart] = ContextVar("part", default=_WHOLE)


@contextmanager
def shared(number: int | None, parts: int, *, ranges: bool) -> Iterator[None]:
    """Do only this part of each run while this lasts; `number` None does what no other process has done."""
    token = _PART.set(ShardPart(number, parts, ranges))
    try:
        yield
    finally:
        _PART.reset(token)


def sharded(model: Any, ability: str, folder: Path | None) -> Any:
    """The model with its answers in shards; a model that ranks by itself as it is, and one that only looks vectors up
    with nothing but its searches divided."""
    if hasattr(model, "fusion"):
        return replace(model, encoder=sharded(model.encoder, ability, folder))
    if hasattr(model, "rank"):
        return model
    if model.info.backend not in COMPUTING:
        return DividedEncoder(model, Shards(folder)) if _PART.get().ranges else model
    kinds = {"score": ShardedScorer, "fill-mask": ShardedMaskedLM}
    return kinds.get(ability, ShardedEncoder)(model, Shards(folder))


class Shards:
    """Answers by the content of what was put to the model: `folder` is of one model. None keeps nothing."""

    def __init__(self, folder: Path | None) -> None:
        self.folder = folder
        self._count = 0
        self._last: Arrays = ()

    def answer(
        self, key: str, rows: int, compute: Callable[[], Arrays], truncated: Callable[[], int]
    ) -> tuple[Arrays, int]:
        """What `compute` gives for so many rows, now or in an earlier process, and how many texts it cut."""
        part = _PART.get()
        self._count += 1
        if stored := self.read(key):
            self._last = stored[0]
            return stored
        others = part.number is not None and not part.ranges and (self._count - 1) % part.parts != part.number
        if others and self._last:
            return _noise(self._last, rows), 0
        answer = self._compute(key, compute, truncated)
        self._last = answer[0]
        return answer

    def _compute(self, key: str, compute: Callable[[], Arrays], truncated: Callable[[], int]) -> tuple[Arrays, int]:
        before = truncated()
        arrays = compute()
        cut = truncated() - before
        self.write(key, arrays, cut)
        return arrays, cut

    def write(self, key: str, arrays: Arrays, cut: int) -> None:
        if self.folder:
            self.folder.mkdir(parents=True, exist_ok=True)
            named = {f"array{number}": array for number, array in enumerate(arrays)}
            with whole_file(self.folder / f"{key}.npz") as part, part.open("wb") as file:
                np.savez(file, truncated=np.int64(cut), **named)  # type: ignore[arg-type]

    def read(self, key: str) -> tuple[Arrays, int] | None:
        if self.folder is None:
            return None
        try:
            with np.load(self.folder / f"{key}.npz", allow_pickle=False) as content:
                arrays = tuple(content[f"array{number}"] for number in range(len(content.files) - 1))
                return arrays, int(content["truncated"])
        except (OSError, ValueError, KeyError, EOFError, BadZipFile):
            return None  # it is computed again


def _noise(like: Arrays, rows: int) -> Arrays:
    rng = np.random.default_rng(rows)
    return tuple(rng.normal(size=(rows, *array.shape[1:])).astype(array.dtype) for array in like)


class _Inner:
    """The progress of one shard, as part of the whole."""

    def __init__(self, progress: Progress) -> None:
        self.progress, self.done = progress, 0

    def start(self, label: str, total: int) -> None:
        pass

    def advance(self, count: int) -> None:
        self.done += count
        self.progress.advance(count)


class _ShardedModel:
    """What is not an ability is the model's own."""

    def __init__(self, model: Any, shards: Shards) -> None:
        self.model, self.shards = model, shards
        self.cut = 0  # texts or pairs, in all shards so far

    def __getattr__(self, name: str) -> Any:
        return getattr(self.model, name)

    @property
    def truncated(self) -> int:
        return self.cut

    def ask(self, key: str, rows: int, compute: Callable[[Progress], Arrays], progress: Progress) -> Arrays:
        """The answers of one shard, from its file or computed; its rows count as done either way."""
        inner = _Inner(progress)
        cuts = lambda: int(getattr(self.model, "truncated", 0))  # noqa: E731
        arrays, cut = self.shards.answer(key, rows, lambda: compute(inner), cuts)
        if inner.done < rows:
            progress.advance(rows - inner.done)
        self.cut += cut
        return arrays


class DividedEncoder(_ShardedModel):
    """An encoder whose searches may be divided among processes (`core.models.DividesSearches`)."""

    @property
    def truncated(self) -> int:
        return self.cut + int(truncated_by(self.model))

    def ranges(self, rows: int, window: int) -> list[slice]:
        part, windows = _PART.get(), math.ceil(rows / window)
        count = min(part.parts if part.ranges else 1, windows)
        ends = [min(window * (windows * number // max(1, count)), rows) for number in range(count + 1)]
        return [slice(start, end) for start, end in pairwise(ends)]

    def search_range(
        self, number: int, question: Sequence[NDArray[Any]], search: Callable[[], Arrays]
    ) -> tuple[Arrays, int]:
        key = _digest_arrays(question)
        if stored := self.shards.read(key):
            self.cut += stored[1]
            return stored
        if _PART.get().number not in (None, number):
            return (), 0
        before = self.truncated
        arrays = search()
        self.shards.write(key, arrays, self.truncated - before)
        return arrays, 0


class ShardedEncoder(DividedEncoder):
    def __init__(self, model: Any, shards: Shards, name: str = "") -> None:
        super().__init__(model, shards)
        self._name = name  # of the side

    @property
    def truncated(self) -> int:
        return self.cut

    def side(self, side: str) -> Any:
        inner = on_side(self.model, side)
        return self if inner is self.model else _SideOf(self, inner, side)

    def encode(self, texts: Sequence[str], *, prompt: str | None = None, progress: Progress = SILENT) -> Vectors:
        distinct, places = once_each(texts)
        if not distinct:
            return np.asarray(self.model.encode(texts, prompt=prompt, progress=progress))
        progress.start("Encoding", len(distinct))
        parts = []
        for rows in slices(len(distinct), SHARD):
            chunk = distinct[rows]

            def compute(inner: Progress, chunk: Sequence[str] = chunk) -> Arrays:
                return (self.model.encode(chunk, prompt=prompt, progress=inner),)

            key = _digest("encode", self._name, repr(prompt), *chunk)
            parts.append(self.ask(key, len(chunk), compute, progress)[0])
        table = np.concatenate(parts) if len(parts) > 1 else parts[0]
        return table[places] if len(distinct) < len(texts) else table


class _SideOf(ShardedEncoder):
    """One side of an encoder that has two; what it cuts counts for the whole."""

    def __init__(self, whole: ShardedEncoder, model: Any, name: str) -> None:
        super().__init__(model, whole.shards, name)
        self._whole = whole

    def ask(self, key: str, rows: int, compute: Callable[[Progress], Arrays], progress: Progress) -> Arrays:
        before = self.cut
        arrays = super().ask(key, rows, compute, progress)
        self._whole.cut += self.cut - before
        return arrays


class ShardedScorer(_ShardedModel):
    def score(self, pairs: Sequence[tuple[str, str]], *, progress: Progress = SILENT) -> Vectors:
        if not pairs:
            return np.asarray(self.model.score(pairs, progress=progress))
        distinct, places = once_each([(a, b) for a, b in pairs])
        progress.start("Scoring", len(distinct))
        parts = []
        for rows in slices(len(distinct), SHARD):
            chunk = distinct[rows]

            def compute(inner: Progress, chunk: Sequence[tuple[str, str]] = chunk) -> Arrays:
                return (self.model.score(chunk, progress=inner),)

            key = _digest("score", *(text for pair in chunk for text in pair))
            parts.append(self.ask(key, len(chunk), compute, progress)[0])
        return np.concatenate(parts)[places]


class ShardedMaskedLM(_ShardedModel):
    def log_probs(self, questions: MaskedTokens, *, progress: Progress = SILENT) -> tuple[Vectors, Vectors]:
        progress.start("Masking", len(questions))
        parts = []
        for rows in slices(len(questions), SHARD):
            chunk = MaskedTokens(questions.texts, *(a[rows] for a in _places(questions)))

            def compute(inner: Progress, chunk: MaskedTokens = chunk) -> Arrays:
                return tuple(self.model.log_probs(chunk, progress=inner))

            parts.append(self.ask(_digest_questions(chunk), len(chunk), compute, progress))
        if not parts:
            return self.model.log_probs(questions, progress=progress)  # type: ignore[no-any-return]
        log_probs, ranks = zip(*parts, strict=True)
        return np.concatenate(log_probs), np.concatenate(ranks)


def _places(questions: MaskedTokens) -> tuple[NDArray[np.int32], ...]:
    return questions.text, questions.position, questions.until


def _digest(*texts: str) -> str:
    total = hashlib.sha256()
    for text in texts:
        content = text.encode("utf-8", "surrogatepass")
        total.update(len(content).to_bytes(8, "little") + content)
    return total.hexdigest()[:40]


def _digest_arrays(arrays: Sequence[NDArray[Any]]) -> str:
    total = hashlib.sha256(b"search")
    for array in arrays:
        total.update(f"{array.dtype}{array.shape}".encode() + np.ascontiguousarray(array).tobytes())
    return total.hexdigest()[:40]


def _digest_questions(questions: MaskedTokens) -> str:
    total = hashlib.sha256(b"log_probs")
    for text in np.unique(questions.text):
        total.update(questions.texts[text].tobytes() + b"\0")
    first = questions.text - questions.text.min()  # the same tokens, wherever they stand in the run
    for places in (first, questions.position, questions.until):
        total.update(np.ascontiguousarray(places).tobytes())
    return total.hexdigest()[:40]
