"""Numbers with units in texts, by kind and magnitude: 500 ml, 10-15 cm, 6 x 330 ml, 5'6", 350ml×24本.

Numbers are read as they are written: 1,000 and 1.5 and 1,5, 3/4 and 1-1/2, 1万 and 二十, six.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from calipers.shop.lexicon import Words
from calipers.shop.text import Line, Mention, Phrases, closes, fold, opens, script

_RANGE = re.compile(r" ?(?:-|~|to|から) ?")
_TIMES = re.compile(r" ?(?:x|×|\*|by) ?(?:[wdhlφ]|幅|丈|高さ|長さ|奥行き?|縦|横)?")
# A group after a space belongs to the number only if it begins with 0, as no number does by itself: 10 000 is one
# number, and 12 128 may be two. Else one class, no backtracking.
_DIGITS = re.compile(r"[1-9][0-9]{0,2}(?: 0[0-9]{2}(?![0-9]))+|[0-9][0-9.,]*")
_LONGEST = 24
_THOUSANDS = re.compile(r"[0-9]{1,3}(?:,[0-9]{3})+(?:\.[0-9]+)?")
_EUROPEAN = re.compile(r"[0-9]{1,3}(?:\.[0-9]{3})+,[0-9]+")
_DECIMAL = re.compile(r"[0-9]+(?:[.,][0-9]+)?")
_KANJI = re.compile(r"[〇一二三四五六七八九十百千万]+")
_KANJI_DIGITS = {c: n for n, c in enumerate("〇一二三四五六七八九")}
_KANJI_POWERS = {"十": 10, "百": 100, "千": 1000}
_MULTIPLIERS = {"万": 10_000, "千": 1_000}
_DENOMINATORS = {2, 3, 4, 5, 6, 8, 16, 32, 64}
_STEPS = (3, 12, 14, 16, 24, 60)  # ft in a yard, in, lb, oz, hours, minutes; not 10: a tape may be 3 m 19 mm
_BEFORE_SIGN = " (~:/"
_DIMENSION_LETTERS = "wdhlφ"  # W60×D40×H180


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
        measured = [_with_sign(line, self._measure(line, number)) for number in written]
        measured = self._packs(line, _compounds(line, self._shared_units(line, measured)))
        mentions = [self._mention(line, part) for part in self._joined(line, measured)]
        return [mention for mention in mentions if mention is not None]

    def _measure(self, line: Line, number: Number) -> _Measured:
        for gap in (0, 1):
            place = number.end + gap
            if place >= len(line) or (gap and line.folded[number.end] not in " -"):
                break
            for name, unit in self._names.at(line.folded, place):
                if self._is_unit(line, number, place, place + len(name), unit):
                    return _Measured(number, unit, place + len(name))
        return _Measured(number, _NONE, number.end)

    def _is_unit(self, line: Line, number: Number, start: int, end: int, unit: Unit) -> bool:
        if not unit.at_least <= number.value <= unit.at_most or (unit.exact and line.base[start:end] != unit.exact):
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
        low, high = one.size, other.size
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
        if limited and _preceded(text, start, words["at_most_before"]):
            return -math.inf, high
        if limited and _preceded(text, start, words["at_least_before"]):
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


def _refused(text: str, end: int, unit: Unit) -> bool:
    rest = text[end : end + 24].lstrip(" -")
    if unit.not_before_number and rest[:1].isdigit():
        return True
    return any(rest.startswith(w) and (script(w[-1]) != "a" or closes(rest, len(w))) for w in unit.not_before)


def _gap(line: Line, one: _Measured, other: _Measured, pattern: re.Pattern[str]) -> bool:
    return other.start - one.end <= 6 and pattern.fullmatch(line.folded, one.end, other.start) is not None


def _is_range(line: Line, one: _Measured, other: _Measured) -> bool:
    if other.unit is _NONE or one.unit.kind != other.unit.kind or one.size >= other.size:
        return False
    if _gap(line, one, other, _RANGE):
        return True
    return line.folded[one.end : other.start] == " and " and _preceded(line.folded, one.start, ("between",))


def _with_sign(line: Line, part: _Measured) -> _Measured:
    """A temperature below zero: its minus stands before the number and behind nothing that it could connect."""
    start = part.start - 1
    if part.unit.kind != "temperature" or part.number.value < 0 or line.folded[max(0, start) : part.start] != "-":
        return part
    if start > 0 and line.folded[start - 1] not in _BEFORE_SIGN:
        return part
    return replace(part, number=replace(part.number, start=start, value=-part.number.value))


def _compounds(line: Line, parts: Sequence[_Measured]) -> list[_Measured]:
    """5'6", 5 ft 6 in and 1 lb 4 oz are one quantity: the larger unit first, less than one of it behind, nothing
    between."""
    merged: list[_Measured] = []
    for part in parts:
        last = merged[-1] if merged else None
        if last and _is_compound(line, last, part):
            total = last.number.value + part.number.value * part.unit.factor / last.unit.factor
            number = replace(last.number, value=total, end=part.number.end)
            merged[-1] = replace(last, number=number, end=part.end)
        else:
            merged.append(part)
    return merged


def _is_compound(line: Line, one: _Measured, other: _Measured) -> bool:
    if line.folded[one.end : other.start] not in ("", " ") or one.unit.kind != other.unit.kind:
        return False
    ratio = one.unit.factor / other.unit.factor
    whole = min(_STEPS, key=lambda step: abs(step - ratio))
    return abs(ratio - whole) < 1e-3 * whole and 0 < other.number.value < whole and one.number.value.is_integer()


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


# --- numbers as they are written -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Number:
    start: int
    end: int
    value: float
    written: str = "digits"  # "digits", "kanji", "word", or "dimension" for the 60 of W60×D40


def numbers(line: Line, *, words: Mapping[str, float], not_after: Sequence[str]) -> list[Number]:
    """The numbers of a text, from left to right, without parts of names (TN-2110, WH-1000XM4) and prices."""
    kept: list[Number] = []
    for number in sorted((*_in_digits(line), *_in_kanji(line), *_in_words(line, words)), key=lambda n: n.start):
        previous = kept[-1].end if kept else -1
        if number.start >= previous and _stands_alone(line.folded, number, previous, not_after):
            kept.append(number)
    return _fractions(line.folded, kept)


def value(text: str) -> float | None:
    """
    >>> [value(t) for t in ("1,000", "1,5", "0,500", "1.234,5", "1,234.5", "1.2.3", "12,34,5", "10 000")]
    [1000.0, 1.5, 0.5, 1234.5, 1234.5, None, None, 10000.0]
    """
    text = text.replace(" ", "")
    if len(text) > _LONGEST:
        return None
    if _THOUSANDS.fullmatch(text) and not text.startswith("0"):
        return float(text.replace(",", ""))
    if _EUROPEAN.fullmatch(text):
        return float(text.replace(".", "").replace(",", "."))
    return float(text.replace(",", ".")) if _DECIMAL.fullmatch(text) else None


def kanji_value(text: str) -> int | None:
    """
    >>> [kanji_value(t) for t in ("二十", "三百五十", "一万", "十", "一二")]
    [20, 350, 10000, 10, None]
    """
    total = part = 0
    digit: int | None = None
    for c in text:
        if c in _KANJI_DIGITS:
            if digit is not None:
                return None
            digit = _KANJI_DIGITS[c]
        elif c in _KANJI_POWERS:
            part, digit = part + (1 if digit is None else digit) * _KANJI_POWERS[c], None
        else:
            total, part, digit = total + (part + (digit or 0) or 1) * 10_000, 0, None
    return total + part + (digit or 0)


def _in_digits(line: Line) -> Iterator[Number]:
    text = line.folded
    for match in _DIGITS.finditer(text):
        digits = match[0].rstrip(".,")
        number = value(digits)
        end = match.start() + len(digits)
        if number is not None:
            factor = _MULTIPLIERS.get(text[end : end + 1], 1)
            written = "dimension" if _after_dimension_letter(text, match.start()) else "digits"
            yield Number(match.start(), end + (factor > 1), number * factor, written)


def _after_dimension_letter(text: str, start: int) -> bool:
    if start == 0 or text[start - 1] not in _DIMENSION_LETTERS:
        return False
    return start == 1 or script(text[start - 2]) != "a" or text[start - 2] == "x"


def _in_kanji(line: Line) -> Iterator[Number]:
    text = line.folded
    for match in _KANJI.finditer(text):
        number = kanji_value(match[0]) if len(match[0]) <= 8 else None
        after_digit = match.start() > 0 and text[match.start() - 1].isdigit()
        if number and opens(text, match.start()) and not after_digit:
            yield Number(match.start(), match.end(), float(number), "kanji")


def _in_words(line: Line, words: Mapping[str, float]) -> Iterator[Number]:
    for match in re.finditer(r"[a-z]+", line.folded):
        if match[0] in words and opens(line.folded, match.start()):
            yield Number(match.start(), match.end(), float(words[match[0]]), "word")


def _stands_alone(text: str, number: Number, previous_end: int, not_after: Sequence[str]) -> bool:
    start = number.start
    if start == 0 or number.written in ("kanji", "word"):
        return True
    before = text[start - 1]
    if any(text.endswith(mark, 0, start) for mark in not_after):
        return False
    if before in "-/" and start >= 2 and script(text[start - 2]) == "a":  # TN-2110, but 10-15 and 3/4
        return start - 1 == previous_end or _is_quantity_end(text, start - 1)
    if script(before) != "a":
        return before not in ".,"
    after_times = before == "x" and start >= 2 and (text[start - 2].isdigit() or text[start - 2] in "mlgtn")
    return after_times or number.written == "dimension"


def _is_quantity_end(text: str, end: int) -> bool:
    """Whether letters that follow a digit end here: the cm of 10cm-15cm."""
    place = end
    while place > 0 and end - place < 4 and text[place - 1].isalpha():
        place -= 1
    return place < end and place > 0 and text[place - 1].isdigit()


def _is_fraction(text: str, top: Number, bottom: Number) -> bool:
    """3/4, but not 3/4/5 mm, which are three sizes."""
    around = (text[bottom.end : bottom.end + 1], text[max(0, top.start - 1) : top.start])
    if text[top.end : bottom.start] != "/" or "/" in around:
        return False
    return bottom.value in _DENOMINATORS and 0 < top.value < bottom.value


def _fractions(text: str, separate: Sequence[Number]) -> list[Number]:
    """3/4 is one number, and so is 1-1/2 or 1 1/2."""
    merged: list[Number] = []
    for number in separate:
        top = merged[-1] if merged else None
        if top and _is_fraction(text, top, number):
            merged[-1] = Number(top.start, number.end, top.value / number.value)
            if len(merged) > 1 and text[merged[-2].end : top.start] in ("-", " ") and merged[-2].value.is_integer():
                whole = merged[-2]
                merged[-2:] = [Number(whole.start, number.end, whole.value + top.value / number.value)]
        else:
            merged.append(number)
    return merged
