"""`serve`: a trust file, and if texts are to be scored a model and a corpus, to a running server."""

from __future__ import annotations

import socket
import sys
from pathlib import Path
from typing import TypedDict, Unpack

from calipers.core import SILENT, Progress, RequestError
from calipers.core.errors import boundary
from calipers.core.files import package_versions
from calipers.core.inputs import expand, read_text
from calipers.data.texts import load_texts
from calipers.models import ModelOptions
from calipers.reliability.api import TrustMaterial, TrustOptions, open_search
from calipers.reliability.searching import TrustedSearch
from calipers.runs.vector_cache import VectorCache
from calipers.service.app import Service, create_app
from calipers.service.batching import TextQueue
from calipers.service.calibration import Calibration, Served
from calipers.service.options import ServeOptions

_SWITCH = 0.0005  # seconds after which a thread that scores lets the event loop go on; Python's own 0.005 add up
_LEAVE = 10  # seconds that requests have to end in when the service stops


def serve(
    trust: Path,
    *,
    options: ServeOptions | None = None,
    model: str | None = None,
    corpus: str | None = None,
    model_options: ModelOptions | None = None,
    vectors: VectorCache | None = None,
    progress: Progress = SILENT,
) -> None:
    """Serve a trust score over HTTP until a signal. With a model and its corpus texts are scored as well.

    `serve(Path("scifact.trust"), options=ServeOptions(port=8080))` logs, when it is ready:
    `{"event": "listening", "host": "127.0.0.1", "port": 8080, "calibration": "43f17ad511b51949", "model": null}`
    """
    service = open_service(
        trust,
        options or ServeOptions(),
        model=model,
        corpus=corpus,
        model_options=model_options,
        vectors=vectors,
        progress=progress,
    )
    run(service)


class TextLoading(TypedDict, total=False):
    """How a model that scores texts is loaded and its corpus embedded."""

    model_options: ModelOptions | None
    vectors: VectorCache | None
    progress: Progress


def open_service(
    trust: Path, options: ServeOptions, model: str | None, corpus: str | None, **loading: Unpack[TextLoading]
) -> Service:
    """Everything loaded and checked, not yet listening."""
    _refuse_missing()
    if (model is None) != (corpus is None):
        raise RequestError("`model` and `corpus` go together: texts need both")
    if model is None:
        (loading.get("model_options") or ModelOptions()).refuse_others("a service without `model`")
        if options.log_queries:
            raise RequestError("`log_queries` has no effect without `model`: only texts are logged by it")
    served = Served.read(trust)
    search: TrustedSearch | None = None
    if model is not None and corpus is not None:
        documents, given = load_texts(corpus, "corpus"), TrustOptions(load=trust)
        search = open_search(model, documents, TrustMaterial(), served.trust, given, **loading)
        search.ask(["a first question, so that the next ones find everything loaded"])
    calibration = Calibration(trust, served, search)
    queue = TextQueue(calibration.score_texts) if search else None
    return Service(calibration, options, _read_token(options.token), texts=queue)


def _read_token(path: Path | None) -> str | None:
    if path is None:
        return None
    with boundary(RequestError, f"`token`: {path} cannot be read"):
        token = read_text(expand(path), RequestError).strip()
    if len(token) < 16 or not token.isascii() or not token.isprintable():
        raise RequestError(f"`token`: expected at least 16 printable ASCII characters in {path}")
    return token


def run(service: Service) -> None:
    """Serve until a signal; requests in work end first."""
    import uvicorn

    options = service.options
    config = uvicorn.Config(
        create_app(service),
        host=options.host,
        port=options.port,
        log_level="warning",
        access_log=False,
        timeout_graceful_shutdown=_LEAVE,
        loop="calipers.service.turns:new_loop",
        timeout_keep_alive=30,
        h11_max_incomplete_event_size=64 << 10,
    )

    class Announcing(uvicorn.Server):
        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            for one in self.servers[:1]:
                host, port = one.sockets[0].getsockname()[:2]
                facts = {"calibration": service.calibration.served.id, "model": service.calibration.model_id}
                service.log("listening", host=host, port=port, **facts)

    before = sys.getswitchinterval()
    sys.setswitchinterval(_SWITCH)
    try:
        Announcing(config).run()
    finally:
        sys.setswitchinterval(before)


def _refuse_missing() -> None:
    missing = [name for name in ("starlette", "uvicorn") if not package_versions(name).get(name)]
    if missing:
        install = f"pip install {' '.join(missing)} (in a checkout: pip install '.[serve]')"
        raise RequestError(f"the service needs {' and '.join(missing)}: {install}")
