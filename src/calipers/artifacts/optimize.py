"""An exported graph to an optimised one: onnxruntime's fusions for a transformer family, else its general ones."""

from __future__ import annotations

from pathlib import Path

from calipers.artifacts.export import ExportSource
from calipers.artifacts.graphs import content_size, load_graph, quiet, save_proto
from calipers.core import ModelError
from calipers.models.tokenizer import first_line

# Values of model_type in config.json whose graphs onnxruntime's transformer optimiser fuses as "bert".
_FAMILIES = {
    *("bert", "roberta", "xlm-roberta", "camembert", "albert", "distilbert", "electra", "mpnet", "ernie"),
    *("deberta", "deberta-v2", "nomic_bert", "data2vec-text", "convbert", "layoutlm", "luke"),
}


def methods(source: ExportSource) -> list[str]:
    """Those to try, the best first."""
    return ["transformers", "graph"] if source.family in _FAMILIES else ["graph"]


def optimize(graph: Path, target: Path, source: ExportSource, method: str) -> Path:
    """`transformers` fuses by the patterns of a family; `graph` is onnxruntime's extended level.

    The types of tensors are written too (see `load_graph`).
    """
    try:
        with quiet():
            (_by_family if method == "transformers" else _by_runtime)(graph, target, source)
    except Exception as error:
        raise ModelError(f"onnxruntime cannot optimise {graph}: {first_line(error)}") from error
    save_proto(load_graph(target).proto, target)
    return target


def _by_family(graph: Path, target: Path, source: ExportSource) -> None:
    from onnxruntime.transformers.optimizer import optimize_model

    optimised = optimize_model(str(graph), "bert", num_heads=source.heads, hidden_size=source.width, opt_level=1)
    save_proto(optimised.model, target)


def _by_runtime(graph: Path, target: Path, source: ExportSource) -> None:
    import onnxruntime

    settings = onnxruntime.SessionOptions()
    settings.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    settings.optimized_model_filepath = str(target)
    settings.log_severity_level = 4
    if graph.stat().st_size != content_size(graph):
        name = "session.optimized_model_external_initializers_file_name"
        settings.add_session_config_entry(name, f"{target.name}.data")
    onnxruntime.InferenceSession(str(graph), settings, providers=["CPUExecutionProvider"])
