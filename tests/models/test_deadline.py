"""Requests and calls into libraries end in time, whatever the other side does."""

from __future__ import annotations

import time
from collections.abc import Iterator
from threading import Event

import pytest

from calipers.core import InferenceError, ModelError
from calipers.models.deadline import Deadline, in_time
from tests.hostile.server import hostile_server


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with hostile_server() as place:
        yield f"http://{place}"


@pytest.mark.parametrize("kind", ["drip", "continue"])
def test_a_connection_is_cut_though_bytes_keep_coming(address: str, kind: str) -> None:
    begin = time.monotonic()
    with Deadline(0.4) as deadline, pytest.raises(Exception):  # noqa: B017, PT011 (of http.client, OSError or IncompleteRead)
        deadline.opener().open(f"{address}/{kind}", data=b"{}", timeout=30).read()
    assert deadline.passed
    assert time.monotonic() - begin < 5


def test_an_answer_in_time_is_left_alone(address: str) -> None:
    with Deadline(30) as deadline:
        assert deadline.opener().open(f"{address}/short", data=b"{}", timeout=30).read() == b"[[1.0]]"
    assert not deadline.passed


def test_a_connection_that_is_made_too_late_is_cut_at_once(address: str) -> None:
    with Deadline(0.01) as deadline:
        time.sleep(0.1)
        with pytest.raises(OSError, match=r"."):
            deadline.opener().open(f"{address}/drip", data=b"{}", timeout=30).read()
    assert deadline.passed


def test_a_call_that_never_returns_is_an_error_of_the_kind() -> None:
    with pytest.raises(ModelError, match=r"the tokenizer did not end in 0 seconds"):
        in_time(Event().wait, 0.1, ModelError, "the tokenizer")


def test_a_fault_of_a_library_is_an_error_of_the_kind_and_a_result_is_returned() -> None:
    class Panic(BaseException):
        """As a library in Rust throws it."""

    def panic() -> None:
        raise Panic("called `Option::unwrap()`")

    with pytest.raises(InferenceError, match=r"the tokenizer failed: called `Option::unwrap\(\)`"):
        in_time(panic, 5, InferenceError, "the tokenizer")
    assert in_time(lambda: 7, 5, InferenceError, "x") == 7
