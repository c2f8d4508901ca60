"""Cross-encoders behind an HTTP endpoint: text-embeddings-inference's `/rerank`, and the `/v1/rerank` and `/v2/rerank`
of Cohere, Jina and the servers that speak like them.

A request holds one query and some of its documents. Keys, retries and refusals are those of `http.post`.
"""

from __future__ import annotations

import urllib.parse
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calipers.core import SILENT, InferenceError, ModelInfo, Progress
from calipers.models.http import REQUESTS, ROWS, check_address, find_key, first_that_answers, post, without_secrets
from calipers.models.options import ModelOptions
from calipers.models.source import Source

Pair = tuple[str, str]


def load(source: Source, options: ModelOptions) -> HttpScorer:
    options.refuse_others("an endpoint", "model_id", "prompt", "batch_size", "timeout")
    check_address(source.reference)
    find_key()
    return HttpScorer(_settle_protocol(source.reference, options), options)


class HttpScorer:
    def __init__(self, url: str, options: ModelOptions) -> None:
        self._url = url
        self._options = options
        self._rows = options.batch_size or ROWS
        place = without_secrets(url)
        self.info = ModelInfo(
            backend="http",
            model_id=options.model_id or place,
            path=place,
            device="endpoint",
            fingerprint=f"url:{place}#{options.model_id or ''}",
            settings={
                "through": "TEI's /rerank" if _is_tei(url) else "Cohere-style /rerank",
                "activation": "none: raw scores are asked for" if _is_tei(url) else "the endpoint's own",
                "labels": 1,
                "max_length": None,  # the endpoint's own, which it does not tell
                "prompt": options.prompt or "",
                "batching": f"{self._rows} documents a request",
            },
        )

    def score(self, pairs: Sequence[Pair], *, progress: Progress = SILENT) -> NDArray[np.float32]:
        """float32[n]; no pairs give float32[0]."""
        batches = group(pairs, self._rows)
        found: dict[Pair, float] = {}
        progress.start("Scoring", sum(len(documents) for _, documents in batches))
        with ThreadPoolExecutor(max_workers=REQUESTS) as pool:
            try:
                answers = pool.map(lambda batch: self._rerank(*batch), batches)
                for (query, documents), scores in zip(batches, answers, strict=True):
                    found |= {(query, document): score for document, score in zip(documents, scores, strict=True)}
                    progress.advance(len(documents))
            finally:
                pool.shutdown(cancel_futures=True)
        return np.array([found[query, document] for query, document in pairs], dtype=np.float32)

    def _rerank(self, query: str, documents: list[str]) -> list[float]:
        return rerank(self._url, (self._options.prompt or "") + query, documents, self._options)


def group(pairs: Sequence[Pair], most: int) -> list[tuple[str, list[str]]]:
    """Each query with its distinct documents, at most so many at a time.

    >>> group([("q", "a"), ("r", "a"), ("q", "b"), ("q", "a"), ("q", "c")], most=2)
    [('q', ['a', 'b']), ('q', ['c']), ('r', ['a'])]
    """
    by_query: dict[str, dict[str, None]] = {}
    for query, document in pairs:
        by_query.setdefault(query, {})[document] = None
    lists = {query: list(documents) for query, documents in by_query.items()}
    return [(query, found[i : i + most]) for query, found in lists.items() for i in range(0, len(found), most)]


def rerank(url: str, query: str, documents: list[str], options: ModelOptions) -> list[float]:
    """One request: a score for each document, in the order asked, NaN where the endpoint says null."""
    if _is_tei(url):
        body: dict[str, Any] = {"query": query, "texts": documents, "raw_scores": True, "truncate": True}
        return _scores(post(url, body, options), "score", len(documents), url)
    body = {"model": options.model_id or "default", "query": query, "documents": documents, "top_n": len(documents)}
    found = post(url, body, options)
    rows = found.get("results") if isinstance(found, dict) else None
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


def _settle_protocol(url: str, options: ModelOptions) -> str:
    """An address that ends in /rerank is taken as it is; else the usual paths are tried on one pair.

    The ones with a version come first: some servers have a /rerank of that kind too, TEI has no other.
    """
    path = urllib.parse.urlsplit(url).path.rstrip("/")
    if path.endswith("/rerank"):
        paths = [path]
    elif path.endswith(("/v1", "/v2")):
        paths = [f"{path}/rerank"]
    else:
        paths = [f"{path}/v1/rerank", f"{path}/v2/rerank", f"{path}/rerank"]
    return first_that_answers(url, paths, lambda candidate: rerank(candidate, "test", ["test"], options))


def _is_tei(url: str) -> bool:
    return not urllib.parse.urlsplit(url).path.endswith(("/v1/rerank", "/v2/rerank"))
