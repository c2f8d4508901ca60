"""What `calipers attribute` prints, from an attribution made by hand."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest
from rich.console import Console

from calipers.attribution import text as attribution_text
from calipers.attribution.records import Attribution, FrontierLine
from tests.support.attributions import CULPRIT, LOST, WHOLE, stage
from tests.support.verdicts import NASTY


def shown(found: Attribution, *, terminal: bool = False, width: int = 100) -> str:
    file = io.StringIO()
    console = Console(file=file, width=width, force_terminal=terminal, highlight=False, color_system=None)
    attribution_text.show_attribution(console, found)
    return file.getvalue()


def test_the_text_has_the_table_the_sentence_the_culprits_and_the_bill() -> None:
    text = shown(WHOLE)
    assert "quantized  72.00" in text
    assert "-10.00 [-12.00, -8.00]" in text
    assert "The loss comes from quantisation." in text
    assert "Tensors first differ at t (layer 3 feed-forward, with 14 dB of signal to noise)." in text
    assert "layer 3 feed-forward: 90% of the loss (80% to 97%); with it in float cosine_spearman is 81.00" in text
    assert "Fixed by nodes kept in float: 2 of 139 (PASS)." in text
    assert "26.0 MB" in text
    assert "note: a note" in text


@pytest.mark.parametrize("width", [80, 100, 140])
def test_no_number_is_lost_to_the_width(width: int) -> None:
    long = "the same with SmoothQuant (0.5), with 16-bit activations of 6 nodes"
    frontier = (
        FrontierLine("the settings of the target x86-vnni", 81.64, "PASS", 22_900_000, 3.41, 2.5),
        FrontierLine(long, 81.87, "INCONCLUSIVE", 23_100_000, 13.42, 0.59),
    )
    broken = stage(
        *("quantized",), title="w8a8", verdict=LOST, step=LOST, label="INCONCLUSIVE", difference=1.8, speedup=0.61
    )
    assert WHOLE.fix
    whole = replace(
        WHOLE,
        stages=(stage("torch", p50=133.44), stage("exported"), stage("optimized"), broken),
        fix=replace(WHOLE.fix, frontier=frontier),
    )
    text = shown(whole, terminal=True, width=width)
    assert max(map(len, text.splitlines())) <= width
    numbers = ("133.44 ms", "-10.00", "1.8e+00", "0.61 ×", "90.0 MB", "81.64", "22.9 MB", "3.41 ms", "2.5 ×", "81.87")
    words = ("INCONCLUSIVE", "23.1 MB", "13.42 ms", "0.59 ×", *long.split())
    assert [part for part in (*numbers, *words) if part not in text] == []
    assert ("-12.00, -8.00" in text) or text.count("-12.00…-8.00") == 2


def test_a_stage_that_could_not_be_measured_shows_dashes() -> None:
    dead = stage("quantized", value=None, verdict=None, step=None, label="INVALID", difference=None, reason="NaN")
    text = shown(replace(WHOLE, stages=(stage("torch"), dead), culprits=(), divergence=(), fix=None))
    assert "INVALID" in text
    assert "not finite (too much)" in text


def test_names_from_a_graph_cannot_move_the_terminal() -> None:
    bad = replace(CULPRIT, nodes=(NASTY,), reasons=(NASTY,))
    text = shown(replace(WHOLE, culprits=(bad,), sentence=NASTY, notes=(NASTY,)), terminal=True)
    assert "\x1b[31m" not in text
    assert "\x00" not in text
