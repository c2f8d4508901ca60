"""The pictures of a diagnosis: drawn from the tables and columns that a layer's outcomes hold, the baseline beside.

Lines of both models share a frame; clouds stand side by side on the same axes.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from calipers.comparison.records import Comparison
from calipers.core import Columns, Figure, Outcomes
from calipers.diagnosis import findings
from calipers.diagnosis.records import Finding
from calipers.rendering import charts, numbers
from calipers.rendering.charts import Axes, Cloud, Stroke

_HUBS = 5  # that are named
_DOTS = 600  # of a picture; more would hide each other
_NEIGHBOURHOODS = 2  # of the least coherent entities, and of the most coherent

Point = tuple[float, float]


@dataclass(frozen=True)
class Chart:
    """A drawing with what it says in one sentence."""

    svg: str
    caption: str


@dataclass(frozen=True, eq=False)
class Shown:
    """The outcomes of one of the two models; `whose` begins a caption."""

    outcomes: Outcomes
    whose: str = ""

    @property
    def details(self) -> Mapping[str, Columns]:
        return self.outcomes.details

    @property
    def columns(self) -> Columns:
        return self.outcomes.columns

    def says(self, sentence: str) -> str:
        """The sentence with whose it is."""
        return f"{self.whose}{sentence[:1].lower()}{sentence[1:]}" if self.whose else sentence


def draw(finding: Finding) -> Iterator[Chart]:
    """The pictures that a layer's outcomes allow."""
    if finding.result is None:
        return
    sides = [Shown(finding.result.outcomes)]
    if finding.verdict:
        sides.append(Shown(finding.verdict.baseline.outcomes, "The baseline: "))
    for picture in _PICTURES:
        yield from picture(finding, sides)


def _points(table: Columns, *names: str) -> list[Any]:
    return list(zip(*(table[name].tolist() for name in names), strict=True))


def _some(rows: Sequence[Any]) -> list[Any]:
    """At most so many as a picture has room for, evenly drawn."""
    return list(rows[:: -(-len(rows) // _DOTS)]) if rows else []


def _having(sides: Sequence[Shown], table: str) -> list[Shown]:
    return [side for side in sides if table in side.details]


# --- retrieval ---------------------------------------------------------------------------------------------------


def _spread(finding: Finding, sides: Sequence[Shown]) -> Iterator[Chart]:
    for name in [n for n in sides[0].columns if n.startswith("ndcg@")]:
        for side in (s for s in sides if name in s.columns):
            counts, labels = charts.bin_shares(side.columns[name].tolist())
            title = f"{'the baseline’s ' if side.whose else ''}{name} of each query"
            caption = f"{title[:1].upper()}{title[1:]}: a mean hides how many queries get nothing (left) or all."
            yield Chart(charts.histogram(counts, labels, title=title, across=name, up="queries"), caption)


def _counts(finding: Finding, sides: Sequence[Shown]) -> Iterator[Chart]:
    for side in _having(sides, "retrieval_counts"):
        table = side.details["retrieval_counts"]
        counts, labels = charts.bin_doublings(table["times"].tolist(), table["documents"].tolist())
        title, across = "How often documents are retrieved", "queries that retrieve it"
        svg = charts.histogram(counts, labels, title=title, across=across, up="documents", log=True)
        caption = "How many documents are among the first results of how many queries; hubs are on the right."
        yield Chart(svg, side.says(caption))


# --- geometry ----------------------------------------------------------------------------------------------------


def _ranks(finding: Finding, sides: Sequence[Shown]) -> Iterator[Chart]:
    """How often the documents are retrieved by their rank, and which the first are."""
    looks = {"": ("this model", "line"), "The baseline: ": ("baseline", "line base")}
    lines = [
        Stroke(looks[side.whose][0], _by_rank(side.details["hub_counts"]), looks[side.whose][1])
        for side in _having(sides, "hub_counts")
    ]
    hubs = findings.examples_of(finding).get("hubness_skewness", [])[:_HUBS]
    marks = [(float(place + 1), hub.value, str(place + 1)) for place, hub in enumerate(hubs)]
    notes = [f"{i + 1} {charts.fitting(hub.text, 30)} ({hub.value:g})" for i, hub in enumerate(hubs)]
    axes: Axes = {"title": "Hubs by rank", "across": "rank of the document (log scale)", "up": "queries (log scale)"}
    svg = charts.strokes(lines, **axes, log=True, names=marks, notes=notes)
    caption = "How many queries have each document among their first results, the largest hub first."
    yield Chart(svg, f"{caption} The numbers in brackets are queries.")


def _by_rank(table: Columns) -> list[Point]:
    """The first and the last rank of each number of queries, from the largest on; documents never retrieved are
    left out."""
    points, rank = [], 0
    for times, documents in sorted(_points(table, "times", "documents"), reverse=True):
        if times > 0:
            points += [(rank + 1.0, float(times)), (float(rank + documents), float(times))]
            rank += documents
    return points


def _aligned(finding: Finding, sides: Sequence[Shown]) -> Iterator[Chart]:
    """Alignment against uniformity, beside the baseline and points of reference: the lower left is best."""
    values = {f.name: (f.value, findings.beside(finding, f)[0]) for f in findings.figures_of(finding)}
    points: dict[str, Cloud] = {}
    for place, (name, look) in enumerate((("this model", "dot"), ("baseline", "dot other"))):
        x, y = (values.get(figure, (None, None))[place] for figure in ("uniformity", "alignment"))
        if x is not None and y is not None:
            points[name] = Cloud([(x, y)], look)
    if not points:
        return
    table = sides[0].details.get("references", {})
    marks = [(str(name), x, y) for name, x, y in _points(table, "name", "uniformity", "alignment")] if table else []
    both = [*(p for cloud in points.values() for p in cloud.points), *((x, y) for _, x, y in marks)]
    axes: Axes = {"title": "Alignment against uniformity", "across": "uniformity", "up": "alignment"}
    svg = charts.scatter(points, **axes, marks=marks, ends=charts.ends_of(both))
    caption = "Lower is better on both axes; a model that gains on one alone has moved all its vectors."
    shown = ", ".join(f"{name} {c.points[0][0]:.3f} and {c.points[0][1]:.3f}" for name, c in points.items())
    yield Chart(svg, f"{caption} Uniformity and alignment: {shown}.")


def _cone(finding: Finding, sides: Sequence[Shown]) -> Iterator[Chart]:
    """Cosines of random pairs of documents and of pairs that belong together."""
    lines, uprights = [], []
    looks = {"random": ("random pairs", "line"), "positive": ("positives", "line good")}
    for side in _having(sides, "cone"):
        table = side.details["cone"]
        used = np.flatnonzero(table["random"] + table["positive"])
        kept = slice(int(used[0]), int(used[-1]) + 1)
        for column, (name, look) in looks.items():
            if side.whose:
                name, look = f"{name.split()[0]}, base", f"{look} base"
            shares = table[column][kept] / max(1, table[column].sum())
            points = list(zip((table["low"][kept] + 1 / len(table["low"])).tolist(), shares.tolist(), strict=True))
            lines += [Stroke(name, points, look)] if table[column].any() else []
    figure = {f.name: f for f in findings.figures_of(finding)}.get("anisotropy")
    if figure and figure.value is not None:
        uprights = [(figure.value, f"anisotropy {findings.value_of(figure)}")]
    axes: Axes = {"title": "The cone", "across": "cosine", "up": "share of pairs"}
    caption = (
        "Cosines of 20,000 random pairs of documents and of pairs that belong together: a cone lies far right of 0."
    )
    yield Chart(charts.strokes(lines, **axes, uprights=uprights), caption)


def _scale(finding: Finding, sides: Sequence[Shown]) -> Iterator[Chart]:
    curves = [
        _points(s.details["scale_curve"], "size", "dimension", "standard_error") for s in _having(sides, "scale_curve")
    ]
    if curves:
        axes: Axes = {"title": "Intrinsic dimension by size of sample", "across": "documents", "up": "dimension"}
        caption = "The dimension among ever more documents: where the curve is level, the figure holds at any size."
        yield Chart(charts.curve(curves[0], **axes, other=curves[1] if len(curves) > 1 else ()), caption)


def _word_order(finding: Finding, sides: Sequence[Shown]) -> Iterator[Chart]:
    name = "word_order_sensitivity"
    having = [side for side in sides if name in side.columns]
    most = max((float(np.nanmax(side.columns[name])) for side in having), default=0.0)
    for side in having:
        counts, labels = charts.bin_evenly(side.columns[name].tolist(), bins=6, most=most)
        title, across = "Word order by text", "1 − cosine of a text and its shuffled words"
        svg = charts.histogram(counts, labels, title=title, across=across, up="texts")
        yield Chart(
            svg, side.says("How far shuffled words move each text: on the left are those that are a bag of words.")
        )


# --- semantic gap ------------------------------------------------------------------------------------------------


def _overlaps(finding: Finding, sides: Sequence[Shown]) -> Iterator[Chart]:
    """Overlap against cosine in quarters, each with its plainest pair."""
    having = _having(sides, "quadrants")
    ends = charts.ends_of([p for side in having for p in _points(side.details["pairs"], "overlap", "cosine")])
    for side in having:
        table, quarters = side.details["pairs"], side.details["quadrants"]
        kinds = _by_relevance(table)
        shown = {name: _some(several) for name, several in kinds.items() if several}
        at_overlap, at_cosine = float(quarters["at_overlap"][0]), float(quarters["at_cosine"][0])
        steps = [step / 50 for step in range(-50, 51)]
        lines = [
            ("gap 0", [(x, x) for x in steps if 0 <= x <= 0.76]),  # its name stands free of the ring at the end
            ("", [(x, x) for x in steps if x >= 0.76]),
            ("", [(at_overlap, y) for y in steps]),
            ("", [(x, at_cosine) for x in steps]),
        ]
        rows = _points(quarters, "name", "pairs", "query", "title", "overlap", "cosine")
        marks = [(str(i), x, y) for i, (*_, x, y) in enumerate(rows, 1) if math.isfinite(x)]
        axes: Axes = {
            "title": "Letters in common against closeness",
            "across": "overlap (Jaccard of bigrams)",
            "up": "cosine",
        }
        svg = charts.scatter(shown, **axes, lines=lines, marks=marks, ends=ends)
        caption = " ".join(_quarter(i, *row[:4]) for i, row in enumerate(rows, 1))
        less = sum(map(len, kinds.values())) > sum(map(len, shown.values()))
        yield Chart(svg, side.says(f"{caption}{' A part of the pairs is drawn.' if less else ''}"))


def _by_relevance(table: Columns) -> dict[str, list[Point]]:
    points = _points(table, "overlap", "cosine", "grade")
    if not any(math.isfinite(grade) for *_, grade in points):
        return {"results": [(x, y) for x, y, _ in points]}
    kinds: dict[str, list[Point]] = {"relevant": [], "not relevant": []}
    for x, y, grade in points:
        kinds["relevant" if grade >= 1 else "not relevant"].append((x, y))
    return kinds


def _quarter(number: int, name: str, pairs: int, query: str, title: str) -> str:
    example = f", as “{numbers.shorten(query, 40)}” and “{numbers.shorten(title, 50)}”" if query else ""
    return f"{number} {name}: {pairs:,} pairs{example}."


# --- certainty ---------------------------------------------------------------------------------------------------


def _trusted(finding: Finding, sides: Sequence[Shown]) -> Iterator[Chart]:
    """I_q against G_q with the contours of R_q, and which queries fail."""
    having = [side for side in sides if {"stability", "coherence"} <= set(side.columns)]
    ends = charts.ends_of([p for side in having for p in _points(side.columns, "coherence", "stability")])
    for side in having:
        columns = side.columns
        success = columns["success"].tolist() if "success" in columns else [math.nan] * len(columns["coherence"])
        kinds: dict[str, list[Point]] = {}
        for x, y, succeeds in zip(columns["coherence"].tolist(), columns["stability"].tolist(), success, strict=True):
            name = "queries" if math.isnan(succeeds) else "succeed" if succeeds else "fail"
            kinds.setdefault(name, []).append((x, y))
        looks = {"queries": "dot faint", "succeed": "dot", "fail": "dot other"}
        clouds = {name: Cloud(_some(kinds[name]), look) for name, look in looks.items() if name in kinds}
        lines = [(f"R_q {r:g}", _contour(r)) for r in (0.3, 0.5, 0.7, 0.8, 0.9)]
        axes: Axes = {
            "title": "Stability against coherence",
            "across": "I_q: how alike the first results are",
            "up": "G_q: what a codec leaves",
        }
        svg = charts.scatter(clouds, **axes, lines=lines, ends=ends)
        caption = "Each query by what R_q is made of; R_q is worth something where failures lie on its low side."
        yield Chart(svg, side.says(caption))


def _contour(reliability: float) -> list[Point]:
    """Where 2 G I / (G + I) has this value, by I."""
    steps = [step / 1000 for step in range(1, 1001)]
    return [(i, reliability * i / (2 * i - reliability)) for i in steps if 2 * i > reliability]


def _map(finding: Finding, sides: Sequence[Shown]) -> Iterator[Chart]:
    """Documents, queries and failures in two dimensions, and how much a reader may believe of it."""
    looks = {"document": "dot faint", "query": "dot", "succeeds": "dot", "fails": "dot other"}
    names = {"document": "documents", "query": "queries", "succeeds": "succeed", "fails": "fail"}
    for side in _having(sides, "map"):
        rows = _points(side.details["map"], "kind", "x", "y")
        clouds = {
            names[kind]: Cloud([(x, y) for one, x, y in rows if one == kind], look)
            for kind, look in looks.items()
            if any(one == kind for one, *_ in rows)
        }
        axes: Axes = {"title": "A map by principal directions", "across": "first direction", "up": "second direction"}
        kept = side.outcomes.counts.get("map_neighbours_kept")
        documents = sum(kind == "document" for kind, *_ in rows)
        chance = min(1.0, 10 / max(1, documents - 1))
        trust = f" It keeps {kept:.1%} of the ten nearest neighbours of a document; chance keeps {chance:.1%}."
        trust = trust if kept is not None else ""
        caption = (
            "Documents (a sample), queries, and those that fail, by the two strongest directions of the documents."
        )
        yield Chart(charts.scatter(clouds, **axes), side.says(f"{caption}{trust}"))


def _curves(finding: Finding, sides: Sequence[Shown]) -> Iterator[Chart]:
    """What a calibrated score is worth: stated against true shares, and failures against how much is answered."""
    for side in _having(sides, "reliability_curve"):
        points = _points(side.details["reliability_curve"], "probability", "share", "low", "high")
        across, up = "probability that the score states", "share that succeed"
        svg = charts.square(points, title="Reliability curve", across=across, up=up, diagonal=True)
        caption = "Stated against true shares of success, out of fold: on the broken line the score is honest."
        yield Chart(svg, side.says(caption))
        answered = [(*p, math.nan, math.nan) for p in _points(side.details["risk_coverage"], "coverage", "risk")]
        across, up = "share of queries answered, surest first", "failures among them"
        svg = charts.square(answered, title="Risk and coverage", across=across, up=up)
        caption = "How many of the answered queries fail when only the surest are answered: a low start is good."
        yield Chart(svg, side.says(caption))


# --- knowledge ---------------------------------------------------------------------------------------------------


def _neighbourhoods(finding: Finding, sides: Sequence[Shown]) -> Iterator[Chart]:
    """The neighbourhood graphs of entities at both ends of coherence; the baseline's of the same entities beside."""
    having = _having(sides, "edges")
    if not having:
        return
    first = having[0].details["entities"]
    finite = [i for i, value in enumerate(first["coherence"].tolist()) if math.isfinite(value)]
    ranked = sorted(finite, key=lambda i: float(first["coherence"][i]))
    for i in dict.fromkeys([*ranked[:_NEIGHBOURHOODS], *ranked[-_NEIGHBOURHOODS:]]):
        entity = str(having[0].outcomes.texts["entity"][i])
        for side in having:
            if entity not in side.outcomes.texts["entity"]:
                continue
            place = list(side.outcomes.texts["entity"]).index(entity)
            table, name = side.details["entities"], numbers.shorten(entity, 40)
            caption = (
                f"{name}: coherence {table['coherence'][place]:.2f}, {table['level'][place]}. Its nearest documents; "
            )
            svg = _neighbourhood(name, place, side.details["edges"])
            yield Chart(svg, f"{side.whose}{caption}the closer two are, the stronger the line.")


def _neighbourhood(name: str, example: int, edges: Columns) -> str:
    mine = [n for n, one in enumerate(edges["example"].tolist()) if one == example]
    source, target, cosine = (edges[key] for key in ("source", "target", "cosine"))
    spokes = [n for n in mine if not source[n]]
    place = {str(target[n]): number for number, n in enumerate(spokes)}
    around = [(charts.fitting(str(edges.get("text", target)[n]), 21), float(cosine[n])) for n in spokes]
    between = {(place[str(source[n])], place[str(target[n])]): float(cosine[n]) for n in mine if source[n]}
    return charts.graph(name, around, between)


# --- one bar a figure --------------------------------------------------------------------------------------------

# Which figures, its group the name of the bar; the bar of an empty name; the title; and what is measured.
_BARS = (
    (
        re.compile(r"jaccard@\d+/?(.*)"),
        "baseline",
        "How alike the first results stay under other settings",
        "overlap with exact search (Jaccard)",
    ),
    (
        re.compile(r"robustness/(.+)"),
        "",
        "How alike the first results stay when a query is written another way",
        "overlap (Jaccard)",
    ),
    (
        re.compile(r"(.*?)_?explicit_failure_rate"),
        "any of them",
        "How many results contradict what their query states",
        "share of their results",
    ),
    (re.compile(r"stability/(.+)"), "", "What a codec leaves of a query", "G_q (cosine with the stored vector)"),
)


def _bars(finding: Finding, sides: Sequence[Shown]) -> Iterator[Chart]:
    compared = findings.comparisons_of(finding)
    figures = findings.figures_of(finding)
    values = {f.name: f.value for f in figures}
    for pattern, nameless, title, across in _BARS:
        rows = [
            _bar(f, match[1] or nameless, compared.get(f.name), values)
            for f in figures
            if f.value is not None and (match := pattern.fullmatch(f.name))
        ]
        marked = any(row.other is not None for row in rows)
        caption = f"{title}.{' The upright line is the baseline.' if marked else ''}"
        if any(row.limits for row in rows):
            caption += " The thin lines are the best possible and random products of the requested type."
        yield Chart(charts.bars(rows, title=title, across=across), caption)


def _bar(figure: Figure, name: str, compared: Comparison | None, values: Mapping[str, float | None]) -> charts.Bar:
    other = compared.baseline if compared else None
    part = figure.name.removesuffix("explicit_failure_rate")
    limits = [values.get(f"{part}{limit}") for limit in ("failure_floor", "failure_random")]
    shown = tuple(limit for limit in limits if limit is not None)
    return charts.Bar(name, float(figure.value or 0.0), figure.interval, other, bool(figure.warning), shown)


Picture = Callable[[Finding, Sequence[Shown]], Iterator[Chart]]
_PICTURES: tuple[Picture, ...] = (
    _spread,
    _counts,
    _cone,
    _aligned,
    _ranks,
    _scale,
    _word_order,
    _overlaps,
    _map,
    _trusted,
    _curves,
    _neighbourhoods,
    _bars,
)
