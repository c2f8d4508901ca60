"""The sample shop: products with English and Japanese titles, brands in two scripts, colours and sizes, and queries.

Everything is invented (sample.yaml, brands included) and made from a seed: 1,500 products and 200 queries with
judgements. Colour, brand and size are drawn independently, so a search that ignores one of them fails at its base rate.
Grades follow ESCI: 3 exact (the right thing with all that was stated), 2 substitute (the right thing, one
stated attribute wrong), 1 complement (goes with it), 0 irrelevant.

Only `random.Random.random` is used: its sequence is the same in every version of Python.
"""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import yaml

from calipers.core import Dataset, DataSource, fingerprint

T = TypeVar("T")

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
    """A kind of product, and the attributes that the query states; the others are None."""

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


def make(*, products: int = 1500, queries: int = 200, seed: int = 7) -> Shop:
    """The shop. The same seed gives the same shop on every machine."""
    rng = random.Random(seed)
    shelf = tuple(_product(rng, number) for number in range(products))
    questions = tuple(_query(rng, number, _pick(rng, shelf)) for number in range(queries))
    shelves = {kind: [product for product in shelf if product.kind == kind] for kind in range(len(KINDS))}
    return Shop(shelf, questions, tuple(_judge(rng, query, shelves) for query in questions))


def load(*, seed: int = 7) -> Dataset:
    """The shop as a BEIR dataset: columns `query`, `qrels`, `stated`; table `corpus` with `text` and the columns.

    `stated` maps colour, brand and size to what the query states, in English; what it leaves open is absent.
    """
    shop = make(seed=seed)
    corpus = _corpus(shop.products)
    ids = tuple(query.id for query in shop.queries)
    columns: dict[str, Sequence[object]] = {
        "query": [query.text for query in shop.queries],
        "qrels": list(shop.qrels),
        "stated": [stated(query) for query in shop.queries],
    }
    tables = {"corpus": corpus}
    source = DataSource(path="shop", split="test", shuffle=False, seed=seed, rows_read=len(ids))
    return Dataset(ids, columns, source, fingerprint(ids, columns, tables), tables, {"documents": len(corpus)})


def write(folder: Path, *, products: int = 1500, queries: int = 200) -> Path:
    """The same as a BEIR folder, for commands that read one."""
    shop = make(products=products, queries=queries)
    (folder / "qrels").mkdir(parents=True, exist_ok=True)
    documents = [{"_id": p.id, **p.row, "text": p.row["description"]} for p in shop.products]
    questions = [{"_id": q.id, "text": q.text} for q in shop.queries]
    judged = zip(shop.queries, shop.qrels, strict=True)
    graded = [f"{query.id}\t{product}\t{grade}" for query, grades in judged for product, grade in grades.items()]
    files = {
        "corpus.jsonl": [json.dumps(row, ensure_ascii=False) for row in documents],
        "queries.jsonl": [json.dumps(row, ensure_ascii=False) for row in questions],
        "qrels/test.tsv": ["query-id\tcorpus-id\tscore", *graded],
    }
    for name, lines in files.items():
        (folder / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8", newline="\n")
    return folder


def stated(query: Query) -> dict[str, str]:
    """Colour, brand and size that the query states, in English."""
    colour, brand, size = query.colour, query.brand, query.size
    values = {
        "colour": None if colour is None else COLOURS[colour].names[0][0],
        "brand": None if brand is None else BRANDS[brand][0],
        "size": None if size is None else KINDS[query.kind].sizes[size][0][0],
    }
    return {name: value for name, value in values.items() if value is not None}


def contradicted(query: Query, product: Product) -> list[str]:
    """The attributes that the query states and the product contradicts."""
    wrong = {
        "colour": query.colour is not None and not COLOURS[query.colour].families & COLOURS[product.colour].families,
        "brand": query.brand not in (None, product.brand),
        "size": query.size is not None and (query.kind, query.size) != (product.kind, product.size),
    }
    return [name for name, is_wrong in wrong.items() if is_wrong]


# --- what is sold ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Colour:
    names: Sequence[Sequence[str]]  # in English, in Japanese
    families: frozenset[str]


@dataclass(frozen=True)
class ProductKind:
    names: Sequence[str]  # in English, in Japanese
    sizes: Sequence[Sequence[Sequence[str]]]  # each in several spellings of either
    goes_with: int  # the row of another kind


_SOLD = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8"))
COLOURS = tuple(Colour(row["names"], frozenset(row["families"])) for row in _SOLD["colours"])
BRANDS: Sequence[Sequence[str]] = _SOLD["brands"]  # Latin, kana
KIND_NAMES = [row["names"][0] for row in _SOLD["kinds"]]
KINDS = tuple(ProductKind(row["names"], row["sizes"], KIND_NAMES.index(row["goes_with"])) for row in _SOLD["kinds"])


# --- making ------------------------------------------------------------------------------------------------------


def _row(rng: random.Random, values: Sequence[object]) -> int:
    return int(rng.random() * len(values))


def _pick(rng: random.Random, values: Sequence[T]) -> T:
    return values[_row(rng, values)]


def _product(rng: random.Random, number: int) -> Product:
    kind, brand, colour = _row(rng, KINDS), _row(rng, BRANDS), _row(rng, COLOURS)
    size, japanese = _row(rng, KINDS[kind].sizes), rng.random() < 0.5
    colour_word = _pick(rng, COLOURS[colour].names[japanese])
    size_word = _pick(rng, KINDS[kind].sizes[size][japanese])
    latin = BRANDS[brand][0]
    brand_word = BRANDS[brand][japanese and rng.random() < 0.7]
    in_column = rng.random() < 0.7, rng.random() < 0.7  # what no column says is in the title
    in_title = rng.random() < 0.6 or not in_column[0], rng.random() < 0.6 or not in_column[1]
    name = KINDS[kind].names[japanese]
    row = {
        "title": _title(name, brand_word, colour_word * in_title[0], size_word * in_title[1], japanese=japanese),
        "description": _pick(rng, _SOLD["descriptions"][japanese]).format(name=name),
        "brand": f"{brand_word}({latin})" if brand_word != latin and rng.random() < 0.3 else brand_word,
        "colour": colour_word * in_column[0],
        "size": size_word * in_column[1],
    }
    return Product(f"p{number:04}", kind, brand, colour, size, japanese, row)


def _title(name: str, brand: str, colour: str, size: str, *, japanese: bool) -> str:
    order = (brand, name, colour, size) if japanese else (brand, colour, name, size)
    return " ".join(part for part in order if part)


def _query(rng: random.Random, number: int, target: Product) -> Query:
    """A query that the target answers: its kind, and some of its attributes, in either language."""
    japanese = rng.random() < 0.5
    has_colour, has_brand, has_size = (rng.random() < share for share in (0.6, 0.4, 0.45))
    kind = KINDS[target.kind]
    colour = _pick(rng, COLOURS[target.colour].names[japanese])
    brand = _pick(rng, BRANDS[target.brand]) if japanese else BRANDS[target.brand][0].lower()
    size = _pick(rng, kind.sizes[target.size][japanese])
    return Query(
        id=f"q{number:03}",
        text=_title(kind.names[japanese], brand * has_brand, colour * has_colour, size * has_size, japanese=japanese),
        kind=target.kind,
        brand=target.brand if has_brand else None,
        colour=target.colour if has_colour else None,
        size=target.size if has_size else None,
    )


def _judge(rng: random.Random, query: Query, shelves: Mapping[int, Sequence[Product]]) -> dict[str, int]:
    """Every product of the kind, graded by the number of stated attributes that it contradicts; and a few others."""
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
    columns: dict[str, Sequence[object]] = {
        "text": [f"{product.row['title']} {product.row['description']}" for product in products],
        **{name: [product.row[name] for product in products] for name in ("title", "brand", "colour", "size")},
    }
    source = DataSource(path="shop", shuffle=False, rows_read=len(ids))
    return Dataset(ids, columns, source, fingerprint(ids, columns))
