"""A PyTorch model to artifacts: exported, optimised, quantised, each checked against the stage before it."""

from calipers.artifacts.calibrate import Ranges, Seen, collect_ranges, read_ranges
from calipers.artifacts.check import FLOAT_BOUND, Difference, StageRefused
from calipers.artifacts.export import HEADS, OPSET, Source, head_of
from calipers.artifacts.graphs import FloatGraph, Node, load_graph
from calipers.artifacts.inputs import Batch, Graph, Rows, open_graph
from calipers.artifacts.manifest import Latency, Manifest, Stage, read_manifest, to_json
from calipers.artifacts.quantize import Quantized, quantizable_types, quantize
from calipers.artifacts.recipe import (
    CALIBRATIONS,
    PRECISIONS,
    Call,
    Recipe,
    arguments,
    make_recipe,
    read_recipe,
    recipe_text,
    write_recipe,
)
from calipers.artifacts.stages import STAGES, BuildRequest, build

__all__ = [
    "CALIBRATIONS",
    "FLOAT_BOUND",
    "HEADS",
    "OPSET",
    "PRECISIONS",
    "STAGES",
    "Batch",
    "BuildRequest",
    "Call",
    "Difference",
    "FloatGraph",
    "Graph",
    "Latency",
    "Manifest",
    "Node",
    "Quantized",
    "Ranges",
    "Recipe",
    "Rows",
    "Seen",
    "Source",
    "Stage",
    "StageRefused",
    "arguments",
    "build",
    "collect_ranges",
    "head_of",
    "load_graph",
    "make_recipe",
    "open_graph",
    "quantizable_types",
    "quantize",
    "read_manifest",
    "read_ranges",
    "read_recipe",
    "recipe_text",
    "to_json",
    "write_recipe",
]
