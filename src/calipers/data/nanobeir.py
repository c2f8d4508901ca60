"""Sets of NanoBEIR's layout to a Dataset: configurations corpus, queries, qrels and bm25, and a split for each set.

From the hub through the `datasets` package, or from a folder: CONFIGURATION/SPLIT.parquet (or …-00000-of-00001.parquet,
or .jsonl), and whatever else that package can read by the folder's README.md. Awkward data:

- One row for each query that BM25 ranked. A query or document that is named and not there is an error.
- A judged query that BM25 did not rank does not count, and is reported in a note.
- Every document of the judgements is relevant: they have no grades.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from calipers.core import DataError, Dataset, Document, RequestError, name_some
from calipers.data import hub, readers
from calipers.data.choose import DataOptions, choose, make_dataset
from calipers.data.columns import Record, read_id
from calipers.data.texts import read_required_text

Texts = dict[str, str]  # id → text
Positives = dict[str, dict[str, None]]  # query id → document ids, each once, in order
_COLUMNS = {
    "corpus": ("_id", "text"),
    "queries": ("_id", "text"),
    "qrels": ("query-id", "corpus-id"),
    "bm25": ("query-id", "corpus-ids"),
}


@dataclass(frozen=True)
class Ranked:
    """A query, its relevant documents (id → text, in the order of the judgements), and what BM25 ranked, best first."""

    id: str
    query: str
    positives: Mapping[str, str]
    documents: Sequence[str]


@dataclass(frozen=True)
class RankedSet:
    rows: Sequence[Ranked]
    notes: tuple[str, ...]  # warnings


def load(
    reference: str, splits: Mapping[str, str], options: DataOptions | None = None, *, rerank_k: int = 100
) -> Dataset:
    """The sets under their names (name → split), one after the other: the columns of a reranking, and `set`, a name.

    Ids are SET/QUERY. The options choose queries of each set, so that no set is left without.
    """
    source = (options or DataOptions()).source(reference)
    sets = {name: read_set(reference, split, rerank_k, revision=source.revision) for name, split in splits.items()}
    chosen = {name: choose(_records(name, ranked.rows), source) for name, ranked in sets.items()}
    for name, rows in chosen.items():
        _check_set(reference, name, [record.id for record in rows.kept])
    return make_dataset(
        [record for rows in chosen.values() for record in rows.kept],
        replace(
            source,
            requested=None if source.requested is None else source.requested * len(sets),
            rows_read=sum(rows.seen for rows in chosen.values()),
            rows_blank=sum(rows.blank for rows in chosen.values()),
        ),
        counts={"sets": len(sets)},
        notes=tuple(note for ranked in sets.values() for note in ranked.notes),
    )


def _check_set(reference: str, name: str, ids: Sequence[str]) -> None:
    if not ids:
        raise DataError(f"{reference} has no query to measure in the set {name}")
    if repeated := [id for id in dict.fromkeys(ids) if ids.count(id) > 1]:
        raise DataError(f"{reference} ranks a query twice in bm25 of the set {name}: {name_some(repeated)}")


def _records(name: str, rows: Sequence[Ranked]) -> Iterator[Record]:
    for row in rows:
        values: dict[str, Any] = {
            "query_column": row.query,
            "documents_column": [Document(text) for text in row.documents],
            "positive_column": list(row.positives.values()),
            "negative_column": None,
            "set": name,
        }
        yield Record(f"{name}/{row.id}", row.id, values, blank=not row.query.strip())


def read_set(reference: str, split: str, rerank_k: int, *, revision: str | None = None) -> RankedSet:
    """One set: every query that BM25 ranked, with its first `rerank_k` documents."""
    if rerank_k < 1:
        raise RequestError(f"`rerank_k` must be at least 1, found {rerank_k}")
    tables = {config: _rows(reference, config, split, revision) for config in _COLUMNS}
    corpus, queries = (
        {read_id(row, "_id"): read_required_text(row) for row in tables[config]} for config in ("corpus", "queries")
    )
    positives: Positives = {}
    for row in tables["qrels"]:
        positives.setdefault(read_id(row, "query-id"), {}).update(dict.fromkeys(_ids(row, "corpus-id")))
    ranked = [(read_id(row, "query-id"), _ids(row, "corpus-ids")[:rerank_k]) for row in tables["bm25"]]
    place = f"{reference}, split {split}"
    _check_ids(place, ranked, corpus, queries, positives)
    rows = [
        Ranked(query, queries[query], {id: corpus[id] for id in positives[query]}, [corpus[id] for id in documents])
        for query, documents in ranked
    ]
    answered = {query for query, _ in ranked}
    missing = [id for id in positives if id not in answered]
    note = f"{place}: bm25 lacks {len(missing)} judged queries, which do not count: {name_some(missing)}"
    return RankedSet(rows, (note,) if missing else ())


def _ids(row: readers.Row, name: str) -> list[str]:
    """A list of ids; a single id is a list of one."""
    value = row.values[name]
    items = value if isinstance(value, list) else [value]
    if any(item is None or item == "" for item in items):
        raise DataError(f"{row.where}, column {name!r}: expected ids, found nothing")
    return [str(item) for item in items]


def _check_ids(
    place: str, ranked: Sequence[tuple[str, list[str]]], corpus: Texts, queries: Texts, positives: Positives
) -> None:
    documents = dict.fromkeys(id for _, ids in ranked for id in ids)
    documents.update(dict.fromkeys(id for query, _ in ranked for id in positives.get(query, ())))
    missing = {
        "queries of bm25 that are not in queries": [id for id, _ in ranked if id not in queries],
        "queries of bm25 without qrels": [id for id, _ in ranked if id not in positives],
        "documents of bm25 or qrels that are not in corpus": [id for id in documents if id not in corpus],
    }
    faults = [f"{what}: {name_some(ids)}" for what, ids in missing.items() if ids]
    if faults:
        raise DataError(f"{place} has {'; '.join(faults)}")


def _rows(reference: str, config: str, split: str, revision: str | None) -> list[readers.Row]:
    folder = None if hub.is_on_hub(reference) else readers.to_path(reference)
    if folder:
        hub.refuse_options(reference, None, revision)
    try:
        if folder and (folder / config).is_dir():
            rows = list(readers.read(folder / config, split))
        else:
            path = str(folder or reference.removeprefix("hub:"))
            rows = list(hub.read(path, name=config, split=split, revision=revision))
    except DataError as error:
        reason = str(error).removesuffix(readers.CHOOSE_SPLIT)  # the split follows from the set
        raise DataError(
            f"Could not load subset {config!r} split {split!r} from dataset {reference!r}: {reason}"
        ) from error
    missing = [name for name in _COLUMNS[config] if any(name not in row.values for row in rows)]
    if missing or not rows:
        present = f"it has {', '.join(map(str, rows[0].values))}" if rows else "it has no rows"
        raise DataError(
            f"Subset {config!r} split {split!r} from dataset {reference!r} is missing required columns: "
            f"{', '.join(missing or _COLUMNS[config])} ({present})."
        )
    return rows
