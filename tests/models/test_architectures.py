"""Architectures of transformers, tiny and with random weights, against a plain loop of one row at a time."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch")

from tests.support.architectures import judge

# Twelve for each ability run in `make test`; `make test-slow` runs all of docs/architectures.md.
TWELVE = {
    "fill-mask": "bert distilbert roberta electra deberta-v2 modernbert mpnet squeezebert reformer ibert longformer "
    "perceiver",
    "encode": "bert distilbert xlm-roberta mpnet modernbert nomic_bert albert t5 umt5 qwen3 gemma3_text eurobert",
    "score": "bert distilbert roberta xlm-roberta electra deberta-v2 modernbert mpnet albert gte qwen3 llama",
}
ROWS = [(ability, family) for ability, families in TWELVE.items() for family in families.split()]


@pytest.mark.parametrize(("ability", "family"), ROWS)
def test_a_family_equals_a_plain_loop(ability: str, family: str, tmp_path: Path) -> None:
    row = judge(family, ability, tmp_path)
    assert row.state == "equal", row
