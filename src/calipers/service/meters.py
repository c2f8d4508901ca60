"""What the service counts, as Prometheus reads it (text format 0.0.4)."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from calipers.core import printable

_SECONDS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_SHARES = tuple(i / 10 for i in range(11))

Labels = tuple[tuple[str, str], ...]


@dataclass(eq=False)
class Histogram:
    bounds: Sequence[float]
    counts: list[int] = field(default_factory=list)
    total: float = 0.0

    def __post_init__(self) -> None:
        self.counts = [0] * (len(self.bounds) + 1)

    def add(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    def lines(self, name: str, labels: Labels) -> Iterator[str]:
        seen = 0
        for bound, count in zip([*map(str, self.bounds), "+Inf"], self.counts, strict=True):
            seen += count
            yield f"{name}_bucket{_braces((*labels, ('le', bound)))} {seen}"
        yield f"{name}_sum{_braces(labels)} {self.total:.9g}"
        yield f"{name}_count{_braces(labels)} {seen}"


@dataclass(eq=False)
class Meters:
    """Counts and histograms by name and labels; gauges are written when they are read."""

    counts: defaultdict[tuple[str, Labels], int] = field(default_factory=lambda: defaultdict(int))
    histograms: dict[tuple[str, Labels], Histogram] = field(default_factory=dict)

    def count(self, name: str, **labels: str) -> None:
        self.counts[name, tuple(sorted(labels.items()))] += 1

    def time(self, name: str, seconds: float, **labels: str) -> None:
        self._histogram(name, _SECONDS, labels).add(seconds)

    def share(self, name: str, value: float | None, **labels: str) -> None:
        if value is not None and value == value:
            self._histogram(name, _SHARES, labels).add(value)

    def _histogram(self, name: str, bounds: Sequence[float], labels: dict[str, str]) -> Histogram:
        return self.histograms.setdefault((name, tuple(sorted(labels.items()))), Histogram(bounds))

    def text(self, gauges: dict[str, float]) -> str:
        return "\n".join(self._lines(gauges)) + "\n"

    def _lines(self, gauges: dict[str, float]) -> Iterator[str]:
        for name, value in gauges.items():
            yield f"# TYPE {name} gauge"
            yield f"{name} {value:.9g}"
        seen: set[str] = set()
        for (name, labels), count in sorted(self.counts.items()):
            if name not in seen:
                seen.add(name)
                yield f"# TYPE {name} counter"
            yield f"{name}{_braces(labels)} {count}"
        for (name, labels), histogram in sorted(self.histograms.items(), key=lambda pair: pair[0]):
            if name not in seen:
                seen.add(name)
                yield f"# TYPE {name} histogram"
            yield from histogram.lines(name, labels)


def _braces(labels: Labels) -> str:
    return "{" + ",".join(f'{key}="{_escape(value)}"' for key, value in labels) + "}" if labels else ""


def _escape(value: str) -> str:
    """As the format has it; what a terminal would obey is replaced.

    >>> print(_escape('a"b\\\\'))
    a\\"b\\\\
    """
    return printable(value).replace("\\", "\\\\").replace('"', '\\"')
