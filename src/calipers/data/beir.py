"""A BEIR folder to a Dataset: corpus.jsonl, queries.jsonl and qrels/SPLIT.tsv.

One row per judged query, with its judgements; the corpus is a table of the dataset. What is done about awkward data:

- A repeated id, or two grades for the same pair, is an error with file and line.
- A query without a judgement is not measured; a judged query that queries.jsonl lacks cannot be. Both are counted.
- A judged document that the corpus lacks (or that is blank) stays in the judgements: no search can find it, so it
  counts against every model alike, and how many there are is counted.
- Queries without a relevant document stay: what is relevant is for the task to say.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from calipers.core import DataError, Dataset, DataSource, fingerprint
from calipers.data import columns, readers, trec
from calipers.data.choose import choose
from calipers.data.columns import Record

_JUDGEMENTS = (".tsv", ".txt", ".qrels", ".tsv.gz")


def load(
    reference: str, *, split: str | None = None, samples: int | None = None, seed: int = 42, shuffle: bool = True
) -> Dataset:
    """Columns `query` (texts) and `qrels` ({document id: grade}), table `corpus` with the column `text`.

    `samples` chooses queries, never documents: a search among fewer documents is another task. In memory are the
    texts of the corpus and, while it is read, one number for each id.
    """
    folder = Path(os.path.expanduser(reference))
    corpus_file, queries_file = _find(folder, "corpus"), _find(folder, "queries")
    split, judgements_file = _judgements(folder, split)
    qrels = trec.read_qrels(judgements_file)
    judged, unjudged = _queries(queries_file, qrels)
    chosen = choose(judged, samples, seed=seed if shuffle else None)
    if not chosen.kept:
        raise DataError(f"{folder} has no query to measure: no query of {queries_file.name} is in {judgements_file}")
    corpus = _corpus(corpus_file)
    ids = tuple(record.id for record in chosen.kept)
    values = {key: [record.values[key] for record in chosen.kept] for key in ("query", "qrels")}
    tables = {"corpus": corpus}
    wanted = {id for grades in values["qrels"] for id in grades}
    return Dataset(
        ids=ids,
        columns=values,
        source=DataSource(
            path=reference,
            split=split,
            requested=samples,
            shuffle=shuffle,
            seed=seed,
            rows_read=len(judged),
            rows_blank=sum(record.blank for record in judged),
        ),
        fingerprint=fingerprint(ids, values, tables),
        tables=tables,
        counts={
            "documents": len(corpus),
            "documents_blank": corpus.source.rows_blank,
            "judged_documents_missing": len(wanted.difference(corpus.ids)),
            "queries_unjudged": unjudged,
            "judged_queries_missing": len(qrels) - len(judged),
        },
    )


def _corpus(file: Path) -> Dataset:
    ids: list[str] = []
    texts: list[str] = []
    blank = 0
    for id, row in _identified(file):
        text = _passage(row)
        if text:
            ids.append(id)
            texts.append(text)
        else:
            blank += 1
    if not ids:
        raise DataError(f"{file} holds no document with a text")
    source = DataSource(path=str(file), rows_read=len(ids) + blank, rows_blank=blank)
    return Dataset(tuple(ids), {"text": texts}, source, fingerprint(ids, {"text": texts}))


def _passage(row: readers.Row) -> str:
    """Title, a space and text, as BEIR has it; the text alone where there is no title."""
    title = columns._text(row.values.get("title"), row, "title")
    return f"{title} {_required_text(row)}".strip()


def _queries(file: Path, qrels: trec.Judgements) -> tuple[list[Record], int]:
    """The judged queries with their judgements, and how many others there are."""
    judged, unjudged = [], 0
    for id, row in _identified(file):
        if id not in qrels:
            unjudged += 1
            continue
        text = _required_text(row)
        values = {"query": text, "qrels": qrels[id]}
        judged.append(Record(id=id, id_column="_id", where=row.where, values=values, blank=not text.strip()))
    return judged, unjudged


def _required_text(row: readers.Row) -> str:
    if "text" not in row.values:
        raise DataError(f"{row.where}: there is no 'text'; found {', '.join(map(str, row.values)) or 'nothing'}")
    return columns._text(row.values["text"], row, "text")


def _identified(file: Path) -> Iterator[tuple[str, readers.Row]]:
    """Rows with their ids, each of which may stand once."""
    seen: dict[str, int] = {}
    for number, row in enumerate(readers.read(file, None)):
        id = columns._id(row, "id" if "id" in row.values and "_id" not in row.values else "_id")
        first = seen.setdefault(id, number)
        if first != number:
            before = next(islice(readers.read(file, None), first, None)).where
            raise DataError(f"{row.where}: the id {id!r} stands already at {before}")
        yield id, row


def _find(folder: Path, name: str) -> Path:
    for file in (folder / f"{name}.jsonl", folder / f"{name}.jsonl.gz"):
        if file.is_file():
            return file
    if not folder.is_dir():
        raise DataError(f"there is no folder {folder}: expected one with corpus.jsonl, queries.jsonl and qrels/")
    raise DataError(f"the folder {folder} has no {name}.jsonl: expected corpus.jsonl, queries.jsonl and qrels/")


def _judgements(folder: Path, split: str | None) -> tuple[str, Path]:
    """The split and its file: the one asked for, else test, else the only one there is."""
    files = {
        file.name.removesuffix(ending): file
        for ending in _JUDGEMENTS
        for file in sorted((folder / "qrels").glob(f"*{ending}"))
    }
    if not files:
        raise DataError(f"the folder {folder} has no qrels: expected qrels/{split or 'test'}.tsv")
    if split is None:
        split = "test" if "test" in files or len(files) > 1 else next(iter(files))
    if split not in files:
        raise DataError(f"the folder {folder} has no qrels of {split!r}: it has {', '.join(files)} (--split)")
    return split, files[split]
