"""Work on several threads: in order, with the settings of its caller, and divided once only."""

from __future__ import annotations

import threading

import numpy as np

from calipers.metrics.threads import at_most, on_threads, permitted_threads


def test_answers_are_in_the_order_of_items_and_settings_are_those_of_the_caller() -> None:
    meeting = threading.Barrier(2, timeout=60)

    def work(item: int) -> tuple[int, int, float]:
        meeting.wait()  # both threads are at work
        return item, permitted_threads(), float(np.float64(item) / 0)

    with at_most(2), np.errstate(divide="ignore"):
        assert on_threads(work, [1, 2, 3, 4], 2) == [(i, 2, np.inf) for i in (1, 2, 3, 4)]


def test_work_that_is_divided_again_stays_on_its_thread() -> None:
    def inner(_: int) -> int:
        return threading.get_ident()

    def outer(_: int) -> set[int]:
        return {threading.get_ident(), *on_threads(inner, range(9), 2)}

    assert [len(threads) for threads in on_threads(outer, range(9), 2)] == [1] * 9
