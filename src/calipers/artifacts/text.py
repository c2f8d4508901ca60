"""A build for people, on a terminal or in a log: what `calipers build` prints."""

from __future__ import annotations

from typing import TYPE_CHECKING

from calipers.artifacts.records import Manifest
from calipers.rendering import tables

if TYPE_CHECKING:
    from rich.console import Console


def show_build(console: Console, manifest: Manifest) -> None:
    """The facts of the build, then a line for each stage."""
    tables.show_facts(console, f"{manifest.model_id}  ·  {manifest.precision}", _facts(manifest))
    tables.show_records(console, manifest.rows())


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
