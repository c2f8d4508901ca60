"""The sound files that hostile ones are made of: built once, copied for each input."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import pyarrow
import pyarrow.parquet
from onnx import TensorProto, helper, numpy_helper
from safetensors.numpy import save_file

from calipers.models import load_model
from calipers.reliability.trust import Trust
from calipers.runs.store import Store
from tests.support.masked_models import PIECES, make_model
from tests.support.samples import write_jsonl
from tests.support.stores import make

WORDS = [piece for piece in PIECES if not piece.startswith("##")]


@dataclass(frozen=True)
class Sound:
    """Folders and files that every command takes."""

    root: Path

    def copy(self, name: str, target: Path) -> Path:
        source, place = self.root / name, target / name
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copytree(source, place) if source.is_dir() else shutil.copy(source, place)
        return place


def build(root: Path) -> Sound:
    make_model("bert", root / "torch", head="")
    _static(root)
    graph(root / "onnx", root / "torch")
    _data(root)
    _files(root)
    store = Store(root / "store")
    for name in ("20250101-000000-aaaaaa", "20250102-000000-bbbbbb"):
        store.save(make(name))
    return Sound(root)


def _static(root: Path) -> None:
    folder = root / "static"
    folder.mkdir()
    shutil.copy(root / "torch" / "tokenizer.json", folder)
    tokens = json.loads((folder / "tokenizer.json").read_text())["model"]["vocab"]
    table = np.random.default_rng(0).normal(size=(len(tokens), 8)).astype(np.float32)
    save_file({"embeddings": table}, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps({"model_type": "model2vec", "normalize": True, "max_length": 64}))


def graph(folder: Path, tokenizer: Path, nodes: list[onnx.NodeProto] | None = None, **weights: np.ndarray) -> Path:
    """A small ONNX encoder; `nodes` lead from "rows" to "tokens", by default unchanged."""
    folder.mkdir(exist_ok=True)
    table = np.random.default_rng(0).normal(size=(500, 8)).astype(np.float32)
    first = helper.make_node("Gather", ["table", "input_ids"], ["rows"])
    rest = nodes or [helper.make_node("Identity", ["rows"], ["tokens"])]
    inputs = [helper.make_tensor_value_info(n, TensorProto.INT64, ["b", "s"]) for n in ("input_ids", "attention_mask")]
    outputs = [helper.make_tensor_value_info("tokens", TensorProto.FLOAT, ["b", "s", 8])]
    held = [numpy_helper.from_array(value, name) for name, value in {"table": table, **weights}.items()]
    made = helper.make_graph([first, *rest], "g", inputs, outputs, held)
    proto = helper.make_model(made, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    onnx.save(proto, folder / "model.onnx")
    for name in ("tokenizer.json", "tokenizer_config.json", "config.json"):
        shutil.copy(tokenizer / name, folder)
    return folder / "model.onnx"


def _texts(count: int, seed: int) -> list[str]:
    rng = np.random.default_rng(seed)
    return [" ".join(rng.choice(WORDS, size=rng.integers(2, 6))) for _ in range(count)]


def _data(root: Path) -> None:
    left, right = _texts(12, 1), _texts(12, 2)
    rows = [
        {"id": f"r{i}", "sentence1": a, "sentence2": b, "score": i % 6, "label": i % 2}
        for i, (a, b) in enumerate(zip(left, right, strict=True))
    ]
    write_jsonl(root / "pairs.jsonl", rows)
    (root / "pairs.json").write_text(json.dumps(rows))
    lines = [",".join(rows[0]), *(",".join(str(value) for value in row.values()) for row in rows)]
    (root / "pairs.csv").write_text("\n".join(lines) + "\n")
    (root / "pairs.tsv").write_text("\n".join(lines).replace(",", "\t") + "\n")
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), root / "pairs.parquet")
    (root / "texts.txt").write_text("\n".join(left) + "\n")
    ranked = [
        {"query": a, "positive": [b], "negative": right[:3], "id": f"q{i}"}
        for i, (a, b) in enumerate(zip(left, right, strict=True))
    ]
    write_jsonl(root / "ranked.jsonl", ranked)
    folder = root / "beir"
    (folder / "qrels").mkdir(parents=True)
    write_jsonl(folder / "corpus.jsonl", [{"_id": f"d{i}", "title": "", "text": text} for i, text in enumerate(right)])
    write_jsonl(folder / "queries.jsonl", [{"_id": f"q{i}", "text": text} for i, text in enumerate(left)])
    judged = "".join(f"q{i}\td{i}\t1\n" for i in range(12))
    (folder / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\n" + judged)
    (root / "run.trec").write_text("".join(f"q{i} Q0 d{i} 1 {1.0 / (i + 1)} x\n" for i in range(12)))


def _files(root: Path) -> None:
    texts = [*_texts(12, 1), *_texts(12, 2)]
    distinct = list(dict.fromkeys(texts))
    np.save(root / "vectors.npy", np.random.default_rng(0).normal(size=(len(distinct), 4)).astype(np.float32))
    (root / "vectors.txt").write_text("\n".join(distinct) + "\n")
    (root / "compare.yaml").write_text("compare:\n  thresholds:\n    cosine_spearman: 2.0,4.0\n  confidence: 0.9\n")
    (root / "words.yaml").write_text(
        "colours:\n  teal: {words: [teal, petrol], families: [green]}\nbrands:\n  acme: {names: [Acme]}\n"
    )
    (root / "recipe.yaml").write_text("precision: w8a8\nper_channel: true\nexclude: [op:Softmax]\n")
    encoder = load_model(f"static:{root / 'static'}")
    vectors = encoder.encode(texts)  # type: ignore[attr-defined]
    Trust.fit(vectors, codec="int8", k=3).save(root / "score.trust")
    asked = encoder.encode([f"{a} {b}" for a, b in zip(texts, [*texts[5:], *texts[:5]], strict=True)])  # type: ignore[attr-defined]
    Trust.fit(vectors, query_vectors=asked, codec="int8", k=3).save(root / "asked.trust")
