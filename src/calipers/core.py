"""The shared nouns: models, datasets, outcomes, metrics, results, and how things fail.

Imports nothing of ours, so that every other module may import it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Counts = NDArray[np.integer[Any]]
Columns = Mapping[str, NDArray[Any]]

# --- how things fail -------------------------------------------------------------------------------------------


class CalipersError(Exception):
    """Something the user can act on: the message is one sentence, the exit code says whose fault it is."""

    exit_code = 2


class RequestError(CalipersError):
    """What was asked cannot be done: an unknown task, a missing flag, a file in the way."""


class DataError(RequestError):
    """The data are wrong: the message names file, line, column, what was expected and what was found."""


class ModelError(CalipersError):
    """The model cannot be loaded."""

    exit_code = 3


class InferenceError(CalipersError):
    """The model was loaded but did not answer."""

    exit_code = 4


class InvalidOutput(InferenceError):
    """The model answered, and the answer is dead: non-finite, zero-norm or constant. `rows` are example ids."""

    def __init__(self, message: str, rows: Sequence[str]) -> None:
        super().__init__(message)
        self.rows = tuple(rows)


def name_some(names: Sequence[str], most: int = 5) -> str:
    """Name the first few and count the rest.

    >>> name_some(["a", "b", "c"], most=2)
    'a, b and 1 more'
    """
    shown = ", ".join(names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"


def printable(text: str) -> str:
    """One line, without the control characters that names and texts may hold and a terminal would obey.

    >>> printable("a\\x1b[2J\\nb")
    'a�[2J b'
    """
    return "".join(c if c.isprintable() else "�" for c in " ".join(text.split()))


# --- progress --------------------------------------------------------------------------------------------------


class Progress(Protocol):
    """Where long work says how far it is. The command line shows a bar, the library stays silent."""

    def start(self, label: str, total: int) -> None: ...

    def advance(self, count: int) -> None: ...


class Silent:
    def start(self, label: str, total: int) -> None:
        pass

    def advance(self, count: int) -> None:
        pass


SILENT = Silent()

# --- models ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ModelInfo:
    """What answered, and how: enough to tell two models apart and to run the same one again."""

    backend: str
    model_id: str
    path: str | None
    device: str
    fingerprint: str  # of the weights and the tokenizer; of the address for an endpoint
    settings: Mapping[str, Any] = field(default_factory=dict)  # pooling, normalisation, prompt, dtype, batching …
    notes: tuple[str, ...] = ()  # what a reader should be warned of


class Model(Protocol):
    @property
    def info(self) -> ModelInfo: ...


class Encoder(Protocol):
    """A model that turns texts into vectors."""

    @property
    def info(self) -> ModelInfo: ...

    def encode(self, texts: Sequence[str], *, progress: Progress = SILENT) -> NDArray[np.float32]:
        """One row per text, in the order asked: float32[n, d]."""
        ...


class PairScorer(Protocol):
    """A model that reads two texts together: a cross-encoder."""

    @property
    def info(self) -> ModelInfo: ...

    def score(self, pairs: Sequence[tuple[str, str]], *, progress: Progress = SILENT) -> NDArray[np.float32]:
        """float32[n] for a model with one output, float32[n, labels] for one with several; in the order asked."""
        ...


@dataclass(frozen=True)
class TokenizedText:
    """A text as a masked language model sees it. `words[i]` is the word that token i belongs to, -1 for none."""

    ids: NDArray[np.int32]
    scored: NDArray[np.int32]  # positions of the real tokens, which are asked for one by one
    words: NDArray[np.int32]
    characters: int  # how much of the text the tokens cover
    unknown: int  # how many of the scored tokens are not in the vocabulary
    truncated: bool


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


class MaskedLM(Protocol):
    """A model that says how likely a hidden token is."""

    @property
    def info(self) -> ModelInfo: ...

    @property
    def max_length(self) -> int: ...

    def tokenize(self, texts: Sequence[str], *, truncate: bool = True) -> list[TokenizedText]: ...

    def log_probs(
        self, questions: MaskedTokens, *, progress: Progress = SILENT
    ) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """For each question the natural log of the probability, and the rank among the vocabulary (1 is best)."""
        ...


# --- data ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Column:
    """A column that a task reads: `key` is the name in `--column key=name`, `default` the name it has usually."""

    key: str
    default: str
    kind: Literal["text", "number", "label", "texts", "documents"]
    about: str
    optional: bool = False


@dataclass(frozen=True)
class Document:
    """A text that may be ranked, and how relevant it is where the data say so."""

    text: str
    id: str | None = None
    relevance: float | None = None


@dataclass(frozen=True)
class DataSource:
    """Where the rows came from, and how they were chosen."""

    path: str
    name: str | None = None
    split: str | None = None
    revision: str | None = None
    requested: int | None = None  # --samples; None means every row
    shuffle: bool = True
    seed: int = 42
    streaming: bool = False
    columns_mapping: Mapping[str, str] = field(default_factory=dict)
    rows_read: int = 0
    rows_blank: int = 0


@dataclass(frozen=True)
class Dataset:
    """Rows as named columns (by column key), an id for each, and a fingerprint of both.

    `tables` are further rows that all of these refer to, such as the corpus of a search; the fingerprint covers them.
    `counts` are facts about the reading, such as how many judgements name a document that is not there.
    """

    ids: tuple[str, ...]
    columns: Mapping[str, Sequence[Any]]
    source: DataSource
    fingerprint: str
    tables: Mapping[str, Dataset] = field(default_factory=dict)
    counts: Mapping[str, float] = field(default_factory=dict)
    notes: tuple[str, ...] = ()  # what a reader should be warned of

    def __len__(self) -> int:
        return len(self.ids)

    def take(self, rows: Sequence[int]) -> Dataset:
        """Some of the rows, in this order, with the fingerprint that they have alone."""
        ids = tuple(self.ids[i] for i in rows)
        columns = {key: [values[i] for i in rows] for key, values in self.columns.items()}
        return Dataset(ids, columns, self.source, fingerprint(ids, columns, self.tables), self.tables, self.counts)


def fingerprint(
    ids: Sequence[str], columns: Mapping[str, Sequence[Any]], tables: Mapping[str, Dataset] | None = None
) -> str:
    """SHA-256 over ids and values, row by row, then over the fingerprints of the tables that the rows refer to.

    Where the columns came from and what they were called do not matter.
    """
    total = hashlib.sha256()
    for row in zip(ids, *columns.values(), strict=True):
        total.update(json.dumps(row, ensure_ascii=True, sort_keys=True, default=vars).encode() + b"\n")
    for table in (tables or {}).values():
        total.update(table.fingerprint.encode() + b"\n")
    return f"sha256:{total.hexdigest()}"


# --- outcomes and metrics --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Outcomes:
    """What came out of each example. `columns` has one entry per example, the unit that a bootstrap resamples.

    `details` are tables of a finer grain (tokens of a text) whose column `example` points back to the example's row;
    `counts` are facts about the run as a whole, such as how many texts were truncated, or a threshold.
    """

    ids: tuple[str, ...]
    columns: Columns
    texts: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    details: Mapping[str, Columns] = field(default_factory=dict)
    counts: Mapping[str, float] = field(default_factory=dict)
    notes: tuple[str, ...] = ()  # what a reader should be warned of

    def __len__(self) -> int:
        return len(self.ids)


Statistic = Callable[[Counts], Floats]


@dataclass(frozen=True)
class Thresholds:
    """How much worse still passes, and from where on it is a regression. Shares when relative, points when not."""

    passes: float
    at_risk: float
    relative: bool = True

    def __str__(self) -> str:
        if self.relative:
            return f"{self.passes:.0%} / {self.at_risk:.0%}"
        return f"{self.passes:g} / {self.at_risk:g} points"


@dataclass(frozen=True)
class Metric:
    """A number about outcomes.

    `statistic(columns)` prepares whatever is shared between resamples (a sort, say) and returns a function of how
    often each example counts: int[n, r] to float[r]. The plain value is the one where every example counts once.
    """

    name: str
    about: str
    statistic: Callable[[Columns], Statistic]
    higher_is_better: bool = True
    thresholds: Thresholds = Thresholds(0.05, 0.10)
    digits: int = 2
    needs: tuple[str, ...] = ()  # outcome columns that only some options give; without them the metric is left out

    def value(self, columns: Columns) -> float:
        """NaN where the metric is not defined."""
        examples = len(next(iter(columns.values())))
        return float(self.statistic(columns)(np.ones((examples, 1), dtype=np.int64))[0])


# --- tasks and results -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class NoOptions:
    """The options of a task that has none."""


@dataclass(frozen=True)
class DefaultData:
    path: str
    name: str | None
    split: str


@dataclass(frozen=True)
class Task:
    """What is asked of a model. The first metric is the primary one."""

    name: str
    aliases: tuple[str, ...]
    about: str
    ability: str  # what a model must be able to do: a key of `models.ABILITIES`
    unit: str  # what one example is called: "pair", "text", "query"
    columns: tuple[Column, ...]
    default_data: DefaultData
    metrics: tuple[Metric, ...]
    check: Callable[[Dataset], None]  # refuse data that cannot give a number, before a model is loaded
    text_ids: Callable[[Dataset], Mapping[str, Sequence[str]]]  # text → the ids that vectors may be stored under
    run: Callable[[Any, Dataset, Any, Progress], Outcomes]
    options: type[Any] = NoOptions  # a frozen dataclass, every field with a default
    data: Literal["rows", "beir"] = "rows"  # a table of rows, or a folder with a corpus, queries and judgements
    metrics_for: Callable[[Any], tuple[Metric, ...]] | None = None  # where the options name the metrics: ndcg@k

    def measures(self, options: Any) -> tuple[Metric, ...]:
        """The metrics under these options, the primary one first."""
        return self.metrics_for(options) if self.metrics_for else self.metrics


@dataclass(frozen=True)
class Result:
    """A run's record: what was asked, on what, what came out. It holds no verdict."""

    run_id: str
    created: str
    task: str
    options: Mapping[str, Any]  # the task's own
    model: ModelInfo
    dataset: DataSource
    fingerprint: str
    request: Mapping[str, Any]  # {"given": …, "defaulted": …}
    metrics: Mapping[str, float]
    intervals: Mapping[str, tuple[float, float] | None]
    bootstrap: Mapping[str, Any]
    warnings: tuple[str, ...]
    timing: Mapping[str, float]
    environment: Mapping[str, Any]
    outcomes: Outcomes


@dataclass(frozen=True)
class RunLine:
    """One run in a listing: what a reader needs to find it again."""

    run_id: str
    created: str
    task: str
    model_id: str
    dataset: str
    examples: int
    metric: str
    value: float
