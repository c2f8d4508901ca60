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
        raise RequestError(f"the dataset {path!r} comes from the hub: pip install 'calipers[hub]'") from error
    datasets.disable_progress_bars()
    rows = _open(datasets, path, name=name, split=split, revision=revision, streaming=streaming)
    for number, values in enumerate(rows):
        yield Row(f"{path} ({split}), row {number}", values)


def _open(datasets: Any, path: str, **options: Any) -> Any:
    try:
        return datasets.load_dataset(path, **options)
    except Exception as error:  # missing, offline, gated, bad split and bad config have no common base class
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise DataError(
            f"{path!r} is neither a file or folder here nor a dataset that the hub gives us: {reason}"
        ) from error
