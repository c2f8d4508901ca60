"""The sample shop: products with English and Japanese titles, brands in two scripts, colours and sizes, and queries.

Everything is invented here, brands included, and made from a seed when it is asked for: 1,500 products and 200 queries
with judgements. Colour, brand and size of a product are drawn independently of each other, so a search that ignores
one of them fails at its base rate. Grades follow ESCI: 3 exact (the right thing with all that was stated), 2 substitute
(the right thing, one stated attribute wrong), 1 complement (goes with it), 0 irrelevant.

Only `random.Random.random` is used: its sequence is the same in every version of Python.
"""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from calipers.core import Dataset, DataSource, fingerprint
from calipers.shop.goods import BRANDS, COLOURS, KINDS, Kind

T = TypeVar("T")

PRODUCTS, QUERIES = 1500, 200
EXACT, SUBSTITUTE, COMPLEMENT, IRRELEVANT = 3, 2, 1, 0
_JUDGED_OTHERS = 12  # irrelevant products that are judged per query, and complements


@dataclass(frozen=True)
class Product:
    id: str
    kind: int
    brand: int
    colour: int
    size: int
    japanese: bool
    row: Mapping[str, str]  # title, description, brand, colour, size


@dataclass(frozen=True)
class Query:
    """What is asked for: a kind, and of the attributes those that are not None."""

    id: str
    text: str
    kind: int
    brand: int | None
    colour: int | None
    size: int | None


@dataclass(frozen=True)
class Shop:
    products: tuple[Product, ...]
    queries: tuple[Query, ...]
    qrels: tuple[Mapping[str, int], ...]  # one per query: product id → grade

    def rows(self) -> dict[str, Mapping[str, str]]:
        """Product id → its columns, as a shop would have them."""
        return {product.id: product.row for product in self.products}


def make(*, products: int = PRODUCTS, queries: int = QUERIES, seed: int = 7) -> Shop:
    """The shop. The same seed gives the same shop on every machine."""
    rng = random.Random(seed)
    shelf = tuple(_product(rng, number) for number in range(products))
    asked = tuple(_query(rng, number, _pick(rng, shelf)) for number in range(queries))
    shelves = {kind: [product for product in shelf if product.kind == kind] for kind in range(len(KINDS))}
    return Shop(shelf, asked, tuple(_judge(rng, query, shelves) for query in asked))


def load(*, seed: int = 7) -> Dataset:
    """The shop as a BEIR dataset: columns `query`, `qrels`, `stated`; table `corpus` with `text` and the columns.

    `stated` maps colour, brand and size to what the query asks for, in English; what it leaves open is not there.
    """
    shop = make(seed=seed)
    corpus = _corpus(shop.products)
    ids = tuple(query.id for query in shop.queries)
    columns: dict[str, Sequence[Any]] = {
        "query": [query.text for query in shop.queries],
        "qrels": list(shop.qrels),
        "stated": [stated(query) for query in shop.queries],
    }
    tables = {"corpus": corpus}
    source = DataSource(path="shop", split="test", shuffle=False, seed=seed, rows_read=len(ids))
    return Dataset(ids, columns, source, fingerprint(ids, columns, tables), tables, {"documents": len(corpus)})


def write(folder: Path, *, seed: int = 7) -> Path:
    """The same as a BEIR folder, for commands that read one."""
    shop = make(seed=seed)
    (folder / "qrels").mkdir(parents=True, exist_ok=True)
    rows = [{"_id": p.id, **p.row, "text": p.row["description"]} for p in shop.products]
    _write_lines(folder / "corpus.jsonl", [json.dumps(row, ensure_ascii=False) for row in rows])
    texts = [json.dumps({"_id": q.id, "text": q.text}, ensure_ascii=False) for q in shop.queries]
    _write_lines(folder / "queries.jsonl", texts)
    graded = [
        f"{query.id}\t{product}\t{grade}"
        for query, grades in zip(shop.queries, shop.qrels, strict=True)
        for product, grade in grades.items()
    ]
    _write_lines(folder / "qrels" / "test.tsv", ["query-id\tcorpus-id\tscore", *graded])
    return folder


def stated(query: Query) -> dict[str, str]:
    asked = {
        "colour": None if query.colour is None else COLOURS[query.colour].english[0],
        "brand": None if query.brand is None else BRANDS[query.brand][0],
        "size": None if query.size is None else KINDS[query.kind].sizes[query.size][0][0],
    }
    return {name: value for name, value in asked.items() if value is not None}


def contradicted(query: Query, product: Product) -> list[str]:
    """The attributes that the query states and the product has otherwise; sizes only within the same kind."""
    wrong = []
    if query.colour is not None and not COLOURS[query.colour].families & COLOURS[product.colour].families:
        wrong.append("colour")
    if query.brand is not None and query.brand != product.brand:
        wrong.append("brand")
    if query.size is not None and (query.kind != product.kind or query.size != product.size):
        wrong.append("size")
    return wrong


# --- making ------------------------------------------------------------------------------------------------------


def _pick(rng: random.Random, values: Sequence[T]) -> T:
    return values[int(rng.random() * len(values))]


def _row(rng: random.Random, values: Sequence[Any]) -> int:
    return int(rng.random() * len(values))


def _product(rng: random.Random, number: int) -> Product:
    kind, brand, colour = _row(rng, KINDS), _row(rng, BRANDS), _row(rng, COLOURS)
    size, japanese = _row(rng, KINDS[kind].sizes), rng.random() < 0.5
    colour_word = _pick(rng, COLOURS[colour].japanese if japanese else COLOURS[colour].english)
    size_word = _pick(rng, KINDS[kind].sizes[size][1 if japanese else 0])
    brand_word = BRANDS[brand][1 if japanese and rng.random() < 0.7 else 0]
    in_column = rng.random() < 0.7, rng.random() < 0.7  # what no column says is in the title
    in_title = rng.random() < 0.6 or not in_column[0], rng.random() < 0.6 or not in_column[1]
    row = {
        "title": _title(KINDS[kind], brand_word, colour_word * in_title[0], size_word * in_title[1], japanese=japanese),
        "description": _describe(rng, KINDS[kind], japanese=japanese),
        "brand": f"{brand_word}({BRANDS[brand][0]})"
        if brand_word != BRANDS[brand][0] and rng.random() < 0.3
        else brand_word,
        "colour": colour_word * in_column[0],
        "size": size_word * in_column[1],
    }
    return Product(f"p{number:04}", kind, brand, colour, size, japanese, row)


def _title(kind: Kind, brand: str, colour: str, size: str, *, japanese: bool) -> str:
    name = kind.japanese if japanese else kind.english
    order = (brand, name, colour, size) if japanese else (brand, colour, name, size)
    return " ".join(part for part in order if part)


_ENGLISH = (
    "A {name} for every day.",
    "Our best-selling {name}, also sold in other colours.",
    "The {name} comes in a plain box.",
    "Light, simple and made to last.",
)
_JAPANESE = (
    "毎日使える{name}です。",
    "人気の{name}。色違いもあります。",
    "シンプルな{name}です。",
    "軽くて丈夫、長く使えます。",
)


def _describe(rng: random.Random, kind: Kind, *, japanese: bool) -> str:
    sentence = _pick(rng, _JAPANESE if japanese else _ENGLISH)
    return sentence.format(name=kind.japanese if japanese else kind.english)


def _query(rng: random.Random, number: int, target: Product) -> Query:
    """A query that the target answers: its kind, and some of its attributes, in either language."""
    japanese = rng.random() < 0.5
    says = [rng.random() < share for share in (0.6, 0.4, 0.45)]
    kind = KINDS[target.kind]
    colour = _pick(rng, COLOURS[target.colour].japanese if japanese else COLOURS[target.colour].english)
    brand = _pick(rng, BRANDS[target.brand]) if japanese else BRANDS[target.brand][0].lower()
    size = _pick(rng, kind.sizes[target.size][1 if japanese else 0])
    return Query(
        id=f"q{number:03}",
        text=_title(kind, brand * says[1], colour * says[0], size * says[2], japanese=japanese),
        kind=target.kind,
        brand=target.brand if says[1] else None,
        colour=target.colour if says[0] else None,
        size=target.size if says[2] else None,
    )


def _judge(rng: random.Random, query: Query, shelves: Mapping[int, Sequence[Product]]) -> dict[str, int]:
    """Every product of the kind, by how many of the stated attributes it has wrong; some of the others."""
    by_wrong = (EXACT, SUBSTITUTE, IRRELEVANT, IRRELEVANT)
    grades = {product.id: by_wrong[len(contradicted(query, product))] for product in shelves[query.kind]}
    with_it = KINDS[query.kind].goes_with
    others = [kind for kind in range(len(KINDS)) if kind not in (query.kind, with_it)]
    for _ in range(_JUDGED_OTHERS):
        for kind, grade in ((with_it, COMPLEMENT), (_pick(rng, others), IRRELEVANT)):
            if shelves[kind]:
                grades[_pick(rng, shelves[kind]).id] = grade
    return grades


def _corpus(products: Sequence[Product]) -> Dataset:
    ids = tuple(product.id for product in products)
    columns: dict[str, Sequence[Any]] = {
        "text": [f"{product.row['title']} {product.row['description']}" for product in products],
        **{name: [product.row[name] for product in products] for name in ("title", "brand", "colour", "size")},
    }
    source = DataSource(path="shop", shuffle=False, rows_read=len(ids))
    return Dataset(ids, columns, source, fingerprint(ids, columns))


def _write_lines(file: Path, lines: Sequence[str]) -> None:
    file.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8", newline="\n")
