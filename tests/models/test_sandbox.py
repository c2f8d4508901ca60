"""Graphs that loop for ever, need gigabytes or end the process cost a sentence; what passed is not tried again."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from calipers.core import ModelError
from calipers.models import load_model
from tests.hostile.places import graph
from tests.support.masked_models import make_tokenizer


@pytest.fixture
def tokenizer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("CALIPERS_SANDBOX", "auto")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    make_tokenizer(tmp_path / "tokenizer")
    (tmp_path / "tokenizer" / "config.json").write_text("{}")
    return tmp_path / "tokenizer"


def endless(folder: Path, tokenizer: Path) -> Path:
    info = helper.make_tensor_value_info
    inputs = [info("i", TensorProto.INT64, []), info("go", TensorProto.BOOL, []), info("x", TensorProto.FLOAT, None)]
    outputs = [info("on", TensorProto.BOOL, []), info("y", TensorProto.FLOAT, None)]
    steps = [helper.make_node("Identity", ["go"], ["on"]), helper.make_node("Identity", ["x"], ["y"])]
    body = helper.make_graph(steps, "body", inputs, outputs)
    node = helper.make_node("Loop", ["times", "yes", "rows"], ["tokens"], body=body)
    return graph(folder, tokenizer, [node], times=np.array(2**62, np.int64), yes=np.array(True))


def test_an_endless_loop_is_cut(tmp_path: Path, tokenizer: Path) -> None:
    path = endless(tmp_path / "loop", tokenizer)
    with pytest.raises(ModelError, match="did not run one text in 5 seconds of processor time"):
        load_model(str(path))
    assert not (tmp_path / "cache" / "calipers" / "passed").exists()


def test_eight_gigabytes_are_refused(tmp_path: Path, tokenizer: Path) -> None:
    ones = numpy_helper.from_array(np.array([1.0], np.float32))
    nodes = [
        helper.make_node("ConstantOfShape", ["shape"], ["huge"], value=ones),
        helper.make_node("ReduceSum", ["huge"], ["total"], keepdims=0),
        helper.make_node("Add", ["rows", "total"], ["tokens"]),
    ]
    path = graph(tmp_path / "huge", tokenizer, nodes, shape=np.array([2**31], np.int64))
    with pytest.raises(ModelError, match=r"needs more than 7.. MiB for one text"):
        load_model(str(path))


@pytest.mark.parametrize("place", ["9" * 5000, "/dev/null", "a\tb"])
def test_a_cache_that_cannot_be_costs_a_trial_only(
    place: str, tmp_path: Path, tokenizer: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = graph(tmp_path / "sound", tokenizer)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", place)
    load_model(str(path))


def test_what_passed_is_not_tried_again(tmp_path: Path, tokenizer: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = graph(tmp_path / "sound", tokenizer)
    load_model(str(path))
    assert len(list((tmp_path / "cache" / "calipers" / "passed").iterdir())) == 1
    monkeypatch.setattr("subprocess.run", pytest.fail)
    load_model(str(path))


RESERVE = """
import threading
from calipers.models.trial import limit_process
limit_process(20, 300_000_000)
together = threading.Barrier(13)
def hold():
    kept = bytearray(100_000)
    together.wait()
    together.wait()
threads = [threading.Thread(target=hold, daemon=True) for _ in range(12)]
[thread.start() for thread in threads]
together.wait()
bytearray(150_000_000)
together.wait()
try:
    bytearray(400_000_000)
except MemoryError:
    print("limited")
"""


def test_addresses_that_threads_reserve_are_no_memory_of_a_graph() -> None:
    done = subprocess.run([sys.executable, "-c", RESERVE], check=True, capture_output=True, text=True, timeout=60)
    assert done.stdout == "limited\n"
