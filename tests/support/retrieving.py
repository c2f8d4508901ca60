"""The retrieval task on a dataset in memory."""

from __future__ import annotations

from typing import Any

from calipers.core import SILENT, Dataset, Outcomes
from calipers.tasks import retrieval


def run(model: Any, dataset: Dataset, **options: Any) -> Outcomes:
    return retrieval.run(model, dataset, retrieval.RetrievalOptions(**options), SILENT)
