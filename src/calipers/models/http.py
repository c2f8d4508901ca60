"""Encoders behind an HTTP endpoint: OpenAI's `/v1/embeddings` and text-embeddings-inference's `/embed`.

The key comes from CALIPERS_API_KEY (or OPENAI_API_KEY, for OpenAI's own host only) and is never stored or shown.
"""

from __future__ import annotations

import base64
import http.client
import json
import os
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np

from calipers.core import SILENT, InferenceError, ModelError, ModelInfo, Progress
from calipers.metrics.arrays import Vectors
from calipers.metrics.geometry import unit_like
from calipers.models.options import ModelOptions
from calipers.models.source import Source
from calipers.models.tokenizer import first_line

ROWS = 32  # texts per request
_REQUESTS = 4  # at once
_TRIES = 5
_FIRST_PAUSE = 0.5  # seconds, doubled after each failure
_LONGEST_PAUSE = 30.0
_LARGEST_ANSWER = 256 << 20

Answer = TypeVar("Answer")
Batch = TypeVar("Batch")


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A redirect would send the key to a host that nobody named."""

    def redirect_request(self, *_: object) -> None:
        return None


_OPENER = urllib.request.build_opener(_NoRedirect)


def load(source: Source, options: ModelOptions) -> HttpEncoder:
    options.refuse_others("an endpoint", "model_id", "prompt", "normalize", "batch_size", "timeout")
    path = url_path(source.reference)
    if path.endswith(("/embeddings", "/embed")):
        paths = [path]
    elif path.endswith("/v1"):
        paths = [f"{path}/embeddings"]
    else:
        paths = [f"{path}/v1/embeddings", f"{path}/embed"]
    url = first_that_answers(source.reference, paths, lambda candidate: embed(candidate, ["test"], options))
    settings = {
        "protocol": "tei" if _is_tei(url) else "openai",
        "prompt": options.prompt or "",
        "normalize": options.normalize,
        "batching": f"{options.batch_size or ROWS} texts a request",
    }
    return HttpEncoder(url, options, endpoint_info(url, options, settings))


def url_path(url: str) -> str:
    """The path of an address, once it and the key can be used. The address is not repeated: it may hold a password."""
    try:
        parts = urllib.parse.urlsplit(url)
        whole = bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        whole = False
    if not whole or not url.isascii() or not url.isprintable() or " " in url:
        raise ModelError("the address of the endpoint cannot be read: expected http://host:port/…, percent-encoded")
    find_key()
    return parts.path.rstrip("/")


def endpoint_info(url: str, options: ModelOptions, settings: Mapping[str, object]) -> ModelInfo:
    place = without_secrets(url)
    fingerprint = f"url:{place}#{options.model_id or ''}"
    return ModelInfo("http", options.model_id or place, place, "endpoint", fingerprint, settings)


@dataclass(frozen=True, eq=False)
class HttpEncoder:
    url: str = field(repr=False)  # it may hold a password
    options: ModelOptions
    info: ModelInfo

    def encode(self, texts: Sequence[str], *, prompt: str | None = None, progress: Progress = SILENT) -> Vectors:
        distinct = list(dict.fromkeys(texts))
        prompt = (self.options.prompt or "") if prompt is None else prompt
        progress.start("Encoding", len(distinct))
        rows = self.options.batch_size or ROWS
        batches = [distinct[i : i + rows] for i in range(0, len(distinct), rows)]
        parts = []
        for part in requests(lambda batch: embed(self.url, [prompt + text for text in batch], self.options), batches):
            parts.append(part)
            progress.advance(len(part))
        if len({part.shape[1] for part in parts}) != 1:
            raise InferenceError(f"{self.info.path} answered with vectors of different lengths, or none")
        position = {text: i for i, text in enumerate(distinct)}
        vectors = np.concatenate(parts)
        # OpenAI's protocol cannot request it, so it is done here; for TEI it changes nothing.
        return (unit_like(vectors) if self.options.normalize else vectors)[[position[text] for text in texts]]


def requests(send: Callable[[Batch], Answer], batches: Sequence[Batch]) -> Iterator[Answer]:
    """The answer to each batch, in order, a few requests at once."""
    with ThreadPoolExecutor(max_workers=_REQUESTS) as pool:
        try:
            yield from pool.map(send, batches)
        finally:
            pool.shutdown(cancel_futures=True)


def embed(url: str, texts: list[str], options: ModelOptions) -> Vectors:
    """One request: float32[len(texts), d]."""
    if _is_tei(url):
        normalize = {} if options.normalize is None else {"normalize": options.normalize}
        rows = post(url, {"inputs": texts, "truncate": True, **normalize}, options)
    else:
        body = {"input": texts, "model": options.model_id or "default", "encoding_format": "float"}
        rows = _openai_vectors(post(url, body, options), len(texts), url)
    try:
        if len({len(row) for row in rows}) > 1:
            raise InferenceError(f"{without_secrets(url)} answered with vectors of different lengths")
        vectors = np.array([[np.nan if x is None else x for x in row] for row in rows], dtype=np.float32)
    except (TypeError, ValueError) as error:
        raise InferenceError(f"{without_secrets(url)} answered with something else than vectors") from error
    if vectors.ndim != 2 or len(vectors) != len(texts):
        raise InferenceError(
            f"{without_secrets(url)} answered {list(vectors.shape)} to {len(texts)} texts: expected one vector each"
        )
    return vectors


def post(url: str, body: Mapping[str, object], options: ModelOptions) -> Any:
    """POST as JSON. Busy and broken answers, and connections that fail, are tried again with growing pauses."""
    request = urllib.request.Request(_without_login(url), json.dumps(body).encode(), _headers(url), method="POST")
    for attempt in range(_TRIES):
        try:
            with _OPENER.open(request, timeout=options.timeout) as answer:
                return _read(answer, url)
        except urllib.error.HTTPError as error:
            with error:
                if error.code not in (408, 409, 425, 429) and error.code < 500:
                    raise _refusal(error, url) from error
            failure, retry_after = f"status {error.code}", error.headers.get("Retry-After")
        except (OSError, http.client.HTTPException) as error:
            failure, retry_after = first_line(getattr(error, "reason", None) or error), None
        if attempt + 1 < _TRIES:
            time.sleep(_pause(attempt, retry_after))
    raise InferenceError(f"{without_secrets(url)} did not answer in {_TRIES} tries: {failure}")


def _read(answer: http.client.HTTPResponse, url: str) -> Any:
    content = answer.read(_LARGEST_ANSWER + 1)
    if answer.length and len(content) <= _LARGEST_ANSWER:  # read(n) is silent about an answer that is cut off
        raise http.client.IncompleteRead(content, answer.length)
    if len(content) > _LARGEST_ANSWER:
        raise InferenceError(f"{without_secrets(url)} answered with more than {_LARGEST_ANSWER >> 20} MiB")
    try:
        return json.loads(content)
    except ValueError as error:
        raise InferenceError(f"{without_secrets(url)} answered with something else than JSON") from error


def first_that_answers(url: str, paths: Sequence[str], attempt: Callable[[str], object]) -> str:
    """The address with the first of the paths that is there; `attempt` sends it a small request."""
    parts = urllib.parse.urlsplit(url)
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


def _is_tei(url: str) -> bool:
    return urllib.parse.urlsplit(url).path.endswith("/embed")


class _NotThere(InferenceError):
    """Status 404 or 405: another path may work."""


def _refusal(error: urllib.error.HTTPError, url: str) -> InferenceError:
    hint = " (set CALIPERS_API_KEY)" if error.code in (401, 403) else ""
    text = " ".join(error.read(500).decode("utf-8", "replace").split())
    if key := find_key("OPENAI_API_KEY"):
        text = text.replace(key, "…")  # some servers repeat it
    kind = _NotThere if error.code in (404, 405) else InferenceError
    return kind(f"{without_secrets(url)} answered with status {error.code}{hint}: {text[:200] or error.reason}")


def _openai_vectors(answer: Any, texts: int, url: str) -> list[Any]:
    try:
        rows = sorted(answer["data"], key=lambda row: row["index"])
        vectors = [row["embedding"] for row in rows]
    except (TypeError, KeyError) as error:
        raise InferenceError(f"{without_secrets(url)} did not answer in the form of /v1/embeddings") from error
    if len(rows) == texts and [row["index"] for row in rows] != list(range(texts)):
        raise InferenceError(f"{without_secrets(url)} answered with an index that names no text, or one twice")
    return vectors


def _headers(url: str) -> dict[str, str]:
    headers = {"Content-Type": "application/json", "Accept": "application/json", "User-Agent": "calipers"}
    parts = urllib.parse.urlsplit(url)
    key = find_key("OPENAI_API_KEY" if parts.hostname == "api.openai.com" else None)
    if key:
        return {**headers, "Authorization": f"Bearer {key}"}
    if parts.username is not None:
        login = urllib.parse.unquote(f"{parts.username}:{parts.password or ''}").encode()
        return {**headers, "Authorization": f"Basic {base64.b64encode(login).decode()}"}
    return headers


def find_key(other: str | None = None) -> str:
    """The key in the environment, "" where there is none."""
    for name in ("CALIPERS_API_KEY", other):
        key = os.environ.get(name, "").strip() if name else ""
        if key and not (key.isascii() and key.isprintable()):
            raise ModelError(f"{name} holds characters that no key has: expected one line of ASCII")
        if key:
            return key
    return ""


def _pause(attempt: int, retry_after: str | None) -> float:
    """Seconds to wait after a failed attempt; `retry_after` is the endpoint's header."""
    requested = float(retry_after) if retry_after and retry_after.isdigit() else 0.0
    return float(min(_LONGEST_PAUSE, max(requested, _FIRST_PAUSE * 2**attempt)))


def _without_login(url: str) -> str:
    parts = urllib.parse.urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()


def without_secrets(url: str) -> str:
    """The address without user, password and query."""
    parts = urllib.parse.urlsplit(url)
    host = f"{parts.hostname}:{parts.port}" if parts.port else str(parts.hostname)
    return urllib.parse.urlunsplit((parts.scheme, host, parts.path, "", ""))
