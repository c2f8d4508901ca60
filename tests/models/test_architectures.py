"""Architectures of transformers, tiny and with random weights, against a plain loop of one row at a time."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch")

import transformers

from tests.support.architectures import PAGE, cells, judge, states_on_page

# Twelve for each ability run in `make test`; `make test-slow` runs all of docs/architectures.md.
TWELVE = {
    "fill-mask": "bert distilbert roberta electra deberta-v2 modernbert mpnet squeezebert reformer ibert longformer "
    "perceiver",
    "encode": "bert distilbert xlm-roberta mpnet modernbert nomic_bert albert t5 umt5 qwen3 gemma3_text eurobert",
    "score": "bert distilbert roberta xlm-roberta electra deberta-v2 modernbert mpnet albert gte qwen3 llama",
}
ROWS = [(ability, family) for ability, families in TWELVE.items() for family in families.split()]
ROWS += [("score", "canine")]  # its tokens are put together in groups


@pytest.mark.parametrize(("ability", "family"), ROWS)
def test_a_family_equals_a_plain_loop(ability: str, family: str, tmp_path: Path) -> None:
    row = judge(family, ability, tmp_path)
    assert row.state == "equal", row


def test_an_exported_graph_equals_a_plain_loop(tmp_path: Path) -> None:
    row = judge("distilbert", "encode", tmp_path, backend="onnx")
    assert row.state == "equal", row


@pytest.fixture(scope="module")
def page() -> dict[tuple[str, str, str], str]:
    """docs/architectures.md, where it is of the transformers that is installed."""
    if f"transformers {transformers.__version__} " not in PAGE.read_text(encoding="utf-8"):
        pytest.skip(f"docs/architectures.md is not of transformers {transformers.__version__}, which is installed")
    return states_on_page()


def test_the_page_has_every_family(page: dict[tuple[str, str, str], str]) -> None:
    assert {*page} == {*cells()}
    assert all(page["torch", ability, family] == "equal" for ability, family in ROWS)
    assert {*page.values()} <= {"equal", "refused", "not built"}


@pytest.mark.slow
@pytest.mark.parametrize(("backend", "ability", "family"), list(cells()))
def test_the_page_is_true(
    backend: str, ability: str, family: str, page: dict[tuple[str, str, str], str], tmp_path: Path
) -> None:
    row = judge(family, ability, tmp_path, backend=backend)
    assert row.state == page[backend, ability, family], row
