"""Which entities are mined from a corpus, and what counts as a mention of one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from calipers.diagnosis.layers import entities
from calipers.runs.embedding import CorpusInputs, read
from calipers.shop import read_words, sample
from calipers.shop.products import Noticing, Products

BRANDS = ("Zalvora", "Kintek", "Ombria", "Fenwick Sound")
LINES = ("Skyrunner", "PocketDeck", "Duravault", "Orbitone")
CODES = ("QC45", "WH-1000XM5", "dv7-1211ea", "X940e")


def products_of(rows: Sequence[Mapping[str, Any]]) -> Products:
    noticing = Noticing(read_words())
    for number, row in enumerate(rows):
        noticing.notice(str(number), row)
    return noticing.finish(lambda: iter(()))


def shop() -> tuple[list[str], Products]:
    """120 products of four brands, each with one line and one code; what else they say is ordinary."""
    rows, texts = [], []
    for i in range(120):
        which = i % 4
        brand, line, code = BRANDS[which], LINES[which], CODES[which] if i < 40 else f"{i} pcs"
        title = f"{brand} {line} {code} wireless headphones Black, 128GB, 15.6-inch, {i % 7 + 1}x USB"
        text = (
            f"Tested and verified, black finish. Continuous use: 32-bit, {i + 3}-page manual. The {line} is included."
        )
        rows.append({"title": title, "brand": brand})
        texts.append(f"{title} {text}")
    return texts, products_of(rows)


def by_kind(mined: Sequence[entities.Entity]) -> dict[str, set[str]]:
    kinds: dict[str, set[str]] = {}
    for entity in mined:
        kinds.setdefault(entity.kind, set()).add(entity.text)
    return kinds


def test_brands_names_and_codes_and_no_ordinary_word() -> None:
    texts, products = shop()
    mined = by_kind(entities.mine([*texts, *["a plain black thing"] * 900], products))
    assert mined == {"brand": set(BRANDS), "name": set(LINES), "code": set(CODES)}


def test_brands_of_the_lexicon_where_there_is_no_column() -> None:
    texts = [f"{brand} shoes {i}" for i in range(8) for brand in ("Nike", "adidas", "ナイキ", "Puma")] * 2
    mined = by_kind(entities.mine([*texts, *["plain shoes"] * 40], None))
    assert {"Nike", "adidas", "ナイキ"} <= mined["brand"]


def test_a_corpus_that_is_no_shop_has_no_brands() -> None:
    texts = [f"people of Columbia were asked {i} times" for i in range(5)] + ["nothing of note here"] * 200
    mined = by_kind(entities.mine(texts, None))
    assert "brand" not in mined
    assert mined["name"] == {"Columbia"}


def test_names_in_katakana_and_quotes_and_no_pieces_of_sentences() -> None:
    texts = [f"ポケモラン 『星の剣士』 シューズ {i}です" for i in range(4)] + [
        "シューズです。使いやすいバッグです"
    ] * 200
    mined = by_kind(entities.mine(texts, None))
    assert mined["name"] == {"ポケモラン", "星の剣士"}
    assert not any(entity.endswith("です") for several in mined.values() for entity in several)


def test_the_sample_shop_gives_its_brands(tmp_path: Path) -> None:
    material = read(CorpusInputs(dataset=str(sample.write(tmp_path))), products=True)
    mined = entities.mine(material.dataset.tables["corpus"].columns["text"], material.products)
    spellings = {name for pair in sample.BRANDS for name in pair}
    assert {entity.text for entity in mined} == spellings
    assert {entity.kind for entity in mined} == {"brand"}


def test_where_nothing_is_a_name_rare_words_are_taken() -> None:
    texts = ["photographic paper", "photographic film", *["the paper of film"] * 60]
    assert [(e.text, e.kind) for e in entities.mine(texts, None)] == [("photographic", "word")]
    assert entities.mine(["a b", "c d"], None) == ()
    assert entities.mine([], None) == ()


def test_the_company_in_a_brand_column_is_no_brand() -> None:
    rows = [{"title": f"Acmeco mug {i}", "brand": "Acmeco, Inc."} for i in range(3)]
    rows += [{"title": f"mug {i}", "brand": "Unbranded"} for i in range(3)]
    mined = entities.mine([row["title"] for row in rows], products_of(rows))
    assert [(e.text, e.kind) for e in mined if e.kind == "brand"] == [("Acmeco", "brand")]


@pytest.mark.parametrize(
    ("text", "entity", "expected"),
    [
        ("The HP printer", "hp", True),
        ("A book on PHP", "HP", False),
        ("Ｓｏｎｙ　WH-1000XM5", "wh-1000xm5", True),
        ("赤いナイキシューズ", "ナイキ", True),
        ("QC450 case", "QC45", False),
        ("Intel LGA 775 socket", "LGA775", True),
        ("sony wh1000xm5", "WH-1000XM5", True),
        ("the Fenwick-Sound bar", "Fenwick Sound", True),
        ("Sony's best", "Sony", True),
    ],
)
def test_a_mention_is_a_word_of_its_own(text: str, entity: str, expected: bool) -> None:
    assert entities.mentions(text, entity) is expected


def test_mentions_are_counted_up_to_enough() -> None:
    assert entities.count_mentions(["a b", "b", "B.", "c"], ["b", "a", "d"], 2) == [2, 1, 0]
