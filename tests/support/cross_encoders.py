"""Small cross-encoders with random weights."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

NLI = ["contradiction", "entailment", "neutral"]


def copy_tokenizer(source: Path, folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "vocab.txt"):
        shutil.copy(source / name, folder)
    return folder


def tiny(folder: Path, tokenizer: Path, labels: int = 1, **config: Any) -> Path:
    """A classifier with random weights, wide enough that a mistake shows."""
    import torch
    from transformers import BertConfig, BertForSequenceClassification

    torch.manual_seed(0)
    shape = {
        "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48,
        "initializer_range": 0.3, "max_position_embeddings": 128,
    }  # fmt: skip
    made = BertConfig(**shape | config, id2label=dict(enumerate(NLI[:labels])), label2id={})
    BertForSequenceClassification(made).save_pretrained(copy_tokenizer(tokenizer, folder))
    return folder
