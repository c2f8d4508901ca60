"""A small cased encoder with prompts, and servers of it that plain transformers run, with faults to be found."""

from __future__ import annotations

import json
import threading
import unicodedata
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers

from calipers.fidelity.texts import bundled
from tests.support.endpoint import Endpoint, serving

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
PROMPTS = {"query": "query: ", "document": "passage: "}
LIMIT = 200
_LOCK = threading.Lock()


def make_encoder(
    folder: Path, *, prompt: str | None = "query", normalize: bool = True, pooling: str = "mean", seed: int = 0
) -> Path:
    """One BERT of two layers with random weights, byte-level pieces with capitals, cut at LIMIT tokens."""
    folder.mkdir(parents=True, exist_ok=True)
    names = {f"{name}_token": f"[{name.upper()}]" for name in ("pad", "unk", "cls", "sep")}
    _write_tokenizer(folder / "tokenizer.json")
    settings = {"model_max_length": LIMIT, "tokenizer_class": "PreTrainedTokenizerFast", **names}
    _write(folder / "tokenizer_config.json", settings)
    torch.manual_seed(seed)
    config = transformers.BertConfig(
        vocab_size=Tokenizer.from_file(str(folder / "tokenizer.json")).get_vocab_size(),
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=48,
        max_position_embeddings=256,
        pad_token_id=0,
        initializer_range=0.4,
    )
    transformers.BertModel(config, add_pooling_layer=False).save_pretrained(folder)
    kinds = {"": "Transformer", "1_Pooling": "Pooling", **({"2_Normalize": "Normalize"} if normalize else {})}
    rows = [
        {"idx": i, "name": str(i), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for i, (path, kind) in enumerate(kinds.items())
    ]
    _write(folder / "modules.json", rows)
    _write(folder / "sentence_bert_config.json", {"max_seq_length": LIMIT, "do_lower_case": False})
    _write(folder / "config_sentence_transformers.json", {"prompts": PROMPTS, "default_prompt_name": prompt})
    (folder / "1_Pooling").mkdir(exist_ok=True)
    _write(
        folder / "1_Pooling" / "config.json", {"word_embedding_dimension": 32, f"pooling_mode_{MODES[pooling]}": True}
    )
    return folder


MODES = {"mean": "mean_tokens", "cls": "cls_token", "max": "max_tokens"}


def _write(path: Path, content: Any) -> None:
    path.write_text(json.dumps(content), encoding="utf-8")


def _write_tokenizer(path: Path) -> None:
    tokenizer = Tokenizer(models.BPE(unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=700, special_tokens=SPECIAL, initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator((text for texts in bundled()["languages"].values() for text in texts), trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    tokenizer.save(str(path))


@dataclass(frozen=True)
class Fault:
    """What a server does otherwise than it should. As it is: nothing."""

    pooling: str = "mean"
    normalize: bool = True
    prompt: str = "query: "
    cut: int = LIMIT
    eos: bool = True
    bos: bool = True
    lower: bool = False
    dtype: torch.dtype = torch.float32
    size: int | None = None
    order: bool = False
    batch: bool = False
    strip: bool = False
    form: str = ""  # of Unicode, or "accents": without them
    lines: bool = False  # new lines become spaces
    steps: int = 0  # of a whole number in which vectors are stored

    def embed(self, folder: Path, texts: list[str]) -> list[list[float]]:
        """Every text alone, unless `batch`: padding then counts as text."""
        tokenizer, _ = _load(folder, self.dtype)
        texts = [self.prompt + self._edit(text) for text in texts]
        texts = [text.lower() for text in texts] if self.lower else texts
        rows = [self._frame(tokenizer, text) for text in texts]
        width = max(map(len, rows)) if self.batch else 0
        vectors = [self._pool(folder, (*row, *[0] * (width - len(row)))) for row in rows]
        vectors = [v[: self.size] for v in vectors]
        if self.normalize:
            vectors = [v / np.linalg.norm(v) for v in vectors]
        if self.steps:
            vectors = [np.round(v * self.steps) / self.steps for v in vectors]
        shown = [[float(x) for x in v] for v in vectors]
        return shown[1:] + shown[:1] if self.order else shown

    def _edit(self, text: str) -> str:
        text = " ".join(text.split()) if self.strip else text
        text = text.replace("\n", " ") if self.lines else text
        if self.form == "accents":
            return "".join(c for c in unicodedata.normalize("NFD", text) if unicodedata.category(c) != "Mn")
        return unicodedata.normalize(self.form, text) if self.form else text

    def _frame(self, tokenizer: Any, text: str) -> list[int]:
        ids = tokenizer(text, truncation=True, max_length=self.cut)["input_ids"]
        return list(ids[0 if self.bos else 1 : len(ids) if self.eos else -1])

    def _pool(self, folder: Path, ids: tuple[int, ...]) -> np.ndarray:
        with torch.inference_mode(), _LOCK:
            tokens = _states(folder, self.dtype, ids)
            pooled = {"mean": tokens.mean(0), "cls": tokens[0], "max": tokens.max(0).values, "last": tokens[-1]}
            return np.asarray(pooled[self.pooling].float().numpy())


@cache
def _load(folder: Path, dtype: torch.dtype) -> tuple[Any, Any]:
    model = transformers.AutoModel.from_pretrained(folder, dtype=dtype, add_pooling_layer=False).eval()
    return transformers.AutoTokenizer.from_pretrained(folder), model


@cache
def _states(folder: Path, dtype: torch.dtype, ids: tuple[int, ...]) -> torch.Tensor:
    """Of the last layer, once for all faults that behave alike up to it."""
    states: torch.Tensor = _load(folder, dtype)[1](torch.tensor([ids])).last_hidden_state[0]
    return states


@contextmanager
def served(folder: Path, fault: Fault | None = None) -> Iterator[Endpoint]:
    """Both protocols of `Endpoint`, /embed and /v1/embeddings, over this model."""
    fault = fault or Fault()
    with serving() as endpoint:
        endpoint.spoil = lambda texts, _: fault.embed(folder, texts)
        yield endpoint
