"""A text, and the columns of a product, to the attributes that it states.

A value is the product's own, excluded ("not black", 黒以外), or what it is made for ("for iPhone", iPhone用).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from functools import lru_cache
from itertools import islice, pairwise
from pathlib import Path
from typing import TypeVar

from calipers.shop.brands import Brands
from calipers.shop.colours import Colours
from calipers.shop.compounds import Compounds
from calipers.shop.lexicon import Words, read_words
from calipers.shop.sizes import Sizes
from calipers.shop.text import Line, Mention, closes, fold, normal, opens, squash
from calipers.shop.units import Quantity, Units

ANALYSER = "rules/2"  # how texts are read; another number where the same words are read in another way

T = TypeVar("T")
Columns = Mapping[str, Sequence[tuple[str, object]]]  # what a column holds → (name, value)

_HOLDS = ("type", "text", "title", "dimension", "brand", "colour")
_SIZE_COLUMNS = ("size", "sizes", "サイズ")  # what they hold may be understood beside the title: L, 27.5
_DEEPEST = 4  # levels of nested maps and lists that are looked into
_LONGEST_NUMBER = 300  # float() of a longer integer fails
_MODEL = re.compile(r"[a-z0-9 ./+()-]{0,24}(?:シリーズ)? ?")  # what may stand between a name and 用: " 14 pro max"
_CLAUSE_END = re.compile(r"[,;|()\[\]【】]")
_REACH = 4  # words between "for" and a name, between a product line and its accessory


@dataclass(frozen=True)
class Attributes:
    """The attributes that a text states. A part that it does not mention is empty.

    `not_…` are excluded ("not black"), `fits_…` what the product is made for ("for iPhone"). `hinted_brands`
    stand in the title of a product whose brand column names another one: they may be part of it (an Intel processor),
    so they neither match nor contradict.
    """

    colours: frozenset[str] = frozenset()
    brands: frozenset[str] = frozenset()
    quantities: tuple[Quantity, ...] = ()
    not_colours: frozenset[str] = frozenset()
    not_brands: frozenset[str] = frozenset()
    not_quantities: tuple[Quantity, ...] = ()
    fits_brands: frozenset[str] = frozenset()
    fits_quantities: tuple[Quantity, ...] = ()
    hinted_brands: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Extractor:
    """Reads attributes. `Extractor.from_files()` has the built-in words; files and brands of a corpus add to them."""

    colours: Colours
    brands: Brands
    units: Units
    _sizes: Sizes
    _scope: Scope
    _columns: Mapping[str, str]  # folded column name → what it holds
    _column_units: Mapping[str, str]  # folded column name → the unit of its numbers
    _compounds: Compounds
    _types: tuple[str, ...]  # folded names of columns that say what kind of thing a product is, the best first

    @classmethod
    def from_files(cls, paths: Sequence[Path | str] = (), *, brands: Iterable[str] = ()) -> Extractor:
        """The built-in words, those of the files at `paths`, and the values of a brand column.

        >>> sorted(Extractor.from_files().read("エーワン ラベル 白 100枚").brands)
        ['a-one']
        """
        return cls.from_words(read_words(paths)).with_brands(brands)

    @classmethod
    def from_words(cls, words: Words) -> Extractor:
        columns, units = words["columns"], {_name(k): v for k, v in words["columns"].get("units", {}).items()}
        holds = {_name(n): part for part in _HOLDS for n in columns.get(part, ())}
        compounds = Compounds.from_words(words)
        return cls(
            Colours.from_words(words, compounds),
            Brands.from_words(words, compounds),
            Units.from_words(words),
            Sizes.from_words(words),
            Scope.from_words(words),
            {**holds, **dict.fromkeys(units, "dimension")},
            units,
            compounds,
            tuple(map(_name, columns.get("type", ()))),
        )

    def with_exact_colours(self) -> Extractor:
        """The same, and only equal colours agree: navy is not blue."""
        return replace(self, colours=self.colours.exact())

    def with_brands(self, values: Iterable[str]) -> Extractor:
        """The same, and the values of a brand column."""
        mined = list(dict.fromkeys(values))
        colours = {squash(value) for value in mined if self.colours.is_word(value)}
        return replace(self, brands=self.brands.with_brands(mined, colours)) if mined else self

    def read(self, text: str, columns: Mapping[str, object] | None = None) -> Attributes:
        """The attributes of a query (a text) or of a product (its title and its columns, nested or not).

        A colour or brand column wins over the title. Sizes of columns and title count together; a description adds
        only kinds of sizes that both lack, and no colour or brand.
        """
        attributes = self._read(normal(text))
        return self._with_columns(attributes, self.sort(columns), fold(text)) if columns else attributes

    def read_product(self, product: str | Mapping[str, object]) -> Attributes:
        """The attributes of a row with a title among its columns; of one without, its description is read as one."""
        return self.read(self.title(product), None if isinstance(product, str) else product)

    def title(self, product: str | Mapping[str, object]) -> str:
        """The title of a product, else its description, else an empty text."""
        if isinstance(product, str):
            return product
        values = self.sort(product)
        return next((str(value) for part in ("title", "text") for _, value in values[part]), "")

    def product_type(self, columns: Mapping[str, object]) -> str:
        """What kind of thing a row is by its columns, folded; a path of several names is one type. "" if none says."""
        return self.type_in(self.sort(columns))

    def type_in(self, values: Columns) -> str:
        """The same from sorted columns.

        >>> Extractor.from_files().product_type({"type": "Original", "Category": ["Home", "Mugs"]})
        'home > mugs'
        """
        present = {name for name, value in values["type"] if str(value).strip()}
        best = next((name for name in self._types if name in present), None)
        return " > ".join(fold(str(value)) for name, value in values["type"] if name == best and str(value).strip())

    def is_ordinary(self, word: str) -> bool:
        """Whether a Japanese word falls into known words for things, colours and the like."""
        return self._compounds.splits(fold(word))

    def sort(self, columns: Mapping[str, object]) -> dict[str, list[tuple[str, object]]]:
        """(name, value) of the recognised columns, nested or not, by what they hold (`_HOLDS`)."""
        values: dict[str, list[tuple[str, object]]] = {part: [] for part in _HOLDS}
        for name, value in _flatten(columns):
            if part := self._columns.get(_name(name)):
                values[part].append((_name(name), value))
        return values

    # --- texts -------------------------------------------------------------------------------------------------

    def _read(self, line: Line) -> Attributes:
        named, brands, quantities = self.colours.find(line), self._brands_of(line), self._quantities_of(line)
        colours = self._by_role(line, named, [self._scope.directly_for(line, m.start) for m in named])
        return Attributes(
            colours=frozenset(colours[Role.OWN]),
            not_colours=frozenset(colours[Role.EXCLUDED]),
            brands=frozenset(brands[Role.OWN]),
            not_brands=frozenset(brands[Role.EXCLUDED]),
            fits_brands=frozenset(brands[Role.FITS]),
            quantities=tuple(dict.fromkeys(quantities[Role.OWN])),
            not_quantities=tuple(dict.fromkeys(quantities[Role.EXCLUDED])),
            fits_quantities=tuple(dict.fromkeys(quantities[Role.FITS])),
        )

    def _brands_of(self, line: Line) -> dict[Role, list[str]]:
        spans = self.brands.find(line)
        mentions = [Mention(m.start, m.end, m.what.brand) for m in spans]
        return self._by_role(line, mentions, self._scope.made_for(line, mentions, [m.what.is_line for m in spans]))

    def _quantities_of(self, line: Line) -> dict[Role, list[Quantity]]:
        mentions = self._sizes.find(line, self.units.find(line))
        after = self._scope.fits["after_ja"]  # 用, 対応
        fits = [
            m.what.kind in self.units.fits
            and (self._scope.directly_for(line, m.start) or line.folded.startswith(after, m.end))
            for m in mentions
        ]
        return self._by_role(line, mentions, fits)

    def _by_role(self, line: Line, mentions: Sequence[Mention[T]], fits: Sequence[bool]) -> dict[Role, list[T]]:
        values: dict[Role, list[T]] = {role: [] for role in Role}
        for mention, is_excluded, is_for in zip(mentions, self._scope.excluded(line, mentions), fits, strict=True):
            if self._scope.left_open(line, mention.end):
                continue
            role = Role.EXCLUDED if is_excluded else Role.FITS if is_for else Role.OWN
            values[role].append(mention.what)
        return values

    # --- columns -----------------------------------------------------------------------------------------------

    def _with_columns(self, attributes: Attributes, values: Columns, title: str) -> Attributes:
        colours = {m.what for _, value in values["colour"] for m in self.colours.in_column(normal(str(value)))}
        brands = frozenset(filter(None, (self.brands.in_column(str(value)) for _, value in values["brand"])))
        return replace(
            attributes,
            colours=frozenset(colours) or attributes.colours,
            brands=brands or attributes.brands,
            hinted_brands=attributes.brands - brands if brands else frozenset(),
            quantities=self._all_quantities(attributes.quantities, values, title),
        )

    def _all_quantities(self, of_title: tuple[Quantity, ...], values: Columns, title: str) -> tuple[Quantity, ...]:
        of_columns = (q for name, value in values["dimension"] for q in self._column_quantities(name, value, title))
        stated = (*of_columns, *of_title)
        kinds = {q.kind for q in stated}
        described = (q for _, value in values["text"] for q in self._quantities_of(normal(str(value)))[Role.OWN])
        return tuple(dict.fromkeys((*stated, *(q for q in described if q.kind not in kinds))))

    def _column_quantities(self, name: str, value: object, title: str) -> Iterator[Quantity]:
        unit = self._column_units.get(name)
        if unit is None and isinstance(value, int | float) and name not in _SIZE_COLUMNS:
            return
        text = f"{value:f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)
        line = normal(f"{text} {unit}" if unit and _is_number(text) else text)
        context = f"{name} {title}" if name in _SIZE_COLUMNS else ""
        yield from (m.what for m in self._sizes.find(line, self.units.find(line), context))


def _is_number(text: str) -> bool:
    try:
        float(text[:_LONGEST_NUMBER])
    except ValueError:
        return False
    return True


@lru_cache(maxsize=4096)
def _name(column: str) -> str:
    """
    >>> _name("Product_Colour")
    'product colour'
    """
    return " ".join(fold(column).replace("-", " ").replace(".", " ").split())


def has_column(columns: Mapping[str, object], name: str) -> bool:
    """Whether a row, nested or not, has a column of this name."""
    return any(_name(key) == _name(name) for key, _ in _flatten(columns))


def _flatten(columns: Mapping[str, object], depth: int = 0) -> Iterator[tuple[str, object]]:
    """Every (name, value) of nested maps; of lists each element, and a map with a name and a value as what it says."""
    for name, value in columns.items():
        yield from _values(str(name), value, depth)


def _values(name: str, value: object, depth: int) -> Iterator[tuple[str, object]]:
    if value is None or isinstance(value, bool) or depth > _DEEPEST:
        return
    if isinstance(value, Mapping):
        named = value.get("name", value.get("key"))
        if isinstance(named, str) and "value" in value:
            yield from _values(named, value["value"], depth + 1)
        else:
            yield from _flatten(value, depth + 1)
    elif isinstance(value, list | tuple):
        for element in value:
            yield from _values(name, element, depth + 1)
    else:
        yield name, value


# --- whose value it is -------------------------------------------------------------------------------------------


class Role(Enum):
    OWN = "own"
    EXCLUDED = "excluded"
    FITS = "fits"


@dataclass(frozen=True)
class Scope:
    negation: Mapping[str, tuple[str, ...]]
    fits: Mapping[str, tuple[str, ...]]

    @classmethod
    def from_words(cls, words: Words) -> Scope:
        def folded(part: Mapping[str, Sequence[str]]) -> dict[str, tuple[str, ...]]:
            return {key: tuple(sorted(map(fold, several), key=len, reverse=True)) for key, several in part.items()}

        return cls(folded(words["negation"]), folded(words["fits"]))

    # --- negation ----------------------------------------------------------------------------------------------

    def excluded(self, line: Line, mentions: Sequence[Mention[T]]) -> list[bool]:
        """Which of these are negated, by a word before or behind them, directly or as part of a list."""
        forwards = [self._negated_before(line, m.start) for m in mentions]
        backwards = [self._negated_after(line, m.end) for m in mentions]
        listed = [_gap(line, one, other) in self.negation["lists"] for one, other in pairwise(mentions)]
        for i, together in enumerate(listed):  # "not black or white"
            forwards[i + 1] |= together and forwards[i]
        for i, together in reversed([*enumerate(listed)]):  # 黒と白以外
            backwards[i] |= together and backwards[i + 1]
        return [before or after for before, after in zip(forwards, backwards, strict=True)]

    def _negated_before(self, line: Line, start: int) -> bool:
        text = line.folded
        end = _back_over(text, start, " -")
        for _ in range(2):
            between = next((w for w in self.negation["between"] if _ends_with(text, end, w)), "")
            end = _back_over(text, end - len(between), " -")
        return end < start and _ends_with_any(text, end, self.negation["before"])

    def left_open(self, line: Line, end: int) -> bool:
        """Whether the text says that it need not have this value: 黒でなくてもいい."""
        return line.folded.startswith(self.negation["open_after"], end)

    def _negated_after(self, line: Line, end: int) -> bool:
        return any(
            line.folded.startswith(link, end) and line.folded.startswith(self.negation["after"], end + len(link))
            for link in ("", *self.negation["linked_after"])
        )

    # --- made for ----------------------------------------------------------------------------------------------

    def made_for(self, line: Line, mentions: Sequence[Mention[T]], is_line: Sequence[bool]) -> list[bool]:
        """Which of these name what the product is made for. `is_line` marks product lines, which accessories follow."""
        text = line.folded
        limits = [*(mention.start for mention in mentions[1:]), len(text)][: len(mentions)]
        accessory = [
            lines and self._accessory_after(text, mention.end, limit)
            for mention, limit, lines in zip(mentions, limits, is_line, strict=True)
        ]
        fits = [
            follows or self._for_before(text, mention.start) or self._for_after(text, mention.end, limit)
            for mention, limit, follows in zip(mentions, limits, accessory, strict=True)
        ]
        for i in range(1, len(mentions)):  # "for HP, Canon and Brother"
            fits[i] = fits[i] or (fits[i - 1] and self._for_list(line, mentions[i - 1], mentions[i]))
        for i in range(len(mentions) - 2, -1, -1):  # iPhone/iPad対応, "apple ipad case"
            gap = _gap(line, mentions[i], mentions[i + 1])
            joined = (gap in self.fits["lists"] and fits[i + 1]) or (gap == "" and accessory[i + 1])
            fits[i] = fits[i] or (joined and (gap != "" or mentions[i].what == mentions[i + 1].what))
        return fits

    def directly_for(self, line: Line, start: int) -> bool:
        """Whether "for" stands right before: "for black paper"."""
        end = _back_over(line.folded, start, " ")
        return end < start and _ends_with_any(line.folded, end, self.fits["before"])

    def _for_before(self, text: str, start: int) -> bool:
        """A word of `before` at most four words back, with no clause and no "by" between."""
        place = start
        for _ in range(_REACH + 1):
            end = _back_over(text, place, " ")
            if end == place != start:
                return False
            if _ends_with_any(text, end, self.fits["before"]):
                return True
            place = _word_start(text, end)
            if place == end or text[place:end] in self.fits["ends"]:
                return False
        return False

    def _for_after(self, text: str, end: int, limit: int) -> bool:
        for word in self.fits["after"]:
            for place in (end + 1, *_next_words(text, end, limit)):
                if text.startswith(word, place) and place > end and closes(text, place + len(word)):
                    return not text.startswith((" with", " for"), place + len(word))
        if any(text.find(w, end, min(limit, end + 64)) >= 0 for w in self.fits["anywhere_after"]):
            return True
        model = _MODEL.match(text, end, limit)
        stop = model.end() if model else end
        return any(text.startswith(self.fits["after_ja"], place) for place in (end, stop))

    def _accessory_after(self, text: str, end: int, limit: int) -> bool:
        return any(
            text.startswith(word, place) and closes(text, place + len(word)) and opens(text, place)
            for place in (end, *_next_words(text, end, limit))
            for word in self.fits["accessories"]
        )

    def _for_list(self, line: Line, one: Mention[T], other: Mention[T]) -> bool:
        """Only list words and model names, few of them, between two names."""
        words = line.folded[one.end : min(other.start, one.end + 40)].replace(",", " , ").split()
        if other.start - one.end > 40 or not any(w in self.fits["lists"] for w in words):
            return False
        return words[-1] in self.fits["lists"] and len(words) <= _REACH and not set(words) & set(self.fits["ends"])


def _gap(line: Line, one: Mention[T], other: Mention[T]) -> str:
    """The text between two mentions, without spaces around it; "…" for a long one, which is none of the short words."""
    if other.start - one.end > 12:
        return "…"
    return line.base[one.end : other.start].strip().lower()


def _back_over(text: str, end: int, characters: str) -> int:
    while end > 0 and text[end - 1] in characters:
        end -= 1
    return end


def _ends_with(text: str, end: int, word: str) -> bool:
    return text.endswith(word, 0, end) and opens(text, end - len(word))


def _ends_with_any(text: str, end: int, words: tuple[str, ...]) -> bool:
    return text.endswith(words, 0, end) and any(_ends_with(text, end, word) for word in words)


def _word_start(text: str, end: int) -> int:
    """Where the word that ends here begins: back to a space or the end of a clause; at most 24 characters."""
    place = end
    while place > 0 and text[place - 1] not in " ,;|()[]【】" and end - place < 24:
        place -= 1
    return place


def _next_words(text: str, end: int, limit: int) -> list[int]:
    """Where the next few words begin, within the clause."""
    stop = min(limit, end + 48)
    clause = _CLAUSE_END.split(text[end:stop], maxsplit=1)[0]
    places = (place for place, c in enumerate(clause, start=end + 1) if c == " " and place < stop)
    return list(islice(places, _REACH))
