"""Planted faults: the step, the part of the graph and a fix must be found; tests/support/faults.py plants them."""

from __future__ import annotations

import json
from pathlib import Path

import onnx
import pytest
from onnx import numpy_helper

from calipers.artifacts.records import BuildOptions
from calipers.attribution import api
from calipers.attribution.records import Attribution, AttributionOptions
from calipers.core import RequestError
from calipers.runs.protocol import Protocol
from tests.support.faults import FAULTS, Fault, Sound, attribute, make_sound
from tests.support.samples import Run


def fault(name: str) -> Fault:
    return next(f for f in FAULTS if f.name == name)


def test_a_scale_that_is_off_is_found_and_fixed(sound: Sound, tmp_path: Path) -> None:
    found = attribute(sound, fault("a scale off by 4"), tmp_path)
    assert found.guilty == "quantized"
    assert found.sentence.startswith("The loss comes from quantisation (−")
    first = found.culprits[0]
    assert (first.layer, first.role) == (1, "feed-forward")
    assert first.nodes == (sound.node(1, "feed-forward"),)
    assert first.share is not None
    assert first.share > 0.8
    assert "the weights are 4 times the original ones" in first.reasons[0]
    assert found.evaluations <= 5
    assert found.fix is not None
    assert (found.fix.label, found.fix.nodes) == ("PASS", first.nodes)
    assert (found.fix.recipe, found.fix.recipe_file) == (None, None)  # a recipe could not repair someone else's graph
    onnx.checker.check_model(onnx.load(found.fix.graph), full_check=True)


def test_dropout_left_on_is_put_down_to_the_export(sound: Sound, tmp_path: Path) -> None:
    found = attribute(sound, fault("dropout left on in export"), tmp_path, fix=False)
    assert found.guilty == "exported"
    assert found.culprits[0].role == "dropout"
    assert "draw random numbers" in found.culprits[0].reasons[0]


def test_a_sound_model_has_no_culprit(sound: Sound, tmp_path: Path) -> None:
    found = attribute(sound, None, tmp_path, recipe_out=tmp_path / "fix.yaml")
    assert found.notes[-1] == f"no recipe was written to {tmp_path / 'fix.yaml'}: there is nothing to fix"
    assert (found.guilty, found.culprits, found.fix, found.evaluations, found.exit_code) == (None, (), None, 0, 0)
    assert [stage.stage for stage in found.stages] == ["torch", "exported", "optimized", "quantized"]
    assert found.sentence.startswith("The small loss, within the thresholds, comes from quantisation (−0.4")
    assert "nothing was fixed: no step is past its threshold" in found.notes
    assert [list(stage.settings) for stage in found.stages] == [[], *[["given"]] * 3]  # graphs that were handed over


def test_a_budget_of_none_still_names_the_step(sound: Sound, tmp_path: Path) -> None:
    found = attribute(sound, fault("a scale off by 4"), tmp_path, fix=False, budget=0)
    assert (found.guilty, found.evaluations) == ("quantized", 0)
    assert found.culprits[0].name == "layer 1 feed-forward"  # by suspicion
    assert found.culprits[0].share is None
    assert "the budget of 0 evaluations ran out" in found.notes[-1]
    with pytest.raises(RequestError, match="`budget` must be at least 0"):
        attribute(sound, None, tmp_path, budget=-1)


def given(sound: Sound, quantized: Path) -> Attribution:
    stages = {"exported": sound.exported, "optimized": sound.optimized, "quantized": quantized}
    return api.attribute(
        str(sound.folder),
        recipe=sound.recipe,
        protocol=Protocol(task=sound.task, dataset=str(sound.data)),
        build=BuildOptions(stages=stages),
        options=AttributionOptions(resamples=500, work=sound.folder.parent / "work"),
        store=sound.store,
    )


def test_a_graph_without_quantised_nodes_is_said_so(sound: Sound, tmp_path: Path) -> None:
    proto = onnx.load(sound.optimized)
    name = sound.inputs_of(sound.node(1, "feed-forward"))[1]
    weight = next(i for i in proto.graph.initializer if i.name == name)
    weight.CopyFrom(numpy_helper.from_array(5 * numpy_helper.to_array(weight), name))
    onnx.save(proto, tmp_path / "other.onnx")
    found = given(sound, tmp_path / "other.onnx")
    assert (found.guilty, found.culprits) == ("quantized", ())
    assert any("no node of" in note for note in found.notes)


def test_a_float_graph_that_stands_for_the_quantised_one_is_told(sound: Sound) -> None:
    found = given(sound, sound.optimized)
    assert found.guilty is None
    assert any("is a float graph" in note for note in found.notes)


def test_a_graph_that_cannot_be_run_ends_the_table_there(sound: Sound, tmp_path: Path) -> None:
    proto = onnx.load(sound.optimized)
    proto.graph.node[-1].domain = "nobody.has.this"
    onnx.save(proto, tmp_path / "other.onnx")
    found = given(sound, tmp_path / "other.onnx")
    assert [stage.stage for stage in found.stages] == ["torch", "exported", "optimized"]
    assert found.exit_code == 3
    assert "CPUExecutionProvider cannot run" in found.notes[0]


def test_the_command_tells_it_to_programs(sound: Sound, tmp_path: Path, calipers: Run) -> None:
    fault("a scale off by 4").make(sound, tmp_path / "wrong.onnx")
    stages = {"exported": sound.exported, "optimized": sound.optimized, "quantized": tmp_path / "wrong.onnx"}
    flags = [word for name, path in stages.items() for word in ("--stage", f"{name}={path}")]
    done = calipers(
        *("attribute", sound.folder, "--precision", "w8a8", "--dataset", sound.data, *flags),
        *("--json", "--resamples", "500", "--store", sound.store.folder, "--work", sound.folder.parent / "work"),
    )
    assert done.returncode == 1, done.stderr
    found = json.loads(done.stdout)
    assert [stage["stage"] for stage in found["stages"]] == ["torch", "exported", "optimized", "quantized"]
    assert {"stage", "metrics", "verdict", "size", "latency"} <= set(found["stages"][0])
    assert found["stages"][3]["verdict"]["label"] == "REGRESSION"
    assert found["culprits"][0]["name"] == "layer 1 feed-forward"
    assert found["recipe"] is None


@pytest.mark.slow
def test_ten_faults_over_four_families(tmp_path: Path) -> None:
    """The right step in 10 of 10, the right part of the graph first in at least 9, and a fix that passes in 8."""
    sounds: dict[tuple[str, str], Sound] = {}
    lines = []
    for i, planted in enumerate(FAULTS):
        key = planted.family, planted.task
        if key not in sounds:
            sounds[key] = make_sound(planted.family, tmp_path / "-".join(key), task=planted.task)
        found = attribute(sounds[key], planted, tmp_path / f"fault-{i}")
        first = found.culprits[0] if found.culprits else None
        place = first is not None and planted.expected(first.layer, first.role)
        fixed = found.fix is not None and found.fix.label == "PASS"
        lines.append((planted, found.guilty == planted.stage, place, fixed, found.evaluations, first))
    for planted, step, place, fixed, count, first in lines:
        name = first.name if first else "none"
        print(f"{planted.name:<38}{planted.family:<12}{step!s:<7}{place!s:<7}{fixed!s:<7}{count:<4}{name}")
    assert all(step for _, step, *_ in lines)
    assert sum(place for _, _, place, *_ in lines) >= 9
    assert sum(fixed for _, _, _, fixed, *_ in lines) >= 8
