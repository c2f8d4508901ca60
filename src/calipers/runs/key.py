"""The key under which a run is stored, so that the same question is answered without a model.

Everything that can change an outcome is an ingredient of the key, by name: a change of any one of them is another key.
How fast the answer came (threads) and where the files lie are not ingredients.
"""

from __future__ import annotations

import hashlib
import json
import platform
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import calipers
from calipers.core.files import ONNX_RUNTIMES, package_versions
from calipers.core.machine import processor_fact

SCHEMA = "calipers/cache/1"

# Our own parts that can change a number; reports, commands and the store cannot.
PARTS = ("core", "metrics", "models", "data", "tasks", "runs/api.py")
# Those that compute.
PACKAGES = (
    *("numpy", *ONNX_RUNTIMES),
    *("onnx", "torch", "transformers", "tokenizers", "sentence-transformers", "safetensors", "faiss-cpu", "bm25s"),
)
# Instruction sets that choose another kernel: without VNNI u8s8 products saturate, and sums are added in another order.
_KERNELS = {
    *("avx", "avx2", "fma", "avx512f", "avx512bw", "avx512_vnni", "avx_vnni", "avx512_bf16", "amx_int8", "amx_bf16"),
    *("asimddp", "asimdhp", "i8mm", "bf16", "sve", "sve2", "sme"),
}


def cache_key(
    *,
    model: Mapping[str, Any],
    fingerprint: str,
    ids: Sequence[str],
    task: str,
    options: Mapping[str, Any],
    code: Mapping[str, Any],
    rows: Mapping[str, Any] | None = None,
) -> str:
    """SHA-256 over the named ingredients. `model` is what `models.identity` gives, `code` what `code_version` gives.

    `fingerprint` and `ids` are of the dataset before anything is scored; `rows` are further facts about it that reach
    the outcomes.

    >>> facts = {"model": {"weights": "a"}, "fingerprint": "f", "ids": ["1"], "task": "t", "code": {}}
    >>> cache_key(**facts, options={"k": 1}) == cache_key(**facts, options={"k": 2})
    False
    """
    ingredients = {
        "schema": SCHEMA,
        "model": model,
        "fingerprint": fingerprint,
        "ids": list(ids),
        "rows": rows or {},
        "task": task,
        "options": options,
        "code": code,
    }
    return f"sha256:{hashlib.sha256(canonical(ingredients).encode()).hexdigest()}"


def canonical(value: Any) -> str:
    """The same text for the same content, whatever the order of keys; a tuple and a list are the same.

    >>> canonical({"b": (1, 2), "a": None})
    '{"a":null,"b":[1,2]}'
    """
    return json.dumps(value, sort_keys=True, separators=(",", ":"), default=repr)


def code_version(parts: tuple[str, ...] = PARTS) -> dict[str, Any]:
    """What computes: our version and the source of these parts, the packages, and the kind of machine."""
    return {
        "calipers": calipers.__version__,
        "source": _own_digest(parts),
        "packages": dict(_versions()),
        "machine": list(_machine()),
    }


def source_digest(root: Path, parts: Sequence[str] = PARTS) -> str:
    """SHA-256 over names and content of the source files of these parts below `root`."""
    total = hashlib.sha256()
    for part in parts:
        place = root / part
        for file in [place] if place.is_file() else sorted(place.rglob("*.py")):
            total.update(f"{file.relative_to(root).as_posix()}\0".encode())
            total.update(hashlib.sha256(file.read_bytes()).digest())
    return f"sha256:{total.hexdigest()}"


@cache
def _own_digest(parts: tuple[str, ...]) -> str:
    """Read once: what this process runs is what was there when it began."""
    return source_digest(Path(calipers.__file__).parent, parts)


@cache
def _versions() -> tuple[tuple[str, str], ...]:
    return tuple(package_versions(*PACKAGES).items())


@cache
def _machine() -> tuple[str, ...]:
    """System, architecture, maker and instruction sets, not the name of the processor: like machines share runs."""
    flags = processor_fact("flags", "Features")
    sets = [platform.processor()] if flags is None else sorted(_KERNELS.intersection(flags.split()))
    return platform.system(), platform.machine(), processor_fact("vendor_id") or "", *sets
