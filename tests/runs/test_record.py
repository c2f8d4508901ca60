"""What is measured for a run, and the record of it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from calipers.core import DataSource, InferenceError, Measurement, Metric, ModelInfo, NoOptions, Outcomes, RequestError
from calipers.metrics.correlation import pearson_statistic, spearman_statistic
from calipers.metrics.means import mean_statistic
from calipers.runs import record
from calipers.runs.record import MetricValues, Resampling, make_result, measure, measure_metrics

MEAN = Metric("mean", "", lambda c: mean_statistic(c["x"]))
OTHER = Metric("other", "", lambda c: mean_statistic(c["y"]))
ABSENT = Metric("absent", "", lambda c: mean_statistic(c["z"]), needs=("z",))
TOY = Measurement(name="toy", about="", unit="query", metrics=(MEAN, OTHER, ABSENT))


def outcomes(size: int) -> Outcomes:
    ids = tuple(str(i) for i in range(size))
    return Outcomes(ids, {"x": np.arange(size, dtype=np.float64), "y": np.full(size, np.nan)})


def test_a_run_names_the_build_of_onnxruntime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "onnxruntime_openvino-1.24.1.dist-info"
    package.mkdir()
    (package / "METADATA").write_text("Metadata-Version: 2.1\nName: onnxruntime-openvino\nVersion: 1.24.1\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert record.describe_environment()["versions"]["onnxruntime-openvino"] == "1.24.1"


def test_metrics_that_are_defined_have_a_value_and_an_interval() -> None:
    values = measure(TOY, NoOptions(), outcomes(5), Resampling(resamples=200))
    assert (values.metrics, list(values.intervals)) == ({"mean": 2.0}, ["mean"])
    low, high = values.intervals["mean"] or (0.0, 0.0)
    assert 0 < low < 2 < high < 4
    assert values.warnings == ("other is not defined on these outcomes (constant predictions)",)


def test_threads_change_nothing_and_the_seed_does() -> None:
    first = measure(TOY, NoOptions(), outcomes(50), Resampling(resamples=200))
    assert measure(TOY, NoOptions(), outcomes(50), Resampling(resamples=200, threads=2)) == first
    assert measure(TOY, NoOptions(), outcomes(50), Resampling(resamples=200, seed=1)) != first


def test_too_few_examples_give_no_interval() -> None:
    one = measure(TOY, NoOptions(), outcomes(1), Resampling(resamples=10))
    assert one.intervals == {"mean": None}
    assert one.warnings[-1] == "no interval: too few queries to resample, at least 2 are needed and 1 found"
    assert measure(TOY, NoOptions(), outcomes(7), Resampling(resamples=10), fewest=8).intervals == {"mean": None}


def test_an_undefined_primary_metric_is_an_error() -> None:
    task = replace(TOY, metrics=(OTHER, MEAN))
    with pytest.raises(InferenceError, match="other is not defined on these 5 outcomes"):
        measure(task, NoOptions(), outcomes(5), Resampling())


@pytest.mark.parametrize("wrong", [{"confidence": 0.0}, {"confidence": 1.0}, {"resamples": 0}])
def test_resampling_has_limits(wrong: dict[str, float]) -> None:
    with pytest.raises(RequestError, match=f"`{next(iter(wrong))}` must be"):
        Resampling(**wrong)  # type: ignore[arg-type]


def test_a_result_gets_an_id_a_time_and_where_it_was_made() -> None:
    values = MetricValues({"mean": 1.0}, {"mean": None}, ("of a metric",))
    info = ModelInfo("test", "m", None, "cpu", "f")
    given = {"dataset": DataSource("d"), "fingerprint": "f", "bootstrap": Resampling().record("query")}
    result = make_result("toy", {}, info, outcomes(2), values, warnings=("of the data",), **given)  # type: ignore[arg-type]
    assert len(result.run_id) == len("20261116-043822-5f0a1c")
    assert result.warnings == ("of the data", "of a metric")
    assert result.bootstrap == {"unit": "query", "confidence": 0.95, "resamples": 10_000, "seed": 42}
    assert result.environment["versions"]["numpy"] == np.__version__
    assert make_result("toy", {}, info, outcomes(2), values, **given).run_id != result.run_id  # type: ignore[arg-type]


def test_metrics_that_are_prepared_one_at_a_time_have_the_same_intervals(monkeypatch: pytest.MonkeyPatch) -> None:
    gold, noise = np.random.default_rng(1).normal(size=(2, 40))
    made = Outcomes(tuple(map(str, range(40))), {"score": gold + noise, "gold": gold})
    metrics = [
        Metric("spearman", "", lambda c: spearman_statistic(c["score"], c["gold"])),
        Metric("pearson", "", lambda c: pearson_statistic(c["score"], c["gold"])),
    ]
    together = measure_metrics(metrics, "pair", made, Resampling(resamples=200))
    monkeypatch.setattr(record, "_PREPARED", 40)
    assert measure_metrics(metrics, "pair", made, Resampling(resamples=200)) == together
    assert all(together.intervals.values())
