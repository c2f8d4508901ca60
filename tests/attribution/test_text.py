"""What `calipers attribute` prints, from an attribution made by hand."""

from __future__ import annotations

import io
from dataclasses import replace

from rich.console import Console

from calipers.attribution import text as attribution_text
from calipers.attribution.records import Attribution
from tests.support.attributions import CULPRIT, WHOLE, stage
from tests.support.verdicts import NASTY


def shown(found: Attribution, *, terminal: bool = False) -> str:
    file = io.StringIO()
    console = Console(file=file, width=100, force_terminal=terminal, highlight=False, color_system=None)
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
