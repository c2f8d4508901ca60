"""load_dataset: a file, a folder or a hub id to the Dataset that a task reads."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

from calipers.core import Column, DataError, Dataset, DataSource, RequestError, Task
from calipers.core.errors import boundary
from calipers.data import hub, readers, trec
from calipers.data.choose import DataOptions
from calipers.data.columns import map_columns, records
from calipers.data.hints import other_task
from calipers.data.kept import keep


def sample(name: str) -> Path:
    """A file of the sample data that this package carries: "english" or "japanese"."""
    return Path(__file__).parent / "sample" / f"{name}.jsonl"


@boundary(DataError, "the data cannot be read")
def load_dataset(
    reference: str,
    task: Task[Any],
    *,
    columns: Mapping[str, str] | None = None,
    options: DataOptions | None = None,
    task_options: Any = None,
) -> Dataset:
    """The data that a task reads: a table of rows; a corpus, queries and judgements; or the sets of NanoBEIR.

    `reference` is a file, a folder or a hub id, `columns` maps the task's columns to their names in the data, and
    `task_options` is the task's options record, for the options that decide what is read (`qrels`, `sets`, `rerank_k`).

    >>> from calipers import data, tasks
    >>> pairs = data.load_dataset(str(data.sample("english")), tasks.find("sentence-similarity"))
    >>> len(pairs), pairs.ids[0], pairs.columns["score_column"][0]
    (120, 'en-001', 4.4)
    """
    try:
        return _load(reference, task, columns, options or DataOptions(), task_options or task.options())
    except DataError as error:
        if not columns and (hint := other_task(reference, task)):
            raise DataError(f"{str(error).removesuffix('.')}. {hint}") from error
        raise


def _load(
    reference: str, task: Task[Any], columns: Mapping[str, str] | None, options: DataOptions, task_options: Any
) -> Dataset:
    if task.data == "rows":
        rows = load_rows(reference, task.columns, mapping=columns, options=options)
        qrels = getattr(task_options, "qrels", None)
        return trec.add_qrels(rows, readers.to_path(qrels)) if qrels else rows
    if columns or options.streaming or options.cluster:
        raise RequestError(
            f"{task.name} reads a corpus, queries and judgements: `columns`, `streaming` and `cluster` do not apply"
        )
    if task.data == "beir":
        from calipers.data import beir

        return beir.load(reference, options)
    if options.name or options.split:
        raise RequestError(f"{task.name} takes its data by `sets`: `DataOptions.name` and `split` do not apply")
    from calipers.data import nanobeir

    return nanobeir.load(reference, task_options.splits, options, rerank_k=task_options.rerank_k)


@boundary(DataError, "the data cannot be read")
def load_rows(
    reference: str,
    columns: Sequence[Column],
    *,
    mapping: Mapping[str, str] | None = None,
    options: DataOptions | None = None,
) -> Dataset:
    """The chosen rows of a table, in the order of the source. Rows with a blank text are left out before the choice.

    Shuffling decides which rows are taken, not their order: the same rows have the same fingerprint, however they
    were chosen. `mapping` gives the names of columns (key to name) that are not called as usual.
    """
    options = options or DataOptions()
    names = map_columns(columns, mapping or {})
    source = replace(options.source(reference), split=_split(reference, options.split), columns_mapping=names)
    with closing(open_rows(source)) as rows:
        return keep(records(rows, columns, names, source.cluster), source)


def _split(reference: str, split: str | None) -> str | None:
    if hub.is_on_hub(reference):
        return split or "test"
    return readers.choose_split(readers.to_path(reference), split)


def open_rows(source: DataSource) -> Generator[readers.Row, None, None]:
    """The rows of a table as they are stored."""
    if hub.is_on_hub(source.path):
        path, split = source.path.removeprefix("hub:"), str(source.split)
        return hub.read(path, name=source.name, split=split, revision=source.revision, streaming=source.streaming)
    hub.refuse_options(source.path, source.name, source.revision, streaming=source.streaming)
    return readers.read(readers.to_path(source.path), source.split)
