"""Numbers as they are written: 1,000 and 1.5 and 1,5, 3/4 and 1-1/2, 1万 and 二十, six."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from calipers.shop.text import Line, opens, script

_DIGITS = re.compile(r"[0-9][0-9.,]*")  # one class, no backtracking
_LONGEST = 24
_THOUSANDS = re.compile(r"[0-9]{1,3}(?:,[0-9]{3})+(?:\.[0-9]+)?")
_EUROPEAN = re.compile(r"[0-9]{1,3}(?:\.[0-9]{3})+,[0-9]+")
_DECIMAL = re.compile(r"[0-9]+(?:[.,][0-9]+)?")
_KANJI = re.compile(r"[〇一二三四五六七八九十百千万]+")
_KANJI_DIGITS = {c: n for n, c in enumerate("〇一二三四五六七八九")}
_KANJI_POWERS = {"十": 10, "百": 100, "千": 1000}
_MULTIPLIERS = {"万": 10_000, "千": 1_000}
_DENOMINATORS = {2, 3, 4, 5, 6, 8, 16, 32, 64}
_DIMENSION_LETTERS = "wdhlφ"  # W60×D40×H180


@dataclass(frozen=True)
class Number:
    start: int
    end: int
    value: float
    written: str = "digits"  # "digits", "kanji", "word", or "dimension" for the 60 of W60×D40


def numbers(line: Line, *, words: Mapping[str, float], not_after: Sequence[str]) -> list[Number]:
    """The numbers of a text, from left to right; parts of names (TN-2110, WH-1000XM4) and prices are none."""
    found: list[Number] = []
    for number in sorted((*_in_digits(line), *_in_kanji(line), *_in_words(line, words)), key=lambda n: n.start):
        previous = found[-1].end if found else -1
        if number.start >= previous and _stands_alone(line.folded, number, previous, not_after):
            found.append(number)
    return _fractions(line.folded, found)


def value(text: str) -> float | None:
    """
    >>> [value(t) for t in ("1,000", "1,5", "0,500", "1.234,5", "1,234.5", "1.2.3", "12,34,5")]
    [1000.0, 1.5, 0.5, 1234.5, 1234.5, None, None]
    """
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
    for found in _DIGITS.finditer(text):
        written = found[0].rstrip(".,")
        number = value(written)
        end = found.start() + len(written)
        if number is not None:
            factor = _MULTIPLIERS.get(text[end : end + 1], 1)
            written = "dimension" if _after_dimension_letter(text, found.start()) else "digits"
            yield Number(found.start(), end + (factor > 1), number * factor, written)


def _after_dimension_letter(text: str, start: int) -> bool:
    if start == 0 or text[start - 1] not in _DIMENSION_LETTERS:
        return False
    return start == 1 or script(text[start - 2]) != "a" or text[start - 2] == "x"


def _in_kanji(line: Line) -> Iterator[Number]:
    text = line.folded
    for found in _KANJI.finditer(text):
        number = kanji_value(found[0]) if len(found[0]) <= 8 else None
        after_digit = found.start() > 0 and text[found.start() - 1].isdigit()
        if number and opens(text, found.start()) and not after_digit:
            yield Number(found.start(), found.end(), float(number), "kanji")


def _in_words(line: Line, words: Mapping[str, float]) -> Iterator[Number]:
    for found in re.finditer(r"[a-z]+", line.folded):
        if found[0] in words and opens(line.folded, found.start()):
            yield Number(found.start(), found.end(), float(words[found[0]]), "word")


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
    if text[top.end : bottom.start] != "/" or "/" in (
        text[bottom.end : bottom.end + 1],
        text[max(0, top.start - 1) : top.start],
    ):
        return False
    return bottom.value in _DENOMINATORS and 0 < top.value < bottom.value


def _fractions(text: str, found: Sequence[Number]) -> list[Number]:
    """3/4 is one number, and so is 1-1/2 or 1 1/2."""
    merged: list[Number] = []
    for number in found:
        top = merged[-1] if merged else None
        if top and _is_fraction(text, top, number):
            merged[-1] = Number(top.start, number.end, top.value / number.value)
            if len(merged) > 1 and text[merged[-2].end : top.start] in ("-", " ") and merged[-2].value.is_integer():
                whole = merged[-2]
                merged[-2:] = [Number(whole.start, number.end, whole.value + top.value / number.value)]
        else:
            merged.append(number)
    return merged
