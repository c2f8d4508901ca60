"""Settings files that say something impossible: a fault of the model, in one sentence with the file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from calipers.core import ModelError, RequestError
from calipers.models import ModelOptions
from calipers.models.layout import read_layout, settle

GENERAL, SENTENCE, MODULES = "config_sentence_transformers.json", "sentence_bert_config.json", "modules.json"


def module(path: Any) -> list[dict[str, Any]]:
    return [{"idx": 0, "name": "0", "path": path, "type": "sentence_transformers.models.Transformer"}]


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        (GENERAL, {"prompts": ["query: "]}, "'prompts' is .*, expected names with their texts"),
        (GENERAL, {"prompts": {"query": 3}}, "'query' is 3, expected a text"),
        (GENERAL, {"default_prompt_name": ["query"]}, "'default_prompt_name' is .*, expected a text"),
        (GENERAL, {"similarity_fn_name": 1}, "'similarity_fn_name' is 1, expected a text"),
        (SENTENCE, {"max_seq_length": "256"}, "'max_seq_length' is '256', expected a whole number"),
        (SENTENCE, {"max_seq_length": True}, "'max_seq_length' is True"),
        (MODULES, module("/etc"), "the path '/etc' leads out of"),
        (MODULES, module("../other"), r"the path '\.\./other' leads out of"),
        (MODULES, module(7), "the path of a module is 7"),
        (MODULES, {"a": 1}, "is not the module list"),
    ],
)
def test_an_impossible_setting_is_the_models_fault(file: str, content: Any, message: str, tmp_path: Path) -> None:
    (tmp_path / file).write_text(json.dumps(content))
    with pytest.raises(ModelError, match=f"{file}.*{message}"):
        read_layout(tmp_path)


def test_a_default_prompt_that_is_missing_is_the_models_fault_and_a_requested_one_the_users(tmp_path: Path) -> None:
    (tmp_path / GENERAL).write_text(json.dumps({"prompts": {"query": "q: "}, "default_prompt_name": "text"}))
    layout = read_layout(tmp_path)
    with pytest.raises(ModelError, match=r"default prompt is 'text', which its files lack \(they have: query\)"):
        settle(layout, ModelOptions())
    with pytest.raises(RequestError, match="no prompt named 'document'"):
        settle(layout, ModelOptions(prompt_name="document"))
    assert settle(layout, ModelOptions(prompt_name="query")).prompt == "q: "
