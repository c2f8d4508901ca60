"""Attribute integrity on real products: explicit failure rates on icecat, and offending pairs to check by eye.

    python -m bench.attributes [--model static:…/potion-base-4m-int8] [--run RUN] [--pairs 30] [--part colour]

Reads `CALIPERS_DATA`/icecat. The 135 queries of icecat name brands at most, so queries that state a colour, a brand or
a size are derived from the head queries there, in English, as the products are. `--run` takes a TREC
run over both sets instead of a model. `--esci` reads the pairs of esci-sample.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import random
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from calipers.core import SILENT, Dataset, DataSource, Outcomes, fingerprint
from calipers.core.figures import read_figures
from calipers.data import trec
from calipers.diagnosis.layers import attributes as layer
from calipers.models import find, load
from calipers.models.options import ModelOptions
from calipers.shop import Extractor, agree
from calipers.tasks import retrieval

COLOURS = ("black", "white", "silver", "red", "blue", "pink")
COLOURED = (
    "laptop",
    "headphones",
    "mouse",
    "keyboard",
    "phone case",
    "backpack",
    "cable",
    "speaker",
    "printer",
    "toner",
)
BRANDED = {
    "laptop": ("hp", "lenovo", "dell", "asus"),
    "printer": ("canon", "epson", "brother", "samsung"),
    "monitor": ("philips", "lg", "dell", "acer"),
    "headphones": ("sony", "jbl", "philips"),
    "toner": ("xerox", "lexmark", "kyocera", "oki"),
    "keyboard": ("logitech", "cherry", "microsoft"),
}
SIZED = {
    "laptop": ("15.6 inch", "14 inch", "17.3 inch", "8 GB", "512 GB"),
    "monitor": ("24 inch", "27 inch", "32 inch"),
    "tv": ("43 inch", "55 inch", "65 inch"),
    "hdmi cable": ("1 m", "2 m", "5 m", "3 ft"),
    "usb stick": ("16 GB", "32 GB", "128GB"),
    "micro sd card": ("32gb", "64 gb"),
    "ethernet cable": ("0.5 m", "10 m", "3m"),
    "external hard drive": ("1TB", "2 TB", "500gb"),
    "power bank": ("10000 mAh", "20000mah"),
    "laptop bag": ("15.6 inch", "14 inch"),
}


def derived() -> dict[str, str]:
    """Query id → text: every colour, brand and size of the tables with its product."""
    queries = [f"{colour} {thing}" for thing in COLOURED for colour in COLOURS]
    queries += [f"{brand} {thing}" for thing, brands in BRANDED.items() for brand in brands]
    queries += [f"{size} {thing}" for thing, sizes in SIZED.items() for size in sizes]
    return {f"d{number}": text for number, text in enumerate(queries, 1)}


def search(
    model: str, queries: Mapping[str, str], products: Mapping[str, Mapping[str, Any]], k: int
) -> list[list[str]]:
    """The ids of the first k results of each query."""
    texts = [f"{row['title']} {row.get('text') or ''}".strip() for row in products.values()]
    source = DataSource(path="icecat")
    corpus = Dataset(tuple(products), {"text": texts}, source, fingerprint(list(products), {"text": texts}))
    columns = {"query": list(queries.values()), "qrels": [{} for _ in queries]}
    dataset = Dataset(tuple(queries), columns, source, "", {"corpus": corpus})
    loaded: Any = load(find(model), ModelOptions(), "retrieve")
    hits, _ = retrieval.search(loaded, dataset, retrieval.RetrievalOptions(top_k=max(k, 10)), SILENT)
    ids = np.array(list(products), dtype=object)
    return [list(ids[hits.documents[a:b]][:k]) for a, b in zip(hits.offsets, hits.offsets[1:], strict=False)]


def show(title: str, outcomes: Outcomes) -> None:
    print(f"\n{title}: {outcomes.counts}")
    for figure in read_figures(outcomes):
        value = "unknown" if figure.value is None else f"{figure.value:.4f}"
        ends = "" if figure.interval is None else f"  [{figure.interval[0]:.4f}, {figure.interval[1]:.4f}]"
        print(f"  {figure.name:32} {value}{ends}  ({figure.count} queries)")


def show_pairs(outcomes: Outcomes, products: Mapping[str, Mapping[str, Any]], count: int, part: str, seed: int) -> None:
    """A seeded sample of offending pairs."""
    table = outcomes.details["pairs"]
    rows = [i for i, p in enumerate(table["part"]) if part in ("", p)]
    for number, i in enumerate(sorted(random.Random(seed).sample(rows, min(count, len(rows)))), 1):
        row = products[str(table["document"][i])]
        colours = {k: v for k, v in row["attributes"].items() if k.startswith("attr_t") and "colour" in k}
        print(
            f"{number:3} [{table['part'][i]}] {outcomes.texts['query'][table['example'][i]]!r} rank {table['rank'][i]}"
        )
        print(f"      asked {table['asked'][i]} | found {table['found'][i]}")
        print(f"      {row['brand']} | {row['title'][:150]} | {str(colours)[:150]}")


def esci(file: Path) -> None:
    """How often the extractor finds a contradiction in pairs that people judged Exact, Substitute, …"""
    rows = list(csv.DictReader(file.open(encoding="utf-8")))
    extractor = Extractor.from_files(brands=[row["product_brand"] for row in rows])
    for label in ("Exact", "Substitute", "Complement", "Irrelevant"):
        found = [
            (row, agree(extractor, extractor.read(row["query"]), extractor.read_product(row)))
            for row in rows
            if row["esci_label"] == label
        ]
        for part in ("colour", "brand", "dimension"):
            asked = [state[part] for _, state in found if state[part]]
            print(
                f"{label:11} {part:10} {len(found)} pairs, {len(asked)} state it, "
                f"{asked.count(3)} contradict, {asked.count(2)} match, {asked.count(1)} silent"
            )
        for row, state in found:
            for part in (p for p in state if state[p] == 3):
                described = layer.describe(extractor.read_product(row), part)
                print(
                    f"    [{part}] {row['query']!r} | {row['product_title'][:90]} | {row['product_brand']} | "
                    f"{row['product_color']} | found {described}"
                )


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", help="a static model; default: potion-base-4m-int8 of CALIPERS_MODELS")
    parser.add_argument("--run", type=Path)
    parser.add_argument("--k", type=int, default=10)
    parser.add_argument("--pairs", type=int, default=30)
    parser.add_argument("--part", default="")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--esci", action="store_true")
    asked = parser.parse_args(arguments)
    data = Path(os.environ["CALIPERS_DATA"])
    model = asked.model or f"static:{os.environ['CALIPERS_MODELS']}/potion-base-4m-int8"
    if asked.esci:
        esci(data / "esci-sample" / "esci.csv")
        return
    products = {row["_id"]: row for row in map(json.loads, (data / "icecat" / "corpus.jsonl").open(encoding="utf-8"))}
    given = {
        row["_id"]: row["text"] for row in map(json.loads, (data / "icecat" / "queries.jsonl").open(encoding="utf-8"))
    }
    extractor = Extractor.from_files(
        [Path(__file__).with_name("icecat.yaml")], brands=[r["brand"] for r in products.values()]
    )
    queries = {**given, **derived()}
    if asked.run:
        run = trec.read_run(asked.run)
        found = [sorted(run.get(id, {}), key=lambda d, id=id: -run[id][d])[: asked.k] for id in queries]  # type: ignore[misc]
    else:
        found = search(model, queries, products, asked.k)
    start = time.perf_counter()
    first = layer.measure(extractor, given, products, found[: len(given)], k=asked.k)
    outcomes = layer.measure(extractor, derived(), products, found[len(given) :], k=asked.k)
    print(f"{asked.run or model}, {time.perf_counter() - start:.2f} s for {len(queries)} queries")
    show("icecat's own queries", first)
    show("derived queries", outcomes)
    show_pairs(first, products, asked.pairs // 3, asked.part, asked.seed)
    show_pairs(outcomes, products, asked.pairs - asked.pairs // 3, asked.part, asked.seed)


if __name__ == "__main__":
    main()
