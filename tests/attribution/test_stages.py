"""Which step lost the metric, and the sentence about it."""

from __future__ import annotations

from pathlib import Path

import pytest

from calipers.artifacts import export
from calipers.artifacts.recipe import Recipe
from calipers.attribution import stages
from calipers.attribution.api import attribute
from calipers.attribution.records import AttributionOptions, StageFigure
from calipers.comparison.records import Comparison, Label
from calipers.core import Thresholds
from calipers.runs.protocol import Protocol
from tests.support.exporting import fix_shape
from tests.support.verdicts import comparison


def compared(delta: float, label: Label) -> Comparison:
    ends = (delta - 0.4, delta + 0.4)
    return comparison(label=label, baseline=80.0, candidate=80.0 + delta, delta=delta, interval=ends)


def figure(stage: str, delta: float, label: Label, *, difference: float = 1e-6) -> StageFigure:
    found = None if stage == "torch" else compared(delta, label)
    bound = None if stage == "quantized" else 1e-3
    known = None if found is None else label
    return StageFigure(stage, "", {}, 80.0, found, found, known, 1, 1.0, 1.0, difference, bound)


FLOATS = [figure("torch", 0, "PASS"), figure("exported", -0.3, "PASS"), figure("optimized", 0.0, "PASS")]


def test_the_sentence_names_the_step_and_what_is_clean() -> None:
    all_stages = [*FLOATS, figure("quantized", -9.1, "REGRESSION")]
    lost = stages.lost_steps(all_stages)
    assert [s.stage for s in lost] == ["quantized"]
    assert stages.sentence(all_stages, lost, "cosine_spearman") == (
        "The loss comes from quantisation (−9.10 points ± 0.40 of cosine_spearman); "
        "export and optimisation are clean (−0.30 points ± 0.40)."
    )
    from_folder = [all_stages[0], *all_stages[2:]]  # its float graph was not exported again
    assert "; export and optimisation are clean (" in stages.sentence(from_folder, lost, "cosine_spearman")


def test_a_float_stage_that_differs_is_guilty_though_the_metric_hardly_moves() -> None:
    found = [FLOATS[0], figure("exported", -0.1, "PASS", difference=0.5)]
    lost = stages.lost_steps(found)
    assert [s.stage for s in lost] == ["exported"]
    assert "its outputs differ by 0.5" in stages.sentence(found, lost, "cosine_spearman")


def test_a_float_stage_that_is_another_model_is_guilty_before_what_was_made_from_it() -> None:
    found = [*FLOATS[:1], figure("exported", -0.1, "PASS", difference=0.87), figure("quantized", -9.1, "REGRESSION")]
    assert [s.stage for s in stages.lost_steps(found)] == ["exported", "quantized"]
    near = [*FLOATS[:1], figure("exported", -0.1, "PASS", difference=0.002), figure("quantized", -9.1, "REGRESSION")]
    assert [s.stage for s in stages.lost_steps(near)] == ["quantized", "exported"]


def test_nothing_lost_is_said_so() -> None:
    assert stages.sentence(FLOATS, [], "x").startswith(
        "No step is past its threshold: export and optimisation are clean"
    )
    undecided = [*FLOATS, figure("quantized", -1.9, "INCONCLUSIVE")]
    assert "do not settle" in stages.sentence(undecided, [], "x")
    assert "only one stage" in stages.sentence(FLOATS[:1], [], "x")


def test_a_loss_that_passes_is_not_called_nothing() -> None:
    found = [*FLOATS, figure("quantized", -1.2, "PASS")]
    assert stages.sentence(found, [], "x") == (
        "The small loss, within the thresholds, comes from quantisation (−1.20 points ± 0.40 of x); "
        "export and optimisation are clean (−0.30 points ± 0.40)."
    )


STRICT = {"pseudo_perplexity": Thresholds(1e-9, 2e-9)}  # so that the search begins


@pytest.mark.parametrize(("rows", "length"), [(2, None), (2, 12)])
def test_a_graph_of_fixed_shape_can_be_attributed(
    rows: int, length: int | None, built: Path, few_texts: Path, tmp_path: Path
) -> None:
    fixed = fix_shape(built / "exported" / "model.onnx", tmp_path / "fixed", rows=rows, length=length)
    export.copy_settings(built, fixed.parent)
    attribution = attribute(
        str(fixed),
        recipe=Recipe("w8a8"),
        protocol=Protocol(task="fill-mask", dataset=str(few_texts)),
        options=AttributionOptions(fix=False, budget=2, resamples=100, thresholds=STRICT),
    )
    assert [stage.stage for stage in attribution.stages] == ["exported", "optimized", "quantized"]
    assert not [note for note in attribution.notes if "failed" in note or "Invalid" in note]
    assert attribution.divergence
    made = attribution.to_dict()["stages"][-1]["settings"]  # what no figure has to show: signed or not
    assert made["recipe"]["unsigned"] is False
    assert set(made["calibration"]) == {"rows", "fingerprint"}
