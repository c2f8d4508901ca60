"""Numbers as texts write them: 1,000 and 1.5 and 1,5, 10 000 and 10'000, 3/4 and 1-1/2, 1万5千 and 二十, six."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from calipers.shop.text import Line, opens, script

# A group after a space belongs to the number if it begins with 0, as no number does by itself: 10 000 is one number.
# On 1 500 and 12 128, which may be two, `units.py` decides with the unit. No backtracking.
_DIGITS = re.compile(r"[1-9][0-9]{0,2}(?: 0[0-9]{2}(?![0-9]))+(?:[.,][0-9]+)?|[0-9]+(?:[.,][0-9]+)*")
_LONGEST = 24
_THOUSANDS = re.compile(r"[0-9]{1,3}(?:,[0-9]{3})+(?:\.[0-9]+)?")
_EUROPEAN = re.compile(r"[0-9]{1,3}(?:\.[0-9]{3})+,[0-9]+")
_DECIMAL = re.compile(r"[0-9]+(?:[.,][0-9]+)?")
_KANJI = re.compile(r"[〇一二三四五六七八九十百千万]+")
_KANJI_DIGITS = {c: n for n, c in enumerate("〇一二三四五六七八九")}
_KANJI_POWERS = {"十": 10, "百": 100, "千": 1000}
_MULTIPLIERS = {"万": 10_000, "千": 1_000}
_BEHIND_MAN = re.compile(r"(?:([0-9])千)?([0-9]{1,4}(?![0-9]))?")  # 1万5千, 1万5000
_JOINED = re.compile(
    r"[0-9] ?[a-z]{1,10}[-/]?$"
)  # what may be a quantity, directly before a number: 1kg500g, 5 kg/10 kg
_BEFORE_NUMBER = 14  # characters of it
_MAINS = ("ac", "dc")  # AC100V
_DENOMINATORS = {2, 3, 4, 5, 6, 8, 16, 32, 64}
_DIMENSION_LETTERS = "wdhlφ"  # W60×D40×H180


@dataclass(frozen=True)
class Number:
    """A number and its place. `written`: "digits", "kanji", "word", "dimension" for the 60 of W60×D40, "mains" for the
    100 of AC100V; "joined" to letters that may be a unit (1kg500g) or a name (1000XM4)."""

    start: int
    end: int
    value: float
    written: str = "digits"


def numbers(line: Line, *, words: Mapping[str, float], not_after: Sequence[str]) -> list[Number]:
    """The numbers of a text, from left to right, without parts of names (TN-2110, WH-1000XM4) and prices."""
    kept: list[Number] = []
    for number in sorted((*_in_digits(line), *_in_kanji(line), *_in_words(line, words)), key=lambda n: n.start):
        previous = kept[-1].end if kept else -1
        if number.start < previous:
            continue
        if _stands_alone(line.folded, number, previous, not_after):
            kept.append(number)
        elif _JOINED.search(line.folded, max(0, number.start - _BEFORE_NUMBER), number.start):
            kept.append(replace(number, written="joined"))
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
        number, end = value(match[0]), match.end()
        if number is not None:
            factor = _MULTIPLIERS.get(text[end : end + 1], 1)
            number, end = number * factor, end + (factor > 1)
            rest = _BEHIND_MAN.match(text, end) if factor == 10_000 else None
            if rest:
                number, end = number + 1000 * int(rest[1] or 0) + int(rest[2] or 0), rest.end()
            yield Number(match.start(), end, number, _written(text, match.start()))


def _written(text: str, start: int) -> str:
    if text[max(0, start - 2) : start] in _MAINS and opens(text, start - 2):
        return "mains"
    return "dimension" if _after_dimension_letter(text, start) else "digits"


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
        return before not in ".," or text.endswith("..", 0, start)  # a range: 5...35
    after_times = before == "x" and start >= 2 and (text[start - 2].isdigit() or text[start - 2] in "mlgtn'\"")
    return after_times or number.written in ("dimension", "mains")


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
