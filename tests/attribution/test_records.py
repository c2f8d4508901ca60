"""Attributions as JSON and in notebooks."""

from __future__ import annotations

import json
from dataclasses import replace

from calipers.rendering import document
from tests.support.attributions import WHOLE


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
    assert page.startswith("<div><p><b>&lt;script&gt;</b></p><table><tr><th>stage</th><th>cosine_spearman</th>")
    assert "<td>-10.00 [-12.00, -8.00]</td>" in page
    assert page.count("<tr>") == 4
