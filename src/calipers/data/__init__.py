"""A file, a folder or a hub id to a Dataset: typed columns, an id per row, a fingerprint of both."""

from calipers.data.api import load_dataset, load_rows, sample
from calipers.data.choose import DataOptions

__all__ = ["DataOptions", "load_dataset", "load_rows", "sample"]
