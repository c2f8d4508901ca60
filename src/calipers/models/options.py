"""What a user may ask of a model, whatever the backend. None means: what the model's own files say."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass, fields

from calipers.core import RequestError

POOLINGS = ("mean", "cls", "max", "last")
# Where the flag is not called like the field.
_FLAGS = {"revision": "--model-revision", "provider": "--ep", "output": "--graph-output"}
DTYPES = ("float32", "float16", "bfloat16")


@dataclass(frozen=True)
class ModelOptions:
    model_id: str | None = None  # tokenizer and settings of an ONNX file; the model name an endpoint expects
    revision: str | None = None
    pooling: str | None = None
    normalize: bool | None = None
    prompt: str | None = None
    prompt_name: str | None = None
    max_length: int | None = None
    dtype: str = "float32"
    device: str = "cpu"
    provider: str | None = None  # an ONNX Runtime execution provider
    output: str | None = None  # the graph output to read, where the shape does not tell
    batch_tokens: int | None = None
    batch_size: int | None = None
    threads: int | None = None
    allow_pickle: bool = False
    trust_remote_code: bool = False
    timeout: float = 60.0  # seconds an endpoint may take to answer one request

    def __post_init__(self) -> None:
        _one_of("--pooling", self.pooling, POOLINGS)
        _one_of("--dtype", self.dtype, DTYPES)
        for flag, value in (
            ("--max-length", self.max_length),
            ("--batch-tokens", self.batch_tokens),
            ("--batch-size", self.batch_size),
            ("--threads", self.threads),
        ):
            if value is not None and value < 1:
                raise RequestError(f"{flag} must be at least 1, found {value}")
        if self.batch_tokens and self.batch_size:
            raise RequestError("--batch-tokens and --batch-size exclude each other: give one of them")
        if self.prompt is not None and self.prompt_name is not None:
            raise RequestError("--prompt and --prompt-name exclude each other: give one of them")
        if not 0 < self.timeout < math.inf:
            raise RequestError(f"--timeout must be above 0 seconds, found {self.timeout:g}")

    def refuse_others(self, who: str, *used: str) -> None:
        """A flag that a backend would ignore is an error: the user must not believe that it did something."""
        for field in fields(self):
            if field.name not in (*used, "threads") and getattr(self, field.name) != field.default:
                raise RequestError(
                    f"{_FLAGS.get(field.name, '--' + field.name.replace('_', '-'))} does not apply to {who}"
                )

    @property
    def workers(self) -> int:
        return self.threads or available_cores()


def available_cores() -> int:
    """The cores this process may use, which a container often limits."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _one_of(flag: str, value: str | None, allowed: tuple[str, ...]) -> None:
    if value is not None and value not in allowed:
        raise RequestError(f"{flag} must be one of {', '.join(allowed)}, found {value!r}")
