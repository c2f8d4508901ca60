"""Robustness, of the retrieval layer: what a query finds when it is written another way."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from calipers.core import Encoder, Named, Progress
from calipers.diagnosis.layers import edits
from calipers.diagnosis.layers.retrieval_parts import NAMED, Found, Part, RankingOptions
from calipers.metrics import geometry, overlap
from calipers.runs.space import Space

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def edited(model: Encoder | None, space: Space, found: Found, options: RankingOptions, progress: Progress) -> Part:
    """The first stage asked by edited queries. One that has no vector (only unknown words) finds nothing: overlap 0."""
    assert space.queries is not None
    names = ["robustness", *(f"robustness/{kind}" for kind in edits.EDITS)]
    if model is None or model.info.backend == "vectors":
        why = "vectors that are already computed cannot say what an edited query would find"
        return Part(unknown=dict.fromkeys(names, why))
    rows = np.sort(geometry.sample(len(space.queries), options.texts, seed=options.seed))
    each: dict[str, list[str | None]] = {
        kind: edits.edit([space.queries.texts[int(i)] for i in rows], kind, seed=options.seed) for kind in edits.EDITS
    }
    columns = {
        f"robustness/{kind}": _edited(model, space, found, rows, texts, options, progress)
        for kind, texts in each.items()
    }
    known = {name: column for name, column in columns.items() if np.isfinite(column).any()}
    table = np.stack(list(columns.values()))
    has = np.isfinite(table)
    with np.errstate(invalid="ignore"):
        mean = np.where(has.any(axis=0), np.where(has, table, 0.0).sum(axis=0) / has.sum(axis=0), np.nan)
    unknown = {name: "no query can be edited so" for name in columns if name not in known}
    named = _changed(space, rows, each, columns)
    return Part(
        {"robustness": mean, **known},
        unknown=unknown,
        named=named,
        counts={"edited_queries": len(rows)},
        exact=len(rows) == len(space.queries),
    )


def _edited(
    model: Encoder,
    space: Space,
    found: Found,
    rows: Ints,
    texts: Sequence[str | None],
    options: RankingOptions,
    progress: Progress,
) -> Floats:
    assert space.queries is not None
    shared = np.full(len(space.queries), np.nan)
    some = [(int(row), text) for row, text in zip(rows, texts, strict=True) if text is not None]
    if some:
        vectors = model.encode([text for _, text in some], prompt=space.queries.prompt, progress=progress)
        which = np.array([row for row, _ in some])
        shared[which] = overlap.jaccard(found.first[which], found.directed.find(vectors, options.k))
    return shared


def _changed(
    space: Space, rows: Ints, each: dict[str, list[str | None]], columns: dict[str, Floats]
) -> tuple[Named, ...]:
    """The queries that lose most by an edit, at most five for each kind."""
    assert space.queries is not None
    named = []
    for kind, texts in each.items():
        figure = f"robustness/{kind}"
        shared = columns[figure][rows]
        for place in [int(i) for i in np.argsort(shared, kind="stable")[:5] if shared[i] < 0.5]:
            row = int(rows[place])
            note = f"asked as '{texts[place]}' the results overlap by {shared[place]:.2f}"
            named.append(Named(figure, space.queries.ids[row], space.queries.texts[row], float(shared[place]), note))
    return tuple(named)


def paraphrased(space: Space, searched: Found, options: RankingOptions) -> Part:
    """Per group the mean overlap of every two of its texts."""
    groups = space.paraphrases
    if groups is None:
        return Part()
    found = searched.directed.find(groups.texts.vectors, options.k)
    means = np.full(len(groups.ids), np.nan)
    named = []
    for number, id in enumerate(groups.ids):
        members = np.flatnonzero(groups.group == number)
        left, right = (np.array(side) for side in zip(*combinations(members.tolist(), 2), strict=True))
        shared = overlap.jaccard(found[left], found[right])
        means[number] = np.nan_to_num(shared).mean()
        worst = int(np.argmin(np.nan_to_num(shared)))
        one, other = (groups.texts.texts[int(side[worst])] for side in (left, right))
        note = f"asked as '{other}' the results overlap by {np.nan_to_num(shared)[worst]:.2f}"
        named.append(Named("robustness/paraphrases", id, one, float(means[number]), note))
    shown = [n for n in sorted(named, key=lambda n: n.value)[:NAMED] if n.value < 0.5]
    return Part({"robustness/paraphrases": means}, unit="group", named=tuple(shown))
