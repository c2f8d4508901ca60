"""The shared nouns: models, datasets, outcomes, metrics, figures, results, and how things fail.

Imports nothing of ours, so that every other part may import it.
"""

from calipers.core.datasets import Column, Dataset, DataSource, Document, fingerprint
from calipers.core.display import html_table
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
from calipers.core.figures import Figure, FigureKind, Named, figure_tables, read_figures, read_named
from calipers.core.models import (
    SILENT,
    Encoder,
    Halo,
    MaskedLM,
    MaskedTokens,
    Model,
    ModelInfo,
    PairScorer,
    Progress,
    ShowsHalo,
    Silent,
    TokenizedText,
)
from calipers.core.outcomes import Columns, Counts, Floats, Outcomes
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
)

__all__ = [
    "SILENT",
    "CalipersError",
    "Column",
    "Columns",
    "Counts",
    "DataError",
    "DataSource",
    "Dataset",
    "DefaultData",
    "Document",
    "Encoder",
    "Figure",
    "FigureKind",
    "Floats",
    "Halo",
    "InferenceError",
    "InvalidOutput",
    "MaskedLM",
    "MaskedTokens",
    "Measurement",
    "Metric",
    "Model",
    "ModelError",
    "ModelInfo",
    "Named",
    "NoOptions",
    "Outcomes",
    "PairScorer",
    "Progress",
    "RequestError",
    "Result",
    "RunLine",
    "ShowsHalo",
    "Silent",
    "Statistic",
    "Task",
    "Thresholds",
    "TokenizedText",
    "figure_tables",
    "fingerprint",
    "html_table",
    "name_some",
    "printable",
    "read_figures",
    "read_named",
]
