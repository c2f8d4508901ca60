"""What a diagnosis reads: a corpus, with or without queries and judgements, from separate files or as BEIR data; and
beside it pairs that belong together, terms, and groups of queries that mean the same.

- Corpus and queries: jsonl, json, csv, tsv or parquet with `_id` (or `id`), `text` and, if there is one, `title`; or
  plain text, one text per line. Rows without an id are numbered.
- Judgements: TREC or BEIR qrels, or rows with `query_id`, `product_id` and `esci_label`.
- A single file of query–product pairs with ESCI labels (`query`, `product_title` and the three columns above) is a
  dataset by itself.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import Any

from calipers.core import DataError, Dataset, DataSource, RequestError, fingerprint, name_some
from calipers.data import beir, columns, readers, trec
from calipers.data.beir_parts import Parts, Rows

ESCI = {"E": 3.0, "S": 2.0, "C": 1.0, "I": 0.0}  # exact, substitute, complement, irrelevant
_POSITIVE = 0.8  # of the highest score: from here on an STS pair counts as one that belongs together


@dataclass(frozen=True)
class Pairs:
    """Two texts each that belong together; `scored` of `read` rows were at or above `above`."""

    ids: tuple[str, ...]
    left: tuple[str, ...]
    right: tuple[str, ...]
    read: int
    above: float | None

    def __len__(self) -> int:
        return len(self.ids)


@dataclass(frozen=True)
class Groups:
    """Texts that mean the same, group by group; at least two in each."""

    ids: tuple[str, ...]
    texts: tuple[tuple[str, ...], ...]

    def pairs(self) -> list[tuple[int, int]]:
        """Every two texts of a group, as places in the flat list of all texts."""
        found, start = [], 0
        for group in self.texts:
            found += [(start + i, start + j) for i, j in combinations(range(len(group)), 2)]
            start += len(group)
        return found


# --- corpus, queries, judgements ---------------------------------------------------------------------------------


def load(
    *,
    dataset: str | None = None,
    corpus: str | None = None,
    queries: str | None = None,
    qrels: str | None = None,
    source: DataSource | None = None,
    notice: beir.Notice | None = None,
) -> Dataset:
    """Columns `query` and `qrels` (empty mappings where nothing is judged), table `corpus` with the column `text`.

    Without queries the dataset has no rows. `source` says split, samples, seed and shuffle; `notice` is told the
    columns of every document as it passes.
    """
    wish = source or DataSource(path="")
    if dataset is not None:
        if corpus or queries or qrels:
            raise RequestError(
                "--dataset has corpus, queries and judgements: --corpus, --queries, --qrels do not apply"
            )
        return _whole(dataset, wish, notice)
    if corpus is None:
        raise RequestError("there is no corpus: give --dataset FOLDER, or --corpus FILE with --queries FILE")
    if qrels and not queries:
        raise RequestError("--qrels judges queries: give --queries FILE as well")
    documents = partial(_numbered, _path(corpus))
    if queries is None:
        return _without_queries(beir.read_corpus(documents, corpus, notice), corpus)
    asked = partial(_numbered, _path(queries))
    parts = Parts(
        corpus=documents,
        queries=asked,
        qrels=partial(_grades, _path(qrels), asked) if qrels else partial(_nothing, asked),
        split="",
        corpus_name=corpus,
        queries_name=queries,
        qrels_name=qrels or "the judgements",
    )
    return beir.gather(parts, _at(wish, corpus), notice)


def has_esci_labels(dataset: str | None, qrels: str | None) -> bool:
    """Whether the judgements are ESCI labels rather than numbers."""
    file = _path(qrels or dataset or "")
    return _is_rows(file) and "esci_label" in next(iter(readers.read(file, None)), readers.Row("", {})).values


def from_texts(texts: Sequence[str], path: str) -> Dataset:
    """A corpus of distinct texts, numbered, without queries."""
    distinct = list(dict.fromkeys(texts))
    ids = tuple(str(i) for i in range(len(distinct)))
    corpus = Dataset(ids, {"text": distinct}, DataSource(path), fingerprint(ids, {"text": distinct}))
    return _without_queries(corpus, path)


def _whole(reference: str, wish: DataSource, notice: beir.Notice | None) -> Dataset:
    file = _path(reference)
    if _is_rows(file):
        return _esci(file, wish, notice)
    return beir.load(
        reference,
        name=wish.name,
        split=wish.split,
        revision=wish.revision,
        samples=wish.requested,
        seed=wish.seed,
        shuffle=wish.shuffle,
        notice=notice,
    )


def _esci(file: Path, wish: DataSource, notice: beir.Notice | None) -> Dataset:
    """A table of pairs, one row each; a query and a product may stand in several rows and must then be the same."""
    queries: dict[str, str] = {}
    products: dict[str, str] = {}
    for row in readers.read(file, None):
        missing = [name for name in _ESCI_COLUMNS if name not in row.values]
        if missing:
            raise DataError(f"{row.where}: there is no column {missing[0]!r}: a table of ESCI pairs has {_ESCI_NAMES}")
        for known, key, name in ((queries, "query_id", "query"), (products, "product_id", "product_title")):
            id, text = columns.read_id(row, key), columns.read_text(row.values[name], row, name)
            if known.setdefault(id, text) != text:
                raise DataError(f"{row.where}: {key} {id!r} has another {name} here than above")
    parts = Parts(
        corpus=partial(_products, file),
        queries=partial(_rows_of, queries, file),
        qrels=lambda: trec.gather(_labelled(readers.read(file, None))),
        split="",
        corpus_name=str(file),
        queries_name=file.name,
        qrels_name=file.name,
    )
    return beir.gather(parts, _at(wish, str(file)), notice)


_ESCI_COLUMNS = ("query_id", "query", "product_id", "product_title", "esci_label")
_ESCI_NAMES = ", ".join(_ESCI_COLUMNS)


def _rows_of(texts: Mapping[str, str], file: Path) -> Iterator[readers.Row]:
    return (readers.Row(file.name, {"_id": id, "text": text}) for id, text in texts.items())


def _products(file: Path) -> Iterator[readers.Row]:
    """Every product once, with all its columns."""
    seen: set[str] = set()
    for row in readers.read(file, None):
        id = str(row.values["product_id"])
        if id not in seen:
            seen.add(id)
            others = {name: value for name, value in row.values.items() if name not in ("id", "title")}
            yield readers.Row(row.where, {**others, "_id": id, "text": row.values["product_title"]})


def _labelled(rows: Iterator[readers.Row]) -> Iterator[trec.Judged]:
    for row in rows:
        told = str(row.values.get("esci_label") or "").strip()
        if told[:1].upper() not in ESCI:
            raise DataError(f"{row.where}, column 'esci_label': expected one of {', '.join(ESCI)}, found {told!r}")
        grade = ESCI[told[:1].upper()]
        yield row.where, columns.read_id(row, "query_id"), columns.read_id(row, "product_id"), grade


def _grades(file: Path, queries: Rows) -> trec.Judgements:
    if has_esci_labels(None, str(file)):
        found = trec.gather(_labelled(readers.read(file, None)))
    else:
        found = trec.read_qrels(file)
    known = [id for id, _ in beir.identified(queries)]
    if known and not any(id in found for id in known):
        raise DataError(f"{file} judges none of the {len(known)} queries: are the ids the same?")
    return found


def _nothing(queries: Rows) -> trec.Judgements:
    """Without judgements every query is asked and none is judged."""
    return {id: {} for id, _ in beir.identified(queries)}


def _numbered(file: Path) -> Iterator[readers.Row]:
    """Rows with an id: their own, else their number."""
    for number, row in enumerate(readers.read(file, None)):
        own = "_id" in row.values or "id" in row.values
        yield row if own else readers.Row(row.where, {"_id": str(number), **row.values})


def _without_queries(corpus: Dataset, path: str) -> Dataset:
    empty: dict[str, list[Any]] = {"query": [], "qrels": []}
    tables = {"corpus": corpus}
    return Dataset((), empty, DataSource(path), fingerprint((), empty, tables), tables, {"documents": len(corpus)})


def _at(wish: DataSource, path: str) -> DataSource:
    return DataSource(path, requested=wish.requested, shuffle=wish.shuffle, seed=wish.seed)


def _path(reference: str) -> Path:
    return Path(os.path.expanduser(reference))


def _is_rows(file: Path) -> bool:
    return file.is_file() and file.name.lower().endswith((".csv", ".csv.gz", ".tsv", ".jsonl", ".json", ".parquet"))


# --- pairs, terms, paraphrases -----------------------------------------------------------------------------------


def load_pairs(reference: str, *, above: float | None = None) -> Pairs:
    """Pairs of texts `sentence1`, `sentence2`. Where rows have a `score`, those from `above` on are positive; that is
    0.8 of the highest score in the file if it is not said."""
    found = [_pair(row, number) for number, row in enumerate(readers.read(_path(reference), None))]
    scored = [score for *_, score in found if score is not None]
    if above is not None and not scored:
        raise RequestError(f"--pairs-above is for pairs with a score, and {reference} has none")
    least = (_POSITIVE * max(scored) if above is None else above) if scored else None
    kept = [(id, a, b) for id, a, b, score in found if a and b and (least is None or (score or 0.0) >= least)]
    if not kept:
        raise DataError(f"{reference} has no positive pair: {len(found)} rows, none with a score from {least} on")
    ids, left, right = zip(*kept, strict=True)
    if len(set(ids)) < len(ids):
        raise DataError(f"{reference} has the same id for several pairs")
    return Pairs(ids, left, right, len(found), least)


def _pair(row: readers.Row, number: int) -> tuple[str, str, str, float | None]:
    names = next((n for n in _PAIR_COLUMNS if all(name in row.values for name in n)), None)
    if names is None:
        raise DataError(f"{row.where}: expected the columns sentence1 and sentence2, found {', '.join(row.values)}")
    left, right = (columns.read_text(row.values[name], row, name).strip() for name in names)
    given = row.values.get("score")
    score = None if given in (None, "") else columns.read_number(given, row, "score")
    return str(row.values.get("id", number)), left, right, score


_PAIR_COLUMNS = (("sentence1", "sentence2"), ("anchor", "positive"), ("query", "positive"), ("left", "right"))


def load_terms(reference: str) -> tuple[str, ...]:
    """Domain terms: one per line, or the column `term` or `text`; each once."""
    rows = readers.read(_path(reference), None)
    found = (row.values.get("term", row.values.get("text")) for row in rows)
    terms = tuple(dict.fromkeys(str(term).strip() for term in found if term and str(term).strip()))
    if not terms:
        raise DataError(f"{reference} holds no term: expected one per line, or a column 'term'")
    return terms


def load_paraphrases(reference: str) -> Groups:
    """Groups of queries that mean the same: one group per line with tabs between, rows with a list `texts`, or rows
    with `group` and `text`. A group of one says nothing and is refused."""
    file = _path(reference)
    groups: dict[str, list[str]] = {}
    where: dict[str, str] = {}
    for number, row in enumerate(readers.read(file, None)):
        id, texts = _group(row, number, tabs=file.name.lower().endswith((".txt", ".raw")))
        groups.setdefault(id, []).extend(texts)
        where.setdefault(id, row.where)
    distinct = {id: tuple(dict.fromkeys(t.strip() for t in texts if t.strip())) for id, texts in groups.items()}
    distinct = {id: texts for id, texts in distinct.items() if texts}
    if lonely := next((id for id, texts in distinct.items() if len(texts) < 2), None):
        raise DataError(f"{where[lonely]}: the group {lonely!r} has one text only, and paraphrases come in twos")
    if not distinct:
        raise DataError(f"{reference} holds no group of queries that mean the same")
    return Groups(tuple(distinct), tuple(distinct.values()))


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


def tell_absent(qrels: Iterable[Mapping[str, float]], ids: Sequence[str], where: str) -> list[str]:
    """A sentence on judged documents that the corpus lacks. If it lacks all of them, the two do not belong together.

    >>> tell_absent([{"a": 1.0, "b": 0.0}], ["b", "c"], "qrels.tsv")[0][:52]
    '1 of 2 judged documents are not in the corpus, or ha'
    """
    judged, there = {document: None for grades in qrels for document in grades}, set(ids)
    absent = [document for document in judged if document not in there]
    if judged and len(absent) == len(judged):
        raise DataError(
            f"none of the {len(judged):,} documents that {where} judges is in the corpus: it judges "
            f"{name_some(absent, 3)}, and the corpus has {name_some(ids, 3)}"
        )
    if not absent:
        return []
    return [
        f"{len(absent):,} of {len(judged):,} judged documents are not in the corpus, or have no text: no search can "
        f"find them, and they count against every model alike ({name_some(absent)})"
    ]
