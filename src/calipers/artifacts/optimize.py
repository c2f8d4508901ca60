"""An exported graph to an optimised one: onnxruntime's transformer fusions where it knows the family, else its own."""

from __future__ import annotations

from pathlib import Path

from calipers.artifacts.export import Source
from calipers.artifacts.graphs import load_graph, quiet, save_proto
from calipers.artifacts.inputs import first_line
from calipers.core import ModelError

# config.json's model_type → the type that onnxruntime's transformer optimiser knows it as.
FAMILIES = dict.fromkeys(
    (
        *("bert", "roberta", "xlm-roberta", "camembert", "albert", "distilbert", "electra", "mpnet", "ernie"),
        *("deberta", "deberta-v2", "nomic_bert", "data2vec-text", "convbert", "layoutlm", "luke"),
    ),
    "bert",
)
METHODS = ("transformers", "graph")


def methods(source: Source) -> list[str]:
    """What to try, best first."""
    return list(METHODS) if source.family in FAMILIES else ["graph"]


def optimize(graph: Path, target: Path, source: Source, method: str) -> Path:
    """`transformers` fuses by the patterns of a family; `graph` is onnxruntime's extended level. Types are written too:
    onnx's own inference stops at the fused operators, and a quantiser leaves out what has no type."""
    try:
        with quiet():
            (_by_family if method == "transformers" else _by_runtime)(graph, target, source)
    except Exception as error:
        raise ModelError(f"onnxruntime cannot optimise {graph}: {first_line(error)}") from error
    save_proto(load_graph(target).proto, target)
    return target


def _by_family(graph: Path, target: Path, source: Source) -> None:
    from onnxruntime.transformers.optimizer import optimize_model

    found = optimize_model(
        str(graph), FAMILIES[source.family], num_heads=source.heads, hidden_size=source.width, opt_level=1
    )
    save_proto(found.model, target)


def _by_runtime(graph: Path, target: Path, source: Source) -> None:
    import onnxruntime

    settings = onnxruntime.SessionOptions()
    settings.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    settings.optimized_model_filepath = str(target)
    settings.log_severity_level = 4
    if graph.stat().st_size != _whole(graph):
        name = "session.optimized_model_external_initializers_file_name"
        settings.add_session_config_entry(name, f"{target.name}.data")
    onnxruntime.InferenceSession(str(graph), settings, providers=["CPUExecutionProvider"])


def _whole(graph: Path) -> int:
    from calipers.artifacts.graphs import content_size

    return content_size(graph)
