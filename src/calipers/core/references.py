"""Addresses without what is secret in them. Every reference passes `clean` before it is shown or stored."""

from __future__ import annotations

import re
from contextlib import suppress
from urllib.parse import unquote, urlsplit

# A scheme and slashes, or the scheme of the web alone: `http:/user:key@host` is a typing error that has a key too.
_ADDRESS = re.compile(r"(?:[a-z][a-z0-9+.-]*:)?//|\bhttps?:", re.IGNORECASE)
_WORD = re.compile(r"[^\s'\"<>]*")


def clean(reference: str) -> str:
    """A reference without login, query and fragment, whatever stands before its address.

    >>> clean("vectors:HTTP://me:secret@host:80/v1?key=secret#x"), clean("./a?b@c")
    ('vectors:HTTP://host:80/v1', './a?b@c')
    """
    match = _ADDRESS.search(reference)
    if match is None:
        return reference
    place = re.split(r"[?#]", reference[match.end() :], maxsplit=1)[0]
    return reference[: match.end()] + place.rpartition("@")[2]


def clean_text(text: str) -> str:
    """A sentence with every address in it cleaned.

    >>> clean_text("no answer from 'https://me:key@host/v1?api-key=x', see //docs")
    "no answer from 'https://host/v1', see //docs"
    """
    parts, end = [], 0
    while match := _ADDRESS.search(text, end):
        word = _WORD.match(text, match.end())
        assert word is not None
        parts += [text[end : match.start()], clean(text[match.start() : word.end()])]
        end = word.end()
    return "".join([*parts, text[end:]])


def secrets_of(address: str) -> list[str]:
    """What of an address must not be repeated: user, password, the values of its query; longest first."""
    match = _ADDRESS.search(address)
    if match is None:
        return []
    place, _, query = address[match.end() :].partition("?")
    login, at, _ = place.rpartition("@")
    values = [pair.partition("=")[2] or pair for pair in re.split(r"[&;#]", query)]
    secrets = [*([login, *login.split(":", 1)] if at else []), *values]
    with suppress(ValueError):
        secrets += [urlsplit(address).username or "", urlsplit(address).password or ""]
    plain = {*secrets, *map(unquote, secrets)}
    return sorted((secret for secret in plain if len(secret) > 2), key=len, reverse=True)
