"""A nightly sweep of the real models at hand and tiny ones of six families: how long the first and the second run take.

python -m bench.sweep [--store DIR] [--on EXECUTOR] [--tiny [torch]]

Needs CALIPERS_DATA, CALIPERS_MODELS and CALIPERS_WEIGHTS. 200 rows of each table; 200 queries on the 500 documents of
SciFact that hold their answers; 20 queries of TREC DL 2019 with 10 passages each. `--tiny` takes one tiny model
alone: a graph, whose jobs need no PyTorch, or with `--tiny torch` its folder.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tests.support.exporting import export_masked_lm
from tests.support.masked_models import PIECES, make_model

from calipers.runs.store import Store
from calipers.sweeps.api import Sweep, sweep
from calipers.sweeps.records import SweepOptions

FAMILIES = ("bert", "roberta", "distilbert", "albert", "electra", "deberta-v2")
REGISTRY = """
defaults: {{samples: 200}}
models:
  - {{id: minilm, reference: $CALIPERS_WEIGHTS/all-MiniLM-L6-v2, precisions: [int8-dynamic, w8a8], priority: P0}}
  - {{id: reranker, reference: $CALIPERS_MODELS/ms-marco-MiniLM-L12-v2-dequant, precisions: [int8-dynamic, w8a8]}}
  - id: rxnmapper
    reference: $CALIPERS_MODELS/rxnmapper-albert-mlm-smiles
    precisions: [int8-dynamic, w8a8]
    tasks: [smiles]
  - id: sapiens
    reference: $CALIPERS_MODELS/sapiens-roberta-mlm-antibody-vh
    precisions: [int8-dynamic, w8a8]
    tasks: [antibodies]
  - {{id: bge-small-int8, reference: $CALIPERS_WEIGHTS/bge-small-en-v1.5-int8}}
  - {{id: potion, reference: $CALIPERS_MODELS/potion-base-4m-int8}}
  - {{id: "tiny-{{name}}", reference: "{folder}/tiny/*", precisions: [int8-dynamic], tasks: [words]}}
tasks:
  - {{id: sts, task: sentence-similarity, dataset: $CALIPERS_DATA/stsb/test.jsonl}}
  - {{id: scifact, task: retrieval, dataset: "{folder}/scifact"}}
  - {{id: dl19, task: reranking, dataset: "{folder}/dl19.jsonl"}}
  - {{id: mrpc, task: pair-classification, dataset: $CALIPERS_DATA/mrpc/test.jsonl}}
  - {{id: sts-pairs, task: pair-correlation, dataset: $CALIPERS_DATA/stsb/test.jsonl}}
  - {{id: smiles, task: fill-mask, dataset: $CALIPERS_DATA/smiles/reactions.txt}}
  - {{id: antibodies, task: fill-mask, dataset: $CALIPERS_DATA/antibodies/vh.txt}}
  - {{id: words, task: fill-mask, dataset: "{folder}/words.txt"}}
"""


TINY = """
defaults: {{samples: 10}}
models: [{{id: tiny, reference: "{tiny}:{folder}/{tiny}", precisions: [int8-dynamic]}}]
tasks: [{{id: words, task: fill-mask, dataset: "{folder}/words.txt"}}]
"""


def write_registry(folder: Path, tiny: str | None = None) -> Path:
    words = [" ".join(PIECES[(i * 7 + j * 3) % 27] for j in range(12)) for i in range(200)]
    (folder / "words.txt").write_text("\n".join(words) + "\n", encoding="utf-8")
    registry = folder / "registry.yaml"
    registry.write_text((TINY if tiny else REGISTRY).format(folder=folder, tiny=tiny), encoding="utf-8")
    if tiny:
        make_model("bert", folder / "torch")
        export_masked_lm(folder / "torch", folder / "onnx")
    else:
        for family in FAMILIES:
            make_model(family, folder / "tiny" / family)
        _write_data(folder)
    return registry


def _write_data(folder: Path) -> None:
    data = Path(os.environ["CALIPERS_DATA"])
    _write_scifact(data / "scifact", folder / "scifact")
    queries = list(read_lines(data / "trec-dl" / "dl19-bm25-top100.jsonl"))[:20]
    write_lines(folder / "dl19.jsonl", [{**query, "documents": query["documents"][:10]} for query in queries])


def _write_scifact(source: Path, target: Path) -> None:
    """All queries and judgements, the judged documents, and others up to 500."""
    (target / "qrels").mkdir(parents=True)
    lines = (source / "qrels" / "test.tsv").read_text(encoding="utf-8")
    (target / "qrels" / "test.tsv").write_text(lines, encoding="utf-8")
    judged = {line.split("\t")[1] for line in lines.splitlines()[1:]}
    corpus = sorted(read_lines(source / "corpus.jsonl"), key=lambda document: document["_id"] not in judged)
    write_lines(target / "corpus.jsonl", corpus[:500])
    write_lines(target / "queries.jsonl", list(read_lines(source / "queries.jsonl")))


def read_lines(path: Path) -> Iterator[dict[str, Any]]:
    yield from (json.loads(line) for line in path.read_text(encoding="utf-8").splitlines())


def write_lines(path: Path, rows: list[dict[str, Any]]) -> None:
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")


def report(name: str, made: Sweep, seconds: float) -> None:
    labels = [cell.outcome for cell in made.cells]
    counts = ", ".join(f"{labels.count(label)} {label}" for label in sorted(set(labels)))
    print(
        f"{name}: {seconds:.1f} s, {len(made.cells)} cells ({counts}), exit code {made.exit_code}, {made.digest[:23]}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--store", type=Path)
    parser.add_argument("--on", default="local")
    parser.add_argument("--tiny", nargs="?", const="onnx", choices=("onnx", "torch"))
    arguments = parser.parse_args()
    with TemporaryDirectory() as temporary:
        registry = write_registry(Path(temporary), tiny=arguments.tiny)
        store = Store(arguments.store or Path(temporary) / "store")
        for name in ("first run", "second run"):
            start = time.perf_counter()
            made = sweep(registry, store=store, options=SweepOptions(on=arguments.on), watch=lambda status: None)
            report(name, made, time.perf_counter() - start)
        for cell in made.cells:
            print(
                f"  {cell.key}: {cell.metric} {cell.value} {cell.label} {cell.failure.message if cell.failure else ''}"
            )


if __name__ == "__main__":
    main()
