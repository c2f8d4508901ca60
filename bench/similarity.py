"""Sentence similarity, the same weights and texts: sentence-transformers' evaluator, our torch and our ONNX backend.

    python -m bench.similarity [--data stsb/test.jsonl] [--model FOLDER] [--rounds 3]

Every round runs each of them once, in turn; the best of the rounds counts, so that a busy moment of the machine
hits nobody's figure. Models are loaded and warmed up before the clock starts. All of them give the correlations:
theirs without intervals, ours without intervals too (`metrics.value`), so that the work is the same.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.evaluation import EmbeddingSimilarityEvaluator
from tests.support.exporting import export

from calipers import models, tasks
from calipers.cli import demo_steps as demo
from calipers.core import SILENT
from calipers.data import DataOptions, load_rows
from calipers.metrics.threads import available_cores
from calipers.models import ModelOptions


def sgemm_rate(size: int = 2048, repeats: int = 12) -> float:
    """GFLOP/s of a float32 matrix product on all cores: what inference cannot beat."""
    torch.set_num_threads(available_cores())
    a = torch.rand(size, size)
    a @ a
    start = time.perf_counter()
    for _ in range(repeats):
        a @ a
    return repeats * 2 * size**3 / (time.perf_counter() - start) / 1e9


def encoder_gflop(model: SentenceTransformer, texts: list[str]) -> float:
    """Matrix products of the transformer's layers on the real tokens of the distinct texts; attention not counted."""
    config = model[0].model.config
    lengths = [len(ids) for ids in model.tokenizer(list(dict.fromkeys(texts)))["input_ids"]]
    width, inner = config.hidden_size, config.intermediate_size
    per_token = config.num_hidden_layers * (2 * 4 * width * width + 2 * 2 * width * inner)
    return sum(lengths) * per_token / 1e9


def ours(reference: str, rows, task) -> Callable[[], float]:  # type: ignore[no-untyped-def]
    encoder = models.load(models.find(reference), ModelOptions())
    encoder.encode(["warm up"] * 8)

    def run() -> float:
        outcomes = task.run(encoder, rows, task.options(), SILENT)
        return {metric.name: metric.value(outcomes.columns) for metric in task.metrics}["cosine_spearman"] / 100

    return run


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    data = Path(os.environ.get("CALIPERS_DATA", "../shared/data"))
    parser.add_argument("--data", type=Path, default=data / "stsb" / "test.jsonl")
    parser.add_argument("--model", type=Path, default=Path(demo.find_model()))
    parser.add_argument("--rounds", type=int, default=3)
    asked = parser.parse_args()

    task = tasks.find("sentence-similarity")
    rows = load_rows(str(asked.data), task.columns, mapping={}, options=DataOptions())
    first, second = list(rows.columns["input_column_1"]), list(rows.columns["input_column_2"])
    theirs = SentenceTransformer(str(asked.model), device="cpu")
    theirs.encode(["warm up"] * 8)
    evaluator = EmbeddingSimilarityEvaluator(
        first,
        second,
        rows.columns["score_column"],
        similarity_fn_names=["cosine", "dot", "euclidean", "manhattan"],
    )

    def run_theirs() -> float:
        torch.set_num_threads(available_cores())
        return float(evaluator(theirs)["spearman_cosine"])

    with tempfile.TemporaryDirectory() as folder:
        graph = export(asked.model, Path(folder))
        contestants = {
            "EmbeddingSimilarityEvaluator": run_theirs,
            "calipers, torch": ours(f"torch:{asked.model}", rows, task),
            "calipers, onnx": ours(f"onnx:{graph}", rows, task),
        }
        best: dict[str, tuple[float, float]] = {}
        rates = []
        for _ in range(asked.rounds):
            rates.append(sgemm_rate())
            for name, run in contestants.items():
                start = time.perf_counter()
                value = run()
                seconds = time.perf_counter() - start
                best[name] = min(best.get(name, (seconds, value)), (seconds, value))

    gflop, rate = encoder_gflop(theirs, [*first, *second]), max(rates)
    base = best["EmbeddingSimilarityEvaluator"][0]
    print(
        f"{len(rows)} pairs, {gflop:.0f} GFLOP on distinct real tokens, "
        f"sgemm {rate:.0f} GFLOP/s on {available_cores()} cores"
    )
    print(f"{'':30}{'seconds':>9}{'ratio':>8}{'of sgemm':>10}{'cosine_spearman':>18}")
    for name, (seconds, value) in best.items():
        print(f"{name:30}{seconds:9.2f}{base / seconds:8.2f}{gflop / seconds / rate:10.0%}{value:18.8f}")
    print(json.dumps({name: {"seconds": s, "ratio": base / s} for name, (s, _) in best.items()}))


if __name__ == "__main__":
    main()
