"""A PyTorch model to artifacts: exported, optimised, quantised, each checked against the stage before it."""

from calipers.build.calibrate import Ranges, Seen, collect_ranges, read_ranges
from calipers.build.check import FLOAT_BOUND, Difference, StageRefused
from calipers.build.export import HEADS, OPSET, Source, head_of
from calipers.build.graphs import FloatGraph, Node, load_graph
from calipers.build.inputs import Batch, Graph, Rows, open_graph
from calipers.build.manifest import Latency, Manifest, Stage, read_manifest, to_json
from calipers.build.quantize import Quantized, quantizable_types, quantize
from calipers.build.recipe import (
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
from calipers.build.stages import STAGES, BuildRequest, build

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
