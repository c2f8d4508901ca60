"""Trust: what it fits, decides and refuses, and the one file that it is kept in."""

from __future__ import annotations

import json
import math
import pickle
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import save_file

import calipers
from calipers.core import CalipersError, DataError, InvalidOutput, RequestError
from calipers.metrics import calibration, geometry, predictors, search
from calipers.metrics import trust as metrics
from calipers.reliability import METHODS, Success, Trust, fitting

ISOTONIC = "map/vectors/isotonic"  # in a file
RNG = np.random.default_rng(11)
D = 12
CENTRES = RNG.normal(size=(30, D))
CORPUS = (np.repeat(CENTRES, 20, axis=0) + 0.3 * RNG.normal(size=(600, D))).astype(np.float32)
NEAR = CENTRES[RNG.integers(0, 30, 60)] + 0.3 * RNG.normal(size=(60, D))
FAR = RNG.normal(size=(60, D))
QUERIES = np.concatenate([NEAR, FAR])
LABELS = np.where(RNG.random(120) < np.r_[np.full(60, 0.95), np.full(60, 0.1)], 1.0, 0.0)
ODD = {"gibberish": -CORPUS.mean(axis=0) * 3 + 0.3 * RNG.normal(size=(40, D)), "vague": RNG.normal(size=(40, D))}


def fitted(**wishes: Any) -> Trust:
    return Trust.fit(CORPUS, query_vectors=QUERIES, labels=LABELS, **wishes)


@pytest.fixture(scope="module")
def trust() -> Trust:
    return fitted(odd=ODD, about={"model": "made"})


def neighbours_of(queries: np.ndarray, k: int = 10) -> np.ndarray:
    return CORPUS[search.nearest(queries, CORPUS, k)[1]]


def neighbour_cosines(queries: np.ndarray, k: int = 10) -> np.ndarray:
    return geometry.cosines_at(queries, CORPUS, search.nearest(queries, CORPUS, k)[1])


def test_a_calibrated_score_is_a_probability_that_tells_near_from_far(trust: Trust) -> None:
    found = trust.score(QUERIES, neighbours_of(QUERIES))
    assert trust.calibrated
    known = np.isfinite(found.probability)
    assert ((found.probability > 0) & (found.probability < 1))[known].all()
    assert np.nanmean(found.probability[:60]) > 0.75 > 0.35 > np.nanmean(found.probability[60:])
    assert set(found.decision[60:]) >= {"fall back"}
    assert (found.decision[:60] == "fall back").mean() < 0.2


def test_an_error_that_cannot_be_promised_answers_nothing_and_says_at_which_it_could() -> None:
    trust = fitted(error=0.01)
    assert trust.thresholds.answer is None
    assert "answer" not in set(trust.score(QUERIES, neighbours_of(QUERIES)).decision)
    possible = trust.promise["possible"]
    assert f"At 1% errors this model can answer nothing; at {possible:.0%} it can answer" in trust.thresholds.why
    assert fitted(error=possible).thresholds.answer is not None


def test_the_promise_is_tested_on_queries_that_the_map_has_not_seen() -> None:
    trust = fitted(error=0.25)
    promise = trust.promise
    assert promise["count"] == 60  # half of 120
    assert (trust.score_scores(neighbour_cosines(QUERIES)).decision == "answer").any()
    tail = sum(
        math.comb(round(promise["answered"] * 60), i) * 0.25**i * 0.75 ** (round(promise["answered"] * 60) - i)
        for i in range(promise["failures"] + 1)
    )
    assert tail <= 0.05
    surer = fitted(error=0.25, confidence=0.999).promise
    assert surer["threshold"] is None or surer["threshold"] >= promise["threshold"]


def test_each_kind_of_input_has_its_map_and_the_answer_names_it(trust: Trust) -> None:
    rows = search.nearest(QUERIES, CORPUS, 10)[1]
    assert list(trust.maps) == ["scores", "vectors", "corpus"]
    assert trust.score_scores(neighbour_cosines(QUERIES)).map == "scores"
    assert trust.score(QUERIES, neighbours_of(QUERIES)).map == "vectors"
    assert trust.score_in(QUERIES, CORPUS, rows).map == "corpus"
    extra = {name: RNG.random(120) for name in predictors.PREDICTORS["texts"]}
    with_texts = fitted(extra=extra)
    assert list(with_texts.maps) == ["scores", "vectors", "corpus", "texts"]
    assert with_texts.score_in(QUERIES, CORPUS, rows, extra=extra).map == "texts"
    chosen = with_texts.report["calibration"]["maps"]["texts"]["chosen"]["features"]
    without = with_texts.score_in(QUERIES, CORPUS, rows).map
    assert without == ("corpus" if set(chosen) & set(extra) else "texts")


@pytest.mark.parametrize(
    ("scores", "why"),
    [
        (np.zeros((2, 9)), "fitted with the 10 nearest documents of a query, found 9"),
        (np.zeros(10), r"takes scores \[q, 10\], found \[10\]"),
        (np.full((1, 10), 17.5), "scores must be cosines, from -1 to 1, found 17.5"),
    ],
)
def test_scores_that_do_not_fit_are_refused(trust: Trust, scores: np.ndarray, why: str) -> None:
    with pytest.raises(RequestError, match=why):
        trust.score_scores(scores)


@pytest.mark.parametrize(
    ("success", "expected"),
    [
        ("relevant", [1, 1, 0, 1]),
        ("first", [1, 0, 0, 0]),
        (Success("relevant", relevant_from=2), [1, 0, 0, 1]),
        (Success("ndcg", bar=0.6), [1, 1, 0, 0]),
    ],
)
def test_labels_of_success_by_hand(success: Any, expected: list[int]) -> None:
    ids = ["a", "b", "c", "d"]
    rows = np.array([[0, 1, 2], [0, 1, 2], [0, 1, 2], [0, 1, 2]])
    grades = [{"a": 2}, {"b": 1}, {"d": 1}, {"c": 2, "d": 2}]  # nDCG 1, 0.631, 0, 0.5 / 1.631 = 0.307
    measure = success if isinstance(success, Success) else Success(success)
    assert measure.labels(rows, grades, ids).tolist() == expected


def test_an_odd_query_has_no_probability(trust: Trust) -> None:
    for scores in (
        trust.score(ODD["gibberish"], neighbours_of(ODD["gibberish"])),
        trust.score_scores(neighbour_cosines(ODD["gibberish"])),
    ):
        flagged = scores.odd["gibberish"]
        assert flagged.mean() > 0.5
        assert np.isnan(scores.probability[flagged]).all()
        assert np.isfinite(scores.probability[~flagged]).all()


def test_judgements_are_the_same_as_the_labels_that_they_give(trust: Trust) -> None:
    ids = [f"d{i}" for i in range(len(CORPUS))]
    rows = search.nearest(QUERIES, CORPUS, 10)[1]
    qrels = [{ids[row[-1]]: 1.0} if right else {"gone": 1.0} for row, right in zip(rows, LABELS, strict=True)]
    found = Trust.fit(CORPUS, query_vectors=QUERIES, qrels=qrels, corpus_ids=ids)
    assert found.thresholds == fitted().thresholds


def test_isotonic_reads_what_the_logistic_map_says() -> None:
    found, smooth = (
        fitted(method=method).score(QUERIES, neighbours_of(QUERIES)).probability for method in ("isotonic", "logistic")
    )  # without detectors every query has a probability
    assert (np.diff(found[np.argsort(smooth)]) >= 0).all()
    assert (found != smooth).any()


def test_it_is_offered_at_the_front_door() -> None:
    assert calipers.Trust is Trust


def test_without_labels_the_score_is_no_probability() -> None:
    trust = Trust.fit(CORPUS, query_vectors=QUERIES)
    found = trust.score(QUERIES, neighbours_of(QUERIES))
    assert not trust.calibrated
    assert np.isnan(found.probability).all()
    assert trust.thresholds.on == "reliability"
    assert "R_q is neither a probability nor a promise, so nothing is answered on it" in trust.thresholds.why
    assert "judged queries calibrate it" in trust.thresholds.why
    shares = [float((found.decision == name).mean()) for name in ("answer", "fall back")]
    assert shares == pytest.approx([0, 0.025], abs=0.01)


def test_without_queries_documents_ask_for_others_than_themselves() -> None:
    trust = Trust.fit(CORPUS)
    assert "600 documents used as queries (natural queries score differently)" in trust.thresholds.why
    own = np.arange(600)
    rows = search.nearest(CORPUS, CORPUS, 10, exclude=own)[1]
    expected = np.quantile(metrics.parts_in(CORPUS, CORPUS, rows, trust.codec).reliability, 0.025)
    assert trust.thresholds.fall_back == pytest.approx(expected)


def test_documents_that_stand_in_for_queries_are_not_those_that_the_codec_was_fitted_on() -> None:
    documents, seed = 25_000, 42
    fitted_on = geometry.sample(documents, 20_000, seed=seed)  # as codecs.fit draws them
    assert not np.isin(fitting._stand_ins(documents, seed), fitted_on).any()
    assert len(fitting._stand_ins(600, seed)) == 600


def test_a_query_without_any_relation_is_never_answered() -> None:
    """Most neighbourhoods of a random space of few documents have a coherence below 0, so that R_q is 0."""
    corpus = np.random.default_rng(0).normal(size=(60, 200)).astype(np.float32)
    corpus[50:] = corpus[50] + 0.1 * corpus[50:]  # ten that belong together
    queries = np.random.default_rng(1).normal(size=(200, 200)).astype(np.float32)
    trust = Trust.fit(corpus, k=3)
    rows = search.nearest(queries, corpus, 3)[1]
    scores = trust.score_in(queries, corpus, rows)
    unrelated = scores.parts.reliability == 0
    assert unrelated.sum() > 20
    assert set(scores.decision[unrelated]) == {"fall back"}
    old = replace(trust, thresholds=replace(trust.thresholds, answer=0.0, fall_back=0.0))  # from an older file
    assert set(old.score_in(queries, corpus, rows).decision[unrelated]) == {"fall back"}


@pytest.mark.parametrize("value", [0.0, 1.0])
def test_queries_that_all_end_alike_calibrate_nothing(value: float) -> None:
    trust = Trust.fit(CORPUS, query_vectors=QUERIES, labels=np.full(120, value))
    assert not trust.calibrated
    assert "nothing to distinguish" in trust.thresholds.why
    assert "nothing to distinguish" in trust.report["calibration"]["reason"]


def test_unjudged_queries_are_left_out(trust: Trust) -> None:
    labels = LABELS.copy()
    labels[::3] = np.nan
    found = Trust.fit(CORPUS, query_vectors=QUERIES, labels=labels)
    assert found.report["calibration"]["queries"] == 80


def test_a_detector_decides_only_where_it_is_good(trust: Trust) -> None:
    assert trust.detectors["gibberish"].acts
    assert not trust.detectors["vague"].acts  # drawn like half of the real queries
    found = trust.score(ODD["gibberish"], neighbours_of(ODD["gibberish"]))
    assert found.odd["gibberish"].mean() > 0.7
    assert set(found.decision[found.odd["gibberish"]]) == {"fall back"}
    row = int(np.flatnonzero(found.odd["gibberish"])[0])
    assert "it looks gibberish" in trust.reason(found, row)


def test_a_vague_query_gets_at_most_a_hedge() -> None:
    trust = fitted(odd={"vague": ODD["gibberish"], "strange": ODD["gibberish"]})
    found = trust.score(QUERIES, neighbours_of(QUERIES))
    assert trust.detectors["vague"].acts
    flagged = found.odd["vague"]
    assert "answer" not in set(found.decision[flagged])


def test_real_queries_are_called_odd_in_five_percent_at_most(trust: Trust) -> None:
    told = trust.report["detectors"][0]
    assert (told["kind"], told["queries"], told["real_queries"]) == ("gibberish", 40, 60)  # those that make the map
    assert told["auroc"]["interval"][0] <= told["auroc"]["value"] <= told["auroc"]["interval"][1]
    real = trust.score(QUERIES, neighbours_of(QUERIES)).odd["gibberish"]
    assert real.mean() <= 0.1


def test_what_cannot_be_scored_falls_back(trust: Trust) -> None:
    known = np.zeros((2, 10), bool)
    known[1] = True
    found = trust.score(QUERIES[:2], neighbours_of(QUERIES[:2]), present=known)
    assert found.decision[0] == "fall back"
    assert "there is no score" in trust.reason(found, 0)
    assert not found.odd["gibberish"][0]


def test_one_at_a_time_is_the_same_as_all_at_once(trust: Trust) -> None:
    near = neighbours_of(QUERIES)
    together = trust.score(QUERIES, near)
    alone = [trust.score(QUERIES[i : i + 1], near[i : i + 1]) for i in range(20)]
    assert [found.probability[0] for found in alone] == pytest.approx(together.probability[:20].tolist(), abs=1e-7)
    assert [found.decision[0] for found in alone] == together.decision[:20].tolist()
    assert len(trust.score(QUERIES[:0], near[:0])) == 0


@pytest.mark.parametrize("k", [9, 11, 50])
def test_another_number_of_neighbours_than_the_fitted_one_is_refused(trust: Trust, k: int) -> None:
    with pytest.raises(RequestError, match=f"fitted with the 10 nearest documents of a query, found {k}"):
        trust.score(QUERIES, neighbours_of(QUERIES, k))
    with pytest.raises(RequestError, match=f"fit it again with `k` = {k}"):
        trust.score_in(QUERIES, CORPUS, search.nearest(QUERIES, CORPUS, k)[1])


def test_vectors_of_another_model_are_refused_where_its_fingerprint_is_given() -> None:
    trust = fitted(about={"model": "made", "model_fingerprint": "sha256:a", "corpus_fingerprint": "sha256:c"})
    near = neighbours_of(QUERIES)
    assert len(trust.score(QUERIES, near, fingerprint="sha256:a")) == 120
    with pytest.raises(RequestError, match=r"fitted for the model made \(sha256:a\), found sha256:b"):
        trust.score(QUERIES, near, fingerprint="sha256:b")


def test_the_same_seed_gives_the_same_score() -> None:
    one, two = fitted(seed=5), fitted(seed=5)
    assert one.report == two.report
    assert one.thresholds == two.thresholds


@pytest.mark.parametrize(
    ("wishes", "why"),
    [
        ({"codec": "zip"}, "no codec 'zip'"),
        ({"k": 1}, "`k` must be at least 2"),
        ({"error": 0.0}, "`error` must be between 0 and 1"),
        ({"confidence": 1.0}, "`confidence` must be between 0 and 1"),
        ({"success": "often"}, "`success` must be one of relevant, first, ndcg"),
        ({"method": "magic"}, "no map 'magic'"),
        ({"odd": {"vague": np.ones((3, D + 1))}}, r"vectors of vague are \[3, 13\]"),
        ({"qrels": [{}] * 120}, "`labels` and `qrels` are mutually exclusive"),
    ],
)
def test_what_cannot_be_asked_is_refused(wishes: dict[str, Any], why: str) -> None:
    with pytest.raises(CalipersError, match=why):
        fitted(**wishes)


def test_vectors_that_do_not_fit_are_refused(trust: Trust) -> None:
    with pytest.raises(InvalidOutput, match="zero vectors, NaN or infinite numbers for 1 of 600 documents"):
        Trust.fit(np.where(np.arange(600)[:, None] == 4, 0, CORPUS))
    with pytest.raises(DataError, match="at least 3 vectors"):
        Trust.fit(CORPUS[:2])
    with pytest.raises(DataError, match="120 queries have 7 labels"):
        Trust.fit(CORPUS, query_vectors=QUERIES, labels=np.ones(7))
    with pytest.raises(DataError, match=r"0, 1 or NaN, found 0\.5"):
        Trust.fit(CORPUS, query_vectors=QUERIES, labels=np.full(120, 0.5))
    with pytest.raises(DataError, match="an id for each of 600 documents"):
        Trust.fit(CORPUS, query_vectors=QUERIES, qrels=[{}] * 120)
    with pytest.raises(RequestError, match="real ones"):
        Trust.fit(CORPUS, odd=ODD)
    with pytest.raises(RequestError, match=r"takes queries \[q, 12\] and their neighbours \[q, k, 12\]"):
        trust.score(QUERIES[:, :5], neighbours_of(QUERIES))
    with pytest.raises(RequestError, match="`present` has the shape"):
        trust.score(QUERIES, neighbours_of(QUERIES), present=np.ones((2, 2), bool))


# --- a second stage ----------------------------------------------------------------------------------------------


def staged(**wishes: Any) -> tuple[Trust, np.ndarray]:
    """Half of 200 queries are nearly a document, which is relevant. Of the others any of the first ten is, and a
    reranker puts it first."""
    rng = np.random.default_rng(2)
    queries = np.concatenate([CORPUS[:100], NEAR[rng.integers(0, 60, 100)]]) + 0.02 * rng.normal(size=(200, D))
    rows = search.nearest(queries, CORPUS, 10)[1]
    right = np.r_[np.zeros(100, int), rng.integers(0, 10, 100)]
    qrels = [{str(rows[query, place]): 1} for query, place in enumerate(right)]
    scores = (np.arange(10) == right[:, None]).astype(float)
    reranked = predictors.reordered(rows, scores)
    given = {"qrels": qrels, "corpus_ids": list(map(str, range(600))), "success": "first", "error": 0.2}
    return Trust.fit(CORPUS, query_vectors=queries, **{**given, "reranked": reranked, **wishes}), queries


def test_a_second_stage_is_decided_where_it_is_worth_its_calls(tmp_path: Path) -> None:
    trust, queries = staged()
    trade = trust.report["calibration"]["maps"]["vectors"]["rerank"]
    assert (trade["after"], trade["kept"]) == (1.0, pytest.approx(1.0, abs=0.05))
    assert 0.3 < 1 - trade["calls"] < 0.6
    trust.save(tmp_path / "t")
    for one in (trust, Trust.load(tmp_path / "t")):
        scores = one.score(queries, neighbours_of(queries))
        assert (scores.decision[:100] == "answer").mean() > 0.9
        assert (scores.decision[100:] == "rerank").mean() > 0.9
        assert one.reason(scores, int(np.flatnonzero(scores.decision == "rerank")[0])).endswith(
            f"below {one.maps['vectors'].thresholds.rerank:.3f}: a second stage is worth its call"
        )


def test_without_a_reranker_or_with_one_that_does_not_help_nothing_is_reranked() -> None:
    none, queries = staged(reranked=None)
    assert none.report["calibration"]["maps"]["vectors"]["rerank"] is None
    useless, _ = staged(reranked=search.nearest(queries, CORPUS, 10)[1])
    trade = useless.report["calibration"]["maps"]["vectors"]["rerank"]
    assert (trade["threshold"], trade["gain"]) == (None, 0.0)
    for trust in (none, useless):
        assert "rerank" not in set(trust.score(queries, neighbours_of(queries)).decision)


def test_an_order_that_cannot_be_judged_is_refused() -> None:
    with pytest.raises(RequestError, match="`reranked` needs `query_vectors`, `qrels` and `corpus_ids`"):
        fitted(reranked=np.zeros((120, 10), int))
    with pytest.raises(DataError, match=r"`reranked` must hold rows of the corpus \[200, n\], found \[3, 10\]"):
        staged(reranked=np.zeros((3, 10), int))


# --- the file --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", ["fp16", "int8", "int4", "binary", "pq"])
@pytest.mark.parametrize("method", METHODS)
def test_a_score_that_was_kept_is_the_same_score(codec: str, method: Any, tmp_path: Path) -> None:
    before = fitted(codec=codec, method=method, odd=ODD, about={"model": "made", "corpus": "c"})
    before.save(tmp_path / "t.safetensors")
    after = Trust.load(tmp_path / "t.safetensors")
    near = neighbours_of(QUERIES)
    one, two = before.score(QUERIES, near), after.score(QUERIES, near)
    assert np.array_equal(one.probability, two.probability, equal_nan=True)
    assert np.array_equal(
        before.score_scores(one.parts.cosines).probability,
        after.score_scores(two.parts.cosines).probability,
        equal_nan=True,
    )
    assert one.decision.tolist() == two.decision.tolist()
    assert (after.k, after.method, after.thresholds, after.about) == (10, method, before.thresholds, before.about)
    assert [path.name for path in tmp_path.iterdir()] == ["t.safetensors"]


def test_a_score_without_maps_is_kept_as_well(tmp_path: Path) -> None:
    Trust.fit(CORPUS).save(tmp_path / "t")
    assert not Trust.load(tmp_path / "t").calibrated


def changed(path: Path, change: Callable[[dict[str, Any], dict[str, np.ndarray]], Any]) -> Path:
    with safe_open(path, framework="numpy") as file:
        header = json.loads(file.metadata()["calipers"])
        arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    change(header, arrays)
    save_file(arrays, path, metadata={"calipers": json.dumps(header)})
    return path


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda h, a: h.update(schema="calipers/trust-file/9"), "expected the schema"),
        (lambda h, a: h.update(codec="zip"), "expected 'codec' to be fp16 or"),
        (lambda h, a: h.update(dimensions=13), r"expected codec/low as float32 \[13\], found float32 \[12\]"),
        (lambda h, a: h.update(dimensions=True), "'dimensions' to be a whole number"),
        (lambda h, a: h.update(k=0), "'k' to be a whole number from 2 on"),
        (lambda h, a: h.update(maps=["logistic"]), "'maps' to be an object"),
        (lambda h, a: h["maps"].update(magic=h["maps"]["scores"]), "no map of 'magic'"),
        (lambda h, a: h["maps"]["scores"].update(features=["stability"]), "reads 'stability', which that input does"),
        (lambda h, a: h["maps"]["scores"].update(features=["magic"]), "no predictor 'magic'"),
        (lambda h, a: a.pop("reference/gap"), "expected the array reference/gap"),
        (lambda h, a: a.update({"background/mean": np.zeros(3, np.float32)}), "expected background/mean"),
        (lambda h, a: h["thresholds"].update(on="reliability"), "its thresholds are on the reliability"),
        (lambda h, a: h["thresholds"].update(fall_back="low"), "'fall_back' to be a finite number"),
        (
            lambda h, a: h["detectors"].update(other={"threshold": 0.5, "acts": True}),
            "expected the array detector/other",
        ),
        (lambda h, a: h["detectors"]["vague"].update(acts="yes"), "yes or no for 'acts'"),
        (lambda h, a: h.update(report=[1]), "'report' to be an object"),
        (lambda h, a: a.pop("map/vectors/logistic/weights"), "found none"),
        (lambda h, a: a.update({"codec/low": a["codec/low"] * np.nan}), "NaN or infinite"),
        (lambda h, a: a.update({"codec/step": -a["codec/step"]}), "step of its codec is not above 0"),
        (lambda h, a: a.update({"map/vectors/logistic/scale": 0 * a["map/vectors/logistic/scale"]}), "not above 0"),
        (
            lambda h, a: a.update({"map/vectors/isotonic/probability": a["map/vectors/isotonic/probability"] + 5}),
            "outside 0 to 1",
        ),
        (lambda h, a: a.update({"map/vectors/isotonic/score": a["map/vectors/isotonic/score"] * 0}), "do not rise"),
        (lambda h, a: a.update({"surprise": np.zeros(2)}), "array 'surprise', which is not part of a trust file"),
    ],
)
def test_a_file_that_does_not_fit_is_refused_with_one_sentence(
    change: Callable[..., Any], why: str, trust: Trust, tmp_path: Path
) -> None:
    trust.save(tmp_path / "t")
    with pytest.raises(DataError, match=why) as refused:
        Trust.load(changed(tmp_path / "t", change))
    assert "\n" not in str(refused.value)


def test_a_file_of_the_version_before_opens_with_its_one_map(trust: Trust, tmp_path: Path) -> None:
    """The layout of calipers/trust-file/2: one logistic and one isotonic map, on four parts."""
    logistic = calibration.fit_logistic(metrics.parts(QUERIES, neighbours_of(QUERIES), trust.codec).features, LABELS)
    trust.save(tmp_path / "t")

    def make_old(h: dict[str, Any], a: dict[str, np.ndarray]) -> None:
        isotonic = {name: a[f"map/vectors/isotonic/{name}"] for name in ("score", "probability")}
        for name in list(a):
            if not name.startswith(("codec/", "detector/")):
                del a[name]
        a.update({f"map/logistic/{name}": np.atleast_1d(value) for name, value in vars(logistic).items()})
        a.update({f"map/isotonic/{name}": value for name, value in isotonic.items()})
        for entry in h["detectors"].values():
            del entry["features"]
        h.update(schema="calipers/trust-file/2", maps=["logistic", "isotonic"])
        del h["score_detectors"], h["reference"]

    old = Trust.load(changed(tmp_path / "t", make_old))
    scores = old.score(QUERIES, neighbours_of(QUERIES))
    assert scores.map == "vectors"
    expected = logistic(scores.parts.features)
    known = np.isfinite(scores.probability)
    assert scores.probability[known] == pytest.approx(expected[known])
    assert old.score_in(QUERIES, CORPUS, search.nearest(QUERIES, CORPUS, 10)[1]).map == "vectors"
    assert set(old.score_scores(neighbour_cosines(QUERIES)).decision) == {"fall back"}


def test_other_files_are_no_trust_files(tmp_path: Path) -> None:
    (tmp_path / "pickle").write_bytes(pickle.dumps({"a": 1}))
    (tmp_path / "empty").write_bytes(b"")
    save_file({"a": np.ones(2)}, tmp_path / "weights")
    save_file({"a": np.ones(2)}, tmp_path / "list", metadata={"calipers": "[1]"})
    save_file({"a": np.ones(2)}, tmp_path / "broken", metadata={"calipers": "{"})
    for name in ("pickle", "empty", "weights", "list", "broken"):
        with pytest.raises(DataError, match="is no trust file"):
            Trust.load(tmp_path / name)
    with pytest.raises(RequestError, match="there is no file"):
        Trust.load(tmp_path / "nowhere")
    with pytest.raises(RequestError, match="cannot be written"):
        Trust.fit(CORPUS).save(tmp_path / "no" / "folder")
