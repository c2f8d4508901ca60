"""How the service runs."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from calipers.core import RequestError
from calipers.core.options import Options, option

_limit: Any = partial(option, group="Limits", above=0)
LOCAL = ("127.0.0.1", "localhost", "::1")


@dataclass(frozen=True)
class ServeOptions(Options):
    """Where it listens, what it accepts and what it writes.

    >>> ServeOptions(host="0.0.0.0")
    Traceback (most recent call last):
    calipers.core.errors.RequestError: `token` is needed: `host` 0.0.0.0 can be reached from other machines
    """

    host: str = option("127.0.0.1", "Where it listens. Another host than this machine needs --token.", group="Server")
    port: int = option(8080, "Its port; 0 takes a free one.", group="Server", at_least=0, at_most=65_535)
    token: Path | None = option(
        None, "A file with the bearer token that requests must carry.", group="Server", metavar="FILE"
    )
    shadow: bool = option(False, "Score and log, but always answer.", group="Server")
    log_queries: bool = option(False, "Write texts into the log, which has their hashes otherwise.", group="Server")
    max_body: int = _limit(1 << 20, "Bytes of a request's body.", metavar="BYTES")
    max_batch: int = _limit(256, "Queries of a request.", metavar="N")
    max_requests: int = _limit(64, "Requests in work at a time; further ones get 503.", metavar="N")
    request_timeout: float = _limit(10.0, "Seconds for a body to arrive, and for texts to be answered.", metavar="S")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.host not in LOCAL and self.token is None:
            raise RequestError(f"`token` is needed: `host` {self.host} can be reached from other machines")
