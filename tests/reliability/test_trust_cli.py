"""`calipers trust`: what it prints, keeps and refuses, with precomputed vectors and with a real model."""

from __future__ import annotations

import io
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from calipers.cli import run
from calipers.core import InvalidOutput, RequestError
from calipers.data.texts import load_texts
from calipers.models import ModelOptions
from calipers.reliability import api
from calipers.reliability.api import TrustOptions
from calipers.runs import embedding
from calipers.runs.vector_cache import VectorCache
from tests.support.samples import Run, write_jsonl

WORDS = ("wine", "tea", "lamp", "chair", "phone")


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A BEIR folder of 100 products and 40 queries, half of which have no answer, and vectors for all their texts."""
    folder = tmp_path_factory.mktemp("shop")
    rng = np.random.default_rng(4)
    centres = rng.normal(size=(5, 6))
    products = [f"{WORDS[i % 5]} {i}" for i in range(100)]
    asked = [f"a {WORDS[i % 5]} no. {i}" if i < 20 else f"nothing {i}" for i in range(40)]
    vectors = [centres[i % 5] + 0.2 * rng.normal(size=6) for i in range(100)]
    vectors += [centres[i % 5] + 0.2 * rng.normal(size=6) if i < 20 else rng.normal(size=6) for i in range(40)]
    np.save(folder / "vectors.npy", np.array(vectors, np.float32))
    (folder / "vectors.txt").write_text("\n".join([*products, *asked]) + "\n", encoding="utf-8")
    write_jsonl(folder / "corpus.jsonl", [{"_id": f"p{i}", "title": "", "text": t} for i, t in enumerate(products)])
    write_jsonl(folder / "queries.jsonl", [{"_id": f"q{i}", "text": t} for i, t in enumerate(asked)])
    lines = [f"q{i}\tp{j}\t1" for i in range(40) for j in range(100) if i < 20 and j % 5 == i % 5]
    lines += [f"q{i}\tp0\t0" for i in range(20, 40)]
    (folder / "qrels").mkdir()
    (folder / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\n" + "\n".join(lines) + "\n")
    return folder


def test_a_query_is_scored_and_its_neighbours_are_shown(calipers: Run, shop: Path) -> None:
    found = calipers("trust", shop / "vectors.npy", "--corpus", shop, "--k", "3", "a wine no. 0", "nothing 25")
    assert found.returncode == 0, found.stderr
    assert "R_q, which is no probability" in found.stdout
    assert found.stdout.count("Decision") == 3
    assert found.stdout.index("Decision") < found.stdout.index("Model")
    assert "answer:" not in found.stdout  # nothing is calibrated
    assert "wine 0" in found.stdout or "wine 5" in found.stdout


def test_the_json_holds_score_parts_decision_and_neighbours(calipers: Run, shop: Path) -> None:
    found = calipers("trust", shop / "vectors.npy", "--corpus", shop, "--codec", "binary", "--json", "a tea no. 1")
    told = json.loads(found.stdout)
    query = told["queries"][0]
    g, i, r = query["stability"], query["coherence"], query["reliability"]
    assert r == pytest.approx(2 * g * i / (g + i))
    assert (told["schema"], told["codec"], told["k"], told["calibrated"]) == ("calipers/trust/1", "binary", 10, False)
    assert query["probability"] is None
    assert query["decision"] in ("hedge", "fall back")
    assert query["high_confidence"] is (r > 0.8)
    assert [n["rank"] for n in query["neighbours"]] == list(range(1, 11))
    assert query["neighbours"][0]["cosine"] == pytest.approx(query["top_score"], abs=1e-6)
    assert all(n["text"].startswith("tea") for n in query["neighbours"])


def test_a_corpus_may_be_a_file_with_a_text_on_each_line(calipers: Run, shop: Path, tmp_path: Path) -> None:
    lines = (shop / "vectors.txt").read_text(encoding="utf-8").splitlines()[:100]
    (tmp_path / "corpus.txt").write_text("\n".join(["", *lines]) + "\n", encoding="utf-8")
    found = calipers("trust", shop / "vectors.npy", "--corpus", tmp_path / "corpus.txt", "--json", "a tea no. 1")
    told = json.loads(found.stdout)
    assert told["corpus"]["documents"] == 100
    assert (
        int(told["queries"][0]["neighbours"][0]["id"]) % 5 == 2
    )  # tea 1 stands on line 3, and rows are numbered from 0


class Shop:
    """The vectors of the shop, and random ones for other texts: gibberish, vague terms, other domains."""

    def __init__(self, folder: Path, fingerprint: str = "sha256:shop") -> None:
        from calipers.core import ModelInfo

        self.info = ModelInfo("test", "shop", None, "cpu", fingerprint)
        texts = (folder / "vectors.txt").read_text(encoding="utf-8").splitlines()
        self.known = dict(zip(texts, np.load(folder / "vectors.npy"), strict=True))

    def encode(self, texts: list[str], **_: object) -> np.ndarray:
        rng = np.random.default_rng(1)
        return np.array([self.known.get(text, rng.normal(size=6)) for text in texts], np.float32)


def test_a_calibrated_score_is_kept_and_used_again(shop: Path, tmp_path: Path) -> None:
    options = TrustOptions(calibrate=str(shop / "qrels" / "test.tsv"))
    made = api.trust(Shop(shop), str(shop), ["a lamp no. 2", "nothing 30"], options=options)
    assert made.trust.calibrated
    assert made.trust.report["calibration"]["queries"] == 40
    assert [d["kind"] for d in made.trust.report["detectors"]] == ["gibberish", "vague", "out_of_domain"]
    made.trust.save(tmp_path / "t")
    again = api.trust(Shop(shop), str(shop), ["a lamp no. 2", "nothing 30"], options=TrustOptions(load=tmp_path / "t"))
    assert np.array_equal(again.scores.probability, made.scores.probability, equal_nan=True)
    assert again.scores.decision.tolist() == made.scores.decision.tolist()
    assert again.notes == ()


def test_another_model_and_another_corpus_are_refused(shop: Path, tmp_path: Path) -> None:
    api.trust(Shop(shop), str(shop)).trust.save(tmp_path / "t")
    with pytest.raises(RequestError, match="fitted for shop, whose files differ"):
        api.trust(Shop(shop, "sha256:other"), str(shop), options=TrustOptions(load=tmp_path / "t"))
    write_jsonl(tmp_path / "corpus.jsonl", [{"_id": str(i), "text": f"wine {5 * i}"} for i in range(20)])
    with pytest.raises(RequestError, match=f"fitted for the corpus {shop} .*: fit it again for this corpus"):
        api.trust(Shop(shop), str(tmp_path), ["a wine no. 0"], options=TrustOptions(load=tmp_path / "t"))


def test_a_corpus_is_embedded_once(calipers: Run, model: Callable[[str], Path], shop: Path, tmp_path: Path) -> None:
    static = model("potion-base-4m-int8")
    (tmp_path / "alone").mkdir()
    shop = Path(shutil.copy(shop / "corpus.jsonl", tmp_path / "alone")).parent  # without queries beside it
    for question in ("a wine no. 0", "a tea no. 1"):
        assert calipers("trust", static, "--corpus", shop, question).returncode == 0
        (kept,) = (tmp_path / "store" / "vectors").iterdir()  # of the corpus; not of the questions
        assert np.load(kept).shape[0] == 100
    cache = VectorCache(tmp_path / "store" / "vectors")
    encoder, _ = embedding.open_encoder(str(static), {}, ModelOptions(), cache)
    encoder.encode(load_texts(str(shop), "corpus").columns["text"])
    assert (encoder.encoded, encoder.reused) == (0, 100)
    elsewhere = tmp_path / "elsewhere"
    found = calipers("trust", static, "--corpus", shop, "--store", elsewhere, "--no-cache", "a wine no. 0")
    assert found.returncode == 0
    assert not elsewhere.exists()


@pytest.mark.parametrize("command", ["trust", "diagnose"])
def test_help_has_examples_and_fits_a_terminal(calipers: Run, command: str) -> None:
    told = calipers(command, "--help", env={"COLUMNS": "80"}).stdout
    assert f"\n    calipers {command} ./model" in told
    assert max(map(len, told.splitlines())) <= 80


def test_vectors_that_are_already_computed_hold_no_odd_queries(calipers: Run, shop: Path) -> None:
    arguments = ("--corpus", shop, "--calibrate", shop / "qrels" / "test.tsv", "--json")
    told = json.loads(calipers("trust", shop / "vectors.npy", *arguments).stdout)
    assert told["calibrated"]
    assert told["detectors"] == []


def test_what_a_calibration_found_is_shown_when_it_is_fitted(calipers: Run, shop: Path, tmp_path: Path) -> None:
    kept = tmp_path / "kept.trust"
    arguments = ("trust", shop / "vectors.npy", "--corpus", shop)
    calibrate = ("--calibrate", shop / "qrels" / "test.tsv", "--save", kept)
    first = calipers(*arguments, *calibrate, "--details", "a tea no. 1").stdout
    again = calipers(*arguments, "--load", kept, "a tea no. 1").stdout
    for word in ("probability stated", "queries answered", "than the top cosine alone", "bm25 overlap 10", "nAUC"):
        assert word in first
        assert word not in again.replace("(bm25 overlap 10", "")
    for text in (first, again):
        assert text.splitlines()[1].split()[0] == "Decision"
        assert "errors" in text


def test_questions_come_from_a_file_or_standard_input_and_answers_are_lines(
    calipers: Run,
    shop: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    lines = 'a tea no. 1\n\n{"_id": "x", "text": "a wine no. 0"}\n{"query": "nothing 30"}\n'
    (tmp_path / "q.jsonl").write_text(lines, encoding="utf-8")
    arguments = ("trust", shop / "vectors.npy", "--corpus", shop)
    found = calipers(*arguments, "--questions", tmp_path / "q.jsonl")
    assert found.returncode == 0, found.stderr
    rows = [json.loads(line) for line in found.stdout.splitlines()]
    assert [row["id"] for row in rows] == ["1", "x", "4"]
    assert [row["query"] for row in rows] == ["a tea no. 1", "a wine no. 0", "nothing 30"]
    assert {"decision", "reason", "probability", "map"} <= set(rows[0])
    monkeypatch.setenv("CALIPERS_STORE", str(tmp_path / "store"))
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(lines.encode())))
    assert run([*map(str, arguments), "--questions", "-"]) == 0
    assert capsys.readouterr().out == found.stdout
    monkeypatch.setattr("sys.stdin", None)  # so Python has it where the shell closed it
    assert run([*map(str, arguments), "--questions", "-"]) == 2
    assert capsys.readouterr().err.startswith("calipers: --questions -: standard input is closed")
    for content, why in (("", "holds no question"), ('{"text": 3}', "expected a text"), ('{"text"', "not valid JSON")):
        (tmp_path / "bad").write_text(content, encoding="utf-8")
        refused = calipers(*arguments, "--questions", tmp_path / "bad")
        assert (refused.returncode, refused.stderr.count("\n")) == (2, 1)
        assert why in refused.stderr


def test_queries_beside_the_corpus_are_used_without_judgements(calipers: Run, shop: Path, tmp_path: Path) -> None:
    found = json.loads(calipers("trust", shop / "vectors.npy", "--corpus", shop, "--json", "a tea no. 1").stdout)
    assert "40 queries fall back" in found["thresholds"]["why"]
    for name in ("vectors.npy", "vectors.txt", "corpus.jsonl"):
        (tmp_path / name).write_bytes((shop / name).read_bytes())
    write_jsonl(tmp_path / "queries.jsonl", [{"_id": "q", "text": "a text without a vector"}])
    found = calipers("trust", tmp_path / "vectors.npy", "--corpus", tmp_path, "--json", "a tea no. 1")
    assert found.returncode == 0, found.stderr
    told = json.loads(found.stdout)
    assert "documents used as queries" in told["thresholds"]["why"]
    assert "queries.jsonl is not used" in told["warnings"][0]


def test_a_script_that_the_model_cannot_read_is_named(calipers: Run, model: Callable[[str], Path], shop: Path) -> None:
    texts = ("красное вино", "κόκκινο κρασί", "紅酒", "red wine")
    found = calipers("trust", model("potion-base-4m-int8"), "--corpus", shop, "--json", *texts)
    rows = json.loads(found.stdout)["queries"]
    named = ("Cyrillic", "Greek", "Chinese characters")
    for row, script in zip(rows, named, strict=False):
        assert row["decision"] == "fall back"
        assert row["reason"] == f"it is in {script}, a script that the model cannot read"
        assert row["probability"] is None
    assert "script" not in rows[3]["reason"]


class Silent(Shop):
    """It knows nothing of some texts."""

    def encode(self, texts: list[str], **_: object) -> np.ndarray:
        found = super().encode(texts)
        found[[text in ("wine 0", "a tea no. 1", "?") for text in texts]] = 0
        return found


def test_texts_without_a_direction_are_left_out_and_told(shop: Path) -> None:
    options = TrustOptions(calibrate=str(shop / "qrels" / "test.tsv"))
    found = api.trust(Silent(shop), str(shop), ["?", "a wine no. 0"], options=options)
    assert [note.split(":")[0] for note in found.notes] == [
        "1 of 100 documents are skipped",
        "1 of 40 queries are skipped",
    ]
    assert "p0" not in found.corpus.ids
    assert found.trust.report["calibration"]["queries"] == 39
    assert found.scores.decision[0] == "fall back"
    assert (found.rows[0] == -1).all()
    assert np.isnan(found.cosines[0]).all()
    assert (found.rows[1] >= 0).all()


def test_a_model_that_knows_too_little_is_invalid(shop: Path) -> None:
    class Mute(Shop):
        def encode(self, texts: list[str], **_: object) -> np.ndarray:
            return super().encode(texts) * np.array([[not text.startswith("wine")] for text in texts])

    with pytest.raises(InvalidOutput, match="INVALID: the vectors of 20 of 100 documents are zero"):
        api.trust(Mute(shop), str(shop))


def test_what_cannot_be_asked_is_one_sentence(
    shop: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CALIPERS_STORE", str(tmp_path / "store"))
    model = shop / "vectors.npy"
    (tmp_path / "no.tsv").write_text("other\tp1\t1\n")
    (tmp_path / "bad.safetensors").write_bytes(b"nonsense")
    cases: list[tuple[tuple[str | Path, ...], str]] = [
        (("--corpus", shop), "there is nothing to do"),
        (("--corpus", shop, "--save", tmp_path / "a", "--load", tmp_path / "b", "x"), "mutually exclusive"),
        (("--corpus", tmp_path, "x"), "has no corpus.jsonl"),
        (("--corpus", shop, "--k", "1", "a wine no. 0"), "--k must be at least 2"),
        (("--corpus", shop, "--calibrate", tmp_path / "no.tsv", "x"), "judges no query of"),
        (("--corpus", shop, "--load", tmp_path / "none", "x"), "there is no file"),
        (("--corpus", shop, "--load", tmp_path / "bad.safetensors", "x"), "is no trust file"),
        (("--corpus", shop, "--load", tmp_path / "none", "--k", "5", "x"), "--k is not supported for a trust score"),
        (("--corpus", shop, " "), "a query is blank"),
    ]
    for arguments, why in cases:
        assert run(["trust", str(model), *map(str, arguments)]) == 2, arguments
        told = capsys.readouterr().err
        assert why in told
        assert told.count("\n") == 1


def test_text_from_data_cannot_command_the_terminal(calipers: Run, shop: Path, tmp_path: Path) -> None:
    lines = (shop / "vectors.txt").read_text(encoding="utf-8").splitlines()
    rows = [{"_id": f"\x1b[2J{i}", "text": text} for i, text in enumerate(lines[:20])]
    write_jsonl(tmp_path / "corpus.jsonl", rows)
    found = calipers("trust", shop / "vectors.npy", "--corpus", tmp_path, "a wine no. 0")
    assert found.returncode == 0
    assert "\x1b" not in found.stdout


def test_a_reranker_joins_the_predictors_and_its_trade_is_printed(
    calipers: Run, weights: Callable[[str], Path], shop: Path, tmp_path: Path
) -> None:
    reranker = ("--reranker", weights("ms-marco-MiniLM-L12-v2-int8"))
    arguments = ("trust", shop / "vectors.npy", "--corpus", shop)
    calibrate = ("--calibrate", shop / "qrels" / "test.tsv", "--success", "first")
    made = calipers(*arguments, *calibrate, *reranker, "--save", tmp_path / "t", "--json", "a tea no. 1")
    assert made.returncode == 0, made.stderr
    document = json.loads(made.stdout)
    names = {one["name"] for one in document["calibration"]["predictors"]}
    assert {"rerank_top", "rerank_agreement"} <= names
    assert document["inputs"][-1] == document["queries"][0]["map"] == "reranker"
    trade = document["calibration"]["maps"]["texts"]["rerank"]
    assert [point["calls"] for point in trade["curve"]] == pytest.approx([i / 10 for i in range(11)])
    assert document["calibration"]["maps"]["reranker"]["rerank"] is None
    shown = calipers(*arguments, "--load", tmp_path / "t", "--details", "a tea no. 1").stdout
    assert "Second stage" in shown
    assert "rerank calls saved" in shown
    assert "map of texts" in shown  # the reranker is not at hand
    again = calipers(*arguments, "--load", tmp_path / "t", *reranker, "a tea no. 1").stdout
    assert "map of reranker" in again
    refused = calipers(*arguments, *calibrate, *reranker, "--rerank-depth", "5")
    assert (refused.returncode, refused.stderr.count("\n")) == (2, 1)
    assert "--rerank-depth must be at least --k, 10, found 5" in refused.stderr


def test_a_real_model_on_real_products(
    calipers: Run, model: Callable[[str], Path], data: Callable[[str], Path], tmp_path: Path
) -> None:
    source = data("icecat")
    judged = {line.split("\t")[1] for line in (source / "qrels" / "test.tsv").read_text().splitlines()[1:]}
    with (source / "corpus.jsonl").open(encoding="utf-8") as file:
        kept = [row for row in map(json.loads, file) if row["_id"] in judged]
    write_jsonl(tmp_path / "corpus.jsonl", kept)
    arguments = ("--queries", source / "queries.jsonl", "--calibrate", source / "qrels" / "test.tsv")
    kept_in = tmp_path / "trust.safetensors"
    found = calipers(
        *("trust", model("potion-base-4m-int8"), "--corpus", tmp_path, *arguments),
        *("--save", kept_in, "--json", "bluetooth speaker", "zxcv qwer"),
    )
    assert found.returncode == 0, found.stderr
    told = json.loads(found.stdout)
    assert told["calibrated"]
    assert 0 < told["queries"][0]["probability"] < 1
    assert told["queries"][1]["top_score"] < told["queries"][0]["top_score"]
    assert told["detectors"][0]["auroc"]["value"] > 0.7
    assert kept_in.stat().st_size < 200_000
