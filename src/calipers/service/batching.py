"""Texts of many requests embedded together: one thread works, the others wait, and too many are refused."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

_WAIT = 0.005  # seconds that a batch waits for more texts
_BATCH = 32  # texts
_WAITING = 256  # requests that may wait

Answers = list[dict[str, Any]]


@dataclass(eq=False)
class TextQueue:
    """`work` answers texts in a thread of its own, never two batches at once."""

    work: Callable[[Sequence[str]], Answers]
    queue: asyncio.Queue[tuple[Sequence[str], asyncio.Future[Answers]]] = field(
        default_factory=lambda: asyncio.Queue(_WAITING)
    )
    worker: asyncio.Task[None] | None = None

    def start(self) -> None:
        self.worker = asyncio.create_task(self._run())

    async def stop(self) -> None:
        if self.worker is not None:
            self.worker.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self.worker

    async def ask(self, texts: Sequence[str]) -> Answers:
        """The answers; asyncio.QueueFull where too many wait."""
        future: asyncio.Future[Answers] = asyncio.get_running_loop().create_future()
        self.queue.put_nowait((texts, future))
        return await future

    async def _run(self) -> None:
        while True:
            waiting = [await self.queue.get()]
            await asyncio.sleep(_WAIT)
            while not self.queue.empty() and sum(len(texts) for texts, _ in waiting) < _BATCH:
                waiting.append(self.queue.get_nowait())
            waiting = [(texts, future) for texts, future in waiting if not future.done()]
            if waiting:
                await self._answer(waiting)

    async def _answer(self, waiting: list[tuple[Sequence[str], asyncio.Future[Answers]]]) -> None:
        together = [text for texts, _ in waiting for text in texts]
        try:
            answers = await asyncio.to_thread(self.work, together)
        except Exception as error:  # every request gets it; the worker lives on
            for _, future in waiting:
                if not future.done():
                    future.set_exception(error)
            return
        for texts, future in waiting:
            own, answers = answers[: len(texts)], answers[len(texts) :]
            if not future.done():
                future.set_result(own)
