"""The one table of benches: kept by processor, written as a page, compared with the last run."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from bench.__main__ import BENCHES, check, fallen, write
from bench.common import machine, plot
from bench.common.entries import Entry, as_table
from bench.common.rounds import Turn, limit_of, ratio_of, share_of, take_turns
from bench.growth import Cost, exponent

ROOT = Path(__file__).parents[2]
SEARCH = Entry("exact search", "faiss 1", 2.0, ratio=1.5, share=0.9, memory=30.0, agreement="100 %")
START = Entry("calipers --help", "python -c 'pass'", 0.2, ratio=0.15)


def test_every_bench_of_the_table_exists() -> None:
    assert [name for name in BENCHES if not (ROOT / "bench" / f"{name}.py").exists()] == []


def test_shares_and_ratios_are_taken_within_rounds() -> None:
    """A machine that is three times slower in the second round changes neither."""
    mine = [Turn(1.0, 100.0, 0.0, None), Turn(3.0, 100 / 3, 0.0, None), Turn(1.0, 100.0, 0.0, None)]
    theirs = [Turn(2.0, 100.0, 0.0, None), Turn(6.0, 100 / 3, 0.0, None), Turn(2.0, 100.0, 0.0, None)]
    assert share_of(mine, 80.0) == pytest.approx(0.8)
    assert ratio_of(theirs, mine) == 2.0
    assert limit_of(mine) == "sgemm at 33–100 GFLOP/s"


def test_contestants_take_turns_with_the_rate_around_each() -> None:
    order: list[str] = []
    turns = take_turns({"a": lambda: order.append("a"), "b": lambda: order.append("b")}, 2)
    assert order == ["a", "b", "a", "b"]
    assert all(turn.rate > 0 for done in turns.values() for turn in done)


def test_what_fell_by_more_than_a_tenth_is_named() -> None:
    slower = replace(SEARCH, ratio=1.4, share=0.8)
    assert fallen([slower, START], [SEARCH, START]) == ["exact search: share 0.90 before, 0.80 now (-11%)"]
    assert fallen([replace(START, ratio=0.13)], [SEARCH, START]) == [
        "calipers --help: ratio 0.15 before, 0.13 now (-13%)"
    ]
    assert fallen([replace(SEARCH, work="another")], [SEARCH]) == []


def test_a_run_is_kept_by_processor_and_shown_on_the_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "benchmarks.md"
    assert check([SEARCH], tmp_path, "tiny") == 0  # nothing to compare with
    write([SEARCH, START], "tiny", tmp_path, page)
    kept = json.loads(next((tmp_path / machine.kind()).glob("*.json")).read_text(encoding="utf-8"))
    assert kept["lines"][0] == asdict(SEARCH)
    assert kept["machine"]["kernels"]
    text = page.read_text(encoding="utf-8")
    assert "| exact search    | faiss 1          | 2       | 1.50 × | 90% of sgemm" in text
    assert kept["date"] in text
    assert check([SEARCH, START], tmp_path, "tiny") == 0
    assert check([replace(SEARCH, share=0.5)], tmp_path, "tiny") == 1
    assert "exact search: share 0.90 before, 0.50 now (-44%)" in capsys.readouterr().out


def test_the_driver_runs_a_bench_and_checks_it(tmp_path: Path) -> None:
    command = [sys.executable, "-W", "ignore", "-m", "bench", "--size", "tiny", "--only", "trust"]
    command += ["--keep", str(tmp_path), "--page", str(tmp_path / "page.md")]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    assert "trust score, a query" in (tmp_path / "page.md").read_text(encoding="utf-8")


def test_the_exponent_is_of_what_comes_on_top_of_the_start() -> None:
    costs = [Cost(1_000, 1.1, 90.0), Cost(10_000, 2.0, 100.0), Cost(100_000, 11.0, 300.0)]
    assert exponent(costs, 1.0) == pytest.approx(1.0)


def test_the_plot_names_every_curve() -> None:
    drawn = plot.growth({"pairs & more": [(1e3, 0.5, 90.0), (1e4, 5.0, 200.0)]})
    assert "pairs &amp; more" in drawn
    assert drawn.count("<polyline") == 2


def test_a_table_has_its_columns_in_line() -> None:
    lines = as_table([SEARCH, START]).splitlines()
    assert len({len(line) for line in lines}) == 1
