"""What the sides of a comparison are called: the artefact that each line is about, no two alike."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace

from calipers.comparison.records import Verdict
from calipers.core import Result, artifact_name

_MOST_FOLDERS = 4


def with_names(verdicts: Sequence[Verdict], names: Sequence[str] = ()) -> list[Verdict]:
    """The verdicts with a name for each side, the baseline's first: the requested one, else the run's own, else its
    artefact's."""
    baseline, *candidates = unique([verdicts[0].baseline, *(v.candidate or v.candidate_name for v in verdicts)], names)
    return [
        replace(verdict, baseline_name=baseline, candidate_name=name)
        for verdict, name in zip(verdicts, candidates, strict=True)
    ]


def unique(sides: Sequence[Result | str], names: Sequence[str] = ()) -> list[str]:
    """Artefacts of one name have more of the folders above them; where that is not enough, their runs or numbers.

    >>> unique(["./a", "./a", "./b"])
    ['./a', './a (2)', './b']
    """
    requested = [*names] or [side.name if isinstance(side, Result) else "" for side in sides]
    shown = [name or _name(side, 1) for name, side in zip(requested, sides, strict=True)]
    for folders in range(2, _MOST_FOLDERS + 1):
        shown = _where_alike(shown, lambda i, name, n=folders: requested[i] or _name(sides[i], n))  # type: ignore[misc]
    shown = _where_alike(shown, lambda i, name: f"{name} ({_run(sides[i])})" if _run(sides[i]) else name)
    seen: Counter[str] = Counter()
    for place, name in enumerate(shown):
        seen[name] += 1
        shown[place] = name if seen[name] == 1 else f"{name} ({seen[name]})"
    return shown


def _where_alike(names: Sequence[str], longer: Callable[[int, str], str]) -> list[str]:
    counts = Counter(names)
    return [longer(place, name) if counts[name] > 1 else name for place, name in enumerate(names)]


def _name(side: Result | str, folders: int) -> str:
    return side if isinstance(side, str) else artifact_name(side.model.model_id, side.model.path, folders)


def _run(side: Result | str) -> str:
    return f"run {side.run_id}" if isinstance(side, Result) and side.run_id else ""
