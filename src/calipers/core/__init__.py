"""The shared nouns: models, datasets, outcomes, metrics, figures, results, and how things fail.

Imports nothing of ours, so that every other part may import it. Figures are imported when they are needed: only a
diagnosis has them.
"""

from typing import TYPE_CHECKING, Any

from calipers.core.datasets import Column, Dataset, DataSource, Document, fingerprint
from calipers.core.errors import (
    CalipersError,
    DataError,
    InferenceError,
    InvalidOutput,
    ModelError,
    RequestError,
    name_some,
    printable,
)
from calipers.core.models import (
    SILENT,
    Encoder,
    Halo,
    HasSides,
    MaskedLM,
    MaskedTokens,
    Model,
    ModelInfo,
    PairScorer,
    Progress,
    ShowsHalo,
    Silent,
    Speed,
    TokenizedText,
    Within,
    artifact_name,
    on_side,
)
from calipers.core.outcomes import CLUSTER, WITHOUT_VECTOR, Columns, Counts, Floats, Outcomes
from calipers.core.results import (
    DefaultData,
    Measurement,
    Metric,
    NoOptions,
    Result,
    RunLine,
    Statistic,
    Task,
    Thresholds,
    html_table,
)
from calipers.core.slices import Slice, Slices

if TYPE_CHECKING:
    from calipers.core.figures import Figure, FigureKind, Named, figure_tables, read_figures, read_named

__all__ = ["Column", "DataSource", "Dataset", "Document", "fingerprint", "html_table"]
__all__ += ["CalipersError", "DataError", "InferenceError", "InvalidOutput", "ModelError", "RequestError"]
__all__ += ["name_some", "printable"]
__all__ += ["Figure", "FigureKind", "Named", "figure_tables", "read_figures", "read_named"]
__all__ += [
    "SILENT",
    "Encoder",
    "Halo",
    "HasSides",
    "MaskedLM",
    "MaskedTokens",
    "Model",
    "ModelInfo",
    "PairScorer",
    "Progress",
]
__all__ += ["ShowsHalo", "Silent", "Speed", "TokenizedText", "Within", "artifact_name", "on_side"]
__all__ += ["CLUSTER", "WITHOUT_VECTOR", "Columns", "Counts", "Floats", "Outcomes"]
__all__ += ["DefaultData", "Measurement", "Metric", "NoOptions", "Result", "RunLine", "Statistic", "Task", "Thresholds"]
__all__ += ["Slice", "Slices"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from calipers.core import figures

    return getattr(figures, name)
