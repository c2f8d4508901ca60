"""Slices of a run: the same metrics by group of examples, from the outcomes alone.

A group is a column of labels by example id: a column of the data, or one that follows from the text of an example. It
is a view: stored runs can be grouped by any column of their data, and no key depends on it.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from calipers.core import CLUSTER, DataError, DataSource, Measurement, Metric, Outcomes, RequestError, Result, Task
from calipers.core.errors import quote
from calipers.core.slices import Slice, Slices
from calipers.metrics.arrays import Floats, Ints
from calipers.rendering.numbers import count
from calipers.runs.record import Resampling, measure_metrics

if TYPE_CHECKING:
    from calipers.data.labels import LabelColumns

MOST = 20  # groups of a column that are measured
_KANA = frozenset(("HIRAGANA", "KATAKANA", "KATAKANA-HIRAGANA", "HALFWIDTH"))  # first words of Unicode names
_BESIDE = frozenset(("LATIN", "FULLWIDTH", "MODIFIER", "FEMININE", "MASCULINE", "MICRO"))  # that tell no language
# Groups that are known by name, and the columns of the data that state them.
BUILT_IN: Mapping[str, tuple[str, ...]] = {
    "language": ("language", "lang", "locale", "query_locale", "query_language"),
    "length": (),
    "head-tail": ("count", "frequency"),
    "category": ("category", "product_category", "product_type", "type", "topic", "domain"),
}


@dataclass(frozen=True, eq=False)
class Grouping:
    """Which rows of the outcomes are of which group, in the order in which they are shown; None: without a label."""

    by: str
    about: str
    groups: tuple[tuple[str | None, Ints], ...]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class Labels:
    """What examples are grouped by. `read` gives the label of each example, and the order of labels that have one."""

    by: str
    about: str
    read: Callable[[Outcomes], tuple[Sequence[str | None], Sequence[str]]]
    among: frozenset[str] | None = None  # the ids of the examples that are grouped; None: all

    def group(self, outcomes: Outcomes, unit: str) -> Grouping:
        """The groups of these outcomes, the largest first; beyond the `MOST` largest they are left out, with a note."""
        given, order = self.read(outcomes)
        rows: dict[str | None, list[int]] = {}
        for row, (id, label) in enumerate(zip(outcomes.ids, given, strict=True)):
            if self.among is None or id in self.among:
                rows.setdefault(label, []).append(row)
        named = [label for label in rows if label is not None]
        if not named:
            raise RequestError(
                f"no {unit} has a value in the {self.about}: are these still the data that were measured?"
            )
        named.sort(key=lambda label: (-len(rows[label]), label))
        kept = named[:MOST]
        if order:
            kept.sort(key=list(order).index)
        notes = []
        if left := named[MOST:]:
            examples = count(unit, sum(len(rows[label]) for label in left))
            notes.append(
                f"{self.by} has {len(named):,} groups: the {MOST} largest are shown, and the others ({examples}) are "
                "left out"
            )
        shown: list[str | None] = [*kept, *([None] if None in rows else [])]
        return Grouping(self.by, self.about, tuple((g, np.array(rows[g], np.int64)) for g in shown), tuple(notes))


# --- what a name means -----------------------------------------------------------------------------------------------


def columns_of(task: Measurement[Any], source: DataSource, ids: Sequence[str]) -> LabelColumns:
    """The columns beside the examples of a run, read again from where its data lie."""
    from calipers.data import labels

    if not isinstance(task, Task) or task.data == "beir":
        return labels.of_beir(source)
    if task.data == "rows":
        return labels.of_rows(source)
    return labels.LabelColumns(source.path, lambda: ((id, {"set": id.partition("/")[0]}) for id in ids))


def find(names: Sequence[str], columns: Callable[[], LabelColumns]) -> tuple[Labels, ...]:
    """What each name means: a column of that name, else the built-in group. What means nothing is refused."""
    return tuple(_find(name, columns) for name in dict.fromkeys(names))


def _find(name: str, columns: Callable[[], LabelColumns]) -> Labels:
    usual, by_text = (name, *BUILT_IN.get(name, ())), _BY_TEXT.get(name)
    try:
        own = columns().names()
    except DataError:
        if by_text is None:  # a run keeps its texts, but not the other columns of its data
            raise
        own = ()
    if column := next((each for each in usual if each in own), None):
        values = columns().read(column)
        return Labels(name, f"column {column!r}", lambda outcomes: _by_value(name, values, outcomes))
    if by_text:
        return by_text
    behind = columns().document_names() if name != "head-tail" else ()
    if column := next((each for each in usual if each in behind), None):
        of_query = columns().read_documents(column)
        about = f"column {column!r} of the most relevant documents"
        return Labels(name, about, lambda outcomes: _by_value(name, of_query, outcomes))
    raise _unknown(name, columns().where, own, behind)


def _unknown(name: str, where: str, own: Sequence[str], behind: Sequence[str]) -> RequestError:
    listed = f"it has {', '.join(own) or 'none'}" + (f"; its documents have {', '.join(behind)}" if behind else "")
    if name in BUILT_IN:
        wanted = " or ".join(BUILT_IN[name])
        return RequestError(f"`group_by` {name} needs a column {wanted} in {where}: {listed}")
    built_in = ", ".join(BUILT_IN)
    return RequestError(
        f"`group_by`: there is no column {quote(name)} in {where}: {listed}. Built-in groups: {built_in}"
    )


# --- labels ----------------------------------------------------------------------------------------------------------

Given = tuple[Sequence[str | None], Sequence[str]]  # the label of each example, and the order of the labels if any


def _by_value(name: str, values: Mapping[str, Any], outcomes: Outcomes) -> Given:
    """By the value itself; numbers of which there are too many different ones, and how often a query is made, by
    thirds."""
    from calipers.data.labels import to_label

    mine = [values.get(id) for id in outcomes.ids]
    numbers = np.array([_number(value) for value in mine])
    given = [to_label(value) for value in mine]
    is_number = not any(label and np.isnan(number) for label, number in zip(given, numbers, strict=True))
    if name == "head-tail":
        return _thirds(numbers, names=("tail", "middle", "head"))
    return _thirds(numbers) if is_number and len({*given}) > MOST else (given, ())


def _number(value: Any) -> float:
    try:
        return float(value) if isinstance(value, (int, float, str)) and not isinstance(value, bool) else np.nan
    except ValueError:
        return np.nan


def _thirds(values: Floats, *, names: tuple[str, ...] = (), unit: str = "") -> Given:
    """Thirds of the values, which are named by their ends; NaN has no label.

    >>> _thirds(np.array([1.0, 2, 3, 4, 5, np.nan]))[0]
    ['up to 2', 'up to 2', 'above 2 to 4', 'above 2 to 4', 'above 4', None]
    """
    finite = values[np.isfinite(values)]
    if not len(finite):
        return [None] * len(values), ()
    ends = [float(end) for end in np.quantile(finite, (1 / 3, 2 / 3), method="inverted_cdf")]
    low, high = (f"{end:g}" for end in ends)
    bounds = names or (f"up to {low}{unit}", f"above {low} to {high}{unit}", f"above {high}{unit}")
    third = np.searchsorted(ends, values)  # a NaN is behind all
    return [bounds[t] if np.isfinite(v) else None for t, v in zip(third, values, strict=True)], bounds


def _texts(outcomes: Outcomes) -> Sequence[str]:
    """The first text of each example: the query of a search."""
    texts = next((values for name, values in outcomes.texts.items() if name != CLUSTER), None)
    if texts is None:
        raise RequestError("`group_by` language and length need the texts of the examples, which this run has not")
    return texts


def _by_length(outcomes: Outcomes) -> Given:
    return _thirds(np.array([float(len(text)) for text in _texts(outcomes)]), unit=" characters")


def _by_language(outcomes: Outcomes) -> Given:
    scripts = [_script(text) for text in _texts(outcomes)]
    han = "Japanese" if "Japanese" in scripts else "Chinese"  # what has no kana is read by its neighbours
    return [han if script == "Han" else script for script in scripts], ()


def _script(text: str) -> str | None:
    """The language where the script tells it, else the script; a few letters of Latin beside another script do not
    count. None without a letter.

    >>> _script("LED ライト"), _script("水筒"), _script("red mug"), _script("красная"), _script("42")
    ('Japanese', 'Han', 'Latin letters', 'Cyrillic letters', None)
    """
    scripts = {unicodedata.name(letter, "").split(" ")[0] for letter in text if letter.isalpha()} - {""}
    if not scripts:
        return None
    if scripts & _KANA:
        return "Japanese"
    first = min(scripts - _BESIDE, default="LATIN")
    return {"CJK": "Han", "HANGUL": "Korean"}.get(first, f"{first.capitalize()} letters")


_BY_TEXT = {
    "language": Labels("language", "script of the text", _by_language),
    "length": Labels("length", "characters of the text", _by_length),
}


# --- metrics by group ------------------------------------------------------------------------------------------------


def measure_slices(
    metrics: Sequence[Metric], unit: str, outcomes: Outcomes, groups: Sequence[Labels], resampling: Resampling
) -> tuple[Slices, ...]:
    """Every metric in each group, by the bootstrap of the whole: a group of all examples has the same interval."""
    made = []
    for grouping in (labels.group(outcomes, unit) for labels in groups):
        slices = tuple(_slice(name, metrics, unit, outcomes.take(rows), resampling) for name, rows in grouping.groups)
        made.append(Slices(grouping.by, grouping.about, slices, metrics[0].name, grouping.notes))
    return tuple(made)


def _slice(name: str | None, metrics: Sequence[Metric], unit: str, outcomes: Outcomes, resampling: Resampling) -> Slice:
    values, primary = measure_metrics(metrics, unit, outcomes, resampling), metrics[0].name
    reason = None
    if primary not in values.metrics:
        reason = f"{primary} is not defined on {count(unit, len(outcomes))}"
    elif values.intervals[primary] is None:
        reason = f"no interval of {count(unit, len(outcomes))}"
    return Slice(name, len(outcomes), values.metrics, values.intervals, reason)


def slice_result(result: Result, task: Measurement[Any], groups: Sequence[Labels], resampling: Resampling) -> Result:
    """The result with the metrics that it has, by group."""
    if not groups:
        return result
    metrics = [m for m in task.measures(task.options(**result.options)) if m.name in result.metrics]
    return replace(result, slices=measure_slices(metrics, task.unit, result.outcomes, groups, resampling))
