"""Results for people and programs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from calipers.core import DataSource, Metric, ModelInfo, Outcomes, Result, Thresholds, html_table

RESULT = Result(
    run_id="20250101-abc",
    created="2025-01-01T00:00:00Z",
    task="sentence-similarity",
    options={"batch": 3},
    model=ModelInfo("onnx", "<b>model", "/tmp/models/m", "cpu", "sha256:1", {"pooling": "mean"}),
    dataset=DataSource("pairs.csv", split="test", requested=2),
    fingerprint="sha256:2",
    request={"given": {}, "defaulted": {}},
    metrics={"spearman": 81.25678, "pearson": float("nan")},
    intervals={"spearman": (80.0, 82.5), "pearson": None},
    bootstrap={"resamples": 10},
    warnings=("3 texts are cut & lost",),
    timing={"total": 1.0},
    environment={},
    outcomes=Outcomes(("a", "b"), {"gold": np.array([1.0, 2.0])}, counts={"truncated": 3.0}),
)


def test_repr_is_one_line() -> None:
    assert repr(RESULT) == (
        "Result(<b>model, sentence-similarity on 2 of pairs.csv: spearman 81.26 [80 to 82.5], run 20250101-abc)"
    )
    assert "no metric" in repr(replace(RESULT, metrics={}))


def test_html_is_escaped_and_names_every_metric() -> None:
    html = RESULT._repr_html_()
    assert "<b>model" not in html
    assert "&lt;b&gt;model" in html
    assert "<td>spearman</td><td>81.26</td><td>80 to 82.5</td>" in html
    assert "<td>pearson</td><td>nan</td><td></td>" in html
    assert "3 texts are cut &amp; lost" in html


def test_to_dict_has_the_keys_of_the_contract() -> None:
    content = RESULT.to_dict()
    assert [*content] == [
        *("schema", "run", "name", "created", "model_id", "model_path", "task", "canonical_task", "device", "dataset"),
        *("scored", "options", "curve"),
        *("metrics", "intervals", "slices", "bootstrap", "model", "warnings", "timing", "environment", "request"),
    ]
    assert [*content["dataset"]] == [
        *("path", "name", "split", "revision", "samples", "requested", "shuffle", "seed", "streaming", "cluster"),
        *("columns_mapping", "rows_read", "rows_blank", "fingerprint"),
    ]
    assert content["schema"] == "calipers/eval/1"
    assert (content["dataset"]["samples"], content["dataset"]["requested"]) == (2, 2)
    assert content["model"] == {"backend": "onnx", "fingerprint": "sha256:1", "size": None, "pooling": "mean"}
    assert content["metrics"]["spearman"] == 81.25678
    assert RESULT.dataset.path == "pairs.csv"


def test_the_value_of_a_metric_counts_every_example_once() -> None:
    metric = Metric(
        "mean", "mean of gold", lambda columns: lambda counts: columns["gold"] @ counts / counts.sum(axis=0)
    )
    assert metric.value(RESULT.outcomes.columns) == 1.5


@pytest.mark.parametrize(
    ("thresholds", "text"),
    [(Thresholds(0.05, 0.1), "5% / 10%"), (Thresholds(0.02, 0.05, relative=False), "0.02 / 0.05 points")],
)
def test_thresholds_in_words(thresholds: Thresholds, text: str) -> None:
    assert str(thresholds) == text


def test_everything_is_escaped_and_without_control_characters() -> None:
    html = html_table("<t>", ["<h>"], [["<c>\x1b"]], ["<n>"])
    assert not {"<t>", "<h>", "<c>", "<n>", "\x1b"} & {html[i : i + n] for n in (1, 3) for i in range(len(html))}
    assert html.count("&lt;") == 4


def test_a_table_without_rows_has_its_header() -> None:
    assert html_table("t", ["a"], []) == "<div><p><b>t</b></p><table><tr><th>a</th></tr></table></div>"
