"""A shop of 300 bilingual products and 60 queries, labelled by hand, and how well contradictions are recognised on it.

    python -m tests.support.bilingual_shop        prints precision and recall, and the wrong verdicts

Products and queries carry hand-written labels: the brand, the colours (a query lists every colour that it accepts, so
no family of the extractor is used) and the sizes in one unit. A query is compared with the 30 products of its kind; the
gold verdict follows from the labels alone. The files were written before the code that they measure.
"""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from calipers.shop import Agreement, agree
from calipers.shop.agree import PARTS
from calipers.shop.lexicon import read_words
from calipers.shop.products import Noticing, Products
from tests.support.attribute_cases import Score

Row = dict[str, str]
_FOLDER = Path(__file__).parent / "cases"
_COLUMNS = ("title", "brand", "colour", "size")


def read_rows(name: str) -> list[Row]:
    with (_FOLDER / f"bilingual_{name}.txt").open(encoding="utf-8", newline="") as lines:
        return list(csv.DictReader(lines, delimiter="|", quoting=csv.QUOTE_NONE))


def read_shop(products: list[Row]) -> Products:
    """The products as a diagnosis reads them: with the brands of the corpus. Empty columns are left out."""
    rows = {str(i): {name: row[name] for name in _COLUMNS if row[name]} for i, row in enumerate(products)}
    noticing = Noticing(read_words())
    for id, row in rows.items():
        noticing.notice(id, row)
    return noticing.finish(lambda: iter(rows.items()))


@dataclass(frozen=True)
class Verdict:
    part: str
    language: str
    query: str
    title: str
    expected: bool  # a contradiction, by the labels
    reached: bool  # by the extractor


def verdicts() -> Iterator[Verdict]:
    products = read_rows("products")
    shop = read_shop(products)
    items = shop.read([str(i) for i in range(len(products))])
    for query in read_rows("queries"):
        request = shop.extractor.read(query["query"])
        for i, product in enumerate(products):
            if product["kind"] == query["kind"]:
                reached, expected = agree(shop.extractor, request, items[str(i)].attributes), _gold(query, product)
                for part in PARTS:
                    verdict = reached[part] == Agreement.CONTRADICT
                    yield Verdict(
                        part, _language(query["query"]), query["query"], product["title"], expected[part], verdict
                    )


def _language(text: str) -> str:
    """Mixed is Japanese with a Latin word of three letters or more."""
    if not any(ord(c) >= 0x3040 for c in text):
        return "English"
    return "mixed" if any(len(word) > 2 and word.isascii() and word.isalpha() for word in text.split()) else "Japanese"


def _gold(query: Row, product: Row) -> dict[str, bool]:
    brand, colours = product["gold_brand"], set(product["gold_colours"].split())
    accepted, excluded = set(query["colours"].split()), set(query["not_colours"].split())
    wrong_brand = bool(query["brand"]) and brand != query["brand"]
    return {
        "colour": bool(colours) and (bool(colours & excluded) or (bool(accepted) and not colours & accepted)),
        "brand": bool(brand) and (brand == query["not_brand"] or wrong_brand),
        "dimension": _wrong_size(_sizes(query["sizes"]), _sizes(product["gold_sizes"])),
    }


def _sizes(text: str) -> dict[str, set[str]]:
    """
    >>> sorted(_sizes("gb=500 mm=100/6.8")["mm"])
    ['100', '6.8']
    """
    return {kind: set(values.split("/")) for kind, _, values in (part.partition("=") for part in text.split())}


def _wrong_size(wanted: dict[str, set[str]], stated: dict[str, set[str]]) -> bool:
    return any(kind in stated and not values & stated[kind] for kind, values in wanted.items())


def score() -> tuple[dict[str, Score], list[Verdict]]:
    """Scores of contradictions per part, language and both together, and the wrong verdicts."""
    counts: Counter[tuple[str, str]] = Counter()
    wrong = []
    for verdict in verdicts():
        if verdict.expected or verdict.reached:
            how = "right" if verdict.expected and verdict.reached else "wrong" if verdict.reached else "missed"
            for group in (verdict.part, verdict.language, f"{verdict.part}, {verdict.language}", "all"):
                counts[group, how] += 1
        if verdict.expected != verdict.reached:
            wrong.append(verdict)
    groups = sorted({group for group, _ in counts})
    return {g: Score(counts[g, "right"], counts[g, "wrong"], counts[g, "missed"]) for g in groups}, wrong


if __name__ == "__main__":
    scores, wrong = score()
    for group, s in scores.items():
        counts = f"{s.right} right, {s.wrong} wrong, {s.missed} missed"
        print(f"{group:20} precision {s.precision:.3f}  recall {s.recall:.3f}  ({counts})")
    for (query, part, reached), number in Counter((v.query, v.part, v.reached) for v in wrong).most_common():
        print(f"  {number:3} {'wrong' if reached else 'missed'} contradictions of {part}: {query}")
