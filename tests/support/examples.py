"""The folder in which the examples of docstrings run: a real model, a copy with another pooling, pairs, a shop."""

from __future__ import annotations

import csv
import json
import shutil
from pathlib import Path

from calipers import data
from calipers.cli import demo_steps as demo
from calipers.shop import sample as shop
from tests.support.build_models import make_bert, make_texts
from tests.support.sweeps import write_registry


def write_workspace(folder: Path) -> Path:
    """What examples name: ./model, ./cls, ./bert, ./shop, pairs.csv, texts.txt, june.txt, july.txt, registry.yaml."""
    model = Path(demo.find_model())
    for name in ("model", "cls"):
        shutil.copytree(model, folder / name)
    pooling = folder / "cls" / "1_Pooling" / "config.json"
    pooling.write_text(json.dumps({"word_embedding_dimension": 384, "pooling_mode_cls_token": True}), encoding="utf-8")
    make_bert(folder / "bert")
    make_texts(folder)
    shop.write(folder / "shop", products=120, queries=30)
    write_registry(folder)
    _write_pairs(folder)
    return folder


def _write_pairs(folder: Path) -> None:
    rows = [json.loads(line) for line in data.sample("english").read_text(encoding="utf-8").splitlines()]
    with (folder / "pairs.csv").open("w", encoding="utf-8", newline="") as stream:
        table = csv.DictWriter(stream, rows[0])
        table.writeheader()
        table.writerows(rows)
    texts = [row["sentence1"] for row in rows]
    for month, lines in {"june": texts[::2], "july": texts[1::2]}.items():
        (folder / f"{month}.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
