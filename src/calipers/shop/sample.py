"""The sample shop: products with English and Japanese titles, brands in two scripts, colours and sizes, and queries.

Everything is invented, brands included, and made from a seed: 1,500 products and 200 queries with judgements. Colour,
brand and size of a product are drawn independently of each other, so a search that ignores one of them fails at its
base rate. Grades follow ESCI: 3 exact (the right thing with all that was stated), 2 substitute (the right thing, one
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

from calipers.core import Dataset, DataSource, fingerprint

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

    def rows(self) -> dict[str, Mapping[str, str]]:
        """Product id → its columns, as a shop would have them."""
        return {product.id: product.row for product in self.products}


def make(*, products: int = PRODUCTS, queries: int = QUERIES, seed: int = 7) -> Shop:
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
    """Colour, brand and size that the query states, in English."""
    values: dict[str, str] = {}
    if query.colour is not None:
        values["colour"] = COLOURS[query.colour].english[0]
    if query.brand is not None:
        values["brand"] = BRANDS[query.brand][0]
    if query.size is not None:
        values["size"] = KINDS[query.kind].sizes[query.size][0][0]
    return values


def contradicted(query: Query, product: Product) -> list[str]:
    """The attributes that the query states and the product contradicts."""
    wrong = []
    if query.colour is not None and not COLOURS[query.colour].families & COLOURS[product.colour].families:
        wrong.append("colour")
    if query.brand is not None and query.brand != product.brand:
        wrong.append("brand")
    if query.size is not None and (query.kind != product.kind or query.size != product.size):
        wrong.append("size")
    return wrong


# --- what is sold ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Colour:
    english: tuple[str, ...]
    japanese: tuple[str, ...]
    families: frozenset[str]


@dataclass(frozen=True)
class ProductKind:
    """A kind of product: its names, its sizes in several spellings (English, Japanese), and what goes with it."""

    english: str
    japanese: str
    sizes: tuple[tuple[tuple[str, ...], tuple[str, ...]], ...]
    goes_with: int  # the row of another kind


def _lines(table: str) -> list[list[str]]:
    return [[cell.strip() for cell in line.split("|")] for line in table.strip().splitlines()]


def _words(cell: str) -> tuple[str, ...]:
    return tuple(word.strip() for word in cell.split("/"))


# English names, Japanese names, families (its own name where there is none)
_COLOURS = """
black           | 黒 / ブラック                 | black
charcoal        | チャコール / チャコールグレー | black / grey
grey / gray     | グレー / 灰色                 | grey
white           | 白 / ホワイト                 | white
red             | 赤 / レッド                   | red
blue            | 青 / ブルー                   | blue
navy / navy blue| 紺 / ネイビー                 | blue
green           | 緑 / グリーン                 | green
yellow          | 黄色 / イエロー               | yellow
pink            | ピンク / 桃色                 | pink
brown           | 茶色 / ブラウン               | brown
purple          | 紫 / パープル                 | purple
"""

_BRANDS = """
Kestova      | ケストバ
Minarel      | ミナレル
Oruvi        | オルヴィ
Bramwyn      | ブラムウィン
Hoshinari    | ホシナリ
Lu-Venti     | ルヴェンティ
Sabrenne     | サブレンヌ
Pelloto      | ペロット
Norvika      | ノルヴィカ
Dexaro       | デクサロ
Zuvanta      | ズヴァンタ
Ikomura      | イコムラ
Arbelis      | アルベリス
Tromfeld     | トロムフェルト
Calvessa     | カルヴェッサ
Ro-kkan      | ロッカン
Vestrilo     | ヴェストリロ
Onubari      | オヌバリ
Gelmont      | ジェルモン
Tafuri Works | タフリワークス
"""

# English name, Japanese name, what goes with it, then three sizes: spellings in English = in Japanese
_KINDS = """
water bottle|水筒|lunch box|350 ml/350ml=350ml|500 ml/0.5 L=500ml/５００ｍｌ|1 L/1000 ml=1L/1リットル
lunch box|弁当箱|water bottle|600 ml=600ml|800 ml/0.8 L=800ml|1.1 L/1100 ml=1.1L/1100ml
backpack|リュック|umbrella|15 L/15 litres=15L/15リットル|22 L=22L|30 L/30L=30L/３０Ｌ
USB stick|USBメモリ|external hard drive|32 GB/32GB=32GB|64 GB=64GB/64ギガ|128 GB/0.128 TB=128GB
HDMI cable|HDMIケーブル|monitor|1 m/100 cm=1m/1メートル|2 m/200 cm=2m|5 m/5m=5m/5メートル
external hard drive|外付けHDD|USB stick|1 TB/1000 GB=1TB/1テラ|2 TB/2TB=2TB|4 TB=4TB/4000GB
monitor|モニター|HDMI cable|24 inch/61 cm=24インチ/24型|27 inch/27"=27インチ|32 inch/81.3 cm=32型
power bank|モバイルバッテリー|backpack|5000 mAh/5 Ah=5000mAh|10,000 mAh=1万mAh|20000 mAh=20000mAh
notebook|ノート|ballpoint pen|30 sheets=30枚|50 sheets=50枚/５０枚|80 sheets=80枚
ballpoint pen|ボールペン|notebook|3 pack/pack of 3=3本/3本セット|5 pack/set of 5=5本|10 pack=10本入り
mug|マグカップ|electric kettle|250 ml=250ml|350 ml/35 cl=350ml|450 ml=450ml/0.45リットル
electric kettle|電気ケトル|mug|0.8 L/800 ml=0.8L/800ml|1.2 L=1.2L/1.2リットル|1.7 L/1700 ml=1.7L
desk lamp|デスクライト|extension cord|5 W/5 watt=5W/5ワット|8 W=8W|12 W/12W=12W/１２Ｗ
frying pan|フライパン|electric kettle|20 cm/200 mm=20cm|24 cm=24cm/24センチ|28 cm/28cm=２８ｃｍ
yoga mat|ヨガマット|dumbbell|4 mm/0.4 cm=4mm|6 mm=6mm/6ミリ|10 mm/1 cm=10mm/1cm
dumbbell|ダンベル|yoga mat|2 kg/2000 g=2kg/2キロ|5 kg/5kg=5kg|10 kg=10kg/１０ｋｇ
umbrella|傘|backpack|55 cm/55cm=55cm|60 cm/600 mm=60cm/60センチ|70 cm=70cm
storage box|収納ボックス|rug|20 L/20 litres=20L|40 L=40L/40リットル|60 L=60L/６０Ｌ
extension cord|延長コード|desk lamp|1.5 m/150 cm=1.5m|3 m=3m/3メートル|10 m/10m=10m
rug|ラグ|storage box|130 x 185 cm=130×185cm|185 x 240 cm=185×240cm|200 x 250 cm=200×250cm
"""


def _size(cell: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    english, japanese = cell.split("=")
    return _words(english), _words(japanese)


COLOURS = tuple(Colour(_words(en), _words(ja), frozenset(_words(family))) for en, ja, family in _lines(_COLOURS))
BRANDS = tuple((latin, kana) for latin, kana in _lines(_BRANDS))
KIND_NAMES = tuple(row[0] for row in _lines(_KINDS))
KINDS = tuple(
    ProductKind(english, japanese, tuple(map(_size, sizes)), KIND_NAMES.index(other))
    for english, japanese, other, *sizes in _lines(_KINDS)
)


# --- making ------------------------------------------------------------------------------------------------------


def _row(rng: random.Random, values: Sequence[object]) -> int:
    return int(rng.random() * len(values))


def _pick(rng: random.Random, values: Sequence[T]) -> T:
    return values[_row(rng, values)]


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


def _title(kind: ProductKind, brand: str, colour: str, size: str, *, japanese: bool) -> str:
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


def _describe(rng: random.Random, kind: ProductKind, *, japanese: bool) -> str:
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


def _write_lines(file: Path, lines: Sequence[str]) -> None:
    file.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8", newline="\n")
