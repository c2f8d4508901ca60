"""Rows of one source are drawn together: read, kept with the outcomes, and used by eval and compare."""

from __future__ import annotations

import zlib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from calipers.comparison import verdict
from calipers.comparison.api import compare
from calipers.core import DataError, Metric, ModelInfo, Outcomes, RequestError, Result
from calipers.data import DataOptions
from calipers.metrics.means import mean_statistic
from calipers.runs.api import evaluate
from calipers.runs.protocol import Protocol
from calipers.runs.store import Store
from tests.support.samples import write_jsonl
from tests.support.verdicts import scored

MEAN = Metric("mean", "", lambda c: mean_statistic(c["x"]))
BY_SOURCE = DataOptions(cluster="source")


@dataclass(frozen=True)
class Hashing:
    """An encoder whose vectors follow from the text and a little noise."""

    noise: float = 0.0

    @property
    def info(self) -> ModelInfo:
        return ModelInfo("test", f"hashing-{self.noise}", None, "cpu", "f")

    def encode(self, texts: Any, **_: Any) -> Any:
        rng = [np.random.default_rng(zlib.crc32(text.encode())) for text in texts]
        return np.stack([r.normal(size=8) + self.noise * r.normal(size=8) for r in rng]).astype(np.float32)


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    """60 pairs of 12 sources."""
    score = np.random.default_rng(0).random(60)
    pairs = [
        {"sentence1": f"one {i}", "sentence2": f"two {i}", "score": score[i], "source": f"s{i // 5}"} for i in range(60)
    ]
    return write_jsonl(tmp_path / "pairs.jsonl", pairs)


def run(rows: Path, noise: float = 0.0, **flags: Any) -> Result:
    return evaluate(Hashing(noise), dataset=str(rows), resamples=300, **flags)


def test_the_result_says_what_was_drawn(rows: Path, tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    by_row, by_source = run(rows), run(rows, data_options=BY_SOURCE, store=store)
    assert "cluster" not in by_row.bootstrap
    assert (by_source.bootstrap["cluster"], by_source.bootstrap["clusters"]) == ("source", 12)
    assert by_source.metrics == by_row.metrics
    assert by_source.intervals != by_row.intervals
    assert by_source.fingerprint == by_row.fingerprint
    kept = store.load(by_source.run_id)
    assert kept.outcomes.clusters is not None
    assert kept.outcomes.clusters.max() == 11
    assert kept.dataset.cluster == "source"


def test_compare_draws_sources_where_a_run_has_them(rows: Path) -> None:
    before, after = run(rows, data_options=BY_SOURCE), run(rows, 0.5)
    (plain,) = compare(run(rows), [after], resamples=300)
    (drawn,) = compare(before, [after], resamples=300)
    assert (drawn.bootstrap["cluster"], drawn.bootstrap["clusters"]) == ("source", 12)
    assert drawn.comparisons[0].delta == plain.comparisons[0].delta
    assert drawn.comparisons[0].interval != plain.comparisons[0].interval
    assert "cluster" not in plain.bootstrap


def test_a_model_beside_a_stored_run_is_measured_by_its_sources(rows: Path) -> None:
    (made,) = compare(run(rows, data_options=BY_SOURCE), [Hashing(0.5)], resamples=300)
    assert made.candidate is not None
    assert made.candidate.bootstrap["clusters"] == 12


def test_what_cannot_be_drawn_together_is_refused(rows: Path) -> None:
    with pytest.raises(DataError, match="no column 'author'"):
        run(rows, data_options=DataOptions(cluster="author"))
    with pytest.raises(RequestError, match="`cluster` is not supported for stored runs"):
        compare(run(rows), [run(rows, 0.5)], protocol=Protocol(data_options=BY_SOURCE))
    with pytest.raises(RequestError, match="`cluster` do not apply"):
        evaluate(Hashing(), task="retrieval", dataset=str(rows), data_options=BY_SOURCE)
    other = run(rows, 0.5, data_options=BY_SOURCE)
    other = replace(other, bootstrap={**other.bootstrap, "cluster": "author"})
    with pytest.raises(RequestError, match="drawn together by other columns: source and author"):
        compare(run(rows, data_options=BY_SOURCE), [other])


def test_losses_by_source_are_less_certain_than_they_look() -> None:
    """Ten sources of ten rows, each row of a source losing the same: ten numbers, not a hundred."""
    rng = np.random.default_rng(1)
    before = rng.normal(10, 1, 100)
    after = before - np.repeat(rng.normal(0.3, 0.4, 10), 10)
    names = tuple(f"s{i // 10}" for i in range(100))

    def side(values: Any, texts: Any) -> Result:
        made = scored(values)
        outcomes = Outcomes(made.outcomes.ids, {"x": values}, texts)
        return replace(made, outcomes=outcomes, bootstrap={"cluster": "s", "clusters": 10} if texts else {})

    terms = verdict.Terms({}, ("mean",), resamples=2000)
    wide, narrow = (
        verdict.compare(side(before, texts), side(after, texts), [MEAN], terms).comparisons[0]
        for texts in ({"cluster": names}, {})
    )
    assert wide.interval is not None
    assert narrow.interval is not None
    assert np.ptp(wide.interval) > 2.5 * np.ptp(narrow.interval)
    assert wide.p_value is not None
    assert narrow.p_value is not None
    assert wide.p_value > narrow.p_value
