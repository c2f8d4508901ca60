"""The layer attributes: failure rates over results, and the pairs that fail."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest

from calipers.core import RequestError
from calipers.core.figures import read_figures, read_named
from calipers.diagnosis.layers import attributes as layer
from calipers.shop import Extractor

PRODUCTS: Mapping[str, layer.Product] = {
    "r": {"title": "Mug 300 ml", "colour": "red", "brand": "Sony"},
    "b": {"title": "Mug 500 ml", "colour": "blue", "brand": "LG"},
    "n": "Mug",
}
QUERIES = {"q1": "red mug", "q2": "mug", "q3": "blue mug 300 ml", "q4": "sony mug"}
RESULTS = [["b", "r", "n"], ["b", "r", "n"], ["r", "b"], []]


@pytest.fixture(scope="module")
def extractor() -> Extractor:
    return Extractor.from_files()


def test_rates_by_hand(extractor: Extractor) -> None:
    outcomes = layer.measure(extractor, QUERIES, PRODUCTS, RESULTS)
    columns = {name: values.tolist() for name, values in outcomes.columns.items()}
    assert columns["results"] == [3, 3, 2, 0]
    assert columns["colour_stated"] == [1, 0, 1, 0]
    assert columns["colour_failures"] == [1, 0, 1, 0]
    assert columns["colour_unknown"] == [1, 0, 0, 0]
    assert columns["dimension_failures"] == [0, 0, 1, 0]
    assert columns["brand_stated"] == [0, 0, 0, 1]
    assert columns["failures"] == [1, 0, 2, 0]  # the two results of q3 fail for one reason each
    assert columns["stated"] == [1, 0, 1, 1]
    rates = {f.name: f.value for f in read_figures(outcomes)}
    assert rates["colour_explicit_failure_rate"] == pytest.approx(2 / 5)
    assert rates["colour_global_failure_rate"] == pytest.approx(2 / 8)
    assert rates["colour_unknown_rate"] == pytest.approx(1 / 5)
    assert rates["dimension_explicit_failure_rate"] == pytest.approx(1 / 2)
    assert rates["explicit_failure_rate"] == pytest.approx(3 / 5)
    assert rates["global_failure_rate"] == pytest.approx(3 / 8)


def test_what_no_query_states_is_unknown_and_not_perfect(extractor: Extractor) -> None:
    outcomes = layer.measure(extractor, {"q2": "mug"}, PRODUCTS, [["b"]])
    for figure in read_figures(outcomes):
        assert (figure.value, figure.interval) == (None, None)
        assert (figure.reason or "").startswith(("no query with results states a", "no column names the type"))


def test_a_brand_asked_for_without_results_is_unknown(extractor: Extractor) -> None:
    figures = {f.name: f for f in read_figures(layer.measure(extractor, QUERIES, PRODUCTS, RESULTS))}
    assert figures["brand_explicit_failure_rate"].value is None
    assert figures["brand_explicit_failure_rate"].count == 1


def test_offending_pairs_are_named_with_what_was_asked_and_found(extractor: Extractor) -> None:
    outcomes = layer.measure(extractor, QUERIES, PRODUCTS, RESULTS)
    table = outcomes.details["pairs"]
    rows = list(
        zip(*(table[key].tolist() for key in ("example", "rank", "document", "part", "asked", "found")), strict=True)
    )
    assert rows == [
        (0, 1, "b", "colour", "red", "blue"),
        (2, 1, "r", "colour", "blue", "red"),
        (2, 2, "b", "dimension", "300 ml", "500 ml"),
    ]
    first = read_named(outcomes)[0]
    assert (first.figure, first.id, first.note) == (
        "colour_explicit_failure_rate",
        "q1 / b",
        "at 1 for 'red mug': requested red, found blue",
    )


def test_only_the_first_k_results_count(extractor: Extractor) -> None:
    outcomes = layer.measure(extractor, QUERIES, PRODUCTS, RESULTS, k=1)
    assert outcomes.columns["results"].tolist() == [1, 1, 1, 0]
    with pytest.raises(RequestError, match="at least 1, found 0"):
        layer.measure(extractor, QUERIES, PRODUCTS, RESULTS, k=0)


def test_the_interval_is_a_bootstrap_over_queries(extractor: Extractor) -> None:
    """Half of 200 queries fail everywhere: the rate is 0.5 and its standard error 0.5 / √200 = 0.035."""
    queries = {f"q{i}": "red mug" for i in range(200)}
    results = [["b"] * 5 if i % 2 else ["r"] * 5 for i in range(200)]
    figures = {f.name: f for f in read_figures(layer.measure(extractor, queries, PRODUCTS, results))}
    rate = figures["colour_explicit_failure_rate"]
    assert rate.value == 0.5
    assert rate.interval is not None
    assert rate.interval == pytest.approx((0.5 - 1.96 * 0.0354, 0.5 + 1.96 * 0.0354), abs=0.015)


def test_metrics_are_lower_is_better_and_named_as_in_the_design() -> None:
    names = [metric.name for metric in layer.METRICS]
    parts = ("", "colour_", "brand_", "dimension_")
    assert {f"{p}{n}" for p in parts for n in ("global_failure_rate", "explicit_failure_rate")} <= set(names)
    assert not any(metric.higher_is_better for metric in layer.METRICS)


def test_no_queries_at_all(extractor: Extractor) -> None:
    outcomes = layer.measure(extractor, {}, {}, [])
    assert all(f.value is None for f in read_figures(outcomes))


@pytest.mark.parametrize(("stated", "warns"), [(4, False), (5, True)])
def test_a_rate_of_fewer_than_five_queries_does_not_warn(stated: int, warns: bool) -> None:
    columns = {"results": np.full(20, 10.0)}
    for prefix in ("", "colour_", "brand_", "dimension_"):
        columns[f"{prefix}stated"] = (np.arange(20) < (stated if prefix != "dimension_" else 0)).astype(np.float64)
        columns |= {f"{prefix}failures": columns[f"{prefix}stated"] * 8, f"{prefix}unknown": np.zeros(20)}
        columns |= {f"{prefix}floor": np.full(20, 0.2), f"{prefix}random": np.full(20, 0.9)}
    found = {figure.name: figure for figure in layer.make_figures(columns)}
    assert found["brand_explicit_failure_rate"].value == 0.8
    assert ("results often contradict" in (found["brand_explicit_failure_rate"].warning or "")) == warns
