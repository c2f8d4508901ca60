"""trust: a reference to a model, a corpus and questions to a trust score and its decisions."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from calipers import models
from calipers.core import (
    SILENT,
    DataError,
    Dataset,
    DataSource,
    Encoder,
    Progress,
    RequestError,
    fingerprint,
    name_some,
)
from calipers.data import columns, readers, trec
from calipers.layers import odd_queries
from calipers.metrics import neighbours
from calipers.models import ModelOptions
from calipers.tasks import retrieval
from calipers.tasks.retrieval import RetrievalOptions
from calipers.trust import Scores, Trust
from calipers.trust.records import Method

ODD = 200  # gibberish and vague queries that detectors are fitted on, each

# Where vectors come from: (model, texts, prompt, progress) → float32[n, d]. A cache is put here.
Embed = Callable[[Encoder, Sequence[str], str | None, Progress], NDArray[np.float32]]


def encode(model: Encoder, texts: Sequence[str], prompt: str | None, progress: Progress) -> NDArray[np.float32]:
    return model.encode(texts, prompt=prompt, progress=progress)


@dataclass(frozen=True)
class Wishes:
    """How to fit a trust score, or the file of one that was fitted before."""

    load: Path | None = None
    queries: str | None = None  # real queries; None: those beside the corpus, where judgements need them
    calibrate: str | None = None  # judgements
    out_of_domain: str | None = None  # queries that the corpus has no answer to
    codec: str | None = None
    k: int | None = None
    error: float | None = None
    method: Method | None = None
    query_prompt: str | None = None
    passage_prompt: str | None = None
    seed: int = 42
    model_options: ModelOptions = field(default_factory=ModelOptions)
    embed: Embed = encode

    def __post_init__(self) -> None:
        if self.load is None:
            return
        for name in ("queries", "calibrate", "out_of_domain", "codec", "k", "error", "method"):
            if getattr(self, name) is not None:
                raise RequestError(f"--{name.replace('_', '-')} does not apply to a trust score that is loaded")


@dataclass(frozen=True, eq=False)
class Answer:
    """What came out: the trust score, and for each question its score and its neighbours in the corpus."""

    trust: Trust
    model_id: str
    corpus: Dataset
    questions: tuple[str, ...]
    scores: Scores
    rows: NDArray[np.int64]  # [q, k], -1 for none
    cosines: NDArray[np.float64]  # [q, k]
    notes: tuple[str, ...] = ()


def ask(
    model: str | Encoder,
    corpus: str,
    questions: Sequence[str] = (),
    wishes: Wishes | None = None,
    *,
    progress: Progress = SILENT,
) -> Answer:
    """Embed a corpus, fit or load a trust score for it, and score the questions. Files are read before the model is."""
    wish = wishes or Wishes()
    if any(not question.strip() for question in questions):
        raise RequestError("a query is blank: there is nothing to search for")
    documents = read_texts(corpus, "corpus")
    loaded = Trust.load(wish.load) if wish.load else None
    known = None if loaded else _read_known(corpus, wish)
    encoder = _load(model, wish, documents)
    embed = _Embedder(encoder, wish, progress)
    notes = _refuse_other_model(loaded, encoder, documents) if loaded else ()
    vectors = embed(documents.columns["text"], query=False)
    trust = loaded or _fit(embed, documents, vectors, known, wish)
    asked = embed(questions) if questions else np.empty((0, vectors.shape[1]), np.float32)
    if asked.shape[1] != trust.codec.dimensions:
        raise RequestError(
            f"{encoder.info.model_id} gives vectors of {asked.shape[1]} dimensions and the trust score is for "
            f"{trust.codec.dimensions}"
        )
    distances, rows = neighbours.nearest(asked, vectors, trust.k)
    scores = trust.score_in(asked, vectors, rows)
    return Answer(trust, encoder.info.model_id, documents, tuple(questions), scores, rows, 1 - distances**2 / 2, notes)


@dataclass(frozen=True)
class _Embedder:
    model: Encoder
    wish: Wishes
    progress: Progress

    def __call__(self, texts: Sequence[str], *, query: bool = True) -> NDArray[np.float32]:
        options = RetrievalOptions(query_prompt=self.wish.query_prompt, passage_prompt=self.wish.passage_prompt)
        prompt = retrieval.prompts(self.model.info, options)[0 if query else 1]
        return self.wish.embed(self.model, texts, prompt, self.progress)


@dataclass(frozen=True)
class _KnownQueries:
    queries: Dataset | None
    qrels: Sequence[Mapping[str, float]] | None
    foreign: Dataset | None


def _read_known(corpus: str, wish: Wishes) -> _KnownQueries:
    """Queries, judgements and foreign queries, as far as they were asked for."""
    foreign = read_texts(wish.out_of_domain, "queries") if wish.out_of_domain else None
    if wish.calibrate is None:
        return _KnownQueries(read_texts(wish.queries, "queries") if wish.queries else None, None, foreign)
    beside = Path(os.path.expanduser(corpus))
    place = wish.queries or str(beside if beside.is_dir() else beside.parent)
    queries = read_texts(place, "queries")
    judgements = trec.read_qrels(Path(os.path.expanduser(wish.calibrate)))
    judged = [row for row, id in enumerate(queries.ids) if id in judgements]
    if not judged:
        raise DataError(
            f"{wish.calibrate} judges no query of {queries.source.path}: it has {name_some(list(judgements), 3)}, "
            f"and the queries {name_some(queries.ids, 3)} (--queries says where they are)"
        )
    chosen = queries.take(judged)
    return _KnownQueries(chosen, [judgements[id] for id in chosen.ids], foreign)


def _fit(
    embed: _Embedder, documents: Dataset, vectors: NDArray[np.float32], known: _KnownQueries | None, wish: Wishes
) -> Trust:
    real = known.queries if known else None
    texts = _odd_texts(documents, known, wish) if real else {}
    info = embed.model.info
    chosen: dict[str, Any] = {key: getattr(wish, key) for key in ("codec", "k", "error", "method")}
    return Trust.fit(
        vectors,
        query_vectors=embed(real.columns["text"]) if real else None,
        qrels=known.qrels if known else None,
        corpus_ids=documents.ids,
        odd={kind: embed(some) for kind, some in texts.items()},
        seed=wish.seed,
        about={
            "model": info.model_id,
            "model_fingerprint": info.fingerprint,
            "corpus": documents.source.path,
            "corpus_fingerprint": documents.fingerprint,
        },
        **{key: value for key, value in chosen.items() if value is not None},
    )


def _odd_texts(documents: Dataset, known: _KnownQueries | None, wish: Wishes) -> dict[str, list[str]]:
    """Queries that deserve no answer, by kind: made where they can be, read where they cannot."""
    found = {
        "gibberish": odd_queries.gibberish(ODD, seed=wish.seed),
        "vague": odd_queries.vague(documents.columns["text"], ODD),
    }
    if known and known.foreign:
        found["out_of_domain"] = list(known.foreign.columns["text"])
    return {kind: texts for kind, texts in found.items() if texts}


def _load(model: str | Encoder, wish: Wishes, documents: Dataset) -> Encoder:
    loaded: Any = models.load(models.find(model), wish.model_options, "encode") if isinstance(model, str) else model
    if hasattr(loaded, "bind"):
        loaded = loaded.bind({text: [id] for id, text in zip(documents.ids, documents.columns["text"], strict=True)})
    return cast(Encoder, loaded)


def _refuse_other_model(trust: Trust, model: Encoder, documents: Dataset) -> tuple[str, ...]:
    """A trust score knows one model; of another corpus it is told that the shares may differ."""
    made = trust.about.get("model_fingerprint")
    if made and made != model.info.fingerprint:
        raise RequestError(
            f"the trust score was fitted for {trust.about.get('model', 'another model')}, whose weights differ from "
            f"those of {model.info.model_id}: fit it again with --save"
        )
    if trust.about.get("corpus_fingerprint", documents.fingerprint) != documents.fingerprint:
        return (
            f"the trust score was fitted on another corpus, {trust.about.get('corpus')}: its thresholds may not hold",
        )
    return ()


# --- texts -------------------------------------------------------------------------------------------------------


def read_texts(reference: str, what: str) -> Dataset:
    """Texts with ids, in the column `text`: WHAT.jsonl of a folder, or a file with the columns text and, if there are
    any, title and _id or id; one text per line has its line for an id. Blank texts are left out."""
    place = Path(os.path.expanduser(reference))
    file = place
    if place.is_dir():
        file = next((f for f in (place / f"{what}.jsonl", place / f"{what}.jsonl.gz") if f.is_file()), place)
        if file is place:
            raise DataError(f"the folder {place} has no {what}.jsonl")
    found: dict[str, str] = {}
    blank = 0
    for id, where, text in _texts(file):
        if id in found:
            raise DataError(f"{where}: the id {id!r} stands already above")
        if text:
            found[id] = text
        blank += not text
    if not found:
        raise DataError(f"{file} holds no text")
    ids, texts = tuple(found), {"text": list(found.values())}
    return Dataset(
        ids, texts, DataSource(str(file), rows_read=len(ids) + blank, rows_blank=blank), fingerprint(ids, texts)
    )


def _texts(file: Path) -> Iterator[tuple[str, str, str]]:
    """Id, place and text of each row; a title stands before the text, as BEIR has it."""
    for number, row in enumerate(readers.read(file, None), start=1):
        if "text" not in row.values:
            raise DataError(
                f"{row.where}: there is no 'text'; found {name_some(list(map(str, row.values))) or 'nothing'}"
            )
        name = next((name for name in ("_id", "id") if name in row.values), None)
        parts = [columns.read_text(row.values.get(key), row, key) for key in ("title", "text")]
        yield str(number) if name is None else columns.read_id(row, name), row.where, " ".join(parts).strip()
