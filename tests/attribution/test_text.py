"""What `calipers attribute` prints, and its JSON, from an attribution made by hand."""

from __future__ import annotations

import io
import json
from dataclasses import replace

from rich.console import Console

from calipers.attribution import text as attribution_text
from calipers.attribution.records import Attribution, BillLine, Culprit, Divergence, Fix, StageFigure
from calipers.rendering import document
from tests.support.verdicts import NASTY, comparison

LOST = comparison(label="REGRESSION", baseline=82.0, candidate=72.0, delta=-10.0, interval=(-12.0, -8.0))
SAME = comparison(baseline=82.0, candidate=82.0, delta=0.0, interval=(0.0, 0.0))


def stage(name: str, **changes: object) -> StageFigure:
    first = name == "torch"
    known = StageFigure(
        stage=name,
        path=f"/x/{name}",
        metrics={"cosine_spearman": 82.0},
        value=82.0,
        verdict=None if first else SAME,
        step=None if first else SAME,
        label=None if first else "PASS",
        size=90_000_000,
        p50=12.5,
        p95=20.0,
        difference=None if first else 1e-6,
        bound=None if first else 1e-3,
    )
    return replace(known, **changes)  # type: ignore[arg-type]


CULPRIT = Culprit(
    "layer 3 feed-forward", 3, "feed-forward", ("node_a", "node_b"), ("t",), 0.4, 81.0, 0.9, (0.8, 0.97), ("outliers",)
)
FIX = Fix(
    how="nodes kept in float: 2 of 139",
    passed=True,
    label="PASS",
    nodes=("node_a", "node_b"),
    bill=(BillLine("float", 82.0, "PASS", 90_000_000, 12.0), BillLine("fixed", 81.5, "PASS", 26_000_000, 8.0)),
    graph="/tmp/fixed/model.onnx",
    recipe={"precision": "w8a8", "exclude": ["node_a", "node_b"]},
    recipe_file="/tmp/fixed/recipe.yaml",
    arguments="quantize_static(\n    a=1,\n)",
)
WHOLE = Attribution(
    model_id="m",
    task="sentence-similarity",
    precision="w8a8",
    metric="cosine_spearman",
    higher_is_better=True,
    digits=2,
    unit="pair",
    examples=100,
    dataset="pairs.csv",
    stages=(
        stage("torch"),
        stage("exported"),
        stage("quantized", verdict=LOST, step=LOST, label="REGRESSION", value=72.0, difference=1.8, bound=None),
    ),
    guilty="quantized",
    sentence="The loss comes from quantisation.",
    culprits=(CULPRIT,),
    divergence=(Divergence("t", "node_a", "layer 3 feed-forward", 14.2),),
    fix=FIX,
    evaluations=5,
    budget=24,
    notes=("a note",),
)


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


def test_the_document_keeps_its_keys_and_is_json() -> None:
    found = json.loads(document.to_json(WHOLE.to_dict()))
    assert [entry["stage"] for entry in found["stages"]] == ["torch", "exported", "quantized"]
    assert {"stage", "metrics", "verdict", "size", "latency"} <= set(found["stages"][0])
    assert found["stages"][0]["verdict"]["label"] is None
    assert found["stages"][2]["verdict"]["delta"] == -10.0
    assert found["culprits"][0]["share"] == 0.9
    assert found["recipe"] == {"precision": "w8a8", "exclude": ["node_a", "node_b"]}
    nothing = json.loads(document.to_json(replace(WHOLE, fix=None).to_dict()))
    assert nothing["recipe"] is None


def test_a_notebook_shows_the_sentence_and_the_table_and_nothing_that_commands_it() -> None:
    assert repr(WHOLE) == "Attribution(m, w8a8: The loss comes from quantisation.)"
    page = replace(WHOLE, sentence="<script>")._repr_html_()
    assert page.startswith("<p>&lt;script&gt;</p><table><thead><tr><th>stage</th><th>cosine_spearman</th>")
    assert "<td>-10.00 [-12.00, -8.00]</td>" in page
    assert page.count("<tr>") == 4
