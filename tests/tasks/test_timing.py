"""How fast models answer: which inputs are timed, and that models take turns."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import pytest

from calipers import tasks
from calipers.core import Dataset, DataSource, Document, ModelInfo
from calipers.tasks import timing


def rows(columns: dict[str, list[Any]]) -> Dataset:
    size = len(next(iter(columns.values())))
    return Dataset(tuple(map(str, range(size))), columns, DataSource("here"), "sha256:0")


def test_texts_of_both_sides_are_timed_each_once() -> None:
    pairs = rows({"input_column_1": ["a", "b"], "input_column_2": ["b", "c"]})
    assert sorted(timing.inputs(tasks.find("sentence-similarity"), pairs)) == ["a", "b", "c"]


def test_a_cross_encoder_is_timed_on_pairs() -> None:
    pairs = rows({"input_column_1": ["a", "b"], "input_column_2": ["b", "c"]})
    assert timing.inputs(tasks.find("pair-classification"), pairs) == [("a", "b"), ("b", "c")]
    ranked = {"query_column": ["q"], "documents_column": [[Document("d1"), Document("d2")]]}
    queries = rows({**ranked, "positive_column": [None], "negative_column": [None]})
    assert timing.inputs(tasks.find("reranking"), queries) == [("q", "d1"), ("q", "d2")]


def test_64_inputs_come_from_all_parts_of_the_data() -> None:
    texts = [f"t{i}" for i in range(1000)]
    chosen = timing.inputs(tasks.find("fill-mask"), rows({"input_column": texts}))
    assert (len(chosen), chosen[0], chosen[-1]) == (64, "t0", "t999")


def test_models_take_turns_and_the_slower_one_is_slower() -> None:
    order: list[str] = []

    def call(name: str, seconds: float) -> Any:
        def answer(items: Sequence[str]) -> None:
            order.append(f"{name}{len(items)}")
            time.sleep(seconds * len(items))

        return answer

    fast, slow = timing.take_turns([call("fast", 0.001), call("slow", 0.01)], ["a", "b", "c", "d"])
    assert order[:6] == ["fast1", "slow1"] * 3  # the first of each does not count
    assert fast.p50_ms < slow.p50_ms
    assert fast.inputs_per_second > slow.inputs_per_second > 50
    assert (fast.timed_inputs, fast.timed_at) == (4, slow.timed_at)


def test_a_slow_model_is_timed_on_fewer_inputs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timing, "_SECONDS", 0.01)
    (speed,) = timing.take_turns([lambda items: time.sleep(0.01 * len(items))], list("abcdefghij"))
    assert speed.timed_inputs == 3


def test_what_does_not_run_here_is_not_timed() -> None:
    class Endpoint:
        info = ModelInfo("http", "m", None, "remote", "f")

        def encode(self, texts: Sequence[str]) -> None:
            raise AssertionError("it must not be called")

    assert timing.measure([Endpoint()], tasks.find("sentence-similarity"), ["a"]) == [None]
