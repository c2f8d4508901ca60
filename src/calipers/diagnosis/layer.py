"""A layer: what a diagnosis measures on a space, texts that are embedded once; and its figures, read from figures.yaml:
what each is called, means and warns of."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from importlib.resources import files
from types import MappingProxyType
from typing import Any, TypeVar

import numpy as np

from calipers.core import Encoder, Figure, FigureKind, Measurement, Metric, Outcomes, Progress, Thresholds
from calipers.core.options import Options, option
from calipers.metrics import bootstrap
from calipers.metrics.arrays import Floats, Ints
from calipers.metrics.means import mean_of
from calipers.runs.space import Space, Texts

RESAMPLES = 2000  # for the interval of a figure, unless a layer says otherwise
Entry = Mapping[str, Any]  # a layer, a family or a figure of the file, or words by name
_DIRECTIONS = {"higher": True, "lower": False}

T = TypeVar("T")
setting = partial(option, group="Diagnosis")  # an option of a layer


@dataclass(frozen=True)
class LayerOptions(Options):
    """The options that every layer has."""

    confidence: float = setting(0.95, "Of intervals and labels.", above=0, below=1)
    seed: int = option(42, "Of samples, shuffles, edits, resamples.", group="Data")


@dataclass(frozen=True, kw_only=True)
class Layer(Measurement[Any]):
    """`resamples` is the number behind the intervals of its figures. `skip_reason` says why a diagnosis that did not
    request the layer by name skips it, None where it does not."""

    run: Callable[[Encoder | None, Space, Any, Progress], Outcomes]
    skip_reason: Callable[[Space], str | None] | None = None
    resamples: int = RESAMPLES


def make_layer(
    name: str,
    run: Callable[[Encoder | None, Space, Any, Progress], Outcomes],
    options: type[LayerOptions],
    metrics: Iterable[Metric],
    **others: Any,
) -> Layer:
    """The layer with what the file says about it; `others` are more fields of Layer."""
    about, unit = (read_file()[name][key] for key in ("about", "unit"))
    return Layer(name=name, about=about, unit=unit, run=run, options=options, metrics=tuple(metrics), **others)


def run_steps(steps: Sequence[tuple[str, Callable[[], T]]], progress: Progress) -> list[T]:
    """What each step gives, in their order, with its label as progress."""
    results = []
    for label, step in steps:
        progress.start(label, 0)
        results.append(step())
    return results


def rows_by_id(corpus: Texts, ids: Iterable[str]) -> dict[str, int]:
    """The rows of these documents by id; an id that the corpus lacks is absent."""
    wanted = set(ids)
    return {id: row for row, id in enumerate(corpus.ids) if id in wanted}


def judged_pairs(space: Space) -> tuple[Ints, Ints, Floats]:
    """Rows of queries, rows of the documents judged for them that the corpus has, and the grades, [n] each; TREC's
    negative grades are 0."""
    rows = rows_by_id(space.corpus, (id for grades in space.qrels for id in grades))
    judged = [
        (q, rows[id], grade) for q, grades in enumerate(space.qrels) for id, grade in grades.items() if id in rows
    ]
    pairs = np.array([(q, document) for q, document, _ in judged], np.int64).reshape(-1, 2)
    return pairs[:, 0], pairs[:, 1], np.array([max(grade, 0.0) for *_, grade in judged], np.float64)


# --- figures ---------------------------------------------------------------------------------------------------------


@cache
def read_file() -> Mapping[str, Entry]:
    """figures.yaml: the layers by name, and the sentences of `headlines`."""
    import yaml

    text = files("calipers.diagnosis").joinpath("figures.yaml").read_text(encoding="utf-8")
    layers: Mapping[str, Entry] = yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    return layers


def kinds_of(layer: str, **words: object) -> Mapping[str, FigureKind]:
    """The figures of a layer by name, in the order of the file. `words` replace {word} in names and sentences.

    >>> kinds_of("retrieval", k=5, deep=100)["zero_recall"].about
    'share of queries without a relevant document among the first 5'
    """
    kinds = _expand(read_file()[layer], words, {})
    return MappingProxyType({kind.name: kind for kind in kinds})


def _expand(block: Entry, words: Entry, defaults: Entry) -> Iterator[FigureKind]:
    """A layer or a family: its figures once for each of its cases, which add words of their own."""
    defaults = {**defaults, **block.get("defaults", {})}
    for case in block.get("each", ({},)):
        for name, entry in block["figures"].items():
            if "figures" in entry:
                yield from _expand(entry, {**words, **case}, defaults)
            else:
                yield _kind(name, {**defaults, **entry}, {**words, **case})


def _kind(name: str, entry: Entry, words: Entry) -> FigureKind:
    fields = {key: _fill(value, words) for key, value in entry.items()}
    direction, thresholds = fields.pop("better", None), fields.pop("thresholds", None)
    if all(fields.get(key) is None for key in ("above", "below", "level")):
        fields.pop("advice", None)
    return FigureKind(
        name=_fill(name, words),
        about=fields.pop("about", ""),
        higher_is_better=_DIRECTIONS.get(direction),
        thresholds=Thresholds(**thresholds) if thresholds else Metric.thresholds,
        **{key: value for key, value in fields.items() if value is not None},
    )


def _fill(value: Any, words: Entry) -> Any:
    """A text with its words; one that is nothing but a word becomes the word's value, None where there is none."""
    if not isinstance(value, str):
        return value
    if value.startswith("{") and value.find("}") == len(value) - 1:
        return words.get(value[1:-1])
    return value.format_map(words)


def metric_of(kind: FigureKind) -> Metric:
    """The mean of the outcome column that has the figure's name."""
    return kind.metric(mean_of(kind.name))


def mean_figure(
    kind: FigureKind,
    values: Floats,
    means: Floats,
    *,
    confidence: float,
    unit: str | None = None,
    exact: bool = True,
    warning: str | None = None,
) -> Figure:
    """The mean of finite values, float64[n], with the percentiles of resampled means; one value has no interval."""
    several = len(values) > 1
    return kind.figure(
        float(values.mean()),
        len(values),
        unit=unit,
        interval=bootstrap.percentile_interval(means, confidence=confidence, units=len(values)) if several else None,
        standard_error=float(values.std(ddof=1) / np.sqrt(len(values))) if several else None,
        exact=exact,
        warning=warning,
    )
