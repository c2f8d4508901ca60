"""Which stored runs are meant, how they are tagged and labelled, and which may go."""

from __future__ import annotations

import csv
import io
import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from rich.console import Console

from calipers.core import ModelInfo, RequestError, RunLine
from calipers.rendering.text import show_runs
from calipers.runs.listing import PruneOptions, RunFilter, to_csv
from calipers.runs.store import Store
from tests.support import verdicts as made


def line(run_id: str, days: float = 0, **changes: object) -> RunLine:
    created = (datetime.now(UTC) - timedelta(days=days)).isoformat()
    facts = (run_id, created, "fill-mask", "m", "data/texts.txt", 9, "nll", 1.5)
    plain = RunLine(*facts, model_path="/tmp/models/bert", fingerprint="sha256:abc")
    return replace(plain, **changes)  # type: ignore[arg-type]


@pytest.fixture
def store(tmp_path: Path) -> Store:
    place = Store(tmp_path / "store")
    for number, name in enumerate(["", "int8", ""]):
        model = ModelInfo("onnx", "float32", f"/tmp/models/built/model_{number}.onnx", "cpu", f"sha256:{number}f00ba5")
        run = made.result(run_id=f"20261001-12000{number}-abc12{number}", model=model)
        place.save(replace(run, name=name))
    return place


def test_a_run_is_named_by_its_artefact_and_found_by_its_name(store: Store) -> None:
    by_name = {line.name: line for line in store.list() if line.name}
    assert by_name["int8"].artifact == "built/model_1.onnx"
    assert by_name["int8"].fingerprint == "sha256:1f00ba5"
    assert by_name["int8"].bytes > 0
    assert store.load("int8").run_id == "20261001-120001-abc121"
    with pytest.raises(RequestError, match="there is no run 'int'"):
        store.load("int")


@pytest.mark.parametrize("width", [80, 100, 300])
def test_a_list_cuts_no_name(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    out = io.StringIO()
    names = {"name": "nightly-model_quantized.onnx", "metric": "word_pseudo_perplexity", "tags": ("release",)}
    path = {"model_path": "/tmp/built/model_quantized.onnx", "dataset": "data/a_long_name_of_texts.jsonl"}
    show_runs(Console(file=out, width=width), [line("20261118-161925-2ab1e9", **names, **path, label="INCONCLUSIVE")])
    joined = re.sub(r"\s", "", out.getvalue())
    assert "…" not in joined
    whole = ("20261118-161925-2ab1e9", "word_pseudo_perplexity", "INCONCLUSIVE")
    assert all(word in out.getvalue() for word in whole)
    folded = ("built/model_quantized.onnx", "nightly-model_quantized.onnx", "data/a_long_name_of_texts.jsonl")
    assert len(joined) > sum(map(len, (*whole, *folded)))


@pytest.mark.parametrize("name", ["latest", "20261001-120001", "a/b", "-x", "two words", "bm25"])
def test_a_name_cannot_be_taken_for_something_else(store: Store, name: str) -> None:
    with pytest.raises(RequestError, match="must be a word"):
        store.tag("latest", [name])


def test_tags_and_labels_are_kept_beside_a_run_and_go_with_it(store: Store) -> None:
    run_id = store.tag("int8", ["release", "v2"])
    store.tag("int8", ["v2"], remove=True)
    store.keep_labels({run_id: ("20261001-120000-abc120", "REGRESSION"), "unknown": ("x", "PASS")})
    store.keep_labels({run_id: ("20261001-120000-abc120", "PASS")})
    before = (store.folder / "calipers.db").read_bytes()
    store.keep_labels({run_id: ("20261001-120000-abc120", "PASS")})
    assert (store.folder / "calipers.db").read_bytes() == before  # the same again is not written
    chosen = RunFilter(label="pass", tag=("release",)).choose(store.lines())
    assert [(x.run_id, x.tags, x.label) for x in chosen] == [(run_id, ("release",), "PASS")]
    store.remove("int8")
    assert [(x.tags, x.label) for x in store.list()] == [((), ""), ((), "")]


def test_filters_are_parts_of_texts_and_all_must_hold() -> None:
    lines = [line("a"), line("b", task="retrieval"), line("c", model_path="/tmp/models/MiniLM"), line("d", name="gold")]
    assert [x.run_id for x in RunFilter(task="fill-mask", model="minilm").choose(lines)] == ["c"]
    assert [x.run_id for x in RunFilter(dataset="TEXTS", model="gold").choose(lines)] == ["d"]
    assert not list(RunFilter(model="nothing").choose(lines))


def test_csv_has_a_header_and_a_line_for_each_run() -> None:
    rows = list(csv.DictReader(io.StringIO(to_csv([line("a", tags=("x", "y"), model_id='odd, "name"')]))))
    assert (rows[0]["run_id"], rows[0]["tags"], rows[0]["model_id"]) == ("a", "x y", 'odd, "name"')


def test_prune_keeps_the_newest_of_a_kind_and_what_has_a_name_or_a_tag() -> None:
    lines = [line("new", 1), line("named", 3, name="gold"), line("old", 40), line("tagged", 50, tags=("t",))]
    other = line("other", 60, fingerprint="sha256:def")
    assert [x.run_id for x in PruneOptions(keep=1).choose([*lines, other])] == ["old"]
    assert [x.run_id for x in PruneOptions(older_than=30).choose([*lines, other])] == ["old", "other"]
    assert [x.run_id for x in PruneOptions(keep=2, older_than=45, named=True).choose(lines)] == ["tagged"]
    with pytest.raises(RequestError, match="set `keep` or `older_than`"):
        PruneOptions().choose(lines)


def test_times_that_are_measured_later_are_kept(store: Store) -> None:
    run = store.load("int8")
    store.keep_timing([replace(run, timing={**run.timing, "p50_ms": 4.5})])
    assert store.load("int8").timing == {"total_seconds": 12.5, "p50_ms": 4.5}
