"""What a user may set for a model, whatever the backend. None means: what the model's own files say."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass, fields

from calipers.core import RequestError
from calipers.core.choices import DTYPES, POOLINGS
from calipers.core.options import Options, option, parameter

_LOADING, _RUNNING = "Model", "Running"


@dataclass(frozen=True)
class ModelOptions(Options):
    """How a model is loaded and run.

    >>> ModelOptions(pooling="cls", max_length=256).pooling
    'cls'
    """

    model_id: str | None = option(
        None,
        "Hub id or folder with the tokenizer and settings of an ONNX file, or the model's name at an endpoint.",
        group=_LOADING,
        metavar="HF_ID",
    )
    revision: str | None = option(
        None, "The hub model's revision.", group=_LOADING, flag="--model-revision", metavar="COMMIT"
    )
    pooling: str | None = option(
        None, "Default: what the model's files say, else mean.", group=_LOADING, choices=POOLINGS
    )
    normalize: bool | None = option(
        None, "Scale vectors to length 1. Default: what the model's files say.", group=_LOADING, off="--no-normalize"
    )
    prompt: str | None = option(None, "Put before every text, e.g. 'query: '.", group=_LOADING, metavar="TEXT")
    prompt_name: str | None = option(
        None, "The same, by its name in the model's files.", group=_LOADING, metavar="NAME"
    )
    max_length: int | None = option(
        None,
        "Cut texts at this many tokens. Default: what the model takes.",
        group=_LOADING,
        metavar="N",
        at_least=1,
    )
    dtype: str = option("float32", "Number type of PyTorch weights.", group=_LOADING, choices=DTYPES)
    output: str | None = option(
        None,
        "The ONNX output to read, where its shape does not decide it.",
        group=_LOADING,
        flag="--graph-output",
        metavar="NAME",
    )
    allow_pickle: bool = option(False, "Accept pickled weights, which can run code.", group=_LOADING)
    trust_remote_code: bool = option(
        False, "Run the Python code that a model brings; needs a pinned revision.", group=_LOADING
    )
    device: str = option("cpu", "cpu, cuda, npu, …", group=_RUNNING, metavar="NAME")
    provider: str | None = option(
        None,
        "ONNX Runtime execution provider: cpu, cuda, qnn, openvino, dml, … or its full name.",
        group=_RUNNING,
        flag="--ep",
        metavar="PROVIDER",
    )
    batch_tokens: int | None = option(
        None, "Tokens in a batch. Default: what is fastest.", group=_RUNNING, metavar="N", at_least=1
    )
    batch_size: int | None = option(
        None, "Rows in a batch, instead of a token budget.", group=_RUNNING, metavar="N", at_least=1
    )
    threads: int | None = option(None, "Cores to use. Default: all.", group=_RUNNING, metavar="N", at_least=1)
    timeout: float = option(
        60.0,
        "How long an endpoint may take for one request.",
        group=_RUNNING,
        metavar="SECONDS",
        above=0,
        below=math.inf,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        for first, second in (("batch_tokens", "batch_size"), ("prompt", "prompt_name")):
            if getattr(self, first) is not None and getattr(self, second) is not None:
                raise RequestError(f"`{first}` and `{second}` are mutually exclusive: set one of them")

    def refuse_others(self, who: str, *used: str) -> None:
        """An option that a backend would ignore is an error: the user must not believe that it had an effect."""
        for field in fields(self):
            if field.name not in (*used, "threads") and getattr(self, field.name) != field.default:
                raise RequestError(f"{parameter(self, field.name)} is not supported for {who}")

    @property
    def workers(self) -> int:
        return self.threads or available_cores()


def available_cores() -> int:
    """The cores this process may use, which a container often limits."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
