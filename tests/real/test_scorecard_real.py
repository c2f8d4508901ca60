"""Must-show: a real model, adapted by MLM and by contrastive training, is read right; and forgetting is seen."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from calipers import models
from calipers.comparison import verdict
from calipers.core import SILENT, Outcomes, Result, read_figures
from calipers.diagnosis import adaptation, scorecard
from calipers.diagnosis.layers import LAYERS
from calipers.diagnosis.layers.geometry import GeometryOptions
from calipers.diagnosis.layers.knowledge import KnowledgeOptions
from calipers.diagnosis.options import DiagnosisOptions
from calipers.diagnosis.records import Scorecard, ScoreLine
from calipers.diagnosis.text import _show_scorecard
from calipers.models import ModelOptions
from calipers.runs import api
from calipers.shop import sample as shop
from calipers.tasks import fill_mask, retrieval, similarity
from tests.support.diagnoses import space_of
from tests.support.verdicts import result

pytestmark = pytest.mark.slow

LAYER_OPTIONS = {"geometry": GeometryOptions(texts=20), "knowledge": KnowledgeOptions()}
MEASURES = {
    "retrieval": retrieval.METRICS,
    "sentence-similarity": similarity.METRICS,
    "fill-mask": fill_mask.METRICS,
    **{name: LAYERS[name].metrics for name in LAYER_OPTIONS},
}
DATA = shop.load()
TERMS = verdict.Terms({}, (), resamples=2000, worst=0)


@dataclass(frozen=True)
class Shelf:
    """Where the models, the shop and the general pairs are. What a model gave is kept."""

    folder: Path
    sts: Path
    known: dict[str, dict[str, Result]] = field(default_factory=dict)

    def path(self, name: str) -> str:
        return str(self.folder / name)

    def results(self, name: str) -> dict[str, Result]:
        """Everything that the scorecard reads, of one model; encoders go under the head of the base."""
        if name not in self.known:
            encoder: Any = models.load(models.find(self.path(name)), ModelOptions(pooling="mean"), "encode")
            options = DiagnosisOptions(mlm_head=self.path("base"))
            texts = adaptation.domain_texts(DATA, 42)
            filled = adaptation.perplexity(self.path(name), texts, options, ModelOptions(), SILENT)
            assert filled
            self.known[name] = {
                "retrieval": api.evaluate(encoder, task="retrieval", dataset=self.path("shop"), resamples=100),
                "sentence-similarity": api.evaluate(encoder, dataset=str(self.sts), resamples=100),
                "fill-mask": filled,
                **self.layers(name, encoder),
            }
        return self.known[name]

    def layers(self, name: str, encoder: Any) -> dict[str, Result]:
        corpus, queries = DATA.tables["corpus"].columns["text"], DATA.columns["query"]
        space = space_of(DATA, encoder.encode(corpus), encoder.encode(queries))
        space = adaptation.probe_space(space, self.path(name), (), self.path("base"), ModelOptions())
        found = {layer: LAYERS[layer].run(encoder, space, options, SILENT) for layer, options in LAYER_OPTIONS.items()}
        return {layer: _result(name, layer, outcomes) for layer, outcomes in found.items()}

    def read(self, name: str, purpose: Any) -> Scorecard:
        frequency = adaptation.query_frequency(DATA, path=self.path("shop"), queries=None, source=DATA.source)
        base, other = self.results("base"), self.results(name)
        card = scorecard.read(purpose, base, other, MEASURES, frequency=frequency, terms=TERMS)
        print(f"\n{name} as {purpose}")
        _show_scorecard(Console(width=150), card)
        return card


def _result(name: str, layer: str, outcomes: Outcomes) -> Result:
    metrics = {figure.name: figure.value for figure in read_figures(outcomes) if figure.value is not None}
    return result(name, task=layer, metrics=metrics, outcomes=outcomes)


@pytest.fixture(scope="module")
def shelf(minilm: Path, data: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shelf]:
    """Trained here, in some minutes of one core."""
    import torch

    from tests.support import adaptation

    folder, threads = tmp_path_factory.mktemp("adapted"), torch.get_num_threads()
    torch.set_num_threads(1)  # such small batches gain nothing from a second one
    files = [data(name).read_text(encoding="utf-8") for name in ("stsb/dev.jsonl", "jsts/valid.jsonl")]
    general = [json.loads(line) for text in files for line in text.splitlines()]
    base = adaptation.make_base(minilm, [row["sentence1"] for row in general], folder / "base", steps=150)
    adaptation.adapt_by_mlm(base, folder / "mlm", steps=80)
    adaptation.adapt_by_contrast(base, folder / "contrastive", steps=40, rate=2e-5)
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
