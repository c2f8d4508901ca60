"""Pseudo-perplexity, the same weights and texts: one forward per token (padded to 512, unpadded), and ours.

    python -m bench.fill_mask [--data wiki.test.raw] [--texts 6] [--loop 24] [--rounds 3] [--models 6x384 12x768 …]

Each contestant runs in a process of its own, so that its peak memory is its own: what it takes beyond what it had
after loading. They take turns for a few rounds, and the median round counts, since a shared machine's pace drifts.
The loops score every n-th token of the same texts, ours all of them; seconds are per scored token.
Weights are random: time does not depend on them. The share of sgemm counts the matrix products that are needed: all
layers on the real tokens of a text (the last feed-forward and the head at one position), attention not counted.
"""

from __future__ import annotations

import argparse
import os
import shutil
import tempfile
import time
from pathlib import Path
from statistics import median

import numpy as np

from bench.common.entries import Entry, named, record
from bench.common.processes import OwnProcesses
from bench.common.rounds import sgemm_rate
from calipers import models, tasks
from calipers.cli import demo_steps as demo
from calipers.core import SILENT, Dataset
from calipers.data import DataOptions, load_rows
from calipers.models import ModelOptions

# name: layers, width, vocabulary; all have 12 heads, as MiniLM and BERT do
MODELS = {"6x384": (6, 384, 30522), "12x768": (12, 768, 30522), "6x384-xlmr": (6, 384, 250002), "1x48": (1, 48, 30522)}
MEASURED = ("6x384", "12x768", "6x384-xlmr")  # the others are for tests
WAYS = {
    "loop-512": "one forward per token, padded to 512",
    "loop": "one forward per token, unpadded",
    "torch": "calipers, torch",
    "onnx": "calipers, onnx",
}


def make(name: str, folder: Path) -> None:
    """A random BERT and its export, with the tokenizer of all-MiniLM-L6-v2."""
    import torch
    from tests.support.exporting import export_masked_lm
    from transformers import BertConfig, BertForMaskedLM

    layers, width, vocabulary = MODELS[name]
    config = BertConfig(
        vocab_size=vocabulary, hidden_size=width, num_hidden_layers=layers, num_attention_heads=12,
        intermediate_size=4 * width, pad_token_id=0,
    )  # fmt: skip
    torch.manual_seed(0)
    BertForMaskedLM(config).save_pretrained(folder)
    for file in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(Path(demo.find_model()) / file, folder)
    export_masked_lm(folder, folder / "onnx")


def rows(data: Path, texts: int) -> Dataset:
    task = tasks.find("fill-mask")
    return load_rows(str(data), task.columns, mapping={}, options=DataOptions(samples=texts))


class Memory:
    """GB that a process takes at its peak, beyond what it has when this is made. Linux keeps the mark."""

    def __init__(self) -> None:
        Path("/proc/self/clear_refs").write_text("5")  # forget the peak of loading
        self._before = self._read("VmRSS")

    def peak(self) -> float:
        return self._read("VmHWM") - self._before

    def _read(self, name: str) -> float:
        lines = Path("/proc/self/status").read_text().splitlines()
        return int(next(line for line in lines if line.startswith(name)).split()[1]) / 1e6


def run(way: str, folder: Path, data: Path, texts: int, loop: int) -> dict[str, float]:
    """One contestant, in this process."""
    dataset = rows(data, texts)
    if way.startswith("loop"):
        return run_loop(folder, dataset, loop, pad=512 if way == "loop-512" else None)
    task = tasks.find("fill-mask")
    reference = f"torch:{folder}" if way == "torch" else f"onnx:{folder / 'onnx' / 'model.onnx'}"
    model = models.load(models.find(reference), ModelOptions(), "fill-mask")
    task.run(model, dataset.take([0]), task.options(tokens=1), SILENT)
    memory, start = Memory(), time.perf_counter()
    outcomes = task.run(model, dataset, task.options(), SILENT)
    seconds = time.perf_counter() - start
    return {"seconds": seconds, "tokens": outcomes.counts["tokens"], "memory": memory.peak()}


def run_loop(folder: Path, dataset: Dataset, most: int, pad: int | None) -> dict[str, float]:
    """What the usual implementation does: a full forward pass for each masked token, logits everywhere."""
    import torch
    from transformers import AutoModelForMaskedLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForMaskedLM.from_pretrained(folder).eval()
    padding = {"padding": "max_length"} if pad else {}
    encoded = [
        tokenizer(t, truncation=True, max_length=512, return_tensors="pt", return_special_tokens_mask=True, **padding)
        for t in dataset.columns["input_column"]
    ]
    masks = [e.pop("special_tokens_mask")[0].bool() | (e["attention_mask"][0] == 0) for e in encoded]
    questions = [(t, int(p)) for t, mask in enumerate(masks) for p in torch.nonzero(~mask)[:, 0]]
    questions = questions[:: max(1, len(questions) // most)]
    memory, start = Memory(), time.perf_counter()
    with torch.inference_mode():
        for text, position in questions:
            ids = encoded[text]["input_ids"].clone()
            ids[0, position] = tokenizer.mask_token_id
            logits = model(**{**encoded[text], "input_ids": ids}).logits
            torch.log_softmax(logits[0, position], dim=-1)
    return {"seconds": time.perf_counter() - start, "tokens": len(questions), "memory": memory.peak()}


def needed_gflop(name: str, dataset: Dataset) -> float:
    """Per scored token."""
    import tokenizers

    layers, width, vocabulary = MODELS[name]
    tokenizer = tokenizers.Tokenizer.from_file(str(Path(demo.find_model()) / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.enable_truncation(512)
    lengths = np.array([len(e.ids) for e in tokenizer.encode_batch(list(dataset.columns["input_column"]))])
    per_token = 2 * (4 * width**2 + 8 * width**2)
    per_row = (layers - 1) * lengths * per_token + lengths * 2 * 3 * width**2
    per_row = per_row + 2 * (width**2 + 8 * width**2) + 2 * (width**2 + width * vocabulary)
    return float((per_row * (lengths - 2)).sum() / (lengths - 2).sum() / 1e9)


def compare(folder: Path, asked: argparse.Namespace, processes: OwnProcesses) -> dict[str, dict[str, float]]:
    """Per contestant the median seconds for a token, and the highest memory, over the rounds."""
    rounds: dict[str, list[dict[str, float]]] = {way: [] for way in WAYS}
    for _ in range(asked.rounds):
        for way, done in rounds.items():
            before = sgemm_rate()
            measured = processes.run(run, way, folder, asked.data, asked.texts, asked.loop)
            done.append({**measured, "rate": max(before, sgemm_rate())})
    return {
        way: {
            "tokens": done[0]["tokens"],
            "memory": max(one["memory"] for one in done),
            "each": median(one["seconds"] / one["tokens"] for one in done),
            "rate": median(one["tokens"] / one["seconds"] / one["rate"] for one in done),
        }
        for way, done in rounds.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    data = Path(os.environ.get("CALIPERS_DATA", "../shared/data")) / "wikitext2" / "wiki.test.raw"
    parser.add_argument("--data", type=Path, default=data)
    parser.add_argument("--texts", type=int, default=6)
    parser.add_argument("--loop", type=int, default=24)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--models", nargs="*", default=list(MEASURED))
    asked = parser.parse_args()
    processes = OwnProcesses(len(asked.models) * asked.rounds * len(WAYS))
    dataset = rows(asked.data, asked.texts)
    for name in asked.models:
        with tempfile.TemporaryDirectory() as place:
            make(name, Path(place))
            gflop = needed_gflop(name, dataset)
            print(f"\n{name}, vocabulary {MODELS[name][2]:,}: {gflop:.2f} GFLOP a token")
            print(f"{'':40}{'tokens':>7}{'ms/token':>10}{'× (a)':>8}{'× (b)':>8}{'of sgemm':>10}{'memory GB':>11}")
            found = compare(Path(place), asked, processes)
            loops = found["loop-512"]["each"], found["loop"]["each"]
            for way, title in WAYS.items():
                tokens, memory, each = (found[way][key] for key in ("tokens", "memory", "each"))
                print(
                    f"{title:40}{tokens:7.0f}{1000 * each:10.2f}{loops[0] / each:8.2f}{loops[1] / each:8.2f}"
                    f"{gflop * found[way]['rate']:10.0%}{memory:11.2f}",
                    flush=True,
                )
            record([_line(name, way, found, gflop) for way in WAYS if not way.startswith("loop")])


def _line(name: str, way: str, found: dict[str, dict[str, float]], gflop: float) -> Entry:
    each, padded, plain = (found[w]["each"] for w in (way, "loop-512", "loop"))
    return Entry(
        f"pseudo-perplexity, {name}, {found[way]['tokens']:.0f} tokens ({way})",
        f"{named('transformers')}, a pass a token, unpadded (padded: {padded / each:.1f} ×)",
        each * found[way]["tokens"],
        plain / each,
        gflop * found[way]["rate"],
        memory=1000 * found[way]["memory"],
    )


if __name__ == "__main__":
    main()
