"""What a scorecard needs beside the layers: frequencies of queries, heads, texts; and the command itself."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from calipers.core import DataError, DataSource, RequestError
from calipers.data import corpora
from calipers.diagnosis import adaptation
from calipers.models import ModelOptions
from calipers.shop import sample as shop
from tests.support.masked_models import make_model
from tests.support.samples import Run, write_jsonl

SOURCE = DataSource(path="")


class TestFrequency:
    def write(self, folder: Path, *counts: object, name: str = "count") -> Path:
        rows = [{"_id": f"q{i}", "text": "mug", name: count} for i, count in enumerate(counts)]
        return write_jsonl(folder / "queries.jsonl", rows)

    @pytest.mark.parametrize("name", ["count", "frequency"])
    def test_a_column_of_the_queries_says_it(self, tmp_path: Path, name: str) -> None:
        found = corpora.load_query_counts(
            dataset=None, queries=str(self.write(tmp_path, 5, "7", None, name=name)), source=SOURCE
        )
        assert found == (name, {"q0": 5.0, "q1": 7.0})

    def test_of_a_beir_folder_too(self, tmp_path: Path) -> None:
        folder = shop.write(tmp_path)
        assert corpora.load_query_counts(dataset=str(folder), queries=None, source=SOURCE) is None
        rows = [json.loads(line) for line in (folder / "queries.jsonl").read_text(encoding="utf-8").splitlines()]
        write_jsonl(folder / "queries.jsonl", [{**row, "count": i} for i, row in enumerate(rows)])
        found = corpora.load_query_counts(dataset=str(folder), queries=None, source=SOURCE)
        assert found
        assert found[1]["q003"] == 3.0

    def test_no_such_column_is_none_and_a_negative_count_an_error(self, tmp_path: Path) -> None:
        assert (
            corpora.load_query_counts(dataset=None, queries=str(self.write(tmp_path, 1, name="x")), source=SOURCE)
            is None
        )
        assert corpora.load_query_counts(dataset=None, queries=None, source=SOURCE) is None
        with pytest.raises(DataError, match="-2 times"):
            corpora.load_query_counts(dataset=None, queries=str(self.write(tmp_path, -2)), source=SOURCE)

    def test_else_the_words_of_the_corpus_do(self) -> None:
        found = adaptation.query_frequency(shop.load(), path=None, queries=None, source=SOURCE)
        assert found
        assert len(found.of) == 200
        assert "the data have no column 'count'" in found.how

    def test_word_frequency_by_hand(self) -> None:
        texts = ["Red mug", "red bowl", "blue mug, red mug"]
        found = adaptation.word_frequency(["RED", "red mug", "teal", ""], texts)
        np.testing.assert_allclose(found[:3], [np.log(4), (np.log(4) + np.log(3)) / 2, 0.0])
        assert np.isnan(found[3])


class TestHeads:
    def test_a_masked_language_model_has_its_own(self, tmp_path: Path) -> None:
        head = adaptation.find_head(str(make_model("bert", tmp_path)), None, ModelOptions(pooling="mean"))
        assert head.top_tokens(["dog"], 1)[0].tokens

    def test_an_embedding_model_has_none_and_fits_no_other(self, minilm: Path, tmp_path: Path) -> None:
        assert adaptation.find_head(str(minilm), None, ModelOptions()) is None
        with pytest.raises(Exception, match="reads 32 numbers a token"):
            adaptation.find_head(str(minilm), str(make_model("bert", tmp_path)), ModelOptions())

    def test_only_pytorch_has_states(self, model: Callable[[str], Path]) -> None:
        static = str(model("potion-base-4m-int8"))
        assert adaptation.find_head(static, None, ModelOptions()) is None
        with pytest.raises(RequestError, match="PyTorch"):
            adaptation.find_head(static, static, ModelOptions())


def test_domain_texts_are_the_same_for_every_model() -> None:
    one, other = (adaptation.domain_texts(shop.load(), seed=42) for _ in range(2))
    assert one.ids == other.ids
    assert len(one) == 500


def write_small(folder: Path) -> list[str | Path]:
    """A corner of the shop, as flags."""
    made = shop.make(products=120, queries=20)
    corpus = write_jsonl(folder / "corpus.jsonl", [{"_id": p.id, "text": p.row["title"]} for p in made.products])
    queries = write_jsonl(folder / "queries.jsonl", [{"_id": q.id, "text": q.text} for q in made.queries])
    judged = [
        f"{q.id} 0 {id} {g}" for q, grades in zip(made.queries, made.qrels, strict=True) for id, g in grades.items()
    ]
    (folder / "qrels.txt").write_text("\n".join(judged) + "\n", encoding="utf-8")
    return ["--corpus", corpus, "--queries", queries, "--qrels", folder / "qrels.txt"]


def test_the_command_prints_a_scorecard(calipers: Run, tmp_path: Path) -> None:
    """Two random models: nothing is expected of the figures, all of the form."""
    old, new = make_model("bert", tmp_path / "old"), make_model("bert", tmp_path / "new", hidden_act="relu")
    (tmp_path / "entities.txt").write_text("garden\nstreet\nreaders\n", encoding="utf-8")
    pairs = [
        {"sentence1": f"{a} dog", "sentence2": f"{a} cats", "score": i}
        for i, a in enumerate(("the", "old", "big", "a"))
    ]
    sts = write_jsonl(tmp_path / "sts.jsonl", pairs)
    command = [
        "diagnose",
        new,
        *write_small(tmp_path),
        "--baseline",
        old,
        "--adaptation",
        "mlm",
        "--sts",
        sts,
        "--pooling",
        "mean",
    ]
    layers = ["--layers", "knowledge,semantic_gap", "--entities", tmp_path / "entities.txt"]
    done = calipers(*command, *layers, "--json", "--resamples", "200", "--fail-on", "never")
    assert done.returncode == 0, done.stderr
    card = json.loads(done.stdout)["scorecard"]
    assert (card["adaptation"], card["baseline"], card["candidate"]) == ("mlm", "old", "new")
    known = {line["metric"]: line for line in card["lines"]}
    assert known["pseudo_perplexity"]["baseline"] > 1
    assert known["entity_coherence_relative"]["examples"] == 3
    layer = json.loads(done.stdout)["layers"]["knowledge"]
    assert layer["metrics"]["lexical_drift"] is not None
    assert json.loads(done.stdout)["layers"]["semantic_gap"]["metrics"]["semantic_gap"] > 0


def test_flags_without_their_partner_are_refused(calipers: Run, tmp_path: Path, vectors: Path) -> None:
    done = calipers("diagnose", vectors, *write_small(tmp_path), "--adaptation", "mlm")
    assert done.returncode == 2
    assert "--baseline" in done.stderr
