"""Layer 1, geometry: the shape of the space that a model puts a corpus and its queries into.

Every figure has a standard error. Where it is a mean over texts or pairs, these are resampled (a bootstrap); the other
figures are resampled through their influences (see metrics.geometry), hubness through a jackknife over the queries.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from calipers.core import Columns, Encoder, Figure, InvalidOutput, Outcomes, Progress, figure_tables, name_some
from calipers.diagnosis.layer import Layer
from calipers.diagnosis.layers import geometry_parts as parts_of
from calipers.diagnosis.layers.geometry_figures import FIGURES, METRICS, figure_of, unknown
from calipers.diagnosis.layers.geometry_parts import GeometryOptions, Part, example_rows, pair_rows
from calipers.metrics import neighbours
from calipers.runs.directions import LEAST, Directed, directed
from calipers.runs.space import Space, Texts

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def run(model: Encoder | None, space: Space, options: GeometryOptions, progress: Progress) -> Outcomes:
    """Outcomes over documents (at most 2,000), queries, pairs and terms: what each contributes to every figure.

    `model` is asked for shuffled texts and for sub-words; without one these figures are unknown. Texts without a
    direction are left out, but for their words.
    """
    whole, found = space, directed(space, least=LEAST)
    space = found.space
    first = neighbours.first_copies(space.corpus.vectors)
    refuse_constant(space.corpus, first)
    steps: tuple[tuple[str, Callable[[], Part]], ...] = (
        ("Anisotropy", lambda: parts_of.spectrum(space, first, options)),
        ("Uniformity", lambda: parts_of.uniformity(space, options)),
        ("Alignment", lambda: parts_of.alignment(space, options)),
        ("Intrinsic dimension", lambda: parts_of.dimension(space, first, options)),
        ("Hubness", lambda: parts_of.hubs(space, options)),
        ("Copies", lambda: parts_of.copies(space, first, options)),
        ("Directions", lambda: parts_of.without_direction(whole, options)),
        ("Word order", lambda: parts_of.order(model, space, options, progress)),
        ("Fragmentation", lambda: parts_of.fragments(model, whole, options)),
        ("Terms", lambda: parts_of.term_fragments(model, space, options)),
    )
    parts = []
    for label, step in steps:
        progress.start(label, 0)
        parts.append(step())
    return assemble(whole, found, parts, options)


def refuse_constant(corpus: Texts, first: Ints) -> None:
    if not first.any() and len(set(corpus.texts)) > 1:
        raise InvalidOutput(
            f"the model gives the same vector for all {len(corpus)} documents (rows {name_some(corpus.ids)})",
            corpus.ids,
        )


def assemble(space: Space, found: Directed, parts: Sequence[Part], options: GeometryOptions) -> Outcomes:
    """Contributions as columns, figures and what they point at as details. Examples are those of the whole space."""
    kept_rows = {"document": found.documents, "query": found.queries, "pair": found.pairs}
    sides = _sides(space, parts, options)
    size = sum(len(rows) for _, rows, _ in sides.values())
    columns: dict[str, Floats] = {}
    figures: dict[str, Figure] = {}
    for part in parts:
        figures |= {name: unknown(name, part.unit, why) for name, why in part.unknown.items()}
        for name, estimate in part.estimates.items():
            figures[name] = figure_of(
                name, part.unit, estimate, options.confidence, options.seed, part.levels.get(name)
            )
            start, rows, _ = sides[part.unit]
            if part.unit in kept_rows and not part.everyone:
                estimate = replace(estimate, rows=kept_rows[part.unit][estimate.rows])
            kept = estimate.only(rows)
            if len(kept.rows):
                columns[name] = np.full(size, np.nan)
                columns[name][start + np.searchsorted(rows, kept.rows)] = kept.contributions
    ordered = [figures[name] for name in FIGURES if name in figures]
    details: dict[str, Columns] = {key: table for part in parts for key, table in part.details.items()}
    return Outcomes(
        ids=tuple(f"{id}/{side}" for side, (_, _, ids) in sides.items() for id in ids),
        columns=columns,
        details={**figure_tables(ordered, [named for part in parts for named in part.named]), **details},
        counts={"documents": len(space.corpus), **{key: n for part in parts for key, n in part.counts.items()}},
        notes=tuple(figure.warning for figure in ordered if figure.warning),
    )


def _sides(space: Space, parts: Sequence[Part], options: GeometryOptions) -> dict[str, tuple[int, Ints, list[str]]]:
    """The examples of each unit: where they start among all, their rows, ascending, and their ids."""
    rows = example_rows(space.corpus, options)
    known = [("document", rows, [space.corpus.ids[i] for i in rows])]
    if space.queries:
        known.append(("query", np.arange(len(space.queries)), list(space.queries.ids)))
    if space.pairs is not None:
        some = pair_rows(len(space.pairs.ids), options, space.pairs.kept)
        known.append(("pair", some, [space.pairs.ids[i] for i in some]))
    if any(part.unit == "term" for part in parts):
        known.append(("term", np.arange(len(space.terms)), [f"{i}:{term}" for i, term in enumerate(space.terms)]))
    starts = np.cumsum([0, *(len(rows) for _, rows, _ in known)])
    return {side: (int(start), rows, ids) for (side, rows, ids), start in zip(known, starts, strict=False)}


LAYER = Layer(
    name="geometry",
    about="the shape of the space: how its vectors spread, how many dimensions they fill, who is everyone's neighbour",
    unit="text",
    metrics=METRICS,
    run=run,
    options=GeometryOptions,
)
