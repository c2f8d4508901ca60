"""Agreement of queries and products: by hand, and against the same rule by arrays."""

from __future__ import annotations

import random

import numpy as np
import pytest

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
    def draw(values: list[str]) -> frozenset[str]:
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
        colours=draw(colours),
        brands=draw(brands),
        quantities=quantities(),
        not_colours=draw(colours),
        not_brands=draw(brands),
        not_quantities=quantities(),
        fits_brands=draw(brands),
        fits_quantities=quantities(),
        hinted_brands=draw(brands),
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
