"""Must-show: a real model, adapted by MLM and by contrastive training, is read right; and forgetting is seen."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from calipers import adapting, api, models
from calipers.core import SILENT, Result, Scorecard, ScoreLine, read_figures
from calipers.data import shop
from calipers.layers import LAYERS, space_of
from calipers.models import ModelOptions
from calipers.store import Store
from calipers.tasks import retrieval
from tests.verdicts import result

pytestmark = pytest.mark.slow

PROBED = ("geometry", "knowledge")
MEASURES = {"retrieval": retrieval.METRICS, **{name: LAYERS[name].metrics for name in PROBED}}
DATA = shop.load()


@dataclass(frozen=True)
class Shelf:
    """Where the models, the shop and the general pairs are. What a model gave is kept."""

    folder: Path
    sts: Path
    known: dict[str, dict[str, Result]] = field(default_factory=dict)

    def path(self, name: str) -> str:
        return str(self.folder / name)

    def results(self, name: str) -> dict[str, Result]:
        """The search task and the layers of one model, on vectors that are made once for the layers."""
        if name not in self.known:
            searched = api.evaluate(self.path(name), task="retrieval", dataset=self.path("shop"), resamples=100)
            encoder: Any = models.load(models.find(self.path(name)), ModelOptions(), "encode")
            corpus, queries = DATA.tables["corpus"].columns["text"], DATA.columns["query"]
            space = space_of(DATA, encoder.encode(corpus), encoder.encode(queries))
            space = adapting.probe_space(space, self.path(name), encoder, (), self.path("base"), ModelOptions())
            layers = {layer: self.run(layer, encoder, space, name) for layer in PROBED}
            self.known[name] = {"retrieval": searched, **layers}
        return self.known[name]

    def run(self, layer: str, encoder: Any, space: Any, name: str) -> Result:
        outcomes = LAYERS[layer].run(encoder, space, LAYERS[layer].options(), SILENT)
        metrics = {figure.name: figure.value for figure in read_figures(outcomes) if figure.value is not None}
        return result(name, task=layer, metrics=metrics, outcomes=outcomes)

    def read(self, name: str, adaptation: str) -> Scorecard:
        asked = adapting.Request(adaptation, str(self.sts), self.path("base"), resamples=2000)
        sides = [adapting.Side(self.path(side), self.results(side)) for side in ("base", name)]
        frequency = adapting.query_frequency(DATA, path=self.path("shop"), queries=None, source=DATA.source)
        store = Store(self.folder / "store")
        card = adapting.score(asked, sides[0], sides[1], MEASURES, DATA, frequency, store=store)
        print(f"\n{name} as {adaptation}: {card.label}. {card.paragraph}")
        return card


@pytest.fixture(scope="module")
def shelf(minilm: Path, data: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shelf]:
    """Trained here, in some two minutes of one core."""
    import torch

    from tests import adaptation

    folder, threads = tmp_path_factory.mktemp("adapted"), torch.get_num_threads()
    torch.set_num_threads(1)  # such small batches gain nothing from a second one
    general = [json.loads(line) for name in ("stsb/dev", "jsts/valid") for line in data(f"{name}.jsonl").open("rb")]
    base = adaptation.make_base(minilm, [row["sentence1"] for row in general], folder / "base", steps=200)
    adaptation.adapt_by_mlm(base, folder / "mlm", steps=120)
    adaptation.adapt_by_contrast(base, folder / "contrastive", steps=60, rate=5e-5)
    adaptation.adapt_by_contrast(base, folder / "overdone", steps=60, rate=1e-3)
    shop.write(folder / "shop")
    yield Shelf(folder, data("stsb/test.jsonl"))
    torch.set_num_threads(threads)


def lines(card: Scorecard) -> dict[str, ScoreLine]:
    return {line.metric: line for line in card.lines}


def test_mlm_is_read_as_a_domain_adaptation_and_not_as_a_task_adaptation(shelf: Shelf) -> None:
    card = shelf.read("mlm", "mlm")
    assert lines(card)["pseudo_perplexity"].reading == "AS_EXPECTED"
    assert card.reads_as == "mlm"
    assert card.label in ("PASS", "AT_RISK")
    other = shelf.read("mlm", "contrastive")
    assert lines(other)["ndcg@10"].reading in ("CONTRARY", "NOT_SHOWN")
    assert other.label in ("REGRESSION", "INCONCLUSIVE")


def test_contrast_is_read_as_a_task_adaptation_and_not_as_a_domain_adaptation(shelf: Shelf) -> None:
    card = shelf.read("contrastive", "contrastive")
    assert lines(card)["ndcg@10"].reading == "AS_EXPECTED"
    assert lines(card)["cosine_spearman"].reading == "AS_EXPECTED"
    assert lines(card)["ndcg@10/tail"].reading == "AS_EXPECTED"
    assert (card.reads_as, card.forgetting, card.label) == ("contrastive", False, "PASS")
    other = shelf.read("contrastive", "mlm")
    assert lines(other)["pseudo_perplexity"].reading != "AS_EXPECTED"
    assert other.label in ("REGRESSION", "INCONCLUSIVE")


def test_training_that_is_overdone_is_caught_forgetting(shelf: Shelf) -> None:
    card = shelf.read("overdone", "contrastive")
    assert lines(card)["cosine_spearman"].reading == "LOST"
    assert (card.forgetting, card.label) == (True, "REGRESSION")
