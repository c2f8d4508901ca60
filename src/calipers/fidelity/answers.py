"""What the other model answers: to every text alone, to a text again, and to texts that share a request."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, cast

import numpy as np

from calipers.core import Encoder, InferenceError, Progress
from calipers.fidelity.distances import gaps, refuse_invalid
from calipers.metrics.arrays import Floats, Ints, Vectors
from calipers.models import ModelOptions, find, load_model
from calipers.models.transport import Refused

_SIZES = (2, 8, 32)  # texts in a request
_ROUNDING = 0.02  # what half precision may move between batches


class Shared(NamedTuple):
    """Answers to texts that shared a request: `places` are their numbers among all texts."""

    size: int
    places: Ints
    vectors: Vectors

    def moved(self, alone: Vectors) -> Floats:
        return gaps(alone[self.places], self.vectors)

    def is_shuffled(self, alone: Vectors, limit: float) -> bool:
        """Whether what moved is the answer to another text of the same request."""
        moved = np.flatnonzero(self.moved(alone) > limit)
        mine = alone[self.places]
        explained = 0
        for row in moved:
            start = row - row % self.size
            beside = mine[start : start + self.size]
            explained += bool((gaps(beside, np.repeat(self.vectors[[row]], len(beside), axis=0)) <= limit).any())
        return len(moved) > 1 and explained >= 0.9 * len(moved)


@dataclass(frozen=True)
class Answers:
    """`places` are the texts that were answered; `vectors` their rows, each text alone in its request."""

    model: Encoder
    places: Ints
    vectors: Vectors
    refused: dict[int, str]
    repeated: float  # the largest gap between two answers to one text
    shared: tuple[Shared, ...]
    notes: tuple[str, ...] = ()


def load_encoder(reference: str, options: ModelOptions) -> Encoder:
    return cast(Encoder, load_model(reference, options=options))


class Other:
    """The other model, with any number of texts in a request."""

    def __init__(self, reference: str | Encoder, options: ModelOptions) -> None:
        self._reference, self._options = reference, options
        backend = find(reference).backend if isinstance(reference, str) else ""
        self.is_endpoint = backend == "http"
        self._batches = backend in ("torch", "onnx", "http")  # takes a number of texts in a batch
        self.alone = self.batched(1)

    def batched(self, size: int) -> Encoder:
        if not isinstance(self._reference, str):
            return self._reference
        rows = size if self._batches else None
        return load_encoder(self._reference, replace(self._options, batch_size=rows))

    @property
    def sizes(self) -> tuple[int, ...]:
        if isinstance(self._reference, str) and not self._batches:
            return ()
        most = self._options.batch_size or _SIZES[-1]
        return tuple(sorted({size for size in (*_SIZES, most) if 1 < size <= most}))

    def encode_alone(self, texts: Sequence[str]) -> Vectors:
        if isinstance(self._reference, str):
            return self.alone.encode(texts)
        return np.concatenate([self.alone.encode([text]) for text in texts])

    def encode_shared(self, texts: Sequence[str], size: int) -> Vectors:
        model = self.batched(size)
        if isinstance(self._reference, str):
            return model.encode(texts)
        return np.concatenate([model.encode(texts[i : i + size]) for i in range(0, len(texts), size)])


def ask(other: Other, texts: Sequence[str], progress: Progress) -> Answers:
    progress.start("Asking", len(texts))
    vectors, refused = _ask_alone(other, texts)
    progress.advance(len(texts))
    refuse_invalid(vectors, "the other model")
    places = np.array([i for i in range(len(texts)) if i not in refused])
    again = [texts[i] for i in places[:3]]
    repeated = float(gaps(vectors[:3], other.encode_alone(again)).max())
    shared, notes = _ask_shared(other, [texts[i] for i in places])
    return Answers(other.alone, places, vectors, refused, repeated, shared, notes)


def _ask_alone(other: Other, texts: Sequence[str]) -> tuple[Vectors, dict[int, str]]:
    """The vectors of the texts that are not refused, and what was said of those that are."""
    try:
        return other.encode_alone(texts), {}
    except Refused:
        pass
    rows, refused = [], {}
    for place, text in enumerate(texts):
        try:
            rows.append(other.encode_alone([text]))
        except Refused as error:
            refused[place] = str(error)
            if len(refused) > len(texts) // 2:
                raise
    return np.concatenate(rows), refused


def _ask_shared(other: Other, texts: Sequence[str]) -> tuple[tuple[Shared, ...], tuple[str, ...]]:
    """Short and long texts take turns, so that every request mixes them. A size that is refused ends it."""
    by_length = sorted(range(len(texts)), key=lambda i: len(texts[i]))
    half = len(by_length) // 2
    mixed = [i for pair in zip(by_length[:half], by_length[half:][::-1], strict=False) for i in pair]
    shared: list[Shared] = []
    for size in other.sizes:
        places = np.array(mixed[: max(32, size)])
        if len(places) < 2:
            break
        try:
            vectors = other.encode_shared([texts[i] for i in places], size)
        except InferenceError as error:
            return tuple(shared), (f"requests of {size} texts fail: {error}",)
        refuse_invalid(vectors, "the other model")
        shared.append(Shared(size, places, vectors))
    return tuple(shared), ()


def batch_limit(alone: Floats, tolerance: float) -> float:
    """How far an answer may move with what shares its request: what half precision rounds, unless the answers to texts
    alone are exact."""
    return tolerance if (alone <= tolerance).all() else max(tolerance, _ROUNDING)
