"""Cross-encoders behind an HTTP endpoint: text-embeddings-inference's `/rerank`, and the `/v1/rerank` and `/v2/rerank`
of Cohere, Jina and the servers that speak like them.

A request holds one query and some of its documents. `http.post` handles keys, retries and refusals.
"""

from __future__ import annotations

import urllib.parse
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from calipers.core import SILENT, InferenceError, ModelInfo, Progress
from calipers.models.heads import Pair, Scores
from calipers.models.http import ROWS, endpoint_info, first_that_answers, post, requests, url_path, without_secrets
from calipers.models.options import ModelOptions
from calipers.models.source import Source


def load(source: Source, options: ModelOptions) -> HttpScorer:
    """Of the usual paths those with a version are tried first: some servers have a /rerank of that kind too, TEI has no
    other."""
    options.refuse_others("an endpoint", "model_id", "prompt", "batch_size", "timeout")
    path = url_path(source.reference)
    if path.endswith("/rerank"):
        paths = [path]
    elif path.endswith(("/v1", "/v2")):
        paths = [f"{path}/rerank"]
    else:
        paths = [f"{path}/v1/rerank", f"{path}/v2/rerank", f"{path}/rerank"]
    url = first_that_answers(source.reference, paths, lambda candidate: rerank(candidate, "test", ["test"], options))
    tei = _is_tei(url)
    settings = {
        "through": "TEI's /rerank" if tei else "Cohere-style /rerank",
        "activation": "none: raw scores are asked for" if tei else "the endpoint's own",
        "labels": 1,
        "max_length": None,  # the endpoint's own, which it does not report
        "prompt": options.prompt or "",
        "batching": f"{options.batch_size or ROWS} documents a request",
    }
    return HttpScorer(url, options, endpoint_info(url, options, settings))


@dataclass(frozen=True, eq=False)
class HttpScorer:
    url: str = field(repr=False)  # it may hold a password
    options: ModelOptions
    info: ModelInfo

    def score(self, pairs: Sequence[Pair], *, progress: Progress = SILENT) -> Scores:
        """float32[n]; no pairs give float32[0]."""
        batches = group(pairs, self.options.batch_size or ROWS)
        by_pair: dict[Pair, float] = {}
        progress.start("Scoring", sum(len(documents) for _, documents in batches))
        answers = requests(lambda batch: self._rerank(*batch), batches)
        for (query, documents), scores in zip(batches, answers, strict=True):
            by_pair |= {(query, document): score for document, score in zip(documents, scores, strict=True)}
            progress.advance(len(documents))
        return np.array([by_pair[query, document] for query, document in pairs], dtype=np.float32)

    def _rerank(self, query: str, documents: list[str]) -> list[float]:
        return rerank(self.url, (self.options.prompt or "") + query, documents, self.options)


def group(pairs: Sequence[Pair], most: int) -> list[tuple[str, list[str]]]:
    """Each query with its distinct documents, at most so many at a time.

    >>> group([("q", "a"), ("r", "a"), ("q", "b"), ("q", "a"), ("q", "c")], most=2)
    [('q', ['a', 'b']), ('q', ['c']), ('r', ['a'])]
    """
    by_query: dict[str, dict[str, None]] = {}
    for query, document in pairs:
        by_query.setdefault(query, {})[document] = None
    lists = {query: list(documents) for query, documents in by_query.items()}
    return [(query, texts[i : i + most]) for query, texts in lists.items() for i in range(0, len(texts), most)]


def rerank(url: str, query: str, documents: list[str], options: ModelOptions) -> list[float]:
    """One request: a score for each document, in order, NaN where the endpoint says null."""
    if _is_tei(url):
        body: dict[str, object] = {"query": query, "texts": documents, "raw_scores": True, "truncate": True}
        return _scores(post(url, body, options), "score", len(documents), url)
    body = {"model": options.model_id or "default", "query": query, "documents": documents, "top_n": len(documents)}
    answer = post(url, body, options)
    rows = answer.get("results") if isinstance(answer, dict) else None
    return _scores(rows, "relevance_score", len(documents), url)


def _scores(rows: Any, key: str, documents: int, url: str) -> list[float]:
    try:
        scores = {row["index"]: np.nan if row[key] is None else float(row[key]) for row in rows}
    except (TypeError, KeyError, ValueError, OverflowError) as error:
        raise InferenceError(
            f"{without_secrets(url)} did not answer in the form of /rerank: expected rows with index and {key}"
        ) from error
    if len(rows) != documents:
        raise InferenceError(
            f"{without_secrets(url)} answered with {len(rows)} scores to {documents} documents: expected one each"
        )
    if set(scores) != set(range(documents)):
        raise InferenceError(f"{without_secrets(url)} answered with an index that names no document, or one twice")
    return [scores[i] for i in range(documents)]


def _is_tei(url: str) -> bool:
    return not urllib.parse.urlsplit(url).path.endswith(("/v1/rerank", "/v2/rerank"))
