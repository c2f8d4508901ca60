"""A trust score of awkward input: dead vectors, few queries, judgements that do not fit, files that are none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from calipers.cli import run
from calipers.core import DataError, InvalidOutput, ModelInfo, RequestError
from calipers.reliability import Trust, api
from calipers.reliability.api import TrustOptions
from calipers.reliability.text import _show_query
from tests.support.samples import write_jsonl

RNG = np.random.default_rng(3)
CORPUS = RNG.normal(size=(80, 6)).astype(np.float32)
QUERIES = RNG.normal(size=(50, 6)).astype(np.float32)
IDS = [f"d{i}" for i in range(80)]
QUERY_IDS = [f"q{i}" for i in range(50)]


class Model:
    """A vector for each text, drawn from its letters; `dead` texts have what is said there."""

    info = ModelInfo("test", "made", None, "cpu", "sha256:made")

    def __init__(self, **dead: float) -> None:
        self.dead = dead

    def encode(self, texts: list[str], **_: object) -> np.ndarray:
        return np.array([self._vector(text) for text in texts], np.float32)

    def _vector(self, text: str) -> np.ndarray:
        if text in self.dead:
            return np.full(6, self.dead[text])
        return np.random.default_rng([*text.encode()]).normal(size=6)


class Constant(Model):
    def encode(self, texts: list[str], **_: object) -> np.ndarray:
        return np.ones((len(texts), 6), np.float32)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_jsonl(tmp_path / "corpus.jsonl", [{"_id": id, "text": f"text {id}"} for id in IDS])
    write_jsonl(tmp_path / "queries.jsonl", [{"_id": id, "text": f"query {id}"} for id in QUERY_IDS])
    return tmp_path


# --- dead vectors ------------------------------------------------------------------------------------------------


def test_one_vector_for_all_documents_is_invalid(folder: Path) -> None:
    with pytest.raises(InvalidOutput, match="the same vector for all 80 documents"):
        Trust.fit(np.ones((80, 6)))
    with pytest.raises(InvalidOutput, match="the same vector for all 80 documents"):
        api.trust(Constant(), str(folder), ["text d1"])
    api.trust(Model(), str(folder)).trust.save(folder / "t")
    with pytest.raises(InvalidOutput, match="the same vector for all 80 documents"):
        api.trust(Constant(), str(folder), ["text d1"], options=TrustOptions(load=folder / "t"))


def test_one_text_in_all_documents_is_the_fault_of_the_data(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "corpus.jsonl", [{"_id": str(i), "text": "same"} for i in range(5)])
    with pytest.raises(DataError, match="holds one text only"):
        api.trust(Model(), str(tmp_path), ["same"])


def test_a_constant_model_ends_with_the_code_of_invalid_output(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CALIPERS_STORE", str(folder / "store"))
    np.save(folder / "v.npy", np.ones((80, 6), np.float32))
    (folder / "v.txt").write_text("".join(f"text {id}\n" for id in IDS), encoding="utf-8")
    assert run(["trust", str(folder / "v.npy"), "--corpus", str(folder), "text d1"]) == 4
    assert "INVALID" in capsys.readouterr().err


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_question_that_is_not_finite_is_invalid_and_named(folder: Path, value: float) -> None:
    with pytest.raises(InvalidOutput, match=r"NaN or infinite numbers for 1 of 2 queries \(rows bad\)"):
        api.trust(Model(bad=value), str(folder), ["bad", "good"])


def test_a_question_without_a_direction_falls_back(folder: Path) -> None:
    assert api.trust(Model(bad=0.0), str(folder), ["bad"]).scores.decision.tolist() == ["fall back"]


# --- judgements --------------------------------------------------------------------------------------------------


def fit(**wishes: Any) -> Trust:
    return Trust.fit(CORPUS, query_vectors=QUERIES, corpus_ids=IDS, **wishes)


def test_judgements_by_query_id_are_those_in_order() -> None:
    nearest = np.argmax(QUERIES @ CORPUS.T / np.linalg.norm(CORPUS, axis=1), axis=1)
    ordered = [{IDS[row] if i % 2 else "absent": 1} for i, row in enumerate(nearest)]
    ordered[7] = {}  # which nobody judged
    by_id = {id: grades for id, grades in reversed(list(zip(QUERY_IDS, ordered, strict=True))) if grades}
    found = fit(qrels=by_id, query_ids=QUERY_IDS)
    assert found.calibrated
    assert found.report == fit(qrels=ordered).report
    assert found.report["calibration"]["queries"] == 49


@pytest.mark.parametrize(
    ("wishes", "error", "why"),
    [
        ({"qrels": {"q1": {"d1": 1}}}, RequestError, "give query_ids= as well"),
        ({"qrels": {"q1": {"d1": 1}}, "query_ids": ["q1"]}, DataError, "50 queries have 1 query_ids"),
        ({"qrels": {"x": {"d1": 1}}, "query_ids": QUERY_IDS}, DataError, "judge none of the queries"),
        ({"qrels": {"q1": ["d1"]}, "query_ids": QUERY_IDS}, RequestError, "found list instead of document id → grade"),
        ({"qrels": [["d1"]] * 50}, RequestError, "qrels are a mapping, document id → grade, for each query"),
        ({"qrels": [{"e1": 1}] * 50}, DataError, "the corpus holds none of the 1 judged documents"),
    ],
)
def test_judgements_of_another_shape_are_refused(wishes: dict[str, Any], error: type, why: str) -> None:
    with pytest.raises(error, match=why):
        fit(**wishes)


def test_judged_documents_that_the_corpus_lacks_are_told(folder: Path) -> None:
    options = TrustOptions(calibrate=str(folder / "qrels.tsv"))
    lines = [f"{id}\te{i}\t1\n" for i, id in enumerate(QUERY_IDS)]
    (folder / "qrels.tsv").write_text("query-id\tcorpus-id\tscore\n" + "".join(lines))
    with pytest.raises(DataError, match=r"none of the 50 documents that .* judges .*: it judges e0, e1, e2 and 47"):
        api.trust(Model(), str(folder), ["x"], options=options)
    (folder / "qrels.tsv").write_text("query-id\tcorpus-id\tscore\n" + "".join([*lines[1:], "q0\td0\t1\n"]))
    found = api.trust(Model(), str(folder), ["x"], options=options)
    told = next(note for note in found.notes if note.startswith("49 of 50 judged documents are not in the corpus"))
    assert told.endswith("(e1, e2, e3, e4, e5 and 44 more)")


# --- few queries -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("count", "told"), [(1, "only 1 query: fewer than 40 set no thresholds"), (39, "only 39 queries:")]
)
def test_few_queries_leave_the_thresholds_to_documents(count: int, told: str) -> None:
    limits, alone = Trust.fit(CORPUS, query_vectors=QUERIES[:count]).thresholds, Trust.fit(CORPUS).thresholds
    assert (limits.answer, limits.fall_back) == (alone.answer, alone.fall_back)
    assert "80 documents used as queries" in limits.why
    assert told in limits.why


def test_forty_queries_set_the_thresholds() -> None:
    assert "2.5% of 40 queries fall back" in Trust.fit(CORPUS, query_vectors=QUERIES[:40]).thresholds.why


def test_one_query_is_spoken_of_as_one() -> None:
    trust = Trust.fit(CORPUS, query_vectors=QUERIES[:1], labels=np.ones(1), odd={"vague": QUERIES[1:30]})
    assert "the only query succeeds" in trust.thresholds.why
    assert "29 vague and 1 real query:" in trust.report["detectors"][0]["reason"]


# --- what is printed, and the file -------------------------------------------------------------------------------


def test_a_detector_that_does_not_decide_only_tells(capsys: pytest.CaptureFixture[str]) -> None:
    from rich.console import Console

    numbers = dict.fromkeys(("probability", "reliability", "stability", "coherence", "top_score", "margin"), 0.5)
    told = {
        "query": "x",
        "decision": "hedge",
        "reason": "",
        "map": "texts",
        "odd": {"vague": True, "gibberish": True},
        **numbers,
    }
    _show_query(Console(width=120), {**told, "neighbours": []}, {"gibberish"}, details=True)
    assert "vague (reported only), gibberish" in capsys.readouterr().out


def test_an_empty_file_is_named_with_what_was_expected(tmp_path: Path) -> None:
    (tmp_path / "t").write_bytes(b"")
    with pytest.raises(DataError, match=r"t is empty and so is no trust file: expected one that `Trust\.save` wrote"):
        Trust.load(tmp_path / "t")
