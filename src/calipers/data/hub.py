"""Rows of a hub dataset, through the `datasets` package. A folder with the hub's layout is read the same way."""

from __future__ import annotations

import logging
import os
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import Any

from calipers.core import DataError, RequestError
from calipers.data import readers
from calipers.data.readers import Row


def is_on_hub(reference: str) -> bool:
    """Whether this names a dataset of the hub: `hub:ID`, or an id that is no file or folder here."""
    if reference.startswith("hub:"):
        return True
    if os.path.exists(os.path.expanduser(reference)):
        return False
    if readers.looks_like_a_path(reference):
        raise DataError(f"there is no dataset at {reference!r}: no such file or folder")
    return True


def read(
    path: str, *, name: str | None, split: str, revision: str | None, streaming: bool = False
) -> Generator[Row, None, None]:
    """Streaming or not, rows come in the order of the source. No code from the hub is run."""
    config = f"{name}, " if name else ""
    with _datasets(path) as datasets:  # streaming rows are read, and fail, while they are iterated
        rows = datasets.load_dataset(path, name=name, split=split, revision=revision, streaming=streaming)
        for number, values in enumerate(rows):
            yield Row(f"{path} ({config}{split}), row {number}", values)


def configs(path: str, revision: str | None) -> list[str]:
    """The configurations of a dataset."""
    with _datasets(path) as datasets:
        return list(datasets.get_dataset_config_names(path, revision=revision))


def splits(path: str, name: str, revision: str | None) -> list[str]:
    """The splits of a configuration."""
    with _datasets(path) as datasets:
        return list(datasets.get_dataset_split_names(path, name, revision=revision))


@contextmanager
def _datasets(path: str) -> Iterator[Any]:
    """The package; whatever goes wrong in it becomes one sentence."""
    try:
        import datasets
    except ImportError as error:
        what = f"{path!r} has the layout of the hub, which" if os.path.isdir(path) else _NOT_HERE.format(path)
        raise RequestError(f"{what} takes: pip install 'calipers[hub]'") from error
    datasets.disable_progress_bars()
    logging.getLogger("huggingface_hub").setLevel(logging.ERROR)  # a line at each retry, before ours
    try:
        yield datasets
    except Exception as error:  # missing, offline, gated, bad split and bad config have no common base class
        where = "has the layout of the hub and cannot be read" if os.path.isdir(path) else _ELSEWHERE
        raise DataError(f"{path!r} {where}: {_reason(datasets, error)}") from error


_NOT_HERE = "there is no file or folder {!r} here, and the hub"
_ELSEWHERE = "is no file here and cannot be read from the hub"


def _reason(datasets: Any, error: BaseException) -> str:
    if isinstance(error, datasets.exceptions.DatasetGenerationError) and error.__cause__:
        error = error.__cause__  # the outer one only says that there was an error
    return " ".join(str(error).strip().splitlines()[:2]) or type(error).__name__
