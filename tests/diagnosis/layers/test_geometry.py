"""The geometry layer on real vectors: its outcomes, its samples, and what it refuses."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from calipers.core import SILENT, DataError, Figure, InvalidOutput, Outcomes, RequestError, read_figures, read_named
from calipers.diagnosis.layers import PairVectors, Space, Texts, geometry
from calipers.diagnosis.layers.geometry import GeometryOptions
from calipers.runs.store import Store
from tests.support.stores import make

OPTIONS = GeometryOptions()


def texts(vectors: NDArray[np.float32], name: str) -> Texts:
    return Texts(
        tuple(f"{name}{i}" for i in range(len(vectors))), [f"{name} {i}" for i in range(len(vectors))], vectors
    )


@pytest.fixture(scope="module")
def space() -> Space:
    rng = np.random.default_rng(0)
    documents = rng.standard_normal((600, 32)).astype(np.float32) + 0.2
    queries = documents[:40] + 0.5 * rng.standard_normal((40, 32)).astype(np.float32)
    return Space(texts(documents, "d"), texts(queries, "q"), [{f"d{i}": 2.0, f"d{i + 1}": 0.0} for i in range(40)])


def measure(space: Space, options: GeometryOptions = OPTIONS) -> dict[str, Figure]:
    return {figure.name: figure for figure in read_figures(run(space, options))}


def run(space: Space, options: GeometryOptions = OPTIONS) -> Outcomes:
    return geometry.run(None, space, options, SILENT)


def test_every_metric_is_its_figure_and_every_interval_holds_it(space: Space) -> None:
    outcomes = run(space)
    figures = {figure.name: figure for figure in read_figures(outcomes)}
    for metric in geometry.LAYER.measures(OPTIONS):
        if metric.name in outcomes.columns:
            figure = figures[metric.name]
            assert figure.value is not None
            assert metric.value(outcomes.columns) == pytest.approx(figure.value, abs=1e-9)
            assert figure.interval is not None
            assert figure.interval[0] <= figure.value <= figure.interval[1]
    assert geometry.LAYER.metrics[0].name in outcomes.columns


def test_every_figure_says_what_it_means(space: Space) -> None:
    for figure in measure(space).values():
        assert figure.meaning.endswith(".")
        assert (figure.value is None) == (figure.reason is not None)
        assert figure.count > 0 or figure.value is None


def test_outcomes_name_documents_queries_and_pairs(space: Space) -> None:
    pairs = PairVectors(("a", "b"), space.corpus.vectors[:2], space.corpus.vectors[2:4])
    outcomes = run(replace(space, pairs=pairs))
    assert len(outcomes.ids) == 600 + 40 + 2
    assert outcomes.ids[0] == "d0/document"
    assert outcomes.ids[600] == "q0/query"
    assert outcomes.ids[-1] == "b/pair"
    assert np.isfinite(outcomes.columns["alignment"]).tolist() == [False] * 640 + [True] * 2


def test_alignment_of_judgements_takes_those_above_zero(space: Space) -> None:
    assert space.queries
    found = measure(space)["alignment"]
    left, right = space.queries.vectors.astype(float), space.corpus.vectors[:40].astype(float)
    cosine = (left * right).sum(1) / np.linalg.norm(left, axis=1) / np.linalg.norm(right, axis=1)
    assert found.value == pytest.approx((2 - 2 * cosine).mean(), abs=1e-6)
    assert (found.count, found.unit) == (40, "query")
    assert measure(replace(space, qrels=()))["alignment"].reason


def test_without_queries_documents_ask_each_other(space: Space) -> None:
    found = measure(Space(space.corpus))
    assert found["hubness_skewness"].unit == "document"
    assert found["hubness_skewness"].count == 600


def test_samples_are_said_to_be_samples_and_exact_forbids_them(space: Space, monkeypatch: pytest.MonkeyPatch) -> None:
    exact = measure(space)
    monkeypatch.setattr(geometry, "_PRODUCTS", 600 * 100)
    monkeypatch.setattr(geometry, "_ALL_PAIRS", 200)
    monkeypatch.setattr(geometry, "EXAMPLES", 100)
    sampled = measure(space)
    forced = measure(space, replace(OPTIONS, exact=True))
    for name in ("uniformity", "intrinsic_dimension", "intrinsic_dimension_fit"):
        one, all_of_it = sampled[name], exact[name]
        assert (one.exact, all_of_it.exact, forced[name].exact) == (False, True, True)
        assert one.value is not None
        assert one.standard_error is not None
        assert all_of_it.value is not None
        assert abs(one.value - all_of_it.value) < 3 * one.standard_error
        assert forced[name].value == pytest.approx(all_of_it.value)
    assert sampled["anisotropy"].value == exact["anisotropy"].value
    assert sampled["anisotropy"].exact


def test_two_models_are_measured_on_the_same_examples(space: Space, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(geometry, "EXAMPLES", 100)
    other = replace(space, corpus=texts(np.random.default_rng(1).standard_normal((600, 8)), "d"), queries=None)
    assert run(replace(space, queries=None)).ids == run(other).ids


def test_the_same_request_gives_the_same_bits(space: Space) -> None:
    one, two = run(space), run(space)
    assert read_figures(one) == read_figures(two)
    assert all(np.array_equal(one.columns[c], two.columns[c], equal_nan=True) for c in one.columns)


def test_vectors_alone_have_no_word_order_and_no_words(space: Space) -> None:
    found = measure(space)
    assert found["word_order_sensitivity"].value is None
    assert "shuffled" in str(found["word_order_sensitivity"].reason)
    assert "tokenizer" in str(found["fragmentation"].reason)


def test_dead_vectors_are_refused_by_name(space: Space) -> None:
    broken = space.corpus.vectors.copy()
    broken[7] = np.inf
    broken[9, 3] = np.nan
    with pytest.raises(InvalidOutput, match="d7, d9") as caught:
        run(replace(space, corpus=texts(broken, "d")))
    assert caught.value.rows == ("d7", "d9")
    with pytest.raises(InvalidOutput, match="same vector for all"):
        run(replace(space, corpus=texts(np.ones((600, 32), np.float32), "d")))
    with pytest.raises(DataError, match="at least 3 documents"):
        run(Space(texts(broken[:2], "d")))


@pytest.mark.parametrize("wrong", [{"k": 0}, {"words": "syllables"}, {"t": 0.0}, {"alpha": -1.0}])
def test_options_out_of_range_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(RequestError, match="must be"):
        GeometryOptions(**wrong)  # type: ignore[arg-type]


def test_three_documents_and_one_query_have_an_answer_or_a_reason(space: Space) -> None:
    assert space.queries
    small = Space(texts(space.corpus.vectors[:3], "d"), texts(space.queries.vectors[:1], "q"))
    found = measure(small)
    assert found["anisotropy"].value is not None
    assert "at least 2 queries" in str(found["hubness_skewness"].reason)


def test_figures_and_what_they_name_survive_the_store(space: Space, tmp_path: Path) -> None:
    outcomes = run(space)
    values = {figure.name: figure.value for figure in read_figures(outcomes) if figure.value is not None}
    kept = Store(tmp_path)
    kept.save(replace(make("geometry-run"), task="geometry", metrics=values, outcomes=outcomes))
    back = kept.load("geometry-run").outcomes
    assert read_figures(back) == read_figures(outcomes)
    assert read_named(back) == read_named(outcomes)
    assert read_figures(Outcomes((), {})) == ()


def test_a_mapped_file_gives_the_same_figures(space: Space, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    np.save(tmp_path / "v.npy", space.corpus.vectors)
    mapped = replace(space.corpus, vectors=np.load(tmp_path / "v.npy", mmap_mode="r"))
    assert measure(replace(space, corpus=mapped)) == measure(space)
