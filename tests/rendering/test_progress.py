"""What long work says of itself where there is no terminal."""

from __future__ import annotations

import io
import time

import click
import pytest
from rich.console import Console

from calipers.cli import options
from calipers.core import SILENT, Within
from calipers.rendering.progress import LogLines, bar


def test_a_log_gets_a_line_now_and_then_with_the_step_and_its_part() -> None:
    out = io.StringIO()
    with LogLines(Console(file=out), quiet=0.01) as progress:
        while not out.getvalue().endswith("\n"):
            time.sleep(0.01)
        assert out.getvalue().startswith("calipers: 0 s: reading\n")
        step = Within(progress, "Trying SmoothQuant (try 3 of at most 24)")
        step.start("Encoding", 2758)
        step.advance(512)
        while "Encoding" not in out.getvalue():
            time.sleep(0.01)
    assert "calipers: 0 s: Trying SmoothQuant (try 3 of at most 24): Encoding (512 of 2,758)" in out.getvalue()


@pytest.mark.parametrize("as_json", [True, False])
def test_beside_a_json_document_nothing_is_written(as_json: bool) -> None:
    command = click.Command("x", params=[click.Option(["--json", "as_json"], is_flag=True)])
    with command.make_context("x", ["--json"] if as_json else []), options.progress_bar() as progress:
        assert (progress is SILENT) == as_json
    with bar(Console(file=io.StringIO())) as progress:
        assert progress is SILENT
