"""NanoBEIR on the command line: local folders like the hub's, each set and the mean over sets."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import calipers
from calipers import DataOptions
from calipers.core import SILENT, DataError, RequestError
from calipers.data import nanobeir as data
from calipers.metrics import bootstrap
from calipers.metrics.means import macro_mean_statistic
from calipers.tasks import nanobeir
from calipers.tasks.nanobeir import NanoBEIROptions
from tests.support.cross_encoders import tiny as make_tiny
from tests.support.evaluators import COMPAT
from tests.support.nano_sets import write_sets
from tests.support.samples import Run
from tests.support.scorers import FixedScorer

SETS = ("NanoMSMARCO", "NanoNFCorpus")
SCORER = FixedScorer(lambda q, d: sum(map(ord, q + d)) * 7919 % 1009)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Two sets of three queries; the second lacks the last query, so that the sets differ in size."""
    made = tmp_path_factory.mktemp("nano") / "sets"
    write_sets(made, SETS)
    shorten(made, "bm25/NanoNFCorpus.parquet", 2)
    return str(made)


def shorten(folder: Path, file: str, rows: int) -> None:
    import pyarrow.parquet as pq

    table = pq.read_table(folder / file)
    pq.write_table(table.slice(0, rows), folder / file)


@pytest.fixture(scope="module")
def tiny(minilm: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A real cross-encoder that was never trained: two layers of 32, the tokenizer of all-MiniLM-L6-v2."""
    shape = {"num_attention_heads": 2, "intermediate_size": 64, "max_position_embeddings": 512}
    return make_tiny(tmp_path_factory.mktemp("tiny"), minilm, initializer_range=0.5, **shape)


def run(folder: str, model: Any = SCORER, **options: Any) -> Any:
    asked = {"sets": "msmarco,nfcorpus", **options}
    return calipers.evaluate(model, task="nanobeir", task_options=asked, dataset=folder, resamples=200)


# --- parity ----------------------------------------------------------------------------------------------------


def test_a_real_cross_encoder_on_the_command_line_is_theirs(
    folder: str, tiny: Path, calipers: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import datasets
    from sentence_transformers import CrossEncoder
    from sentence_transformers.cross_encoder.evaluation import CrossEncoderNanoBEIREvaluator

    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", str(tmp_path / "cache"))
    asked = ("eval", "-m", tiny, "--task", "nanobeir", "--dataset", folder, "--sets", "msmarco,NFCorpus")
    found = calipers(*asked, "--rerank-k", "17", "--at-k", "5", "--compat", COMPAT, "--resamples", "50", "--json")
    assert found.returncode == 0, found.stderr
    metrics = json.loads(found.stdout)["metrics"]
    evaluator = CrossEncoderNanoBEIREvaluator(["msmarco", "NFCorpus"], folder, rerank_k=17, at_k=5, write_csv=False)
    expected = evaluator(CrossEncoder(str(tiny), device="cpu"))
    ours = {}
    for name, value in metrics.items():
        kind, _, part = name.partition("/")
        ours[f"{f'Nano{nanobeir.SETS[part]}' if part else 'NanoBEIR'}_R17_{'' if part else 'mean_'}{kind}"] = value
    assert len(expected) == 18
    assert metrics["map/msmarco"] != metrics["base_map/msmarco"]
    assert ours == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("always", [True, False])
def test_the_task_and_the_drop_in_evaluator_agree(folder: str, always: bool) -> None:
    from calipers.interop.sentence_transformers import CrossEncoderNanoBEIREvaluator

    evaluator = CrossEncoderNanoBEIREvaluator(["msmarco", "nfcorpus"], folder, always_rerank_positives=always)
    expected = evaluator(SCORER)
    result = run(folder, always_rerank_positives=always)
    for kind in ("map", "ndcg@10", "base_mrr@10"):
        assert result.metrics[kind] == pytest.approx(expected[f"NanoBEIR_R100_mean_{kind}"], abs=1e-12)
        assert result.metrics[f"{kind}/nfcorpus"] == pytest.approx(expected[f"NanoNFCorpus_R100_{kind}"], abs=1e-12)


# --- each set counts the same ----------------------------------------------------------------------------------


def test_the_mean_is_over_sets_and_not_over_queries(folder: str) -> None:
    result = run(folder)
    outcomes = result.outcomes
    assert outcomes.ids == ("msmarco/q0", "msmarco/q1", "msmarco/q2", "nfcorpus/q0", "nfcorpus/q1")
    assert outcomes.columns["set"].tolist() == [5, 5, 5, 6, 6]
    values = outcomes.columns["ndcg@10"]
    assert result.metrics["ndcg@10"] == pytest.approx((values[:3].mean() + values[3:].mean()) / 2)
    assert result.metrics["ndcg@10/msmarco"] == pytest.approx(values[:3].mean())
    assert next(iter(result.metrics)) == "ndcg@10"
    assert outcomes.counts["sets"] == 2


def test_the_macro_mean_of_resamples_by_plain_loops() -> None:
    rng = np.random.default_rng(0)
    values, groups = rng.normal(size=40), rng.choice([2, 3, 11], size=40)
    values[::7] = np.nan
    drawn = rng.integers(40, size=(40, 30))
    counts = np.array([np.bincount(column, minlength=40) for column in drawn.T]).T
    found = macro_mean_statistic(values, groups)(counts)
    for column, value in zip(drawn.T, found, strict=True):
        means = [np.nanmean(values[column][groups[column] == g]) for g in (2, 3, 11)]
        assert value == pytest.approx(np.mean(means))


def test_a_resample_without_a_query_of_some_set_is_undefined() -> None:
    values, groups = np.array([1.0, 0.0, 0.5]), np.array([0, 0, 1])
    found = macro_mean_statistic(values, groups)(np.array([[1, 0, 2], [1, 3, 0], [1, 0, 1]]))
    assert found == pytest.approx([0.5, np.nan, 0.75], nan_ok=True)
    assert np.isnan(macro_mean_statistic(np.array([1.0, np.nan]), np.array([0, 1]))(np.ones((2, 1), int))).all()
    assert np.isnan(macro_mean_statistic(np.zeros(0), np.zeros(0))(np.ones((0, 2), int))).all()
    (drawn,) = bootstrap.distribution([macro_mean_statistic(values, groups)], 3, resamples=100, seed=0)
    assert bootstrap.percentile_interval(drawn, confidence=0.95) is None  # 8 of 27 resamples lack the only one of set 1


def test_samples_are_for_each_set(folder: str) -> None:
    asked = {"task": "nanobeir", "task_options": {"sets": "msmarco,nfcorpus"}, "dataset": folder, "resamples": 20}
    result = calipers.evaluate(SCORER, **asked, data_options=DataOptions(samples=1))
    assert [id.partition("/")[0] for id in result.outcomes.ids] == ["msmarco", "nfcorpus"]
    assert result.dataset.requested == 2
    whole = calipers.evaluate(SCORER, **asked)
    assert whole.fingerprint == calipers.evaluate(SCORER, **asked).fingerprint != result.fingerprint


# --- options and data ------------------------------------------------------------------------------------------


def test_eleven_sets_by_default_and_thirteen_for_all() -> None:
    assert len(NanoBEIROptions().splits) == 11
    assert list(NanoBEIROptions(sets="all").splits) == list(nanobeir.SETS)
    assert NanoBEIROptions(sets="NQ, scidocs").splits == {"nq": "NanoNQ", "scidocs": "NanoSCIDOCS"}
    names = [metric.name for metric in nanobeir.metrics_for(NanoBEIROptions(sets="nq", at_k=3))]
    assert names == [f"{b}{m}{s}" for s in ("", "/nq") for b in ("", "base_") for m in ("ndcg@3", "mrr@3", "map")]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"sets": "msmarco,wikipedia"}, "`sets` names 'wikipedia': expected all, or some of climatefever"),
        ({"sets": ""}, "`sets` names ''"),
        ({"sets": "nq,NQ"}, "`sets` names nq twice"),
        ({"rerank_k": 0}, "`rerank_k` must be at least 1, found 0"),
        ({"at_k": 0}, "`at_k` must be at least 1"),
        ({"compat": "trec_eval"}, "`compat` must be"),
    ],
)
def test_options_that_make_no_sense_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(RequestError, match=message):
        NanoBEIROptions(**options)


@pytest.mark.parametrize("wish", [{"split": "test"}, {"name": "corpus"}, {"streaming": True}, {"revision": "main"}])
def test_flags_that_a_folder_of_sets_cannot_follow_are_refused(folder: str, wish: dict[str, Any]) -> None:
    with pytest.raises(RequestError, match=r"do not apply|are for the hub"):
        calipers.evaluate(SCORER, task="nanobeir", dataset=folder, data_options=DataOptions(**wish))


def test_a_set_that_is_not_there_is_named(folder: str) -> None:
    with pytest.raises(DataError, match=r"Could not load subset 'corpus' split 'NanoNQ'.*it has NanoMSMARCO"):
        run(folder, sets="msmarco,nq")


def test_judged_queries_that_bm25_forgot_are_warned_of(folder: str) -> None:
    assert any("split NanoNFCorpus: bm25 lacks 1 judged queries" in warning for warning in run(folder).warnings)


def test_a_query_that_is_ranked_twice_is_refused(tmp_path: Path) -> None:
    twice: Callable[[str, Any], Any] = lambda config, rows: rows + rows[:1] if config == "bm25" else rows  # noqa: E731
    folder = write_sets(tmp_path / "sets", SETS[:1], twice)
    with pytest.raises(DataError, match="ranks a query twice in bm25 of the set msmarco: msmarco/q0"):
        run(folder, sets="msmarco")


def test_files_in_pieces_and_the_package_datasets_give_the_same(
    folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The hub's names of files are read here; a layout that only README.md tells, by the package datasets."""
    import datasets

    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", str(tmp_path / "cache"))
    pieces = Path(write_sets(tmp_path / "sets", SETS))
    for config in ("corpus", "queries", "qrels", "bm25"):
        (pieces / config).rename(pieces / f"{config}-files")
        for file in (pieces / f"{config}-files").iterdir():
            file.rename(file.with_stem(f"{file.stem}-00000-of-00001"))
    readme = (pieces / "README.md").read_text()
    (pieces / "README.md").write_text(readme.replace(".parquet", "-*.parquet").replace("/Nano", "-files/Nano"))
    by_package = data.load(str(pieces), {"msmarco": "NanoMSMARCO"})
    for config in ("corpus", "queries", "qrels", "bm25"):
        (pieces / f"{config}-files").rename(pieces / config)
    by_files = data.load(str(pieces), {"msmarco": "NanoMSMARCO"})
    assert by_files.fingerprint == by_package.fingerprint == data.load(folder, {"msmarco": "NanoMSMARCO"}).fingerprint


def test_the_report_has_a_row_for_each_set(folder: str) -> None:
    import io

    from rich.console import Console

    from calipers.rendering import text

    console = Console(file=io.StringIO(), width=200)
    text.show_result(console, run(folder), nanobeir.TASK)
    shown = console.file.getvalue()  # type: ignore[attr-defined]
    assert "ndcg@10/msmarco" not in shown
    (row,) = [line for line in shown.splitlines() if line.startswith("msmarco")]
    assert len(row.split()) == 7
    text.show_task(console, nanobeir.TASK)
    assert "METRIC/PART" in console.file.getvalue()  # type: ignore[attr-defined]


def test_outcomes_come_with_scores_of_all_documents(folder: str) -> None:
    rows = data.load(folder, NanoBEIROptions(sets="msmarco").splits, rerank_k=5)
    found = nanobeir.run(SCORER, rows, NanoBEIROptions(sets="msmarco", rerank_k=5), SILENT)
    assert {len(documents) for documents in rows.columns["documents_column"]} == {5}
    assert len(found.details["documents"]["score"]) == found.counts["documents"]
    assert found.details["documents"]["place"][:5].tolist() == [0, 1, 2, 3, 4]
