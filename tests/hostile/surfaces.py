"""A seeded generator of hostile inputs over every surface: each is a command line, and files that it reads.

A surface is a function of the sound files, a folder of its own and a generator of random numbers; it returns the words
of the command. `cases` deals them out in turn, so that any number of inputs covers every surface.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random

import numpy as np
import pyarrow
import pyarrow.parquet

from tests.hostile import commands, documents, models, mutations, odd_data, odd_models, rendered
from tests.hostile.mutations import change, eval_line
from tests.hostile.places import Sound

Surface = Callable[[Sound, Path, Random], list[str]]


@dataclass(frozen=True)
class Case:
    """One input. `codes` are the exit codes that may answer it."""

    number: int
    surface: str
    make: Surface
    codes: tuple[int, ...]

    def rng(self, seed: int) -> Random:
        return Random(f"{seed}/{self.surface}/{self.number}")


def data(sound: Sound, folder: Path, rng: Random) -> list[str]:
    path = sound.copy(f"pairs.{rng.choice(('jsonl', 'json', 'csv', 'tsv', 'parquet'))}", folder)
    change(path, rng)
    return eval_line(sound.root / "static", "--dataset", path)


def large_data(sound: Sound, folder: Path, rng: Random) -> list[str]:
    path = folder / rng.choice(("pairs.jsonl", "pairs.json", "pairs.csv", "pairs.tsv"))
    kind = rng.choice(("deep", "long", "columns", "bomb", "quotes", "lines"))
    if kind == "deep":
        path.write_bytes(b'{"sentence1": ' + mutations.nested(rng) + b"}\n")
    elif kind == "long":
        path.write_bytes(rng.choice((b"a", b'"', b" ", b"\t", b"[")) * rng.choice((1_000_000, 20_000_000)))
    elif kind == "columns":
        path.write_bytes(rng.choice((b",", b"\t")).join(b"c%d" % i for i in range(100_000)) + b"\n")
    elif kind == "bomb":
        path = path.with_name(rng.choice(("pairs.jsonl.gz", "pairs.csv.gz", "pairs.tsv.gz")))
        path.write_bytes(mutations.bomb(rng))
    elif kind == "quotes":
        path.write_bytes(b"sentence1\tsentence2\tscore\n" + b'"a\n' * 20_000)
    else:
        path.write_bytes(rng.choice((b"\n", b"\r", b"\x0b", b'"\n')) * 300_000)
    return eval_line(sound.root / "static", "--dataset", path)


def parquet(sound: Sound, folder: Path, rng: Random) -> list[str]:
    """Tables that parquet can hold and rows cannot."""
    texts = [f"text {i}" for i in range(6)]
    odd: list[pyarrow.Array] = [
        pyarrow.array([b"\xff\xfe"] * 6), pyarrow.array([float("nan"), 1e300, -1e300, 0.0, 1.0, float("inf")]),
        pyarrow.array([10**15] * 6, pyarrow.timestamp("s")), pyarrow.array([2**62] * 6, pyarrow.timestamp("us")),
        pyarrow.array([[1, 2]] * 6), pyarrow.array([{"a": 1}] * 6), pyarrow.nulls(6), pyarrow.array([True] * 6),
        pyarrow.array(["²"] * 6), pyarrow.array([2**63 - 1] * 6), pyarrow.array(["x"] * 6).dictionary_encode(),
        pyarrow.Array.from_buffers(pyarrow.string(), 1, [None, pyarrow.py_buffer(np.array([0, 2], np.int32)), pyarrow.py_buffer(b"\xff\xfe")]).take(pyarrow.array([0] * 6)),
    ]  # fmt: skip
    columns = [
        ("sentence1", pyarrow.array(texts)),
        ("sentence2", pyarrow.array(texts[::-1])),
        ("score", pyarrow.array(range(6))),
    ]
    at = rng.randrange(len(columns))
    columns[at] = (columns[at][0], rng.choice(odd))
    if rng.random() < 0.3:
        columns.append(columns[rng.randrange(len(columns))])
    path = folder / "pairs.parquet"
    pyarrow.parquet.write_table(pyarrow.Table.from_arrays([c for _, c in columns], [n for n, _ in columns]), path)
    return eval_line(sound.root / "static", "--dataset", path)


def tasks(sound: Sound, folder: Path, rng: Random) -> list[str]:
    task, name = rng.choice(
        (("pair-classification", "pairs.jsonl"), ("reranking", "ranked.jsonl"), ("fill-mask", "pairs.jsonl"))
    )
    path = sound.copy(name, folder)
    change(path, rng)
    model = sound.root / ("static" if task == "pair-classification" else "torch")
    return eval_line(model, "--task", task, "--dataset", path)


def beir(sound: Sound, folder: Path, rng: Random) -> list[str]:
    place = sound.copy("beir", folder)
    change(place / rng.choice(("corpus.jsonl", "queries.jsonl", "qrels/test.tsv")), rng)
    if rng.random() < 0.3:
        run = sound.copy("run.trec", folder)
        change(run, rng)
        return eval_line(f"run:{run}", "--task", "retrieval", "--dataset", place)
    return eval_line(rng.choice(("bm25", str(sound.root / "static"))), "--task", "retrieval", "--dataset", place)


_LAUGHS = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"{b}: &{b} [{','.join([f'*{a}'] * 9)}]\n" for a, b in zip("abcdefgh", "bcdefghi", strict=True)
)
_YAML = (
    _LAUGHS, "a: &a [*a]\n", "a: &a {b: *a}\n", "!!python/object/apply:os.system ['touch pwned']\n", "2024-13-45\n",
    "compare: {confidence: 2024-99-99}\n", "compare: {<<: 1}\n", "? [a]\n: b\n", "{a: 1, a: 2}\n", "--- a\n--- b\n", "\t",
    "compare: {thresholds: {cosine_spearman: " + " " * 50_000 + "}}\n", "compare: !!int ''\n", "compare: !!float x\n",
    "compare: {resamples: 10000000000}\n", "compare: {confidence: .nan}\n", "compare: {worst: -1}\n", "colours: {1: 2}\n",
    "compare: {metrics: {a: b}}\n", "compare: {fail_on: [1]}\n", "precision: {a: b}\n", "ranges: {a: [1e999, 2]}\n",
    "[" * 3_000, "{a: " * 3_000, "- " * 3_000, "!!binary '%'\n", "!!set {a}\n", "!!omap [a]\n", "compare: 0x\n", "kinds: {a: {units: {b: {factor: 0}}}}\n",
    "compare: {metrics: 5}\n", "compare: {metrics: }\n", "compare:\n  worst: 1\n  worst: 2\n", "compare: {confidence: 0.9999999999999999}\n", "a: &a {confidence: 0.9}\ncompare: {<<: [*a, *a]}\n", "compare: &a\n  <<: *a\n",
    "compare: !!pairs [a: b]\n", "compare: !<tag:x> y\n", "compare: {thresholds: {cosine_spearman: {a: 1}}}\n", 'compare: {"\\ud800": 1}\n', "compare: *none\n", "~: 1\n", "compare: {resamples: 1:30}\n", "%TAG ! tag:x,2000:\n---\ncompare: !a b\n",
    "compare: {resamples: 1" + "0" * 5_000 + "}\n", "a: 1:99999999999999999999:9\n", "\ufeffcompare: 1\n", "%YAML 9.9\n---\na\n",
)  # fmt: skip


def yaml(sound: Sound, folder: Path, rng: Random) -> list[str]:
    name = rng.choice(("compare.yaml", "words.yaml", "recipe.yaml"))
    path = sound.copy(name, folder)
    if rng.random() < 0.6:
        path.write_text(rng.choice(_YAML))
    else:
        change(path, rng)
    if name == "compare.yaml":
        static, pairs = str(sound.root / "static"), str(sound.root / "pairs.jsonl")
        return ["compare", static, static, "--dataset", pairs, "--config", str(path), "--no-store"]
    if name == "words.yaml":
        beir = str(sound.root / "beir")
        return [
            "diagnose",
            str(sound.root / "static"),
            "--dataset",
            beir,
            "--layer",
            "attributes",
            "--attributes",
            str(path),
            "--no-store",
        ]
    texts = str(sound.root / "texts.txt")
    return [
        "build",
        str(sound.root / "torch"),
        "--recipe",
        str(path),
        "--calibration",
        texts,
        "-o",
        str(folder / "out"),
    ]


def trust(sound: Sound, folder: Path, rng: Random) -> list[str]:
    path = sound.copy("score.trust", folder)
    content = path.read_bytes()
    if rng.random() < 0.5:
        size = int.from_bytes(content[:8], "little")
        header = json.loads(content[8 : 8 + size])
        meta = json.loads(header["__metadata__"]["calipers"])
        changed = mutations.mutate_value(meta, rng)
        header["__metadata__"]["calipers"] = mutations.to_json(changed).decode("utf-8", "replace")
        written = json.dumps(header).encode()
        path.write_bytes(len(written).to_bytes(8, "little") + written + content[8 + size :])
    else:
        change(path, rng)
    return [
        "trust",
        f"static:{sound.root / 'static'}",
        "--corpus",
        str(sound.root / "texts.txt"),
        "--load",
        str(path),
        "a query",
    ]


_ODD_NUMBERS = (
    "nan",
    "inf",
    "-inf",
    "-1",
    "0",
    "1e300",
    "1e-300",
    "²",
    "",
    " ",
    "1_0",
    "0x1",
    "9" * 400,
    "1,5",
    "\x1b[0m",
    "10**9",
    "1000000000",
)


def flags(sound: Sound, folder: Path, rng: Random) -> list[str]:
    static, pairs, beir = str(sound.root / "static"), str(sound.root / "pairs.jsonl"), str(sound.root / "beir")
    number = rng.choice(_ODD_NUMBERS)
    secret = rng.choice(("http", "HTTP", "https", "static:http", "vectors:http", "onnx:HTTPS"))
    references = (
        "bm25:k1=1,k1=2", "bm25:b=nan", f"bm25:k1={number}", "bm25:x", "onnx:", "static:", "torch:" + "a" * 5_000, "~nobody/x",
        "\x00", "vectors:\udcff", "run:", "run:/dev/zero", "/dev/zero", "/proc/self/mem", "\x1b[31m", "a" * 300, "a/b/c/d", "torch:/",
        f"{secret}://user:S3CRET@127.0.0.1:1/x?key=S3CRET", f"{secret}://{'a' * 70}.test:1/", f"{secret}://[::1", f"{secret}://h:99999/",
    )  # fmt: skip
    lines: tuple[list[str], ...] = (
        eval_line(static, "--dataset", pairs, rng.choice(("--samples", "--seed", "--confidence", "--resamples", "--max-length", "--threads", "--truncate-dim")), number),
        ["diagnose", static, "--dataset", beir, "--no-store", rng.choice(("--confidence", "--resamples", "--k", "--seed")), number, "--layer", "geometry"],
        ["diagnose", static, "--dataset", beir, "--store", str(folder / "s"), "--cache-size", number, "--layer", "geometry"],
        ["compare", static, static, "--dataset", pairs, "--no-store", rng.choice(("--confidence", "--resamples", "--worst", "--threshold", "--metric")), number],
        ["compare", static, static, "--dataset", pairs, "--no-store", "--threshold", f"cosine_spearman={rng.choice((number, ' ' * 50_000, f'{number},{number}', '1,1%', '5%,1%'))}"],
        eval_line(rng.choice(references), "--dataset", pairs, "--timeout", "1"),
        eval_line(rng.choice(references), "--task", rng.choice(("fill-mask", "retrieval", "reranking")), "--dataset", beir, "--timeout", "1"),
        ["build", rng.choice(references), "-o", str(folder / "out")], ["attribute", rng.choice(references), "--dataset", pairs],
        eval_line(static, "--dataset", rng.choice(("\x00", "/dev/zero", "/", "~nobody/x.csv", "a" * 300 + ".csv", "/proc/self/maps", ""))),
        eval_line(static, "--dataset", pairs, "--column", rng.choice(("a", "=", "id_column=", "score_column=\x1b", "x=y", "score_column=id"))),
        eval_line(static, "--dataset", pairs, "--input-limit", rng.choice((number, f"line={number}", "x=1", "line=5", "columns=1", "nesting=0"))),
        ["runs", rng.choice(("show", "rm")), rng.choice(("../../x", "*", "[2]*", "", "\x00", "latest", "/etc")), "--store", str(folder / "s")],
        ["trust", static, "--corpus", str(sound.root / "texts.txt"), rng.choice(("--k", "--seed")), number, "a query"],
        ["report", rng.choice(("latest", "*", "../x")), "--store", str(folder / "s")], [rng.choice(("evl", "--x", "", "\x00", "-"))],
    )  # fmt: skip
    return list(rng.choice(lines))


def store(sound: Sound, folder: Path, rng: Random) -> list[str]:
    place = sound.copy("store", folder)
    (folder / "x.parquet").write_text("canary")
    (folder.parent / "x.parquet").write_text("canary")
    name = "20250101-000000-aaaaaa"
    if rng.random() < 0.5:
        import sqlite3

        database = sqlite3.connect(place / "calipers.db")
        column = rng.choice(
            ("run_id", "created", "task", "model_id", "dataset", "examples", "metric", "value", "facts")
        )
        values = (
            "../../x",
            "*",
            "[2]*",
            "????????-??????-??????",
            "/etc/x",
            b"\xff\xfe",
            -1,
            "",
            "{}",
            "[]",
            "null",
            '{"model": 1}',
            "x" * 10_000,
            1e300,
            "[" * 5_000,
            "\x1b[31m",
            "20250102-000000-bbbbbb2",
        )
        with database:
            database.execute(f"UPDATE runs SET {column} = ? WHERE run_id = ?", (rng.choice(values), name))
        database.close()
    else:
        change(place / rng.choice(("calipers.db", f"outcomes/{name}.parquet")), rng)
    run = rng.choice((name, "latest", "2025", "../../x", "*"))
    commands = (
        ["runs", "list"],
        ["runs", "show", run],
        ["runs", "rm", run],
        ["report", run],
        ["compare", run, "latest"],
        ["doctor"],
        ["doctor", "--repair"],
    )
    return [*rng.choice(commands), "--store", str(place)]


def http(sound: Sound, folder: Path, rng: Random) -> list[str]:
    """The address of the hostile server of the tests is put in the place of SERVER."""
    kinds = (
        "drip",
        "continue",
        "later",
        "cut",
        "html",
        "deep",
        "huge",
        "nan",
        "echo",
        "redirect",
        "short",
        "headers",
        "nothing",
        "gzip",
        "text",
        *("wide", "zero", "flip", "endless", "strange", "bomb", "index", "base64", "failure", "loop", "empty"),
        *("chunk", "date", "length", "status", "rows", "numbers", "mark", "file", "reset", "many"),
    )
    path = rng.choice(("/v1/embeddings", "/embed", ""))
    address = f"http://user:S3CRET@SERVER/{rng.choice(kinds)}{path}?key=S3CRET"
    words = eval_line(address, "--dataset", sound.root / "pairs.jsonl", "--timeout", "1")
    return words if rng.random() < 0.8 else [*words, "--task", "reranking"]


_READING, _MODEL, _ANY = (0, 2, 4), (0, 2, 3, 4), (0, 1, 2, 3, 4, 5)
SURFACES: dict[str, tuple[Surface, tuple[int, ...]]] = {
    "data": (data, _READING), "large data": (large_data, _READING), "parquet": (parquet, _READING),
    "tasks": (tasks, (0, 2, 3, 4)), "beir": (beir, _READING), "yaml": (yaml, (0, 1, 2, 5)), "onnx bytes": (models.onnx_bytes, _MODEL),
    "onnx graphs": (models.onnx_graphs, _MODEL), "torch": (models.torch_folder, _MODEL), "static": (models.static, _MODEL),
    "tokenizer": (models.tokenizer, _MODEL), "vectors": (models.vectors, _MODEL), "trust": (trust, (0, 2)), "flags": (flags, (0, 2, 3, 4, 5)),
    "store": (store, (0, 1, 2, 3, 5)), "http": (http, (2, 3, 4)), "every flag": (commands.every_flag, _ANY), "registry": (commands.registry, _ANY),
    "builds": (commands.builds, _MODEL), "side files": (commands.side_files, _READING), "names": (commands.odd_names, (0, 2, 5)), "surroundings": (commands.surroundings, (0, 2, 5)),
    "mteb results": (documents.mteb_results, (0, 2, 5)), "logs": (documents.logs, (0, 1, 2)), "questions": (documents.questions, _READING), "drift": (documents.drifts, (0, 1, 2, 4)), "parity": (documents.parities, (0, 1, 2, 3, 4)),
    "hybrid": (documents.hybrids, (0, 1, 2, 3, 5)), "run files": (documents.run_files, (0, 1, 2, 5)), "registries": (documents.registries, _ANY), "init": (documents.inits, (0, 2)), "recipes": (documents.recipes, (0, 2, 3)),
    "word lists": (documents.word_lists, (0, 2)), "odd names": (rendered.names, (0, 2, 3, 5)), "odd texts": (rendered.texts, _ANY), "targets": (rendered.targets, (0, 1, 2, 5)), "sizes": (odd_models.sizes, _MODEL),
    "strange graphs": (odd_models.graphs, _MODEL), "tables": (odd_models.tables, _MODEL), "forms": (odd_data.forms, _READING), "packed": (odd_data.packed, _READING), "folders": (odd_data.folders, _READING),
}  # fmt: skip


def cases(count: int) -> Iterator[Case]:
    names = list(SURFACES)
    for number in range(count):
        name = names[number % len(names)]
        yield Case(number // len(names), name, *SURFACES[name])
