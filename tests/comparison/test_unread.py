"""Texts that a model has no vector for: one rule for similarity, retrieval, agreement and the comparison of models."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import calipers
from calipers import comparison
from calipers import evaluate as measure
from calipers.cli import run as calipers_cli
from calipers.comparison import api as comparing
from calipers.comparison import markdown, wording
from calipers.core import SILENT, InvalidOutput, ModelInfo
from calipers.core.models import Encoder
from tests.support.samples import write_jsonl

PAIRS = 60


class Unreading:
    """Vectors by the letters of a text, near for texts that share a word; zeros or NaN for the texts named."""

    def __init__(self, *words: str, value: float = 0.0, noise: float = 0.0, name: str = "made") -> None:
        self.info = ModelInfo("test", name, None, "cpu", f"sha256:{name}{words}")
        self.words, self.value, self.noise = words, value, noise

    def encode(self, texts: Sequence[str], *, prompt: str | None = None, progress: Any = SILENT) -> np.ndarray:
        return np.array([self._vector(text) for text in texts], np.float32)

    def _vector(self, text: str) -> np.ndarray:
        if any(word in text.split() for word in self.words):
            return np.full(16, self.value)
        vectors = [np.random.default_rng([*word.encode()]).normal(size=16) for word in text.split()]
        return sum(vectors) + self.noise * np.random.default_rng([*text.encode(), 1]).normal(size=16)


def write_pairs(folder: Path) -> Path:
    """Pairs that share 0 to 5 of 5 words; the score is how many."""
    rng = np.random.default_rng(0)
    rows = []
    for number in range(PAIRS):
        words, others = ([f"{side}{w}" for w in rng.choice(500, 5, replace=False)] for side in "ab")
        shared = number % 6
        rows.append(
            {
                "_id": f"p{number}",
                "sentence1": " ".join([*words, f"x{number}"]),
                "sentence2": " ".join([*words[:shared], *others[shared:]]),
                "score": shared,
            }
        )
    return write_jsonl(folder / "pairs.jsonl", rows)


def evaluate(model: Encoder, data: Path) -> Any:
    return measure(model, dataset=str(data), resamples=100)  # type: ignore[arg-type]


def compare(data: Path, baseline: Any, candidate: Any, **options: Any) -> comparison.Verdict:
    protocol = calipers.Protocol(dataset=str(data))
    [verdict] = comparing.compare(baseline, [candidate], protocol=protocol, **options)
    return verdict


# --- similarity ------------------------------------------------------------------------------------------------------


def test_a_few_pairs_without_a_vector_are_counted_named_and_left_out(tmp_path: Path) -> None:
    data = write_pairs(tmp_path)
    result = evaluate(Unreading("x3", "x8"), data)
    whole = evaluate(Unreading(), data)
    assert result.outcomes.counts["pairs_without_vector"] == 2
    assert any("2 of 60 pairs have no vector" in warning and "p3, p8" in warning for warning in result.warnings)
    assert np.flatnonzero(np.isnan(result.outcomes.columns["cosine"])).tolist() == [3, 8]
    kept = np.setdiff1d(np.arange(PAIRS), [3, 8])
    alone = {name: values[kept] for name, values in whole.outcomes.columns.items()}
    from calipers.tasks import find

    for metric in find("sentence-similarity").metrics:
        assert result.metrics[metric.name] == pytest.approx(metric.value(alone), abs=1e-9), metric.name
        assert result.intervals[metric.name] is not None
    assert "without_vector" not in whole.outcomes.columns


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (Unreading(*(f"x{i}" for i in range(7))), "zero vectors for 7 of 60 pairs, more than 10%"),
        (Unreading("x3", value=np.nan), "NaN or infinite numbers for 1 of 60 pairs"),
    ],
)
def test_more_than_a_tenth_or_one_nan_is_invalid(model: Unreading, words: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidOutput, match=words):
        evaluate(model, write_pairs(tmp_path))


def test_what_one_model_alone_cannot_read_counts_against_it(tmp_path: Path) -> None:
    data = write_pairs(tmp_path)
    baseline, candidate = Unreading(noise=0.3, name="a"), Unreading("x3", "x8", "x10", noise=0.3, name="b")
    worse, better = compare(data, baseline, candidate), compare(data, candidate, baseline)
    loss, gain = (v.comparisons[0].delta for v in (worse, better))
    assert loss is not None
    assert gain is not None
    assert loss < -1
    assert gain == pytest.approx(-loss)
    assert worse.to_dict()["without_vector"] == {"baseline": [], "candidate": ["p3", "p8", "p10"], "both": []}
    assert better.to_dict()["without_vector"]["baseline"] == ["p3", "p8", "p10"]
    [line] = wording.unread(worse)
    assert line == "3 pairs (rows p3, p8, p10) that only the candidate has no vector for: they count against it"
    assert "only the candidate has no vector for" in markdown.verdicts_markdown([worse])
    assert {"p3", "p8", "p10"} <= {example.id for example in worse.worst}


def test_what_neither_can_read_is_left_out_of_both(tmp_path: Path) -> None:
    data = write_pairs(tmp_path)
    verdict = compare(data, Unreading("x3", name="a"), Unreading("x3", noise=1e-6, name="b"))
    assert verdict.unread.both == ("p3",)
    assert verdict.comparisons[0].delta == pytest.approx(0, abs=0.05)
    same = compare(data, Unreading("x3", name="a"), Unreading("x3", name="a"))
    assert same.label == "PASS"
    assert same.comparisons[0].p_value == 1.0


# --- retrieval -------------------------------------------------------------------------------------------------------


def write_corpus(folder: Path) -> Path:
    (folder / "qrels").mkdir()
    write_jsonl(folder / "corpus.jsonl", [{"_id": f"d{i}", "title": "", "text": f"w{i} v{i} x{i}"} for i in range(40)])
    write_jsonl(folder / "queries.jsonl", [{"_id": f"q{i}", "text": f"w{i} y{i}"} for i in range(20)])
    lines = [f"q{i}\td{i}\t1" for i in range(20)]
    (folder / "qrels" / "test.tsv").write_text("\n".join(["query-id\tcorpus-id\tscore", *lines]) + "\n")
    return folder


@pytest.mark.parametrize("similarity", ["cosine", "dot"])
def test_a_query_without_a_vector_fails_and_a_document_without_one_is_not_found(
    tmp_path: Path, similarity: str
) -> None:
    folder = write_corpus(tmp_path)
    options: dict[str, Any] = {"task": "retrieval", "task_options": {"similarity": similarity}, "resamples": 100}
    model = Unreading("y4", "x7", "x33")
    result = measure(model, dataset=str(folder), **options)  # type: ignore[arg-type]
    whole = measure(Unreading(), dataset=str(folder), **options)  # type: ignore[arg-type]
    results = result.outcomes.details["results"]
    assert not set(results["document"]) & {"d7", "d33"}
    assert 4 not in results["example"]
    assert result.outcomes.columns["ndcg@10"][[4, 7]].tolist() == [0.0, 0.0]
    others = np.setdiff1d(np.arange(20), [4, 7])
    assert (result.outcomes.columns["ndcg@10"][others] >= whole.outcomes.columns["ndcg@10"][others]).all()
    counts = result.outcomes.counts
    assert (counts["queries_without_vector"], counts["documents_without_vector"]) == (1, 2)
    notes = " ".join(result.warnings)
    assert "1 of 20 queries have no vector" in notes
    assert "(rows q4)" in notes
    assert "2 of 40 documents have no vector" in notes
    assert "(rows d7, d33)" in notes


def test_queries_that_one_model_cannot_read_are_visible(tmp_path: Path) -> None:
    folder = write_corpus(tmp_path)
    protocol = calipers.Protocol(task="retrieval", dataset=str(folder))
    [verdict] = comparing.compare(Unreading(name="a"), [Unreading("y4", name="b")], protocol=protocol)  # type: ignore[list-item, arg-type]
    assert verdict.unread.candidate == ("q4",)
    assert verdict.comparisons[0].delta == pytest.approx(-1 / 20)


# --- agreement -------------------------------------------------------------------------------------------------------


def test_texts_that_the_candidate_alone_cannot_read_agree_in_nothing(tmp_path: Path) -> None:
    texts = tmp_path / "texts.txt"
    texts.write_text("\n".join(f"w{i} x{i}" for i in range(40)) + "\n")
    verdict = compare(texts, Unreading("x1", name="a"), Unreading("x1", "x5", "x9", name="b"), unlabelled=True)
    columns = verdict.candidate.outcomes.columns  # type: ignore[union-attr]
    assert np.isnan(columns["cosine_drift"][1])
    assert columns["cosine_drift"][[5, 9]].tolist() == [1.0, 1.0]
    assert columns["neighbour_overlap@10"][[5, 9]].tolist() == [0.0, 0.0]
    assert np.nanmax(np.delete(columns["cosine_drift"], [5, 9])) == pytest.approx(0, abs=1e-12)
    notes = " ".join(verdict.candidate.outcomes.notes)  # type: ignore[union-attr]
    assert "the candidate: 2 of 40 texts have no vector" in notes
    assert "the baseline: 1 of 40 texts have no vector" in notes


# --- the command -----------------------------------------------------------------------------------------------------


def test_stored_vectors_with_zeros_are_evaluated_with_exit_code_0(tmp_path: Path, capsys: Any) -> None:
    data = write_pairs(tmp_path)
    rows = [json.loads(line) for line in data.read_text().splitlines()]
    texts = [row[side] for row in rows for side in ("sentence1", "sentence2")]
    np.save(tmp_path / "v.npy", Unreading("x3").encode(texts))
    (tmp_path / "v.txt").write_text("\n".join(texts) + "\n")
    arguments = ["eval", str(tmp_path / "v.npy"), "--dataset", str(data), "--no-store", "--json"]
    assert calipers_cli(arguments) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["scored"]["pairs_without_vector"] == 1
    assert any("1 of 60 pairs have no vector" in warning for warning in document["warnings"])
