"""What a user may set for a model, whatever the backend. None means: what the model's own files say."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial

from calipers.core import RequestError
from calipers.core.choices import DTYPES, POOLINGS, SANDBOX
from calipers.core.errors import quote
from calipers.core.options import Options, option
from calipers.metrics.threads import available_cores

_loading, _running = partial(option, group="Model"), partial(option, group="Running")


@dataclass(frozen=True)
class ModelOptions(Options):
    """How a model is loaded and run.

    >>> ModelOptions(pooling="cls", max_length=256).pooling
    'cls'
    """

    model_id: str | None = _loading(
        None,
        "Hub id or folder with the tokenizer and settings of an ONNX file or of a fill-mask endpoint; the model's name "
        "at other endpoints.",
        metavar="HF_ID",
    )
    file_name: str | None = _loading(
        None,
        "Which ONNX graph of a folder or repository, e.g. model_w8a8.onnx or onnx/model_fp16.onnx.",
        metavar="FILE",
    )
    revision: str | None = _loading(None, "The hub model's revision.", flag="--model-revision", metavar="COMMIT")
    pooling: str | None = _loading(None, "Default: what the model's files say, else mean.", choices=POOLINGS)
    normalize: bool | None = _loading(
        None, "Scale vectors to length 1. Default: what the model's files say.", off="--no-normalize"
    )
    prompt: str | None = _loading(None, "Put before every text, e.g. 'query: '.", metavar="TEXT")
    prompt_name: str | None = _loading(None, "The same, by its name in the model's files.", metavar="NAME")
    max_length: int | None = _loading(
        None, "Cut texts at this many tokens. Default: what the model takes.", metavar="N", at_least=1
    )
    truncate_dim: int | str | None = _loading(
        None,
        "Keep the first N numbers of a vector, or all. Several, such as 32,64,all, measure each size beside all (eval "
        "of sentence-similarity and retrieval). Default: what the model's files say.",
        metavar="N",
    )
    dtype: str = _loading("float32", "Number type of PyTorch weights.", choices=DTYPES)
    output: str | None = _loading(
        None, "The ONNX output to read, where its shape does not decide it.", flag="--graph-output", metavar="NAME"
    )
    allow_pickle: bool = _loading(False, "Accept pickled weights, which can run code.")
    trust_remote_code: bool = _loading(False, "Run the Python code that a model brings; needs a pinned revision.")
    device: str = _running("cpu", "cpu, cuda, npu, …", metavar="NAME")
    provider: str | None = _running(
        None,
        "ONNX Runtime execution provider: cpu, cuda, qnn, openvino, dml, … or its full name.",
        flag="--ep",
        metavar="PROVIDER",
    )
    batch_tokens: int | None = _running(None, "Tokens in a batch. Default: what is fastest.", metavar="N", at_least=1)
    batch_size: int | None = _running(None, "Rows in a batch, instead of a token budget.", metavar="N", at_least=1)
    threads: int | None = _running(None, "Cores to use. Default: all.", metavar="N", at_least=1, at_most=1_024)
    sandbox: str = _running(
        "auto",
        "First run one text in a process with limits on time and memory. auto: ONNX graphs that have not passed yet.",
        choices=SANDBOX,
    )
    timeout: float = _running(
        60.0,
        "How long an endpoint may take for one request with its repetitions.",
        metavar="SECONDS",
        above=0,
        below=math.inf,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        for first, second in (("batch_tokens", "batch_size"), ("prompt", "prompt_name")):
            if getattr(self, first) is not None and getattr(self, second) is not None:
                raise RequestError(f"`{first}` and `{second}` are mutually exclusive: set one of them")
        if self.truncate_dim is not None:
            object.__setattr__(self, "truncate_dim", _read_sizes(self.truncate_dim))

    @property
    def sizes(self) -> tuple[int, ...]:
        """The sizes of vectors that are measured beside the whole ones; none where there is one size only."""
        several = isinstance(self.truncate_dim, str) and self.truncate_dim != "all"
        return tuple(int(size) for size in str(self.truncate_dim).split(",") if size != "all") if several else ()

    def refuse_others(self, who: str, *used: str) -> None:
        """The number of threads and a trial before the run change no result: everything honours them."""
        super().refuse_others(who, "threads", "sandbox", *used)

    @property
    def workers(self) -> int:
        return self.threads or available_cores()


def _read_sizes(value: int | str) -> int | str:
    """One size, "all", or several sizes in ascending order with all behind them.

    >>> _read_sizes("64"), _read_sizes("64, 32,all"), _read_sizes("all")
    (64, '32,64,all', 'all')
    """
    parts = [part.strip() for part in str(value).split(",")]
    sizes = sorted({int(part) for part in parts if part.isdecimal() and len(part) < 10 and int(part) > 0})
    if isinstance(value, bool) or len(sizes) + parts.count("all") != len(parts) or parts.count("all") > 1:
        raise RequestError(f"`truncate_dim` must be sizes above 0, each once, or all, found {quote(value)}")
    if len(parts) == 1:
        return sizes[0] if sizes else "all"
    return ",".join([*map(str, sizes), "all"])
