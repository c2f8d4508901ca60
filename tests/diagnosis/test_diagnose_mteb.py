"""General language by mteb as a finding: scores, what was forgotten by name, and the verdict."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from calipers.core import DataSource, ModelInfo, Result, read_figures, read_named
from calipers.diagnosis import api, findings
from calipers.diagnosis import html as diagnosis_html
from calipers.diagnosis.adaptation import with_forgetting
from calipers.diagnosis.options import DiagnosisOptions
from calipers.diagnosis.records import Diagnosis
from calipers.interop.mteb import TaskScore, to_result
from calipers.runs.embedding import CorpusInputs
from tests.support.diagnoses import Letters
from tests.support.samples import PAIRS


def scores(values: list[float], name: str) -> Result:
    given = [TaskScore(f"T{i}", "test", "default", v, "1", "2.0", type="STS") for i, v in enumerate(values)]
    return to_result(given, ModelInfo("test", name, None, "cpu", name), source=DataSource("mteb"))


BEFORE = [0.5 + 0.02 * i for i in range(12)]


def judge(after: list[float]) -> tuple[Result, Any]:
    first, second = scores(BEFORE, "base"), scores(after, "tuned")
    verdict = api.compare_layers(first, second, DiagnosisOptions(resamples=2000))
    return with_forgetting(first, second, verdict), verdict


def test_a_large_drop_is_catastrophic_forgetting_with_the_tasks_by_name() -> None:
    result, verdict = judge([0.6 * v for v in BEFORE])
    figure = {f.name: f for f in read_figures(result.outcomes)}["forgetting"]
    assert verdict.label == "REGRESSION"
    assert figure.value == pytest.approx(40 * np.mean(BEFORE))
    assert figure.interval is not None
    assert figure.interval[0] < figure.value < figure.interval[1]
    assert "catastrophic forgetting" in (figure.warning or "")
    named = read_named(result.outcomes)
    assert (len(named), named[0].id, named[0].note) == (12, "T11/test/default", "72.00 → 43.20")


def test_no_drop_is_no_forgetting() -> None:
    result, verdict = judge([v + 0.01 for v in BEFORE])
    figure = {f.name: f for f in read_figures(result.outcomes)}["forgetting"]
    assert verdict.label == "PASS"
    assert figure.value == pytest.approx(-1.0)
    assert figure.warning is None
    assert read_named(result.outcomes) == ()


class Worse(Letters):
    """The same with its letters mixed up by noise."""

    info = ModelInfo("test", "worse", None, "cpu", "worse")

    def encode(self, texts: Any, **settings: Any) -> Any:
        noise = np.random.default_rng(0).normal(size=(len(texts), 128)).astype(np.float32)
        return super().encode(texts, **settings) + 3 * noise


def test_mteb_tasks_run_without_a_corpus_and_beside_a_baseline() -> None:
    pytest.importorskip("mteb")
    from tests.support.mteb_tasks import sts

    options = DiagnosisOptions(mteb=(sts("LocalSTS", PAIRS),), resamples=200)
    found: Diagnosis = api.diagnose(Worse(), CorpusInputs(), baseline=Letters(), options=options)
    (finding,) = found.findings
    assert (finding.layer, finding.decides) == ("mteb", True)
    assert finding.verdict is not None
    assert finding.verdict.comparisons[0].delta == 0
    assert finding.verdict.label == "PASS"  # one score settles nothing, unless it is the same
    assert {f.name for f in findings.figures_of(finding)} >= {"mean_main_score", "forgetting"}
    assert "mean_main_score" in diagnosis_html.page(found)
