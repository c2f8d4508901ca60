"""Whether the Hugging Face hub can answer, found out in a second: its own package tries for half a minute."""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import urlsplit

_SECONDS = 0.8
_OFFLINE = ("HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE", "TRANSFORMERS_OFFLINE")
_PROXIES = ("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy")


def why_unreachable(repository: str, kind: str = "model") -> str | None:
    """Why a repository that is not in the cache cannot be fetched; None where it may be, or is in the cache.

    Behind a proxy nothing is tried: only the hub's package knows how to get through.
    """
    if _is_cached(repository, kind):
        return None
    if chosen := [name for name in _OFFLINE if os.environ.get(name, "").upper() in ("1", "ON", "YES", "TRUE")]:
        return f"it is not in the cache, and {chosen[0]} forbids to fetch it"
    if any(os.environ.get(name) for name in _PROXIES):
        return None
    address = urlsplit(os.environ.get("HF_ENDPOINT") or "https://huggingface.co")
    port = address.port or (80 if address.scheme == "http" else 443)
    import socket

    try:
        socket.create_connection((address.hostname or "", port), timeout=_SECONDS).close()
    except OSError:
        return f"it is not in the cache, and {address.hostname} cannot be reached from here"
    return None


def _is_cached(repository: str, kind: str) -> bool:
    from huggingface_hub import constants

    places = [Path(constants.HF_HUB_CACHE) / f"{kind}s--{repository.replace('/', '--')}"]
    prepared = os.environ.get("HF_DATASETS_CACHE") or Path(constants.HF_HOME) / "datasets"
    places += [Path(prepared) / repository.replace("/", "___")] if kind == "dataset" else []
    return any(place.is_dir() for place in places)
