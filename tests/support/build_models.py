"""A small real model, its texts and a finished build of it, for the tests of `calipers build`."""

from __future__ import annotations

import shutil
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
from transformers import AutoModelForMaskedLM

from calipers.artifacts import api
from calipers.artifacts.inputs import Rows, single
from calipers.artifacts.recipe import Recipe
from calipers.artifacts.records import BuildOptions, Manifest
from calipers.models.onnx_session import open_graph
from tests.support.masked_models import make_model

TEXTS = (
    "the dog runs near the house .",
    "a cat sleeps",
    "the children read in the garden and the dogs run",
    "big old street , small young park",
    "readers see the young cats on the street",
)


def make_texts(folder: Path) -> Path:
    path = folder / "texts.txt"
    path.write_text("\n".join(TEXTS) + "\n", encoding="utf-8")
    return path


def make_bert(folder: Path, **changes: Any) -> Path:
    """One layer of BERT with a masked-language-model head, dropout 0.1 while it trains."""
    folder.mkdir(parents=True, exist_ok=True)
    return make_model("bert", folder, num_hidden_layers=1, **changes)


def run(model: Path, folder: Path, precision: str, texts: Path | None, **options: Any) -> Manifest:
    """The stages are kept, for tests that read them."""
    settings = {"keep_stages": True, **options}
    build_options = BuildOptions(calibration=str(texts) if texts else None, **settings)
    return api.build(str(model), folder, recipe=Recipe(precision), options=build_options)


def copy_build(done: Path, target: Path) -> Path:
    """The same build in another folder, for a test that changes it."""
    shutil.copytree(done, target)
    return target


class _Careless(torch.nn.Module):
    """Decides by its example whether there is anything to mask: from a mask of ones, there never is."""

    def __init__(self, model: torch.nn.Module, example: torch.Tensor) -> None:
        super().__init__()
        self.model = model
        self.masks = not bool(example.all())

    def forward(self, ids, mask):  # type: ignore[no-untyped-def]
        return self.model(input_ids=ids, attention_mask=mask if self.masks else None)[0]


def careless_export(model: Path, target: Path, *, mask_of_ones: bool = False, training: bool = False) -> Path:
    """An export that drops the mask, or leaves dropout on."""
    loaded = AutoModelForMaskedLM.from_pretrained(model, dtype=torch.float32, attn_implementation="eager")
    ids = torch.randint(5, 40, (3, 12), generator=torch.Generator().manual_seed(0))
    mask = torch.ones_like(ids)
    mask[0, 5:] = int(mask_of_ones)
    free = {0: torch.export.Dim.DYNAMIC, 1: torch.export.Dim.DYNAMIC}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            _Careless(loaded, mask).train(training),
            (ids, mask),
            target,
            input_names=["input_ids", "attention_mask"],
            output_names=["logits"],
            dynamic_shapes=(free, free),
            dynamo=True,
            external_data=False,
            verbose=False,
        )
    return target


def with_dropout(graph: Path, target: Path) -> Path:
    """The graph with the node that an export in training mode has behind a normalisation: Dropout, switched on."""
    proto = onnx.load(graph)
    place, norm = next((i, n) for i, n in enumerate(proto.graph.node) if n.op_type == "LayerNormalization")
    for node in proto.graph.node:
        node.input[:] = ["dropped" if name == norm.output[0] else name for name in node.input]
    proto.graph.initializer.extend(
        [onnx.numpy_helper.from_array(np.float32(0.1), "ratio"), onnx.numpy_helper.from_array(np.array(True), "on")]
    )
    dropout = onnx.helper.make_node("Dropout", [norm.output[0], "ratio", "on"], ["dropped"], name="dropout")
    proto.graph.node.insert(place + 1, dropout)
    onnx.save(proto, target)
    return target


def logits(path: Path, rows: Rows) -> np.ndarray:
    """The flat logits of a graph, row by row."""
    return np.concatenate([open_graph(path).run(batch)["logits"].ravel() for batch in single(rows)])
