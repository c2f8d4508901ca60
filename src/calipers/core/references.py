"""Addresses without what is secret in them. Every reference passes `clean` before it is shown or stored."""

from __future__ import annotations

import re
from collections.abc import Iterable
from contextlib import suppress
from urllib.parse import unquote, urlsplit

# A scheme and slashes, or the scheme of the web alone: `http:/user:key@host` is a typing error that has a key too. What
# may repeat has a bound here and below, so that the work grows with the length of a text and not with its square.
_ADDRESS = re.compile(r"(?:[a-z][a-z0-9+.-]{0,40}:)?//|\bhttps?:", re.IGNORECASE)
_WORD = re.compile(r"[^\s'\"<>]*")
# A password may hold spaces and quotes; a port is none.
_LOGIN = re.compile(r"[^\s/@'\"<>:]*:(?!\d{1,5}(?!\d))[^/@]{0,1000}@")
# The same without a scheme, `user:key@host` and `host:80/v1?key=…`, at the beginning of a word or behind the name of a
# backend. What has a backslash behind its colon is the path of a drive.
_BACKEND = r"(?:torch|onnx|static|vectors|run|hub|hybrid|bm25):"
_BEGIN = rf"(?<![^\s'\"`(=])(?P<backend>{_BACKEND})*(?!{_BACKEND})"
_QUERY = r"(?P<query>[?#][^\s'\"<>]*)"
_BARE_LOGIN = re.compile(
    rf"{_BEGIN}(?P<login>[^\s/@:'\"<>]{{1,100}}:(?!\\)[^\s/@'\"<>]{{1,200}})@(?P<place>[\w.\[][^\s'\"<>?#]*){_QUERY}?",
    re.IGNORECASE,
)
_BARE_QUERY = re.compile(
    rf"{_BEGIN}(?P<login>)(?P<place>[\w.-]{{1,255}}:\d{{2,5}}(?:/[^\s'\"<>?#]{{0,300}})?){_QUERY}", re.IGNORECASE
)


def clean(reference: str) -> str:
    """A reference without login, parameters, query and fragment, whatever stands before its address.

    >>> clean("vectors:HTTP://me:secret@host:80/v1?key=secret#x"), clean("./a?b@c"), clean("http://me:a?b@host")
    ('vectors:HTTP://host:80/v1', './a?b@c', 'http://host')
    >>> clean("me:secret@host:80/v1?key=secret"), clean("static:me:secret@host"), clean("host:80/v1?key=secret")
    ('host:80/v1', 'static:host', 'host:80/v1')
    """
    match = _ADDRESS.search(reference)
    if match is None:
        return _clean_bare(reference)
    rest = reference[match.end() :]
    if login := _LOGIN.match(rest):  # with whatever characters
        rest = rest[login.end() :]
    place = re.split(r"[?#;]", rest, maxsplit=1)[0]
    return reference[: match.end()] + place.rpartition("@")[2]


def _clean_bare(text: str) -> str:
    """Without the logins and queries of addresses that have no scheme."""
    for form in (_BARE_LOGIN, _BARE_QUERY):
        text = form.sub(lambda match: (match["backend"] or "") + match["place"], text)
    return text


def clean_text(text: str) -> str:
    """A sentence with every address in it cleaned.

    >>> clean_text("no answer from 'https://me:key@host/v1?api-key=x', see //docs")
    "no answer from 'https://host/v1', see //docs"
    >>> clean_text("no answer from 'http://me:my key@host/v1' on http://host:80, ask me@host")
    "no answer from 'http://host/v1' on http://host:80, ask me@host"
    """
    parts, end = [], 0
    while match := _ADDRESS.search(text, end):
        login = _LOGIN.match(text, match.end())
        word = _WORD.match(text, login.end() if login else match.end())
        assert word is not None
        parts += [_clean_bare(text[end : match.start()]), clean(text[match.start() : word.end()])]
        end = word.end()
    return "".join([*parts, _clean_bare(text[end:])])


def hide(text: str, words: Iterable[str]) -> str:
    """A text without what is secret in these words, however they are written in it: a key may hold spaces and quotes.

    >>> hide("no model at 'http://h/?key=a b'", ["http://h/?key=a b"])
    "no model at 'http://h/'"
    """
    for word in words:
        if (shown := clean(word)) == word:
            continue
        for written in (word, repr(word)[1:-1]):
            text = text.replace(written, shown)
        for secret in secrets_of(word):
            text = text.replace(secret, "…").replace(repr(secret)[1:-1], "…")
    return clean_text(text)


def secrets_of(address: str) -> list[str]:
    """What of an address must not be repeated: user, password, the values of its query; longest first."""
    match = _ADDRESS.search(address)
    bare = None if match else _BARE_LOGIN.search(address) or _BARE_QUERY.search(address)
    if match is None and bare is None:
        return []
    if bare is not None:
        login, at, query = bare["login"], bare["login"], (bare["query"] or "")[1:]
    else:
        assert match is not None
        place, _, query = address[match.end() :].partition("?")
        login, at, _ = place.rpartition("@")
    values = [pair.partition("=")[2] or pair for pair in re.split(r"[&;#]", query)]
    secrets = [*([login, *login.split(":", 1)] if at else []), *values]
    with suppress(ValueError):
        secrets += [urlsplit(address).username or "", urlsplit(address).password or ""]
    plain = {*secrets, *map(unquote, secrets)}
    return sorted((secret for secret in plain if len(secret) > 2), key=len, reverse=True)
