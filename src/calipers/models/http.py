"""Models behind an HTTP endpoint. Encoders: OpenAI's `/v1/embeddings` and text-embeddings-inference's `/embed`.
Cross-encoders: TEI's `/rerank`, and the `/v1/rerank` and `/v2/rerank` of Cohere, Jina and servers that speak like them.
"""

from __future__ import annotations

import base64
import urllib.parse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from calipers.core import SILENT, InferenceError, InvalidOutput, ModelInfo, Progress
from calipers.core.references import clean
from calipers.metrics.arrays import Vectors
from calipers.metrics.geometry import unit_like
from calipers.metrics.magnitudes import single
from calipers.models.batching import CountsTruncated, once_each
from calipers.models.heads import Pair, Scores
from calipers.models.options import ModelOptions
from calipers.models.probe import LEAST_LOGIT, TRIAL_TEXTS, compare_items
from calipers.models.shortening import shorten
from calipers.models.source import Source
from calipers.models.transport import TRIES, TooLong, endpoint_info, fault, find_endpoint, in_order, path_of, send

_ROWS = 32  # texts per request
_TRIED = (*TRIAL_TEXTS[:2], TRIAL_TEXTS[-1])  # few, since requests cost money
_VERSIONED = ("/v1/rerank", "/v2/rerank")
_NOT_REPORTED = {"truncation": "unknown: the endpoint does not report which texts it cuts"}


def load(source: Source, options: ModelOptions) -> HttpEncoder:
    options.refuse_others("an endpoint", "model_id", "prompt", "normalize", "batch_size", "timeout", "truncate_dim")
    size = 0

    def attempt(place: str) -> None:
        nonlocal size
        size = embed(place, ["test"], options).shape[1]

    url = find_endpoint(source.reference, ("/v1/embeddings", "/embed"), attempt)
    batches = _try_batches(lambda texts: embed(url, texts, options, size), "texts", options)
    tei = path_of(url).endswith("/embed")
    longest = _find_limit(url, options) if tei else None
    settings = {
        "protocol": "tei" if tei else "openai",
        "prompt": options.prompt or "",
        "normalize": options.normalize,
        "max_length": longest,
        **({} if longest else _NOT_REPORTED),
        **shorten(options).settings,
        **batches.settings,
    }
    return HttpEncoder(url, options, endpoint_info(url, options, settings, batches.notes), batches.rows, longest, size)


def load_scorer(source: Source, options: ModelOptions) -> HttpScorer:
    """Paths with a version are tried first: some servers have a /rerank of that kind too, TEI has no other."""
    options.refuse_others("an endpoint", "model_id", "prompt", "batch_size", "timeout")
    paths = (*_VERSIONED, "/rerank")
    url = find_endpoint(source.reference, paths, lambda place: rerank(place, "test", ["test"], options))
    tei = not path_of(url).endswith(_VERSIONED)

    def score(documents: list[str]) -> Vectors:
        return np.array(rerank(url, "bread", documents, options), np.float32).reshape(-1, 1)

    batches = _try_batches(score, "documents", options, LEAST_LOGIT)
    settings = {
        "through": "TEI's /rerank" if tei else "Cohere-style /rerank",
        "activation": "none: raw scores are asked for" if tei else "the endpoint's own",
        "labels": 1,
        "max_length": None,  # the endpoint's own, which it does not report
        **_NOT_REPORTED,
        "prompt": options.prompt or "",
        **batches.settings,
    }
    return HttpScorer(url, options, endpoint_info(url, options, settings, batches.notes), batches.rows)


@dataclass(frozen=True)
class _Batches:
    """How many texts or documents a request has, and what is reported of it."""

    rows: int
    settings: Mapping[str, object]
    notes: tuple[str, ...] = ()


def _try_batches(ask: Callable[[list[str]], Vectors], unit: str, options: ModelOptions, least: float = 0.0) -> _Batches:
    """Three texts alone and in one request: a server may pad them together, or round them by what is beside them.

    Servers compute in half precision: what that rounds is no difference."""
    rows = options.batch_size or _ROWS

    def compute(which: Sequence[int]) -> Vectors:
        return ask([_TRIED[i] for i in which])

    choice = compare_items(compute, len(_TRIED), None, str, "float16", least) if rows > 1 else None
    if choice is None or not choice.groups:
        return _Batches(rows, {"batching": f"{rows} {unit} a request"})
    rows = options.batch_size or 1
    effect = f"outputs move by up to {choice.shared}"
    how = (
        f"the requested {rows} {unit} share a request" if options.batch_size else f"one of the {unit} is sent at a time"
    )
    notes = (f"the endpoint's answers depend on what else is in a request ({effect}): {how}",)
    moves = {"batch_dependence": effect} if options.batch_size else {}
    return _Batches(rows, {"batching": f"{rows} {unit} a request ({choice.why})", **moves}, notes)


@dataclass(frozen=True, eq=False)
class _Endpoint(CountsTruncated):
    url: str = field(repr=False)  # it may hold a password
    options: ModelOptions
    info: ModelInfo
    rows: int = _ROWS  # texts or documents a request
    longest: int | None = None  # tokens of a text that are read, where the endpoint reports it


@dataclass(frozen=True, eq=False)
class HttpEncoder(_Endpoint):
    size: int = 0  # numbers of a vector in the first answer

    def encode(self, texts: Sequence[str], *, prompt: str | None = None, progress: Progress = SILENT) -> Vectors:
        distinct, places = once_each(texts)
        prompt = (self.options.prompt or "") if prompt is None else prompt
        progress.start("Encoding", len(distinct))
        batches = [distinct[i : i + self.rows] for i in range(0, len(distinct), self.rows)]
        if not batches:
            raise InferenceError("there is no text to encode")
        parts = []
        for part, cut in in_order(lambda batch: self._embed([prompt + text for text in batch]), batches):
            parts.append(part)
            self.tally.count += cut
            progress.advance(len(part))
        vectors = np.concatenate(parts)
        # OpenAI's protocol cannot request it, so it is done here; for TEI it changes nothing.
        return shorten(self.options).apply(unit_like(vectors) if self.options.normalize else vectors)[places]

    def _embed(self, texts: list[str]) -> tuple[Vectors, int]:
        """The answer to one request, and how many texts are cut. A server that reports its limit refuses longer texts
        where it is not allowed to cut them: only then are tokens counted, and the texts sent again to be cut."""
        if self.longest is None:
            return embed(self.url, texts, self.options, self.size), 0
        try:
            return embed(self.url, texts, self.options, self.size, truncate=False), 0
        except TooLong:
            tokens = _count_tokens(self.url, texts, self.options)
            return embed(self.url, texts, self.options, self.size), sum(count > self.longest for count in tokens)


class HttpScorer(_Endpoint):
    def score(self, pairs: Sequence[Pair], *, progress: Progress = SILENT) -> Scores:
        """float32[n]; no pairs give float32[0]."""
        batches = group(pairs, self.rows)
        by_pair: dict[Pair, float] = {}
        progress.start("Scoring", sum(len(documents) for _, documents in batches))
        prompt = self.options.prompt or ""
        answers = in_order(lambda batch: rerank(self.url, prompt + batch[0], batch[1], self.options), batches)
        for (query, documents), scores in zip(batches, answers, strict=True):
            by_pair |= {(query, document): score for document, score in zip(documents, scores, strict=True)}
            progress.advance(len(documents))
        return np.array([by_pair[query, document] for query, document in pairs], dtype=np.float32)


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


def embed(url: str, texts: list[str], options: ModelOptions, size: int = 0, *, truncate: bool = True) -> Vectors:
    """One request: float32[len(texts), d]. Vectors of different lengths, or of another one than an earlier answer's
    `size`, are INVALID."""
    if path_of(url).endswith("/embed"):
        normalize = {} if options.normalize is None else {"normalize": options.normalize}
        rows = send(url, {"inputs": texts, "truncate": truncate, **normalize}, options)
    else:
        body = {"input": texts, "model": options.model_id or "default", "encoding_format": "float"}
        rows = _openai_vectors(send(url, body, options), len(texts), url)
    try:
        lengths = {len(row) for row in rows}
        if len(lengths) > 1:
            shown = " and ".join(map(str, sorted(lengths)[:: len(lengths) - 1]))
            raise InvalidOutput(f"{clean(url)} answered with vectors of different lengths: {shown} numbers", ())
        vectors = single(np.array([[np.nan if x is None else x for x in row] for row in rows], dtype=np.float64))
    except (TypeError, ValueError, OverflowError) as error:
        raise fault(url, "answered with something else than vectors") from error
    if vectors.ndim != 2 or len(vectors) != len(texts):
        raise fault(url, f"answered {list(vectors.shape)} to {len(texts)} texts: expected one vector each")
    if size and vectors.shape[1] != size:
        raise InvalidOutput(
            f"{clean(url)} answered with vectors of different lengths: {size} numbers in its first answer, then "
            f"{vectors.shape[1]}",
            (),
        )
    return vectors


def _beside(url: str, name: str) -> str:
    """The address of another route of a TEI server."""
    parts = urllib.parse.urlsplit(url)
    return parts._replace(path=parts.path.removesuffix("/embed") + name).geturl()


def _find_limit(url: str, options: ModelOptions) -> int | None:
    """How many tokens of a text a TEI server reads; None where it does not report that, or cannot count tokens."""
    try:
        limit = send(_beside(url, "/info"), None, options, tries=1).get("max_input_length")
        counted = _count_tokens(url, ["test"], options, tries=1)
    except (InferenceError, AttributeError):
        return None
    return limit if type(limit) is int and limit > 0 and counted[0] > 0 else None


def _count_tokens(url: str, texts: list[str], options: ModelOptions, *, tries: int = TRIES) -> list[int]:
    """Of each text, with the special ones."""
    rows = send(_beside(url, "/tokenize"), {"inputs": texts, "add_special_tokens": True}, options, tries=tries)
    if not isinstance(rows, list) or len(rows) != len(texts) or not all(isinstance(row, list) for row in rows):
        raise fault(url, "did not answer in the form of /tokenize: expected the tokens of each text")
    return [len(row) for row in rows]


def _openai_vectors(answer: Any, texts: int, url: str) -> list[Any]:
    try:
        rows = sorted(answer["data"], key=lambda row: row["index"])
        vectors = [_decoded(row["embedding"]) for row in rows]
    except (TypeError, KeyError) as error:
        raise fault(url, "did not answer in the form of /v1/embeddings") from error
    if len(rows) == texts and [row["index"] for row in rows] != list(range(texts)):
        raise fault(url, "answered with an index that names no text, or one twice")
    return vectors


def _decoded(vector: Any) -> Any:
    """Numbers as they are. Some servers send float32 in base64 whatever is requested."""
    if not isinstance(vector, str):
        return vector
    try:
        return np.frombuffer(base64.b64decode(vector, validate=True), "<f4").tolist()
    except ValueError:
        return None  # no vector


def rerank(url: str, query: str, documents: list[str], options: ModelOptions) -> list[float]:
    """One request: a score for each document, in order, NaN where the endpoint says null."""
    body: dict[str, object]
    rows: Any
    n = len(documents)
    if path_of(url).endswith(_VERSIONED):
        body = {"model": options.model_id or "default", "query": query, "documents": documents, "top_n": n}
        answer, key = send(url, body, options), "relevance_score"
        rows = answer.get("results") if isinstance(answer, dict) else None
    else:
        body = {"query": query, "texts": documents, "raw_scores": True, "truncate": True}
        rows, key = send(url, body, options), "score"
    try:
        scores = {row["index"]: np.nan if row[key] is None else float(row[key]) for row in rows}
    except (TypeError, KeyError, ValueError, OverflowError) as error:
        raise fault(url, f"did not answer in the form of /rerank: expected rows with index and {key}") from error
    if len(rows) != n:
        raise fault(url, f"answered with {len(rows)} scores to {n} documents: expected one each")
    if set(scores) != set(range(n)):
        raise fault(url, "answered with an index that names no document, or one twice")
    return [scores[i] for i in range(n)]
