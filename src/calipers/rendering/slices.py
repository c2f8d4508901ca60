"""Slices as rows of a table: what text, Markdown and HTML show."""

from __future__ import annotations

from collections.abc import Sequence

from calipers.core import Slices
from calipers.core.slices import shown_group
from calipers.rendering.numbers import interval, interval_name, number, plural, shorten

_LONGEST = 60  # characters of a group's name


def slice_title(slices: Slices) -> str:
    """
    >>> slice_title(Slices("language", "column 'locale'", (), "ndcg@10"))
    "ndcg@10 by language (column 'locale'):"
    """
    return f"{slices.metric} by {shorten(slices.by, _LONGEST)} ({shorten(slices.about, 2 * _LONGEST)}):"


def slice_table(
    slices: Slices, digits: int, unit: str, confidence: float | None
) -> tuple[Sequence[str], list[Sequence[str]]]:
    """Header and rows: group, number of examples, value, interval, and why a number is missing."""
    header = ("group", plural(unit), slices.metric, interval_name(confidence), "note")
    rows: list[Sequence[str]] = [
        (
            shorten(shown_group(each.group), _LONGEST),
            f"{each.examples:,}",
            number(each.metrics.get(slices.metric), digits),
            interval(each.intervals.get(slices.metric), digits),
            each.reason or "",
        )
        for each in slices.slices
    ]
    return header, rows
