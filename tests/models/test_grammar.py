"""The metric measures something: a tiny BERT that really learned a small grammar, against one that did not."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoModelForMaskedLM

import calipers
from calipers import models
from calipers.core import Result
from calipers.metrics.threads import torch_threads
from calipers.models import ModelOptions
from tests.support.masked_models import make_model
from tests.support.samples import write_jsonl

NOUNS = [("dog", "dogs"), ("cat", "cats"), ("child", "children")]
VERBS = [("runs", "run"), ("sleeps", "sleep"), ("sees", "see")]
PLACES = ["in the park", "near the house", "on the street", "in the garden"]


def sentence(rng: random.Random, *, broken: bool = False) -> str:
    """Subject and verb agree in number, unless the sentence is broken on purpose."""
    number = rng.randrange(2)
    subject = rng.choice(NOUNS)[number]
    verb = rng.choice(VERBS)[1 - number if broken else number]
    adjective = rng.choice(["", "old ", "young ", "big ", "small "])
    return f"the {adjective}{subject} {verb} {rng.choice(PLACES)} ."


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The untrained model, and the same one after some hundred steps of masked language modelling."""
    fresh = make_model("bert", tmp_path_factory.mktemp("fresh"), initializer_range=0.05)
    trained = make_model("bert", tmp_path_factory.mktemp("trained"), initializer_range=0.05)
    rng = random.Random(0)
    tokenizer = models.load(models.find(str(trained)), ModelOptions(), "fill-mask")
    model = AutoModelForMaskedLM.from_pretrained(trained).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=4e-3)
    torch.manual_seed(0)
    with torch_threads(1):  # more of them only wait for each other in a model this small
        for _ in range(350):
            tokens = tokenizer.tokenize([sentence(rng) for _ in range(48)])  # type: ignore[attr-defined]
            longest = max(len(t.ids) for t in tokens)
            ids = torch.tensor([[*t.ids, *[0] * (longest - len(t.ids))] for t in tokens])
            hidden = (torch.rand(ids.shape) < 0.2) & (ids > 4)
            labels = torch.where(hidden, ids, -100)
            loss = model(input_ids=torch.where(hidden, 4, ids), attention_mask=(ids > 0).long(), labels=labels).loss
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
    model.eval().save_pretrained(trained)
    return fresh, trained


def measure(folder: Path, texts: list[str], place: Path) -> Result:
    file = write_jsonl(place / "texts.jsonl", [{"text": text} for text in texts])
    return calipers.evaluate(str(folder), task="fill-mask", dataset=str(file), resamples=500)


def test_training_brings_the_perplexity_far_down(folders: tuple[Path, Path], tmp_path: Path) -> None:
    rng = random.Random(1)
    texts = [sentence(rng) for _ in range(60)]
    fresh, trained = (measure(folder, texts, tmp_path) for folder in folders)
    assert fresh.metrics["pseudo_perplexity"] > 30
    assert trained.metrics["pseudo_perplexity"] < 4
    ends, other = trained.intervals["pseudo_perplexity"], fresh.intervals["pseudo_perplexity"]
    assert ends is not None
    assert other is not None
    assert ends[1] < other[0]
    assert trained.metrics["token_accuracy"] > fresh.metrics["token_accuracy"] + 0.3


def test_broken_agreement_costs_likelihood_at_the_words_that_break_it(
    folders: tuple[Path, Path], tmp_path: Path
) -> None:
    good = [sentence(random.Random(seed)) for seed in range(60)]
    bad = [sentence(random.Random(seed), broken=True) for seed in range(60)]
    right, wrong = measure(folders[1], good, tmp_path), measure(folders[1], bad, tmp_path)
    assert wrong.metrics["nll"] > right.metrics["nll"] + 0.3
    # The subject and the verb carry the loss, the place does not.
    gaps = right.outcomes.details["tokens"]["log_prob"] - wrong.outcomes.details["tokens"]["log_prob"]
    changed = right.outcomes.details["tokens"]["token"] != wrong.outcomes.details["tokens"]["token"]
    assert gaps[changed].mean() > 2
    place = np.concatenate([np.flatnonzero(right.outcomes.details["tokens"]["example"] == i)[-4:] for i in range(60)])
    assert abs(gaps[place].mean()) < 0.1
