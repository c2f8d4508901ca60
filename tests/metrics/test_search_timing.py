"""What a search took and at what rate; and how many threads it, matrix products and tokenizers may use."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator

import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from calipers.metrics import indexes, search
from calipers.metrics.search_timing import SearchWork, count_searches, measure_rate
from calipers.metrics.threads import at_most, available_cores, permitted_threads, tokenizer_threads


def test_the_operations_of_a_search_are_counted_once() -> None:
    queries, documents = np.ones((3, 8), np.float32), np.ones((50, 8), np.float32)
    with count_searches() as outer:
        with count_searches() as inner:
            search.exact_search(queries, [documents[:20], documents[20:]], 5)
        search.nearest(queries, documents, 2, allowed=np.arange(50) < 10)
    assert inner.operations == 2 * 3 * 50 * 8
    assert outer.operations == inner.operations + 2 * 3 * 10 * 8
    assert 0 < inner.seconds < outer.seconds


def test_the_time_in_which_windows_are_made_is_not_the_search() -> None:
    made = 0.0

    def windows() -> Iterator[np.ndarray]:
        nonlocal made
        for _ in range(2):
            start = time.perf_counter()
            time.sleep(0.2)  # a model that encodes
            made += time.perf_counter() - start
            yield np.ones((4, 2), np.float32)

    start = time.perf_counter()
    with count_searches() as work:
        search.exact_search(np.ones((1, 2), np.float32), windows(), 1)
    assert work.seconds <= time.perf_counter() - start - made


def test_approximate_indexes_are_apart() -> None:
    vectors = np.random.default_rng(0).standard_normal((200, 8)).astype(np.float32)
    with count_searches() as work:
        indexes.nearest_indexed(vectors[:4], vectors, 3, index="hnsw")
    assert work.facts().keys() == {"index_seconds"}


def test_nothing_is_reported_where_nothing_was_searched() -> None:
    with count_searches() as work:
        pass
    assert work.facts() == {}


def test_the_share_is_of_the_rate_of_a_product(monkeypatch: pytest.MonkeyPatch) -> None:
    assert measure_rate() > 1e6
    monkeypatch.setattr("calipers.metrics.search_timing.measure_rate", lambda: 4e9)
    assert SearchWork(seconds=2.0, operations=6e9).facts() == {"search_seconds": 2.0, "search_share": 0.75}


def test_permitted_threads() -> None:
    assert permitted_threads() == available_cores()
    with threadpool_limits(2, user_api="blas"):
        before = blas_threads()
        with at_most(1):
            assert permitted_threads() == 1
            assert blas_threads() <= {1}
            with at_most(None):
                assert permitted_threads() == 1
        assert blas_threads() == before
    assert permitted_threads() == available_cores()


def blas_threads() -> set[int]:
    return {info["num_threads"] for info in threadpool_info() if info["user_api"] == "blas"}


def test_the_environment_is_put_back_and_the_users_choice_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TOKENIZERS_PARALLELISM", "RAYON_NUM_THREADS"):
        monkeypatch.delenv(name, raising=False)
    with tokenizer_threads(1):
        assert os.environ["TOKENIZERS_PARALLELISM"] == "false"
    with tokenizer_threads(3):
        assert os.environ["RAYON_NUM_THREADS"] == "3"
    assert not {"TOKENIZERS_PARALLELISM", "RAYON_NUM_THREADS"} & os.environ.keys()
    monkeypatch.setenv("TOKENIZERS_PARALLELISM", "true")
    with tokenizer_threads(1):
        assert os.environ["TOKENIZERS_PARALLELISM"] == "true"


def test_one_thread_searches_and_tokenizes_on_one(minilm: os.PathLike[str]) -> None:
    """Threads of the process: neither a search nor a tokenizer starts one."""
    code = """
import os, sys
import numpy as np, tokenizers
from calipers.metrics.search import exact_search
from calipers.metrics.threads import at_most
def threads(): return len(os.listdir("/proc/self/task"))
tokenizer = tokenizers.Tokenizer.from_file(sys.argv[1])
with at_most(1):
    before = threads()
    tokenizer.encode_batch(["some words of a text"] * 2000)
    middle = threads()
tokenizer.encode_batch(["some words of a text"] * 2000)
print(before, middle, threads())
"""
    if not os.path.isdir("/proc/self/task"):
        pytest.skip("this system does not list the threads of a process")
    command = [sys.executable, "-c", code, os.path.join(minilm, "tokenizer.json")]
    settings = ("TOKENIZERS_PARALLELISM", "RAYON_NUM_THREADS", "OPENBLAS_NUM_THREADS")
    env = {k: v for k, v in os.environ.items() if k not in settings}
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
    before, limited, free = map(int, done.stdout.split())
    assert limited == before
    if available_cores() > 1:
        assert free > before
