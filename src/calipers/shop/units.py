"""Numbers with units in texts, by kind and magnitude: 500 ml, 10-15 cm, 6 x 330 ml, 5'6", 350ml×24本.

How numbers are written is in `numbers.py`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from calipers.shop.lexicon import Words
from calipers.shop.numbers import Number, numbers
from calipers.shop.text import Line, Mention, Phrases, closes, fold, opens, script

_RANGE = re.compile(r" ?(?:-|~|\.{2,3}|to|から|/(?= ?\+)) ?\+?")
_TIMES = re.compile(r" ?(?:x|×|\*|by) ?(?:[wdhlφ]|幅|丈|高さ|長さ|奥行き?|縦|横)?")
# How many of a smaller unit make a larger one that is written before it, by kind: 5 ft 6 in, 1 kg 500 g, 2升5合. Of
# thousands only those down to the base unit: a tape may be 3 m 19 mm.
_STEPS = {
    "length": (3, 12, 100, 1000),
    "mass": (14, 16, 1000),
    "volume": (2, 4, 8, 10, 16, 32, 128, 1000),
    "time": (7, 12, 24, 60),
    "count": (12,),
}
_CONNECTED = {"length": (12,), "mass": (16,), "time": (24, 60)}  # also with a word between: 5 feet and 6 inches
_GROUP = re.compile(r"[1-9][0-9]{0,2} [0-9]{3}(?:[.,][0-9]+)?")
_TIMES_BEFORE = re.compile(r"[0-9] ?(?:x|by)$")
_COUNTED = ("mass", "volume")  # 6 330 ml is a count and a size, 1 500 ml is not
_UNGROUPED = ("", "storage", "count")  # PlayStation 4 500 GB
_BEFORE_GROUP = ("to", "from", "and", "or", "about", "approx", "approx.")
_AT_MOST, _AT_LEAST = "<≤≦", ">≥≧"
_TAG = 40  # characters before a > in which a < makes it the end of a tag
_NOT_HALF = "額分値袖角身日"  # behind 半
_MINUS = ("minus ", "マイナス", "氷点下", "零下")
_BEFORE_SIGN = " (~:/"


@dataclass(frozen=True)
class Quantity:
    """From `low` to `high` in the base unit of its kind: equal for a plain value, infinite for an open end.

    `binary` is the factor to units that count in powers of 1024: 1 TB is 1000 or 1024 GB.
    """

    kind: str
    low: float
    high: float
    text: str = ""
    binary: float = 1.0

    def agrees(self, other: Quantity, tolerance: float) -> bool:
        """Whether two quantities of one kind overlap, give or take a share of the larger number.

        >>> Quantity("length", 0.396, 0.396).agrees(Quantity("length", 0.39624, 0.39624), 0.01)
        True
        """
        for a, b in ((1.0, 1.0), (self.binary, other.binary)):
            gap = max(other.low * b - self.high * a, self.low * a - other.high * b)
            ends = [abs(x) for x in (self.low * a, self.high * a, other.low * b, other.high * b) if math.isfinite(x)]
            if gap <= tolerance * max(ends, default=0.0) + 1e-12:
                return True
        return False


@dataclass(frozen=True)
class Unit:
    """`factor` is to the base unit of the kind. A number outside `at_least` to `at_most` does not have this unit."""

    kind: str
    factor: float
    binary: float
    at_least: float = 0.0
    at_most: float = math.inf
    not_before: tuple[str, ...] = ()
    not_before_number: bool = False
    article: bool = False
    exact: str = ""  # the required spelling, where the case matters


_PIECE = Unit("count", 1.0, 1.0, at_least=1.0)
_NONE = Unit("", 1.0, 1.0)
_SETTINGS = ("factor", "binary", "at_least", "at_most", "not_before_number", "article")


@dataclass(frozen=True)
class _Measured:
    number: Number
    unit: Unit
    end: int  # behind the unit

    @property
    def start(self) -> int:
        return self.number.start

    @property
    def size(self) -> float:
        return self.number.value * self.unit.factor


@dataclass(frozen=True)
class Units:
    tolerance: Mapping[str, float]  # by kind
    fits: frozenset[str]  # kinds that a product may be made for: "for 15 inch"
    _sizes: frozenset[str]
    _names: Phrases[Unit]
    _number_words: Mapping[str, float]
    _words: Mapping[str, tuple[str, ...]]

    @classmethod
    def from_words(cls, words: Words) -> Units:
        names: dict[str, Unit] = {}
        kinds = words["kinds"]
        for kind, entry in kinds.items():
            for unit in entry.get("units", {}).values():
                given = {key: unit[key] for key in _SETTINGS if key in unit}
                not_before = tuple(map(fold, unit.get("not_before", ())))
                made = Unit(kind, **{"binary": unit["factor"], **given}, not_before=not_before)
                names |= {fold(name): made for name in unit.get("names", ())}
                names |= {fold(name): replace(made, exact=name) for name in unit.get("exact", ())}
        keys = ("count_before", "at_most_before", "at_least_before", "at_most_after", "at_least_after", "not_limits")
        return cls(
            {kind: float(entry.get("tolerance", 0.01)) for kind, entry in kinds.items()},
            frozenset(kind for kind, entry in kinds.items() if entry.get("fits")),
            frozenset(kind for kind, entry in kinds.items() if entry.get("sizes")),
            Phrases(names),
            words["number_words"],
            {
                **{key: tuple(map(fold, words[key])) for key in keys},
                "number_not_after": tuple(words["number_not_after"]),
            },
        )

    def find(self, line: Line) -> list[Mention[Quantity]]:
        """The quantities of a text, from left to right."""
        written = numbers(line, words=self._number_words, not_after=self._words["number_not_after"])
        measured = _attached(line, [_with_sign(line, self._measure(line, number)) for number in written])
        measured = self._shared_units(line, self._grouped(line, measured))
        measured = self._packs(line, _compounds(line, measured))
        mentions = [self._mention(line, part) for part in self._joined(line, measured)]
        return [mention for mention in mentions if mention is not None]

    def _measure(self, line: Line, number: Number) -> _Measured:
        for gap in (0, 1):
            place = number.end + gap
            if place >= len(line) or (gap and line.folded[number.end] not in " -"):
                break
            for name, unit in self._names.at(line.folded, place):
                if self._is_unit(line, number, place, place + len(name), unit):
                    return _and_half(line, _Measured(number, unit, place + len(name)))
        return _Measured(number, _NONE, number.end)

    def _is_unit(self, line: Line, number: Number, start: int, end: int, unit: Unit) -> bool:
        if not unit.at_least <= number.value <= unit.at_most or (unit.exact and line.base[start:end] != unit.exact):
            return False
        if number.written == "dimension" and unit.kind not in self._sizes:  # the L of L1950g is no length
            return False
        if number.written == "mains" and unit.kind != "voltage":
            return False
        if number.written == "kanji" and unit.kind == "time":  # 十分 is "enough", 七分丈 a length of trousers
            return False
        if number.written == "word" and (unit.kind != "count" or (number.value == 1 and not unit.article)):
            return False
        if unit.kind == "count" and not number.value.is_integer():
            return False
        text = line.folded
        return (_unit_closes(text, start, end) or _runs_on(text, end)) and not _refused(text, end, unit)

    def _grouped(self, line: Line, parts: Sequence[_Measured]) -> list[_Measured]:
        """1 500 ml: the 1 is the first digit of the number, where it can be neither a count nor part of a name."""
        merged: list[_Measured] = []
        for part in reversed(parts):
            last = merged[-1] if merged else None
            if last and self._is_group(line, part, last, merged[-2] if len(merged) > 1 else None):
                value = 1000 * part.number.value + last.number.value
                merged[-1] = replace(last, number=replace(last.number, start=part.start, value=value))
            else:
                merged.append(part)
        return merged[::-1]

    def _is_group(self, line: Line, one: _Measured, other: _Measured, next_: _Measured | None) -> bool:
        if one.unit is not _NONE or not _GROUP.fullmatch(line.folded, one.start, other.number.end):
            return False
        unit, end = other.unit, other.end
        if unit is _NONE and next_ and _gap(line, other, next_, _RANGE):  # 1 500-2 000 W
            unit, end = next_.unit, next_.end
            if 1000 * one.number.value >= next_.number.value:
                return False
        if unit.kind in _UNGROUPED or (unit.kind in _COUNTED and one.number.value > 1):
            return False
        things = self._names.at(line.folded, end + 1) if line.folded[end : end + 1] == " " else ()
        before = line.folded[max(0, one.start - 6) : one.start].rstrip()
        words = (*_BEFORE_GROUP, *self._words["at_most_before"], *self._words["at_least_before"])
        free = (
            not before
            or script(before[-1]) == " "
            or _TIMES_BEFORE.search(before)
            or _preceded(line.folded, one.start, words)
        )
        return bool(free) and all(thing.kind != "count" for _, thing in things)

    def _shared_units(self, line: Line, parts: Sequence[_Measured]) -> list[_Measured]:
        """10 x 20 cm: the first is in cm too; 6 x 330 ml: the first is a count."""
        shared = list(parts)
        for i in range(len(shared) - 2, -1, -1):
            one, next_ = shared[i], shared[i + 1]
            if one.unit is _NONE and next_.unit is not _NONE and _gap(line, one, next_, _TIMES):
                if next_.unit.kind in self._sizes:
                    shared[i] = replace(one, unit=next_.unit)
                elif next_.unit.kind != "count" and one.number.value.is_integer():
                    shared[i] = replace(one, unit=_PIECE)
        return shared

    def _packs(self, line: Line, parts: Sequence[_Measured]) -> list[_Measured]:
        """330 ml x 6, and pack of 6."""
        counted = list(parts)
        for i, one in enumerate(counted):
            if one.unit is not _NONE or not one.number.value.is_integer() or one.number.value < 1:
                continue
            before = counted[i - 1] if i else None
            times = before and before.unit.kind not in ("", *self._sizes) and _gap(line, before, one, _TIMES)
            if times or _preceded(line.folded, one.start, self._words["count_before"]):
                counted[i] = replace(one, unit=_PIECE)
        return counted

    def _joined(self, line: Line, parts: Sequence[_Measured]) -> Iterator[tuple[_Measured, _Measured]]:
        """Pairs of ends: a range is two numbers, anything else the same one twice. What has no unit is dropped."""
        rest = list(reversed(parts))
        while rest:
            one, other = rest.pop(), rest[-1] if rest else None
            low = _with_sign(line, replace(one, unit=other.unit)) if other and one.unit is _NONE else one
            if other and _is_range(line, low, other):
                yield low, rest.pop()
            elif one.unit is not _NONE:
                yield one, one

    def _mention(self, line: Line, ends: tuple[_Measured, _Measured]) -> Mention[Quantity] | None:
        one, other = ends
        low, high = sorted((one.size, other.size))
        start, end = one.start, other.end
        if one is other:
            low, high = self._limits(line.folded, start, end, low, high)
        if not (math.isfinite(low) or math.isfinite(high)):
            return None
        text = line.base[start:end]
        return Mention(start, end, Quantity(one.unit.kind, low, high, text, one.unit.binary / one.unit.factor))

    def _limits(self, text: str, start: int, end: int, low: float, high: float) -> tuple[float, float]:
        words = self._words
        limited = not _preceded(text, start, words["not_limits"])
        sign = _limit_sign(text, start)
        if sign in _AT_MOST or (limited and _preceded(text, start, words["at_most_before"])):
            return -math.inf, high
        if sign in _AT_LEAST or (limited and _preceded(text, start, words["at_least_before"])):
            return low, math.inf
        if _followed(text, end, words["at_most_after"]):
            return -math.inf, high
        return low, math.inf if _followed(text, end, words["at_least_after"]) else high


def _unit_closes(text: str, start: int, end: int) -> bool:
    """Kanji and long katakana units may be followed by a thing (2リットルボトル); Latin ones by no letter or digit."""
    last = script(text[end - 1])
    if last in "jh" or (last == "k" and end - start >= 3):
        return True
    if last == " ":  # a sign such as " or '
        return end >= len(text) or not text[end].isalpha() or text[end] == "x"
    return closes(text, end) or (text[end] == "x" and text[end + 1 : end + 2].isdigit())


def _runs_on(text: str, end: int) -> bool:
    """1kg500g: `_attached` decides whether what follows belongs to it."""
    return text[end - 1].isalpha() and text[end : end + 1].isdigit()


def _and_half(line: Line, part: _Measured) -> _Measured:
    """1時間半, 2年半."""
    behind = line.folded[part.end : part.end + 2]
    if part.unit.kind != "time" or behind[:1] != "半" or behind[1:] in tuple(_NOT_HALF):
        return part
    return _Measured(replace(part.number, value=part.number.value + 0.5), part.unit, part.end + 1)


def _attached(line: Line, parts: Sequence[_Measured]) -> list[_Measured]:
    """Units that a digit follows only in a compound (1kg500g), and numbers that letters precede only behind a unit
    (not the 4 of 1000XM4)."""
    checked: list[_Measured] = []
    for part in reversed(parts):
        runs_on = (
            part.unit is not _NONE and script(line.folded[part.end - 1]) == "a" and _runs_on(line.folded, part.end)
        )
        if runs_on and not (checked and _is_compound(line, part, checked[-1])):
            part = _Measured(part.number, _NONE, part.number.end)
        checked.append(part)
    kept: list[_Measured] = []
    for part in reversed(checked):
        last = kept[-1] if kept and kept[-1].unit is not _NONE else None
        between = line.folded[last.end : part.start] if last else None
        if part.number.written != "joined" or between in ("-", "/") or (last and _is_compound(line, last, part)):
            kept.append(part)
    return kept


def _refused(text: str, end: int, unit: Unit) -> bool:
    rest = text[end : end + 24].lstrip(" -")
    if unit.not_before_number and rest[:1].isdigit():
        return True
    return any(rest.startswith(w) and (script(w[-1]) != "a" or closes(rest, len(w))) for w in unit.not_before)


def _gap(line: Line, one: _Measured, other: _Measured, pattern: re.Pattern[str]) -> bool:
    return other.start - one.end <= 6 and pattern.fullmatch(line.folded, one.end, other.start) is not None


def _is_range(line: Line, one: _Measured, other: _Measured) -> bool:
    if other.unit is _NONE or one.unit.kind != other.unit.kind:
        return False
    if one.size >= other.size and not (other.size < 0 and one.size > other.size):  # 0 to -18 °C
        return False
    if _gap(line, one, other, _RANGE):
        return True
    return line.folded[one.end : other.start] == " and " and _preceded(line.folded, one.start, ("between",))


def _with_sign(line: Line, part: _Measured) -> _Measured:
    """A temperature below zero: its minus stands before the number and behind nothing that it could connect."""
    if part.unit.kind != "temperature" or part.number.value < 0:
        return part
    text, start = line.folded, part.start - 1
    word = next((word for word in _MINUS if text.endswith(word, 0, part.start)), "")
    if word:
        start = part.start - len(word)
    elif text[max(0, start) : part.start] != "-" or (start > 0 and text[start - 1] not in _BEFORE_SIGN):
        return part
    return replace(part, number=replace(part.number, start=start, value=-part.number.value))


def _compounds(line: Line, parts: Sequence[_Measured]) -> list[_Measured]:
    """5'6", 5 ft 6 in and 1 lb 4 oz are one quantity: the larger unit first, less than one of it behind, nothing
    between."""
    groups: list[list[_Measured]] = []
    for part in parts:
        if groups and _is_compound(line, groups[-1][-1], part):
            groups[-1].append(part)
        else:
            groups.append([part])
    return [_sum(group) for group in groups]


def _sum(group: Sequence[_Measured]) -> _Measured:
    first, last = group[0], group[-1]
    total = sum(part.size for part in group) / first.unit.factor
    return replace(first, number=replace(first.number, value=total, end=last.number.end), end=last.end)


def _is_compound(line: Line, one: _Measured, other: _Measured) -> bool:
    kind = one.unit.kind
    if kind != other.unit.kind or kind not in _STEPS or not one.number.value.is_integer():
        return False
    ratio = one.unit.factor / other.unit.factor
    whole = min(_STEPS[kind], key=lambda step: abs(step - ratio))
    if abs(ratio - whole) >= 1e-3 * whole or not 0 < other.number.value < whole:
        return False
    if whole == 1000 and other.unit.factor < 1:
        return False
    between = line.folded[one.end : other.start]
    if between == " and " and whole in _CONNECTED.get(kind, ()):
        return not _preceded(line.folded, one.start, ("between",))
    return between in ("", " ") or (between == "-" and (kind, whole) == ("length", 12))


def _limit_sign(text: str, start: int) -> str:
    """The < of < 5 kg, or a space. The > of a tag is none."""
    place = start - 1 - (text[start - 1 : start] == " ")
    sign = text[place] if place >= 0 and text[place] in _AT_MOST + _AT_LEAST else " "
    tag = sign == ">" and (text[place - 1 : place] in ("-", "=") or "<" in text[max(0, place - _TAG) : place])
    return " " if tag else sign


def _preceded(text: str, end: int, words: Sequence[str]) -> bool:
    """Whether one of these words stands before, with a space."""
    if text[end - 1 : end] != " ":
        return False
    return any(text.endswith(word, 0, end - 1) and opens(text, end - len(word) - 1) for word in words)


def _followed(text: str, end: int, words: Sequence[str]) -> bool:
    return any(
        text.startswith(word, place) and closes(text, place + len(word))
        for word in words
        for place in (end, end + 1)
        if place == end or text[end : end + 1] == " "
    )
