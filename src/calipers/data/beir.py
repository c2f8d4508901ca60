"""BEIR data to a Dataset: a folder with corpus.jsonl, queries.jsonl and qrels/SPLIT.tsv, or a dataset of the hub.

The hub has it as configurations `corpus` and `queries`, and judgements in the configuration `qrels` or `default`
(mteb/scifact) or in a dataset of their own, NAME-qrels (BeIR/scifact-qrels). `name` is what stands before them where a
dataset holds several: `NAME-corpus`, `NAME-queries`, `NAME-qrels`. A local copy of such a dataset is read the same way.

One row per judged query, with its judgements; the corpus is a table of the dataset. What is done about awkward data:

- A repeated id, or two grades for the same pair, is an error with file and line.
- A query without a judgement is not measured; a judged query that the queries lack cannot be. Both are counted.
- A judged document that the corpus lacks (or that is blank) stays in the judgements: no search can find it, so it
  counts against every model alike, and how many there are is counted.
- Queries without a relevant document stay: what is relevant is for the task to say.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import Any

from calipers.core import DataError, Dataset, DataSource, fingerprint
from calipers.data import beir_parts, columns, readers, trec
from calipers.data.beir_parts import Rows
from calipers.data.choose import choose
from calipers.data.columns import Record

Notice = Callable[[str, Mapping[str, Any]], None]  # is told the id and the columns of every document that is kept


def load(
    reference: str,
    *,
    name: str | None = None,
    split: str | None = None,
    revision: str | None = None,
    samples: int | None = None,
    seed: int = 42,
    shuffle: bool = True,
    notice: Notice | None = None,
) -> Dataset:
    """Columns `query` (texts) and `qrels` ({document id: grade}), table `corpus` with the column `text`.

    `samples` chooses queries, never documents: a search among fewer documents is another task. In memory are the
    texts of the corpus and, while it is read, one number for each id.
    """
    source = DataSource(path=reference, name=name, revision=revision, requested=samples, shuffle=shuffle, seed=seed)
    return gather(beir_parts.find(reference, name, split, revision), source, notice)


def gather(parts: beir_parts.Parts, source: DataSource, notice: Notice | None = None) -> Dataset:
    """The dataset that the three parts make. Of `source` the place and the choice of queries are taken as they are."""
    qrels = parts.qrels()
    judged, unjudged = _queries(parts.queries, qrels)
    chosen = choose(judged, source.requested, seed=source.seed if source.shuffle else None)
    if not judged and not unjudged:
        raise DataError(f"{parts.queries_name} holds no query")
    if not chosen.kept:
        raise DataError(
            f"{source.path} has no query to measure: no query of {parts.queries_name} is in {parts.qrels_name}"
        )
    corpus = read_corpus(parts.corpus, parts.corpus_name, notice)
    ids = tuple(record.id for record in chosen.kept)
    values = {key: [record.values[key] for record in chosen.kept] for key in ("query", "qrels")}
    tables = {"corpus": corpus}
    wanted = {id for grades in values["qrels"] for id in grades}
    return Dataset(
        ids=ids,
        columns=values,
        source=replace(
            source,
            split=parts.split or None,
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


def read_corpus(rows: Rows, name: str, notice: Notice | None = None) -> Dataset:
    """Documents with a text; `name` is for messages. Of other columns nothing stays: see `Dataset.read_again`."""
    ids: list[str] = []
    texts: list[str] = []
    blank = 0
    for id, row in identified(rows):
        text = _passage(row)
        if text:
            ids.append(id)
            texts.append(text)
            if notice:
                notice(id, row.values)
        else:
            blank += 1
    if not ids:
        raise DataError(f"{name} holds no document with a text")
    source = DataSource(path=name, rows_read=len(ids) + blank, rows_blank=blank)
    return Dataset(
        tuple(ids), {"text": texts}, source, fingerprint(ids, {"text": texts}), read_again=partial(_again, rows)
    )


def _again(rows: Rows) -> Iterator[tuple[str, Mapping[str, Any]]]:
    return ((_id(row), row.values) for row in rows())


def _passage(row: readers.Row) -> str:
    """Title, a space and text, as BEIR has it; the text alone where there is no title."""
    title = columns.read_text(row.values.get("title"), row, "title")
    return f"{title} {_required_text(row)}".strip()


def _queries(rows: Rows, qrels: trec.Judgements) -> tuple[list[Record], int]:
    """The judged queries with their judgements, and how many others there are."""
    judged, unjudged = [], 0
    for id, row in identified(rows):
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
    return columns.read_text(row.values["text"], row, "text")


def identified(rows: Rows) -> Iterator[tuple[str, readers.Row]]:
    """Rows with their ids, each of which may stand once."""
    seen: dict[str, int] = {}
    for number, row in enumerate(rows()):
        id = _id(row)
        first = seen.setdefault(id, number)
        if first != number:
            before = next(islice(rows(), first, None)).where
            raise DataError(f"{row.where}: the id {id!r} stands already at {before}")
        yield id, row


def _id(row: readers.Row) -> str:
    return columns.read_id(row, "id" if "id" in row.values and "_id" not in row.values else "_id")
