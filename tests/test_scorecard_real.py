"""Must-show: a real model, adapted by MLM and by contrastive training, is read right; and forgetting is seen."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from calipers import adapting, diagnosing
from calipers.core import SILENT, Diagnosis, Finding, Scorecard, ScoreLine
from calipers.data import shop
from calipers.diagnosing import Inputs, Wishes
from calipers.store import Store
from calipers.vector_cache import VectorCache

pytestmark = pytest.mark.slow


@dataclass(frozen=True)
class Shelf:
    """Where the models, the shop and the general pairs are."""

    folder: Path
    sts: Path

    @property
    def inputs(self) -> Inputs:
        return Inputs(dataset=str(self.folder / "shop"), sts=str(self.sts))

    def wishes(self, adaptation: str) -> Wishes:
        base = str(self.folder / "base")
        layers = ("geometry", "retrieval", "knowledge")
        return Wishes(layers=layers, adaptation=adaptation, mlm_head=base, resamples=2000)

    def diagnose(self, name: str, adaptation: str) -> Diagnosis:
        return diagnosing.diagnose(
            str(self.folder / name),
            self.inputs,
            baseline=str(self.folder / "base"),
            wishes=self.wishes(adaptation),
            store=Store(self.folder / "store"),
            vectors=VectorCache(self.folder / "vectors"),
        )

    def read_again(self, name: str, diagnosis: Diagnosis, adaptation: str) -> Scorecard:
        """The same findings under the other question."""
        before = [_of_baseline(finding) for finding in diagnosis.findings if finding.verdict]
        card = adapting.of_findings(
            (str(self.folder / "base"), before),
            (str(self.folder / name), diagnosis.findings),
            (self.inputs, shop.load(), self.wishes(adaptation)),
            store=Store(self.folder / "store"),
            progress=SILENT,
        )
        assert card
        return card


def _of_baseline(finding: Finding) -> Finding:
    assert finding.verdict
    return replace(finding, result=finding.verdict.baseline)


@pytest.fixture(scope="module")
def shelf(minilm: Path, data: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> Shelf:
    """Trained here, in about two minutes of CPU."""
    from tests import adaptation

    folder = tmp_path_factory.mktemp("adapted")
    dev = [json.loads(line) for line in data("stsb/dev.jsonl").read_text(encoding="utf-8").splitlines()]
    base = adaptation.make_base(minilm, [row["sentence1"] for row in dev], folder / "base", steps=100)
    adaptation.adapt_by_mlm(base, folder / "mlm", steps=120)
    adaptation.adapt_by_contrast(base, folder / "contrastive", steps=60, rate=5e-5)
    adaptation.adapt_by_contrast(base, folder / "overdone", steps=80, rate=1e-3)
    shop.write(folder / "shop")
    return Shelf(folder, data("stsb/test.jsonl"))


def lines(card: Scorecard | None) -> dict[str, ScoreLine]:
    assert card
    print(card.paragraph)
    return {line.metric: line for line in card.lines}


def test_mlm_is_read_as_a_domain_adaptation_and_not_as_a_task_adaptation(shelf: Shelf) -> None:
    found = shelf.diagnose("mlm", "mlm")
    card = lines(found.scorecard)
    assert card["pseudo_perplexity"].reading == "AS_EXPECTED"
    assert found.scorecard
    assert found.scorecard.reads_as == "mlm"
    assert found.scorecard.label in ("PASS", "AT_RISK")
    other = shelf.read_again("mlm", found, "contrastive")
    assert lines(other)["ndcg@10"].reading in ("CONTRARY", "NOT_SHOWN")
    assert other.label in ("REGRESSION", "INCONCLUSIVE")


def test_contrast_is_read_as_a_task_adaptation_and_not_as_a_domain_adaptation(shelf: Shelf) -> None:
    found = shelf.diagnose("contrastive", "contrastive")
    card = lines(found.scorecard)
    assert card["ndcg@10"].reading == "AS_EXPECTED"
    assert card["cosine_spearman"].reading == "AS_EXPECTED"
    assert card["ndcg@10/tail"].reading == "AS_EXPECTED"
    assert found.scorecard
    assert (found.scorecard.reads_as, found.scorecard.forgetting) == ("contrastive", False)
    assert found.scorecard.label == "PASS"
    other = shelf.read_again("contrastive", found, "mlm")
    assert lines(other)["pseudo_perplexity"].reading != "AS_EXPECTED"
    assert other.label in ("REGRESSION", "INCONCLUSIVE")


def test_training_that_is_overdone_is_caught_forgetting(shelf: Shelf) -> None:
    card = shelf.diagnose("overdone", "contrastive").scorecard
    assert lines(card)["cosine_spearman"].reading == "LOST"
    assert card
    assert (card.forgetting, card.label) == (True, "REGRESSION")
