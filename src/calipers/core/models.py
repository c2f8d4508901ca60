"""Models, by what they can do, and the progress of their work."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from calipers.core.references import clean

_FILES = (".onnx", ".npy", ".parquet", ".trec", ".txt", ".run")  # that are models by themselves


class Progress(Protocol):
    """How long work reports its progress. The command line shows a bar, the library stays silent."""

    def start(self, label: str, total: int) -> None: ...

    def advance(self, count: int) -> None: ...


class Silent:
    def start(self, label: str, total: int) -> None:
        pass

    def advance(self, count: int) -> None:
        pass


SILENT = Silent()


@dataclass(frozen=True)
class Within:
    """The progress of a part of some work: what it does is shown behind what it is a part of."""

    progress: Progress
    what: str

    def start(self, label: str, total: int) -> None:
        self.progress.start(f"{self.what}: {label}" if label else self.what, total)

    def advance(self, count: int) -> None:
        self.progress.advance(count)


@dataclass(frozen=True)
class ModelInfo:
    """Which model was run, and how: enough to distinguish two models and to run the same one again."""

    backend: str
    model_id: str
    path: str | None
    device: str
    fingerprint: str  # of the weights and the tokenizer; of the address for an endpoint
    settings: Mapping[str, Any] = field(default_factory=dict)  # pooling, normalisation, prompt, dtype, batching …
    notes: tuple[str, ...] = ()  # what a reader should be warned of
    size: int | None = None  # bytes of its weights on disk; None where there are none, or elsewhere

    def __post_init__(self) -> None:
        object.__setattr__(self, "model_id", clean(self.model_id))  # a name may be typed as an address

    @property
    def artifact(self) -> str:
        return artifact_name(self.model_id, self.path)


def artifact_name(model_id: str, path: str | None, folders: int = 1) -> str:
    """What was measured, by its place: a file with so many of the folders above it, or a folder with all but one of
    them. The id where the model is on the hub, in memory or nowhere: an id may also be the one of the tokenizer.

    >>> artifact_name("float32", "built/onnx/model_q4.onnx"), artifact_name("m", "/tmp/models/MiniLM", folders=2)
    ('built/model_q4.onnx', 'models/MiniLM')
    """
    if path is None or "models--" in path:
        return model_id
    if "://" in path:
        return path
    place = Path(path).absolute()
    parts = [part for part in place.parts if part != place.anchor]
    if place.suffix.lower() not in _FILES:
        return "/".join(parts[-folders:]) or model_id
    above = parts[:-2] if folders == 1 and parts[-2:-1] == ["onnx"] else parts[:-1]
    return "/".join([*above[-folders:], parts[-1]])


@dataclass(frozen=True)
class Speed:
    """How fast a model answers: one input at a time on one core, and all of them at once on the cores it may use."""

    p50_ms: float
    p95_ms: float
    inputs_per_second: float
    timed_inputs: int  # texts, or pairs of texts for a cross-encoder
    timed_at: float  # seconds since 1970; the same for models that took turns on the same inputs

    @classmethod
    def of(cls, timing: Mapping[str, float]) -> Speed | None:
        """What the `timing` of a run says; None where it was not timed."""
        names = [entry.name for entry in fields(cls)]
        return cls(**{name: timing[name] for name in names}) if all(name in timing for name in names) else None  # type: ignore[arg-type]


Arrays = tuple[NDArray[Any], ...]


class Model(Protocol):
    @property
    def info(self) -> ModelInfo: ...


class Encoder(Model, Protocol):
    """A model that turns texts into vectors."""

    def encode(
        self, texts: Sequence[str], *, prompt: str | None = None, progress: Progress = SILENT
    ) -> NDArray[np.float32]:
        """One row per text, in their order: float32[n, d]. `prompt` is put before every text and replaces the model's
        own (`info.settings["prompt"]`), which None keeps and "" removes."""
        ...


@runtime_checkable
class HasSides(Protocol):
    """An encoder that computes queries and documents in different ways."""

    def side(self, side: str) -> Encoder: ...


@runtime_checkable
class DividesSearches(Protocol):
    """An encoder whose searches are divided into ranges of the corpus, which several processes may share."""

    def ranges(self, rows: int, window: int) -> Sequence[slice]:
        """Ranges of whole windows that cover the rows; one, where searches are not divided."""
        ...

    def search_range(
        self, number: int, question: Sequence[NDArray[Any]], search: Callable[[], Arrays]
    ) -> tuple[Arrays, int]:
        """What `search` gives for the range of this number, now or in an earlier process, and how many texts that one
        cut (0 where it runs now). Nothing, where another process is to do it. `question` is all that decides it."""
        ...


def on_side(model: Encoder, side: str) -> Encoder:
    """The encoder of "query" or "document" texts: the model itself, unless it has one for each side."""
    return model.side(side) if isinstance(model, HasSides) else model


def truncated_by(model: object) -> int:
    """How many texts or pairs a model has cut so far, with those of the models that it consists of."""
    parts = [getattr(model, name, None) for name in ("first", "second", "encoder")] + list(getattr(model, "models", ()))
    return int(getattr(model, "truncated", 0)) + sum(truncated_by(part) for part in parts if part is not None)


class PairScorer(Model, Protocol):
    """A model that reads two texts together: a cross-encoder."""

    def score(self, pairs: Sequence[tuple[str, str]], *, progress: Progress = SILENT) -> NDArray[np.float32]:
        """float32[n] for a model with one output, float32[n, labels] for one with several; in their order."""
        ...


@dataclass(frozen=True)
class TokenizedText:
    """A text as a masked language model sees it. `words[i]` is the word that token i belongs to, -1 for none."""

    ids: NDArray[np.int32]
    scored: NDArray[np.int32]  # positions of the real tokens, which are hidden one by one
    words: NDArray[np.int32]
    characters: int  # how much of the text the tokens cover
    unknown: int  # how many of the scored tokens are not in the vocabulary
    truncated: bool
    spaced: bool = False  # words are what whitespace separates: those of the tokenizer hold several of them


@dataclass(frozen=True)
class MaskedTokens:
    """Questions to a masked language model: in text `texts[i]`, hide position `positions[i]` and, up to `until[i]`,
    what follows it; how likely was the token that stood there?"""

    texts: Sequence[NDArray[np.int32]]
    text: NDArray[np.int32]
    position: NDArray[np.int32]
    until: NDArray[np.int32]

    def __len__(self) -> int:
        return len(self.position)


class MaskedLM(Model, Protocol):
    """A model that says how likely a hidden token is."""

    @property
    def max_length(self) -> int: ...

    def tokenize(self, texts: Sequence[str], *, truncate: bool = True) -> list[TokenizedText]: ...

    def log_probs(
        self, questions: MaskedTokens, *, progress: Progress = SILENT
    ) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """For each question the natural log of the probability, and the rank among the vocabulary (1 is best)."""
        ...

    def distributions(self, questions: MaskedTokens) -> NDArray[np.float32]:
        """For each question the log-probabilities of the whole vocabulary, float32[n, v]: pass a few at a time."""
        ...


@dataclass(frozen=True)
class Halo:
    """The tokens that a masked language model associates with a text, the most likely first, with the natural log of
    their probabilities. `echoes` marks tokens of the text itself. Empty for a text without tokens."""

    tokens: tuple[str, ...]
    log_probs: tuple[float, ...]
    echoes: tuple[bool, ...]


@runtime_checkable
class ShowsHalo(Protocol):
    """A masked language model that also gives the tokens it associates with a whole text."""

    def top_tokens(self, texts: Sequence[str], k: int = 10) -> list[Halo]: ...
