"""The options of retrieval, for its search and its metrics."""

from __future__ import annotations

from dataclasses import dataclass

from calipers.core.choices import EMPTY_QUERIES, SIMILARITIES, TIES
from calipers.core.errors import RequestError
from calipers.core.options import option
from calipers.tasks.sizes import SizeOptions

SHOWN = 10  # results that a user sees: a stage puts a document right by lifting it among them
RERANKED = 100


@dataclass(frozen=True)
class RetrievalOptions(SizeOptions):
    top_k: int = option(100, "How many results a query gets.", group="Task", metavar="K", at_least=SHOWN)
    query_prompt: str | None = option(
        None, "Put before every query. Default: the model's own.", group="Task", metavar="TEXT"
    )
    passage_prompt: str | None = option(
        None, "Put before every passage. Default: the model's own.", group="Task", metavar="TEXT"
    )
    similarity: str | None = option(
        None, "Of vectors. Default: what the model's files say, else cosine.", group="Task", choices=SIMILARITIES
    )
    relevant_from: float = option(
        1.0,
        "Grades from here on are relevant; nDCG uses the grades as they are.",
        group="Task",
        metavar="GRADE",
        above=0,
    )
    empty_queries: str = option(
        "zero", "What a query without relevant documents counts.", group="Task", choices=EMPTY_QUERIES
    )
    rerank_k: int | None = option(
        None,
        f"How many results are reranked. Default: {RERANKED}, or all where there are fewer.",
        group="Task",
        metavar="K",
        at_least=1,
    )
    ties: str = option(
        "expected",
        "Equal scores: the expected value over all orders, or the order of trec_eval (single precision, then the "
        "higher document id).",
        group="Task",
        choices=TIES,
    )
    ignore_identical_ids: bool | None = option(
        None,
        "Leave out the document that has the id of the query. Default: yes for the data of MTEB's ArguAna, FEVER, "
        "FiQA2018, MSMARCO and QuoraRetrieval (by hub id or folder name), as in mteb; else no.",
        group="Task",
        off="--no-ignore-identical-ids",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        wanted = self.rerank_k or RERANKED
        if wanted == RERANKED:  # records of earlier runs hold the default, whatever their `top_k`
            object.__setattr__(self, "rerank_k", min(RERANKED, self.top_k))
        elif wanted > self.top_k:
            raise RequestError(
                f"`rerank_k` is {self.rerank_k} and `top_k` {self.top_k}: only results that were found can be reranked"
            )

    @property
    def reranked(self) -> int:
        """`rerank_k` as it was settled."""
        assert self.rerank_k is not None
        return self.rerank_k
