"""Bad requests through the real command line: the exit code, silence on stdout, and one line that helps."""

from __future__ import annotations

import gzip
import json
import re
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, numpy_helper
from onnx.helper import make_graph, make_model, make_node, make_opsetid, make_tensor_value_info

from tests.support.samples import PAIRS, Run

Fixtures = Callable[[str], Path]  # the path behind the name of a fixture: at("tmp_path")
Build = Callable[[Fixtures], list[str]]
Make = Callable[[Fixtures, Path], None]  # puts a model into a new folder

GOOD = "".join(json.dumps(row) + "\n" for row in PAIRS)
HEADER = "sentence1,sentence2,score\n"
FINE = "eval -m {vectors} --dataset {pairs}"
WORDS = 30_522  # in the vocabulary of all-MiniLM-L6-v2
OLD = {"ir_version": 8, "opset_imports": [make_opsetid("", 17)]}  # what any ONNX Runtime of today can read
TU = 10_722  # its id of the word piece "tu", which stands in "tulips" of row c and nowhere else


def command(line: str) -> Build:
    """Words of a command line, where {name} is the path of that fixture."""
    return lambda at: [re.sub(r"{(\w+)}", lambda found: str(at(found[1])), word) for word in line.split()]


def data(name: str, content: str | bytes) -> Build:
    """A dataset of this content, for a model that could measure it."""

    def build(at: Fixtures) -> list[str]:
        path = at("tmp_path") / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return [*command("eval -m {vectors} --dataset")(at), str(path)]

    return build


def model(make: Make, flags: str = "", prefix: str = "") -> Build:
    """A model made by `make`, for data that are fine."""

    def build(at: Fixtures) -> list[str]:
        folder = at("tmp_path") / "model"
        folder.mkdir()
        make(at, folder)
        return ["eval", "-m", f"{prefix}{folder}", *command("--dataset {pairs} " + flags)(at)]

    return build


def store(content: bytes, line: str) -> Build:
    """Something in the place of the store's database."""

    def build(at: Fixtures) -> list[str]:
        (at("tmp_path") / "store").mkdir()
        (at("tmp_path") / "store" / "calipers.db").write_bytes(content)
        return command(line)(at)

    return build


def database(version: int) -> bytes:
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.execute(f"PRAGMA user_version = {version}")
        return connection.serialize()


def minilm_with(*, weights: int = 0, **contents: str) -> Make:
    """The real model's settings, so many bytes of its weights, and other files by name (with __ for the dot)."""

    def make(at: Fixtures, folder: Path) -> None:
        shutil.copytree(at("minilm"), folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns("*.safetensors"))
        if weights:
            with (at("minilm") / "model.safetensors").open("rb") as whole:
                (folder / "model.safetensors").write_bytes(whole.read(weights))
        for name, content in contents.items():
            (folder / name.replace("__", ".")).write_text(content)

    return make


def lookup(fill: float = 1.0, tulips: float = 1.0, positions: int = 512, shape: str = "bsd") -> onnx.ModelProto:
    """A graph whose token embeddings are all `fill`, times `tulips` for that word, for at most `positions` tokens."""
    table = np.full((WORDS, 2), fill, np.float32)
    table[TU] *= tulips
    rows = np.zeros((positions, 2), np.float32)
    constants = {"table": table, "rows": rows, "zero": np.int64(0), "one": np.int64(1), "axis": np.array([1])}
    nodes = [
        make_node("Gather", ["table", "input_ids"], ["words"]),
        make_node("Shape", ["input_ids"], ["length"], start=1, end=2),
        make_node("Squeeze", ["length"], ["count"]),
        make_node("Range", ["zero", "count", "one"], ["places"]),
        make_node("Gather", ["rows", "places"], ["offsets"]),
        make_node("Add", ["words", "offsets"], ["bsd"]),
        make_node("Unsqueeze", ["bsd", "axis"], ["b1sd"]),
    ]
    ids = make_tensor_value_info("input_ids", TensorProto.INT64, ["batch", "length"])
    held = [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()]
    return make_model(make_graph(nodes, "lookup", [ids], [floats(shape)], held), **OLD)


def picture() -> onnx.ModelProto:
    node = make_node("Relu", ["image"], ["out"])
    return make_model(make_graph([node], "picture", [floats("image", 1, 3, 224, 224)], [floats("out")]), **OLD)


def floats(name: str, *shape: int) -> onnx.ValueInfoProto:
    return make_tensor_value_info(name, TensorProto.FLOAT, shape or None)


def graph(made: onnx.ModelProto, *, tokenizer: str | None = "real", keep: float = 1.0) -> Make:
    """A graph with the tokenizer of the real model beside it, another one, or none; `keep` is a share of its bytes."""

    def make(at: Fixtures, folder: Path) -> None:
        content = made.SerializeToString()
        (folder / "model.onnx").write_bytes(content[: int(len(content) * keep)])
        if tokenizer == "real":
            shutil.copy(at("minilm") / "tokenizer.json", folder)
        elif tokenizer is not None:
            (folder / "tokenizer.json").write_text(tokenizer)

    return make


def changed(number: int, **values: object) -> str:
    """The good rows, with some values of the row on this line changed."""
    return "".join(json.dumps(row | values if i == number else row) + "\n" for i, row in enumerate(PAIRS, start=1))


BROKEN_GZIP = gzip.compress(GOOD.encode())[:30] + b"\xff" * 99
CODE = '{"model_type": "odd", "auto_map": {"AutoModel": "odd.Odd"}}'
NEWLINE = HEADER + '"a\nb",c,1\nd,e,high\n'
CASES: list[tuple[str, Build, int, tuple[str, ...]]] = [
    # the data
    ("missing file", command("eval -m {vectors} --dataset no.jsonl"), 2, ("'no.jsonl'", "no such file")),
    ("unknown ending", data("pairs.docx", GOOD), 2, ("pairs.docx", "unknown format", ".jsonl", ".csv", ".parquet")),
    ("no such split", command("eval -m {vectors} --dataset {minilm}"), 2, ("no split 'test'", "it has", "--split")),
    ("wrong column", command(FINE + " --column score_column=gold"), 2,
     ("pairs.jsonl, line 1", "no column 'gold'", "found id, sentence1, sentence2, score", "--column score_column=")),
    ("unknown key", command(FINE + " --column gold=score"), 2, ("--column gold=", "input_column_1", "score_column")),
    ("column without =", command(FINE + " --column score"), 2, ("--column", "KEY=NAME", "'score'")),
    ("column given twice", command(FINE + " --column id_column=a id_column=b"), 2, ("--column id_column=", "twice")),
    ("text for a number, jsonl", data("p.jsonl", changed(3, score="high")), 2,
     ("p.jsonl, line 3", "column 'score'", "expected a number", "found 'high'")),
    ("text for a number, csv", data("p.csv", HEADER + "a,b,1\nc,d,high\n"), 2,
     ("p.csv, line 3", "column 'score'", "expected a number", "found 'high'")),
    ("text for a number, after a newline in quotes", data("p.csv", NEWLINE), 2, ("p.csv, line 4", "found 'high'")),
    ("true for a number", data("p.jsonl", changed(1, score=True)), 2, ("line 1", "expected a number", "found True")),
    ("number for a text", data("p.jsonl", changed(2, sentence2=7)), 2,
     ("p.jsonl, line 2", "column 'sentence2'", "expected a text", "found 7")),
    ("empty jsonl", data("p.jsonl", ""), 2, ("p.jsonl", "no row")),
    ("empty csv", data("p.csv", ""), 2, ("p.csv", "no row")),
    ("header only", data("p.csv", HEADER), 2, ("p.csv", "no row")),
    ("too many fields", data("p.csv", HEADER + "a,b,1\nc,d,2,3\n"), 2, ("p.csv, line 3", "expected 3", "found 4")),
    ("too few fields", data("p.csv", HEADER + "a,b\n"), 2, ("p.csv, line 2", "expected 3", "found 2")),
    ("invalid JSON", data("p.jsonl", GOOD + '{"id": \n'), 2, ("p.jsonl, line 6", "not valid JSON")),
    ("not an object", data("p.jsonl", GOOD + "[1, 2]\n"), 2, ("p.jsonl, line 6", "expected an object", "found list")),
    ("nested too deeply", data("p.jsonl", "[" * 200_000), 2, ("p.jsonl, line 1", "nested too deeply")),
    ("not UTF-8", data("p.jsonl", GOOD.encode() + b'{"id": "caf\xe9"}\n'), 2, ("line 6", "UTF-8", "0xe9")),
    ("half a character", data("p.jsonl", changed(2, sentence1="\ud83d")), 2, ("p.jsonl, line 2", "'sentence1'")),
    ("broken gzip", data("p.jsonl.gz", BROKEN_GZIP), 2, ("p.jsonl.gz",)),
    ("no parquet", data("p.parquet", GOOD), 2, ("p.parquet", "parquet")),
    ("one row", data("p.csv", HEADER + "a,b,1\n"), 2, ("p.csv", "1 pair", "at least 3")),
    ("two rows", data("p.csv", HEADER + "a,b,1\nc,d,2\n"), 2, ("p.csv", "2 pair", "at least 3")),
    ("constant scores", data("p.csv", HEADER + "a,b,4\n" * 3), 2, ("p.csv", "every score", "4", "constant")),
    ("NaN score", data("p.jsonl", changed(4, score=float("nan"))), 2, ("p.jsonl, line 4", "finite number", "nan")),
    ("infinite score", data("p.csv", HEADER + "a,b,inf\n"), 2, ("p.csv, line 2", "finite number", "'inf'")),
    ("score too large", data("p.jsonl", changed(5, score=10**400)), 2, ("p.jsonl, line 5", "'score'", "number")),
    ("missing score", data("p.jsonl", changed(2, score=None)), 2, ("line 2", "expected a number", "found nothing")),
    ("empty score", data("p.csv", HEADER + "a,b,\n"), 2, ("p.csv, line 2", "expected a number", "found nothing")),
    ("blank texts", data("p.csv", HEADER + "a, ,1\n,b,2\n ,,3\n"), 2, ("p.csv", "all 3 rows", "blank")),
    ("repeated ids", data("p.jsonl", changed(4, id="b")), 2,
     ("p.jsonl, line 4", "'b'", "p.jsonl, line 2", "--column id_column=")),
    ("ESC in a column", data("p.csv", "a\x1b[2J,b\x9b,c\u202e\n1,2,3\n"), 2, ("p.csv, line 2", "'sentence1'", "[2J")),
    ("ESC in a cell", data("p.csv", HEADER + "a,b,\x1b]0;gone\x07\n"), 2, ("p.csv, line 2", "]0;gone")),
    ("hub data offline", command("eval -m {vectors} --dataset no/data"), 2, ("'no/data'", "hub", "HF_HUB_OFFLINE")),
    ("long dataset name", command("eval -m {vectors} --dataset " + "x" * 300 + ".jsonl"), 2, ("xxx", "no such file")),
    # the model
    ("no such model", command("eval -m {tmp_path}/none --dataset {pairs}"), 3, ("/none'", "no such file or folder")),
    ("no such onnx", command("eval -m none.onnx --dataset {pairs}"), 3, ("'none.onnx'", "no such file")),
    ("long model name", command(f"eval -m {'x' * 300}.onnx --dataset {{pairs}}"), 3, ("xxx", "no such file")),
    ("a file that is no model", command("eval -m {pairs} --dataset {pairs}"), 3, ("pairs.jsonl", ".onnx")),
    ("a folder that is no model", model(lambda at, folder: None), 3, ("/model", "model.safetensors", ".onnx")),
    ("settings, no weights", model(minilm_with()), 3, ("/model", "expected model.safetensors")),
    ("settings, no weights, torch:", model(minilm_with(), prefix="torch:"), 3, ("no weights in", "model.safetensors")),
    ("truncated safetensors", model(minilm_with(weights=10**6)), 3, ("PyTorch cannot load", "/model", "incomplete")),
    ("broken config.json", model(minilm_with(weights=1, config__json="{")), 3, ("config.json", "not valid JSON")),
    ("broken tokenizer, torch", model(minilm_with(weights=10**9, tokenizer__json="{")), 3, ("tokenizer.json",)),
    ("pickled weights", model(minilm_with(pytorch_model__bin="cos\nsystem\n")), 3,
     ("pytorch_model.bin", "safetensors", "--allow-pickle")),
    ("code of its own", model(minilm_with(weights=1, config__json=CODE)), 3, ("/model", "--trust-remote-code")),
    ("hub model offline", command("eval -m no/model --dataset {pairs}"), 3, ("'no/model'", "HF_HUB_OFFLINE")),
    ("truncated onnx", model(graph(lookup(), keep=0.5)), 3, ("ONNX Runtime cannot load", "model.onnx")),
    ("empty onnx", model(graph(lookup(), keep=0.0)), 3, ("model.onnx", "is empty: expected an ONNX graph")),
    ("a graph of pictures", model(graph(picture())), 3, ("'image'", "tensor(float)[1, 3, 224, 224]", "token ids")),
    ("no tokenizer", model(graph(lookup(), tokenizer=None)), 3, ("no tokenizer", "tokenizer.json", "--model-id")),
    ("broken tokenizer, onnx", model(graph(lookup(), tokenizer="{")), 3, ("tokenizer.json", "is not a tokenizer")),
    ("output of four dimensions", model(graph(lookup(shape="b1sd"))), 3,
     ("[batch, length, d] or [batch, d]", "found b1sd [1, 1, 7, 2]")),
    ("unknown output", model(graph(lookup()), "--graph-output vec"), 2, ("no output 'vec'", "it has bsd")),
    ("too short", model(graph(lookup()), "--max-length 1"), 2, ("--max-length", "at least 3", "found 1")),
    # what it answers
    ("NaN for one row", model(graph(lookup(tulips=np.nan))), 4, ("INVALID", "NaN", "1 of 5 pairs", "(rows c)")),
    ("NaN for all", model(graph(lookup(np.nan))), 4, ("INVALID", "NaN", "5 of 5 pairs", "(rows a, b, c, d, e)")),
    ("zeros", model(graph(lookup(0.0))), 4, ("INVALID", "zero vectors", "5 of 5 pairs", "(rows a, b, c, d, e)")),
    ("a constant", model(graph(lookup())), 4, ("INVALID", "same cosine", "1.0", "(rows a, b, c, d, e)")),
    ("fails on long texts", model(graph(lookup(positions=7))), 4, ("ONNX Runtime failed", "batch of (9, 10)")),
    ("no vector for a text", data("p.jsonl", changed(2, sentence1="Unseen.")), 4, ("vectors.npy", "1 of 9", "Unseen.")),
    # the flags
    ("unknown task", command(FINE + " --task juggling"), 2, ("'juggling'", "sentence-similarity", "calipers tasks")),
    ("unknown provider", model(graph(lookup()), "--ep nonsense"), 2, ("provider 'nonsense'", "cpu, cuda")),
    ("absent provider", model(graph(lookup()), "--ep cuda"), 2, ("CUDAExecutionProvider", "CPUExecution", "install")),
    ("absent device", command("eval -m {minilm} --dataset {pairs} --device cuda"), 2, ("PyTorch", "'cuda'", "here")),
    ("no samples", command(FINE + " --samples 0"), 2, ("--samples", "at least 1", "found 0")),
    ("some samples", command(FINE + " --samples some"), 2, ("--samples", "'some'", "integer")),
    ("confidence", command(FINE + " --confidence 95"), 2, ("--confidence", "between 0 and 1", "95")),
    ("no resamples", command(FINE + " --resamples 0"), 2, ("--resamples", "at least 1", "found 0")),
    ("timeout", command(FINE + " --timeout nan"), 2, ("--timeout", "nan")),
    ("two budgets", command(FINE + " --batch-size 8 --batch-tokens 8"), 2, ("--batch-size", "-tokens", "one of")),
    ("unknown pooling", command(FINE + " --pooling sum"), 2, ("--pooling", "'sum'", "mean", "cls", "max", "last")),
    ("unknown flag", command(FINE + " --modle x"), 2, ("--modle", "Did you mean", "--model")),
    ("missing -m", command("eval --dataset {pairs}"), 2, ("name one model", "calipers eval MODEL")),
    ("unknown command", command("measure"), 2, ("'measure'", "calipers --help")),
    ("unknown command of runs", command("runs drop"), 2, ("'drop'", "calipers runs --help")),
    # the places
    ("store below a file", command(FINE + " --store {pairs}/store"), 2, ("pairs.jsonl/store", "store", "directory")),
    ("two minds about the store", command(FINE + " --store s --no-store"), 2, ("--store", "--no-store", "one of")),
    ("store is no database", store(b"These are notes. " * 99, FINE), 2, ("calipers.db", "not a database")),
    ("store of a newer version", store(database(99), FINE), 2,
     ("calipers.db", "newer", "99", "update")),
    ("store of another program", store(database(1), "runs list"), 2, ("calipers.db",)),
    ("output exists", command(FINE + " -o {pairs}"), 2, ("pairs.jsonl", "exists", "--force")),
    ("output in no folder", command(FINE + " -o {tmp_path}/no/out.json"), 2, ("no/out.json", "no such folder")),
    ("output is a folder", command(FINE + " -o {tmp_path} --force"), 2, ("cannot be written", "folder")),
    ("unknown run", command("runs show 2020"), 2, ("no run '2020'", "store", "calipers runs list")),
    ("rm of an unknown run", command("runs rm latest"), 2, ("no run 'latest'", "store", "calipers runs list")),
]  # fmt: skip


@pytest.mark.parametrize(("build", "code", "words"), [pytest.param(*rest, id=name) for name, *rest in CASES])
def test_a_bad_request_gets_one_line_that_helps(
    calipers: Run, request: pytest.FixtureRequest, build: Build, code: int, words: tuple[str, ...]
) -> None:
    done = calipers(*build(request.getfixturevalue))
    assert_one_line(done.stdout, done.stderr)
    assert [word for word in words if word not in done.stderr] == [], done.stderr
    assert done.returncode == code, done.stderr


def assert_one_line(stdout: str, stderr: str) -> None:
    """Printable is what a terminal shows and does not obey."""
    assert stdout == ""
    assert "Traceback" not in stderr
    assert stderr.startswith("calipers: ")
    assert stderr.endswith("\n")
    assert stderr[:-1].isprintable(), stderr


def test_a_json_error_names_its_own_line_only(calipers: Run, pairs: Path, vectors: Path) -> None:
    pairs.write_text(GOOD + '{"id": \n')
    done = calipers("eval", "-m", vectors, "--dataset", pairs)
    assert re.findall(r"line \d+", done.stderr) == ["line 6"], done.stderr


def test_debug_shows_where_an_error_comes_from(calipers: Run, vectors: Path) -> None:
    done = calipers("eval", "-m", vectors, "--dataset", "no.jsonl", "--debug")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("Traceback")
    assert done.stderr.splitlines()[-1].startswith("calipers: there is no dataset")


@pytest.mark.parametrize(("content", "code"), [(GOOD, 3), (changed(2, score="high"), 2)], ids=["fine", "wrong"])
def test_data_are_read_before_a_model_that_cannot_be_loaded(
    calipers: Run, request: pytest.FixtureRequest, pairs: Path, content: str, code: int
) -> None:
    line = model(graph(lookup(), keep=0.5))(request.getfixturevalue)
    pairs.write_text(content)
    assert calipers(*line).returncode == code


def test_an_output_in_the_way_is_refused_before_the_model_is_asked(
    calipers: Run, request: pytest.FixtureRequest, tmp_path: Path, pairs: Path
) -> None:
    done = calipers(*model(graph(lookup(np.nan)), "-o {pairs}")(request.getfixturevalue))
    assert (done.returncode, "--force" in done.stderr) == (2, True), done.stderr
    assert pairs.read_text() == GOOD
    assert not (tmp_path / "store").exists()


def test_a_run_file_that_is_a_device_is_refused_and_not_read(calipers: Run, tmp_path: Path) -> None:
    (tmp_path / "run.trec").symlink_to("/dev/zero")
    folder = tmp_path / "beir"
    (folder / "qrels").mkdir(parents=True)
    for name in ("corpus", "queries"):
        (folder / f"{name}.jsonl").write_text('{"_id": "a", "text": "a"}\n')
    (folder / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\na\ta\t1\n")
    for words in (("eval", "--task", "retrieval"), ("diagnose",)):
        done = calipers(words[0], f"run:{tmp_path / 'run.trec'}", *words[1:], "--dataset", folder, "--no-store")
        assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
        assert "expected a regular file, found a device" in done.stderr
