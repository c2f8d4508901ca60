"""BEIR data to a Dataset: a folder with corpus.jsonl, queries.jsonl and qrels/SPLIT.tsv, or a dataset of the hub.

The hub has it as configurations `corpus` and `queries`, and judgements in the configuration `qrels` or `default`
(mteb/scifact) or in a dataset of their own, NAME-qrels (BeIR/scifact-qrels). `name` is a prefix where a dataset holds
several: `NAME-corpus`, `NAME-queries`, `NAME-qrels`. A local copy of such a dataset is read the same way.

One row per judged query, with its judgements; the corpus is a table of the dataset. Awkward data:

- A repeated id, or two grades for the same pair, is an error with file and line.
- A query without a judgement, and a judged query that the queries lack, are counted and not measured.
- A judged document that the corpus lacks (or that is blank) is counted and stays: no search can find it, so it counts
  against every model alike. Judgements of which the corpus has no document at all are an error.
- Queries without a relevant document stay: the task decides what is relevant.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from calipers.core import DataError, Dataset, DataSource, RequestError, name_some
from calipers.data import hub, readers, trec
from calipers.data.choose import DataOptions, choose, make_dataset
from calipers.data.columns import Record
from calipers.data.texts import Notice, TextRows, file_rows, find_file, read_required_text

_JUDGEMENTS = (".tsv", ".txt", ".qrels", ".tsv.gz", *trec.ROWS)  # the first that is there wins


@dataclass(frozen=True)
class BeirFiles:
    """The three parts, each read when it is needed."""

    corpus: TextRows
    queries: TextRows
    qrels: Callable[[], trec.Judgements]
    qrels_name: str  # for messages
    split: str | None = None


def load(reference: str, options: DataOptions | None = None) -> Dataset:
    """Columns `query` (texts) and `qrels` ({document id: grade}), table `corpus` with the column `text`.

    The options choose queries, never documents: a search among fewer documents is another task. In memory are the
    texts of the corpus and, while it is read, one number for each id.
    """
    source = (options or DataOptions()).source(reference)
    return gather(find(source), source)


def gather(files: BeirFiles, source: DataSource, notice: Notice | None = None) -> Dataset:
    """The dataset of the three parts. `source` gives the place and how queries are chosen."""
    qrels = files.qrels()
    judged, unjudged = _judged_queries(files.queries, qrels)
    chosen = choose(judged, source)
    if not judged and not unjudged:
        raise DataError(f"{files.queries.name} holds no query")
    if not chosen.kept:
        raise DataError(
            f"{source.path} has no query to measure: no query of {files.queries.name} is in {files.qrels_name}"
        )
    corpus = files.corpus.load(notice)
    refuse_absent([record.values["qrels"] for record in judged], corpus.ids, files.qrels_name)
    judged_documents = {id for record in chosen.kept for id in record.values["qrels"]}
    return make_dataset(
        chosen.kept,
        replace(source, split=files.split, rows_read=len(judged), rows_blank=sum(record.blank for record in judged)),
        tables={"corpus": corpus},
        counts={
            "documents": len(corpus),
            "documents_blank": corpus.source.rows_blank,
            "judged_documents_missing": len(judged_documents.difference(corpus.ids)),
            "queries_unjudged": unjudged,
            "judged_queries_missing": len(qrels) - len(judged),
        },
    )


def refuse_absent(qrels: Sequence[Mapping[str, float]], ids: Sequence[str], where: str) -> None:
    """Judgements of which the corpus has no document do not belong to it: every figure would be 0, without a reason."""
    judged = dict.fromkeys(document for grades in qrels for document in grades)
    if judged and not any(id in judged for id in ids):
        raise DataError(
            f"none of the {len(judged):,} documents that {where} judges is in the corpus: it judges "
            f"{name_some(list(judged), 3)}, and the corpus has {name_some(ids, 3)}"
        )


def _judged_queries(queries: TextRows, qrels: trec.Judgements) -> tuple[list[Record], int]:
    """The judged queries with their judgements, and the number of the others."""
    judged, unjudged = [], 0
    for id, row in queries.unique():
        if id not in qrels:
            unjudged += 1
            continue
        text = read_required_text(row)
        judged.append(Record(id, row.where, {"query": text, "qrels": qrels[id]}, blank=not text.strip()))
    return judged, unjudged


def find(source: DataSource) -> BeirFiles:
    """The three parts in a folder of files, or in the configurations of a hub dataset or of a local copy of one."""
    if hub.is_on_hub(source.path):
        return _in_configurations(source.path.removeprefix("hub:"), source.name, source.split, source.revision)
    folder = readers.to_path(source.path)
    is_copy = (folder / "README.md").is_file() and not find_file(folder, "corpus")
    hub.refuse_options(source.path, None if is_copy else source.name, source.revision)
    if is_copy:
        return _in_configurations(str(folder), source.name, source.split, None)
    return _in_files(folder, source.split)


def _in_files(folder: Path, split: str | None) -> BeirFiles:
    corpus, queries = (_required_file(folder, name) for name in ("corpus", "queries"))
    judgements = {
        file.name.removesuffix(ending): file
        for ending in reversed(_JUDGEMENTS)
        for file in sorted((folder / "qrels").glob(f"*{ending}"))
    }
    if not judgements:
        raise DataError(f"the folder {folder} has no qrels: expected qrels/{split or 'test'}.tsv")
    split = _qrels_split(split, sorted(judgements), f"the folder {folder}")
    file = judgements[split]
    return BeirFiles(
        corpus=file_rows(corpus),
        queries=file_rows(queries, name=queries.name),
        qrels=partial(trec.read_qrels, file),
        qrels_name=str(file),
        split=split,
    )


def _required_file(folder: Path, name: str) -> Path:
    if file := find_file(folder, name):
        return file
    raise DataError(f"{folder} has no {name}.jsonl: expected a folder with corpus.jsonl, queries.jsonl and qrels/")


def _qrels_split(split: str | None, names: Sequence[str], place: str) -> str:
    split = readers.usual_split(split, names)
    if split not in names:
        raise DataError(f"{place} has no qrels of {split!r}: it has {_list(names)}{readers.CHOOSE_SPLIT}")
    return split


def _in_configurations(path: str, name: str | None, split: str | None, revision: str | None) -> BeirFiles:
    prefix = f"{name}-" if name else ""
    names = hub.configs(path, revision)
    for config in (f"{prefix}corpus", f"{prefix}queries"):
        if config not in names:
            raise DataError(f"{path} has no configuration {config!r}, as BEIR data have on the hub: {_list(names)}")
    home, config = _find_qrels(path, name, names, revision)
    split = _qrels_split(split, hub.splits(home, config, revision), f"{home} ({config})")
    return BeirFiles(
        corpus=_configuration(path, f"{prefix}corpus", split, revision),
        queries=_configuration(path, f"{prefix}queries", split, revision),
        qrels=lambda: trec.gather(trec.read_rows(hub.read(home, name=config, split=split, revision=revision))),
        qrels_name=f"{home} ({config}, {split})",
        split=split,
    )


def _find_qrels(path: str, name: str | None, names: Sequence[str], revision: str | None) -> tuple[str, str]:
    """The dataset and the configuration that hold the judgements."""
    for config in (f"{name}-qrels", name) if name else ("default", "qrels"):
        if config in names:
            return path, config
    home = f"{path}-qrels"
    if revision:
        raise RequestError(f"{path} has no judgements; {home} may have them, but `revision` does not apply to it")
    try:
        there = hub.configs(home, None)
    except DataError as error:
        raise DataError(
            f"{path} has no judgements: expected a configuration 'default' or 'qrels', found {_list(names)}, "
            f"and there is no dataset {home}"
        ) from error
    config = name or (there[0] if len(there) == 1 else "default")
    if config not in there:
        raise DataError(f"{home} has no configuration {config!r}: it has {_list(there)} (`DataOptions.name`)")
    return home, config


def _configuration(path: str, config: str, split: str, revision: str | None) -> TextRows:
    """A part that all splits share has its own split: the one of its name, or the only one."""
    splits = hub.splits(path, config, revision)
    usual = (config, config.rpartition("-")[2], split)
    chosen = next((s for s in usual if s in splits), splits[0] if len(splits) == 1 else None)
    if chosen is None:
        raise DataError(f"{path} ({config}) has no split {split!r}: it has {_list(splits)}{readers.CHOOSE_SPLIT}")
    return TextRows(partial(hub.read, path, name=config, split=chosen, revision=revision), f"{path} ({config})")


def _list(names: Sequence[str]) -> str:
    return ", ".join(names) or "none"
