"""BEIR data as the hub has them, from local copies: the same Dataset as the folder of files gives."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

import calipers
from calipers import DataOptions
from calipers.core import DataError, Dataset, RequestError
from calipers.data import beir
from calipers.tasks import retrieval
from tests.support.samples import Run, write_jsonl

CORPUS = [
    {"_id": "1", "title": "Cats", "text": "The cat sleeps on the sofa."},
    {"_id": "2", "title": "", "text": "Dogs bark at night."},
    {"_id": "3", "title": "", "text": "A ship sails to the harbour."},
]
QUERIES = [{"_id": "11", "text": "sleeping cat"}, {"_id": "12", "text": "dogs at night"}, {"_id": "13", "text": "sail"}]
TEST = [{"query-id": 11, "corpus-id": 1, "score": 2}, {"query-id": 12, "corpus-id": 2, "score": 1}]
TRAIN = [{"query-id": 13, "corpus-id": 3, "score": 1}]
Configs = Mapping[str, Mapping[str, Sequence[dict[str, Any]]]]  # configuration → split → rows


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import datasets

    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", str(tmp_path / "cache"))


def publish(folder: Path, configs: Configs) -> str:
    """A dataset as the hub has it: parquet files, and a README.md that says which is what."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    lines = ["---", "configs:"]
    for config, splits in configs.items():
        lines += [f"- config_name: {config}", "  data_files:"]
        (folder / config).mkdir(parents=True)
        for split, rows in splits.items():
            file = f"{config}/{split}-00000-of-00001.parquet"
            pq.write_table(pa.Table.from_pylist(list(rows)), folder / file)
            lines += [f"  - split: {split}", f"    path: {file}"]
    (folder / "README.md").write_text("\n".join([*lines, "---", ""]))
    return str(folder)


TEXTS = {"corpus": {"corpus": CORPUS}, "queries": {"queries": QUERIES}}
JUDGED = {"train": TRAIN, "test": TEST}


@pytest.fixture
def plain(tmp_path: Path) -> Dataset:
    folder = tmp_path / "plain"
    (folder / "qrels").mkdir(parents=True)
    write_jsonl(folder / "corpus.jsonl", CORPUS)
    write_jsonl(folder / "queries.jsonl", QUERIES)
    for split, rows in JUDGED.items():
        lines = [f"{row['query-id']}\t{row['corpus-id']}\t{row['score']}\n" for row in rows]
        (folder / "qrels" / f"{split}.tsv").write_text("".join(["query-id\tcorpus-id\tscore\n", *lines]))
    return beir.load(str(folder))


@pytest.mark.parametrize("config", ["default", "qrels"])
def test_judgements_in_a_configuration(tmp_path: Path, plain: Dataset, config: str) -> None:
    """As mteb/scifact has them."""
    found = beir.load(publish(tmp_path / "scifact", {**TEXTS, config: JUDGED}))
    assert (found.columns, found.counts, found.fingerprint) == (plain.columns, plain.counts, plain.fingerprint)
    assert found.source.split == "test"
    assert beir.load(str(tmp_path / "scifact"), DataOptions(split="train")).ids == ("13",)


def test_judgements_in_a_dataset_of_their_own(tmp_path: Path, plain: Dataset) -> None:
    """As BeIR/scifact and BeIR/scifact-qrels have them: ids there are numbers."""
    folder = publish(tmp_path / "scifact", TEXTS)
    publish(tmp_path / "scifact-qrels", {"default": JUDGED})
    assert beir.load(folder).fingerprint == plain.fingerprint


def test_several_of_them_in_one_dataset(tmp_path: Path, plain: Dataset) -> None:
    other = {"fr-corpus": {"test": CORPUS[:1]}, "fr-queries": {"test": QUERIES[:1]}, "fr-qrels": {"test": TEST[:1]}}
    english = {"en-corpus": {"test": CORPUS}, "en-queries": {"test": QUERIES}, "en-qrels": {"test": TEST}}
    folder = publish(tmp_path / "both", {**other, **english})
    found = beir.load(folder, DataOptions(name="en"))
    assert (found.fingerprint, found.source.name) == (plain.fingerprint, "en")
    with pytest.raises(DataError, match=r"no configuration 'corpus', .*: fr-corpus, fr-queries"):
        beir.load(folder)


def test_a_clone_with_judgements_in_jsonl(tmp_path: Path, plain: Dataset) -> None:
    write_jsonl(tmp_path / "corpus.jsonl", CORPUS)
    write_jsonl(tmp_path / "queries.jsonl", QUERIES)
    (tmp_path / "qrels").mkdir()
    write_jsonl(tmp_path / "qrels" / "test.jsonl", [{**row, "score": float(row["score"])} for row in TEST])
    assert beir.load(str(tmp_path)).fingerprint == plain.fingerprint
    write_jsonl(tmp_path / "qrels" / "test.jsonl", [{"query-id": 11, "corpus-id": 1}])
    with pytest.raises(DataError, match=r"test\.jsonl, line 1, column 'score': expected a number, found nothing"):
        beir.load(str(tmp_path))


def test_what_is_missing_is_named(tmp_path: Path) -> None:
    folder = publish(tmp_path / "none", TEXTS)
    with pytest.raises(
        DataError, match=r"has no judgements: expected a configuration 'default' or 'qrels', found corpus"
    ):
        beir.load(folder)
    folder = publish(tmp_path / "split", {**TEXTS, "default": JUDGED})
    with pytest.raises(DataError, match=r"no qrels of 'dev': it has train, test \(choose one with `split`\)"):
        beir.load(folder, DataOptions(split="dev"))
    folder = publish(tmp_path / "parts", {**TEXTS, "corpus": {"a": CORPUS, "b": CORPUS}, "default": JUDGED})
    with pytest.raises(DataError, match=r"\(corpus\) has no split 'test': it has a, b"):
        beir.load(folder)
    folder = publish(tmp_path / "twice", {**TEXTS, "corpus": {"corpus": CORPUS + CORPUS[1:2]}, "default": JUDGED})
    with pytest.raises(DataError, match=r"\(corpus, corpus\), row 3: the id '2' is already used at .*row 1"):
        beir.load(folder)


def test_options_for_the_hub_and_options_that_do_not_apply(tmp_path: Path, plain: Dataset) -> None:
    folder = publish(tmp_path / "scifact", {**TEXTS, "default": JUDGED})
    for options in ({"revision": "main"}, {"streaming": True}):
        with pytest.raises(RequestError, match=r"are for the hub|do not apply"):
            calipers.evaluate("bm25", task="retrieval", dataset=folder, data_options=DataOptions(**options))
    with pytest.raises(RequestError, match="are for the hub"):
        beir.load(plain.source.path, DataOptions(name="en"))


def test_a_dataset_that_the_hub_does_not_give_is_an_error_of_the_data(calipers: Run) -> None:
    """Tests may not reach the hub: an id that is not here is refused in one sentence, by its name."""
    found = calipers("eval", "-m", "bm25", "--task", "retrieval", "--no-store")
    assert found.returncode == 2
    assert "'mteb/scifact' is no local file but a dataset of the hub: it is not in the cache" in found.stderr
    assert retrieval.TASK.default_data.path == "mteb/scifact"


def test_retrieval_on_a_copy_of_a_hub_dataset(tmp_path: Path, calipers: Run) -> None:
    folder = publish(tmp_path / "scifact", {**TEXTS, "default": JUDGED})
    found = calipers("eval", "-m", "bm25", "--task", "retrieval", "--dataset", folder, "--json", "--no-store")
    assert found.returncode == 0, found.stderr
    assert json.loads(found.stdout)["metrics"]["mrr@10"] == 1.0
