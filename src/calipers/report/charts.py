"""Small charts as inline SVG: no script, no font, no address. Colours come from the page's own variables.

Every text goes through `escape`. A chart without data is an empty text.
"""

from __future__ import annotations

import html
import math
from collections.abc import Sequence
from dataclasses import dataclass

WIDTH, HEIGHT = 460, 210
_LEFT, _RIGHT, _TOP, _BOTTOM = 46, 12, 12, 40
_ROW, _NAME = 24, 128  # of a chart with one bar per name


@dataclass(frozen=True)
class Bar:
    """A bar with its name; `interval` is drawn as a whisker and `other` as the mark of the baseline."""

    name: str
    value: float
    interval: tuple[float, float] | None = None
    other: float | None = None
    warns: bool = False


def histogram(
    counts: Sequence[float], labels: Sequence[str], *, title: str, across: str, up: str, log: bool = False
) -> str:
    """Bars side by side, a number on each. With `log` heights are logarithms, and small bars stay visible."""
    if not counts or max(counts) <= 0:
        return ""
    heights = [math.log10(1 + c) for c in counts] if log else list(counts)
    top, inner = max(heights), WIDTH - _LEFT - _RIGHT
    step, room = inner / len(counts), HEIGHT - _TOP - _BOTTOM - 14
    parts = []
    for place, (count, height, label) in enumerate(zip(counts, heights, labels, strict=True)):
        tall, x = room * height / top, _LEFT + place * step
        y = HEIGHT - _BOTTOM - tall
        parts.append(_rect("bar", x + 2, y, step - 4, tall))
        if count:
            parts.append(_text(x + step / 2, y - 4, _short(count), "middle", "small"))
        parts.append(_text(x + step / 2, HEIGHT - _BOTTOM + 14, label, "middle", "small"))
    parts.append(_axis(_LEFT, HEIGHT - _BOTTOM, WIDTH - _RIGHT, HEIGHT - _BOTTOM))
    parts.append(_text(_LEFT + inner / 2, HEIGHT - 8, across, "middle"))
    parts.append(_turned(14, _TOP + (HEIGHT - _TOP - _BOTTOM) / 2, up + (" (log scale)" if log else "")))
    return _svg(title, WIDTH, HEIGHT, parts)


def curve(points: Sequence[tuple[float, float, float]], *, title: str, across: str, up: str) -> str:
    """A line through (x, y, standard error of y), x on a log scale, with a band of two standard errors."""
    points = sorted(p for p in points if all(math.isfinite(v) for v in p) and p[0] > 0)
    if len(points) < 2:
        return ""
    low, high = math.log(points[0][0]), math.log(points[-1][0])
    most = max(y + 2 * e for _, y, e in points) * 1.05

    def place(x: float, y: float) -> tuple[float, float]:
        along = (math.log(x) - low) / (high - low)
        up_to = max(0.0, y) / most
        return _LEFT + along * (WIDTH - _LEFT - _RIGHT - 16) + 8, HEIGHT - _BOTTOM - up_to * (HEIGHT - _TOP - _BOTTOM)

    upper = [place(x, y + 2 * e) for x, y, e in points]
    lower = [place(x, y - 2 * e) for x, y, e in reversed(points)]
    middle = [place(x, y) for x, y, _ in points]
    parts = [f'<polygon class="band" points="{_points(upper + lower)}"/>']
    parts.append(f'<polyline class="line" points="{_points(middle)}"/>')
    for (x, y), (size, value, _) in zip(middle, points, strict=True):
        parts.append(f'<circle class="dot" cx="{x:.1f}" cy="{y:.1f}" r="3"/>')
        parts.append(_text(x, y - 8, f"{value:.1f}", "middle", "small"))
        parts.append(_text(x, HEIGHT - _BOTTOM + 14, _short(size), "middle", "small"))
    parts.append(_axis(_LEFT, HEIGHT - _BOTTOM, WIDTH - _RIGHT, HEIGHT - _BOTTOM))
    parts.append(_text((_LEFT + WIDTH - _RIGHT) / 2, HEIGHT - 8, across, "middle"))
    parts.append(_turned(14, _TOP + (HEIGHT - _TOP - _BOTTOM) / 2, up))
    return _svg(title, WIDTH, HEIGHT, parts)


def bars(rows: Sequence[Bar], *, title: str, across: str) -> str:
    """One bar per name between 0 and 1, with its interval and, where there is one, the baseline's mark."""
    rows = [row for row in rows if math.isfinite(row.value)]
    if not rows:
        return ""
    room, height = WIDTH - _NAME - 52, len(rows) * _ROW + 34

    def along(value: float) -> float:
        return _NAME + min(1.0, max(0.0, value)) * room

    parts = []
    for number, row in enumerate(rows):
        y = 6 + number * _ROW
        kind = "bar warned" if row.warns else "bar"
        parts.append(_text(_NAME - 8, y + 14, row.name, "end"))
        parts.append(_rect("rail", _NAME, y + 3, room, _ROW - 9))
        parts.append(_rect(kind, _NAME, y + 3, along(row.value) - _NAME, _ROW - 9))
        if row.interval:
            low, high = (along(end) for end in row.interval)
            parts.append(_axis(low, y + 10.5, high, y + 10.5, "whisker"))
        if row.other is not None:
            parts.append(_axis(along(row.other), y, along(row.other), y + _ROW - 3, "mark"))
        parts.append(_text(WIDTH - 46, y + 14, f"{row.value:.3f}", "start"))
    parts += [_text(along(value), height - 16, f"{value:g}", "middle", "small") for value in (0.0, 0.5, 1.0)]
    parts.append(_text(_NAME + room / 2, height - 3, across, "middle"))
    return _svg(title, WIDTH, height, parts)


def bin_shares(values: Sequence[float], bins: int = 10) -> tuple[list[float], list[str]]:
    """Counts of values between 0 and 1 in even bins, which are named by where they begin; 1 is in the last one. NaN is
    left out.

    >>> bin_shares([0.0, 0.05, 1.0, float("nan")], bins=2)
    ([2, 1], ['0', '0.5'])
    """
    counts = [0.0] * bins
    for value in values:
        if math.isfinite(value):
            counts[min(bins - 1, max(0, int(value * bins)))] += 1
    return [int(c) for c in counts], [f"{i / bins:g}" for i in range(bins)]


def bin_doublings(times: Sequence[int], documents: Sequence[int]) -> tuple[list[float], list[str]]:
    """Counts by how often, in bins that double: 0, 1, 2, 3–4, 5–8, …

    >>> bin_doublings([0, 1, 3, 4], [90, 5, 2, 1])
    ([90, 5, 0, 3], ['0', '1', '2', '3–4'])
    """
    places = [0 if n == 0 else math.ceil(math.log2(n)) + 1 for n in times]
    counts = [0.0] * (max(places, default=-1) + 1)
    for place, many in zip(places, documents, strict=True):
        counts[place] += many
    names = ["0", "1", "2", *(f"{2 ** (i - 2) + 1}–{2 ** (i - 1)}" for i in range(3, len(counts)))]
    return [int(c) for c in counts], names[: len(counts)]


def _svg(title: str, width: float, height: float, parts: Sequence[str]) -> str:
    told = html.escape(title)
    return (
        f'<svg class="chart" role="img" aria-label="{told}" viewBox="0 0 {width:g} {height:g}">'
        f"<title>{told}</title>{''.join(parts)}</svg>"
    )


def _text(x: float, y: float, words: str, anchor: str, kind: str = "") -> str:
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{html.escape(words)}</text>'


def _turned(x: float, y: float, words: str) -> str:
    turn = f"rotate(-90 {x} {y:.1f})"
    return f'<text x="{x}" y="{y:.1f}" text-anchor="middle" transform="{turn}">{html.escape(words)}</text>'


def _rect(kind: str, x: float, y: float, wide: float, tall: float) -> str:
    return f'<rect class="{kind}" x="{x:.1f}" y="{y:.1f}" width="{wide:.1f}" height="{tall:.1f}" rx="2"/>'


def _axis(x1: float, y1: float, x2: float, y2: float, kind: str = "axis") -> str:
    return f'<line class="{kind}" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"/>'


def _points(places: Sequence[tuple[float, float]]) -> str:
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in places)


def _short(number: float) -> str:
    """
    >>> _short(950), _short(19406)
    ('950', '19.4k')
    """
    return f"{number:g}" if number < 1000 else f"{number / 1000:.3g}k" if number < 1e6 else f"{number / 1e6:.3g}M"
