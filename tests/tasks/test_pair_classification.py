"""Pair classification: labels, one output and several."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import calipers
from calipers import DataOptions
from calipers.comparison import api as comparing
from calipers.core import SILENT, DataError, Outcomes, RequestError, Thresholds
from calipers.data import load_rows
from calipers.tasks import find, pair_classification
from tests.support.samples import write_jsonl
from tests.support.scorers import Lexical


def classify(tmp_path: Path, labels: Sequence[Any], model: Any, **options: Any) -> Outcomes:
    task = find("pair-classification")
    texts = ["a b c d", "a b c x", "a b x y", "a x y z", "w x y z"]
    rows = [{"sentence1": "a b c d", "sentence2": t, "label": label} for t, label in zip(texts, labels, strict=False)]
    file = write_jsonl(tmp_path / "rows.jsonl", rows)
    dataset = load_rows(str(file), task.columns, mapping={}, options=DataOptions())
    task.check(dataset)
    return task.run(model, dataset, pair_classification.PairClassificationOptions(**options), SILENT)


def values(outcomes: Outcomes) -> dict[str, float]:
    metrics = [m for m in pair_classification.METRICS if all(c in outcomes.columns for c in m.needs)]
    return {m.name: m.value(outcomes.columns) for m in metrics}


def test_one_output_is_judged_at_its_best_cut(tmp_path: Path) -> None:
    """Scores 1, 3/4, 1/2, 1/4, 0 for labels 1, 1, 0, 1, 0: the best cuts leave one mistake."""
    found = classify(tmp_path, [1, 1, 0, 1, 0], Lexical())
    assert values(found)["accuracy"] == pytest.approx(4 / 5)
    assert values(found)["f1"] == pytest.approx(6 / 7)
    assert values(found)["average_precision"] == pytest.approx((1 + 1 + 3 / 4) / 3)
    assert found.counts["f1_threshold"] == pytest.approx((1 / 4 + 0) / 2)


def one_hot(order: Sequence[int]) -> Callable[[float], list[float]]:
    """Three classes by the share of words: many, some, none; put out in this order."""
    return lambda share: [float(order[i] == (0 if share > 0.6 else 1 if share > 0.1 else 2)) for i in range(3)]


def test_several_outputs_are_judged_by_the_highest(tmp_path: Path) -> None:
    found = classify(tmp_path, [0, 0, 1, 1, 2], Lexical(one_hot([0, 1, 2])))
    assert values(found)["accuracy"] == 1.0
    assert "average_precision" not in values(found)
    assert next(iter(values(found))) == "f1_macro"


def test_a_permutation_that_fits_far_better_is_told(tmp_path: Path) -> None:
    found = classify(tmp_path, [0, 0, 1, 1, 2], Lexical(one_hot([2, 0, 1])))
    assert values(found)["accuracy"] < 0.5
    (note,) = found.notes
    mapping = note.split("label mapping ")[1].split()[0]
    assert (
        values(classify(tmp_path, [0, 0, 1, 1, 2], Lexical(one_hot([2, 0, 1])), label_mapping=mapping))["accuracy"] == 1
    )


def test_names_of_labels_come_from_the_model_or_the_mapping(tmp_path: Path) -> None:
    labels = ["Same", "same", "near", "near", "other"]
    model = Lexical(one_hot([0, 1, 2]), label_names=["same", "near", "other"])
    assert values(classify(tmp_path, labels, model))["accuracy"] == 1.0
    with pytest.raises(DataError, match=r"'Same'.*not a class of the model \(numbers only\).*`label_mapping`"):
        classify(tmp_path, labels, Lexical(one_hot([0, 1, 2])))
    with pytest.raises(DataError, match="outside the model's classes 0 to 1"):
        classify(tmp_path, [0, 1, 2, 1, 0], Lexical())
    with pytest.raises(RequestError, match="LABEL=NUMBER"):
        pair_classification.PairClassificationOptions("a=b")


def test_scores_that_point_the_other_way_are_told(tmp_path: Path) -> None:
    assert "other way" in classify(tmp_path, [0, 0, 0, 1, 1], Lexical()).notes[0]


def test_a_threshold_of_other_pairs_decides_in_place_of_the_best_one(tmp_path: Path) -> None:
    """`f1` stays as published; a verdict on it depends on the cross-fitted figure, with the same thresholds."""
    rng = np.random.default_rng(0)
    words = [f"w{i}" for i in range(8)]
    rows = []
    for number in range(60):
        shared = int(rng.integers(0, 9))
        second = " ".join([*words[:shared], *(f"o{number}" for _ in range(8 - shared))])
        rows.append({"sentence1": " ".join(words), "sentence2": second, "label": int(shared + rng.normal(0, 3) > 4)})
    file = write_jsonl(tmp_path / "rows.jsonl", rows)
    protocol = calipers.Protocol(task="pair-classification", dataset=str(file))
    chosen: dict[str, Any] = {"metrics": ["f1"], "thresholds": {"f1": Thresholds(0.2, 0.3)}, "resamples": 200}
    [verdict] = comparing.compare(Lexical(), [Lexical()], protocol=protocol, **chosen)
    decides = {c.metric: (c.decides, c.thresholds.at_risk) for c in verdict.comparisons}
    assert decides == {"f1": (False, 0.3), "f1_cross_fitted": (True, 0.3)}
    published, fitted = (verdict.baseline.metrics[name] for name in ("f1", "f1_cross_fitted"))
    assert fitted <= published


def test_few_pairs_have_the_best_threshold_only(tmp_path: Path) -> None:
    outcomes = classify(tmp_path, [1, 1, 0, 1, 0], Lexical())
    assert "f1_cross_fitted" not in values(outcomes)
    assert any("no cross-fitted figure" in note for note in outcomes.notes)


@pytest.mark.parametrize("labels", [["yes", "yes", "maybe", "maybe", "no"], ["2", "2", "0", "0", "1"]])
def test_the_hint_names_the_labels_of_the_data_and_helps(tmp_path: Path, labels: list[str]) -> None:
    scorer = Lexical(one_hot([2, 0, 1]), label_names=["yes", "maybe", "no"])
    found = classify(tmp_path, labels, scorer)
    assert values(found)["accuracy"] < 0.5
    mapping = found.notes[0].split("label mapping ")[1].split()[0]
    again = classify(tmp_path, labels, scorer, label_mapping=mapping)
    assert values(again)["accuracy"] == 1.0
    assert again.notes == ()


def test_a_mapping_of_labels_that_the_data_lack_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match=r"`label_mapping` names yess, and the labels of .*rows.jsonl are 0, 1"):
        classify(tmp_path, [0, 1, 0, 1, 1], Lexical(), label_mapping="yess=1,0=0,1=1")
    with pytest.raises(RequestError, match="two classes, 0 and 1"):
        pair_classification.PairClassificationOptions("a=0,a=1")
    with pytest.raises(RequestError, match="LABEL=NUMBER"):
        pair_classification.PairClassificationOptions("a=²")


def test_a_number_with_decimals_is_the_number_of_a_class(tmp_path: Path) -> None:
    found = classify(tmp_path, ["1.0", 1.0, "0.0", "1", "+0"], Lexical(), label_mapping="1.0=1,0=0")
    assert found.columns["label"].tolist() == [1, 1, 0, 1, 0]


@pytest.mark.parametrize("label", [float("nan"), float("inf"), 10**400, 1.5, ""])
def test_what_is_no_label_is_refused_with_its_line(tmp_path: Path, label: Any) -> None:
    with pytest.raises(DataError, match=r"line 2, column 'label': expected a label"):
        classify(tmp_path, [0, label, 1, 1, 0], Lexical())


def test_an_odd_text_is_the_name_of_a_class(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="the label '--5' of row '1' is not a class"):
        classify(tmp_path, [0, "--5", 1, 1, 0], Lexical())
