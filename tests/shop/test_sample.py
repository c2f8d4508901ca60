"""The sample shop: the same everywhere, judged by its own rules, and what searches that ignore an attribute get."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from calipers.core.figures import read_figures
from calipers.data import beir
from calipers.diagnosis.layers import attributes as layer
from calipers.shop import Agreement, Extractor, agree
from calipers.shop import sample as shop
from calipers.tasks import retrieval

FINGERPRINT = "sha256:20fd6f2f3d32835bc4dec91e99feec0a5a8d801c8757cba41a85aa20c32b1bd6"
PART = {"colour": "colour", "brand": "brand", "size": "dimension"}


@pytest.fixture(scope="module")
def made() -> shop.Shop:
    return shop.make()


@pytest.fixture(scope="module")
def extractor(made: shop.Shop) -> Extractor:
    return Extractor.from_files(brands=[product.row["brand"] for product in made.products])


def test_the_shop_is_the_same_on_every_machine() -> None:
    """Only Random.random is used; this fingerprint was made with Python 3.11 on Linux."""
    assert shop.load().fingerprint == FINGERPRINT
    assert shop.load(seed=8).fingerprint != FINGERPRINT


def test_size_and_languages(made: shop.Shop) -> None:
    assert (len(made.products), len(made.queries), len(made.qrels)) == (1500, 200, 200)
    assert 600 < sum(product.japanese for product in made.products) < 900
    assert len({product.brand for product in made.products}) == 20
    says = Counter(name for query in made.queries for name in shop.stated(query))
    assert min(says.values()) >= 60
    assert len({product.id for product in made.products}) == 1500


def test_it_is_a_dataset_that_retrieval_takes(made: shop.Shop) -> None:
    dataset = shop.load()
    retrieval.check(dataset)
    assert set(dataset.tables["corpus"].columns) == {"text", "title", "brand", "colour", "size"}
    grades = Counter(grade for grades in dataset.columns["qrels"] for grade in grades.values())
    assert set(grades) == {0, 1, 2, 3}
    assert all(3 in grades.values() for grades in dataset.columns["qrels"])


def test_it_is_written_as_a_beir_folder(made: shop.Shop, tmp_path: Path) -> None:
    read = beir.load(str(shop.write(tmp_path / "shop")))
    made_up = shop.load()
    assert read.ids == made_up.ids
    assert read.columns["query"] == made_up.columns["query"]
    assert read.columns["qrels"] == made_up.columns["qrels"]
    assert read.tables["corpus"].columns["text"] == made_up.tables["corpus"].columns["text"]


def test_the_extractor_reads_the_shop_as_it_was_made(made: shop.Shop, extractor: Extractor) -> None:
    """For every query and product of its kind the verdict is that of the generator, though no word is shared code."""
    asked = [extractor.read(query.text) for query in made.queries]
    given = [extractor.read_product(product.row) for product in made.products]
    for query, wants in zip(made.queries, asked, strict=True):
        for product, has in zip(made.products, given, strict=True):
            if product.kind == query.kind:
                states = agree(extractor, wants, has)
                wrong = [part for part, state in states.items() if state == Agreement.CONTRADICT]
                assert wrong == [PART[name] for name in shop.contradicted(query, product)], (query, product)
                assert Agreement.SILENT not in states.values()


def measure(made: shop.Shop, extractor: Extractor, results: list[list[str]]) -> dict[str, float | None]:
    queries = {query.id: query.text for query in made.queries}
    outcomes = layer.measure(extractor, queries, {p.id: p.row for p in made.products}, results)
    return {figure.name: figure.value for figure in read_figures(outcomes)}


def test_an_oracle_fails_nowhere(made: shop.Shop, extractor: Extractor) -> None:
    results = [[id for id, grade in grades.items() if grade == shop.EXACT][:10] for grades in made.qrels]
    rates = measure(made, extractor, results)
    assert [rates[f"{part}explicit_failure_rate"] for part in ("", "colour_", "brand_", "dimension_")] == [0, 0, 0, 0]
    assert rates["unknown_rate"] == 0


@pytest.mark.parametrize("ignored", ["colour", "brand", "size"])
def test_a_search_that_ignores_an_attribute_fails_at_its_base_rate(
    made: shop.Shop, extractor: Extractor, ignored: str
) -> None:
    """It finds products of the kind, in an order that has nothing to do with the attribute. The base rate is the share
    of products of the kind that contradict, the mean over the queries that state it."""
    rng = np.random.default_rng(0)
    results, base = [], []
    for query in made.queries:
        kind = [product for product in made.products if product.kind == query.kind]
        results.append([kind[i].id for i in rng.permutation(len(kind))[:10]])
        if ignored in shop.stated(query):
            base.append(np.mean([ignored in shop.contradicted(query, product) for product in kind]))
    rate = measure(made, extractor, results)[f"{PART[ignored]}_explicit_failure_rate"]
    assert rate == pytest.approx(np.mean(base), abs=0.04)
    assert np.mean(base) > 0.6


def test_a_search_that_minds_all_but_the_colour_fails_in_colour_alone(made: shop.Shop, extractor: Extractor) -> None:
    results = [
        [p.id for p in made.products if p.kind == q.kind and set(shop.contradicted(q, p)) <= {"colour"}][:10]
        for q in made.queries
    ]
    rates = measure(made, extractor, results)
    assert (rates["brand_explicit_failure_rate"], rates["dimension_explicit_failure_rate"]) == (0, 0)
    assert rates["colour_explicit_failure_rate"] == pytest.approx(0.84, abs=0.06)
