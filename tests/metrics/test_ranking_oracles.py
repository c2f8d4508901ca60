"""Ranking measures against pytrec_eval, trec_eval's own test, exact fractions over all orders, and scikit-learn."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from itertools import permutations, product
from pathlib import Path

import numpy as np
import pytest
import pytrec_eval
from hypothesis import given
from hypothesis import strategies as st
from sentence_transformers.cross_encoder.evaluation import CrossEncoderRerankingEvaluator
from sklearn.metrics import average_precision_score, ndcg_score

from calipers.metrics import ranking
from calipers.metrics.ranking import Rankings
from tests.support.rankings import from_runs, ideal_of_retrieved

Run = dict[str, dict[str, float]]
Qrels = dict[str, dict[str, int]]

CUTS = (1, 3, 10, 1000)
NAMES = {"ndcg": "ndcg", "map": "average_precision", "recip_rank": "mrr", "Rprec": "r_precision"}
CUT_NAMES = {"ndcg_cut": "ndcg", "map_cut": "average_precision", "P": "precision", "recall": "recall", "success": "hit"}


def ours(name: str, rankings: Rankings, **how: object) -> np.ndarray:
    """Our value per query of a measure that trec_eval names so: map, ndcg_cut_10, …"""
    stem, _, cut = name.rpartition("_")
    if stem in CUT_NAMES:
        return getattr(ranking, CUT_NAMES[stem])(rankings, int(cut), **how)
    return getattr(ranking, NAMES[name])(rankings, **how)


def random_run(seed: int, *, distinct_scores: int | None) -> tuple[Run, Qrels]:
    """Queries of 0 to 60 documents, graded 0 to 3, some judged documents not retrieved."""
    rng = np.random.default_rng(seed)
    run: Run = {}
    qrels: Qrels = {}
    for query in range(40):
        names = [f"d{i}" for i in rng.permutation(90)]
        result = int(rng.integers(1, 61))
        drawn = rng.permutation(result) / 64 if distinct_scores is None else rng.integers(0, distinct_scores, result)
        run[f"q{query}"] = dict(zip(names, map(float, drawn), strict=False))
        qrels[f"q{query}"] = {name: int(rng.integers(0, 4)) for name in rng.choice(names, 20, replace=False)}
        qrels[f"q{query}"]["d0"] = 3
    return run, qrels


def pytrec(run: Run, qrels: Qrels, level: int) -> dict[str, dict[str, float]]:
    """pytrec_eval's measures, as measure → query → value."""
    cuts = ",".join(map(str, CUTS))
    measures = {*NAMES, *(f"{name}.{cuts}" for name in CUT_NAMES)}
    result = pytrec_eval.RelevanceEvaluator(qrels, measures, relevance_level=level).evaluate(run)
    by_measure: dict[str, dict[str, float]] = defaultdict(dict)
    for query, values in result.items():
        for name, value in values.items():
            by_measure[name][query] = value
    return by_measure


@pytest.mark.parametrize("level", [1, 2])
@pytest.mark.parametrize(
    ("distinct_scores", "ties"), [(None, "expected"), (None, "trec_eval"), (5, "trec_eval"), (1, "trec_eval")]
)
def test_every_measure_agrees_with_pytrec_eval(distinct_scores: int | None, ties: str, level: int) -> None:
    run, qrels = random_run(level, distinct_scores=distinct_scores)
    rankings = from_runs(run, qrels, relevant_from=level)
    theirs = pytrec(run, qrels, level)
    assert len(theirs) == len(NAMES) + len(CUT_NAMES) * len(CUTS)
    for name, wanted in theirs.items():
        result = dict(zip(rankings.queries or (), ours(name, rankings, ties=ties), strict=True))
        assert result == pytest.approx(wanted, abs=1e-9), name


def test_trec_eval_reads_scores_in_single_precision_and_so_do_its_ties() -> None:
    run, qrels = {"q": {"a": 1 + 1e-12, "b": 1.0}}, {"q": {"a": 1}}
    assert ranking.mrr(from_runs(run, qrels), ties="trec_eval") == pytrec(run, qrels, 1)["recip_rank"]["q"] == 0.5
    assert ranking.mrr(from_runs(run, qrels)) == 1.0


def test_ids_beyond_ascii_are_ordered_as_trec_eval_orders_them() -> None:
    names = ["é", "z", "Z", "日本", "\U0001f600", "d10", "d9", ""]
    run = {"q": dict.fromkeys(names, 1.0)}
    for name in names:
        qrels = {"q": {name: 1}}
        assert ranking.mrr(from_runs(run, qrels), ties="trec_eval")[0] == pytest.approx(
            pytrec(run, qrels, 1)["recip_rank"]["q"]
        )


@pytest.fixture(scope="module")
def trec_example(data: Callable[[str], Path]) -> tuple[Rankings, dict[str, dict[str, str]]]:
    """trec_eval's own test: the rankings, and measure → topic → the figure as printed."""
    folder = data("trec-eval")
    run: Run = defaultdict(dict)
    qrels: Qrels = defaultdict(dict)
    printed: dict[str, dict[str, str]] = defaultdict(dict)
    for line in (folder / "results.test").read_text().splitlines():
        topic, _, name, _, score, _ = line.split()
        run[topic][name] = float(score)
    for line in (folder / "qrels.test").read_text().splitlines():
        topic, _, name, grade = line.split()
        qrels[topic][name] = int(grade)
    for line in (folder / "out.test.aq").read_text().splitlines():
        measure, topic, *figure = line.split()
        printed[measure][topic] = " ".join(figure)
    return from_runs(run, qrels), printed


def test_trec_evals_own_test_is_met_to_the_digits_printed(trec_example) -> None:  # type: ignore[no-untyped-def]
    rankings, printed = trec_example
    compared = [name for name in printed if name in NAMES or name.rpartition("_")[0] in CUT_NAMES]
    assert len(compared) == 4 + 9 * 4 + 3  # nine cut-offs of four measures, and success at 1, 5, 10
    for name in compared:
        values = ours(name, rankings, ties="trec_eval")
        result = dict(zip(rankings.queries, values, strict=True)) | {"all": ranking.mean_over_queries(values).value}
        assert {topic: f"{value:.4f}" for topic, value in result.items()} == printed[name], name


def test_unjudged_documents_of_trec_evals_test_are_met(trec_example) -> None:  # type: ignore[no-untyped-def]
    rankings, printed = trec_example
    for k in (5, 10, 20):
        unjudged = 1 - ranking.judged(rankings, k, ties="trec_eval")
        wanted = [float(printed[f"unj_{k}"][topic]) for topic in rankings.queries]
        assert unjudged == pytest.approx(wanted, abs=5e-5)


# One query: (score, grade) of what was retrieved, and grades of relevant documents that were not.
small_query = st.tuples(
    st.lists(st.tuples(st.integers(0, 2), st.integers(0, 3)), max_size=5), st.lists(st.integers(1, 3), max_size=2)
)
Query = tuple[list[tuple[int, int]], list[int]]


def small_rankings(queries: Sequence[Query], **how: object) -> Rankings:
    scores, grades = (np.array([d[i] for docs, _ in queries for d in docs], dtype=float) for i in (0, 1))
    ideals = [[g for _, g in docs if g > 0] + missing for docs, missing in queries]
    return Rankings(
        np.cumsum([0] + [len(docs) for docs, _ in queries]),
        scores,
        grades,
        np.cumsum([0] + [len(ideal) for ideal in ideals]),
        np.array([g for ideal in ideals for g in ideal], dtype=float),
        judged=grades != 2,
        **how,  # type: ignore[arg-type]
    )


def orders(documents: list[tuple[int, int]]) -> Iterator[list[int]]:
    """Grades in every order that the scores allow."""
    levels = sorted({score for score, _ in documents}, reverse=True)
    tied = [[grade for score, grade in documents if score == level] for level in levels]
    for chosen in product(*map(permutations, tied)):
        yield [grade for group in chosen for grade in group]


def dcg(grades: Sequence[int], gain: Callable[[int], int]) -> Fraction:
    return sum((gain(g) * Fraction(1 / math.log2(i + 2)) for i, g in enumerate(grades)), Fraction(0))


def exact(name: str, grades: list[int], ideal: list[int], k: int, level: int) -> Fraction | None:
    """A measure of one untied list as its definition says, in fractions; None where it has no value."""
    hits = [g >= level for g in grades]
    top, relevant = hits[:k], sum(g >= level for g in ideal)
    if name in ("linear", "exponential"):
        gain = (lambda g: g) if name == "linear" else (lambda g: 2**g - 1)
        best = dcg(sorted(ideal, reverse=True)[:k], gain)
        return dcg(grades[:k], gain) / best if best else None
    if name == "judged":
        return Fraction(sum(g != 2 for g in grades[:k]), len(grades[:k])) if grades else None
    if relevant == 0:
        return None
    return {
        "mrr": lambda: Fraction(1, 1 + top.index(True)) if any(top) else Fraction(0),
        "hit": lambda: Fraction(any(top)),
        "average_precision": lambda: (
            sum((Fraction(sum(top[: i + 1]), i + 1) for i, h in enumerate(top) if h), Fraction(0)) / relevant
        ),
        "recall": lambda: Fraction(sum(top), relevant),
        "precision": lambda: Fraction(sum(top), k),
        "r_precision": lambda: Fraction(sum(hits[:relevant]), relevant),
    }[name]()


def expected(name: str, query: Query, k: int, level: int) -> float:
    documents, missing = query
    ideal = [g for _, g in documents if g > 0] + missing
    values = [exact(name, grades, ideal, k, level) for grades in orders(documents)]
    defined = [value for value in values if value is not None]
    return float(sum(defined) / len(defined)) if defined else math.nan


@given(st.lists(small_query, min_size=1, max_size=3), st.integers(1, 7), st.sampled_from([None, 2]))
def test_expected_values_are_the_exact_means_over_all_orders(queries: list[Query], k: int, level: int | None) -> None:
    rankings = small_rankings(queries, relevant_from=level)
    result = {name: getattr(ranking, name)(rankings, k) for name in ("mrr", "hit", "average_precision", "recall")}
    result |= {name: ranking.ndcg(rankings, k, gain=name) for name in ("linear", "exponential")}  # type: ignore[arg-type]
    result |= {"precision": ranking.precision(rankings, k), "judged": ranking.judged(rankings, k)}
    result |= {"r_precision": ranking.r_precision(rankings)}
    for name, values in result.items():
        wanted = [expected(name, query, k, level or 1) for query in queries]
        np.testing.assert_allclose(values, wanted, atol=1e-12, err_msg=name)


@given(st.lists(small_query, min_size=1, max_size=3))
def test_no_cut_off_is_a_cut_off_behind_the_last_document(queries: list[Query]) -> None:
    rankings = small_rankings(queries)
    for measure in (ranking.ndcg, ranking.mrr, ranking.hit, ranking.average_precision, ranking.recall, ranking.judged):
        np.testing.assert_array_equal(measure(rankings), measure(rankings, 99))


def test_large_groups_of_ties_follow_the_hypergeometric_law() -> None:
    size, relevant, k = 3000, 7, 40
    grades = np.zeros(size)
    grades[:relevant] = 1
    rankings = Rankings([0, size], np.zeros(size), grades, [0, relevant], np.ones(relevant))
    first = [Fraction(math.comb(size - j - 1, relevant - 1), math.comb(size, relevant)) for j in range(size)]
    assert ranking.hit(rankings, k)[0] == pytest.approx(float(sum(first[:k])), rel=1e-13)
    assert ranking.mrr(rankings, k)[0] == pytest.approx(float(sum(p / (j + 1) for j, p in enumerate(first[:k]))))
    assert ranking.mrr(rankings)[0] == pytest.approx(float(sum(p / (j + 1) for j, p in enumerate(first))), rel=1e-13)


def scored_lists(seed: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Binary relevance and float32 scores with many ties, in lists of 2 to 80 documents."""
    rng = np.random.default_rng(seed)
    for _ in range(60):
        size = int(rng.integers(2, 80))
        truth = (rng.random(size) < 0.2).astype(int)
        truth[rng.integers(size)] = 1
        yield truth, rng.integers(0, rng.integers(1, 12), size).astype(np.float32)


@pytest.mark.parametrize("k", [1, 10, 200])
def test_the_sentence_transformers_policy_is_their_three_conventions(k: int) -> None:
    lists = list(scored_lists(k))
    rankings = as_rankings(lists)
    evaluator = CrossEncoderRerankingEvaluator([{"query": "", "positive": [""], "negative": [""]}], at_k=k)
    theirs = np.array([evaluator.compute_metrics(truth, scores) for truth, scores in lists])
    how = {"ties": "sentence-transformers"}
    result = [
        ranking.mrr(rankings, k, **how),
        ranking.ndcg(rankings, k, **how),
        ranking.average_precision(rankings, **how),
    ]
    np.testing.assert_allclose(np.array(result).T, theirs, atol=1e-12)


@pytest.mark.parametrize("k", [None, 1, 5, 200])
def test_expected_ndcg_is_scikit_learns(k: int | None) -> None:
    rng = np.random.default_rng(3)
    lists = [(rng.integers(1, 5, len(truth)) * truth, scores) for truth, scores in scored_lists(9)]
    wanted = [ndcg_score([truth], [scores], k=k) for truth, scores in lists]
    np.testing.assert_allclose(ranking.ndcg(as_rankings(lists), k), wanted, atol=1e-12)


def test_average_precision_without_ties_is_scikit_learns() -> None:
    lists = [(truth, np.random.default_rng(i).random(len(truth))) for i, (truth, _) in enumerate(scored_lists(4))]
    wanted = [average_precision_score(truth, scores) for truth, scores in lists]
    np.testing.assert_allclose(ranking.average_precision(as_rankings(lists)), wanted, atol=1e-12)


def as_rankings(lists: list[tuple[np.ndarray, np.ndarray]]) -> Rankings:
    truth, scores = (np.concatenate(column) for column in zip(*lists, strict=True))
    offsets = np.cumsum([0, *(len(t) for t, _ in lists)])
    return Rankings(offsets, scores, truth, *ideal_of_retrieved(offsets, truth))
