"""Many texts, or pairs of texts, through a model: each distinct one once, sorted by tokens, in batches of a budget."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from itertools import islice
from typing import Protocol, TypeVar

import numpy as np

from calipers.core import InferenceError, ModelInfo, Progress
from calipers.metrics.arrays import Ints, Vectors
from calipers.metrics.threads import tokenizer_threads, torch_threads
from calipers.models.tokenizer import Tokenizer, Tokens

_WINDOW = 65_536  # texts or pairs whose token ids are held in memory together
_AHEAD, _TAPER = 8, 4  # batches that are still to come while they are full; by how much the last ones are smaller

Answer = TypeVar("Answer")
Item = TypeVar("Item", bound=Hashable)  # a text, or a pair of them
Forward = Callable[["Batch"], Vectors]


@dataclass(frozen=True)
class Batching:
    """How rows are put together. At most one of `tokens` and `rows` is set; a fixed shape is filled up to exactly."""

    tokens: int | None
    rows: int | None
    why: str  # shown to the user
    fixed_rows: int | None = None  # of a graph
    fixed_length: int | None = None
    most_rows: int | None = None  # where each row costs memory of its own, such as a row of logits
    equal_lengths: bool = False  # only rows of one length share a batch
    forced: bool = False  # by the user

    def __str__(self) -> str:
        several = f"{self.rows} rows a batch" if self.rows else f"{self.tokens} tokens a batch"
        several += ", of equal length" if self.equal_lengths else ""
        size = "one row at a time" if self.rows == 1 else several
        return f"{size} ({self.why})" if self.why else size

    def size(self, length: int, left: float = math.inf) -> int:
        """How many rows of this many tokens make a batch, of those that are left. Towards the end they become
        fewer, down to a quarter, so that the cores finish together; how many cores there are changes nothing.

        >>> batching = Batching(1_024, None, "")
        >>> [batching.size(64, left) for left in (1_000, 100, 10)]
        [16, 12, 4]
        """
        if self.rows:
            return self.rows
        rows = max(1, (self.tokens or 1) // (self.fixed_length or max(1, length)))
        rows = min(rows, self.most_rows or rows)
        return rows if self.forced else int(max(-(-rows // _TAPER), min(rows, left // _AHEAD)))


@dataclass(frozen=True)
class Batch:
    """Token ids of several texts, padded to the longest of them or to a fixed shape: int64[rows, length] each."""

    ids: Ints
    type_ids: Ints
    mask: Ints  # 1 at real tokens
    rows: int  # the real ones; the others only fill a fixed shape
    first_position: int = 0

    @property
    def positions(self) -> Ints:
        """The position of every token, as models count them that take positions as an input."""
        return np.broadcast_to(np.arange(self.ids.shape[1]) + self.first_position, self.ids.shape)

    @property
    def padded(self) -> bool:
        return not bool(self.mask.all())


class Padding(Protocol):
    """What fills a short row, and the position of a row's first token (see `tokenizer.first_position`)."""

    @property
    def pad_id(self) -> int: ...

    @property
    def first_position(self) -> int: ...


def pad(tokens: Sequence[Tokens], padding: Padding, *, rows: int | None = None, length: int | None = None) -> Batch:
    """Rows side by side, as long as the longest or as `length`; what is longer is cut.

    A batch of more `rows` is filled up with its first row: a row that is all padding would be NaN in attention.
    """
    shape = (rows or len(tokens), length or max(1, *(len(row.ids) for row in tokens)))
    ids, type_ids, mask = np.full(shape, padding.pad_id), np.zeros(shape, np.int64), np.zeros(shape, np.int64)
    for i, row in enumerate([*tokens, *[tokens[0]] * (shape[0] - len(tokens))]):
        n = min(len(row.ids), shape[1])
        ids[i, :n], type_ids[i, :n], mask[i, :n] = row.ids[:n], row.type_ids[:n], 1
    return Batch(ids, type_ids, mask, len(tokens), padding.first_position)


@dataclass(frozen=True)
class Work:
    """How rows are batched, and how many batches are computed at once."""

    batching: Batching
    workers: int
    device: str = ""  # of PyTorch

    def pad(self, tokens: Sequence[Tokens], padding: Padding) -> Batch:
        return pad(tokens, padding, rows=self.batching.fixed_rows, length=self.batching.fixed_length)

    def one_core_each(self) -> AbstractContextManager[None]:
        """Each worker computes its batch on one core, with less waiting than one batch on all. A GPU is left alone."""
        return torch_threads(1) if self.device == "cpu" else nullcontext()


class Tally:
    """A number that grows while a model works. Copies of the model share it."""

    def __init__(self) -> None:
        self.count = 0


@dataclass(frozen=True, eq=False, kw_only=True)
class CountsTruncated:
    """A model that counts the texts or pairs that it cuts; equal ones that are read together count once."""

    tally: Tally = field(default_factory=Tally)

    @property
    def truncated(self) -> int:
        """How many texts or pairs were cut so far."""
        return self.tally.count


@dataclass(frozen=True, eq=False)
class BatchedModel(CountsTruncated):
    """A model that computes batches of tokens on several threads."""

    tokenizer: Tokenizer
    work: Work
    info: ModelInfo

    def compute(
        self,
        label: str,
        items: Sequence[Item],
        tokenize: Callable[[Sequence[Item]], list[Tokens]],
        forward: Forward,
        progress: Progress,
    ) -> Vectors:
        """What `forward` gives for each text or pair, in order: float32[n, d]. Equal ones share one pass."""
        distinct, places = once_each(items)
        progress.start(label, len(distinct))
        tokens: list[Tokens] = []  # of one window
        table: Vectors | None = None

        def compute_rows(rows: Ints) -> Vectors:
            batch = self.work.pad([tokens[i] for i in rows], self.tokenizer)
            return forward(batch)[: batch.rows]

        with self.work.one_core_each():
            for start in range(0, len(distinct), _WINDOW):
                with tokenizer_threads(self.work.workers):
                    tokens = tokenize(distinct[start : start + _WINDOW])
                lengths = np.array([len(row.ids) for row in tokens])
                self.tally.count += sum(row.cut for row in tokens)
                for rows, values in answers(lengths, compute_rows, self.work):
                    if table is None:
                        table = np.empty((len(distinct), values.shape[1]), dtype=np.float32)
                    table[start + rows] = values
                    progress.advance(len(rows))
        if table is None:
            raise InferenceError("there is no text to encode")
        return table[places] if len(distinct) < len(items) else table


def once_each(items: Sequence[Item]) -> tuple[list[Item], list[int]]:
    """The distinct items in order, and for each item the place of its equal among them.

    >>> once_each(["a", "b", "a"])
    (['a', 'b'], [0, 1, 0])
    """
    place = {item: i for i, item in enumerate(dict.fromkeys(items))}
    return list(place), [place[item] for item in items]


def answers(lengths: Ints, compute: Callable[[Ints], Answer], work: Work) -> Iterator[tuple[Ints, Answer]]:
    """`compute(rows)` for every batch, as they finish. One thread computes a batch: their number changes no bit. The
    only batch needs no thread of its own, whose start would be a part of the latency of one text."""
    batches = plan(lengths, work.batching)
    if len(batches) == 1:
        yield batches[0], compute(batches[0])
        return
    waiting, workers = iter(batches), work.workers
    with ThreadPoolExecutor(max_workers=workers) as pool:
        running: dict[Future[Answer], Ints] = {}
        try:
            while True:
                running |= {pool.submit(compute, rows): rows for rows in islice(waiting, 2 * workers - len(running))}
                if not running:
                    return
                done, _ = wait(running, return_when=FIRST_COMPLETED)
                for future in done:
                    yield running.pop(future), future.result()
        finally:
            pool.shutdown(cancel_futures=True)


def plan(lengths: Ints, batching: Batching) -> list[Ints]:
    """Row numbers of each batch, the longest rows first: no core is left alone with a big batch at the end."""
    order = np.argsort(-lengths, kind="stable")
    batches, start = [], 0
    while start < len(order):
        length = lengths[order[start]]
        rows = order[start : start + batching.size(int(length), len(order) - start)]
        if batching.equal_lengths:
            rows = rows[lengths[rows] == length]
        batches.append(rows)
        start += len(rows)
    return batches
