"""Every side of a comparison is called after its artefact, and no two are called the same."""

from __future__ import annotations

from dataclasses import replace

from calipers.comparison import names
from calipers.core import ModelInfo, Result
from tests.support import verdicts as made


def side(path: str | None, model_id: str = "float32", **changes: str) -> Result:
    return replace(made.result(), model=ModelInfo("onnx", model_id, path, "cpu", "f"), **changes)  # type: ignore[arg-type]


def test_a_shared_model_id_names_no_candidate() -> None:
    sides = [
        side("/tmp/models/float32"),
        side("/tmp/models/quint8/model.onnx"),
        side("/tmp/models/quint8/onnx/model_q4.onnx"),
    ]
    assert names.unique(sides) == ["float32", "quint8/model.onnx", "quint8/model_q4.onnx"]


def test_artefacts_of_one_name_have_more_of_their_folders() -> None:
    sides = [side("/tmp/a/model/x.onnx"), side("/tmp/b/model/x.onnx"), side("/tmp/c/other")]
    assert names.unique(sides) == ["a/model/x.onnx", "b/model/x.onnx", "other"]


def test_two_runs_of_one_artefact_have_their_ids() -> None:
    sides = [side("/tmp/a/m", run_id="20261001-120000-aaaaaa"), side("/tmp/a/m", run_id="20261001-120000-bbbbbb")]
    assert names.unique(sides) == ["tmp/a/m (run 20261001-120000-aaaaaa)", "tmp/a/m (run 20261001-120000-bbbbbb)"]


def test_a_name_of_the_run_or_of_the_request_comes_first() -> None:
    assert names.unique([side("/tmp/a/m", name="gold"), side(None, "in memory"), "./dead"]) == [
        "gold",
        "in memory",
        "./dead",
    ]
    verdicts = [made.passing(), made.invalid()]
    named = names.with_names(verdicts, ["base", "one", "two"])
    assert [(v.baseline_name, v.candidate_name) for v in named] == [("base", "one"), ("base", "two")]
    assert repr(named[0]).startswith("Verdict(PASS: one against base")
    assert replace(named[0], baseline_name="").baseline.model.artifact == "all-MiniLM-L6-v2"


def test_hub_models_and_endpoints_keep_what_they_are_called() -> None:
    cached = "/tmp/home/x/.cache/huggingface/hub/models--org--name/snapshots/abc/onnx/model.onnx"
    assert names.unique([side(cached, "org/name"), side("http://localhost:8080/embed")]) == [
        "org/name",
        "http://localhost:8080/embed",
    ]
