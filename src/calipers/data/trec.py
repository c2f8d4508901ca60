"""TREC files: judgements (qrels), and runs in and out. Every error names the file and the line.

A run is the results of a search: `query Q0 document rank score tag`. As in trec_eval the score decides the order; the
rank is not read. A .jsonl or .parquet has rows with a query's id, a document's id and a score, or with a query's id and
`results`, a list of objects with id and score. Judgements are `query 0 document grade`, or BEIR's `query-id  corpus-id
score` with or without the header, or rows of a .jsonl or .parquet with these names.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from operator import itemgetter
from pathlib import Path

from calipers.core import DataError, Dataset, RequestError, fingerprint, name_some
from calipers.core.errors import boundary
from calipers.core.files import check_place, whole_file
from calipers.data import columns, readers

Judgements = dict[str, dict[str, float]]  # query id → document id → grade
Run = dict[str, dict[str, float]]  # query id → document id → score
Judged = tuple[str, str, str, float]  # where it stands, query id, document id, grade
ROWS = (".jsonl", ".jsonl.gz", ".parquet")
_BEIR = ("query-id", "corpus-id", "score")
_QUERY_IDS = ("query_id", "query-id", "qid", "query")  # of rows of a run
_DOCUMENT_IDS = ("document_id", "doc_id", "docid", "corpus-id", "corpus_id", "product_id", "document", "id")
_TREC_WIDTHS = (4, 6)  # fields of a judgement and of a line of a run
# What names of queries and of grades contain, in a header that is not BEIR's own.
_NAMES = (("query", "qid", "topic", "id"), ("score", "grade", "rel", "label", "judg", "rating", "gain"))


@boundary(DataError, "the judgements cannot be read")
def read_qrels(path: Path) -> Judgements:
    """Grades by query and document, in the order of the file. A .jsonl or .parquet has rows with BEIR's names."""
    return gather(read_rows(readers.read(path, None)) if path.name.endswith(ROWS) else _read_lines(path))


def gather(judged: Iterable[Judged]) -> Judgements:
    """A pair that is judged twice counts once; two grades for it are an error."""
    qrels: Judgements = {}
    for where, query, document, grade in judged:
        first = qrels.setdefault(query, {}).setdefault(document, grade)
        if first != grade:
            raise DataError(
                f"{where}: query {query!r} and document {document!r} have the grade {grade:g} here and {first:g} above"
            )
    return qrels


def read_rows(rows: Iterable[readers.Row]) -> Iterator[Judged]:
    """Judgements from rows with BEIR's three names."""
    for row in rows:
        query, document = (columns.read_id(row, name) for name in _BEIR[:2])
        yield row.where, query, document, columns.read_number(row.values.get(_BEIR[2]), row, _BEIR[2])


def _read_lines(path: Path) -> Iterator[Judged]:
    order: Sequence[int] | None = None
    width = 0
    for where, cells in _cells(path):
        if order is None:
            header, order = _columns(cells, where)
            width = len(cells)
            if header:
                continue
        if len(cells) != width:
            raise DataError(f"{where}: expected {width} fields as before, found {len(cells)}")
        query, document, grade = (cells[i] for i in order)
        yield where, query, document, _number(grade, "grade", where)


def add_qrels(dataset: Dataset, path: Path) -> Dataset:
    """The rows with a column `qrels`, {document id: grade}: the judgements of the query that has the row's id.

    A row without judgements is reported in a note. Where all rows were read, judged queries without a row are counted.
    The fingerprint covers the judgements.
    """
    qrels = read_qrels(path)
    unjudged = [id for id in dataset.ids if id not in qrels]
    if len(unjudged) == len(dataset):
        raise DataError(
            f"{path} judges no query of {dataset.source.path}: it has {name_some(list(qrels), 3) or 'none'}, "
            f"and the rows {name_some(dataset.ids, 3)} (name the column of ids with `columns` id_column=NAME)"
        )
    values = {**dataset.columns, "qrels": [qrels.get(id, {}) for id in dataset.ids]}
    notes = dataset.notes
    if unjudged:
        notes += (f"{len(unjudged)} queries have no judgement in {path.name} and no figure: {name_some(unjudged)}",)
    counts = {**dataset.counts, "queries_unjudged": len(unjudged)}
    if dataset.source.requested is None:
        counts["judged_queries_missing"] = len(qrels.keys() - set(dataset.ids))
    new_fingerprint = fingerprint(dataset.ids, values, dataset.tables)
    return replace(dataset, columns=values, fingerprint=new_fingerprint, counts=counts, notes=notes)


@boundary(DataError, "the run cannot be read")
def read_run(path: Path) -> Run:
    """Scores by query and document. A document that a query has twice is an error, as in trec_eval."""
    run: Run = {}
    for where, query, document, score in _result_rows(path) if path.name.endswith(ROWS) else _result_lines(path):
        scores = run.setdefault(query, {})
        if document in scores:
            raise DataError(f"{where}: the document {document!r} occurs already in the results of query {query!r}")
        scores[document] = score
    return run


def _result_lines(path: Path) -> Iterator[Judged]:
    for where, cells in _cells(path):
        if len(cells) != 6:
            raise DataError(f"{where}: expected 6 fields (query Q0 document rank score tag), found {len(cells)}")
        yield where, cells[0], cells[2], _number(cells[4], "score", where)


def _result_rows(path: Path) -> Iterator[Judged]:
    """One result a row, or the list `results` of a query."""
    for row in readers.read(path, None):
        query = columns.read_id(row, _first(row, _QUERY_IDS))
        results = row.values.get("results")
        if results is not None and not (isinstance(results, list) and all(isinstance(r, dict) for r in results)):
            raise DataError(f"{row.where}, column 'results': expected a list of objects with id and score")
        for values in [row.values] if results is None else results:
            one = readers.Row(row.where, values)
            document = columns.read_id(one, _first(one, _DOCUMENT_IDS))
            yield row.where, query, document, columns.read_number(values.get("score"), one, "score")


def _first(row: readers.Row, names: Sequence[str]) -> str:
    """The first of these columns that the row has."""
    if name := next((name for name in names if name in row.values), None):
        return name
    raise DataError(
        f"{row.where}: expected one of {', '.join(names)}, found {', '.join(map(str, row.values)) or 'nothing'}"
    )


def write_run(path: Path, results: Iterable[tuple[str, str, float]], *, tag: str = "calipers") -> None:
    """(query, document, score), the results of a query together and best first. Scores keep all their digits. White
    space in the tag becomes underscores."""
    tag = "_".join(tag.split()) or "calipers"
    try:
        with whole_file(path) as part, part.open("w", encoding="utf-8", newline="\n") as file:
            for query, ranked in groupby(results, key=itemgetter(0)):
                for rank, (_, document, score) in enumerate(ranked, start=1):
                    file.write(f"{_word(query)} Q0 {_word(document)} {rank} {float(score)!r} {tag}\n")
    except OSError as error:
        raise RequestError(f"{path} cannot be written: {error.strerror}") from error


def check_run_file(path: Path, dataset: Dataset) -> None:
    """Before a search: whether a run of these queries and documents can be written there."""
    if why := check_place(path):
        raise RequestError(f"{path} cannot be written: {why}")
    for id in (*dataset.ids, *dataset.tables["corpus"].ids):
        _word(id)


def _word(id: str) -> str:
    """An id as a field: fields are separated by white space, so none may contain any."""
    if not id or any(c.isspace() for c in id):
        raise RequestError(f"a TREC file cannot hold the id {id!r}: its fields are separated by white space")
    return id


def _cells(path: Path) -> Iterator[tuple[str, list[str]]]:
    """The fields of every line that is not blank. Tabs separate them, so that an id may have spaces; any white space
    does where the second field is TREC's own (0 or Q0), or tabs alone do not separate three. Behind a header of BEIR
    no field is TREC's own. A tab at the end of a line begins no field."""
    width = None  # of a header that tabs separate
    for where, line in readers.numbered_lines(path):
        if words := line.split():
            cells = [cell.strip() for cell in line.rstrip().split("\t")]
            width = width or (len(cells) if set(_BEIR) <= set(cells) else 0)
            is_trec = len(words) in _TREC_WIDTHS and words[1].upper() in ("0", "Q0") and len(cells) != width
            yield where, cells if len(cells) >= 3 and all(cells) and not is_trec else words


def _columns(cells: Sequence[str], where: str) -> tuple[bool, Sequence[int]]:
    """Whether the first line is a header, and where query, document and grade stand. A header has BEIR's names, or
    usual names of queries and grades in their places; anything else there is a grade, and an error if it is no number.
    """
    if set(_BEIR) <= set(cells):
        return True, [cells.index(name) for name in _BEIR]
    order = {3: (0, 1, 2), 4: (0, 2, 3)}.get(len(cells))
    if order is None:
        raise DataError(
            f"{where}: expected {', '.join(_BEIR)} (BEIR) or query, 0, document, grade (TREC), "
            f"found {len(cells)} field(s): {name_some(list(cells))}"
        )
    named = zip((cells[0], cells[order[2]]), _NAMES, strict=True)
    return all(any(name in cell.lower() for name in names) for cell, names in named), order


def _number(text: str, column: str, where: str) -> float:
    return columns.read_number(text, readers.Row(where, {}), column)
