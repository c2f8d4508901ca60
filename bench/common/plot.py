"""The curves of growth as SVG: seconds and memory over size, both axes logarithmic."""

from __future__ import annotations

import html
import math
from collections.abc import Mapping, Sequence

WIDTH, HEIGHT, MARGIN, RIGHT, GAP = 440, 320, 56, 36, 20
COLOURS = ("#1f6feb", "#d1242f", "#1a7f37", "#9a6700", "#8250df", "#57606a")

Curves = Mapping[str, Sequence[tuple[float, float, float]]]  # name → (size, seconds, megabytes)


def growth(curves: Curves) -> str:
    """Two panels, and the names below them."""
    tall = HEIGHT + 20 * len(curves) + 20
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {2 * WIDTH + GAP} {tall}" font-family="sans-serif" '
        'font-size="12"><rect width="100%" height="100%" fill="white"/>'
    ]
    for place, (column, title) in enumerate(((1, "CPU seconds"), (2, "peak memory, MB"))):
        parts += _panel(curves, column, title, place * (WIDTH + GAP))
    for i, name in enumerate(curves):
        y = HEIGHT + 20 * (i + 1)
        parts.append(f'<rect x="{MARGIN}" y="{y - 9}" width="18" height="4" fill="{COLOURS[i % len(COLOURS)]}"/>')
        parts.append(f'<text x="{MARGIN + 26}" y="{y - 2}">{html.escape(name)}</text>')
    return "\n".join([*parts, "</svg>"]) + "\n"


def _panel(curves: Curves, column: int, title: str, left: int) -> list[str]:
    points = [point for curve in curves.values() for point in curve]
    xs, ys = _decades([p[0] for p in points]), _decades([p[column] for p in points])

    def place(x: float, y: float) -> tuple[float, float]:
        across = (math.log10(x) - xs[0]) / max(1, xs[1] - xs[0])
        up = (math.log10(max(y, 10 ** ys[0])) - ys[0]) / max(1, ys[1] - ys[0])
        return left + MARGIN + across * (WIDTH - MARGIN - RIGHT), HEIGHT - MARGIN - up * (HEIGHT - MARGIN - 40)

    parts = [f'<text x="{left + MARGIN}" y="24" font-weight="bold">{title} over examples (log scales)</text>']
    for power in range(xs[0], xs[1] + 1):
        x, y = place(10.0**power, 10.0 ** ys[0])
        parts.append(f'<text x="{x:.0f}" y="{y + 18:.0f}" text-anchor="middle">{10**power:,}</text>')
    for power in range(ys[0], ys[1] + 1):
        x, y = place(10.0 ** xs[0], 10.0**power)
        parts.append(f'<line x1="{x:.0f}" x2="{left + WIDTH - RIGHT}" y1="{y:.0f}" y2="{y:.0f}" stroke="#d0d7de"/>')
        parts.append(f'<text x="{x - 6:.0f}" y="{y + 4:.0f}" text-anchor="end">{10.0**power:g}</text>')
    for i, curve in enumerate(curves.values()):
        line = " ".join("{:.1f},{:.1f}".format(*place(point[0], point[column])) for point in curve)
        colour = COLOURS[i % len(COLOURS)]
        parts.append(f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="2"/>')
    return parts


def _decades(values: Sequence[float]) -> tuple[int, int]:
    """The powers of ten below and above all values."""
    positive = [value for value in values if value > 0] or [1.0]
    return math.floor(math.log10(min(positive))), math.ceil(math.log10(max(positive)))
