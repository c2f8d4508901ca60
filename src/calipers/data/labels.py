"""The label of each example in a column of its data: what results are grouped by.

A row or a query has columns, and the documents that are relevant to a query have some too. Labels are read from where
the data lie, so that stored runs have them as well.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from calipers.core import DataError, DataSource
from calipers.core.errors import boundary
from calipers.data import api, beir, corpora, readers
from calipers.data.columns import id_column_of
from calipers.data.texts import open_texts
from calipers.data.trec import Judgements

Value = Any  # what a file holds: a text, a number, a list, nothing
Rows = Callable[[], Iterator[tuple[str, Mapping[str, Value]]]]  # id → columns, read anew at each call


@dataclass(frozen=True)
class LabelColumns:
    """Columns that may label examples: those of the examples, and in a search those of the judged documents."""

    where: str
    rows: Rows
    documents: Rows | None = None
    judgements: Callable[[], Judgements] | None = None

    @boundary(DataError, "the labels cannot be read")
    def names(self) -> tuple[str, ...]:
        """Every column that an example has."""
        return _names(self.rows)

    @boundary(DataError, "the labels cannot be read")
    def document_names(self) -> tuple[str, ...]:
        return _names(self.documents) if self.documents and self.judgements else ()

    @boundary(DataError, "the labels cannot be read")
    def read(self, column: str) -> dict[str, Value]:
        """The value of each example by id. An example of several rows that differ has the value that most of them
        have."""
        values: dict[str, Counter[str]] = {}
        kept: dict[str, Value] = {}
        for id, row in self.rows():
            label = to_label(row.get(column)) or ""
            kept[label] = row.get(column)
            values.setdefault(id, Counter())[label] += 1
        return {id: kept[several.most_common(1)[0][0]] for id, several in values.items()}

    @boundary(DataError, "the labels cannot be read")
    def read_documents(self, column: str) -> dict[str, str]:
        """The label of each query by id: the one that most of its best judged documents have."""
        assert self.documents
        assert self.judgements
        judged = self.judgements()
        relevant = {document for grades in judged.values() for document, grade in grades.items() if grade > 0}
        labels = {id: label for id, row in self.documents() if id in relevant and (label := to_label(row.get(column)))}
        of_query: dict[str, str] = {}
        for query, grades in judged.items():
            labelled = {document: grade for document, grade in grades.items() if document in labels and grade > 0}
            best = max(labelled.values(), default=0.0)
            several = Counter(labels[document] for document, grade in labelled.items() if grade == best)
            if several:
                of_query[query] = several.most_common(1)[0][0]
        return of_query


def _names(rows: Rows) -> tuple[str, ...]:
    return tuple(dict.fromkeys(str(name) for _, values in rows() for name in values))


def to_label(value: Value) -> str | None:
    """A value as the name of a group; None for nothing.

    >>> to_label(3.0), to_label(" ja "), to_label(""), to_label(["a", 1]), to_label(True)
    ('3', 'ja', None, '["a", 1]', 'true')
    """
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    return None if value is None or not text.strip() or value != value else text.strip()


# --- where they are --------------------------------------------------------------------------------------------------


def of_rows(source: DataSource) -> LabelColumns:
    """The columns of a table, one row for each example."""

    def rows() -> Iterator[tuple[str, Mapping[str, Value]]]:
        id_column: str | None = None
        with closing(api.open_rows(source)) as every:
            for number, row in enumerate(every):
                if number == 0:
                    id_column = id_column_of(row, source.columns_mapping)
                yield str(number) if id_column is None else str(row.values.get(id_column)), row.values

    return LabelColumns(source.path, rows)


def of_beir(source: DataSource) -> LabelColumns:
    """The columns of the queries, and those of the documents that are judged relevant to them."""
    files = beir.find(source)
    return LabelColumns(source.path, files.queries.stored, files.corpus.stored, files.qrels)


def of_corpus(
    *, dataset: str | None, corpus: str | None, queries: str | None, qrels: str | None, source: DataSource
) -> LabelColumns:
    """The same for the inputs of a diagnosis: a folder, separate files, or a table of query–product pairs, in which a
    query has the value that most of its rows have."""
    if queries and corpus:
        texts = open_texts(queries, "queries")
        grades = partial(corpora.read_grades, qrels, texts)
        return LabelColumns(queries, texts.stored, open_texts(corpus, "corpus").stored, grades)
    path = dataset or ""
    file = readers.to_path(path)
    if not file.is_file():
        return of_beir(replace(source, path=path))
    return LabelColumns(
        path, lambda: ((str(row.values.get("query_id")), row.values) for row in readers.read(file, None))
    )
