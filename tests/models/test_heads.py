"""Weights that were trained with a head are no encoder unless a pooling is requested."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from calipers.core import ModelError
from calipers.models import ModelOptions, load_model
from tests.support.cross_encoders import tiny
from tests.support.samples import Run

pytest.importorskip("transformers")

REFUSED = "and no embedding model: pass `pooling` mean to take the mean of its token embeddings all the same"


def rewrite(file: Path, **entries: object) -> None:
    content = json.loads(file.read_text()) | entries
    file.write_text(json.dumps({name: value for name, value in content.items() if value is not None}))


@pytest.mark.parametrize(
    ("architecture", "kind"),
    [
        ("BertForMaskedLM", "BertForMaskedLM, a masked language model"),
        ("BertForPreTraining", "BertForPreTraining, a model with a head of its own"),
        ("BertForTokenClassification", "BertForTokenClassification, a model with a head of its own"),
        ("BertLMHeadModel", "BertLMHeadModel, a language model"),
        (None, "a masked language model"),  # by its tensors
    ],
)
def test_weights_with_a_head_are_refused(architecture: str | None, kind: str, tiny_bert: Path, tmp_path: Path) -> None:
    for file in tiny_bert.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    rewrite(tmp_path / "config.json", architectures=architecture and [architecture])
    with pytest.raises(ModelError, match=f"holds {kind}, {REFUSED}"):
        load_model(str(tmp_path))
    forced = load_model(str(tmp_path), options=ModelOptions(pooling="mean"))
    assert forced.info.notes == (f"the weights are those of {kind}: an embedding model was expected",)


def test_a_plain_encoder_is_taken_with_its_pooling_assumed(tiny_bert: Path, tmp_path: Path) -> None:
    from transformers import AutoModel, AutoTokenizer

    AutoModel.from_pretrained(tiny_bert).save_pretrained(tmp_path)
    AutoTokenizer.from_pretrained(tiny_bert).save_pretrained(tmp_path)
    info = load_model(str(tmp_path)).info
    assert info.settings["pooling_assumed"] is True
    assert info.notes == ()


def test_a_cross_encoder_of_sentence_transformers_is_refused(minilm: Path, tmp_path: Path) -> None:
    from sentence_transformers import CrossEncoder

    CrossEncoder(str(tiny(tmp_path / "plain", minilm)), device="cpu").save_pretrained(str(tmp_path / "saved"))
    with pytest.raises(ModelError, match=f"holds a cross-encoder of sentence-transformers, {REFUSED}"):
        load_model(str(tmp_path / "saved"))
    assert load_model(str(tmp_path / "saved"), options=ModelOptions(pooling="mean")).encode(["a"]).shape == (1, 32)  # type: ignore[attr-defined]


COMMANDS = {
    "eval": "eval --model {model} --dataset {pairs}",
    "retrieval": "eval --model {model} --task retrieval --dataset {data}",
    "agreement": "compare {model} {model} --unlabelled --dataset {pairs}",
    "compare": "compare {model} {model} --dataset {pairs}",
    "diagnose": "diagnose {model} --dataset {data}",
    "trust": "trust {model} --corpus {data} bread",
    "build": "build {model} --precision fp32 --task sentence-similarity -o {out}",
    "attribute": "attribute {model} --precision int8-dynamic --dataset {pairs} --work {out}",
}


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_names_the_flag(command: str, tiny_bert: Path, tmp_path: Path, calipers: Run) -> None:
    pairs = tmp_path / "pairs.jsonl"
    rows = [{"sentence1": f"bread {i}", "sentence2": f"tea {i}", "score": i} for i in range(5)]
    pairs.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    data = tmp_path / "data"
    (data / "qrels").mkdir(parents=True)
    (data / "corpus.jsonl").write_text("".join(f'{{"_id": "{i}", "text": "bread {i}"}}\n' for i in range(5)))
    (data / "queries.jsonl").write_text('{"_id": "q", "text": "bread"}\n')
    (data / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\nq\t1\t1\n")
    places = {"model": tiny_bert, "pairs": pairs, "data": data, "out": tmp_path / "out"}
    done = calipers(*COMMANDS[command].format(**places).split())
    assert done.returncode == 3
    assert "pass --pooling mean" in done.stderr
    assert done.stderr.count("\n") == 1
