"""What is measured of a model beside its usual form: another precision, fewer dimensions."""

from __future__ import annotations

import re

from calipers.core import ModelInfo

# How the file of a graph ends, in the names of transformers.js, optimum and `calipers build`.
_PRECISIONS = {
    "fp16": "float16",
    "float16": "float16",
    "bf16": "bfloat16",
    "fp32": "float32",
    "float32": "float32",
    "quantized": "int8",
    "int8": "int8",
    "uint8": "uint8",
    "qint8": "int8",
    "quint8": "uint8",
    "q4": "int4",
    "int4": "int4",
    "q4f16": "q4f16",
    "bnb4": "bnb4",
    "w8a8": "w8a8",
    "w8a16": "w8a16",
    "dynamic": "int8-dynamic",
}
_GRAPH = re.compile(r"([^/\\]+)\.onnx$")


def precision(info: ModelInfo) -> str:
    """The number type of a model: of PyTorch its dtype; of a graph what its name says, by usual endings.

    >>> from calipers.core import ModelInfo
    >>> def of(path, **settings): return precision(ModelInfo("onnx", "m", path, "cpu", "", settings))
    >>> of("enc/model_quantized.onnx"), of("enc/model_fp16.onnx"), of("enc/model.onnx"), of("enc", dtype="bfloat16")
    ('int8', 'float16', 'float32', 'bfloat16')
    """
    match = _GRAPH.search(info.path or "")
    words = re.split(r"[_.-]", match[1].lower()) if match else []
    named = next((_PRECISIONS[word] for word in reversed(words) if word in _PRECISIONS), None)
    return named or str(info.settings.get("dtype") or "float32")


def variant(info: ModelInfo) -> dict[str, str | int]:
    """What distinguishes it from the model's usual form, by name; nothing for that form itself."""
    differing: dict[str, str | int] = {}
    if (kind := precision(info)) != "float32":
        differing["precision"] = kind
    size = info.settings.get("truncate_dim")
    if isinstance(size, int):
        differing["truncate_dim"] = size
    return differing


def base_name(model_id: str) -> str:
    """The model that a graph was made from, where its name says so; any other name as it is.

    >>> base_name("./enc/onnx/model_quantized.onnx"), base_name("org/name"), base_name("int8.onnx")
    ('./enc', 'org/name', 'int8.onnx')
    """
    if not _GRAPH.search(model_id):
        return model_id
    folder = re.sub(r"[/\\]?[^/\\]+\.onnx$", "", model_id)
    return re.sub(r"[/\\]onnx$", "", folder) or model_id
