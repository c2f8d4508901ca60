"""The adaptation scorecard on results made by hand: every reading, the label, the slices, and its table."""

from __future__ import annotations

import json
from collections.abc import Mapping
from io import StringIO
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from calipers.comparison import verdict
from calipers.core import Metric, Outcomes, RequestError, Result
from calipers.diagnosis import adaptation, findings, scorecard
from calipers.diagnosis.findings import _scorecard as scorecard_document
from calipers.diagnosis.layers import LAYERS
from calipers.diagnosis.records import Scorecard, ScoreLine
from calipers.diagnosis.scorecard import Frequency
from calipers.diagnosis.text import SCORECARD_HEADER, _show_scorecard, scorecard_row
from calipers.metrics.means import mean_statistic
from calipers.tasks import fill_mask, retrieval, similarity
from tests.support.verdicts import result

QUERIES = 90
TERMS = verdict.Terms({}, (), resamples=1000, worst=0)
MEASURES = {
    "retrieval": retrieval.METRICS,
    "sentence-similarity": similarity.METRICS,
    "fill-mask": fill_mask.METRICS,
    "geometry": LAYERS["geometry"].metrics,
    "knowledge": LAYERS["knowledge"].metrics,
}


def make(part: str, columns: Mapping[str, Any], name: str) -> Result:
    arrays = {key: np.asarray(values, float) for key, values in columns.items()}
    size = len(next(iter(arrays.values())))
    known = [m for m in MEASURES[part] if all(c in arrays for c in (m.needs or _reads(m)))]
    return result(
        name,
        task=part,
        metrics={m.name: m.value(arrays) for m in known},
        outcomes=Outcomes(tuple(f"q{i}" for i in range(size)), arrays),
    )


def _reads(metric: Metric) -> tuple[str, ...]:
    if metric.name.startswith("cosine"):
        return ("cosine", "gold")
    return ("tokens", "log_likelihood") if metric.name in ("pseudo_perplexity", "nll") else ("?",)


def searched(ndcg: Any, name: str = "model") -> Result:
    return make("retrieval", {"ndcg@10": ndcg, "recall@10": ndcg, "recall@100": ndcg}, name)


def similar(noise: float, name: str = "model") -> Result:
    rng = np.random.default_rng(0)
    gold = rng.uniform(0, 5, 400)
    return make("sentence-similarity", {"gold": gold, "cosine": gold / 5 + noise * rng.normal(size=400)}, name)


def filled(likelihood: float, name: str = "model", tokens: int = 10) -> Result:
    size = 60
    each = likelihood * tokens + np.random.default_rng(0).normal(size=size)
    return make("fill-mask", {"tokens": [tokens] * size, "log_likelihood": each}, name)


BEFORE = np.random.default_rng(1).uniform(0.2, 0.6, QUERIES)
BETTER = np.clip(BEFORE + np.random.default_rng(2).normal(0.1, 0.05, QUERIES), 0, 1)
FREQUENCY = Frequency({f"q{i}": float(i) for i in range(QUERIES)}, "By hand.")


def read(adaptation: Any, before: Mapping[str, Result], after: Mapping[str, Result], **more: Any) -> Scorecard:
    return scorecard.read(adaptation, before, after, MEASURES, terms=TERMS, **{"frequency": FREQUENCY, **more})


def lines(card: Scorecard) -> dict[str, ScoreLine]:
    return {line.metric: line for line in card.lines}


class TestContrastive:
    def test_search_rose_and_nothing_was_forgotten(self) -> None:
        card = read(
            "contrastive",
            {"retrieval": searched(BEFORE), "sentence-similarity": similar(0.1)},
            {"retrieval": searched(BETTER), "sentence-similarity": similar(0.101)},
        )
        found = lines(card)
        assert found["ndcg@10"].reading == "AS_EXPECTED"
        assert found["ndcg@10"].delta == pytest.approx(BETTER.mean() - BEFORE.mean())
        assert found["ndcg@10"].interval is not None
        assert found["cosine_spearman"].reading == "AS_EXPECTED"
        assert found["ndcg@10/tail"].reading == "AS_EXPECTED"
        assert found["ndcg@10/head"].reading == "NO_DEMAND"
        assert (card.label, card.reads_as, card.forgetting) == ("PASS", "contrastive", False)

    def test_forgetting_is_a_regression_however_well_search_does(self) -> None:
        card = read(
            "contrastive",
            {"retrieval": searched(BEFORE), "sentence-similarity": similar(0.1)},
            {"retrieval": searched(BETTER), "sentence-similarity": similar(0.4)},
        )
        assert lines(card)["cosine_spearman"].reading == "LOST"
        assert (card.label, card.forgetting) == ("REGRESSION", True)
        assert "Lost, and must not be: cosine_spearman" in card.paragraph

    def test_the_head_at_the_cost_of_the_tail(self) -> None:
        after = BEFORE.copy()
        after[60:] += 0.35
        after[:30] -= 0.15
        card = read("contrastive", {"retrieval": searched(BEFORE)}, {"retrieval": searched(np.clip(after, 0, 1))})
        found = lines(card)
        assert found["ndcg@10"].reading == "AS_EXPECTED"
        assert found["ndcg@10/tail"].reading == "LOST"
        assert found["ndcg@10/tail"].delta == pytest.approx(-0.15)
        assert found["ndcg@10/head"].delta == pytest.approx(np.clip(after, 0, 1)[60:].mean() - BEFORE[60:].mean())
        assert card.label == "REGRESSION"
        assert not card.forgetting
        assert "Frequent queries gained at the cost of rare ones." in card.paragraph

    def test_a_search_that_fell_is_contrary(self) -> None:
        card = read("contrastive", {"retrieval": searched(BETTER)}, {"retrieval": searched(BEFORE)})
        assert lines(card)["ndcg@10"].reading == "CONTRARY"
        assert card.label == "REGRESSION"
        assert card.paragraph.endswith("The search is not shown to have improved, and the language was not measured.")
        assert findings.conclusion(card) == "the training cost what it must not cost: rare queries are lost"

    def test_a_search_that_did_not_clearly_change_is_not_shown(self) -> None:
        after = BEFORE + np.random.default_rng(3).normal(0, 0.05, QUERIES)
        card = read("contrastive", {"retrieval": searched(BEFORE)}, {"retrieval": searched(after)})
        assert lines(card)["ndcg@10"].reading == "NOT_SHOWN"
        assert card.label == "INCONCLUSIVE"
        assert findings.conclusion(card) == "these data do not show whether the training did what it is for"

    def test_rare_queries_that_are_not_shown_to_be_kept_are_another_sentence(self) -> None:
        after = BETTER.copy()
        after[:30] = BEFORE[:30] + np.random.default_rng(4).normal(-0.005, 0.15, 30)
        card = read("contrastive", {"retrieval": searched(BEFORE)}, {"retrieval": searched(after)})
        assert lines(card)["ndcg@10"].reading == "AS_EXPECTED"
        assert lines(card)["ndcg@10/tail"].reading == "NOT_SHOWN"
        assert card.label == "INCONCLUSIVE"
        assert findings.conclusion(card) == (
            "the training did what it is for, but rare queries are not shown to be kept"
        )

    def test_a_recall_that_rose_is_an_improvement_of_the_search(self) -> None:
        sides = [
            make("retrieval", {"ndcg@10": BEFORE, "recall@10": BEFORE, "recall@100": r}, "m") for r in (BEFORE, BETTER)
        ]
        card = read("contrastive", {"retrieval": sides[0]}, {"retrieval": sides[1]})
        read_as = {name: (line.reading, line.effect) for name, line in lines(card).items()}
        assert read_as["recall@100"] == ("AS_EXPECTED", "better")
        assert read_as["ndcg@10"] == ("NOT_SHOWN", "unchanged")
        assert "Neither" not in card.paragraph
        assert card.paragraph.endswith("By what improved, this looks like task adaptation by contrastive training.")

    def test_what_improved_is_not_denied_where_ndcg_got_worse(self) -> None:
        sides = [
            make("retrieval", {"ndcg@10": n, "recall@10": n, "recall@100": r}, "m")
            for n, r in ((BETTER, BEFORE), (BEFORE, BETTER))
        ]
        card = read("contrastive", {"retrieval": sides[0]}, {"retrieval": sides[1]})
        assert card.reads_as is None
        assert card.paragraph.endswith("Better is recall@100, which by itself shows neither of the two trainings.")

    def test_what_was_not_checked_is_said(self) -> None:
        card = read(
            "contrastive",
            {"retrieval": searched(BEFORE)},
            {"retrieval": searched(BETTER)},
            reasons={"sentence-similarity": "give --sts FILE"},
        )
        line = lines(card)["cosine_spearman"]
        assert (line.reading, line.reason, line.change) == ("UNKNOWN", "give --sts FILE", "unknown")
        assert "Not measured: cosine_spearman (give --sts FILE)." in card.paragraph


class TestMlm:
    def probed(self, coherence: Any) -> dict[str, Any]:
        return {"entity_coherence_relative": coherence, "fragmentation_effect": [0.1] * len(coherence)}

    def both(self, likelihood: float, coherence: float, ndcg: Any) -> dict[str, Result]:
        rng = np.random.default_rng(0)
        return {
            "fill-mask": filled(likelihood),
            "knowledge": make(
                "knowledge",
                {
                    "entity_coherence_relative": coherence + 0.05 * rng.normal(size=50),
                    "fragmentation_effect": [0.1] * 50,
                },
                "model",
            ),
            "geometry": make("geometry", {"anisotropy": 0.5 - coherence / 2 + 0.05 * rng.normal(size=200)}, "model"),
            "retrieval": searched(ndcg),
        }

    def test_language_got_better_and_search_need_not(self) -> None:
        card = read("mlm", self.both(-3.0, 0.3, BETTER), self.both(-2.0, 0.5, BEFORE))
        found = lines(card)
        assert found["pseudo_perplexity"].reading == "AS_EXPECTED"
        assert found["pseudo_perplexity"].expected == "should fall"
        assert found["entity_coherence_relative"].reading == "AS_EXPECTED"
        assert found["anisotropy"].reading == "AS_EXPECTED"
        assert found["fragmentation_effect"].reading == "NOT_SHOWN"
        assert found["alignment"].reading == "UNKNOWN"
        assert (found["ndcg@10"].reading, found["ndcg@10"].expected) == ("NO_DEMAND", "need not rise")
        assert (card.label, card.reads_as) == ("PASS", "mlm")

    def test_a_side_effect_puts_it_at_risk_and_a_worse_language_fails(self) -> None:
        assert read("mlm", self.both(-3.0, 0.5, BEFORE), self.both(-2.0, 0.3, BEFORE)).label == "AT_RISK"
        assert read("mlm", self.both(-2.0, 0.3, BEFORE), self.both(-3.0, 0.5, BEFORE)).label == "REGRESSION"

    def test_without_a_head_nothing_can_be_said(self) -> None:
        card = read("mlm", {"retrieval": searched(BEFORE)}, {"retrieval": searched(BETTER)})
        assert card.label == "INCONCLUSIVE"
        assert card.reads_as == "contrastive"
        assert "not like the named training (domain adaptation by MLM)" in card.paragraph

    def test_tokenizers_that_differ_are_not_compared_by_token(self) -> None:
        card = read("mlm", {"fill-mask": filled(-3.0)}, {"fill-mask": filled(-2.0, tokens=12)})
        assert "divide the texts differently" in (lines(card)["pseudo_perplexity"].reason or "")


class TestSlices:
    def test_queries_of_one_frequency_have_no_head(self) -> None:
        alike = Frequency(dict.fromkeys(FREQUENCY.of, 3.0), "")
        card = read("contrastive", {"retrieval": searched(BEFORE)}, {"retrieval": searched(BETTER)}, frequency=alike)
        assert lines(card)["ndcg/tail"].reason == "all queries are equally frequent"

    def test_without_frequencies_the_tail_is_unknown(self) -> None:
        card = read("contrastive", {"retrieval": searched(BEFORE)}, {"retrieval": searched(BETTER)}, frequency=None)
        assert "is unknown" in (lines(card)["ndcg/tail"].reason or "")
        assert card.notes == ()

    def test_a_frequency_that_most_queries_share_splits_around_it(self) -> None:
        most = Frequency({f"q{i}": float(np.clip(i, 10, 80)) // 80 + (i > 9) for i in range(QUERIES)}, "")
        card = read("contrastive", {"retrieval": searched(BEFORE)}, {"retrieval": searched(BETTER)}, frequency=most)
        found = lines(card)
        assert found["ndcg@10/tail"].baseline == pytest.approx(BEFORE[:10].mean())
        assert found["ndcg@10/head"].baseline == pytest.approx(BEFORE[80:].mean())
        assert (found["ndcg@10/tail"].examples, found["ndcg@10/head"].examples) == (10, QUERIES - 80)

    @pytest.mark.parametrize("jitter", [0.0, 0.001])
    def test_the_tail_is_not_empty_where_most_queries_share_the_lowest_count(self, jitter: float) -> None:
        """Its loss was PASS without a jitter of the counts, and REGRESSION with it."""
        counts = {f"q{i}": 1.0 + jitter * i if i < 70 else 50.0 + i for i in range(QUERIES)}
        after = BEFORE + np.where(np.arange(QUERIES) < 70, -0.15, 0.6)
        sides = {"retrieval": searched(BEFORE)}, {"retrieval": searched(np.clip(after, 0, 1))}
        card = read("contrastive", *sides, frequency=Frequency(counts, ""))
        found = lines(card)
        assert found["ndcg@10/tail"].reading == "LOST"
        assert card.label == "REGRESSION"
        if not jitter:
            assert (found["ndcg@10/tail"].examples, found["ndcg@10/head"].examples) == (70, QUERIES - 70)


class TestEffects:
    """A change has a name whatever is demanded or tolerated."""

    def card(self, shift: Any) -> Scorecard:
        rng = np.random.default_rng(0)
        before = 1.3 + 0.1 * rng.normal(size=200)
        sides = [
            {"retrieval": searched(BEFORE), "geometry": make("geometry", {"alignment": values}, "model")}
            for values in (before, before + shift)
        ]
        return read("contrastive", *sides)

    def happened(self, card: Scorecard, name: str) -> str:
        return scorecard_row(lines(card)[name])[SCORECARD_HEADER.index("what happened")]

    def test_a_small_loss_is_worse_and_a_small_gain_better(self) -> None:
        """0.038 of 1.3 is 3 %, which a threshold of 5 % lets pass."""
        noise = np.random.default_rng(1).normal(0, 0.1, 200)
        worse, better = self.card(0.038 + noise - noise.mean()), self.card(-0.038 + noise - noise.mean())
        assert (lines(worse)["alignment"].effect, lines(better)["alignment"].effect) == ("worse", "better")
        assert self.happened(worse, "alignment") == "rose: worse"
        assert self.happened(better, "alignment") == "fell: better"
        assert ", worse)" in worse.paragraph
        assert ", better)" in better.paragraph

    def test_what_did_not_move_is_unchanged(self) -> None:
        card = self.card(0.0)
        assert lines(card)["alignment"].effect == "unchanged"
        assert self.happened(card, "alignment") == "unchanged"
        assert "alignment is unchanged at 1.3" in card.paragraph

    def test_head_and_tail_show_their_own_number_of_queries(self) -> None:
        card = read("contrastive", {"retrieval": searched(BEFORE)}, {"retrieval": searched(BETTER)})
        n = SCORECARD_HEADER.index("n")
        shown = {line.metric: scorecard_row(line)[n] for line in card.lines}
        assert (shown["ndcg@10"], shown["ndcg@10/head"], shown["ndcg@10/tail"]) == ("90", "30", "30")

    def test_what_the_training_is_for_was_not_measured(self) -> None:
        card = read(
            "mlm", {"retrieval": searched(BEFORE)}, {"retrieval": searched(BETTER)}, reasons={"fill-mask": "no head"}
        )
        assert findings.conclusion(card) == "what the training is for was not measured: pseudo_perplexity (no head)"


def test_an_unknown_adaptation_and_flags_that_do_not_go_together_are_refused() -> None:
    with pytest.raises(RequestError, match="one of mlm, contrastive"):
        read("magic", {}, {})
    with pytest.raises(RequestError, match="`baseline`"):
        adaptation.check("mlm", None, None)
    with pytest.raises(RequestError, match="`adaptation`"):
        adaptation.check(None, "base", "sts.jsonl")
    with pytest.raises(RequestError, match="found 'magic'"):
        adaptation.check("magic", "base", None)
    adaptation.check(None, None, None)


def test_the_table_and_the_document(capsys: pytest.CaptureFixture[str]) -> None:
    card = read(
        "contrastive",
        {"retrieval": searched(BEFORE, "old\x1b[2J"), "sentence-similarity": similar(0.1)},
        {"retrieval": searched(BETTER, "new"), "sentence-similarity": similar(0.4)},
    )
    out = StringIO()
    _show_scorecard(Console(file=out, width=200), card)
    told = out.getvalue()
    assert "\x1b[2J" not in told
    assert "ndcg@10 *" in told
    assert "REGRESSION  the model has forgotten general language" in told
    assert "By hand." in told
    wide = StringIO()
    _show_scorecard(Console(file=wide, width=120, force_terminal=True), card)
    assert "AS EXPECTED" in wide.getvalue()
    written = json.loads(json.dumps(scorecard_document(card)))
    assert written["forgetting"] is True
    assert written["lines"][0]["metric"] == "ndcg@10"
    assert {"expected", "interval", "reading", "change"} <= set(written["lines"][0])


def test_all_of_mteb_is_to_be_kept() -> None:
    metric = Metric("mean_main_score", "", lambda c: mean_statistic(c["score"]))
    sides = [
        result(
            n, task="mteb", metrics={"mean_main_score": v}, outcomes=Outcomes(tuple("abcde"), {"score": np.full(5, v)})
        )
        for n, v in (("old", 60.0), ("new", 40.0))
    ]
    card = scorecard.read("contrastive", {"mteb": sides[0]}, {"mteb": sides[1]}, {"mteb": [metric]}, terms=TERMS)
    assert lines(card)["mean_main_score"].reading == "LOST"
    assert card.forgetting
