"""Numbers with units in texts, by kind and magnitude: 500 ml, 10-15 cm, 6 x 330 ml, 5'6", 350ml×24本."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from calipers.shop.numerals import Number, numbers
from calipers.shop.text import Line, Mention, Phrases, closes, fold, opens, script

_RANGE = re.compile(r" ?(?:-|~|to|から) ?")
_TIMES = re.compile(r" ?(?:x|×|\*|by) ?(?:[wdhlφ]|幅|丈|高さ|長さ|奥行き?|縦|横)?")


@dataclass(frozen=True)
class Quantity:
    """From `low` to `high` in the base unit of its kind; the two are the same for a plain value, infinite where open.

    `binary` is what 1 becomes when units count in powers of 1024: 1 TB is 1000 or 1024 GB.
    """

    kind: str
    low: float
    high: float
    text: str = ""
    binary: float = 1.0

    def agrees(self, other: Quantity, tolerance: float) -> bool:
        """Whether the two overlap, give or take a share of the larger number; never between kinds.

        >>> Quantity("length", 0.396, 0.396).agrees(Quantity("length", 0.39624, 0.39624), 0.01)
        True
        """
        if self.kind != other.kind:
            return False
        return any(_overlap(self, other, tolerance, binary=binary) for binary in (False, True))


def _overlap(one: Quantity, other: Quantity, tolerance: float, *, binary: bool) -> bool:
    a, b = (one.binary, other.binary) if binary else (1.0, 1.0)
    gap = max(other.low * b - one.high * a, one.low * a - other.high * b)
    ends = [abs(x) for x in (one.low * a, one.high * a, other.low * b, other.high * b) if math.isfinite(x)]
    return gap <= tolerance * max(ends, default=0.0) + 1e-12


@dataclass(frozen=True)
class Unit:
    kind: str
    factor: float
    binary: float
    least: float
    most: float
    not_before: tuple[str, ...]
    not_before_number: bool
    article: bool
    exact: str = ""


@dataclass(frozen=True)
class _Measured:
    number: Number
    unit: Unit | None
    end: int  # behind the unit

    @property
    def start(self) -> int:
        return self.number.start


@dataclass(frozen=True)
class Units:
    tolerance: Mapping[str, float]  # by kind
    fits: frozenset[str]  # kinds that a product may be made for: "for 15 inch"
    _sizes: frozenset[str]
    _names: Phrases[Unit]
    _piece: Unit
    _words: Mapping[str, Any]

    @classmethod
    def from_words(cls, words: Mapping[str, Any]) -> Units:
        names: dict[str, Unit] = {}
        kinds = words["kinds"]
        for kind, entry in kinds.items():
            for unit in entry.get("units", {}).values():
                made = _unit(kind, unit)
                names |= {fold(name): made for name in unit.get("names", ())}
                names |= {fold(name): replace(made, exact=name) for name in unit.get("exact", ())}
        keys = ("count_before", "at_most_before", "at_least_before", "at_most_after", "at_least_after", "not_limits")
        lists = {key: tuple(sorted(map(fold, words[key]), key=len, reverse=True)) for key in keys}
        return cls(
            {kind: float(entry.get("tolerance", 0.01)) for kind, entry in kinds.items()},
            frozenset(kind for kind, entry in kinds.items() if entry.get("fits")),
            frozenset(kind for kind, entry in kinds.items() if entry.get("sizes")),
            Phrases(names),
            Unit("count", 1.0, 1.0, 1.0, math.inf, (), False, False),
            {**lists, "number_words": words["number_words"], "number_not_after": tuple(words["number_not_after"])},
        )

    def unit(self, name: str) -> Unit | None:
        return next((unit for phrase, unit in self._names.at(fold(name), 0) if phrase == fold(name)), None)

    def find(self, line: Line) -> list[Mention[Quantity]]:
        """The quantities of a text, from left to right."""
        found = numbers(line, words=self._words["number_words"], not_after=self._words["number_not_after"])
        measured = [self._measure(line, number) for number in found]
        measured = self._packs(line, _feet_and_inches(line, self._shared_units(line, measured)))
        mentions = [self._mention(line, part) for part in self._joined(line, measured)]
        return [mention for mention in mentions if mention is not None]

    # --- one number ------------------------------------------------------------------------------------------

    def _measure(self, line: Line, number: Number) -> _Measured:
        for gap in (0, 1):
            place = number.end + gap
            if place >= len(line) or (gap and line.folded[number.end] not in " -"):
                break
            for name, unit in self._names.at(line.folded, place):
                if self._is_unit(line, number, place, place + len(name), unit):
                    return _Measured(number, unit, place + len(name))
        return _Measured(number, None, number.end)

    def _is_unit(self, line: Line, number: Number, start: int, end: int, unit: Unit) -> bool:
        if not unit.least <= number.value <= unit.most or (unit.exact and line.base[start:end] != unit.exact):
            return False
        if number.written == "dimension" and unit.kind not in self._sizes:  # the L of L1950g is no length
            return False
        if number.written == "kanji" and unit.kind == "time":  # 十分 is "enough", 七分丈 a length of trousers
            return False
        if number.written == "word" and (unit.kind != "count" or (number.value == 1 and not unit.article)):
            return False
        if unit.kind == "count" and not number.value.is_integer():
            return False
        return _unit_closes(line.folded, start, end) and not _refused(line.folded, end, unit)

    # --- several numbers -------------------------------------------------------------------------------------

    def _shared_units(self, line: Line, found: Sequence[_Measured]) -> list[_Measured]:
        """10 x 20 cm: the first is in cm too; 6 x 330 ml: the first is a count."""
        shared = list(found)
        for i in range(len(shared) - 2, -1, -1):
            one, next_ = shared[i], shared[i + 1]
            if one.unit is None and next_.unit is not None and _gap(line, one, next_, _TIMES):
                if next_.unit.kind in self._sizes:
                    shared[i] = replace(one, unit=next_.unit)
                elif next_.unit.kind != "count" and one.number.value.is_integer():
                    shared[i] = replace(one, unit=self._piece)
        return shared

    def _packs(self, line: Line, found: Sequence[_Measured]) -> list[_Measured]:
        """330 ml x 6, and pack of 6."""
        counted = list(found)
        for i, one in enumerate(counted):
            if one.unit is not None or not one.number.value.is_integer() or one.number.value < 1:
                continue
            before = counted[i - 1] if i else None
            times = before and before.unit and before.unit.kind not in self._sizes and _gap(line, before, one, _TIMES)
            if times or _preceded(line.folded, one.start, self._words["count_before"]):
                counted[i] = replace(one, unit=self._piece)
        return counted

    def _joined(self, line: Line, found: Sequence[_Measured]) -> list[tuple[_Measured, _Measured]]:
        """Pairs of ends: a range is two numbers, anything else the same one twice. What has no unit is dropped."""
        joined: list[tuple[_Measured, _Measured]] = []
        i = 0
        while i < len(found):
            one = found[i]
            other = found[i + 1] if i + 1 < len(found) else None
            if other and other.unit and _is_range(line, one, other):
                joined.append((replace(one, unit=one.unit or other.unit), other))
                i += 2
                continue
            if one.unit:
                joined.append((one, one))
            i += 1
        return joined

    def _mention(self, line: Line, ends: tuple[_Measured, _Measured]) -> Mention[Quantity] | None:
        one, other = ends
        assert one.unit is not None
        assert other.unit is not None
        low, high = one.number.value * one.unit.factor, other.number.value * other.unit.factor
        start, end = one.start, other.end
        if one is other:
            low, high = self._limits(line.folded, start, end, low, high)
        if one.unit.kind == "temperature" and line.folded[max(0, start - 2) : start] in ("-", " -"):
            low = high = -high
        if not (math.isfinite(low) or math.isfinite(high)):
            return None
        text = line.base[start:end]
        return Mention(start, end, Quantity(one.unit.kind, low, high, text, one.unit.binary / one.unit.factor))

    def _limits(self, text: str, start: int, end: int, low: float, high: float) -> tuple[float, float]:
        words = self._words
        if not _preceded(text, start, words["not_limits"]):
            if _preceded(text, start, words["at_most_before"]):
                return -math.inf, high
            if _preceded(text, start, words["at_least_before"]):
                return low, math.inf
        if _followed(text, end, words["at_most_after"]):
            return -math.inf, high
        if _followed(text, end, words["at_least_after"]):
            return low, math.inf
        return low, high


def _unit(kind: str, entry: Mapping[str, Any]) -> Unit:
    return Unit(
        kind,
        float(entry["factor"]),
        float(entry.get("binary", entry["factor"])),
        float(entry.get("at_least", 0.0)),
        float(entry.get("at_most", math.inf)),
        tuple(map(fold, entry.get("not_before", ()))),
        bool(entry.get("not_before_number")),
        bool(entry.get("article")),
    )


def _unit_closes(text: str, start: int, end: int) -> bool:
    """Kanji and long katakana units may be followed by a thing (2リットルボトル); Latin ones by no letter or digit."""
    last = script(text[end - 1])
    if last in "jh" or (last == "k" and end - start >= 3):
        return True
    if last == " ":  # a sign such as " or '
        return end >= len(text) or not text[end].isalpha() or text[end] == "x"
    return closes(text, end) or (text[end] == "x" and text[end + 1 : end + 2].isdigit())


def _refused(text: str, end: int, unit: Unit) -> bool:
    rest = text[end : end + 24].lstrip(" -")
    if unit.not_before_number and rest[:1].isdigit():
        return True
    return any(rest.startswith(w) and (script(w[-1]) != "a" or closes(rest, len(w))) for w in unit.not_before)


def _gap(line: Line, one: _Measured, other: _Measured, pattern: re.Pattern[str]) -> bool:
    return other.start - one.end <= 6 and pattern.fullmatch(line.folded, one.end, other.start) is not None


def _is_range(line: Line, one: _Measured, other: _Measured) -> bool:
    assert other.unit is not None
    if one.unit is not None and one.unit.kind != other.unit.kind:
        return False
    factor = (one.unit or other.unit).factor
    if one.number.value * factor >= other.number.value * other.unit.factor:
        return False
    if _gap(line, one, other, _RANGE):
        return True
    return line.folded[one.end : other.start] == " and " and _preceded(line.folded, one.start, ("between",))


def _feet_and_inches(line: Line, found: Sequence[_Measured]) -> list[_Measured]:
    """5'6" and 5 ft 6 in are one length: the larger unit first, less than one of it behind, nothing between."""
    merged: list[_Measured] = []
    for part in found:
        last = merged[-1] if merged else None
        if last and last.unit and part.unit and _is_compound(line, last, part):
            total = last.number.value + part.number.value * part.unit.factor / last.unit.factor
            number = replace(last.number, value=total, end=part.number.end)
            merged[-1] = replace(last, number=number, end=part.end)
        else:
            merged.append(part)
    return merged


def _is_compound(line: Line, one: _Measured, other: _Measured) -> bool:
    assert one.unit is not None
    assert other.unit is not None
    if line.folded[one.end : other.start] not in ("", " ") or one.unit.kind != other.unit.kind:
        return False
    ratio = one.unit.factor / other.unit.factor
    return abs(ratio - 12) < 1e-9 and other.number.value < 12


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
