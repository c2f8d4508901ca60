"""Rows of a hub dataset, through the `datasets` package."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from calipers.core import DataError, RequestError
from calipers.data.readers import Row


def read(
    path: str, *, name: str | None, split: str, revision: str | None, streaming: bool
) -> Generator[Row, None, None]:
    """Streaming or not, rows come in the order of the source. No code from the hub is run."""
    try:
        import datasets
    except ImportError as error:
        raise RequestError(
            f"there is no file or folder {path!r} here, and the hub takes: pip install 'calipers[hub]'"
        ) from error
    datasets.disable_progress_bars()
    try:  # streaming rows are read, and fail, while they are iterated
        rows = datasets.load_dataset(path, name=name, split=split, revision=revision, streaming=streaming)
        for number, values in enumerate(rows):
            yield Row(f"{path} ({split}), row {number}", values)
    except Exception as error:  # missing, offline, gated, bad split and bad config have no common base class
        raise DataError(
            f"{path!r} is no file here and cannot be read from the hub: {_reason(datasets, error)}"
        ) from error


def _reason(datasets: Any, error: BaseException) -> str:
    if isinstance(error, datasets.exceptions.DatasetGenerationError) and error.__cause__:
        error = error.__cause__  # the outer one only says that there was an error
    return " ".join(str(error).strip().splitlines()[:2]) or type(error).__name__
