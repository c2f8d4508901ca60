"""Which backend a reference means, and where it is."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from calipers.core import ModelError, RequestError
from calipers.core.errors import boundary, quote
from calipers.core.inputs import expand
from calipers.core.references import clean
from calipers.models.layout import read_modules
from calipers.models.tokenizer_files import read_json

BACKENDS = {
    "torch": "a hub id or a folder with PyTorch weights",
    "onnx": "an .onnx file, or a folder or hub id that holds one",
    "static": "a model2vec folder or hub id",
    "vectors": "an .npy or .parquet of vectors already computed",
    "bm25": "lexical search, which needs no model: bm25, or bm25:k1=0.9,b=0.4",
    "hybrid": "an encoder and BM25, fused: hybrid:MODEL+bm25, or hybrid:MODEL+bm25:0.7 with the encoder's weight",
    "http": "an endpoint: OpenAI's /v1/embeddings, TEI's /embed and /rerank, Cohere's /v2/rerank, the hub's fill-mask",
}
_HUB_ID = re.compile(r"[\w][\w.-]*(/[\w][\w.-]*)?(/[\w./-]+\.onnx)?")


@dataclass(frozen=True)
class Source:
    """Where a model is: `path` when it is on this machine, else `reference` is a hub id or an address."""

    backend: str
    reference: str
    path: Path | None


def find(reference: str) -> Source:
    """Which backend a reference means, and whether it is there. Loads nothing."""
    if reference.lower().startswith(("http://", "https://")):
        return Source("http", reference, None)
    prefix, colon, rest = reference.partition(":")
    if prefix == "bm25":
        return Source("bm25", reference, None)
    if prefix == "hybrid":
        return Source("hybrid", reference, find(split_hybrid(reference)[0]).path)
    shown = quote(clean(reference))
    backend, place = (prefix, rest) if colon and prefix in BACKENDS else (None, reference)
    if backend == "http":
        raise RequestError(f"an endpoint is written http://… or https://…, found {shown}")
    with boundary(ModelError, f"there is no model at {shown}"):
        path = expand(place)
    if os.path.exists(path):
        return Source(backend or _guess(path), place, path)
    if backend == "vectors" or not _HUB_ID.fullmatch(place) or place.endswith((".npy", ".parquet")):
        raise ModelError(f"there is no model at {shown}: no such file or folder")
    if place.endswith(".onnx") and place.count("/") < 2:
        raise ModelError(f"there is no model at {shown}: no such file (nor is it a file of a hub repository)")
    return Source(backend or ("onnx" if place.endswith(".onnx") else "torch"), place, None)


def split_hybrid(reference: str) -> tuple[str, str]:
    """The encoder's reference in `hybrid:MODEL+bm25:SETTINGS`, and the settings.

    >>> split_hybrid("hybrid:onnx:./a+b/model.onnx+bm25:0.7")
    ('onnx:./a+b/model.onnx', '0.7')
    """
    model, plus, settings = reference.removeprefix("hybrid:").rpartition("+bm25")
    if not plus or not model or (settings and not settings.startswith(":")):
        raise RequestError(
            f"a hybrid search is written hybrid:MODEL+bm25 or hybrid:MODEL+bm25:0.7, found {quote(clean(reference))}"
        )
    if model.startswith(("hybrid:", "run:", "bm25")):
        raise RequestError(f"a hybrid search takes a model that gives vectors, found {quote(clean(model))}")
    return model, settings.removeprefix(":")


def encoder_of(source: Source) -> Source:
    """The encoder of a hybrid search; any other source as it is."""
    return find(split_hybrid(source.reference)[0]) if source.backend == "hybrid" else source


def _guess(path: Path) -> str:
    if path.is_file():
        kinds = {".onnx": "onnx", ".npy": "vectors", ".parquet": "vectors"}
        if path.suffix not in kinds:
            raise ModelError(f"{path} is not a model: expected a folder, or a file .onnx, .npy or .parquet")
        return kinds[path.suffix]
    if _is_static(path):
        return "static"
    if _holds(path, "*.safetensors", "pytorch_model*.bin", "*/model.safetensors", "*/pytorch_model.bin"):
        return "torch"
    if _holds(path, "*.onnx", "onnx/*.onnx"):
        return "onnx"
    raise ModelError(
        f"the folder {path} is not a model: expected model.safetensors with config.json, modules.json, or an .onnx file"
    )


def _holds(folder: Path, *patterns: str) -> bool:
    return any(any(folder.glob(pattern)) for pattern in patterns)


def _is_static(folder: Path) -> bool:
    """Whether a text is the mean of its tokens' vectors, and nothing follows but a normalisation."""
    if kinds := {module.kind for module in read_modules(folder)}:
        return "StaticEmbedding" in kinds and kinds <= {"StaticEmbedding", "Normalize"}
    return read_json(folder / "config.json").get("model_type") == "model2vec"
