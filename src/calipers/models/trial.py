"""The process in which a model of someone else is run on one text; `sandbox` starts it and reads its answer."""

from __future__ import annotations

import json
import os
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from calipers import models
from calipers.core import CalipersError, ModelError
from calipers.core.errors import boundary
from calipers.core.inputs import limited
from calipers.models.options import ModelOptions
from calipers.models.sandbox import ADVICE
from calipers.models.source import Source

_TEXT = "The quick brown fox."


def serve() -> None:
    """Read a request, answer in one line of JSON."""
    request = json.load(sys.stdin)
    channel = os.dup(1)
    os.dup2(2, 1)  # what libraries print is no answer
    answer = _answer(request)
    os.write(channel, json.dumps(answer).encode())
    os._exit(0)  # not through the ends of libraries, which may wait for a thread that never comes back


def _answer(request: dict[str, Any]) -> dict[str, Any]:
    try:
        with limited(**request["limits"]), boundary(ModelError, "it cannot be loaded"):
            _run(request)
    except MemoryError:
        return {"kind": "ModelError", "message": _too_large(request)}
    except CalipersError as error:
        large = isinstance(error.__cause__, MemoryError) or any(word in str(error) for word in _OUT_OF_MEMORY)
        return {"kind": type(error).__name__, "message": _too_large(request) if large else str(error)}
    return {"passed": True}


_OUT_OF_MEMORY = (
    *("bad_alloc", "bad allocation", "Failed to allocate memory", "more memory than there is", "DefaultCPUAllocator"),
    *("Cannot allocate memory", "out of memory"),
)


def _too_large(request: dict[str, Any]) -> str:
    return f"{request['source']['reference']} needs more than {request['memory'] >> 20:,} MiB for one text{ADVICE}"


def _run(request: dict[str, Any]) -> None:
    place = request["source"]
    source = Source(place["backend"], place["reference"], Path(place["path"]) if place["path"] else None)
    options, ability = ModelOptions(**request["options"]), request["ability"]
    _import_backend(source.backend)
    limit_process(request["seconds"], request["memory"])
    model: Any = models.load(source, options, ability)
    if ability in ("encode", "retrieve"):
        model.encode([_TEXT])
    elif ability == "score":
        model.score([(_TEXT, _TEXT)])


def _import_backend(backend: str) -> None:
    """Before the limits: they are for the model, not for the libraries."""
    import numpy  # noqa: F401
    import tokenizers  # noqa: F401

    with suppress(ImportError):
        if backend == "torch":
            import torch  # noqa: F401
            import transformers  # noqa: F401
        elif backend == "onnx":
            import onnxruntime  # noqa: F401


def limit_process(seconds: int, memory: int) -> None:
    """Seconds of processor time and bytes that this process may use beyond what it has used."""
    try:
        import resource
    except ImportError:  # Windows has neither: the clock of the parent remains
        return
    spent = int(time.process_time()) + 1
    resource.setrlimit(resource.RLIMIT_CPU, (spent + seconds, spent + seconds + 1))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with suppress(OSError, ValueError, IndexError):
        pages = int(Path("/proc/self/statm").read_text().split()[5])
        most = pages * resource.getpagesize() + memory
        # Not RLIMIT_AS: for each thread that allocates, malloc reserves up to 128 MB of addresses that hold nothing.
        resource.setrlimit(resource.RLIMIT_DATA, (most, most))
