"""Planted pathologies: each is found by the figure that is meant for it, and by no other warning.

The healthy base are the real vectors of potion-base-4m on scifact.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from calipers import models
from calipers.core import SILENT, Encoder, Figure, read_figures, read_named
from calipers.data import DataOptions, beir
from calipers.diagnosis.layers import Space, Texts, geometry
from calipers.diagnosis.layers.geometry import GeometryOptions
from calipers.metrics.geometry import unit

Loader = Callable[[str], Path]


@pytest.fixture(scope="module")
def potion(model: Loader) -> Encoder:
    source = models.find(f"static:{model('potion-base-4m-int8')}")
    return models.load(source, models.ModelOptions(), "encode")  # type: ignore[return-value]


@pytest.fixture(scope="module")
def healthy(potion: Encoder, data: Loader) -> Space:
    """All abstracts of scifact, cut to 300 characters, and its queries."""
    dataset = beir.load(str(data("scifact")), DataOptions(split=None, samples=None, seed=42, shuffle=False))
    corpus = dataset.tables["corpus"]
    texts = [text[:300] for text in corpus.columns["text"]]
    queries = list(dataset.columns["query"])
    return Space(
        Texts(corpus.ids, texts, unit(potion.encode(texts))),
        Texts(dataset.ids, queries, unit(potion.encode(queries))),
        dataset.columns["qrels"],
    )


def measure(space: Space, model: Encoder | None = None) -> dict[str, Figure]:
    found = geometry.run(model, space, GeometryOptions(texts=50), SILENT)
    return {figure.name: figure for figure in read_figures(found)}


def warned(figures: dict[str, Figure]) -> set[str]:
    return {name for name, figure in figures.items() if figure.warning}


def with_vectors(space: Space, documents: NDArray[np.float32], queries: NDArray[np.float32]) -> Space:
    assert space.queries
    return replace(
        space, corpus=replace(space.corpus, vectors=documents), queries=replace(space.queries, vectors=queries)
    )


def direction(seed: int) -> NDArray[np.float32]:
    return unit(np.random.default_rng(seed).standard_normal((1, 128)))


@pytest.fixture(scope="module")
def base(healthy: Space) -> dict[str, Figure]:
    return measure(healthy)


def test_a_healthy_space_warns_of_nothing(base: dict[str, Figure]) -> None:
    assert warned(base) == set()


def test_a_constant_vector_is_anisotropy(healthy: Space) -> None:
    """Added on both sides it hardly moves the order of cosines, so there are no more hubs than before."""
    assert healthy.queries
    shift = 2 * direction(0)
    found = measure(with_vectors(healthy, healthy.corpus.vectors + shift, healthy.queries.vectors + shift))
    assert warned(found) == {"anisotropy"}
    assert "mean vector" in str(found["anisotropy"].warning)


def test_a_constant_vector_of_its_own_on_each_side_is_anisotropy_and_hubness(healthy: Space) -> None:
    """Two towers that drifted apart: the documents that lean towards the queries' constant answer everything."""
    assert healthy.queries
    moved = healthy.corpus.vectors + 2 * direction(0), healthy.queries.vectors + 2 * direction(1)
    assert warned(measure(with_vectors(healthy, *moved))) == {"anisotropy", "hubness_skewness"}


def test_zeroed_dimensions_are_dimensions_without_use(healthy: Space) -> None:
    assert healthy.queries
    documents, queries = healthy.corpus.vectors.copy(), healthy.queries.vectors.copy()
    documents[:, ::2], queries[:, ::2] = 0, 0
    found = measure(with_vectors(healthy, documents, queries))
    assert warned(found) == {"used_dimensions"}
    assert found["used_dimensions"].value == 0.5


def test_a_space_of_a_single_curve_has_no_dimension_to_speak_of(healthy: Space) -> None:
    """A collapse onto a circle fills two of the dimensions, and only one of them near any document."""
    angle = np.random.default_rng(0).random((len(healthy.corpus), 1)) * 2 * np.pi
    circle = np.cos(angle) * direction(0) + np.sin(angle) * direction(1)
    assert healthy.queries
    found = measure(with_vectors(healthy, circle.astype(np.float32), healthy.queries.vectors))
    assert {"intrinsic_dimension", "used_dimensions"} <= warned(found)
    assert found["intrinsic_dimension"].value == pytest.approx(1.0, abs=0.1)


def test_a_bag_of_words_does_not_see_order(healthy: Space, potion: Encoder) -> None:
    found = measure(healthy, potion)
    assert warned(found) == {"word_order_sensitivity"}
    assert found["word_order_sensitivity"].value == pytest.approx(0.0, abs=1e-9)


def test_vampires_are_named_with_the_queries_they_invade(healthy: Space) -> None:
    """A direction that all queries share, as a prompt gives them, and no document has but for twenty."""
    assert healthy.queries
    vampires = np.random.default_rng(0).choice(len(healthy.corpus), 20, replace=False)
    queries = np.pad(healthy.queries.vectors, ((0, 0), (0, 1)), constant_values=1.0)
    documents = np.pad(healthy.corpus.vectors, ((0, 0), (0, 1)))
    before = measure(with_vectors(healthy, documents, queries))
    documents[vampires, -1] = 2.0
    found = geometry.run(None, with_vectors(healthy, documents, queries), GeometryOptions(), SILENT)
    hubs = [named for named in read_named(found) if named.figure == "hubness_skewness"]
    assert warned(before) == set()
    assert warned({figure.name: figure for figure in read_figures(found)}) == {"hubness_skewness"}
    assert {named.id for named in hubs[:20]} == {healthy.corpus.ids[i] for i in vampires}
    assert "of 300 queries" in hubs[0].note
    assert "invades" in hubs[0].note
    assert healthy.corpus.texts[healthy.corpus.ids.index(hubs[0].id)] == hubs[0].text


def test_copied_documents_are_counted_and_leave_the_dimension_alone(healthy: Space, base: dict[str, Figure]) -> None:
    copied = 1000
    corpus = healthy.corpus
    twice = Texts(
        (*corpus.ids, *(f"{id}-copy" for id in corpus.ids[:copied])),
        [*corpus.texts, *corpus.texts[:copied]],
        np.concatenate([corpus.vectors, corpus.vectors[:copied]]),
    )
    outcomes = geometry.run(None, replace(healthy, corpus=twice), GeometryOptions(), SILENT)
    found = {figure.name: figure for figure in read_figures(outcomes)}
    assert warned(found) == {"duplicates"}
    assert found["intrinsic_dimension"].value == pytest.approx(base["intrinsic_dimension"].value)
    assert outcomes.counts["duplicates"] == copied + base["duplicates"].count * (base["duplicates"].value or 0)
    first = next(named for named in read_named(outcomes) if named.figure == "duplicates")
    assert first.note.startswith(f"its vector is also the vector of {first.id}-copy")
