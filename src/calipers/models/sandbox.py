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
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from calipers.core import CalipersError, InferenceError, ModelError, RequestError
from calipers.core.inputs import limits
from calipers.models.options import ModelOptions
from calipers.models.source import Source

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
    if fingerprint and options.sandbox != "always" and os.path.exists(mark):  # False where no such place can be
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
    command = [sys.executable, "-P", "-c", "from calipers.models.trial import serve; serve()"]
    clock = _START + 3 * request["seconds"]
    try:
        done = subprocess.run(
            command, input=json.dumps(request).encode(), stdout=subprocess.PIPE, timeout=clock, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise ModelError(f"{name} did not run one text in {clock:.0f} seconds{ADVICE}") from error
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
    raise ModelError(f"{name} {_ending(done.returncode, request)}{ADVICE}")


ADVICE = " (tried in a process of its own; `input_limit` sandbox_seconds=N or sandbox_memory=N gives it more)"


def _ending(code: int, request: dict[str, Any]) -> str:
    if code in (-signal.SIGXCPU, -signal.SIGKILL):
        return f"did not run one text in {request['seconds']} seconds of processor time"
    if code < 0:
        return f"ends the process that runs it on one text ({signal.Signals(-code).name})"
    return f"ends the process that runs it on one text (exit code {code})"
