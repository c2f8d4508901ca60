"""The one place that opens ONNX Runtime sessions and feeds graphs, by their own input names, types and shapes."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict, Unpack

import numpy as np

from calipers.core import InferenceError, ModelError, RequestError
from calipers.metrics.arrays import Array
from calipers.models.batching import Batch, Forward
from calipers.models.options import ModelOptions
from calipers.models.tokenizer_files import first_line

if TYPE_CHECKING:
    from onnxruntime import InferenceSession, NodeArg

Arrays = dict[str, Array]

CPU = "CPUExecutionProvider"

# The short names that people type, and the execution providers they stand for.
_PROVIDERS = {
    "cpu": CPU,
    "cuda": "CUDAExecutionProvider",
    "gpu": "CUDAExecutionProvider",
    "tensorrt": "TensorrtExecutionProvider",
    "rocm": "ROCMExecutionProvider",
    "migraphx": "MIGraphXExecutionProvider",
    "dml": "DmlExecutionProvider",
    "qnn": "QNNExecutionProvider",
    "npu": "QNNExecutionProvider",
    "openvino": "OpenVINOExecutionProvider",
    "vitisai": "VitisAIExecutionProvider",
    "coreml": "CoreMLExecutionProvider",
    "xnnpack": "XnnpackExecutionProvider",
}
# Providers with threads of their own, which the settings of a session do not reach → how they get one.
_ONE_THREAD = {"OpenVINOExecutionProvider": {"num_of_threads": "1"}}
# Fusions that are slower than what they replace on the processor: of 500 tokens × 384 numbers one fused step takes
# 0.8 ms, adding and normalising 0.1 ms (onnxruntime 1.31).
_SLOWER = ("SkipLayerNormFusion",)
_DTYPES: dict[str, type[np.generic]] = {
    "tensor(int64)": np.int64,
    "tensor(int32)": np.int32,
    "tensor(bool)": np.bool_,
    "tensor(float)": np.float32,
    "tensor(float16)": np.float16,
}
# A word in an input's name → the attribute of a Batch it is fed with; every exporter in use keeps one of these words.
_PARTS = {
    "mask": "mask",
    "type": "type_ids",
    "segment": "type_ids",
    "position": "positions",
    "ids": "ids",
    "token": "ids",
}


def choose_provider(options: ModelOptions) -> str:
    """The requested execution provider, once it is clear that this build of onnxruntime has it."""
    import onnxruntime

    name = provider_name(options)
    if name not in onnxruntime.get_all_providers():
        requested = options.provider or options.device
        raise RequestError(f"unknown execution provider {requested!r}: expected one of {', '.join(_PROVIDERS)}")
    available = available_providers()
    if name not in available:
        raise RequestError(
            f"the execution provider {name} is not in this build of onnxruntime (it has {', '.join(available)}): "
            "install the onnxruntime package made for it"
        )
    return name


def provider_name(options: ModelOptions) -> str:
    requested = options.provider or options.device
    return _PROVIDERS.get(requested.lower(), requested)


def available_providers() -> list[str]:
    import onnxruntime

    return [str(name) for name in onnxruntime.get_available_providers()]


def open_session(
    model: Path | bytes,
    *,
    provider: str = CPU,
    name: str | None = None,
    optimize: bool = True,
    weights: Path | None = None,
) -> InferenceSession:
    """A session whose calls run on the calling thread: workers that call it at once are the parallelism.

    `name` stands for the graph in errors, its path unless set. Without `optimize` nothing is fused. `weights` is the
    folder of the external weights of a graph given as bytes.
    """
    import onnxruntime

    name = name or _name_of(model)
    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads = settings.inter_op_num_threads = 1
    settings.log_severity_level = 4
    if not optimize:
        settings.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    if weights is not None:
        settings.add_session_config_entry("session.model_external_initializers_file_folder_path", str(weights))
    content = model if isinstance(model, bytes) else str(model)
    try:
        session = onnxruntime.InferenceSession(
            content,
            settings,
            providers=[(provider, _ONE_THREAD.get(provider, {}))],
            disabled_optimizers=list(_SLOWER) if provider == CPU else None,
        )
    except Exception as error:  # onnxruntime's errors have no common base class
        raise ModelError(f"{provider} cannot run {name}: ONNX Runtime cannot load it: {first_line(error)}") from error
    if session.get_providers()[0] != provider:
        raise ModelError(f"{provider} cannot run {name}: ONNX Runtime fell back to {session.get_providers()[0]}")
    return session


class Opening(TypedDict, total=False):
    """The settings of `open_session`."""

    provider: str
    name: str | None
    optimize: bool
    weights: Path | None


def open_graph(model: Path | bytes, *, extra: Collection[str] = (), **settings: Unpack[Opening]) -> Graph:
    """A graph ready to run; the arguments are those of `open_session` and `Graph`."""
    session = open_session(model, **settings)
    return Graph(session, settings.get("name") or _name_of(model), extra=extra)


def _name_of(model: Path | bytes) -> str:
    return str(model) if isinstance(model, Path) else "the graph"


class Graph:
    """A graph in an open session. `rows` and `length` are set where its shape is fixed; `extra` are inputs that are not
    made from a batch: `run` must be given their values."""

    def __init__(self, session: InferenceSession, name: str, *, extra: Collection[str] = ()) -> None:
        self.session, self.name = session, name
        arguments = [argument for argument in session.get_inputs() if argument.name not in extra]
        self._inputs = {argument.name: self._input(argument) for argument in arguments}
        self.outputs: dict[str, str] = {output.name: output.type for output in session.get_outputs()}  # name → type
        rows, lengths = ({a.shape[axis] for a in arguments if isinstance(a.shape[axis], int)} for axis in (0, 1))
        if sum(part == "ids" for part, _ in self._inputs.values()) != 1 or len(rows) > 1 or len(lengths) > 1:
            names = ", ".join(self._inputs) or "none"
            raise ModelError(f"{name} does not take text: expected one input of token ids, found {names}")
        self.rows: int | None = next(iter(rows), None)
        self.length: int | None = next(iter(lengths), None)

    def _input(self, argument: NodeArg) -> tuple[str, type[np.generic]]:
        """The attribute of a Batch that an input is fed with, and its type."""
        part = next((part for word, part in _PARTS.items() if word in argument.name.lower()), None)
        dtype = _DTYPES.get(argument.type)
        if part is None or dtype is None or len(argument.shape) != 2:
            raise ModelError(
                f"{self.name} does not take text: its input {argument.name!r} is {argument.type}"
                f"{list(argument.shape)}, expected token ids, masks, type ids or positions of shape [batch, length]"
            )
        return part, dtype

    @property
    def takes_mask(self) -> bool:
        return any(part == "mask" for part, _ in self._inputs.values())

    @property
    def dimensions(self) -> str:
        """Rows and length as words: "[1, any]"."""
        return f"[{self.rows or 'any'}, {self.length or 'any'}]"

    def run(
        self, batch: Batch, outputs: Sequence[str] | None = None, extra: Mapping[str, Array] | None = None
    ) -> Arrays:
        """The named outputs, all of them unless named, by name."""
        names, inputs = list(outputs or self.outputs), self._inputs.items()
        try:
            feeds = {name: np.ascontiguousarray(getattr(batch, part), dtype=dtype) for name, (part, dtype) in inputs}
            return dict(zip(names, self.session.run(names, feeds | dict(extra or {})), strict=True))
        except Exception as error:
            where = f"{self.name} on a batch of {batch.ids.shape}"
            raise InferenceError(f"ONNX Runtime failed to run {where}: {first_line(error)}") from error

    def forward(self, output: str) -> Forward:
        """One output as a function of a batch, in float32."""
        return lambda batch: np.asarray(self.run(batch, [output])[output], dtype=np.float32)
