"""What a diagnosis may be asked for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from calipers.comparison.records import Question
from calipers.core.choices import ADAPTATIONS, MOST_RESAMPLES, SIMILARITIES
from calipers.core.options import Options, option
from calipers.metrics.bootstrap import RESAMPLES
from calipers.runs import api

_option = partial(option, group="Diagnosis")


@dataclass(frozen=True)
class DiagnosisOptions(Options):
    """How a model is diagnosed. Without `layers`, all that the inputs allow are run.

    `layer_options` are the options of the layers by name; each layer takes its own. `mteb` holds names of tasks and
    benchmarks, or mteb's own task objects.
    """

    layers: tuple[str, ...] = ()
    layer_options: Mapping[str, Any] = field(default_factory=dict)
    mteb: tuple[Any, ...] = ()
    question: Question = "REGRESSION"  # what labels answer: is it that or worse?
    rerank: str | None = _option(None, "A cross-encoder for a second stage.", metavar="MODEL")
    rerank_k: int = _option(100, "How many results it reads.", at_least=1, needs=("rerank",))
    adaptation: str | None = _option(
        None,
        "With --baseline, the model before training: a scorecard of what this training should and must not change.",
        choices=ADAPTATIONS,
    )
    mlm_head: str | None = _option(None, "The base model whose MLM head reads this model's states.", metavar="MODEL")
    query_prompt: str | None = _option(None, "Put before every query. Default: the model's own.", metavar="TEXT")
    passage_prompt: str | None = _option(None, "Put before every document.", metavar="TEXT")
    similarity: str | None = _option(
        None, "Of vectors in a search. Default: what the model's files say, else cosine.", choices=SIMILARITIES
    )
    group_by: tuple[str, ...] = option(
        (),
        "Figures of retrieval and attributes by group of queries, too: a column of the queries or documents, or "
        "language, length, head-tail, category. May be repeated; no exit code depends on it.",
        group="Output",
        metavar="COLUMN",
    )
    confidence: float = _option(api.CONFIDENCE, "Of intervals and labels.", above=0.5, below=1)
    resamples: int = _option(RESAMPLES, "Of the comparison.", at_least=100, at_most=MOST_RESAMPLES)

    @property
    def seed(self) -> int:
        seed = self.layer_options.get("seed")
        return 42 if seed is None else int(seed)
