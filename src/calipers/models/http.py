"""Models behind an HTTP endpoint. Encoders: OpenAI's `/v1/embeddings` and text-embeddings-inference's `/embed`.
Cross-encoders: TEI's `/rerank`, and the `/v1/rerank` and `/v2/rerank` of Cohere, Jina and servers that speak like them.

The key comes from CALIPERS_API_KEY (or OPENAI_API_KEY, for OpenAI's own host only) and is never stored or shown.
"""

from __future__ import annotations

import base64
import http.client
import json
import os
import re
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np

from calipers.core import SILENT, InferenceError, InvalidOutput, ModelError, ModelInfo, Progress
from calipers.core.references import clean, secrets_of
from calipers.metrics.arrays import Vectors
from calipers.metrics.geometry import unit_like
from calipers.metrics.magnitudes import single
from calipers.models.batching import Answer, CountsTruncated, once_each
from calipers.models.deadline import Deadline
from calipers.models.heads import Pair, Scores
from calipers.models.options import ModelOptions
from calipers.models.probe import LEAST_LOGIT, TRIAL_TEXTS, compare_items
from calipers.models.shortening import shorten
from calipers.models.source import Source
from calipers.models.tokenizer_files import first_line

_ROWS = 32  # texts per request
_REQUESTS = 4  # at once
_TRIES = 5
_FIRST_PAUSE = 0.5  # seconds, doubled after each failure
_LONGEST_PAUSE = 30.0
_LEAST_BUDGET = 8.0  # seconds for a request with its repetitions, where the timeout is shorter
_LARGEST_ANSWER = 32 << 20
_LARGEST_REFUSAL = 4096
_WORDS = ("error", "message", "detail", "msg", "errors", "reason")  # keys of what a server says went wrong
_DIGITS = re.compile(r"[0-9]{1,9}")
_TRIED = (*TRIAL_TEXTS[:2], TRIAL_TEXTS[-1])  # few, since requests cost money
_VERSIONED = ("/v1/rerank", "/v2/rerank")
_NOT_REPORTED = {"truncation": "unknown: the endpoint does not report which texts it cuts"}

Batch = TypeVar("Batch")


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A redirect would send the key to a host that nobody named."""

    def redirect_request(self, *_: object) -> None:
        return None


def load(source: Source, options: ModelOptions) -> HttpEncoder:
    options.refuse_others("an endpoint", "model_id", "prompt", "normalize", "batch_size", "timeout", "truncate_dim")
    size = 0

    def attempt(place: str) -> None:
        nonlocal size
        size = embed(place, ["test"], options).shape[1]

    url = _find_endpoint(source.reference, ("/v1/embeddings", "/embed"), attempt)
    batches = _try_batches(lambda texts: embed(url, texts, options, size), "texts", options)
    tei = _path(url).endswith("/embed")
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
    return HttpEncoder(url, options, _info(url, options, settings, batches.notes), batches.rows, longest, size)


def load_scorer(source: Source, options: ModelOptions) -> HttpScorer:
    """Paths with a version are tried first: some servers have a /rerank of that kind too, TEI has no other."""
    options.refuse_others("an endpoint", "model_id", "prompt", "batch_size", "timeout")
    paths = (*_VERSIONED, "/rerank")
    url = _find_endpoint(source.reference, paths, lambda place: rerank(place, "test", ["test"], options))
    tei = not _path(url).endswith(_VERSIONED)

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
    return HttpScorer(url, options, _info(url, options, settings, batches.notes), batches.rows)


@dataclass(frozen=True)
class _Batches:
    """How many texts or documents a request has, and what is reported of it."""

    rows: int
    settings: Mapping[str, object]
    notes: tuple[str, ...] = ()


def _try_batches(
    send: Callable[[list[str]], Vectors], unit: str, options: ModelOptions, least: float = 0.0
) -> _Batches:
    """Three texts alone and in one request: a server may pad them together, or round them by what is beside them.

    Servers compute in half precision: what that rounds is no difference."""
    rows = options.batch_size or _ROWS

    def compute(which: Sequence[int]) -> Vectors:
        return send([_TRIED[i] for i in which])

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


def _find_endpoint(url: str, usual: Sequence[str], attempt: Callable[[str], object]) -> str:
    """The address with the first usual path that is there, unless it names one; `attempt` sends a small request."""
    try:
        parts = urllib.parse.urlsplit(url)
        whole = bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        whole = False
    # The address is not repeated: it may hold a password.
    if not whole or not url.isascii() or not url.isprintable() or " " in url:
        raise ModelError("the address of the endpoint cannot be read: expected http://host:port/…, percent-encoded")
    _find_key()
    path = parts.path.rstrip("/")
    last = "/" + path.rpartition("/")[2]
    if any(place.endswith(last) for place in usual):
        paths = [path]
    else:  # behind a version, only the paths of that version
        versioned = [place.removeprefix(last) for place in usual if place.startswith(f"{last}/")]
        paths = [path + place for place in versioned or usual]
    failures: list[InferenceError] = []
    for candidate in (parts._replace(path=path).geturl() for path in paths):
        try:
            attempt(candidate)
            return candidate
        except InferenceError as error:
            failures.append(error)
            if not isinstance(error, _NotThere):
                break
    raise ModelError(f"the endpoint cannot be used: {'; '.join(map(str, failures))}") from failures[-1]


def _info(url: str, options: ModelOptions, settings: Mapping[str, object], notes: tuple[str, ...] = ()) -> ModelInfo:
    place = clean(url)
    fingerprint = f"url:{place}#{options.model_id or ''}"
    return ModelInfo("http", options.model_id or place, place, "endpoint", fingerprint, settings, notes)


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
        for part, cut in _answers(lambda batch: self._embed([prompt + text for text in batch]), batches):
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
        except _TooLong:
            tokens = _count_tokens(self.url, texts, self.options)
            return embed(self.url, texts, self.options, self.size), sum(count > self.longest for count in tokens)


class HttpScorer(_Endpoint):
    def score(self, pairs: Sequence[Pair], *, progress: Progress = SILENT) -> Scores:
        """float32[n]; no pairs give float32[0]."""
        batches = group(pairs, self.rows)
        by_pair: dict[Pair, float] = {}
        progress.start("Scoring", sum(len(documents) for _, documents in batches))
        prompt = self.options.prompt or ""
        answers = _answers(lambda batch: rerank(self.url, prompt + batch[0], batch[1], self.options), batches)
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


def _answers(send: Callable[[Batch], Answer], batches: Sequence[Batch]) -> Iterator[Answer]:
    """The answer to each batch, in order, a few requests at once."""
    with ThreadPoolExecutor(max_workers=_REQUESTS) as pool:
        try:
            yield from pool.map(send, batches)
        finally:
            pool.shutdown(cancel_futures=True)


def embed(url: str, texts: list[str], options: ModelOptions, size: int = 0, *, truncate: bool = True) -> Vectors:
    """One request: float32[len(texts), d]. Vectors of different lengths, or of another one than an earlier answer's
    `size`, are INVALID."""
    if _path(url).endswith("/embed"):
        normalize = {} if options.normalize is None else {"normalize": options.normalize}
        rows = _send(url, {"inputs": texts, "truncate": truncate, **normalize}, options)
    else:
        body = {"input": texts, "model": options.model_id or "default", "encoding_format": "float"}
        rows = _openai_vectors(_send(url, body, options), len(texts), url)
    try:
        lengths = {len(row) for row in rows}
        if len(lengths) > 1:
            shown = " and ".join(map(str, sorted(lengths)[:: len(lengths) - 1]))
            raise InvalidOutput(f"{clean(url)} answered with vectors of different lengths: {shown} numbers", ())
        vectors = single(np.array([[np.nan if x is None else x for x in row] for row in rows], dtype=np.float64))
    except (TypeError, ValueError, OverflowError) as error:
        raise _fault(url, "answered with something else than vectors") from error
    if vectors.ndim != 2 or len(vectors) != len(texts):
        raise _fault(url, f"answered {list(vectors.shape)} to {len(texts)} texts: expected one vector each")
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
        limit = _send(_beside(url, "/info"), None, options, tries=1).get("max_input_length")
        counted = _count_tokens(url, ["test"], options, tries=1)
    except (InferenceError, AttributeError):
        return None
    return limit if type(limit) is int and limit > 0 and counted[0] > 0 else None


def _count_tokens(url: str, texts: list[str], options: ModelOptions, *, tries: int = _TRIES) -> list[int]:
    """Of each text, with the special ones."""
    rows = _send(_beside(url, "/tokenize"), {"inputs": texts, "add_special_tokens": True}, options, tries=tries)
    if not isinstance(rows, list) or len(rows) != len(texts) or not all(isinstance(row, list) for row in rows):
        raise _fault(url, "did not answer in the form of /tokenize: expected the tokens of each text")
    return [len(row) for row in rows]


def _openai_vectors(answer: Any, texts: int, url: str) -> list[Any]:
    try:
        rows = sorted(answer["data"], key=lambda row: row["index"])
        vectors = [row["embedding"] for row in rows]
    except (TypeError, KeyError) as error:
        raise _fault(url, "did not answer in the form of /v1/embeddings") from error
    if len(rows) == texts and [row["index"] for row in rows] != list(range(texts)):
        raise _fault(url, "answered with an index that names no text, or one twice")
    return vectors


def rerank(url: str, query: str, documents: list[str], options: ModelOptions) -> list[float]:
    """One request: a score for each document, in order, NaN where the endpoint says null."""
    body: dict[str, object]
    rows: Any
    n = len(documents)
    if _path(url).endswith(_VERSIONED):
        body = {"model": options.model_id or "default", "query": query, "documents": documents, "top_n": n}
        answer, key = _send(url, body, options), "relevance_score"
        rows = answer.get("results") if isinstance(answer, dict) else None
    else:
        body = {"query": query, "texts": documents, "raw_scores": True, "truncate": True}
        rows, key = _send(url, body, options), "score"
    try:
        scores = {row["index"]: np.nan if row[key] is None else float(row[key]) for row in rows}
    except (TypeError, KeyError, ValueError, OverflowError) as error:
        raise _fault(url, f"did not answer in the form of /rerank: expected rows with index and {key}") from error
    if len(rows) != n:
        raise _fault(url, f"answered with {len(rows)} scores to {n} documents: expected one each")
    if set(scores) != set(range(n)):
        raise _fault(url, "answered with an index that names no document, or one twice")
    return [scores[i] for i in range(n)]


def _send(url: str, body: Mapping[str, object] | None, options: ModelOptions, *, tries: int = _TRIES) -> Any:
    """POST as JSON, or GET without a body. Busy and broken answers, and connections that fail, are tried again with
    growing pauses, as long as the time allows."""
    parts = urllib.parse.urlsplit(url)
    place = parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()  # without the login
    content = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(place, content, _headers(url), method="GET" if body is None else "POST")
    end = time.monotonic() + max(options.timeout, _LEAST_BUDGET)
    for attempt in range(tries):
        seconds = max(0.1, min(options.timeout, end - time.monotonic()))
        deadline = Deadline(seconds)
        try:
            with deadline, deadline.opener(_NoRedirect()).open(request, timeout=seconds) as answer:
                return _read(answer, url)
        except urllib.error.HTTPError as error:
            with error:
                if error.code not in (408, 409, 425, 429) and error.code < 500:
                    raise _refusal(error, url, body) from error
                failure, retry_after = _describe(error, url), error.headers.get("Retry-After") or ""
        except (OSError, http.client.HTTPException) as error:
            late = f"timed out: no whole answer in {seconds:g} seconds" if deadline.passed else ""
            failure, retry_after = late or first_line(getattr(error, "reason", None) or error), ""
        requested = float(retry_after) if _DIGITS.fullmatch(retry_after) else 0.0
        pause = min(_LONGEST_PAUSE, max(requested, _FIRST_PAUSE * 2**attempt))
        if attempt + 1 == tries or time.monotonic() + pause > end:
            break
        time.sleep(pause)
    raise _fault(url, f"did not answer in {attempt + 1} tries: {failure}")


def _read(answer: http.client.HTTPResponse, url: str) -> Any:
    content = answer.read(_LARGEST_ANSWER + 1)
    if answer.length and len(content) <= _LARGEST_ANSWER:  # read(n) is silent about an answer that is cut off
        raise http.client.IncompleteRead(content, answer.length)
    if len(content) > _LARGEST_ANSWER:
        raise _fault(url, f"answered with more than {_LARGEST_ANSWER >> 20} MiB")
    try:
        return json.loads(content)
    except (ValueError, RecursionError) as error:
        raise _fault(url, "answered with something else than JSON") from error


class _NotThere(InferenceError):
    """Status 404 or 405: another path may work."""


class Refused(InferenceError):
    """The server does not take this request: a text or a batch too large, another form than it expects."""


class _TooLong(Refused):
    """Status 413: TEI refuses a text with more tokens than it reads."""


_KINDS: Mapping[int, type[InferenceError]] = {404: _NotThere, 405: _NotThere, 413: _TooLong}


def _refusal(error: urllib.error.HTTPError, url: str, body: Mapping[str, object] | None) -> InferenceError:
    kind = _KINDS.get(error.code, Refused)
    return kind(f"{clean(url)} answered with {_describe(error, url, body)}")


def _describe(error: urllib.error.HTTPError, url: str, body: Mapping[str, object] | None = None) -> str:
    """The status, what to do about it and the server's own words."""
    hint = " (set CALIPERS_API_KEY)" if error.code in (401, 403) else ""
    lists = [value for value in (body or {}).values() if isinstance(value, list)]
    if error.code == 413 and lists:
        rows = max(map(len, lists))
        hint = f" (set `batch_size` below {rows})" if rows > 1 else " (one text is more than it takes)"
    try:
        content = error.read(_LARGEST_REFUSAL)
    except (OSError, http.client.HTTPException):  # the status is known all the same
        content = b""
    words = " ".join(own_words(content.decode("utf-8", "replace")).split())
    return f"status {error.code}{hint}: {_redact(words or str(error.reason), url)[:200]}"


def own_words(content: str) -> str:
    """What a server says went wrong, out of the JSON that usual servers wrap it in.

    >>> own_words('{"error": {"message": "CUDA out of memory"}}'), own_words('{"detail": [{"msg": "too long"}]}')
    ('CUDA out of memory', 'too long')
    >>> own_words("Bad Gateway"), own_words('{"code": 7}')
    ('Bad Gateway', '{"code": 7}')
    """
    try:
        value: object = json.loads(content)
    except (ValueError, RecursionError):
        return content
    for _ in range(4):  # an error in a list in an entry, at most
        if isinstance(value, str):
            return value
        if isinstance(value, dict):
            value = next((value[name] for name in _WORDS if value.get(name)), None)
        else:
            value = value[0] if isinstance(value, list) and value else None
    return content


def _redact(text: str, url: str) -> str:
    """What a server says, without the key and the login that some repeat."""
    authorization = _headers(url).get("Authorization", "").partition(" ")[2]
    for secret in (_find_key("OPENAI_API_KEY"), authorization, *secrets_of(url)):
        text = text.replace(secret, "…") if secret else text
    return text


def _headers(url: str) -> dict[str, str]:
    headers = {"Content-Type": "application/json", "Accept": "application/json", "User-Agent": "calipers"}
    parts = urllib.parse.urlsplit(url)
    if key := _find_key("OPENAI_API_KEY" if parts.hostname == "api.openai.com" else None):
        headers["Authorization"] = f"Bearer {key}"
    elif parts.username is not None:
        login = urllib.parse.unquote(f"{parts.username}:{parts.password or ''}").encode()
        headers["Authorization"] = f"Basic {base64.b64encode(login).decode()}"
    return headers


def _find_key(other: str | None = None) -> str:
    """The key in the environment, "" where there is none."""
    for name in ("CALIPERS_API_KEY", other):
        key = os.environ.get(name, "").strip() if name else ""
        if key and not (key.isascii() and key.isprintable()):
            raise ModelError(f"{name} holds characters that no key has: expected one line of ASCII")
        if key:
            return key
    return ""


def _path(url: str) -> str:
    return urllib.parse.urlsplit(url).path


def _fault(url: str, what: str) -> InferenceError:
    return InferenceError(f"{clean(url)} {_redact(what, url)}")
