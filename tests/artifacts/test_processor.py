"""What a quantised graph gains on the processor at hand, and which target that processor is."""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np
import pytest

from calipers.artifacts import inputs, processor
from calipers.artifacts.recipe import TARGETS, Recipe
from calipers.artifacts.records import Latency, Stage
from calipers.models.batching import Batch

STAGE = Stage("quantized", "", "", "", 1, Latency(1.0, 1.0, 1, 1.0, 1.0), None, precision="w8a8")


def batch() -> Batch:
    ones = np.ones((1, 4), np.int64)
    return Batch(ones, ones, ones, 1)


def test_speed_is_of_processor_time_and_waiting_does_not_count() -> None:
    """A machine with other work makes a run wait, which says nothing about the graph."""

    def work(_: Batch) -> None:
        end = time.thread_time() + 0.004
        while time.thread_time() < end:
            pass

    def wait(_: Batch) -> None:
        work(_)
        time.sleep(0.02)

    plain, waiting = inputs.latencies([work, wait], [batch()], rounds=5)
    assert waiting.p50 > 20
    assert plain.times_as_fast(waiting) == pytest.approx(1, abs=0.4)
    (elsewhere,) = inputs.latencies([wait], [batch()], rounds=5, provider="CUDAExecutionProvider")
    assert elsewhere.cpu == elsewhere.p50  # a device that this thread only waits for: the clock on the wall
    assert Latency(1.0, 1.0, 1, 1.0).times_as_fast(plain) is None


@pytest.mark.parametrize(
    ("speedup", "words"), [(0.5, "slower than the float graph"), (1.04, "hardly faster than"), (1.0, "no faster than")]
)
def test_a_graph_that_gains_nothing_says_so(speedup: float, words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processor, "this_target", lambda: "x86-vnni")
    (remark,) = processor.gains_nothing(STAGE, speedup, Recipe("w8a8"))
    assert words in remark
    assert "the target x86-vnni" in remark
    (plain,) = processor.gains_nothing(STAGE, speedup, Recipe("w8a8", unsigned=True))
    assert "target" not in plain


def test_a_graph_that_gains_has_no_remark() -> None:
    assert processor.gains_nothing(STAGE, 2.4, Recipe("w8a8")) == []
    assert processor.gains_nothing(STAGE, None, Recipe("w8a8")) == []
    assert processor.gains_nothing(replace(STAGE, name="exported"), 0.5, Recipe("w8a8")) == []


@pytest.mark.parametrize(
    ("machine", "flags", "target"),
    [
        ("x86_64", "avx2 avx512_vnni", "x86-vnni"),
        ("x86_64", "avx2 avx_vnni", "x86-vnni"),
        ("AMD64", None, "x86-avx2"),
        ("x86_64", "avx2", "x86-avx2"),
        ("aarch64", "asimd asimddp", "arm64"),
        ("riscv64", "", None),
    ],
)
def test_the_target_of_a_processor(
    machine: str, flags: str | None, target: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processor.platform, "machine", lambda: machine)
    monkeypatch.setattr(processor, "processor_fact", lambda *names: flags)
    assert processor.this_target() == target
    assert target is None or target in TARGETS
