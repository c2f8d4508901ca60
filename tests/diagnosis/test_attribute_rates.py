"""Agreement of queries and products, plain and by arrays, and the failure rates over results."""

from __future__ import annotations

import random
from collections.abc import Mapping

import numpy as np
import pytest

from calipers.core import RequestError
from calipers.core.figures import read_figures, read_named
from calipers.diagnosis.layers import attributes as layer
from calipers.shop import Agreement, Attributes, Extractor, Quantity, agree, agree_all
from tests.support.agreement import agree_by_arrays

UNASKED, SILENT, MATCH, CONTRADICT = Agreement


@pytest.fixture(scope="module")
def extractor() -> Extractor:
    return Extractor.from_files()


@pytest.mark.parametrize(
    ("query", "product", "part", "expected"),
    [
        ("red mug", "red mug", "colour", MATCH),
        ("red mug", "blue mug", "colour", CONTRADICT),
        ("red mug", "mug", "colour", SILENT),
        ("mug", "blue mug", "colour", UNASKED),
        ("black suit", "charcoal suit", "colour", MATCH),
        ("grey suit", "charcoal suit", "colour", MATCH),
        ("grey suit", "black suit", "colour", CONTRADICT),
        ("黒い傘", "black umbrella", "colour", MATCH),
        ("ネイビー 傘", "blue umbrella", "colour", MATCH),
        ("red mug", "red and white mug", "colour", MATCH),
        ("red mug", "multicolour mug", "colour", SILENT),
        ("multicolour mug", "red and white mug", "colour", MATCH),
        ("multicolour mug", "red mug", "colour", CONTRADICT),
        ("mug not red", "red mug", "colour", CONTRADICT),
        ("mug not red", "blue mug", "colour", MATCH),
        ("mug not red", "mug", "colour", SILENT),
        ("mug not black", "charcoal mug", "colour", MATCH),  # only the very colour is excluded
        ("sony tv", "ソニー テレビ", "brand", MATCH),
        ("sony tv", "LG tv", "brand", CONTRADICT),
        ("sony tv", "tv", "brand", SILENT),
        ("iphone", "Spigen case for iPhone", "brand", CONTRADICT),
        ("iphone case", "Spigen case for iPhone", "brand", UNASKED),
        ("tv not sony", "sony tv", "brand", CONTRADICT),
        ("500 ml bottle", "bottle 1 L", "dimension", CONTRADICT),
        ("500 ml bottle", "bottle 0.5 L", "dimension", MATCH),
        ("500 ml bottle", "bottle 20 cm", "dimension", SILENT),
        ("128GB stick", "stick 0.128 TB", "dimension", MATCH),
        ("1 TB drive", "1024 GB drive", "dimension", MATCH),
        ("500 GB drive", "512 GB drive", "dimension", CONTRADICT),
        ('15.6" laptop', "laptop 39.6 cm", "dimension", MATCH),
        ("17.3 inch laptop", 'laptop 17"', "dimension", CONTRADICT),
        ("12 cm pot", "pot 10-15 cm", "dimension", MATCH),
        ("16 cm pot", "pot 10-15 cm", "dimension", CONTRADICT),
        ("6 x 330 ml cola", "cola 330 ml 6 pack", "dimension", MATCH),
        ("6 x 330 ml cola", "cola 330 ml 24 pack", "dimension", CONTRADICT),
        ("6 x 330 ml cola", "cola 330 ml", "dimension", SILENT),
        ("2 L cola", "cola 6 x 330 ml", "dimension", CONTRADICT),  # the sum of a pack is no size
        ("350ml×24本 ビール", "beer 24 x 350 ml", "dimension", MATCH),
        ("under 2 kg laptop", "laptop 1.4 kg", "dimension", MATCH),
        ("under 2 kg laptop", "laptop 2.4 kg", "dimension", CONTRADICT),
        ("8GB以上 メモリ", "memory 16 GB", "dimension", MATCH),
        ("bag for 15.6 inch laptop", "bag for 13 inch laptop", "dimension", CONTRADICT),
        ("bag for 15.6 inch laptop", "15.6インチ対応 バッグ", "dimension", MATCH),
        ("10 x 20 cm frame", "frame 20 x 10 cm", "dimension", MATCH),
        ("10 x 20 cm frame", "frame 10 x 30 cm", "dimension", CONTRADICT),
        ("bottle not 500 ml", "bottle 500 ml", "dimension", CONTRADICT),
        ("bottle not 500 ml", "bottle 1 L", "dimension", MATCH),
    ],
)
def test_agreement(extractor: Extractor, query: str, product: str, part: str, expected: Agreement) -> None:
    assert agree(extractor, extractor.read(query), extractor.read(product))[part] == expected


def random_attributes(rng: random.Random, colours: list[str]) -> Attributes:
    def some(values: list[str]) -> frozenset[str]:
        return frozenset(rng.sample(values, rng.choice((0, 0, 1, 2))))

    def quantities() -> tuple[Quantity, ...]:
        found = []
        for _ in range(rng.choice((0, 0, 1, 2, 3))):
            low = rng.choice((0.0, 1.0, 1.005, 1.02, 1000.0, 1024.0, -np.inf))
            high = rng.choice((low, low + 1, np.inf)) if low > -np.inf else 2.0
            found.append(Quantity(rng.choice(("length", "storage", "count")), low, high, "", rng.choice((1.0, 1.024))))
        return tuple(found)

    brands = ["hp", "sony", "lg"]
    return Attributes(
        colours=some(colours),
        brands=some(brands),
        quantities=quantities(),
        not_colours=some(colours),
        not_brands=some(brands),
        not_quantities=quantities(),
        fits_brands=some(brands),
        fits_quantities=quantities(),
        hinted_brands=some(brands),
    )


def test_pairs_agree_as_they_do_by_arrays(extractor: Extractor) -> None:
    rng = random.Random(1)
    colours = ["black", "charcoal", "grey", "red", "multicolour"]
    queries = [random_attributes(rng, colours) for _ in range(120)]
    products = [random_attributes(rng, colours) for _ in range(80)]
    query, product = (np.array([rng.randrange(n) for _ in range(4000)]) for n in (120, 80))
    found = agree_all(extractor, queries, products, query, product)
    by_arrays = agree_by_arrays(extractor, queries, products, query, product)
    for part, states in found.items():
        assert states.tolist() == by_arrays[part].tolist()
        assert set(states.tolist()) == {0, 1, 2, 3}


def test_no_pairs_and_no_products(extractor: Extractor) -> None:
    nothing = np.empty(0, np.int64)
    assert all(len(states) == 0 for states in agree_all(extractor, [], [], nothing, nothing).values())


# --- rates ---------------------------------------------------------------------------------------------------------

PRODUCTS: Mapping[str, layer.Product] = {
    "r": {"title": "Mug 300 ml", "colour": "red", "brand": "Sony"},
    "b": {"title": "Mug 500 ml", "colour": "blue", "brand": "LG"},
    "n": "Mug",
}
QUERIES = {"q1": "red mug", "q2": "mug", "q3": "blue mug 300 ml", "q4": "sony mug"}
RESULTS = [["b", "r", "n"], ["b", "r", "n"], ["r", "b"], []]


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
        assert (figure.reason or "").startswith("no query with results states a")


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
