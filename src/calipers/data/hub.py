"""Rows of a hub dataset, through the `datasets` package. A folder with the hub's layout is read the same way."""

from __future__ import annotations

import logging
import os
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import Any

from calipers.core import DataError, RequestError
from calipers.core.errors import install
from calipers.core.hub import why_unreachable
from calipers.data import readers
from calipers.data.readers import Row


def is_on_hub(reference: str) -> bool:
    """Whether this names a dataset of the hub: `hub:ID`, or an id that is no local file or folder."""
    if reference.startswith("hub:"):
        return True
    if os.path.exists(os.path.expanduser(reference)):
        return False
    if readers.looks_like_a_path(reference):
        raise DataError(f"there is no dataset at {reference!r}: no such file or folder")
    return True


def refuse_options(reference: str, name: str | None, revision: str | None, *, streaming: bool = False) -> None:
    """A local file or folder has neither configurations nor revisions, and is read row by row anyway."""
    if streaming:
        raise RequestError(f"`streaming` is for the hub, and {reference} is a local file or folder")
    if name or revision:
        raise RequestError(
            f"`DataOptions.name` and `revision` are for the hub, and {reference} is a local file or folder"
        )


def read(
    path: str, *, name: str | None, split: str, revision: str | None, streaming: bool = False
) -> Generator[Row, None, None]:
    """Rows in the order of the source, streaming or not. No code from the hub is run."""
    config = f"{name}, " if name else ""
    with _datasets(path) as datasets:  # streaming rows are read, and fail, while they are iterated
        rows = datasets.load_dataset(path, name=name, split=split, revision=revision, streaming=streaming)
        for number, values in enumerate(rows):
            yield Row(f"{path} ({config}{split}), row {number}", values)


def configs(path: str, revision: str | None) -> list[str]:
    with _datasets(path) as datasets:
        return list(datasets.get_dataset_config_names(path, revision=revision))


def splits(path: str, name: str, revision: str | None) -> list[str]:
    with _datasets(path) as datasets:
        return list(datasets.get_dataset_split_names(path, name, revision=revision))


@contextmanager
def _datasets(path: str) -> Iterator[Any]:
    """The package. Every error inside becomes a DataError of one sentence."""
    local = os.path.isdir(path)
    try:
        import datasets
    except ImportError as error:
        what = f"{path!r} has the layout of the hub, which" if local else f"{path!r} is not a local file, and the hub"
        raise RequestError(f"{what} needs a package: {install('hub')}") from error
    if not local and (why := why_unreachable(path.removeprefix("hub:"), "dataset")):
        raise DataError(
            f"{path!r} is no local file but a dataset of the hub: {why}. Set `dataset` to a file of your own"
        )
    datasets.disable_progress_bars()
    logging.getLogger("huggingface_hub").setLevel(logging.ERROR)  # a line at each retry, before ours
    try:
        yield datasets
    except Exception as error:  # missing, offline, gated, bad split and bad config have no common base class
        outer = isinstance(error, datasets.exceptions.DatasetGenerationError)  # it only says that there was an error
        cause = (outer and error.__cause__) or error
        reason = " ".join(str(cause).strip().splitlines()[:2]) or type(cause).__name__
        what = "has the layout of the hub and" if local else "is not a local file and"
        raise DataError(f"{path!r} {what} cannot be read{'' if local else ' from the hub'}: {reason}") from error
