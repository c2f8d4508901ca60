"""Thresholds of a verdict, from flags and from a YAML file."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from calipers.cli import options

if TYPE_CHECKING:
    from calipers.core import Thresholds

_NUMBER = r"\s*(\d+(?:\.\d+)?|\.\d+)\s*(%?)\s*"
_PAIR = re.compile(rf"{_NUMBER},{_NUMBER}", re.ASCII)
_KEYS = ("thresholds", "metrics", "confidence", "fail_on", "worst", "resamples")


def parse(text: str, where: str) -> Thresholds:
    """`5%,10%` is a share of the baseline, `2.0,4.0` are the metric's own points.

    >>> parse("5%,10%", "--threshold f1").passes
    0.05
    >>> parse("2.0,4.0", "--threshold f1").relative
    False
    """
    from calipers.core import Thresholds

    match = _PAIR.fullmatch(text)
    if not match or match[2] != match[4]:
        raise click.UsageError(f"{where}: expected two numbers such as 5%,10% or 2.0,4.0, found {text!r}")
    passes, at_risk = float(match[1]), float(match[3])
    if passes > at_risk:
        raise click.UsageError(f"{where}: the first number passes and must not be above the second, found {text!r}")
    return Thresholds(passes / 100, at_risk / 100) if match[2] else Thresholds(passes, at_risk, relative=False)


FLAG = options.option(
    "Verdict",
    "--threshold",
    "limits",
    multiple=True,
    metavar="METRIC=PASS,RISK",
    help="How much worse passes, and from where on it is a regression: 5%,10% of the baseline, or 2.0,4.0 points.",
)


def from_flags(pairs: Sequence[str]) -> dict[str, Thresholds]:
    named = options.split_pairs("--threshold", "METRIC=PASS,RISK", pairs)
    return {name: parse(numbers, f"--threshold {name}") for name, numbers in named}


def read_config(path: Path | None) -> dict[str, Any]:
    """The section `compare` of a YAML file, its thresholds parsed. Nothing in it is run."""
    if path is None:
        return {}
    import yaml

    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise click.UsageError(f"--config {path} cannot be read: {error.strerror}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise click.UsageError(f"--config {path} is not YAML: {' '.join(str(error).split())}") from error
    section = content.get("compare") if isinstance(content, Mapping) else None
    if not isinstance(section, Mapping):
        raise click.UsageError(f"--config {path}: expected a section `compare:` with {', '.join(_KEYS)}")
    if unknown := [str(key) for key in section if key not in _KEYS]:
        raise click.UsageError(f"--config {path}: `compare` has no {', '.join(unknown)}; expected {', '.join(_KEYS)}")
    thresholds = section.get("thresholds") or {}
    if not isinstance(thresholds, Mapping):
        raise click.UsageError(f"--config {path}: `thresholds` must hold lines METRIC: PASS,RISK")
    parsed = {str(name): parse(_as_text(value), f"--config {path}, {name}") for name, value in thresholds.items()}
    return {**section, "thresholds": parsed}


def _as_text(value: Any) -> str:
    """`[2.0, 4.0]` and `[5%, 10%]` mean the same as `2.0,4.0` and `5%,10%`."""
    return ",".join(str(part) for part in value) if isinstance(value, list) else str(value)
