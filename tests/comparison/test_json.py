"""The JSON document of `calipers compare`: its keys are a contract."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

import numpy as np

from calipers.comparison import json as verdict_json
from calipers.comparison.records import Verdict
from calipers.rendering import document
from tests.support import verdicts as made
from tests.support.documents import strict

KEYS = {"metric", "baseline", "candidate", "delta", "interval", "label", "confidence", "examples"}  # DESIGN.md
MORE = {"relative", "p_value", "adjusted_p", "settled_by", "thresholds", "decides", "reason", "candidate_name", "run"}


def read(*verdicts: Verdict) -> dict[str, Any]:
    return strict(document.to_json(verdict_json.document(verdicts)))


def test_the_fixed_keys_are_there() -> None:
    found = read(made.passing(), made.invalid())
    assert found["schema"] == "calipers/compare/1"
    assert found.keys() >= {"schema", "label", "task", "dataset", "baseline", "candidates", "comparisons"}
    assert len(found["comparisons"]) == 5
    for row in found["comparisons"]:
        assert row.keys() >= KEYS | MORE


def test_values_are_whole_not_rounded() -> None:
    row = read(made.passing())["comparisons"][0]
    assert (row["baseline"], row["candidate"], row["delta"]) == (82.0512, 81.9131, -0.1381)
    assert row["interval"] == [-0.3512, 0.0689]
    assert row["thresholds"] == {"pass": 2.0, "at_risk": 4.0, "relative": False}
    assert (row["decides"], row["confidence"], row["examples"]) == (True, 0.99962, 1379)


def test_the_runs_are_named_with_their_settings() -> None:
    found = read(made.passing())
    assert found["baseline"]["run"] == "20261001-120000-abc123"
    assert found["candidates"][0]["run"] == "20261001-120100-def456"
    assert found["candidates"][0]["settings"] == {"pooling": "mean", "dtype": "float32"}
    assert found["candidates"][0]["differences"]["dtype"] == {"baseline": "float32", "candidate": "uint8"}
    assert found["dataset"]["fingerprint"] == "sha256:0123456789abcdef"


def test_a_dead_candidate_has_nulls_and_a_reason() -> None:
    found = read(made.invalid())
    (candidate,) = found["candidates"]
    assert (found["label"], candidate["label"], candidate["run"], candidate["settings"]) == ("INVALID",) * 2 + (
        None,
    ) * 2
    assert candidate["reason"] == made.REASON
    assert {found["comparisons"][0][key] for key in ("candidate", "delta", "confidence", "p_value")} == {None}


def test_worst_examples_keep_their_whole_texts() -> None:
    worst = read(made.passing())["candidates"][0]["worst"]
    assert worst[1]["texts"]["text_2"] == made.NASTY
    assert worst[0]["baseline"]["cosine"] == 0.81
    assert worst[0]["candidate"]["cosine"] == 0.324


def test_nan_infinity_and_numpy_numbers_become_json() -> None:
    odd = replace(
        made.example(),
        baseline={"a": np.float32("nan"), "b": np.int64(3), "c": np.array([1.0, math.inf]), "d": np.bool_(True)},
        candidate={"a": float("-inf")},
        share=float("nan"),
    )
    row = made.comparison(delta=float("nan"), relative=-math.inf, interval=(-math.inf, 1.0), p_value=np.float64(0.5))
    found = read(made.passing(worst=(odd,), comparisons=(row,), bootstrap={"seed": np.int64(42)}))
    (worst,) = found["candidates"][0]["worst"]
    assert worst["baseline"] == {"a": None, "b": 3, "c": [1.0, None], "d": True}
    assert (worst["candidate"]["a"], worst["share"]) == (None, None)
    (told,) = found["comparisons"]
    assert (told["delta"], told["relative"], told["interval"]) == (None, None, [None, 1.0])
    assert found["bootstrap"] == {"seed": 42}


def test_the_document_does_not_depend_on_how_it_is_read() -> None:
    once = document.to_json(verdict_json.document([made.passing()]))
    assert json.dumps(json.loads(once), indent=2, ensure_ascii=False) == once
