"""A model of someone else is first run on one text in a process of its own, with limits on time and memory.

A graph can loop for ever, fill the memory with a constant, or end the process that runs it; none of that can be caught
in the process itself. What passed is remembered by the content of its files. `sandbox` is auto (graphs that have not
passed before), always (every model that is run here) or never; CALIPERS_SANDBOX is what auto stands for.
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from calipers.core import CalipersError, InferenceError, ModelError, RequestError
from calipers.core.errors import boundary
from calipers.core.inputs import limited, limits
from calipers.models.options import ModelOptions
from calipers.models.source import Source

_TEXT = "The quick brown fox."
_BYTES_A_SECOND = 20_000_000  # of a model's files: what a slow core reads, optimises and runs
_START = 30.0  # seconds that the start of the process may take beside its work
_KINDS = {kind.__name__: kind for kind in (CalipersError, InferenceError, ModelError, RequestError)}


def is_needed(source: Source, options: ModelOptions) -> bool:
    """Whether the model is tried first, as far as its backend decides it."""
    mode = os.environ.get("CALIPERS_SANDBOX", "auto") if options.sandbox == "auto" else options.sandbox
    runs = ("onnx",) if mode == "auto" else ("onnx", "torch", "static")
    return mode != "never" and source.backend in runs


def try_out(source: Source, options: ModelOptions, ability: str, fingerprint: str | None, size: int) -> None:
    """Load the model and run one text elsewhere, unless the same files have passed. `size` are their bytes."""
    key = hashlib.sha256(f"{fingerprint} {ability} {sys.version}".encode()).hexdigest()
    mark = _passed() / key
    if fingerprint and options.sandbox != "always" and mark.exists():
        return
    request = {
        "source": {"backend": source.backend, "reference": source.reference, "path": str(source.path or "")},
        "options": asdict(replace(options, sandbox="never")),
        "ability": ability,
        "limits": asdict(limits()),
        "seconds": limits().sandbox_seconds + size // _BYTES_A_SECOND,
        "memory": limits().sandbox_memory + 4 * size,
    }
    _judge(source.reference, request)
    with suppress(OSError):  # a folder that cannot be written costs a trial the next time
        mark.parent.mkdir(parents=True, exist_ok=True)
        mark.touch()


def _passed() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "calipers" / "passed"


def _judge(name: str, request: dict[str, Any]) -> None:
    """Run the request in a child, and raise what is wrong with the model."""
    command = [sys.executable, "-P", "-c", "from calipers.models.sandbox import serve; serve()"]
    clock = _START + 3 * request["seconds"]
    try:
        done = subprocess.run(
            command, input=json.dumps(request).encode(), stdout=subprocess.PIPE, timeout=clock, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise ModelError(f"{name} did not run one text in {clock:.0f} seconds{_ADVICE}") from error
    except OSError as error:
        raise ModelError(f"{name} cannot be tried out: {error.strerror} (`sandbox` never does without)") from error
    try:
        answer = json.loads(done.stdout)
    except ValueError:
        answer = {}
    if answer.get("passed"):
        return
    if "kind" in answer:
        raise _KINDS.get(answer["kind"], ModelError)(str(answer["message"]))
    raise ModelError(f"{name} {_ending(done.returncode, request)}{_ADVICE}")


_ADVICE = " (tried in a process of its own; `input_limit` sandbox_seconds=N or sandbox_memory=N gives it more)"


def _ending(code: int, request: dict[str, Any]) -> str:
    if code in (-signal.SIGXCPU, -signal.SIGKILL):
        return f"did not run one text in {request['seconds']} seconds of processor time"
    if code < 0:
        return f"ends the process that runs it on one text ({signal.Signals(-code).name})"
    return f"ends the process that runs it on one text (exit code {code})"


# --- in the child --------------------------------------------------------------------------------------------------


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
    return f"{request['source']['reference']} needs more than {request['memory'] >> 20:,} MiB for one text{_ADVICE}"


def _run(request: dict[str, Any]) -> None:
    from calipers import models

    place = request["source"]
    source = Source(place["backend"], place["reference"], Path(place["path"]) if place["path"] else None)
    options, ability = ModelOptions(**request["options"]), request["ability"]
    _import_backend(source.backend)
    _limit(request["seconds"], request["memory"])
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


def _limit(seconds: int, memory: int) -> None:
    try:
        import resource
    except ImportError:  # Windows has neither: the clock of the parent remains
        return
    spent = int(time.process_time()) + 1
    resource.setrlimit(resource.RLIMIT_CPU, (spent + seconds, spent + seconds + 1))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with suppress(OSError, ValueError, IndexError):
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        most = pages * resource.getpagesize() + memory
        resource.setrlimit(resource.RLIMIT_AS, (most, most))
