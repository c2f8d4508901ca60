"""Scores of the mteb package as outcomes: one example is the score of one task, split and subset.

mteb measures, this only keeps: `calipers.interop.mteb` makes such runs, by running tasks or by reading result files.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

import numpy as np

from calipers.core.errors import RequestError
from calipers.core.outcomes import Columns, Counts, Floats, Outcomes
from calipers.core.results import DefaultData, Metric, Statistic, Task
from calipers.metrics.means import ratio_statistic

# Fewer scores give no interval and no confidence: percentiles of so few draws are far too narrow.
FEWEST = 8
ELSEWHERE = "scores of mteb come from calipers diagnose --mteb NAME, or from result files by calipers runs import"


def make_outcomes(
    ids: Sequence[str], tasks: Sequence[str], types: Sequence[str], main_scores: Sequence[float]
) -> Outcomes:
    """Scores × 100, each with the number of its task, and of its type where every type is known ("" is not)."""
    columns = {"main_score": 100 * np.asarray(main_scores, np.float64), "task_number": _number(tasks)}
    if not all(types):
        return Outcomes(tuple(ids), columns)
    return Outcomes(tuple(ids), {**columns, "type_number": _number(types)}, {"type": tuple(types)})


def _number(names: Sequence[str]) -> Any:
    places = {name: i for i, name in enumerate(dict.fromkeys(names))}
    return np.array([places[name] for name in names], np.int64)


def mean_statistic(values: Floats, shares: Floats) -> Statistic:
    """The mean of the values in these shares. With fewer than FEWEST of them it is undefined in a resample, that is
    where one is drawn twice and another not at all; leaving one out is no resample.

    >>> counts = np.array([[1, 2, 1], [1, 0, 0]])
    >>> mean_statistic(np.array([1.0, 3.0]), np.ones(2))(counts)
    array([ 2., nan,  1.])
    """
    mean = ratio_statistic(shares * values, shares)
    if len(values) >= FEWEST:
        return mean

    def few(counts: Counts) -> Floats:
        drawn_again = (counts > 1).any(axis=0) & (counts == 0).any(axis=0)
        return np.where(drawn_again, np.nan, mean(counts))

    return few


def _mean_over_tasks(columns: Columns) -> Statistic:
    """Every task counts the same, whatever its number of subsets: mteb's "Mean (Task)"."""
    share = 1 / np.bincount(columns["task_number"])[columns["task_number"]]
    return mean_statistic(columns["main_score"], share)


def _mean_over_types(columns: Columns) -> Statistic:
    """Every type of task counts the same: mteb's "Mean (TaskType)"."""
    task, type_ = columns["task_number"], columns["type_number"]
    scores_of_task = np.bincount(task)[task]
    tasks_of_type = np.bincount(type_, weights=1 / scores_of_task)[type_]
    return mean_statistic(columns["main_score"], 1 / (scores_of_task * tasks_of_type))


def _refuse(*_: Any) -> NoReturn:
    raise RequestError(ELSEWHERE)


TASK = Task(
    name="mteb",
    about="general language ability: the main scores of tasks of the mteb package",
    ability="encode",
    unit="score",
    columns=(),
    default_data=DefaultData("mteb", None, "test"),
    metrics=(
        Metric("mean_main_score", "mean main score × 100, every task alike", _mean_over_tasks),
        Metric("mean_by_type", "the same, every type of task alike", _mean_over_types, needs=("type_number",)),
    ),
    check=_refuse,
    run=_refuse,
)
