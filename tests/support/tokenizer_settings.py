"""Small models in folders with any tokenizer settings: the same weights in PyTorch, in ONNX and as a static table."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

from tests.support.masked_models import PIECES, SPECIAL

WORDS = [*PIECES, "Dog", "Cat", "cafe", "café", "Café", "Garden", "É"]
TEXTS = [
    "the Dog sees the Café near the Garden and the small old house on the street in the park",
    "CATS sleep slowly",
    "É café [MASK] Dog",
    "x1 dogs run <extra> far , not near . the young cats read in the big garden",
    "a",
]


def write_tokenizer(
    folder: Path, *, cased: bool, added: list[str], template: bool = True, prefix: str = "##", **settings: Any
) -> None:
    """tokenizer.json, which lower-cases unless it is `cased`, and tokenizer_config.json with the settings. `template`
    puts special tokens around a text; `prefix` marks a piece inside a word."""
    vocabulary = {token: i for i, token in enumerate([*SPECIAL, *WORDS])}
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]", continuing_subword_prefix=prefix))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=not cased)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    if template:
        tokenizer.post_processor = processors.TemplateProcessing(
            single="[CLS]:0 $A:0 [SEP]:0",
            pair="[CLS]:0 $A:0 [SEP]:0 $B:1 [SEP]:1",
            special_tokens=[("[CLS]", 2), ("[SEP]", 3)],
        )
    tokenizer.add_special_tokens(SPECIAL)
    tokenizer.save(str(folder / "tokenizer.json"))
    records = {
        str(len(vocabulary) + i): {
            **dict.fromkeys(("lstrip", "rstrip", "normalized", "single_word"), False),
            "content": token,
            "special": True,
        }
        for i, token in enumerate(added)
    }
    names = {f"{name}_token": f"[{name.upper()}]" for name in ("unk", "sep", "pad", "cls", "mask")}
    content = {"model_max_length": 64, **names, **settings} | ({"added_tokens_decoder": records} if added else {})
    (folder / "tokenizer_config.json").write_text(json.dumps(content), encoding="utf-8")


def write_modules(folder: Path, *, sentence: dict[str, Any], name: str, prompts: dict[str, str], pooling: Any) -> None:
    """What sentence-transformers keeps beside the weights of a transformer."""
    kinds = {"": "Transformer", "1_Pooling": "Pooling"}
    rows = [
        {"idx": i, "name": str(i), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for i, (path, kind) in enumerate(kinds.items())
    ]
    (folder / "modules.json").write_text(json.dumps(rows), encoding="utf-8")
    (folder / name).write_text(json.dumps(sentence), encoding="utf-8")
    general = {"prompts": prompts, "default_prompt_name": next(iter(prompts), None)}
    (folder / "config_sentence_transformers.json").write_text(json.dumps(general), encoding="utf-8")
    (folder / "1_Pooling").mkdir(exist_ok=True)
    (folder / "1_Pooling" / "config.json").write_text(
        json.dumps({"word_embedding_dimension": 32, **pooling}), encoding="utf-8"
    )


def with_graph(folder: Path, graph: Path, target: Path) -> Path:
    """The folder's settings beside an ONNX graph."""
    shutil.copytree(folder, target, ignore=shutil.ignore_patterns("*.safetensors"))
    shutil.copy(graph, target / "model.onnx")
    return target / "model.onnx"


def write_static(folder: Path, *, kind: str = "sentence-transformers", **config: Any) -> np.ndarray:
    """A table of vectors beside the tokenizer of the folder. `kind` is who wrote it."""
    rows = (
        64 if kind == "sentence-transformers" else Tokenizer.from_file(str(folder / "tokenizer.json")).get_vocab_size()
    )
    table = np.random.default_rng(0).normal(size=(rows, 8)).astype(np.float32)
    save_file(
        {"embedding.weight" if kind == "sentence-transformers" else "embeddings": table}, folder / "model.safetensors"
    )
    if kind == "model2vec":
        (folder / "config.json").write_text(json.dumps({"model_type": "model2vec", **config}), encoding="utf-8")
    modules = [{"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.StaticEmbedding"}]
    (folder / "modules.json").write_text(json.dumps(modules), encoding="utf-8")
    return table
