"""Runs that several processes share: ranges of a corpus and shards of a model give the bits of one process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from calipers.core import Result
from calipers.models import ModelOptions
from calipers.models.onnx import OnnxEncoder
from calipers.runs import shards
from calipers.runs.api import evaluate
from calipers.runs.store import Store
from calipers.sweeps.judge import digest
from tests.support.kills import write_trial

WINDOW, PARTS = 150, 3


@pytest.fixture(scope="module")
def trial(tmp_path_factory: pytest.TempPathFactory, minilm: Path) -> Path:
    """A corpus of 500 documents, some of them twice, some longer than the model reads, and a graph."""
    folder = tmp_path_factory.mktemp("shared")
    write_trial(folder, minilm, documents=500)
    return folder


@pytest.fixture
def encoded(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Every text that a graph was given."""
    texts: list[str] = []
    real = OnnxEncoder.encode
    monkeypatch.setattr("calipers.tasks.rankers.WINDOW", WINDOW)
    monkeypatch.setattr(
        OnnxEncoder, "encode", lambda self, given, **more: texts.extend(given) or real(self, given, **more)
    )
    return texts


def run(trial: Path, kept: Path | None) -> Result:
    return evaluate(
        str(trial / "one" / "m.onnx"),
        task="retrieval",
        dataset=str(trial / "corpus"),
        model_options=ModelOptions(max_length=6),
        resamples=100,
        store=Store(trial / "store"),
        shards=kept,
    )


def test_ranges_of_a_corpus_are_embedded_and_searched_apart(trial: Path, encoded: list[str], tmp_path: Path) -> None:
    whole = run(trial, None)
    assert whole.outcomes.counts["documents_truncated"] > 0
    for number in range(PARTS):
        encoded.clear()
        with shards.shared(number, PARTS, ranges=True):
            run(trial, tmp_path / "kept")
        assert 100 <= len(encoded) <= 50 + 2 * WINDOW  # its range; the queries are a shard that the first one leaves
    encoded.clear()
    with shards.shared(None, PARTS, ranges=True):
        merged = run(trial, tmp_path / "kept")
    assert encoded == []
    assert digest(merged) == digest(whole)


def test_a_range_that_no_process_has_done_is_done_by_the_one_that_needs_it(
    trial: Path, encoded: list[str], tmp_path: Path
) -> None:
    whole = run(trial, None)
    with shards.shared(1, PARTS, ranges=True):
        run(trial, tmp_path / "kept")
    encoded.clear()
    with shards.shared(None, PARTS, ranges=True):
        merged = run(trial, tmp_path / "kept")
    assert 0 < len(encoded) <= 500 - WINDOW
    assert digest(merged) == digest(whole)


@pytest.mark.parametrize(
    ("rows", "window", "parts"), [(500, 150, 3), (500, 150, 9), (0, 10, 4), (10, 10, 4), (901, 10, 7)]
)
def test_ranges_cover_the_corpus_in_whole_windows(rows: int, window: int, parts: int) -> None:
    model: Any = shards.DividedEncoder(object(), shards.Shards(None))
    with shards.shared(None, parts, ranges=True):
        ranges = model.ranges(rows, window)
    covered = [row for part in ranges for row in range(part.start, part.stop)]
    assert covered == list(range(rows))
    assert len(ranges) == min(parts, -(-rows // window))
    assert all(part.start % window == 0 for part in ranges)
    assert len(shards.DividedEncoder(object(), shards.Shards(None)).ranges(rows, window)) <= 1


def test_a_model_that_looks_vectors_up_divides_its_searches_only_where_they_are_shared(trial: Path) -> None:
    class Table:
        info = type("Info", (), {"backend": "static"})()
        truncated = 3

    table = Table()
    assert shards.sharded(table, "encode", None) is table
    with shards.shared(0, 2, ranges=True):
        divided = shards.sharded(table, "encode", None)
    assert (divided.truncated, divided.info.backend) == (3, "static")
    with shards.shared(0, 2, ranges=False):
        assert shards.sharded(table, "encode", None) is table
