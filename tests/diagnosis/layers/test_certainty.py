"""The certainty layer and what it says of R_q; odd queries."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from calipers import models
from calipers.core import (
    SILENT,
    DataError,
    Figure,
    InvalidOutput,
    ModelInfo,
    Outcomes,
    RequestError,
    read_figures,
    read_named,
)
from calipers.data import DataOptions
from calipers.diagnosis import layers
from calipers.diagnosis.layers import Space, Texts
from calipers.diagnosis.layers.certainty import CertaintyOptions
from calipers.models import ModelOptions

RNG = np.random.default_rng(2)
LAYER = layers.find("certainty")


def space(queries: int = 60) -> Space:
    centres = RNG.normal(size=(10, 8))
    corpus = np.repeat(centres, 12, axis=0) + 0.4 * RNG.normal(size=(120, 8))
    asked = np.concatenate([centres[np.arange(queries // 2) % 10], RNG.normal(size=(queries - queries // 2, 8))])
    ids = tuple(f"d{i}" for i in range(120))
    qrels: list[dict[str, float]] = [
        {ids[(i % 10) * 12 + j]: 1.0 for j in range(12)} if i < queries // 2 else {"d0": 1.0} for i in range(queries)
    ]
    texts = [f"group{i // 12} item number{i}" for i in range(120)]
    names = tuple(f"q{i}" for i in range(queries))
    return Space(Texts(ids, texts, corpus), Texts(names, [f"ask {n}" for n in names], asked), qrels)


def run(given: Space, **options: Any) -> Outcomes:
    return LAYER.run(None, given, CertaintyOptions(resamples=200, **options), SILENT)


def figures(found: Outcomes) -> dict[str, Figure]:
    return {figure.name: figure for figure in read_figures(found)}


def test_metrics_of_the_columns_are_the_figures() -> None:
    found = run(space())
    by = figures(found)
    for metric in LAYER.metrics:
        assert metric.value(found.columns) == pytest.approx(by[metric.name].value, abs=1e-12)
    assert [metric.name for metric in LAYER.metrics][:7] == [
        *("reliability", "confident_queries", "stability", "coherence"),
        *("auroc", "brier", "ece"),
    ]
    assert by["auroc"].value > 0.8
    low, high = by["auroc"].interval or (9, 9)
    assert low <= by["auroc"].value <= high


def test_reliability_is_the_harmonic_mean_of_the_other_two_columns() -> None:
    columns = run(space()).columns
    g, i = columns["stability"], columns["coherence"]
    assert columns["reliability"] == pytest.approx(2 * g * i / (g + i))


def test_the_level_of_high_confidence_is_shown_and_counted() -> None:
    found = run(space())
    by = figures(found)
    assert by["reliability"].level == "never; above 0.8 is high confidence"
    assert by["confident_queries"].value == pytest.approx((found.columns["reliability"] > 0.8).mean())
    assert 0 < by["confident_queries"].value <= 1


def test_queries_that_the_score_was_wrong_about_are_named() -> None:
    found = run(space())
    named = read_named(found)
    success = dict(zip(found.ids, found.columns["success"], strict=True))
    assert all(success[n.id] == 0 for n in named if "seemed sure" in n.note)
    assert all(success[n.id] == 1 for n in named if "hopeless" in n.note)
    assert len(found.details["reliability_curve"]["share"]) == 6
    assert found.details["risk_coverage"]["coverage"][-1] == 1


def test_without_judgements_only_the_parts_are_known() -> None:
    found = run(replace(space(), qrels=()))
    by = figures(found)
    assert by["auroc"].value is None
    assert "no query is judged" in str(by["auroc"].reason)
    assert by["reliability"].value is not None
    assert "no model" in str(by["gibberish_auroc"].reason)
    assert not found.notes


def test_vectors_that_are_already_computed_hold_no_odd_queries() -> None:
    found = LAYER.run(Vectors(), space(), CertaintyOptions(resamples=50), SILENT)
    assert "no model" in str(figures(found)["out_of_domain_auroc"].reason)


class Vectors:
    info = ModelInfo("vectors", "vectors", None, "cpu", "none")

    def encode(self, texts: Any, **_: Any) -> Any:
        raise AssertionError("there is nothing to ask for")


def test_judgements_that_all_succeed_leave_auroc_unknown() -> None:
    given = space()
    found = run(replace(given, qrels=[dict.fromkeys(given.corpus.ids, 1.0)] * 60))
    assert "every one of 60 queries succeeds" in str(figures(found)["auroc"].reason)


def test_dead_vectors_and_missing_queries_are_refused() -> None:
    given = space()
    assert given.queries is not None
    dead = replace(given.queries, vectors=np.where(np.arange(60)[:, None] == 3, np.nan, given.queries.vectors))
    with pytest.raises(InvalidOutput, match=r"1 of 60 queries .* \(rows q3\)"):
        run(replace(given, queries=dead))
    with pytest.raises(DataError, match="give `queries`"):
        run(replace(given, queries=None))
    with pytest.raises(RequestError, match=r"`codec` must be one of .*, found 'zip'"):
        CertaintyOptions(codec="zip")
    with pytest.raises(RequestError, match="must be at least 2, found 1"):
        CertaintyOptions(k=1)


def test_a_real_model_tells_odd_queries_from_real_ones(
    model: Callable[[str], Path], data: Callable[[str], Path]
) -> None:
    from calipers.data import beir

    encoder: Any = models.load(models.find(str(model("potion-base-4m-int8"))), ModelOptions())
    rows = beir.load(str(data("scifact")), DataOptions(samples=120))
    judged = {id for grades in rows.columns["qrels"] for id in grades}
    corpus = rows.tables["corpus"]
    kept = [i for i, id in enumerate(corpus.ids) if id in judged or i % 20 == 0]
    texts = [corpus.columns["text"][i] for i in kept]
    given = Space(
        Texts(tuple(corpus.ids[i] for i in kept), texts, encoder.encode(texts)),
        Texts(rows.ids, rows.columns["query"], encoder.encode(rows.columns["query"])),
        rows.columns["qrels"],
    )
    by = figures(LAYER.run(encoder, given, CertaintyOptions(resamples=200, odd=60), SILENT))
    assert by["gibberish_auroc"].value > 0.9
    assert by["vague_auroc"].value > 0.8
    assert by["out_of_domain_auroc"].value > 0.9
    assert "bundled ones about cooking, law, shopping" in by["out_of_domain_auroc"].meaning
    own = replace(given, foreign=tuple(rows.columns["query"]))
    assert figures(LAYER.run(encoder, own, CertaintyOptions(resamples=50), SILENT))["out_of_domain_auroc"].value < 0.6
