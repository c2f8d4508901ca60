"""Everything that a stored run may be of: tasks by their names, layers of a diagnosis as `diagnose/LAYER`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from calipers import tasks
from calipers.core import Dataset, DefaultData, RequestError, Task

DIAGNOSE = "diagnose/"


def find(name: str) -> Task:
    """A task, or a layer in the shape of one: enough to show, compare and report its runs."""
    if not name.startswith(DIAGNOSE):
        return tasks.find(name)
    from calipers import layers  # only who asks for one pays for them

    layer = layers.find(name.removeprefix(DIAGNOSE))
    return Task(
        name=name,
        aliases=(),
        about=layer.about,
        ability="encode",
        unit=layer.unit,
        columns=(),
        default_data=DefaultData("", None, ""),
        metrics=layer.metrics,
        check=_refuse,
        text_ids=_no_texts,
        run=_refuse,
        options=layer.options,
        data="beir",
        metrics_for=layer.metrics_for,
    )


def _refuse(*_: Any) -> NoReturn:
    raise RequestError("a layer is measured by calipers diagnose MODEL --layers NAME")


def _no_texts(_: Dataset) -> Mapping[str, Sequence[str]]:
    return {}
