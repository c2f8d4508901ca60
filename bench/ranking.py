"""Ranking, in two parts: reranking with the same weights and pairs, and the metrics alone.

    python -m bench.ranking [--part inference|metrics] [--queries N] [--rounds 1] [--data dl19.jsonl] [--model FOLDER]

Inference is dl19 with a cross-encoder: sentence-transformers' CrossEncoderRerankingEvaluator, the task `reranking` in
PyTorch, and the same in ONNX float32, all three down to the figures, which must agree. Each runs in a process of its
own and warms up before the clock starts; they take turns for `--rounds`, and the median counts. `--queries` takes a
part of the queries. The share of sgemm counts the matrix products that are needed: those of all layers on the real
tokens of distinct pairs, attention included. CPU seconds are those of all cores: on a busy machine they tell more.

Metrics are nDCG@10, MRR@10 and MAP of 10,000 queries × 100 documents: scikit-learn query by query (nDCG and average
precision only; on some of the queries and scaled up, since its cost is the same for each), pytrec_eval, and ours, from
arrays (record, checks and sort included) and from the dictionaries that pytrec_eval takes, each with lists of one
length and with ragged ones. Every round runs each once; the best of the rounds counts. All must agree to 1e-6.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from tests.support.rankings import from_runs, ideal_of_retrieved

from bench.common.entries import Entry, named, record
from bench.common.processes import OwnProcesses
from bench.common.rounds import sgemm_rate
from calipers import models, tasks
from calipers.core import SILENT, Dataset
from calipers.data import DataOptions, load_rows
from calipers.metrics import ranking
from calipers.models import ModelOptions

# --- inference -------------------------------------------------------------------------------------------------

WAYS = {
    "theirs": "CrossEncoderRerankingEvaluator",
    "torch": "calipers, torch",
    "onnx": "calipers, onnx",
}
RELEVANT_FROM = 2.0
FIGURES = ("map", "mrr@10", "ndcg@10", "base_map", "base_mrr@10", "base_ndcg@10")


def rows(data: Path, queries: int | None) -> Dataset:
    return load_rows(str(data), tasks.find("reranking").columns, mapping={}, options=DataOptions(samples=queries))


def pairs(dataset: Dataset) -> list[tuple[str, str]]:
    both = zip(dataset.columns["query_column"], dataset.columns["documents_column"], strict=True)
    return list(dict.fromkeys((query, document.text) for query, documents in both for document in documents))


def run(way: str, graph: Path, asked: argparse.Namespace) -> dict[str, Any]:
    """One contestant, in this process."""
    dataset = rows(asked.data, asked.queries)
    prepare = prepare_theirs if way == "theirs" else prepare_ours
    measure = prepare(asked.model if way != "onnx" else graph, way, dataset)
    wall, cpu = time.perf_counter(), time.process_time()
    figures = measure()
    found = {"seconds": time.perf_counter() - wall, "cpu": time.process_time() - cpu}
    return {**found, "figures": {name: float(figures[name]) for name in FIGURES}}


def prepare_theirs(model: Path, _: str, dataset: Dataset) -> Callable[[], dict[str, float]]:
    import torch
    from sentence_transformers import CrossEncoder
    from sentence_transformers.cross_encoder.evaluation import CrossEncoderRerankingEvaluator

    samples = [
        {
            "query": query,
            "positive": [d.text for d in documents if d.relevance >= RELEVANT_FROM],
            "documents": [d.text for d in documents],
        }
        for query, documents in zip(dataset.columns["query_column"], dataset.columns["documents_column"], strict=True)
    ]
    network = CrossEncoder(str(model), device="cpu", model_kwargs={"dtype": torch.float32}, local_files_only=True)
    network.predict([("warm", "up")] * 8, show_progress_bar=False)
    evaluator = CrossEncoderRerankingEvaluator(samples, at_k=10, write_csv=False, show_progress_bar=False)
    return lambda: evaluator(network)


def prepare_ours(model: Path, way: str, dataset: Dataset) -> Callable[[], dict[str, float]]:
    task = tasks.find("reranking")
    options = task.options(relevant_from=RELEVANT_FROM, compat="sentence-transformers")
    scorer: Any = models.load(models.find(f"{way}:{model}"), ModelOptions(), "score")
    scorer.score([("warm", "up")] * 8)

    def measure() -> dict[str, float]:
        outcomes = task.run(scorer, dataset, options, SILENT)
        return {metric.name: metric.value(outcomes.columns) for metric in task.measures(options)}

    return measure


def needed_gflop(model: Path, texts: list[tuple[str, str]]) -> tuple[float, int]:
    """Matrix products of the layers on the real tokens, attention included; and the tokens."""
    import tokenizers

    config = json.loads((model / "config.json").read_text())
    tokenizer = tokenizers.Tokenizer.from_file(str(model / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.enable_truncation(512)
    lengths = np.array([len(encoding.ids) for encoding in tokenizer.encode_batch(texts)], dtype=np.float64)
    width, inner = config["hidden_size"], config["intermediate_size"]
    per_token = 2 * 4 * width**2 + 2 * 2 * width * inner + 2 * 2 * lengths * width
    return float(config["num_hidden_layers"] * (per_token * lengths).sum() / 1e9), int(lengths.sum())


def compare_inference(asked: argparse.Namespace, processes: OwnProcesses) -> dict[str, dict[str, float]]:
    from tests.support.exporting import export_cross_encoder

    texts = pairs(rows(asked.data, asked.queries))
    gflop, tokens = needed_gflop(asked.model, texts)
    found: dict[str, list[dict[str, Any]]] = {way: [] for way in WAYS}
    with tempfile.TemporaryDirectory() as folder:
        graph = export_cross_encoder(asked.model, Path(folder))
        for _ in range(asked.rounds):
            for way, done in found.items():
                before, answer = sgemm_rate(), processes.run(run, way, graph, asked)
                done.append({**answer, "rate": max(before, sgemm_rate())})
    for way, done in found.items():
        for name, value in found["theirs"][0]["figures"].items():
            assert abs(done[0]["figures"][name] - value) < 1e-4, (way, name, done[0]["figures"][name], value)
    print(f"{len(texts)} pairs, {tokens} tokens, {gflop:.0f} GFLOP")
    print(f"{'':34}{'seconds':>9}{'ratio':>8}{'of sgemm':>10}{'CPU s':>9}{'CPU ratio':>11}{'ndcg@10':>10}")
    best = {way: {key: median(one[key] for one in done) for key in ("seconds", "cpu")} for way, done in found.items()}
    for way, title in WAYS.items():
        seconds, cpu = best[way]["seconds"], best[way]["cpu"]
        ratios = best["theirs"]["seconds"] / seconds, best["theirs"]["cpu"] / cpu
        share = median(gflop / one["seconds"] / one["rate"] for one in found[way])
        ndcg = found[way][0]["figures"]["ndcg@10"]
        print(f"{title:34}{seconds:9.1f}{ratios[0]:8.2f}{share:10.0%}{cpu:9.1f}{ratios[1]:11.2f}{ndcg:10.4f}")
    record([_line(way, found, len(texts), gflop) for way in WAYS if way != "theirs"])
    return best


def _line(way: str, found: dict[str, list[dict[str, Any]]], pairs: int, gflop: float) -> Entry:
    mine, theirs = found[way], found["theirs"]
    gap = max(abs(mine[0]["figures"][name] - theirs[0]["figures"][name]) for name in FIGURES)
    return Entry(
        f"reranking of {pairs:,} pairs, MiniLM-L12 float32 ({way})",
        named("sentence-transformers"),
        median(one["seconds"] for one in mine),
        median(other["seconds"] / one["seconds"] for one, other in zip(mine, theirs, strict=True)),
        median(gflop / one["seconds"] / one["rate"] for one in mine),
        agreement=f"figures within {gap:.0e}",
    )


# --- metrics alone ---------------------------------------------------------------------------------------------

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
    ideal = ideal_of_retrieved(sample.offsets, sample.grades)
    return measures(ranking.Rankings(sample.offsets, sample.scores, sample.grades, *ideal))


def ours_from_dictionaries(sample: Sample) -> Values:
    return measures(from_runs(sample.run, sample.qrels))


def pytrec(sample: Sample) -> Values:
    """MRR@10 is not one of its measures: recip_rank without a cut-off is less work than ours."""
    import pytrec_eval

    evaluator = pytrec_eval.RelevanceEvaluator(sample.qrels, {"ndcg_cut.10", "recip_rank", "map"})
    found = evaluator.evaluate(sample.run).values()
    return np.array([[v["ndcg_cut_10"], v["recip_rank"], v["map"]] for v in found]).T


def sklearn(sample: Sample, queries: int) -> Values:
    """float64[2, queries]: nDCG and average precision of the first queries."""
    from sklearn.metrics import average_precision_score, ndcg_score

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


def compare_metrics(sample: Sample, rounds: int, sklearn_queries: int) -> dict[str, float]:
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


def report_metrics(asked: argparse.Namespace) -> dict[str, dict[str, float]]:
    report = {}
    for lists in ("equal", "ragged"):
        sample = make_sample(asked.metric_queries, asked.documents, ragged=lists == "ragged")
        best = compare_metrics(sample, asked.metric_rounds, asked.sklearn_queries)
        print(f"\n{asked.metric_queries} queries, {len(sample.scores)} documents, {lists} lists: nDCG@10, MRR@10, MAP")
        print(f"{'':30}{'seconds':>10}{'× scikit-learn':>17}{'× pytrec_eval':>16}")
        for name, seconds in best.items():
            ratios = [best[other] / seconds for other in ("scikit-learn, per query", "pytrec_eval")]
            print(f"{name:30}{seconds:10.4f}{ratios[0]:17.1f}{ratios[1]:16.1f}")
        report[lists] = best
        work = f"nDCG@10, MRR@10, MAP of {asked.metric_queries:,} queries, {lists} lists"
        seconds = best["calipers, from arrays"]
        record(
            [Entry(work, named("pytrec-eval-terrier"), seconds, best["pytrec_eval"] / seconds, agreement="within 1e-6")]
        )
    return report


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    data, weights = (Path(os.environ.get(f"CALIPERS_{n}", f"../shared/{n.lower()}")) for n in ("DATA", "MODELS"))
    parser.add_argument("--part", choices=("inference", "metrics"))
    parser.add_argument("--data", type=Path, default=data / "trec-dl" / "dl19-bm25-top100.jsonl")
    parser.add_argument("--model", type=Path, default=weights / "ms-marco-MiniLM-L12-v2-dequant")
    parser.add_argument("--queries", type=int)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--metric-queries", type=int, default=10_000)
    parser.add_argument("--documents", type=int, default=100)
    parser.add_argument("--metric-rounds", type=int, default=3)
    parser.add_argument("--sklearn-queries", type=int, default=500)
    asked = parser.parse_args()
    report: dict[str, Any] = {}
    if asked.part != "metrics":
        report["inference"] = compare_inference(asked, OwnProcesses(asked.rounds * len(WAYS)))
    if asked.part != "inference":
        report["metrics"] = report_metrics(asked)
    print(json.dumps(report))


if __name__ == "__main__":
    main()
