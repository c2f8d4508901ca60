"""A small real model, adapted by MLM and by contrastive training on the sample shop: for the scorecard's slow test."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForMaskedLM, AutoTokenizer

from calipers.shop import sample as shop

OTHER_SHOP = 8  # the seed of a shop with other products and other queries, to train on


def make_base(minilm: Path, sentences: Sequence[str], folder: Path, *, steps: int) -> Path:
    """all-MiniLM-L6-v2 with an MLM head, which it lacks: trained on general sentences, the encoder left as it is.

    All six layers: the first three alone know little about similarity (55.9 on STS-B), so any contrast improves them.
    """
    torch.manual_seed(0)
    model = AutoModelForMaskedLM.from_pretrained(minilm)
    model.base_model.requires_grad_(False)
    train_mlm(model, _tokenizer(minilm), sentences, steps=steps, rate=2e-3)
    return _save(model, minilm, folder)


def adapt_by_mlm(base: Path, folder: Path, *, steps: int, rate: float = 3e-4) -> Path:
    """Further MLM on the texts of the other shop."""
    torch.manual_seed(0)
    model = AutoModelForMaskedLM.from_pretrained(base)
    model.base_model.embeddings.requires_grad_(False)  # most of the parameters, and so of the work of an update
    train_mlm(model, _tokenizer(base), _texts(shop.make(seed=OTHER_SHOP)), steps=steps, rate=rate)
    return _save(model, base, folder)


def adapt_by_contrast(base: Path, folder: Path, *, steps: int, rate: float) -> Path:
    """InfoNCE on queries of the other shop and products that answer them, the others of the batch as negatives."""
    torch.manual_seed(0)
    model = AutoModelForMaskedLM.from_pretrained(base).base_model
    model.embeddings.requires_grad_(False)
    tokenizer = _tokenizer(base)
    trained = torch.optim.AdamW(model.encoder.parameters(), lr=rate)
    for number, pairs in enumerate(_positives(steps)):
        left, right = (_embed(model, tokenizer, side) for side in zip(*pairs, strict=True))
        loss = torch.nn.functional.cross_entropy(left @ right.T / 0.05, torch.arange(len(pairs)))
        _step(trained, loss, rate, number, steps)
    return _save(model, base, folder)


def train_mlm(model: Any, tokenizer: Any, texts: Sequence[str], *, steps: int, rate: float, rows: int = 16) -> None:
    """One token in five is hidden; the head reads these alone, which is most of the work saved."""
    model.train()
    rng = random.Random(0)
    trained = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=rate)
    for number in range(steps):
        batch = _batch(tokenizer, rng.choices(texts, k=rows))
        ids = batch["input_ids"]
        hidden = (torch.rand(ids.shape) < 0.2) & ~torch.isin(ids, torch.tensor(tokenizer.all_special_ids))
        states = model.base_model(**{**batch, "input_ids": ids.masked_fill(hidden, tokenizer.mask_token_id)})
        logits = model.cls(states.last_hidden_state[hidden])
        _step(trained, torch.nn.functional.cross_entropy(logits, ids[hidden]), rate, number, steps)
    model.eval()


def _step(trained: Any, loss: Any, rate: float, number: int, steps: int) -> None:
    """One update, the rate rising over the first tenth and falling to nothing."""
    for group in trained.param_groups:
        group["lr"] = rate * min(1.0, (number + 1) / (0.1 * steps), (steps - number) / (0.9 * steps))
    trained.zero_grad()
    loss.backward()
    trained.step()


def _embed(model: Any, tokenizer: Any, texts: Sequence[str]) -> Any:
    batch = _batch(tokenizer, texts)
    hidden = model(**batch).last_hidden_state
    weights = batch["attention_mask"][..., None].to(hidden.dtype)
    return torch.nn.functional.normalize((hidden * weights).sum(1) / weights.sum(1), dim=1)


def _positives(steps: int, rows: int = 16) -> Iterator[list[tuple[str, str]]]:
    """Batches of a query and an exact product; new queries for every pass over the shop."""
    rng = random.Random(0)
    made = shop.make(seed=OTHER_SHOP, queries=2000)
    texts = dict(zip((p.id for p in made.products), _texts(made), strict=True))
    known = [
        (query.text, exact)
        for query, grades in zip(made.queries, made.qrels, strict=True)
        if (exact := [id for id, grade in grades.items() if grade == shop.EXACT])
    ]
    for _ in range(steps):
        yield [(text, texts[rng.choice(exact)]) for text, exact in rng.sample(known, rows)]


def _texts(made: shop.Shop) -> list[str]:
    return [f"{product.row['title']} {product.row['description']}" for product in made.products]


def _batch(tokenizer: Any, texts: Sequence[str]) -> Any:
    return tokenizer(list(texts), return_tensors="pt", padding=True, truncation=True, max_length=24)


def _tokenizer(folder: Path) -> Any:
    return AutoTokenizer.from_pretrained(folder)


def _save(model: Any, like: Path, folder: Path) -> Path:
    """A folder that is a masked language model, or an encoder with mean pooling."""
    model.save_pretrained(folder)
    _tokenizer(like).save_pretrained(folder)
    return folder
