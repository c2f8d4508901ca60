"""Small masked language models of every family, with random weights, and a tokenizer of our own words."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
import transformers
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
PIECES = [
    "the", "a", "dog", "dogs", "cat", "cats", "child", "children", "run", "runs", "sleep", "sleeps", "see",
    "sees", "near", "far", "big", "small", "old", "young", "on", "in", "park", "house", "street", ".", ",",
    "##s", "##ing", "##er", "read", "##ers", "garden", "##ly", "slow", "quick", "and", "or", "not",
]  # fmt: skip

SMALL = {
    "vocab_size": 64, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48,
    "max_position_embeddings": 66, "pad_token_id": 0, "initializer_range": 0.4,
}  # fmt: skip
DISTIL = {
    "vocab_size": 64, "dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 48, "max_position_embeddings": 66,
    "pad_token_id": 0, "initializer_range": 0.4,
}  # fmt: skip

# family → configuration; the initialiser is wide so that logits differ and a mistake shows.
FAMILIES: dict[str, dict[str, Any]] = {
    "bert": SMALL,
    "bert-untied": {**SMALL, "tie_word_embeddings": False},
    "roberta": SMALL,
    "xlm-roberta": SMALL,
    "distilbert": DISTIL,
    "distilbert-untied": {**DISTIL, "tie_word_embeddings": False},
    "albert": {**SMALL, "embedding_size": 16},
    "electra": {**SMALL, "embedding_size": 16},
    "deberta-v2": {**SMALL, "relative_attention": True, "pos_att_type": ["c2p", "p2c"], "position_buckets": 8},
    "modernbert": {
        **SMALL,
        "global_attn_every_n_layers": 2,
        "local_attention": 8,
        "cls_token_id": 2,
        "sep_token_id": 3,
    },
    "mpnet": SMALL,
}


# Families whose outputs depend on padding, or whose attention depends on the length of the batch.
LEAKING: dict[str, dict[str, Any]] = {
    "fnet": SMALL,
    "convbert": {**SMALL, "embedding_size": 32, "conv_kernel_size": 9, "head_ratio": 2},
    "yoso": {**SMALL, "hash_code_len": 4, "num_hash": 4},
    "nystromformer": {**SMALL, "num_landmarks": 64, "segment_means_seq_len": 64, "conv_kernel_size": 5},
    "big_bird": {**SMALL, "attention_type": "block_sparse", "block_size": 4, "num_random_blocks": 1},
}


def make_tokenizer(folder: Path, *, mask: bool = True) -> None:
    special = SPECIAL if mask else SPECIAL[:-1]
    vocabulary = {token: i for i, token in enumerate([*special, *PIECES])}
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    names = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, model_max_length=64, **names, **({"mask_token": "[MASK]"} if mask else {})
    ).save_pretrained(folder)


def make_model(family: str, folder: Path, *, head: str = "MaskedLM", **changes: Any) -> Path:
    """A folder with a random model of the family, its tokenizer beside it. `head` is one of transformers' names, "" for
    an encoder."""
    kind = family.removesuffix("-untied")
    config = transformers.AutoConfig.for_model(kind, **{**(FAMILIES | LEAKING)[family], **changes})
    torch.manual_seed(0)
    model = getattr(transformers, f"AutoModelFor{head}" if head else "AutoModel").from_config(config)
    for parameter in model.parameters():  # biases and norms too: zeros and ones hide mistakes
        if parameter.ndim == 1:
            torch.nn.init.normal_(parameter, mean=0.5 if parameter.mean() > 0.5 else 0.0, std=0.2)
    model.save_pretrained(folder)
    make_tokenizer(folder)
    return folder
