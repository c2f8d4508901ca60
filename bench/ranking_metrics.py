"""nDCG@10, MRR@10 and MAP of many queries: scikit-learn query by query, pytrec_eval, and ours.

    python -m bench.ranking_metrics [--queries 10000] [--documents 100] [--rounds 3] [--sklearn-queries 500]

Every round runs each of them once, in turn; the best of the rounds counts. scikit-learn (nDCG and average precision
only) is timed on some of the queries and scaled up: its cost is the same for each. Ours is timed from arrays, record
and checks and sort included, and from the dictionaries that pytrec_eval takes, each with lists of one length and with
ragged ones. The values of all must agree to 1e-6, or there is nothing to compare.
"""

from __future__ import annotations

import argparse
import itertools
import json
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytrec_eval
from sklearn.metrics import average_precision_score, ndcg_score

from calipers.metrics import ranking

Run = dict[str, dict[str, float]]
Values = np.ndarray


@dataclass(frozen=True)
class Sample:
    """The same runs as arrays and as dictionaries; all that is relevant was retrieved, and no scores tie."""

    offsets: np.ndarray
    scores: np.ndarray
    grades: np.ndarray
    run: Run
    qrels: dict[str, dict[str, int]]


def make_sample(queries: int, documents: int, *, ragged: bool, seed: int = 0) -> Sample:
    """Grades 0 to 3, about one document in 20 relevant and at least one; ragged lists have documents / 2 to 3 / 2."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(documents // 2, documents * 3 // 2, queries) if ragged else np.full(queries, documents)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    # Multiples of 2^-24 are floats in single precision too, so that pytrec_eval sees no ties that we do not see.
    scores = rng.permutation(offsets[-1]) / 2**24
    grades = rng.integers(1, 4, offsets[-1]) * (rng.random(offsets[-1]) < 0.05)
    grades[offsets[:-1]] = 1
    run: Run = {}
    qrels: dict[str, dict[str, int]] = {}
    for i, (start, end) in enumerate(itertools.pairwise(offsets)):
        names = [f"d{j}" for j in range(end - start)]
        run[f"q{i}"] = dict(zip(names, scores[start:end].tolist(), strict=True))
        qrels[f"q{i}"] = dict(zip(names, grades[start:end].tolist(), strict=True))
    return Sample(offsets, scores, grades, run, qrels)


def measures(rankings: ranking.Rankings) -> Values:
    """float64[3, q]"""
    return np.stack([ranking.ndcg(rankings, 10), ranking.mrr(rankings, 10), ranking.average_precision(rankings)])


def ours_from_arrays(sample: Sample) -> Values:
    ideal = ranking.ideal_of_retrieved(sample.offsets, sample.grades)
    return measures(ranking.Rankings(sample.offsets, sample.scores, sample.grades, *ideal))


def ours_from_dictionaries(sample: Sample) -> Values:
    return measures(ranking.from_runs(sample.run, sample.qrels))


def pytrec(sample: Sample) -> Values:
    """MRR@10 is not one of its measures: recip_rank without a cut-off is less work than ours."""
    evaluator = pytrec_eval.RelevanceEvaluator(sample.qrels, {"ndcg_cut.10", "recip_rank", "map"})
    found = evaluator.evaluate(sample.run).values()
    return np.array([[v["ndcg_cut_10"], v["recip_rank"], v["map"]] for v in found]).T


def sklearn(sample: Sample, queries: int) -> Values:
    """float64[2, queries]: nDCG and average precision of the first queries."""
    values = []
    for start, end in zip(sample.offsets[:queries], sample.offsets[1:], strict=False):
        grades, scores = sample.grades[start:end], sample.scores[start:end]
        values.append((ndcg_score([grades], [scores], k=10), average_precision_score(grades > 0, scores)))
    return np.array(values).T


def check(found: dict[str, Values], asked: int) -> None:
    """All agree to 1e-6; MRR@10 where it is not cut off."""
    base = found["calipers, from arrays"]
    np.testing.assert_allclose(found["calipers, from dictionaries"], base, atol=1e-12)
    np.testing.assert_allclose(found["pytrec_eval"][[0, 2]], base[[0, 2]], atol=1e-6)
    near = base[1] > 0
    np.testing.assert_allclose(found["pytrec_eval"][1][near], base[1][near], atol=1e-6)
    np.testing.assert_allclose(found["scikit-learn, per query"], base[[0, 2], :asked], atol=1e-6)


def compare(sample: Sample, rounds: int, sklearn_queries: int) -> dict[str, float]:
    """Seconds for all queries, the best of the rounds."""
    queries = len(sample.offsets) - 1
    asked = min(queries, sklearn_queries)
    contestants: dict[str, Callable[[], Values]] = {
        "scikit-learn, per query": lambda: sklearn(sample, asked),
        "pytrec_eval": lambda: pytrec(sample),
        "calipers, from dictionaries": lambda: ours_from_dictionaries(sample),
        "calipers, from arrays": lambda: ours_from_arrays(sample),
    }
    best = dict.fromkeys(contestants, float("inf"))
    found = {}
    for _ in range(rounds):
        for name, measure in contestants.items():
            start = time.perf_counter()
            found[name] = measure()
            best[name] = min(best[name], time.perf_counter() - start)
    check(found, asked)
    best["scikit-learn, per query"] *= queries / asked
    return best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--queries", type=int, default=10_000)
    parser.add_argument("--documents", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--sklearn-queries", type=int, default=500)
    asked = parser.parse_args()
    report = {}
    for lists in ("equal", "ragged"):
        sample = make_sample(asked.queries, asked.documents, ragged=lists == "ragged")
        best = compare(sample, asked.rounds, asked.sklearn_queries)
        print(f"{asked.queries} queries, {len(sample.scores)} documents, {lists} lists: nDCG@10, MRR@10, MAP")
        print(f"{'':30}{'seconds':>10}{'× scikit-learn':>17}{'× pytrec_eval':>16}")
        for name, seconds in best.items():
            ratios = [best[other] / seconds for other in ("scikit-learn, per query", "pytrec_eval")]
            print(f"{name:30}{seconds:10.4f}{ratios[0]:17.1f}{ratios[1]:16.1f}")
        report[lists] = best
    print(json.dumps(report))


if __name__ == "__main__":
    main()
