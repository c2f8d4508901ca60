"""Requests to an endpoint: which path is there, the key, repetitions, and a server's own words about what is wrong.

The key comes from CALIPERS_API_KEY (or OPENAI_API_KEY, for OpenAI's own host only) and is never stored or shown.
"""

from __future__ import annotations

import base64
import html
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
from typing import Any, TypeVar

from calipers.core import InferenceError, ModelError, ModelInfo
from calipers.core.references import clean, secrets_of
from calipers.models.batching import Answer
from calipers.models.deadline import Deadline
from calipers.models.options import ModelOptions
from calipers.models.tokenizer_files import first_line

_REQUESTS = 4  # at once
TRIES = 5
_FIRST_PAUSE = 0.5  # seconds, doubled after each failure
_LONGEST_PAUSE = 30.0
_LEAST_BUDGET = 8.0  # seconds for a request with its repetitions, where the timeout is shorter
_LARGEST_ANSWER = 32 << 20
_LARGEST_REFUSAL = 4096
_WORDS = ("error", "message", "detail", "msg", "errors", "reason")  # keys of what a server says went wrong
_DIGITS = re.compile(r"[0-9]{1,9}")

Batch = TypeVar("Batch")


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A redirect would send the key to a host that nobody named."""

    def redirect_request(self, *_: object) -> None:
        return None


def find_endpoint(url: str, usual: Sequence[str], attempt: Callable[[str], object]) -> str:
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


def endpoint_info(
    url: str, options: ModelOptions, settings: Mapping[str, object], notes: tuple[str, ...] = ()
) -> ModelInfo:
    place = clean(url)
    fingerprint = f"url:{place}#{options.model_id or ''}"
    return ModelInfo("http", options.model_id or place, place, "endpoint", fingerprint, settings, notes)


def in_order(send: Callable[[Batch], Answer], batches: Sequence[Batch]) -> Iterator[Answer]:
    """The answer to each batch, in order, a few requests at once."""
    with ThreadPoolExecutor(max_workers=_REQUESTS) as pool:
        try:
            yield from pool.map(send, batches)
        finally:
            pool.shutdown(cancel_futures=True)


def send(url: str, body: Mapping[str, object] | None, options: ModelOptions, *, tries: int = TRIES) -> Any:
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
    raise fault(url, f"did not answer in {attempt + 1} tries: {failure}")


def _read(answer: http.client.HTTPResponse, url: str) -> Any:
    content = answer.read(_LARGEST_ANSWER + 1)
    if answer.length and len(content) <= _LARGEST_ANSWER:  # read(n) is silent about an answer that is cut off
        raise http.client.IncompleteRead(content, answer.length)
    if len(content) > _LARGEST_ANSWER:
        raise fault(url, f"answered with more than {_LARGEST_ANSWER >> 20} MiB")
    try:
        return json.loads(content)
    except (ValueError, RecursionError) as error:
        raise fault(url, "answered with something else than JSON") from error


class _NotThere(InferenceError):
    """Status 404 or 405: another path may work."""


class Refused(InferenceError):
    """The server does not take this request: a text or a batch too large, another form than it expects."""


class TooLong(Refused):
    """Status 413: TEI refuses a text with more tokens than it reads."""


_KINDS: Mapping[int, type[InferenceError]] = {404: _NotThere, 405: _NotThere, 413: TooLong}


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
    >>> own_words("<html><title>502</title><h1>Bad Gateway</h1>nginx</html>"), own_words('{"Message": "too large"}')
    ('502 Bad Gateway nginx', 'too large')
    """
    try:
        value: object = json.loads(content)
    except (ValueError, RecursionError):
        return _page_text(content) if content.lstrip().startswith("<") else content
    for _ in range(4):  # an error in a list in an entry, at most
        if isinstance(value, str):
            return value
        if isinstance(value, dict):
            lower = {str(name).lower(): entry for name, entry in value.items()}
            value = next((lower[name] for name in _WORDS if lower.get(name)), None)
        else:
            value = value[0] if isinstance(value, list) and value else None
    return content


def _page_text(page: str) -> str:
    """The words of a page of HTML, as proxies send it, each line once."""
    page = re.sub(r"(?is)<(script|style)\b.*?</\1>|<!--.*?-->", "", page)
    parts = (" ".join(html.unescape(part).split()) for part in re.split(r"<[^>]*>", page))
    return " ".join(dict.fromkeys(filter(None, parts)))


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


def path_of(url: str) -> str:
    return urllib.parse.urlsplit(url).path


def fault(url: str, what: str) -> InferenceError:
    return InferenceError(f"{clean(url)} {_redact(what, url)}")
