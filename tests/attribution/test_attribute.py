"""Attribution by hand: the search, shares of a loss, the sentence, where tensors part, and reasons."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from calipers.artifacts.recipe import Recipe
from calipers.attribution import culprits, divergence, fix, qdq, reasons, stages, trials
from calipers.attribution.culprits import CulpritSearch
from calipers.attribution.graph_view import Rounded
from calipers.attribution.records import StageFigure
from calipers.attribution.trials import Evaluation, Ledger
from calipers.comparison.records import Comparison, Label
from calipers.core import Metric, Outcomes
from calipers.metrics.means import mean_statistic
from calipers.models.batching import Batch
from tests.support.verdicts import comparison, result

BATCH = Batch(np.array([[1, 2, 0], [3, 1, 2]]), np.zeros((2, 3), np.int64), np.array([[1, 1, 0], [1, 1, 1]]), rows=2)


def weight(name: str, values: Any, dtype: Any = np.float32) -> Any:
    return numpy_helper.from_array(np.asarray(values, dtype), name)


# --- the search ----------------------------------------------------------------------------------------------------


def counted(guilty: set[str], budget: int = 50) -> Ledger:
    def evaluate(tensors: frozenset[str], what: str) -> Evaluation:
        passes = guilty <= tensors
        return Evaluation(float(passes), "PASS" if passes else "REGRESSION", passes, len(tensors))

    return Ledger(evaluate, budget)


@pytest.mark.parametrize("guilty", [{"0"}, {"5"}, {"2", "9"}, {"31"}])
def test_the_smallest_prefix_is_found_in_few_measurements(guilty: set[str]) -> None:
    ledger = counted(guilty)
    found = trials.smallest_prefix([frozenset({str(i)}) for i in range(32)], ledger, str)
    assert found == max(map(int, guilty)) + 1
    assert len(ledger.trials) <= 10


def test_without_a_passing_prefix_there_is_none_and_the_budget_holds() -> None:
    sets = [frozenset({str(i)}) for i in range(8)]
    assert trials.smallest_prefix(sets, counted({"x"}), str) is None
    ledger = counted({"7"}, budget=2)
    assert trials.smallest_prefix(sets, ledger, str) is None
    assert len(ledger.trials) == 2


def test_what_is_not_needed_is_dropped_and_nothing_is_measured_twice() -> None:
    ledger = counted({"b", "d"})
    sets = [frozenset({name}) for name in "abcd"]
    assert trials.drop_needless(sets, ledger, str) == [1, 3]
    before = len(ledger.trials)
    ledger(frozenset({"b", "d"}), "again")
    assert len(ledger.trials) == before


def test_a_graph_that_cannot_be_run_is_an_answer() -> None:
    from calipers.core import ModelError

    def broken(tensors: frozenset[str], what: str) -> Evaluation:
        raise ModelError("no kernel")

    ledger = Ledger(broken, 3)
    assert ledger(frozenset("a"), "Restoring a").label == "INVALID"
    assert ledger.notes == ["Restoring a failed: no kernel"]


def test_the_share_of_a_loss_is_what_came_back() -> None:
    metric = Metric("mean", "", lambda c: mean_statistic(c["value"]))
    base = np.random.default_rng(0).normal(10, 1, 200)
    ids = tuple(map(str, range(200)))
    sound, broken, mended = (result(outcomes=Outcomes(ids, {"value": base - less})) for less in (0, 4, 1))
    found, interval = culprits.share_of_loss(metric, sound, broken, mended, confidence=0.95, seed=1)
    assert found == pytest.approx(0.75)
    assert interval == pytest.approx((0.75, 0.75))
    assert culprits.share_of_loss(metric, sound, sound, mended, confidence=0.9, seed=1) == (None, None)


def test_settings_and_nodes_are_tried_together_where_neither_is_sure(monkeypatch: pytest.MonkeyPatch) -> None:
    nearest = fix.Change("a scale for each channel", Recipe("w8a8", per_channel=True))
    both = replace(nearest, how="a scale for each channel, with nodes kept in float", tensors=frozenset("a"))
    labels: list[Label] = ["PASS", "INCONCLUSIVE"]
    changes: list[fix.Change] = []

    def tried(case: Any, graph: Any, change: fix.Change) -> Evaluation:
        changes.append(change)
        return Evaluation(1.0, labels.pop(0), passes=True)

    def with_culprits(label: Label) -> fix.Change | None:
        """After an evaluation of the culprits alone that has this label."""
        case = SimpleNamespace(ledger=counted(set()))
        case.ledger.evaluations[frozenset("a")] = Evaluation(1.0, label, passes=True)
        search: Any = CulpritSearch(None, (), frozenset("a"))  # type: ignore[arg-type]
        return fix.with_culprits(case, search, nearest)  # type: ignore[arg-type]

    monkeypatch.setattr(fix, "try_change", tried)
    assert with_culprits("INCONCLUSIVE") == both
    assert with_culprits("INCONCLUSIVE") is None
    assert with_culprits("PASS") is None
    assert changes == [both] * 2


# --- words and figures ---------------------------------------------------------------------------------------------


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
    assert stages.sentence(FLOATS, [], "x").startswith("Nothing is lost: export and optimisation are clean")
    undecided = [*FLOATS, figure("quantized", -1.9, "INCONCLUSIVE")]
    assert "do not settle" in stages.sentence(undecided, [], "x")
    assert "only one stage" in stages.sentence(FLOATS[:1], [], "x")


def test_a_loss_that_passes_is_not_called_nothing() -> None:
    found = [*FLOATS, figure("quantized", -1.2, "PASS")]
    assert stages.sentence(found, [], "x") == (
        "The small loss, within the thresholds, comes from quantisation (−1.20 points ± 0.40 of x); "
        "export and optimisation are clean (−0.30 points ± 0.40)."
    )


def test_signal_to_noise_looks_at_real_tokens_only() -> None:
    true = np.ones((2, 3, 4))
    found = true + 0.1
    found[0, 2] = 50  # padding
    assert divergence.sqnr(true, found, BATCH) == pytest.approx(20.0)
    assert divergence.sqnr(true, true, BATCH) == np.inf
    assert divergence.sqnr(true, true * np.nan, BATCH) is None


def test_the_first_lost_tensor_is_the_one_behind_which_nothing_is_found_again() -> None:
    rng = np.random.default_rng(0)
    before = {name: rng.normal(size=(2, 3, 8)) for name in "abcd"}
    after = {"x": before["b"] + 1e-6, "y": rng.normal(size=(2, 3, 8))}
    assert divergence.first_lost(before, after, BATCH) == "c"  # a was fused away: b is there again
    assert divergence.first_lost(before, before, BATCH) is None


# --- reasons -------------------------------------------------------------------------------------------------------


def grid_weights(scale: float, zero: int, dtype: Any = np.int8) -> qdq.Weights:
    return qdq.Weights({"s": weight("s", scale), "z": weight("z", zero, dtype)}, {}, {})


ACTIVATION = Rounded("t", False, (), (), "s", "z")


@pytest.mark.parametrize(
    ("scale", "values", "words"),
    [
        (1e36, np.r_[-3.4e38, np.linspace(-3, 3, 50)], "mask constant of -3.4e+38"),
        (0.01, np.linspace(-9, 9, 200), "cut off, as if calibration had never seen"),
        (5.0, np.linspace(-1, 1, 200), "times the range that the rows use"),
        (3.0, np.r_[np.random.default_rng(0).normal(size=5000), 380.0], "outliers of"),
    ],
)
def test_what_is_wrong_with_a_range_is_said(scale: float, values: Any, words: str) -> None:
    assert any(words in reason for reason in reasons.of_activation(ACTIVATION, values, grid_weights(scale, 0)))


def test_a_sound_range_has_no_reason() -> None:
    assert reasons.of_activation(ACTIVATION, np.linspace(-1, 1, 200), grid_weights(1 / 127, 0)) == []


def weight_reasons(original: Any, integers: Any, scale: Any, axis: int = 1) -> list[str]:
    node = helper.make_node("DequantizeLinear", ["w_quantized", "s"], ["w_dq"], axis=axis)
    proto = helper.make_model(helper.make_graph([node], "g", [], []))
    held = {"w_quantized": weight("w_quantized", integers, np.int8), "s": weight("s", scale)}
    weights = qdq.Weights(held, {"w": weight("w", original)}, {"w_dq": "w"})
    return reasons.of_weight(Rounded("w", True, (), ("w_dq",), "s", ""), proto, weights)


def test_what_is_wrong_with_weights_is_said() -> None:
    rng = np.random.default_rng(0)
    sizes = np.exp(rng.normal(size=32))
    original = rng.normal(size=(32, 32)) * sizes
    scales = np.abs(original).max(axis=0) / 127
    integers = np.rint(original / scales)
    assert weight_reasons(original, integers, scales) == []
    assert "times the original" in weight_reasons(original, integers, 4 * scales)[0]
    assert "a wrong axis or order" in weight_reasons(original, integers, scales[::-1].copy())[0]
    step = np.abs(original).max() / 1.5
    few = weight_reasons(original, np.clip(np.rint(original / step), -1, 1), step)
    assert "3 levels, which is 2 bits" in few[0]


def test_a_float_graph_tells_of_dropout_and_a_lost_mask() -> None:
    mask = helper.make_tensor_value_info("attention_mask", TensorProto.INT64, ["b", "s"])
    drawn = helper.make_node("RandomUniformLike", ["x"], ["r"], name="drawn")
    lines = reasons.of_float_graph(onnx.helper.make_model(helper.make_graph([drawn], "g", [mask], [])))
    assert ["dropout was left on" in lines[0], "nothing reads attention_mask" in lines[1]] == [True, True]
    shape = helper.make_node("Shape", ["attention_mask"], ["s"])
    lines = reasons.of_float_graph(onnx.helper.make_model(helper.make_graph([shape], "g", [mask], [])))
    assert lines == ["attention_mask reaches no attention: the mask was dropped, and attention reaches the padding"]
