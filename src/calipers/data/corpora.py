"""The inputs of a diagnosis: a corpus, with or without queries and judgements, from separate files or as BEIR data; and
pairs that belong together, terms, groups of queries that mean the same, and how frequent queries are.

Corpus and queries are texts with ids (texts.py); rows without an id are numbered. Judgements are TREC or BEIR qrels, or
rows with `query_id`, `product_id` and `esci_label`. A file of query–product pairs with ESCI labels (`query`,
`product_title` and these three columns) is a dataset by itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from calipers.core import DataError, Dataset, DataSource, RequestError, fingerprint, name_some
from calipers.core.errors import boundary, quote
from calipers.core.inputs import refuse_above
from calipers.data import beir, columns, readers, trec
from calipers.data.beir import BeirFiles
from calipers.data.texts import Notice, TextRows, open_texts

ESCI = {"E": 3.0, "S": 2.0, "C": 1.0, "I": 0.0}  # exact, substitute, complement, irrelevant
_ESCI_COLUMNS = ("query_id", "query", "product_id", "product_title", "esci_label")
_POSITIVE = 0.8  # of the highest score: from here on an STS pair counts as one that belongs together
_PAIR_COLUMNS = (("sentence1", "sentence2"), ("anchor", "positive"), ("query", "positive"), ("left", "right"))
_COUNT_COLUMNS = ("count", "frequency")


@dataclass(frozen=True)
class ScoredPairs:
    """Pairs of texts that belong together: those of `read` rows whose score is at least `above`, if rows have one."""

    ids: tuple[str, ...]
    left: tuple[str, ...]
    right: tuple[str, ...]
    read: int
    above: float | None

    def __len__(self) -> int:
        return len(self.ids)


@dataclass(frozen=True)
class ParaphraseGroups:
    """Texts that mean the same, group by group; at least two in each."""

    ids: tuple[str, ...]
    texts: tuple[tuple[str, ...], ...]


# --- corpus, queries, judgements ---------------------------------------------------------------------------------


@boundary(DataError, "the corpus cannot be read")
def load(
    *,
    dataset: str | None = None,
    corpus: str | None = None,
    queries: str | None = None,
    qrels: str | None = None,
    source: DataSource | None = None,
    notice: Notice | None = None,
) -> Dataset:
    """Columns `query` and `qrels` (empty mappings where nothing is judged), table `corpus` with the column `text`.

    Without queries the dataset has no rows. `source` gives split, samples, seed and shuffle; `notice` gets the id and
    the columns of every document as it passes.
    """
    choice = source or DataSource(path="")
    if dataset is not None:
        if corpus or queries or qrels:
            raise RequestError("`dataset` and any of `corpus`, `queries` and `qrels` are mutually exclusive")
        file, whole = readers.to_path(dataset), replace(choice, path=dataset)
        if not _is_rows(file):
            return beir.gather(beir.find(whole), whole, notice)
        _refuse_parts(choice, f"a table, {dataset}")
        return _esci(file, choice, notice)
    if corpus is None:
        raise RequestError("there is no corpus: give `dataset` (a folder), or `corpus` (a file) with `queries`")
    if qrels and not queries:
        raise RequestError("`qrels` judges queries: give `queries` as well")
    _refuse_parts(choice, f"separate files, {corpus}")
    documents = open_texts(corpus, "corpus")
    if queries is None:
        if choice.requested:
            raise RequestError("`samples` is how many queries are taken, and there are none: give `queries`")
        return _without_queries(documents.load(notice), corpus)
    texts = open_texts(queries, "queries")
    files = BeirFiles(documents, texts, partial(read_grades, qrels, texts), qrels or "the judgements")
    return beir.gather(files, _at(choice, corpus), notice)


def _refuse_parts(choice: DataSource, what: str) -> None:
    """Only a folder and a dataset of the hub have splits, configurations and revisions."""
    for name, value in (("split", choice.split), ("DataOptions.name", choice.name), ("revision", choice.revision)):
        if value is not None:
            raise RequestError(f"`{name}` is not supported for {what}")


def has_esci_labels(dataset: str | None, qrels: str | None) -> bool:
    """Whether the judgements are ESCI labels rather than numbers."""
    file = readers.to_path(qrels or dataset or "")
    return _is_rows(file) and "esci_label" in next(iter(readers.read(file, None)), readers.Row("", {})).values


def from_texts(texts: Sequence[str], path: str) -> Dataset:
    """A corpus of distinct texts, numbered, without queries."""
    distinct = list(dict.fromkeys(texts))
    ids = tuple(str(i) for i in range(len(distinct)))
    corpus = Dataset(ids, {"text": distinct}, DataSource(path), fingerprint(ids, {"text": distinct}))
    return _without_queries(corpus, path)


def _esci(file: Path, source: DataSource, notice: Notice | None) -> Dataset:
    """A table of pairs, one row each; a query and a product may stand in several rows and must then be the same."""
    queries: dict[str, str] = {}
    products: dict[str, str] = {}
    for row in readers.read(file, None):
        missing = [name for name in _ESCI_COLUMNS if name not in row.values]
        if missing:
            expected = ", ".join(_ESCI_COLUMNS)
            raise DataError(f"{row.where}: there is no column {missing[0]!r}: a table of ESCI pairs has {expected}")
        for texts, key, name in ((queries, "query_id", "query"), (products, "product_id", "product_title")):
            id, text = columns.read_id(row, key), columns.read_text(row.values[name], row, name)
            if texts.setdefault(id, text) != text:
                raise DataError(f"{row.where}: {key} {id!r} has another {name} here than above")
    files = BeirFiles(
        corpus=TextRows(partial(_products, file), str(file)),
        queries=TextRows(
            lambda: (readers.Row(file.name, {"_id": id, "text": text}) for id, text in queries.items()), file.name
        ),
        qrels=lambda: trec.gather(_labelled(file)),
        qrels_name=file.name,
    )
    return beir.gather(files, _at(source, str(file)), notice)


def _products(file: Path) -> Iterator[readers.Row]:
    """Every product once, with all its columns."""
    seen: set[str] = set()
    for row in readers.read(file, None):
        id = str(row.values["product_id"])
        if id not in seen:
            seen.add(id)
            others = {name: value for name, value in row.values.items() if name not in ("id", "title")}
            yield readers.Row(row.where, {**others, "_id": id, "text": row.values["product_title"]})


def _labelled(file: Path) -> Iterator[trec.Judged]:
    for row in readers.read(file, None):
        label = str(row.values.get("esci_label") or "").strip()
        grade = ESCI.get(label[:1].upper())
        if grade is None:
            raise DataError(f"{row.where}, column 'esci_label': expected one of {', '.join(ESCI)}, found {label!r}")
        yield row.where, columns.read_id(row, "query_id"), columns.read_id(row, "product_id"), grade


def read_grades(reference: str | None, queries: TextRows) -> trec.Judgements:
    """The judgements of a file; without one every query is searched for and none is judged."""
    ids = [id for id, _ in queries.unique()]
    if reference is None:
        return {id: {} for id in ids}
    file = readers.to_path(reference)
    qrels = trec.gather(_labelled(file)) if has_esci_labels(None, reference) else trec.read_qrels(file)
    if ids and not any(id in qrels for id in ids):
        raise DataError(f"{file} judges none of the {len(ids)} queries: are the ids the same?")
    return qrels


def _without_queries(corpus: Dataset, path: str) -> Dataset:
    empty: dict[str, list[Any]] = {"query": [], "qrels": []}
    tables = {"corpus": corpus}
    return Dataset((), empty, DataSource(path), fingerprint((), empty, tables), tables, {"documents": len(corpus)})


def _at(choice: DataSource, path: str) -> DataSource:
    return DataSource(path, requested=choice.requested, shuffle=choice.shuffle, seed=choice.seed)


def _is_rows(file: Path) -> bool:
    return file.is_file() and file.name.lower().endswith((".csv", ".csv.gz", ".tsv", ".jsonl", ".json", ".parquet"))


# --- pairs, terms, paraphrases -----------------------------------------------------------------------------------


@boundary(DataError, "the pairs cannot be read")
def load_pairs(reference: str, *, above: float | None = None) -> ScoredPairs:
    """Pairs of texts `sentence1`, `sentence2`. Where rows have a `score`, those with at least `above` are positive; the
    default is 0.8 of the highest score in the file."""
    rows = [_pair(row, number) for number, row in enumerate(readers.read(readers.to_path(reference), None))]
    scores = [score for *_, score in rows if score is not None]
    if above is not None and not scores:
        raise RequestError(f"`pairs_above` is for pairs with a score, and {reference} has none")
    least = (_POSITIVE * max(scores) if above is None else above) if scores else None
    kept = [(id, a, b) for id, a, b, score in rows if a and b and (least is None or (score or 0.0) >= least)]
    if not kept:
        raise DataError(f"{reference} has no positive pair: {len(rows)} rows, none with a score of at least {least}")
    ids, left, right = zip(*kept, strict=True)
    if len(set(ids)) < len(ids):
        raise DataError(f"{reference} has the same id for several pairs")
    return ScoredPairs(ids, left, right, len(rows), least)


def _pair(row: readers.Row, number: int) -> tuple[str, str, str, float | None]:
    names = next((n for n in _PAIR_COLUMNS if all(name in row.values for name in n)), None)
    if names is None:
        raise DataError(f"{row.where}: expected the columns sentence1 and sentence2, found {', '.join(row.values)}")
    left, right = (columns.read_text(row.values[name], row, name).strip() for name in names)
    value = row.values.get("score")
    score = None if value in (None, "") else columns.read_number(value, row, "score")
    return str(row.values.get("id", number)), left, right, score


@boundary(DataError, "the terms cannot be read")
def load_terms(reference: str) -> tuple[str, ...]:
    """Domain terms: one per line, or the column `term` or `text`; each once."""
    rows = readers.read(readers.to_path(reference), None)
    values = (row.values.get("term", row.values.get("text")) for row in rows)
    terms = tuple(dict.fromkeys(str(term).strip() for term in values if term and str(term).strip()))
    if not terms:
        raise DataError(f"{reference} holds no term: expected one per line, or a column 'term'")
    return terms


@boundary(DataError, "the paraphrases cannot be read")
def load_paraphrases(reference: str) -> ParaphraseGroups:
    """Groups of queries that mean the same: one group per line, separated by tabs; rows with a list `texts`; or rows
    with `group` and `text`. A group of one text is an error."""
    file = readers.to_path(reference)
    groups: dict[str, dict[str, None]] = {}
    where: dict[str, str] = {}
    for number, row in enumerate(readers.read(file, None)):
        id, texts = _group(row, number, tabs=file.name.lower().endswith((".txt", ".raw")))
        groups.setdefault(id, {}).update(dict.fromkeys(text.strip() for text in texts if text.strip()))
        where.setdefault(id, row.where)
    distinct = {id: tuple(texts) for id, texts in groups.items() if texts}
    for id, members in distinct.items():
        refuse_above("group", len(members), f"{where[id]}: the number of texts in the group {quote(id)}")
    if lonely := next((id for id, texts in distinct.items() if len(texts) < 2), None):
        raise DataError(f"{where[lonely]}: the group {lonely!r} has one text only; a group needs at least two")
    if not distinct:
        raise DataError(f"{reference} holds no group of queries that mean the same")
    return ParaphraseGroups(tuple(distinct), tuple(distinct.values()))


def _group(row: readers.Row, number: int, *, tabs: bool) -> tuple[str, list[str]]:
    values = row.values
    if tabs:
        return str(number), str(values["text"]).split("\t")
    id = str(next((values[name] for name in ("group", "id", "_id", "query_id") if name in values), number))
    if isinstance(values.get("texts"), list):
        return id, [columns.read_text(text, row, "texts") for text in values["texts"]]
    if "group" in values and "text" in values:
        return id, [columns.read_text(values["text"], row, "text")]
    raise DataError(f"{row.where}: expected a list 'texts', or 'group' and 'text', found {', '.join(map(str, values))}")


# --- what is missing, and how frequent queries are -----------------------------------------------------------------


def note_absent(qrels: Iterable[Mapping[str, float]], ids: Sequence[str]) -> list[str]:
    """A sentence on judged documents that the corpus lacks.

    >>> note_absent([{"a": 1.0, "b": 0.0}], ["b", "c"])[0][:52]
    '1 of 2 judged documents are not in the corpus, or ha'
    """
    judged = dict.fromkeys(document for grades in qrels for document in grades)
    present = {id for id in ids if id in judged}
    absent = [document for document in judged if document not in present]
    if not absent:
        return []
    return [
        f"{len(absent):,} of {len(judged):,} judged documents are not in the corpus, or have no text: no search can "
        f"find them, and they count against every model alike ({name_some(absent)})"
    ]


@boundary(DataError, "the queries cannot be read")
def load_query_counts(
    *, dataset: str | None, queries: str | None, source: DataSource
) -> tuple[str, dict[str, float]] | None:
    """How often each query was asked: the name of the column (`count` or `frequency`), and its number by query id.

    None where there is no such column. A row without a number is left out; a negative number is an error.
    """
    name: str | None = None
    counts: dict[str, float] = {}
    for id, row in _query_rows(dataset, queries, source):
        name = name or next((column for column in _COUNT_COLUMNS if column in row.values), None)
        if name is None:
            return None
        if row.values.get(name) in (None, ""):
            continue
        counts[id] = columns.read_number(row.values[name], row, name)
        if counts[id] < 0:
            raise DataError(f"{row.where}, column {name!r}: a query cannot be asked {counts[id]:g} times")
    return (name, counts) if name and counts else None


def _query_rows(dataset: str | None, queries: str | None, source: DataSource) -> Iterable[tuple[str, readers.Row]]:
    if queries:
        return open_texts(queries, "queries").identified()
    if dataset is None or readers.to_path(dataset).is_file():  # a table of pairs has no row per query
        return ()
    return beir.find(replace(source, path=dataset)).queries.identified()
