"""Model folders from the Hugging Face hub, or from its cache when offline."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterable, Sequence
from pathlib import Path

from calipers.core import ModelError
from calipers.core.hub import why_unreachable
from calipers.models.tokenizer_files import first_line

# Everything but weights: settings, tokenizers and vocabularies.
SETTINGS = ("*.json", "*.txt", "*.model", "*.jinja", "*/config.json")


def fetch(model_id: str, *, revision: str | None, patterns: Sequence[str]) -> Path:
    """The local folder of a hub model, downloaded or from the cache."""
    if why := why_unreachable(model_id):
        raise ModelError(f"{model_id!r} is neither a file or folder here nor a model that the hub can provide: {why}")
    from huggingface_hub import snapshot_download
    from huggingface_hub.utils import disable_progress_bars  # type: ignore[attr-defined]

    disable_progress_bars()
    logging.getLogger("huggingface_hub").setLevel(logging.ERROR)  # a line at each retry, before ours
    try:
        return Path(snapshot_download(model_id, revision=revision, allow_patterns=list(patterns)))
    except Exception as error:  # repository, revision, network and offline errors have no common base class
        raise ModelError(
            f"{model_id!r} is neither a file or folder here nor a model that the hub can provide: {first_line(error)}"
        ) from error


def fingerprint(paths: Iterable[Path]) -> str:
    """SHA-256 over the content of the files, in order of their names; where they lie does not matter."""
    total = hashlib.sha256()
    for path in sorted(paths, key=lambda p: p.name):
        with path.open("rb") as file:
            total.update(hashlib.file_digest(file, "sha256").digest())
    return f"sha256:{total.hexdigest()}"
