"""How our evaluators for sentence-transformers are fed and used: models, folders like NanoBEIR, a real training."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sentence_transformers.cross_encoder import evaluation as theirs

from calipers.core import InvalidOutput, RequestError
from calipers.interop import sentence_transformers as ours
from tests.support.cross_encoders import tiny as make_tiny
from tests.support.evaluators import COMPAT, NAMES, assert_parity, rerank
from tests.support.masked_models import make_model
from tests.support.nano_sets import write_sets
from tests.support.scorers import FixedCrossEncoder, FixedScorer


@pytest.mark.parametrize("name", NAMES)
def test_signatures_are_theirs_and_compat(name: str) -> None:
    mine = dict(inspect.signature(getattr(ours, name)).parameters)
    assert mine.pop("compat").default is None
    others = inspect.signature(getattr(theirs, name)).parameters
    assert [(p.name, p.kind, p.default) for p in mine.values()] == [
        (p.name, p.kind, p.default) for p in others.values()
    ]
    with pytest.raises(ValueError, match="compat must be"):
        getattr(ours, name)([], **({} if "NanoBEIR" in name else {list(mine)[1]: []}), compat="trec_eval")


# --- asking ----------------------------------------------------------------------------------------------------


def test_all_pairs_are_asked_for_in_one_call_and_repeats_once() -> None:
    rows = [{"query": "q", "positive": ["a"], "documents": ["b", "a", "c"]} for _ in range(3)]
    model = FixedCrossEncoder({("q", d): float(ord(d)) for d in "abc"})
    ours.CrossEncoderRerankingEvaluator(rows)(model)
    assert [sorted(call) for call in model.calls] == [[("q", "a"), ("q", "b"), ("q", "c")]]


def test_compat_keeps_their_batches_where_padding_leaks(tmp_path: Path) -> None:
    """ConvBERT reads padding: a score depends on the pairs beside it, repeats among them."""
    from sentence_transformers import CrossEncoder

    folder = make_model("convbert", tmp_path, head="SequenceClassification", num_labels=1)
    texts = ["dog", "the old cat sleeps", "cat", "a big dog runs in the park near the old house", "see the street"]
    rows = [{"query": q, "positive": texts[1:2], "documents": [*texts, *texts[:2]]} for q in ("cat", "house", "cat")]
    encoder = CrossEncoder(str(folder), device="cpu")
    scores = [
        kind.CrossEncoderRerankingEvaluator(rows, batch_size=3, **compat)(encoder)
        for kind, compat in ((ours, {"compat": COMPAT}), (theirs, {}))
    ]
    assert scores[0] == pytest.approx(scores[1], abs=1e-9)
    pairs, gold = [[row["query"], text] for row in rows for text in texts], list(range(15))
    scores = [
        kind.CrossEncoderCorrelationEvaluator(pairs, gold, batch_size=3, **compat)(encoder)
        for kind, compat in ((ours, {"compat": COMPAT}), (theirs, {}))
    ]
    assert scores[0] == pytest.approx(scores[1], abs=1e-9)


def test_a_scorer_of_ours_gives_what_a_cross_encoder_gives() -> None:
    pairs, labels = [["q", d] for d in "abcd"], [0, 1, 0, 1]
    for num_labels, value in ((1, float), (3, lambda x: [x, 99.5, 2 * x - 99])):
        scores = {("q", d): value(ord(d)) for d in "abcd"}
        one, two = (ours.CrossEncoderClassificationEvaluator(pairs, labels, show_progress_bar=s) for s in (False, True))
        assert one(FixedCrossEncoder(scores, num_labels)) == two(FixedScorer(lambda a, b, scores=scores: scores[a, b]))
    assert two.outcomes.columns["prediction"].tolist() == [1, 1, 1, 2]


def test_dead_scores_and_wrong_models_are_refused() -> None:
    row = {"query": "q", "positive": ["b"], "negative": ["a"]}
    with pytest.raises(InvalidOutput, match="rows 0"):
        rerank([row], lambda q, d: math.nan)
    with pytest.raises(ValueError, match="gives 2 scores a pair"):
        rerank([row], lambda q, d: [1, 2])
    with pytest.raises(RequestError, match="prompt_name"):
        rerank([row], prompt_name="query")
    with pytest.raises(RequestError, match="predict"):
        ours.CrossEncoderRerankingEvaluator([row])(object())
    for wrong in ({"query": "q", "positive": "a"}, {**row, "documents": []}, {"positive": "a", "negative": []}):
        with pytest.raises(ValueError, match="requires"):
            rerank([wrong])


def test_csv_only_where_asked(tmp_path: Path) -> None:
    rows = [{"query": "q", "positive": ["b"], "negative": ["a"]}]
    for written, folder in ((False, tmp_path), (True, None)):
        ours.CrossEncoderRerankingEvaluator(rows, write_csv=written)(FixedScorer(lambda q, d: ord(d)), folder)
    assert not list(tmp_path.iterdir())


def test_outcomes_of_two_models_can_be_compared() -> None:
    rows = [{"query": q, "positive": ["b"], "documents": ["a", "b"]} for q in "xyz"]
    evaluator = ours.CrossEncoderRerankingEvaluator(rows)
    values = []
    for sign in (1, -1):
        evaluator(FixedScorer(lambda q, d, sign=sign: sign * ord(d)))
        values.append(evaluator.outcomes)
    better, worse = values
    assert (better.columns["map"] - worse.columns["map"]).tolist() == [0.5, 0.5, 0.5]
    assert [one <= two for one, two in pairwise(better.details["documents"]["example"])] == [True] * 5


# --- NanoBEIR --------------------------------------------------------------------------------------------------


@pytest.fixture
def sets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """A maker of local folders with two sets; datasets keeps its cache beside them."""
    import datasets

    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", str(tmp_path / "cache"))
    datasets.disable_progress_bars()
    return lambda **options: write_sets(tmp_path / "sets", ("NanoMSMARCO", "NanoNFCorpus"), **options)


def by_text(levels: int) -> FixedCrossEncoder:
    rng = np.random.default_rng(levels)
    return FixedCrossEncoder(
        {
            (f"{name} query {q}", f"{name} document d{d}"): float(rng.integers(levels))
            for name in ("NanoMSMARCO", "NanoNFCorpus")
            for q in range(3)
            for d in range(30)
        }
    )


@pytest.mark.parametrize("always", [True, False])
@pytest.mark.parametrize("levels", [1, 4, 10**6])
def test_nanobeir_is_theirs_in_compat_mode(sets: Callable[..., str], always: bool, levels: int) -> None:
    options = {
        "dataset_names": ["msmarco", "NFCorpus"],
        "dataset_id": sets(),
        "rerank_k": 17,
        "at_k": 5,
        "always_rerank_positives": always,
        "aggregate_fn": max,
        "aggregate_key": "best",
    }
    mine = ours.CrossEncoderNanoBEIREvaluator(**options, compat=COMPAT)
    assert_parity(mine, theirs.CrossEncoderNanoBEIREvaluator(**options), lambda: by_text(levels))
    assert mine.primary_metric == "NanoBEIR_R17_best_ndcg@5"


def test_nanobeir_asks_once_for_all_sets_and_keeps_what_came_out(sets: Callable[..., str]) -> None:
    evaluator = ours.CrossEncoderNanoBEIREvaluator(["msmarco", "nfcorpus"], sets())
    model = by_text(10**6)
    found = evaluator(model)
    assert len(model.calls) == 1
    assert list(evaluator.outcomes) == ["NanoMSMARCO_R100", "NanoNFCorpus_R100"]
    assert evaluator.outcomes["NanoMSMARCO_R100"].ids == ("q0", "q1", "q2")
    values = [outcomes.columns["ndcg@10"].mean() for outcomes in evaluator.outcomes.values()]
    assert found[evaluator.primary_metric] == pytest.approx(np.mean(values))


def test_thirteen_sets_and_the_two_that_are_left_out() -> None:
    from sentence_transformers.cross_encoder.evaluation.nano_beir import DATASET_NAME_TO_HUMAN_READABLE

    from calipers.tasks.nanobeir import SETS, USUAL

    assert SETS == DATASET_NAME_TO_HUMAN_READABLE
    assert set(SETS) - set(USUAL) == {"arguana", "touche2020"}


def test_folders_that_cannot_be_read_are_refused(sets: Callable[..., str], tmp_path: Path) -> None:
    for names, why in (([], "cannot be empty"), (["msmarco", "wikipedia"], "wikipedia: no NanoBEIR dataset")):
        with pytest.raises(ValueError, match=why):
            ours.CrossEncoderNanoBEIREvaluator(names)
    with pytest.raises(ValueError, match="Could not load subset 'corpus' split 'NanoNQ'"):
        ours.CrossEncoderNanoBEIREvaluator(["nq"], sets())


@pytest.mark.parametrize(
    ("config", "change", "why"),
    [
        ("corpus", lambda rows: rows[1:], "not in corpus: d0"),
        ("queries", lambda rows: rows[1:], "not in queries: q0"),
        ("qrels", lambda rows: [row for row in rows if row["query-id"] != "q1"], "without qrels: q1"),
        ("bm25", lambda rows: [{"query-id": row["query-id"]} for row in rows], "missing required columns: corpus-ids"),
    ],
)
def test_ids_and_columns_that_are_missing_are_named(
    sets: Callable[..., str], config: str, change: Any, why: str
) -> None:
    folder = sets(change=lambda name, rows: change(rows) if name == config else rows)
    with pytest.raises(ValueError, match=why):
        ours.CrossEncoderNanoBEIREvaluator(["msmarco"], folder)


def test_judged_queries_that_bm25_forgot_are_warned_of(
    sets: Callable[..., str], caplog: pytest.LogCaptureFixture
) -> None:
    folder = sets(change=lambda name, rows: rows[1:] if name == "bm25" else rows)
    ours.CrossEncoderNanoBEIREvaluator(["msmarco"], folder)
    assert "bm25 lacks 1 judged queries, which do not count: q0" in caplog.text


# --- a real training -------------------------------------------------------------------------------------------

WORDS = ["amber", "basil", "cedar", "denim", "ember", "fjord", "gourd", "hazel", "ivory", "jade", "kelp", "linen"]
GOOD = WORDS[:4]


@pytest.fixture
def tiny(minilm: Path, tmp_path: Path) -> Iterator[Any]:
    """An untrained CrossEncoder: two layers of 32, the tokenizer of all-MiniLM-L6-v2."""
    import torch
    from sentence_transformers import CrossEncoder

    shape = {
        "num_attention_heads": 2,
        "intermediate_size": 64,
        "max_position_embeddings": 64,
        "initializer_range": 0.02,
    }
    folder = make_tiny(tmp_path / "tiny", minilm, **shape)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # several only get in each other's way on so small a model
    yield CrossEncoder(str(folder), max_length=32, device="cpu")
    torch.set_num_threads(threads)


def train(model: Any, evaluator: Any, folder: Path) -> Any:
    """Twelve steps that teach the model to put the good words last, with an evaluation after every second one."""
    from datasets import Dataset
    from sentence_transformers.cross_encoder import CrossEncoderTrainer, CrossEncoderTrainingArguments
    from sentence_transformers.cross_encoder.losses import BinaryCrossEntropyLoss

    rows = [{"a": a, "b": b, "label": float(b not in GOOD)} for a in WORDS for b in WORDS]
    every_second = {"eval_strategy": "steps", "eval_steps": 2, "save_strategy": "steps", "save_steps": 2}
    quietly = {"report_to": "none", "use_cpu": True, "disable_tqdm": True, "seed": 1}
    arguments = CrossEncoderTrainingArguments(
        output_dir=str(folder),
        max_steps=12,
        learning_rate=0.005,
        load_best_model_at_end=True,
        metric_for_best_model="eval_words_ndcg@10",
        **every_second,
        **quietly,
    )
    loss = BinaryCrossEntropyLoss(model)
    trainer = CrossEncoderTrainer(model, arguments, Dataset.from_list(rows), evaluator=evaluator, loss=loss)
    trainer.train()
    return trainer.state


def test_a_trainer_keeps_the_checkpoint_that_our_figure_calls_best(tiny: Any, tmp_path: Path) -> None:
    samples = [{"query": query, "positive": GOOD, "documents": WORDS[2:]} for query in WORDS]
    evaluator = ours.CrossEncoderRerankingEvaluator(samples, name="words")
    state = train(tiny, evaluator, tmp_path)
    key = "eval_words_ndcg@10"
    history = {log["step"]: log[key] for log in state.log_history if key in log}
    best = max(history, key=lambda step: (history[step], -step))
    assert sorted(history) == [2, 4, 6, 8, 10, 12]
    assert best < 12  # the last is not the best, so there was something to choose
    assert state.best_metric == history[best]
    assert Path(state.best_model_checkpoint).name == f"checkpoint-{best}"
    # What was loaded at the end is that checkpoint: it measures the same again, and its card says who measured.
    assert evaluator(tiny)["words_ndcg@10"] == pytest.approx(history[best], abs=1e-6)
    rows = (tmp_path / "eval/CrossEncoderRerankingEvaluator_words_results_@10.csv").read_text().splitlines()
    assert [float(row.split(",")[4]) for row in rows[1:]] == pytest.approx(list(history.values()))
    card = (tmp_path / f"checkpoint-{best}" / "README.md").read_text()
    assert "calipers.interop.sentence_transformers.CrossEncoderRerankingEvaluator" in card


def test_a_trainer_survives_an_evaluator_without_samples(tiny: Any, tmp_path: Path) -> None:
    state = train(tiny, ours.CrossEncoderRerankingEvaluator([], name="words"), tmp_path)
    assert state.global_step == 12
    assert state.best_model_checkpoint is None
