"""The products of a corpus and the attributes in their columns.

While the corpus is read only brands and a fingerprint are kept. The few products that a search finds are read from it
once more, by id, so memory does not grow with it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass

from calipers.core import DataError, name_some
from calipers.shop import Attributes, Extractor, Words
from calipers.shop.agree import PARTS

Rows = Callable[[], Iterator[tuple[str, Mapping[str, object]]]]


@dataclass(frozen=True)
class Item:
    """What a product states, and the title to show it by."""

    attributes: Attributes
    title: str


@dataclass(frozen=True, eq=False)
class Products:
    """`extractor` has the brands of the corpus. `rows` reads the corpus, (id, columns), at each call.

    `expected` says whether a column holds a colour, a brand or a size, or the user gave words for them. `dictionary` is
    the fingerprint of the words, `fingerprint` the one of the recognised columns.
    """

    extractor: Extractor
    rows: Rows
    expected: bool
    dictionary: str
    fingerprint: str

    def read(self, ids: Collection[str]) -> dict[str, Item]:
        """The products of these ids. One pass over the corpus; none for no ids."""
        wanted = set(ids)
        items: dict[str, Item] = {}
        for id, row in self.rows() if wanted else ():
            if id in wanted:
                items[id] = read_item(self.extractor, row)
                if len(items) == len(wanted):
                    break
        if missing := sorted(wanted - items.keys()):
            raise DataError(f"the corpus has changed since it was read: {name_some(missing)} are not in it any more")
        return items


def read_item(extractor: Extractor, product: str | Mapping[str, object]) -> Item:
    return Item(extractor.read_product(product), extractor.title(product))


class Noticing:
    """Takes the columns of documents one by one; `finish` makes the Products of them."""

    def __init__(self, words: Words, *, expected: bool = False) -> None:
        self._extractor = Extractor.from_words(words)
        self._dictionary = hashlib.sha256(json.dumps(words, sort_keys=True).encode())
        self._brands: dict[str, None] = {}
        self._total = hashlib.sha256()
        self._expected = expected

    def notice(self, id: str, row: Mapping[str, object]) -> None:
        values = self._extractor.sort(row)
        stated = {part: [(name, str(value)) for name, value in values[part]] for part in (*PARTS, "title")}
        self._brands.update(dict.fromkeys(value for _, value in stated["brand"] if value.strip()))
        self._expected = self._expected or any(value.strip() for part in PARTS for _, value in stated[part])
        self._total.update(json.dumps([id, stated]).encode() + b"\n")

    def finish(self, rows: Rows) -> Products:
        return Products(
            extractor=self._extractor.with_brands(self._brands),
            rows=rows,
            expected=self._expected,
            dictionary=f"sha256:{self._dictionary.hexdigest()[:16]}",
            fingerprint=f"sha256:{self._total.hexdigest()[:16]}",
        )
