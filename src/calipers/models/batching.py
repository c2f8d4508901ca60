"""Many texts, or pairs of texts, through a model: each distinct one once, sorted by tokens, in batches of a budget.

Memory: they are taken in windows of `WINDOW`, whose token ids are held together; then one batch per worker.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from itertools import islice
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from calipers.core import InferenceError, Progress
from calipers.models.tokenizer import Tokenizer, Tokens

WINDOW = 65_536

Ints = NDArray[np.int64]
Answer = TypeVar("Answer")
Item = TypeVar("Item", bound=Hashable)  # a text, or a pair of them
Forward = Callable[["Batch"], NDArray[np.float32]]


@dataclass(frozen=True)
class Batching:
    """How rows are put together. At most one of `tokens` and `rows` is set; `why` is told to the user.

    `fixed_rows` and `fixed_length` are what a graph with a fixed shape demands: a batch is filled up to exactly that.
    """

    tokens: int | None
    rows: int | None
    why: str
    fixed_rows: int | None = None
    fixed_length: int | None = None
    most_rows: int | None = None  # where each row costs memory of its own, such as a row of logits

    def __str__(self) -> str:
        if self.rows == 1:
            size = "one row at a time"
        elif self.rows:
            size = f"{self.rows} rows a batch"
        else:
            size = f"{self.tokens} tokens a batch"
        return f"{size} ({self.why})" if self.why else size

    def size(self, length: int) -> int:
        """How many rows of this many tokens make a batch."""
        if self.rows:
            return self.rows
        rows = max(1, (self.tokens or 1) // (self.fixed_length or max(1, length)))
        return min(rows, self.most_rows) if self.most_rows else rows


@dataclass(frozen=True)
class Batch:
    """Token ids of a few texts, padded to the longest of them (or to what the graph demands): int64[rows, length]."""

    ids: Ints
    type_ids: Ints
    mask: Ints
    rows: int  # the real ones; the others only fill a fixed shape


def encode(
    texts: Sequence[str],
    *,
    tokenizer: Tokenizer,
    forward: Forward,
    batching: Batching,
    workers: int,
    progress: Progress,
) -> NDArray[np.float32]:
    """Vectors of the texts, in the order asked. Repeated texts share one forward pass."""
    progress.start("Encoding", len(set(texts)))
    return _each(texts, tokenizer.encode, tokenizer.pad_id, forward, batching, workers, progress)


def score(
    pairs: Sequence[tuple[str, str]],
    *,
    tokenizer: Tokenizer,
    forward: Forward,
    batching: Batching,
    workers: int,
    progress: Progress,
) -> NDArray[np.float32]:
    """What the model says of each pair, in the order asked: float32[n, labels]. Repeated pairs share one pass."""
    progress.start("Scoring", len(set(pairs)))
    return _each(pairs, tokenizer.encode_pairs, tokenizer.pad_id, forward, batching, workers, progress)


def _each(
    items: Sequence[Item],
    tokenize: Callable[[Sequence[Item]], list[Tokens]],
    pad_id: int,
    forward: Forward,
    batching: Batching,
    workers: int,
    progress: Progress,
) -> NDArray[np.float32]:
    distinct = list(dict.fromkeys(items))
    position = {item: i for i, item in enumerate(distinct)}
    found: NDArray[np.float32] | None = None
    for start in range(0, len(distinct), WINDOW):
        tokens = tokenize(distinct[start : start + WINDOW])
        lengths = np.array([len(row.ids) for row in tokens])
        compute = _computation(tokens, pad_id, forward, batching)
        for rows, answer in answers(lengths, compute, batching, workers):
            if found is None:
                found = np.empty((len(distinct), answer.shape[1]), dtype=np.float32)
            found[start + rows] = answer
            progress.advance(len(rows))
    if found is None:
        raise InferenceError("there is no text to encode")
    return found[[position[item] for item in items]] if len(distinct) < len(items) else found


def plan(lengths: Ints, batching: Batching) -> list[Ints]:
    """Row numbers of each batch, the longest rows first: no core is left alone with a big batch at the end."""
    order = np.argsort(-lengths, kind="stable")
    batches, start = [], 0
    while start < len(order):
        stop = start + batching.size(int(lengths[order[start]]))
        batches.append(order[start:stop])
        start = stop
    return batches


def pad(tokens: Sequence[Tokens], pad_id: int, batching: Batching) -> Batch:
    length = batching.fixed_length or max(len(row.ids) for row in tokens)
    shape = (batching.fixed_rows or len(tokens), length)
    ids, type_ids, mask = np.full(shape, pad_id), np.zeros(shape, np.int64), np.zeros(shape, np.int64)
    # A fixed batch is filled up with its first row: a row that is all padding would be NaN in attention.
    for i, row in enumerate([*tokens, *[tokens[0]] * (shape[0] - len(tokens))]):
        n = len(row.ids)
        ids[i, :n], type_ids[i, :n], mask[i, :n] = row.ids, row.type_ids, 1
    return Batch(ids, type_ids, mask, rows=len(tokens))


def _computation(
    tokens: Sequence[Tokens], pad_id: int, forward: Forward, batching: Batching
) -> Callable[[Ints], NDArray[np.float32]]:
    def compute(rows: Ints) -> NDArray[np.float32]:
        batch = pad([tokens[i] for i in rows], pad_id, batching)
        return forward(batch)[: batch.rows]

    return compute


def answers(
    lengths: Ints, compute: Callable[[Ints], Answer], batching: Batching, workers: int
) -> Iterator[tuple[Ints, Answer]]:
    """`compute(rows)` for every batch of rows, on `workers` threads, as they finish.

    Each batch is computed by one thread, so their number changes no bit.
    """
    waiting = iter(plan(lengths, batching))
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
