"""`calipers schema`: documents of real runs are what it says. The fixture `calipers` holds all others against it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from calipers.core import RequestError
from calipers.rendering.schema import DOCUMENTS, document_schema
from tests.support.samples import Run
from tests.support.schemas import faults


@pytest.mark.parametrize("name", [*DOCUMENTS, "sweep"])
def test_the_command_prints_a_schema(calipers: Run, name: str) -> None:
    schema = json.loads(calipers("schema", name).stdout)
    Draft202012Validator.check_schema(schema)
    assert schema["required"]


def test_an_unknown_document_is_named() -> None:
    with pytest.raises(RequestError, match="no JSON document of 'x': expected one of eval, compare"):
        document_schema("x")


@pytest.fixture
def document(calipers: Run, vectors: Path, pairs: Path) -> dict[str, Any]:
    done = calipers("eval", vectors, "--dataset", pairs, "--json")
    return dict(json.loads(done.stdout))


def test_a_key_that_is_missing_or_new_or_of_another_type_is_a_fault(document: dict[str, Any]) -> None:
    assert faults(document, "eval") == []
    for changed, where in [
        ({key: value for key, value in document.items() if key != "metrics"}, "'metrics' is a required property"),
        (document | {"surprise": 1}, "'surprise' was unexpected"),
        (document | {"warnings": "none"}, "warnings: 'none' is not of type 'array'"),
        (document | {"schema": "calipers/eval/2"}, "'calipers/eval/1' was expected"),
        (document | {"intervals": {"cosine_spearman": [1.0]}}, "intervals/cosine_spearman"),
    ]:
        assert where in "\n".join(faults(changed, "eval"))


def test_a_comparison_with_a_dead_candidate_is_as_the_schema_says(calipers: Run, vectors: Path, pairs: Path) -> None:
    import numpy as np

    dead = vectors.with_name("dead.npy")
    np.save(dead, np.full_like(np.load(vectors), np.nan))
    dead.with_suffix(".txt").write_text(vectors.with_suffix(".txt").read_text(encoding="utf-8"), encoding="utf-8")
    done = calipers("compare", vectors, dead, vectors, "--dataset", pairs, "--json")
    content = json.loads(done.stdout)
    assert content["label"] == "INVALID"
    assert content["candidates"][0]["run"] is None
    assert faults(content, "compare") == []
