"""Contrast sets made from the user's own corpus: does the model prefer the title that a query asks for to one that
differs in its colour, brand, amount, negation or role alone? (`shop.contrasts` makes them.)

The accuracy of a set is the share of its queries that are closer to the right version; where both are equally close,
one half. Chance is 0.5. Items are resampled for the interval.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from calipers.core import Encoder, Figure, Named, Outcomes, Progress, RequestError, figure_tables, on_side
from calipers.diagnosis.layer import RESAMPLES, LayerOptions, kinds_of, make_layer, mean_figure, metric_of, setting
from calipers.metrics import bootstrap, geometry
from calipers.metrics.arrays import Array, Floats
from calipers.metrics.means import mean_statistic
from calipers.runs.space import Space
from calipers.shop.contrasts import SETS, Contrast, make_contrasts

FIGURES = kinds_of("contrasts")
_SAME = 1e-6  # scores as near as this are equal: float32 rounds by less
_LEAST = 10  # items: an accuracy of fewer is no ground for a warning
_NAMED = 10


@dataclass(frozen=True)
class ContrastOptions(LayerOptions):
    contrasts: int = setting(50, "Items of each contrast set, at most.", metavar="N", at_least=1)


def run(model: Encoder | None, space: Space, options: ContrastOptions, progress: Progress) -> Outcomes:
    """Outcomes per item: 1 where the right version is closer, 0 where the wrong one is, 0.5 where neither."""
    if model is None or model.info.backend == "vectors":
        raise RequestError("the layer contrasts encodes new texts, and vectors that are already computed hold none")
    if space.products is None:
        raise RequestError("the layer contrasts reads titles as products: Space.products is missing")
    titles = [space.corpus.title(row) for row in range(len(space.corpus))]
    progress.start("Contrast sets", 0)
    items = make_contrasts(space.products.extractor, titles, most=options.contrasts, seed=options.seed)
    if not items:
        raise RequestError(
            "the layer contrasts needs titles that state a colour, a brand, a size, or what a thing is for or has"
        )
    prefers = _preferences(model, space, items, progress)
    columns = {
        f"contrast/{kind}": np.where([item.kind == kind for item in items], prefers, np.nan)
        for kind in SETS
        if any(item.kind == kind for item in items)
    }
    figures = [_figure(kind, columns.get(f"contrast/{kind}"), options) for kind in SETS]
    return Outcomes(
        ids=tuple(f"{number}/{item.kind}" for number, item in enumerate(items)),
        columns=columns,
        texts={"query": tuple(item.query for item in items)},
        details=figure_tables(figures, _named(space, items, prefers)),
        counts={f"items_{kind}": count for kind, count in Counter(item.kind for item in items).items()},
        notes=tuple(figure.warning for figure in figures if figure.warning),
    )


def _preferences(model: Encoder, space: Space, items: Sequence[Contrast], progress: Progress) -> Floats:
    """float64[n]; NaN where a text has no direction."""
    prompt = space.queries.prompt if space.queries else None
    query_vectors = on_side(model, "query").encode([item.query for item in items], prompt=prompt, progress=progress)
    versions = [text for item in items for text in (item.right, item.wrong)]
    shown = on_side(model, "document").encode(versions, prompt=space.corpus.prompt, progress=progress)
    right, wrong = (_scores(query_vectors, shown[side::2], space.similarity) for side in (0, 1))
    apart = right - wrong
    return np.where(np.isnan(apart), np.nan, np.where(np.abs(apart) <= _SAME, 0.5, (apart > 0).astype(np.float64)))


def _scores(left: Array, right: Array, similarity: str) -> Floats:
    """Of each row with its counterpart, higher is closer; NaN where a side has no direction."""
    a, b = np.asarray(left, np.float64), np.asarray(right, np.float64)
    lost = (geometry.norms(left) == 0) | (geometry.norms(right) == 0)
    if similarity == "cosine":
        a, b = (np.asarray(geometry.unit_or_zero(side), np.float64) for side in (left, right))
    if similarity in ("cosine", "dot"):
        scores = np.einsum("ij,ij->i", a, b)
    else:
        scores = -np.linalg.norm(a - b, ord=1 if similarity == "manhattan" else 2, axis=1)
    return np.where(lost, np.nan, scores)


def _figure(kind: str, values: Floats | None, options: ContrastOptions) -> Figure:
    kind_of_figure = FIGURES[f"contrast/{kind}"]
    finite = values[np.isfinite(values)] if values is not None else np.empty(0)
    if values is None or not len(finite):
        return kind_of_figure.unknown(_MISSING[kind])
    (means,) = bootstrap.distribution([mean_statistic(values)], len(values), resamples=RESAMPLES, seed=options.seed)
    figure = mean_figure(kind_of_figure, finite, means, confidence=options.confidence)
    return figure if len(finite) >= _LEAST else replace(figure, warning=None)


_ONE = "no title states one {} that another of the corpus could replace"
_RESPELLED = "no {} of a title is written in another way elsewhere in the corpus"
_WORDS = {"colour": "colour", "brand": "brand", "number": "amount"}
_MISSING = {
    **{part: _ONE.format(word) for part, word in _WORDS.items()},
    **{f"{part}_respelled": _RESPELLED.format(word) for part, word in _WORDS.items()},
    "negation": "no title states a colour or has the form 'A with B'",
    "role": "no title has the form 'A for B' (B用A)",
}


def _named(space: Space, items: Sequence[Contrast], prefers: Floats) -> list[Named]:
    """Items that the model gets wrong, those that it cannot tell apart among them."""
    named, seen = [], Counter[str]()
    for item, value in zip(items, prefers.tolist(), strict=True):
        if value < 1 and seen[item.kind] < _NAMED:
            seen[item.kind] += 1
            how = "no closer than" if value == 0.5 else "farther than"
            note = f"'{item.right}' is {how} '{item.wrong}'"
            named.append(Named(f"contrast/{item.kind}", space.corpus.ids[item.title], item.query, value, note))
    return named


LAYER = make_layer("contrasts", run, ContrastOptions, map(metric_of, FIGURES.values()))
