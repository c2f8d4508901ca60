"""Numbers in words: shared by the terminal, Markdown, JUnit and HTML. What is unknown is a dash."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping

from calipers.core import DataSource, printable
from calipers.core.rounding import digits_apart, percentage

NONE = "–"  # a number that there is not


def number(value: float | None, digits: int) -> str:
    """A value with the digits of its metric.

    >>> number(82.0512, 2), number(None, 2), number(12345678.9, 2)
    ('82.05', '–', '1.235e+07')
    """
    if value is None or not math.isfinite(value):
        return NONE
    return f"{value:.{digits}f}" if abs(value) < 1e6 else f"{value:.3e}"


def signed(value: float | None, digits: int, limits: Iterable[float] = ()) -> str:
    """A difference. One that is too small for the digits keeps its first figure, so that it does not look like none;
    one that is near a limit gets the digits that show on which side it is.

    >>> signed(-0.138, 2), signed(0.0, 2), signed(-0.0004, 2), signed(-2.004, 2, [-2.0])
    ('-0.14', '0.00', '-0.0004', '-2.004')
    """
    if value is None or not math.isfinite(value):
        return NONE
    if value == 0:
        return number(0.0, digits)
    if abs(value) >= 1e6:
        return f"{value:+.3e}"
    digits = digits_apart(value, limits, digits)
    return f"{value:+.{digits}f}" if abs(value) >= 0.5 * 10.0**-digits else f"{value:+.1g}"


def percent(share: float | None, limits: Iterable[float] = ()) -> str:
    """A relative difference, with the digits that show on which side of the limits, shares too, it is.

    >>> percent(0.0711), percent(-0.0004), percent(499.1), percent(-0.0496, [-0.05]), percent(-0.0504, [-0.05])
    ('+7.1%', '-0.04%', '+49910%', '-4.96%', '-5.04%')
    """
    if share is None or not math.isfinite(share):
        return NONE
    return f"{share:+.0%}" if abs(share) >= 10 else f"{signed(100 * share, 1, [100 * x for x in limits])}%"


def times(ratio: float | None) -> str:
    """How many times as fast something is.

    >>> times(2.41), times(0.52), times(None)
    ('2.4 ×', '0.52 ×', '–')
    """
    if ratio is None or not math.isfinite(ratio):
        return NONE
    return f"{ratio:.1f} ×" if ratio >= 1.05 else f"{ratio:.2f} ×"


def chance(share: float) -> str:
    """A chance in percent, rounded towards a half: it must not look more certain than it is.

    >>> chance(0.9496), chance(0.0501), chance(1.0), chance(0.00001)
    ('94.9', '5.1', '100', '0.1')
    """
    tenths = math.floor(1000 * share + 1e-9) if share >= 0.5 else math.ceil(1000 * share - 1e-9)
    return f"{tenths / 10:g}"


def certainty(share: float | None) -> str:
    """The share of resamples that agree, rounded down: 94.96% must not read as the 95% that it falls short of.

    >>> certainty(0.9496), certainty(1.0), certainty(None)
    ('94.9%', '100%', '–')
    """
    if share is None or not math.isfinite(share):
        return NONE
    return f"{math.floor(1000 * share + 1e-9) / 10:g}%"


def interval(ends: tuple[float, float] | None, digits: int) -> str:
    """Of a value.

    >>> interval((0.61, 0.69), 2), interval(None, 2)
    ('0.61 – 0.69', '–')
    """
    return f"{number(ends[0], digits)} – {number(ends[1], digits)}" if ends else NONE


def signed_interval(ends: tuple[float, float] | None, digits: int) -> str:
    """Of a difference.

    >>> signed_interval((-0.35, 0.07), 2)
    '-0.35 to +0.07'
    """
    return f"{signed(ends[0], digits)} to {signed(ends[1], digits)}" if ends else NONE


def interval_name(confidence: float | None) -> str:
    """
    >>> interval_name(0.95), interval_name(0.999), interval_name(None)
    ('95% interval', '99.9% interval', 'interval')
    """
    return "interval" if confidence is None else f"{percentage(confidence)} interval"


def p_value(value: float | None) -> str:
    """
    >>> p_value(0.0314), p_value(0.00002), p_value(1.0)
    ('0.031', '<0.0001', '1')
    """
    if value is None or not math.isfinite(value):
        return NONE
    return "<0.0001" if value < 0.0001 else f"{value:.2g}"


def megabytes(size: int) -> str:
    """
    >>> megabytes(90_870_598)
    '90.9 MB'
    """
    return f"{size / 1e6:.1f} MB"


def round_up(count: int) -> int:
    """Two figures of an estimated count.

    >>> round_up(412), round_up(1180703), round_up(37)
    (420, 1200000, 37)
    """
    unit = int(10 ** max(len(str(count)) - 2, 0))
    return -(-count // unit) * unit


def plural(noun: str) -> str:
    """
    >>> plural("query"), plural("pair")
    ('queries', 'pairs')
    """
    return f"{noun[:-1]}ies" if noun.endswith("y") else f"{noun}s"


def count(noun: str, many: int) -> str:
    """
    >>> count("query", 1300), count("pair", 1)
    ('1,300 queries', '1 pair')
    """
    return f"{many:,} {noun if many == 1 else plural(noun)}"


def shorten(text: str, most: int) -> str:
    """One printable line of at most so many characters.

    >>> shorten("one two three", 8)
    'one two…'
    """
    line = printable(text[: 4 * most])
    return line if len(line) <= most and len(text) <= 4 * most else f"{line[: most - 1].rstrip()}…"


def data_parts(source: DataSource, quote: Callable[[str], str] = str) -> list[str]:
    """Where data come from: path, configuration and split, as far as they are given."""
    named = (("configuration", source.name), ("split", source.split))
    return [quote(source.path), *(f"{what} {quote(name)}" for what, name in named if name)]


def search_time(timing: Mapping[str, float]) -> str:
    """How long exact searches took, and how near they were to the rate of a matrix product; nothing where there was
    none.

    >>> search_time({"search_seconds": 2.04, "search_share": 0.913})
    ' (searching 2.0, at 91 % of the rate of matrix products)'
    """
    if "search_share" not in timing:
        return ""
    share = f"{100 * timing['search_share']:.0f} %"
    return f" (searching {timing['search_seconds']:.1f}, at {share} of the rate of matrix products)"


def chosen_rows(source: DataSource) -> str:
    """How a sample was taken; nothing where all rows are scored.

    >>> chosen_rows(DataSource("pairs.csv", requested=300, rows_read=1379))
    'a random sample of 1,379 rows, seed 42'
    """
    if not source.requested:
        return ""
    if not source.shuffle:
        return f"the first {source.requested:,} rows"
    whole = f" of {source.rows_read:,} rows" if source.rows_read > source.requested else ""
    return f"a random sample{whole}, seed {source.seed}"
