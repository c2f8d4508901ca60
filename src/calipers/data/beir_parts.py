"""Where the three parts of BEIR data are: in a folder of files, or in the configurations of a hub dataset."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from calipers.core import DataError, RequestError
from calipers.data import hub, readers, trec

Rows = Callable[[], Iterator[readers.Row]]
_JUDGEMENTS = (".tsv", ".txt", ".qrels", ".tsv.gz", *trec.ROWS)  # the first that is there wins


@dataclass(frozen=True)
class Parts:
    """Each part is read when it is called; the names are for messages."""

    corpus: Rows
    queries: Rows
    qrels: Callable[[], trec.Judgements]
    split: str
    corpus_name: str
    queries_name: str
    qrels_name: str


def find(reference: str, name: str | None, split: str | None, revision: str | None) -> Parts:
    folder = Path(os.path.expanduser(reference))
    if reference.startswith("hub:") or not (folder.exists() or readers.looks_like_a_path(reference)):
        return _in_configurations(reference.removeprefix("hub:"), name, split, revision)
    copy = (folder / "README.md").is_file() and not _file(folder, "corpus")
    if revision or (name and not copy):
        raise RequestError(f"--dataset-name and --revision are for the hub, and {reference} is a folder here")
    return _in_configurations(str(folder), name, split, None) if copy else _in_files(folder, split)


# --- files -----------------------------------------------------------------------------------------------------


def _in_files(folder: Path, split: str | None) -> Parts:
    corpus, queries = _find_file(folder, "corpus"), _find_file(folder, "queries")
    split, judgements = _find_judgements(folder, split)
    return Parts(
        corpus=partial(readers.read, corpus, None),
        queries=partial(readers.read, queries, None),
        qrels=partial(trec.read_qrels, judgements),
        split=split,
        corpus_name=str(corpus),
        queries_name=queries.name,
        qrels_name=str(judgements),
    )


def _file(folder: Path, name: str) -> Path | None:
    return next((f for f in (folder / f"{name}.jsonl", folder / f"{name}.jsonl.gz") if f.is_file()), None)


def _find_file(folder: Path, name: str) -> Path:
    if file := _file(folder, name):
        return file
    if not folder.is_dir():
        raise DataError(f"there is no folder {folder}: expected one with corpus.jsonl, queries.jsonl and qrels/")
    raise DataError(f"the folder {folder} has no {name}.jsonl: expected corpus.jsonl, queries.jsonl and qrels/")


def _find_judgements(folder: Path, split: str | None) -> tuple[str, Path]:
    files = {
        file.name.removesuffix(ending): file
        for ending in reversed(_JUDGEMENTS)
        for file in sorted((folder / "qrels").glob(f"*{ending}"))
    }
    if not files:
        raise DataError(f"the folder {folder} has no qrels: expected qrels/{split or 'test'}.tsv")
    split = _settle(split, sorted(files), f"the folder {folder}")
    return split, files[split]


def _settle(split: str | None, known: Sequence[str], place: str) -> str:
    """The split asked for, else test, else the only one there is."""
    if split is None:
        split = "test" if "test" in known or len(known) > 1 else known[0]
    if split not in known:
        raise DataError(f"{place} has no qrels of {split!r}: it has {', '.join(known)} (--split)")
    return split


# --- configurations --------------------------------------------------------------------------------------------


def _in_configurations(path: str, name: str | None, split: str | None, revision: str | None) -> Parts:
    prefix = f"{name}-" if name else ""
    known = hub.configs(path, revision)
    for config in (f"{prefix}corpus", f"{prefix}queries"):
        if config not in known:
            raise DataError(f"{path} has no configuration {config!r}, as BEIR data have on the hub: {_list(known)}")
    home, config = _find_qrels(path, name, known, revision)
    chosen = _settle(split, hub.splits(home, config, revision), f"{home} ({config})")
    return Parts(
        corpus=_rows(path, f"{prefix}corpus", chosen, revision),
        queries=_rows(path, f"{prefix}queries", chosen, revision),
        qrels=lambda: trec.gather(trec.qrels_of(hub.read(home, name=config, split=chosen, revision=revision))),
        split=chosen,
        corpus_name=f"{path} ({prefix}corpus)",
        queries_name=f"{path} ({prefix}queries)",
        qrels_name=f"{home} ({config}, {chosen})",
    )


def _find_qrels(path: str, name: str | None, known: Sequence[str], revision: str | None) -> tuple[str, str]:
    """The dataset and the configuration that hold the judgements."""
    for config in (f"{name}-qrels", name) if name else ("default", "qrels"):
        if config in known:
            return path, config
    home = f"{path}-qrels"
    if revision:
        raise RequestError(f"{path} has its judgements in {home}, if anywhere, of which --revision says nothing")
    try:
        there = hub.configs(home, None)
    except DataError as error:
        raise DataError(
            f"{path} has no judgements: expected a configuration 'default' or 'qrels', found {_list(known)}, "
            f"and there is no dataset {home}"
        ) from error
    config = name or (there[0] if len(there) == 1 else "default")
    if config not in there:
        raise DataError(f"{home} has no configuration {config!r}: it has {_list(there)} (--dataset-name)")
    return home, config


def _rows(path: str, config: str, split: str, revision: str | None) -> Rows:
    """A part that all splits share has one of its own: that of its name, or the only one."""
    known = hub.splits(path, config, revision)
    wished = (config, config.rpartition("-")[2], split)
    own = next((s for s in wished if s in known), known[0] if len(known) == 1 else None)
    if own is None:
        raise DataError(f"{path} ({config}) has no split {split!r}: it has {_list(known)} (--split)")
    return partial(hub.read, path, name=config, split=own, revision=revision)


def _list(names: Sequence[str]) -> str:
    return ", ".join(names) or "none"
