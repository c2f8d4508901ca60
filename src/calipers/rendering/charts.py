"""Small charts as inline SVG: no script, no font, no address. Colours come from the page's own variables.

Every text goes through `escape`. A chart without data is an empty text.
"""

from __future__ import annotations

import html
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypedDict

import numpy as np
from rich.cells import cell_len, set_cell_size

from calipers.core import printable

WIDTH, HEIGHT = 460, 210
_LEFT, _RIGHT, _TOP, _BOTTOM = 46, 12, 12, 40
_ROW, _NAME = 24, 128  # of a chart with one bar per name
_LETTER = 7  # the width of one, at most


class Axes(TypedDict):
    """What a drawing is called, and its two axes."""

    title: str
    across: str
    up: str


@dataclass(frozen=True)
class Bar:
    """A bar with its name; `interval` is drawn as a whisker, `other` as the mark of the baseline and `limits`, the best
    possible and random, as thin lines."""

    name: str
    value: float
    interval: tuple[float, float] | None = None
    other: float | None = None
    warns: bool = False
    limits: tuple[float, ...] = ()


def histogram(
    counts: Sequence[float], labels: Sequence[str], *, title: str, across: str, up: str, log: bool = False
) -> str:
    """Bars side by side, a number on each. With `log` heights are logarithms, and small bars stay visible."""
    if not counts or max(counts) <= 0:
        return ""
    heights = [math.log10(1 + c) for c in counts] if log else list(counts)
    top = max(heights)
    step, room = (WIDTH - _LEFT - _RIGHT) / len(counts), HEIGHT - _TOP - _BOTTOM - 14
    parts = []
    for place, (count, height, label) in enumerate(zip(counts, heights, labels, strict=True)):
        tall, x = room * height / top, _LEFT + place * step
        y = HEIGHT - _BOTTOM - tall
        parts.append(_rect("bar", x + 2, y, step - 4, tall))
        if count:
            parts.append(_text(x + step / 2, y - 4, _short(count), "middle", "small"))
        parts.append(_text(x + step / 2, HEIGHT - _BOTTOM + 14, label, "middle", "small"))
    parts.append(_axis(_LEFT, HEIGHT - _BOTTOM, WIDTH - _RIGHT, HEIGHT - _BOTTOM))
    return _named_axes(title, across, up + (" (log scale)" if log else ""), parts)


Errors = Sequence[tuple[float, float, float]]  # x, y and the standard error of y


def curve(points: Errors, *, title: str, across: str, up: str, other: Errors = ()) -> str:
    """A line through (x, y, standard error of y), x on a log scale, with a band of two standard errors; `other` is the
    baseline's, a broken line."""
    points, other = (
        sorted(p for p in several if all(math.isfinite(v) for v in p) and p[0] > 0) for several in (points, other)
    )
    if len(points) < 2:
        return ""
    low, high = (math.log(end([*points, *other])[0]) for end in (min, max))
    most = max(y + 2 * e for _, y, e in [*points, *other]) * 1.05

    def place(x: float, y: float) -> tuple[float, float]:
        along = (math.log(x) - low) / (high - low)
        up_to = max(0.0, y) / most
        return _LEFT + along * (WIDTH - _LEFT - _RIGHT - 16) + 8, HEIGHT - _BOTTOM - up_to * (HEIGHT - _TOP - _BOTTOM)

    band = [place(x, y + 2 * e) for x, y, e in points] + [place(x, y - 2 * e) for x, y, e in reversed(points)]
    middle = [place(x, y) for x, y, _ in points]
    parts = [
        f'<polygon class="band" points="{_points(band)}"/>',
        f'<polyline class="line" points="{_points(middle)}"/>',
    ]
    for (x, y), (size, value, _) in zip(middle, points, strict=True):
        size_name = _text(x, HEIGHT - _BOTTOM + 14, _short(size), "middle", "small")
        parts += [_dot(x, y), _text(x, y - 8, f"{value:.2f}", "middle", "small"), size_name]
    if len(other) > 1:
        parts.append(f'<polyline class="line base" points="{_points([place(x, y) for x, y, _ in other])}"/>')
        parts += _legend([("this model", "line"), ("baseline", "line base")])
    parts.append(_axis(_LEFT, HEIGHT - _BOTTOM, WIDTH - _RIGHT, HEIGHT - _BOTTOM))
    return _named_axes(title, across, up, parts)


def square(
    points: Sequence[tuple[float, float, float, float]], *, title: str, across: str, up: str, diagonal: bool = False
) -> str:
    """A line through (x, y, low, high), x from 0 to 1, with a whisker where low and high are known. With `diagonal` y
    goes to 1 as well and the line x = y is drawn; else y goes as high as it must."""
    points = sorted(p for p in points if math.isfinite(p[0]) and math.isfinite(p[1]))
    if len(points) < 2:
        return ""
    most = 1.0 if diagonal else max(0.1, math.ceil(10 * max(y for _, y, _, _ in points)) / 10)

    def place(x: float, y: float) -> tuple[float, float]:
        return _LEFT + 8 + x * (WIDTH - _LEFT - _RIGHT - 24), HEIGHT - _BOTTOM - y / most * (HEIGHT - _TOP - _BOTTOM)

    parts = [_axis(*place(0, 0), *place(1, 0)), _axis(*place(0, 0), *place(0, most))]
    for value in (0.0, 0.5, 1.0):
        parts.append(_text(place(value, 0)[0], HEIGHT - _BOTTOM + 14, f"{value:g}", "middle", "small"))
        parts.append(_text(_LEFT + 2, place(0, value * most)[1] + 4, f"{value * most:g}", "end", "small"))
    if diagonal:
        parts.append(_axis(*place(0, 0), *place(1, 1), "ideal"))
    parts.append(f'<polyline class="line" points="{_points([place(x, y) for x, y, _, _ in points])}"/>')
    for x, y, low, high in points:
        if math.isfinite(low) and math.isfinite(high):
            parts += [_axis(*place(x, low), *place(x, high), "thin"), _dot(*place(x, y))]
    return _named_axes(title, across, up, parts, left=10)


@dataclass(frozen=True)
class Cloud:
    """Points of one kind: `look` is how they are drawn, a class of the style sheet."""

    points: Sequence[tuple[float, float]]
    look: str = "dot"


Ends = tuple[tuple[float, float], tuple[float, float]]  # of both axes


def scatter(
    series: Mapping[str, Sequence[tuple[float, float]] | Cloud],
    *,
    title: str,
    across: str,
    up: str,
    lines: Sequence[tuple[str, Sequence[tuple[float, float]]]] = (),
    marks: Sequence[tuple[str, float, float]] = (),
    ends: Ends | None = None,
) -> str:
    """Points of a few kinds, by name, on axes that are as long as the points need, or as `ends` says; `lines` are drawn
    as far as they lie among them, each with a name at its end. `marks` are rings with a name."""
    looks = ("dot", "dot other", "dot faint")
    clouds = {
        name: points if isinstance(points, Cloud) else Cloud(points, look)
        for look, (name, points) in zip(looks, series.items(), strict=False)
    }
    clouds = {
        name: replace(c, points=[p for p in c.points if all(map(math.isfinite, p))]) for name, c in clouds.items()
    }
    clouds = {name: cloud for name, cloud in clouds.items() if cloud.points}
    ends = ends or ends_of([point for cloud in clouds.values() for point in cloud.points])
    if ends is None:
        return ""
    (left, right), (low, high) = ends

    def place(x: float, y: float) -> tuple[float, float]:
        wide, tall = WIDTH - _LEFT - _RIGHT - 24, HEIGHT - _TOP - _BOTTOM - 14
        return _LEFT + 8 + (x - left) / (right - left) * wide, HEIGHT - _BOTTOM - (y - low) / (high - low) * tall

    parts = [_axis(*place(left, low), *place(right, low)), _axis(*place(left, low), *place(left, high))]
    parts += [_text(place(x, low)[0], HEIGHT - _BOTTOM + 14, f"{x:g}", "middle", "small") for x in (left, right)]
    parts += [_text(_LEFT + 2, place(left, y)[1] + 4, f"{y:g}", "end", "small") for y in (low, high)]
    names = []
    for name, points in lines:
        inside = [place(x, y) for x, y in points if left <= x <= right and low <= y <= high]
        if len(inside) > 1:
            parts.append(f'<polyline class="contour" points="{_points(inside)}"/>')
            names.append(_text(*inside[-1], name, "end", "small"))
    for cloud in clouds.values():
        parts += [_dot(*place(*point), cloud.look) for point in cloud.points]
    parts += names  # above the points
    parts += _rings([(name, *place(x, y)) for name, x, y in marks])
    legend = [(f"{name} ({len(cloud.points):,})", cloud.look) for name, cloud in clouds.items()]
    return _named_axes(title, across, up, [*parts, *_legend(legend)], left=10)


def _rings(marks: Sequence[tuple[str, float, float]]) -> list[str]:
    """Rings with their names, each above or below its ring where no other name stands."""
    parts: list[str] = []
    taken: list[tuple[float, float, float]] = []
    for name, x, y in marks:
        left = x > WIDTH / 2
        start = x - 7 - _LETTER * len(name) if left else x + 7
        end = start + _LETTER * len(name)
        heights = [y + step for step in (-5, 14, 27, 40) if y + step > 24]
        free = [h for h in heights if not any(start < e and s < end and abs(h - t) < 12 for s, e, t in taken)]
        height = (free or heights)[0]
        taken.append((start, end, height))
        parts += [_dot(x, y, "ring"), _text(end if left else start, height, name, "end" if left else "start", "strong")]
    return parts


def ends_of(points: Sequence[tuple[float, float]]) -> Ends | None:
    """Round numbers around points, for both axes; None for fewer than two."""
    finite = [point for point in points if all(map(math.isfinite, point))]
    if len(finite) < 2:
        return None
    across, up = (_ends([point[axis] for point in finite]) for axis in (0, 1))
    return across, up


def _legend(entries: Sequence[tuple[str, str]]) -> list[str]:
    """The kinds side by side above a drawing: their names and how they look."""
    parts, room = [], (WIDTH - _LEFT - 8) / max(1, len(entries))
    for number, (name, look) in enumerate(entries):
        x = _LEFT + 12 + number * room
        mark = _axis(x - 6, 8, x + 6, 8, look) if look.startswith("line") else _dot(x, 8, look)
        parts += [mark, _text(x + 9, 12, name, "start", "small")]
    return parts


@dataclass(frozen=True)
class Stroke:
    """A line by name; `look` is a class of the style sheet."""

    name: str
    points: Sequence[tuple[float, float]]
    look: str = "line"


def strokes(
    lines: Sequence[Stroke],
    *,
    title: str,
    across: str,
    up: str,
    log: bool = False,
    names: Sequence[tuple[float, float, str]] = (),
    notes: Sequence[str] = (),
    uprights: Sequence[tuple[float, str]] = (),
) -> str:
    """Lines in one frame from 0 up, each as long as it is; with `log` both axes are logarithms and begin at 1. `names`
    stand above points (x, y), `notes` in the lower left corner; `uprights` are places across with a name."""
    lines = [line for line in lines if len(line.points) > 1]
    every = [point for line in lines for point in line.points]
    if not every:
        return ""
    scale = math.log10 if log else float
    left, right = (scale(end) for end in (min(x for x, _ in every), max(x for x, _ in every)))
    most = scale(max(max(y for _, y in every), 2 if log else 1e-9))
    right = right if right > left else left + 1

    def place(x: float, y: float) -> tuple[float, float]:
        wide, tall = WIDTH - _LEFT - _RIGHT - 16, HEIGHT - _TOP - _BOTTOM - 14
        return _LEFT + 8 + (scale(x) - left) / (right - left) * wide, HEIGHT - _BOTTOM - scale(y) / most * tall

    ends = [min(x for x, _ in every), max(x for x, _ in every)]
    low, top = (1.0, max(y for _, y in every)) if log else (0.0, max(y for _, y in every))
    parts = [_axis(*place(ends[0], low), *place(ends[1], low)), _axis(*place(ends[0], low), *place(ends[0], top))]
    parts += [_text(place(x, low)[0], HEIGHT - _BOTTOM + 14, f"{x:g}", "middle", "small") for x in ends]
    parts += [_text(_LEFT + 2, place(ends[0], y)[1] + 4, f"{y:.3g}", "end", "small") for y in (low, top)]
    for where, name in uprights:
        x = place(where, low)[0]
        parts += [_axis(x, _TOP + 8, x, HEIGHT - _BOTTOM, "ideal"), _text(x + 3, _TOP + 18, name, "start", "small")]
    for line in lines:
        parts.append(f'<polyline class="{line.look}" points="{_points([place(*point) for point in line.points])}"/>')
    for x, y, name in names:
        parts += [_dot(*place(x, y)), _text(place(x, y)[0], place(x, y)[1] - 6, name, "middle", "small")]
    bottom = HEIGHT - _BOTTOM - 8 - 13 * (len(notes) - 1)
    parts += [_text(_LEFT + 16, bottom + 13 * row, note, "start", "small") for row, note in enumerate(notes)]
    return _named_axes(title, across, up, [*parts, *_legend([(line.name, line.look) for line in lines])], left=10)


def _ends(values: Sequence[float]) -> tuple[float, float]:
    """Round numbers around the values.

    >>> _ends([0.123, 0.88]), _ends([0.9871, 0.9993]), _ends([0.5, 0.5 + 1e-9]), _ends([1.0, 1.0])
    ((0.1, 0.9), (0.986, 1.0), (0.5, 0.6), (1.0, 1.1))
    """
    low, high = min(values), max(values)
    apart = high - low > 1e-4  # nearer ones are rounding
    step = 10.0 ** math.floor(math.log10(high - low)) if apart else 0.1
    step = step / 5 if apart and (high - low) / step < 2 else step
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return round(first * step, 6), round(max(last, first + 1) * step, 6)


def bin_evenly(values: Sequence[float], bins: int = 10, most: float = 0.0) -> tuple[list[float], list[str]]:
    """Counts of values from 0 up in even bins to the highest one, or to `most`, named by where they begin; NaN is in
    none.

    >>> bin_evenly([0.0, 0.1, 0.4, float("nan")], bins=2)
    ([2, 1], ['0', '0.2'])
    """
    finite = [value for value in values if math.isfinite(value)]
    most = max(*finite, most, 0.0) or 1.0 if finite else most or 1.0
    counts, _ = bin_shares([value / most for value in finite], bins)
    return counts, [f"{most * i / bins:.2g}" for i in range(bins)]


def graph(centre: str, around: Sequence[tuple[str, float]], between: Mapping[tuple[int, int], float]) -> str:
    """A point and its neighbours (name, cosine) in a circle, those alike side by side; `between` has the cosine of two
    of them by their places. The nearer two are, the stronger the line; at 0 or below there is none."""
    if not around:
        return ""
    height, reach = 300.0, 92.0
    middle = WIDTH / 2, height / 2
    turns = [2 * math.pi * i / len(around) - math.pi / 2 for i in range(len(around))]
    places = {
        one: (middle[0] + reach * math.cos(turn), middle[1] + reach * math.sin(turn))
        for one, turn in zip(_chain(len(around), between), turns, strict=True)
    }
    parts = [_link(places[i], places[j], cosine) for (i, j), cosine in between.items()]
    parts += [_link(middle, places[i], cosine, "spoke") for i, (_, cosine) in enumerate(around)]
    parts.append(_dot(*middle, "hub"))
    for i, (name, _) in enumerate(around):
        x, y = places[i]
        side = 0 if abs(x - middle[0]) < 8 else math.copysign(1, x - middle[0])
        lift = 4.0 if side else math.copysign(14, y - middle[1]) + 4
        parts.append(_dot(x, y))
        parts.append(_text(x + 8 * side, y + lift, name, ("middle", "start", "end")[int(side)], "small"))
    parts.append(_text(middle[0], middle[1] - 8, centre, "middle", "strong"))
    return _svg(f"The neighbourhood of {centre}", WIDTH, height, parts)


def _chain(count: int, between: Mapping[tuple[int, int], float]) -> list[int]:
    """An order in which each is followed by the one most like it among those that are left.

    >>> _chain(4, {(0, 1): 0.1, (0, 2): 0.9, (0, 3): 0.2, (1, 2): 0.3, (1, 3): 0.8, (2, 3): 0.4})
    [0, 2, 3, 1]
    """
    left, order = set(range(1, count)), [0]
    while left:
        last = order[-1]
        order.append(min(left, key=lambda one: (-between.get((min(last, one), max(last, one)), -1.0), one)))
        left.remove(order[-1])
    return order


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
        parts += [
            _text(_NAME - 8, y + 14, fitting(row.name), "end"),
            _rect("rail", _NAME, y + 3, room, _ROW - 9),
            _rect("bar warned" if row.warns else "bar", _NAME, y + 3, along(row.value) - _NAME, _ROW - 9),
        ]
        if row.interval:
            low, high = (along(end) for end in row.interval)
            parts.append(_axis(low, y + 10.5, high, y + 10.5, "whisker"))
        parts += [_axis(along(limit), y, along(limit), y + _ROW - 3, "thin") for limit in row.limits]
        if row.other is not None:
            parts.append(_axis(along(row.other), y, along(row.other), y + _ROW - 3, "mark"))
        parts.append(_text(WIDTH - 46, y + 14, f"{row.value:.3f}", "start"))
    parts += [_text(along(value), height - 16, f"{value:g}", "middle", "small") for value in (0.0, 0.5, 1.0)]
    parts.append(_text(_NAME + room / 2, height - 3, across, "middle"))
    return _svg(title, WIDTH, height, parts)


def fitting(name: str, most: int = (_NAME - 8) // _LETTER) -> str:
    """The name on one line, cut to the room of so many letters, by default to that left of the bars; a Japanese
    character takes the room of two.

    >>> fitting("anisotropy"), fitting("Sabrenne umbrella 70 cm"), fitting("電気ケトル 1.7L", 9)
    ('anisotropy', 'Sabrenne umbrell…', '電気ケト…')
    """
    line = printable(name)
    return line if cell_len(line) <= most else set_cell_size(line, most - 1).rstrip() + "…"


def bin_shares(values: Sequence[float], bins: int = 10) -> tuple[list[float], list[str]]:
    """Counts of values between 0 and 1 in even bins, named by where they begin; 1 is in the last one, NaN in none.

    >>> bin_shares([0.0, 0.05, 1.0, float("nan")], bins=2)
    ([2, 1], ['0', '0.5'])
    """
    finite = np.array([value for value in values if math.isfinite(value)])
    places = np.clip((finite * bins).astype(np.int64), 0, bins - 1)
    return np.bincount(places, minlength=bins).tolist(), [f"{i / bins:g}" for i in range(bins)]


def bin_doublings(times: Sequence[int], documents: Sequence[int]) -> tuple[list[float], list[str]]:
    """Counts by how often, in bins that double: 0, 1, 2, 3–4, 5–8, …

    >>> bin_doublings([0, 1, 3, 4], [90, 5, 2, 1])
    ([90, 5, 0, 3], ['0', '1', '2', '3–4'])
    """
    places = [0 if n == 0 else math.ceil(math.log2(n)) + 1 for n in times]
    counts = np.bincount(np.array(places, np.int64), documents).astype(np.int64).tolist()
    names = ["0", "1", "2", *(f"{2 ** (i - 2) + 1}–{2 ** (i - 1)}" for i in range(3, len(counts)))]
    return counts, names[: len(counts)]


def _named_axes(title: str, across: str, up: str, parts: Sequence[str], left: int = 14) -> str:
    """The drawing with the names of its axes; the upright one is turned, `left` from the edge."""
    x, y = (_LEFT + WIDTH - _RIGHT) / 2, _TOP + (HEIGHT - _TOP - _BOTTOM) / 2
    place = f'x="{left}" y="{y:.1f}" text-anchor="middle" transform="rotate(-90 {left} {y:.1f})"'
    turned = f"<text {place}>{html.escape(up)}</text>"
    return _svg(title, WIDTH, HEIGHT, [*parts, _text(x, HEIGHT - 8, across, "middle"), turned])


def _svg(title: str, width: float, height: float, parts: Sequence[str]) -> str:
    label, box = html.escape(title), f"0 0 {width:g} {height:g}"
    start = f'<svg class="chart" role="img" aria-label="{label}" viewBox="{box}">'
    return f"{start}<title>{label}</title>{''.join(parts)}</svg>"


def _text(x: float, y: float, words: str, anchor: str, kind: str = "") -> str:
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{html.escape(words)}</text>'


def _rect(kind: str, x: float, y: float, wide: float, tall: float) -> str:
    return f'<rect class="{kind}" x="{x:.1f}" y="{y:.1f}" width="{wide:.1f}" height="{tall:.1f}" rx="2"/>'


def _axis(x1: float, y1: float, x2: float, y2: float, kind: str = "axis", look: str = "") -> str:
    return f'<line class="{kind}" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"{look}/>'


def _link(one: tuple[float, float], other: tuple[float, float], cosine: float, kind: str = "link") -> str:
    strong = min(1.0, max(0.0, cosine))
    look = f' stroke-opacity="{strong**2:.2f}" stroke-width="{0.5 + 2.5 * strong:.1f}"'
    return _axis(*one, *other, kind, look)


_RADII = {"hub": 5, "ring": 5, "dot faint": 1.6}


def _dot(x: float, y: float, kind: str = "dot") -> str:
    return f'<circle class="{kind}" cx="{x:.1f}" cy="{y:.1f}" r="{_RADII.get(kind, 3)}"/>'


def _points(places: Sequence[tuple[float, float]]) -> str:
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in places)


def _short(number: float) -> str:
    """
    >>> _short(950), _short(19406)
    ('950', '19.4k')
    """
    return f"{number:g}" if number < 1000 else f"{number / 1000:.3g}k" if number < 1e6 else f"{number / 1e6:.3g}M"
