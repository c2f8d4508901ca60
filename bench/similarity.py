"""Sentence similarity, the same weights and texts: sentence-transformers' evaluator, our torch and our ONNX backend.

    python -m bench.similarity [--data stsb/test.jsonl] [--model FOLDER] [--rounds 3] [--samples N]

Every round runs each of them once, in turn, with the rate of matrix products before and after each; medians count.
Models are loaded and warmed up before the clock starts. All of them give the correlations: theirs without intervals,
ours without intervals too (`metrics.value`), so that the work is the same.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Callable
from pathlib import Path

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.evaluation import EmbeddingSimilarityEvaluator
from tests.support.exporting import export

from bench.common.entries import Entry, named, record
from bench.common.rounds import Turns, limit_of, ratio_of, seconds_of, share_of, take_turns
from calipers import models, tasks
from calipers.cli import demo_steps as demo
from calipers.core import SILENT
from calipers.data import DataOptions, load_rows
from calipers.metrics.threads import available_cores
from calipers.models import ModelOptions

THEIRS = "EmbeddingSimilarityEvaluator"


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
    parser.add_argument("--samples", type=int)
    asked = parser.parse_args()

    task = tasks.find("sentence-similarity")
    rows = load_rows(str(asked.data), task.columns, mapping={}, options=DataOptions(samples=asked.samples))
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
            THEIRS: run_theirs,
            "calipers, torch": ours(f"torch:{asked.model}", rows, task),
            "calipers, onnx": ours(f"onnx:{graph}", rows, task),
        }
        turns = take_turns(contestants, asked.rounds)
    report(turns, len(rows), encoder_gflop(theirs, [*first, *second]))


def report(turns: Turns, pairs: int, gflop: float) -> None:
    peer = turns[THEIRS]
    own_share = share_of(peer, gflop)
    print(f"{pairs} pairs, {gflop:.0f} GFLOP on distinct real tokens; the peer reaches {own_share:.0%} of sgemm")
    record(
        [
            Entry(
                f"similarity of {pairs:,} pairs, MiniLM float32 ({name})",
                f"{named('sentence-transformers')} ({own_share:.0%} of sgemm)",
                seconds_of(mine),
                ratio_of(peer, mine),
                share_of(mine, gflop),
                limit_of(mine),
                memory=max(turn.memory for turn in mine),
                agreement=f"Spearman within {abs(mine[0].result - peer[0].result):.0e}",
            )
            for name, mine in turns.items()
            if name != THEIRS
        ]
    )


if __name__ == "__main__":
    main()
