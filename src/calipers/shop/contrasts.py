"""Contrast sets: a query and two versions of a product's title that differ in what the query states.

Templates make them from the titles of a corpus. A query is what a title is about (its first words without brand,
colour, sizes and numbers) with one attribute as the title writes it; the wrong version has another value that the
corpus knows, in the same script.

- colour, brand, number: "monitor green" with the title, and with the title in red; likewise of another brand, and with
  another amount of the same kind. `…_respelled`: the same, with the value in the query as other titles of the corpus
  write it (緑 for green, 0.5 L for 500 ml), so that letters do not help.
- negation: "monitor not green" (緑以外) with the title in red, and with the title, which is green; or, where a title
  has "… with Y", "… without Y" with the title up to there, and with the whole.
- role: of "sleeve for iPad" (iPad用スリーブ) "iPad sleeve", with the title, and with the two exchanged.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from calipers.shop.extract import Extractor
from calipers.shop.text import Line, normal, squash
from calipers.shop.units import Quantity

_PARTS = ("colour", "brand", "number")
SETS = (*_PARTS, *(f"{part}_respelled" for part in _PARTS), "negation", "role")
_LOOKED_AT = 4000  # titles, a seeded sample
_LONGEST = 160  # characters of a title that are read
_TRIES = 20  # to find another value
_MOST_APART = 10.0  # how many times as much another amount may be
_WORDS = 4  # of what a title is about
_WITH = re.compile(r"^(?P<thing>.{3,60}?) with (?:an? |the )?(?P<part>[a-z][a-z-]+(?: [a-z][a-z-]+)?)\b", re.I)
_FOR = re.compile(r"\b(?P<thing>[a-z][a-z-]{2,}) for (?:the |your )?(?P<use>[a-z][\w-]{2,}(?: [A-Z][\w-]+)?)", re.I)
_FOR_JA = re.compile(r"(?P<use>[ァ-ヶー一-龠a-zA-Z0-9]{2,12})用(?P<thing>[ァ-ヶー一-龠]{2,12})")
_NO_USE = frozenset({"the", "use", "all", "your", "every", "each", "sale", "free", "up", "more", "most", "any"})


@dataclass(frozen=True)
class Contrast:
    """`right` is what the query asks for, `wrong` differs from it in that alone. `title` is the row of both."""

    kind: str
    query: str
    right: str
    wrong: str
    title: int


@dataclass(frozen=True)
class _Stated:
    """A place in a title that states a value, and how it is written there. What may replace it has the same `sort`: the
    script of a colour or a brand, the kind of an amount."""

    start: int
    end: int
    written: str
    sort: str
    value: str | Quantity


class _Values:
    """What the titles of a corpus state, by part."""

    def __init__(self, extractor: Extractor, stated: Iterable[Mapping[str, Sequence[_Stated]]]) -> None:
        self._extractor = extractor
        self._by_sort: dict[tuple[str, str], list[_Stated]] = {}
        self._spellings: dict[tuple[str, object], dict[str, str]] = {}
        for several in stated:
            for part, values in several.items():
                for value in values:
                    self._by_sort.setdefault((part, value.sort), []).append(value)
                    spellings = self._spellings.setdefault((part, _identity(value)), {})
                    spellings.setdefault(_letters(part, value.written), value.written)

    def another(self, part: str, value: _Stated, rng: random.Random) -> str | None:
        """A value that does not agree, as it is written; None where some tries find none."""
        others = self._by_sort[part, value.sort]
        for _ in range(_TRIES):
            other = others[rng.randrange(len(others))]
            if not self._agree(part, value, other) and _is_like(value, other):
                return other.written
        return None

    def respelled(self, part: str, value: _Stated, rng: random.Random) -> str | None:
        """The same value in other letters; None where the corpus writes it in one way."""
        spellings = self._spellings[part, _identity(value)]
        own = _letters(part, value.written)
        others = [written for letters, written in spellings.items() if letters != own]
        return rng.choice(others) if others else None

    def _agree(self, part: str, one: _Stated, other: _Stated) -> bool:
        if isinstance(one.value, Quantity) and isinstance(other.value, Quantity):
            return one.value.agrees(other.value, self._extractor.units.tolerance[one.value.kind])
        agree = self._extractor.colours.agree if part == "colour" else str.__eq__
        return agree(str(one.value), str(other.value))


def _is_like(one: _Stated, other: _Stated) -> bool:
    """Whether an amount could be the other's: a mat of 10 mm is no contrast to one of 2 m."""
    if not isinstance(one.value, Quantity) or not isinstance(other.value, Quantity):
        return True
    small, large = sorted((abs(one.value.low), abs(other.value.low)))
    return large <= _MOST_APART * small


def _identity(value: _Stated) -> object:
    """What two spellings of one value share."""
    quantity = value.value
    return (
        (quantity.kind, round(quantity.low, 9), round(quantity.high, 9)) if isinstance(quantity, Quantity) else quantity
    )


def _letters(part: str, written: str) -> str:
    """What distinguishes spellings: of an amount its digits, else letters alone."""
    return "".join(c for c in written if c.isdigit() or c == ".") if part == "number" else squash(written)


def make_contrasts(extractor: Extractor, titles: Sequence[str], *, most: int, seed: int) -> list[Contrast]:
    """At most `most` of each set, in the order of the sets; the same titles and seed give the same ones."""
    rng = random.Random(seed)
    rows = rng.sample(range(len(titles)), min(len(titles), _LOOKED_AT))
    lines = {row: normal(titles[row][:_LONGEST]) for row in rows}
    stated = {row: _read(extractor, line) for row, line in lines.items()}
    values = _Values(extractor, stated.values())
    made: dict[str, list[Contrast]] = {kind: [] for kind in SETS}
    for row in rows:
        for contrast in _of_title(row, lines[row], stated[row], values, rng):
            if len(made[contrast.kind]) < most:
                made[contrast.kind].append(contrast)
        if all(len(several) >= most for several in made.values()):
            break
    return [contrast for kind in SETS for contrast in made[kind]]


def _of_title(
    row: int, line: Line, stated: Mapping[str, Sequence[_Stated]], values: _Values, rng: random.Random
) -> Iterator[Contrast]:
    about = _about(line, stated)
    for part, places in stated.items():
        if len(places) != 1 or not about:
            continue
        (value,) = places
        other = values.another(part, value, rng)
        if other is None:
            continue
        swapped = line.base[: value.start] + other + line.base[value.end :]
        yield Contrast(part, f"{about} {value.written}", line.base, swapped, row)
        if respelled := values.respelled(part, value, rng):
            yield Contrast(f"{part}_respelled", f"{about} {respelled}", line.base, swapped, row)
        if part == "colour" and not _WITH.match(line.base):
            yield Contrast("negation", _denied(about, value.written), swapped, line.base, row)
    if (match := _WITH.match(line.base)) and about:
        bare = match["thing"].strip()
        yield Contrast("negation", f"{bare} without {match['part']}", bare, line.base, row)
    yield from _roles(row, line)


def _denied(about: str, colour: str) -> str:
    return f"{about} not {colour}" if colour.isascii() else f"{about} {colour}以外"


def _roles(row: int, line: Line) -> Iterator[Contrast]:
    for pattern in (_FOR, _FOR_JA):
        match = pattern.search(line.base)
        if match is None or match["use"].lower() in _NO_USE or match["thing"].lower() in _NO_USE:
            continue
        thing, use = match.span("thing"), match.span("use")
        first, second = min(thing, use), max(thing, use)
        words = line.base[first[0] : first[1]], line.base[second[0] : second[1]]
        swapped = line.base[: first[0]] + words[1] + line.base[first[1] : second[0]] + words[0] + line.base[second[1] :]
        yield Contrast("role", f"{match['use']} {match['thing']}", line.base, swapped, row)
        return


def _read(extractor: Extractor, line: Line) -> dict[str, list[_Stated]]:
    """The places of a title that state a colour, a brand or an amount."""

    def place(start: int, end: int, value: str | Quantity) -> _Stated:
        written = line.base[start:end]
        script = "ascii" if written.isascii() else "other"
        return _Stated(start, end, written, value.kind if isinstance(value, Quantity) else script, value)

    return {
        "colour": [place(m.start, m.end, m.what) for m in extractor.colours.find(line)],
        "brand": [place(m.start, m.end, m.what.brand) for m in extractor.brands.find(line) if not m.what.is_line],
        "number": [place(m.start, m.end, m.what) for m in extractor.units.find(line)],
    }


def _about(line: Line, stated: Mapping[str, Sequence[_Stated]]) -> str:
    """The first words that state no attribute and hold no digit."""
    kept = list(line.base)
    for values in stated.values():
        for value in values:
            kept[value.start : value.end] = " " * (value.end - value.start)
    words = [word.strip(",;:()[]|-") for word in "".join(kept).split()]
    return " ".join([word for word in words if len(word) > 1 and not any(c.isdigit() for c in word)][:_WORDS])
