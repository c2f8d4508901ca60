"""A text, and the columns of a product, to the attributes that it states."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from calipers.shop.brands import Brands, Named
from calipers.shop.colours import Colours
from calipers.shop.lexicon import Words, read_words
from calipers.shop.scope import Role, Scope
from calipers.shop.text import Line, Mention, fold, normal, squash
from calipers.shop.units import Quantity, Units

_HOLDS = ("text", "title", "dimension", "brand", "colour")
_DEEPEST = 4  # levels of nested maps and lists that are looked into
_LONGEST_NUMBER = 300  # float() of a longer integer fails


@dataclass(frozen=True)
class Attributes:
    """What a text states. Empty parts mean that it says nothing of them.

    `not_…` are excluded ("not black"), `fits_…` what the product is made for ("for iPhone"). `hinted_brands`
    stand in the title of a product whose brand column names another: it may have to do with them (an Intel processor),
    so nothing is known.
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
    """Reads attributes. `Extractor.from_files()` knows the built-in words; files and brands of a corpus add to them."""

    colours: Colours
    brands: Brands
    units: Units
    _scope: Scope
    _columns: Mapping[str, str]  # folded column name → what it holds
    _column_units: Mapping[str, str]  # folded column name → the unit of its numbers

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
        return cls(
            Colours.from_words(words),
            Brands.from_words(words),
            Units.from_words(words),
            Scope.from_words(words),
            {**holds, **dict.fromkeys(units, "dimension")},
            units,
        )

    def with_brands(self, values: Iterable[str]) -> Extractor:
        """The same, and the values of a brand column."""
        mined = list(dict.fromkeys(values))
        if not mined:
            return self
        colours = {squash(value) for value in mined if self.colours.is_word(value)}
        return replace(self, brands=self.brands.with_brands(mined, colours))

    def read(self, text: str, columns: Mapping[str, Any] | None = None) -> Attributes:
        """The attributes of a query (a text) or of a product (its title and its columns, nested or not).

        A colour or brand column wins over the title. Sizes of columns and title count together; a description adds
        only kinds of sizes that both lack, and no colour or brand.
        """
        own = self._read(normal(text))
        return self._with_columns(own, self.sort(columns)) if columns else own

    def read_product(self, product: str | Mapping[str, Any]) -> Attributes:
        """The attributes of a row with a title among its columns; of one without, its description is read as one."""
        if isinstance(product, str):
            return self.read(product)
        values = self.sort(product)
        title = values["title"] or values["text"]
        return self._with_columns(self._read(normal(str(title[0][1]) if title else "")), values)

    def sort(self, columns: Mapping[str, Any]) -> dict[str, list[tuple[str, Any]]]:
        """(name, value) of the columns that are known, nested or not, by what they hold: colour, brand, dimension,
        title, text."""
        values: dict[str, list[tuple[str, Any]]] = {part: [] for part in _HOLDS}
        for name, value in _flatten(columns):
            if part := self._columns.get(_name(name)):
                values[part].append((_name(name), value))
        return values

    def _with_columns(self, own: Attributes, values: Mapping[str, Sequence[tuple[str, Any]]]) -> Attributes:
        colours = self._column_colours(value for _, value in values["colour"])
        brands = frozenset(filter(None, (self.brands.in_column(str(value)) for _, value in values["brand"])))
        return replace(
            own,
            colours=colours or own.colours,
            brands=brands or own.brands,
            hinted_brands=own.brands - brands if brands else frozenset(),
            quantities=self._all_quantities(own.quantities, values["dimension"], values["text"]),
        )

    # --- texts -------------------------------------------------------------------------------------------------

    def _read(self, line: Line) -> Attributes:
        colours, not_colours = self._colours_of(line)
        brands = self._brand_roles(line, self.brands.find(line))
        quantities = self._quantity_roles(line, self.units.find(line))
        return Attributes(
            colours=colours,
            not_colours=not_colours,
            brands=frozenset(brand for brand, role in brands if role is Role.OWN),
            not_brands=frozenset(brand for brand, role in brands if role is Role.EXCLUDED),
            fits_brands=frozenset(brand for brand, role in brands if role is Role.FITS),
            quantities=tuple(dict.fromkeys(q for q, role in quantities if role is Role.OWN)),
            not_quantities=tuple(dict.fromkeys(q for q, role in quantities if role is Role.EXCLUDED)),
            fits_quantities=tuple(dict.fromkeys(q for q, role in quantities if role is Role.FITS)),
        )

    def _colours_of(self, line: Line) -> tuple[frozenset[str], frozenset[str]]:
        found = self.colours.find(line)
        excluded = self._scope.excluded(line, found)
        own = (m for m, out in zip(found, excluded, strict=True) if not out)
        return (
            frozenset(m.what for m in own if not self._scope.directly_for(line, m.start)),
            frozenset(m.what for m, out in zip(found, excluded, strict=True) if out),
        )

    def _brand_roles(self, line: Line, found: Sequence[Mention[Named]]) -> list[tuple[str, Role]]:
        mentions = [Mention(m.start, m.end, m.what.brand) for m in found]
        excluded = self._scope.excluded(line, mentions)
        made_for = self._scope.made_for(line, mentions, [m.what.is_line for m in found])
        return [
            (m.what, Role.EXCLUDED if out else Role.FITS if fits else Role.OWN)
            for m, out, fits in zip(mentions, excluded, made_for, strict=True)
        ]

    def _quantity_roles(self, line: Line, found: Sequence[Mention[Quantity]]) -> list[tuple[Quantity, Role]]:
        excluded = self._scope.excluded(line, found)
        return [
            (m.what, Role.EXCLUDED if out else Role.FITS if self._fits(line, m) else Role.OWN)
            for m, out in zip(found, excluded, strict=True)
        ]

    def _own_quantities(self, line: Line) -> list[Quantity]:
        return [q for q, role in self._quantity_roles(line, self.units.find(line)) if role is Role.OWN]

    def _fits(self, line: Line, mention: Mention[Quantity]) -> bool:
        if mention.what.kind not in self.units.fits:
            return False
        return self._scope.directly_for(line, mention.start) or self._scope.directly_fitting(line, mention.end)

    # --- columns -----------------------------------------------------------------------------------------------

    def _column_colours(self, values: Iterable[Any]) -> frozenset[str]:
        return frozenset(m.what for value in values for m in self.colours.in_column(normal(str(value))))

    def _all_quantities(
        self, own: tuple[Quantity, ...], columns: Sequence[tuple[str, Any]], texts: Sequence[tuple[str, Any]]
    ) -> tuple[Quantity, ...]:
        stated = [q for name, value in columns for q in self._column_quantities(name, value)] + list(own)
        kinds = {q.kind for q in stated}
        described = (q for _, value in texts for q in self._own_quantities(normal(str(value))))
        return tuple(dict.fromkeys((*stated, *(q for q in described if q.kind not in kinds))))

    def _column_quantities(self, name: str, value: Any) -> Iterator[Quantity]:
        if isinstance(value, int | float) and name in self._column_units:
            value = f"{value:f}".rstrip("0").rstrip(".") if isinstance(value, float) else f"{value}"
        elif isinstance(value, int | float):
            return
        text = str(value)
        line = normal(f"{text} {self._column_units[name]}" if _is_number(text) and name in self._column_units else text)
        yield from (m.what for m in self.units.find(line))


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


def _flatten(columns: Mapping[str, Any], depth: int = 0) -> Iterator[tuple[str, Any]]:
    """Every (name, value) of nested maps; of lists each element, and a map with a name and a value as what it says."""
    for name, value in columns.items():
        yield from _values(str(name), value, depth)


def _values(name: str, value: Any, depth: int) -> Iterator[tuple[str, Any]]:
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
