"""A build for people, on a terminal or in a log: what `calipers build` prints."""

from __future__ import annotations

from typing import TYPE_CHECKING

from calipers.artifacts.records import Manifest, Stage
from calipers.rendering import tables
from calipers.rendering.numbers import megabytes

if TYPE_CHECKING:
    from rich.console import Console


def show_build(console: Console, manifest: Manifest) -> None:
    """The facts of the build, then a line for each stage."""
    tables.show_facts(console, f"{manifest.model_id}  ·  {manifest.precision}", _facts(manifest))
    tables.show_records(console, [_line(stage) for stage in manifest.stages])


def _facts(manifest: Manifest) -> list[tuple[str, str]]:
    facts = [("Result", manifest.model)]
    if rows := manifest.calibration:
        facts.append(("Calibrated", f"{rows['method']} over {rows['rows']} texts of {rows['dataset']}"))
    rows = manifest.checked_on
    facts.append(
        ("Checked", f"at batch sizes 1, 2 and 7, padded and not, on {rows['rows']} texts of {rows['dataset']}")
    )
    made = [stage.name for stage in manifest.stages if not stage.reused]
    facts.append(("Made now", ", ".join(made) or "nothing: every stage was there"))
    return facts


def _line(stage: Stage) -> dict[str, str]:
    difference = stage.difference
    return {
        "stage": stage.name,
        "size": megabytes(stage.size),
        "p50": f"{stage.latency.p50:.2f} ms",
        "p95": f"{stage.latency.p95:.2f} ms",
        "largest difference": str(difference) if difference else "none: the first",
        "relative": _share(difference.relative) if difference else "",
        "note": "; ".join(stage.notes),
    }


def _share(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.1%}" if value >= 0.001 else f"{value:.1e}"
