"""The products of a corpus and the attributes in their columns.

While the corpus is read only brands and a fingerprint are kept. The few products that a search finds are read from it
once more, by id, so memory does not grow with it.
"""

from __future__ import annotations

import hashlib
import json
import re
import unicodedata
import zlib
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from calipers.core import DataError, name_some
from calipers.shop import Attributes, Extractor, Words
from calipers.shop.agree import PARTS
from calipers.shop.extract import has_column
from calipers.shop.text import fold, squash

_IN_BRACKETS = re.compile(r"(?P<name>[^\s()\[\]|/,、]{2,24}) ?\((?P<other>[^()\[\]|/,、]{2,24})\)")
_LONGEST_TITLE = 200  # characters that are looked at

Rows = Callable[[], Iterator[tuple[str, Mapping[str, object]]]]


@dataclass(frozen=True)
class Item:
    """What a product states, the title to show it by, and its type, "" where no column says."""

    attributes: Attributes
    title: str
    type: str = ""


@dataclass(frozen=True, eq=False)
class Products:
    """`extractor` has the brands of the corpus. `rows` reads the corpus, (id, columns), at each call.

    `expected` says whether a column holds a colour, a brand or a size, or the user gave words for them. `dictionary` is
    the fingerprint of the words, `fingerprint` the one of the recognised columns. `types` counts the products of each
    type that a column names.
    """

    extractor: Extractor
    rows: Rows
    expected: bool
    dictionary: str
    fingerprint: str
    types: Mapping[str, int] = field(default_factory=dict)
    brands: Mapping[str, int] = field(default_factory=dict)  # values of the brand columns, and in how many products

    def read(self, ids: Collection[str], types: Collection[str] = (), share: float = 1.0) -> dict[str, Item]:
        """The products of these ids, and a share of those of these types, which their ids decide. One pass over the
        corpus; none for no ids."""
        wanted = set(ids)
        items: dict[str, Item] = {}
        for id, row in self.rows() if wanted or types else ():
            if id in wanted or (types and _is_drawn(id, share) and self.extractor.product_type(row) in types):
                items[id] = read_item(self.extractor, row)
                if len(items) == len(wanted) and not types:
                    break
        if missing := sorted(wanted - items.keys()):
            raise DataError(f"the corpus has changed since it was read: {name_some(missing)} are not in it any more")
        return items

    def types_of(self, ids: Collection[str]) -> dict[str, str]:
        """The types of these products, where a column says. One pass over the corpus; none without such a column."""
        if not self.types:
            return {}
        typed = ((id, self.extractor.product_type(row)) for id, row in self.rows() if id in ids)
        return {id: kind for id, kind in typed if kind}


def _is_drawn(id: str, share: float) -> bool:
    return share >= 1 or zlib.crc32(id.encode("utf-8", "surrogatepass")) < share * 2**32


def read_item(extractor: Extractor, product: str | Mapping[str, object]) -> Item:
    kind = "" if isinstance(product, str) else extractor.product_type(product)
    return Item(extractor.read_product(product), extractor.title(product), kind)


def _two_spellings(brands: Sequence[str], titles: Sequence[tuple[str, str]]) -> Iterator[str]:
    """What a row shows to be one brand in two scripts, written as a column would have it: ナイキ(NIKE).

    Two brand columns (brand, ブランド), or a title with the other spelling in brackets behind the one of the column.

    >>> list(_two_spellings(["Gap"], [("title", "ギャップ(GAP) デニム")])), list(_two_spellings(["Nike", "ナイキ"], []))
    (['ギャップ(GAP)'], ['Nike(ナイキ)'])
    """
    columns = [value for value in brands if squash(value)]
    yield from (f"{one}({other})" for one, other in pairwise(columns) if one.isascii() != other.isascii())
    names = {squash(value) for value in columns}
    for _, title in titles:
        for match in _IN_BRACKETS.finditer(unicodedata.normalize("NFKC", title[:_LONGEST_TITLE])):
            one, other = match["name"].strip(), match["other"].strip()
            if one.isascii() != other.isascii() and names & {squash(one), squash(other)}:
                yield f"{one}({other})"


class Noticing:
    """Takes the columns of documents one by one; `finish` makes the Products of them. `named` are columns that the user
    names, which must occur."""

    def __init__(self, words: Words, *, expected: bool = False, named: Collection[str] = ()) -> None:
        self._extractor = Extractor.from_words(words)
        self._dictionary = hashlib.sha256(json.dumps(words, sort_keys=True).encode())
        self._brands: dict[str, None] = {}
        self._counts: Counter[str] = Counter()
        self._total = hashlib.sha256()
        self._expected = expected
        self._types: Counter[str] = Counter()
        self._missing = {fold(name): name for name in named}

    def notice(self, id: str, row: Mapping[str, object]) -> None:
        values = self._extractor.sort(row)
        stated = {part: [(name, str(value)) for name, value in values[part]] for part in (*PARTS, "title", "type")}
        if kind := self._extractor.type_in(values):
            self._types[kind] += 1
        if self._missing:
            self._missing = {key: name for key, name in self._missing.items() if not has_column(row, name)}
        brands = [value for _, value in stated["brand"] if value.strip()]
        self._counts.update(set(brands))
        self._brands.update(dict.fromkeys((*brands, *_two_spellings(brands, stated["title"]))))
        self._expected = self._expected or any(value.strip() for part in PARTS for _, value in stated[part])
        self._total.update(json.dumps([id, stated]).encode() + b"\n")

    def finish(self, rows: Rows) -> Products:
        if self._missing:
            raise DataError(
                f"no product has a column {name_some(sorted(self._missing.values()))}: fix `CorpusInputs.columns`"
            )
        return Products(
            extractor=self._extractor.with_brands(self._brands),
            rows=rows,
            expected=self._expected,
            dictionary=f"sha256:{self._dictionary.hexdigest()[:16]}",
            fingerprint=f"sha256:{self._total.hexdigest()[:16]}",
            types=dict(self._types),
            brands=dict(self._counts),
        )
