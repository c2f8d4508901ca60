"""The routes: score, search, health, metrics, the description. Limits come before any work."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import hmac
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from calipers.core import CalipersError
from calipers.rendering.document import to_line
from calipers.service.batching import TextQueue
from calipers.service.bodies import Refusal, ScoreRequest, parse
from calipers.service.calibration import Calibration
from calipers.service.meters import Meters
from calipers.service.openapi import describe_api
from calipers.service.options import ServeOptions

if TYPE_CHECKING:
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response

_LOOK_AGAIN = 1.0  # seconds between looks at the trust file
_AT_ONCE = 4 << 10  # bytes of a body that is scored in the event loop: a query of scores costs less than a thread


@dataclass(eq=False)
class Service:
    """What the routes share."""

    calibration: Calibration
    options: ServeOptions
    token: str | None = None
    meters: Meters = field(default_factory=Meters)
    working: int = 0
    texts: TextQueue | None = None
    leaving: bool = False
    pool: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(1, "scoring"))

    async def score(self, request: Request) -> Response:
        """POST /v1/score: one query or a batch of scores, vectors or texts."""
        return await self._respond(request, neighbours=False)

    async def search(self, request: Request) -> Response:
        """POST /v1/search: a text, its decision and its neighbours."""
        return await self._respond(request, neighbours=True)

    async def _respond(self, request: Request, *, neighbours: bool) -> Response:
        """Read, score, log. With `neighbours` texts alone are taken, and the answers keep theirs."""
        started = time.perf_counter()
        body = await self._body(request)
        if len(body) <= _AT_ONCE:
            queries, many, answers = self._decide(body, texts_only=neighbours)
        else:
            work = partial(self._decide, body, texts_only=neighbours)
            queries, many, answers = await asyncio.get_running_loop().run_in_executor(self.pool, work)
        await self._answer_texts(queries, answers)
        for query, answer in zip(queries, answers, strict=True):
            if self.options.shadow:
                answer["shadow_decision"], answer["decision"] = answer["decision"], "answer"
            if query.id is not None:
                answer["id"] = query.id
            if not neighbours:
                answer.pop("neighbours", None)
            self._note(query, answer, time.perf_counter() - started)
        return _json({"answers": answers} if many else answers[0])

    def _decide(self, body: bytes, *, texts_only: bool) -> tuple[list[ScoreRequest], bool, list[dict[str, Any]]]:
        """The queries, whether they are a batch, and the answers to those that are no texts."""
        queries, many = parse(body, self.calibration.served.trust, self.options.max_batch)
        if texts_only and any(query.kind != "text" for query in queries):
            raise Refusal(422, "a search takes a 'text'")
        return queries, many, self.calibration.score(queries)

    async def _answer_texts(self, queries: Sequence[ScoreRequest], answers: list[dict[str, Any]]) -> None:
        """Put the answers to texts, which are embedded together with those of other requests, in their places."""
        rows = [row for row, query in enumerate(queries) if query.text is not None]
        if not rows:
            return
        if self.texts is None:
            raise Refusal(422, "no model is loaded: start the service with `model` and `corpus` to score texts")
        texts = [queries[row].text or "" for row in rows]
        try:
            scored = await asyncio.wait_for(self.texts.ask(texts), self.options.request_timeout)
        except asyncio.QueueFull:
            raise Refusal(429, "too many texts are waiting: try again later", {"Retry-After": "1"}) from None
        except TimeoutError:
            raise Refusal(503, "the texts took too long: try again later", {"Retry-After": "1"}) from None
        for row, answer in zip(rows, scored, strict=True):
            answers[row] = answer

    async def _body(self, request: Request) -> bytes:
        """The body, within its limits of size and time."""
        most = self.options.max_body
        with contextlib.suppress(ValueError):
            if int(request.headers.get("content-length", "0")) > most:
                raise Refusal(413, f"the body is more than the limit of {most:,} bytes")
        body = bytearray()
        try:
            async with asyncio.timeout(self.options.request_timeout):
                async for part in request.stream():
                    body += part
                    if len(body) > most:
                        raise Refusal(413, f"the body is more than the limit of {most:,} bytes")
        except TimeoutError:
            raise Refusal(408, f"the body did not arrive within {self.options.request_timeout:g} seconds") from None
        return bytes(body)

    def _note(self, query: ScoreRequest, answer: dict[str, Any], seconds: float) -> None:
        """One line of the log, and the counts."""
        decision = answer.get("shadow_decision", answer["decision"])
        self.meters.count("calipers_decisions_total", decision=decision.replace(" ", "_"), map=str(answer["map"]))
        self.meters.share("calipers_probability", answer["probability"])
        self.meters.share("calipers_top_score", answer["parts"]["top_score"])
        facts: dict[str, Any] = {"kind": query.kind, "id": query.id}
        if query.text is not None:
            hashed = hashlib.sha256(query.text.encode()).hexdigest()[:16]
            facts["query"] = query.text if self.options.log_queries else hashed
        shown = {key: answer[key] for key in ("decision", "probability", "map", "promise", "calibration")}
        shown["predictors"] = answer.pop("predictors")
        self.log("scored", **facts, **shown, shadow=answer.get("shadow_decision"), ms=round(1000 * seconds, 3))

    def log(self, event: str, **facts: Any) -> None:
        line = {"time": round(time.time(), 3), "event": event, **facts}
        print(to_line(line), file=sys.stderr, flush=True)

    async def healthz(self, request: Request) -> Response:
        """GET /healthz: the process is alive."""
        return _json({"status": "alive"})

    async def readyz(self, request: Request) -> Response:
        """GET /readyz: it takes requests; 503 while it is leaving."""
        served = self.calibration.served
        facts = {"calibration": served.id, "k": served.trust.k, "dimensions": served.trust.codec.dimensions}
        facts |= {"texts": self.texts is not None, "promise_void": served.void}
        return _json({"status": "leaving" if self.leaving else "ready", **facts}, 503 if self.leaving else 200)

    async def metrics(self, request: Request) -> Response:
        """GET /metrics: counts for Prometheus."""
        from starlette.responses import PlainTextResponse

        served = self.calibration.served
        gauges = {"calipers_requests_in_work": float(self.working), "calipers_promise_void": float(served.void)}
        gauges |= {f"calipers_drift_capital_{kind}": bet.capital for kind, bet in served.bets.items()}
        return PlainTextResponse(self.meters.text(gauges), media_type="text/plain; version=0.0.4")

    async def openapi(self, request: Request) -> Response:
        """GET /openapi.json: this description."""
        return _json(describe_api(self.calibration.served.trust, self.options))

    @contextlib.asynccontextmanager
    async def lifespan(self, app: Starlette) -> AsyncIterator[None]:
        watcher = asyncio.create_task(self._watch_file())
        if self.texts is not None:
            self.texts.start()
        try:
            yield
        finally:
            self.leaving = True
            watcher.cancel()
            if self.texts is not None:
                await self.texts.stop()
            self.pool.shutdown(cancel_futures=True)
            self.log("stopped")

    async def _watch_file(self) -> None:
        while True:
            await asyncio.sleep(_LOOK_AGAIN)
            if sentence := await asyncio.to_thread(self.calibration.reload):
                self.meters.count("calipers_reloads_total", outcome="failed" if "stays" in sentence else "taken")
                self.log("calibration", message=sentence)

    def guarded(self, work: Callable[[Request], Awaitable[Response]]) -> Callable[[Request], Awaitable[Response]]:
        """With the token, the limit of requests in work, and every fault as one sentence."""

        async def answer(request: Request) -> Response:
            started, path = time.perf_counter(), request.url.path
            try:
                self._admit(request)
                self.working += 1
                try:
                    response = await work(request)
                finally:
                    self.working -= 1
            except Refusal as refusal:
                response = _json({"error": refusal.sentence}, refusal.status, refusal.headers)
            except CalipersError as error:
                response = _json({"error": str(error).splitlines()[0]}, 422)
            self.meters.count("calipers_requests_total", path=path, status=str(response.status_code))
            self.meters.time("calipers_request_seconds", time.perf_counter() - started, path=path)
            return response

        return answer

    def _admit(self, request: Request) -> None:
        if self.token is not None:
            given = request.headers.get("authorization", "")
            if not hmac.compare_digest(given.encode(), f"Bearer {self.token}".encode()):
                raise Refusal(401, "a bearer token is needed", {"WWW-Authenticate": "Bearer"})
        if self.leaving or self.working >= self.options.max_requests:
            raise Refusal(503, "the service is at its capacity: try again later", {"Retry-After": "1"})


def _json(content: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    from starlette.responses import Response

    return Response(to_line(content), status, headers, media_type="application/json")


def create_app(service: Service) -> Starlette:
    """The application, for uvicorn or a test client."""
    from starlette.applications import Starlette
    from starlette.exceptions import HTTPException
    from starlette.routing import Route

    async def refused(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        return _json({"error": f"{error.detail}: see /openapi.json"}, error.status_code, dict(error.headers or {}))

    return Starlette(
        routes=[
            Route("/v1/score", service.guarded(service.score), methods=["POST"]),
            Route("/v1/search", service.guarded(service.search), methods=["POST"]),
            Route("/healthz", service.healthz),
            Route("/readyz", service.readyz),
            Route("/metrics", service.metrics),
            Route("/openapi.json", service.openapi),
        ],
        exception_handlers={HTTPException: refused},
        lifespan=service.lifespan,
    )
