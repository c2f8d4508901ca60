"""Hostile documents of the newer commands: results of mteb, logs, questions, traffic, registries, recipes, run files.

Each function makes one and returns the words of the command; && stands between commands that follow each other.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

from tests.hostile import mutations
from tests.hostile.mutations import VALUES, change, eval_line, mutate_value, to_json
from tests.hostile.places import Sound

ODD_NAMES = (
    "../../x", "/etc/x", "..", ".", "a/../../b", "a\x1b[31mb", "\u202egnirts", "a\nb", "a\x9b31mb", "\x00", "*", "[red]x[/red]", "<script>alert(1)</script>",
    "| a | b |", "`x`", "=1+1", "a" * 3_000, "é" * 200, "\ud800", "\u2028", "x\ry", "]]>", "&amp;", "'\"", "http://u:S3CRET@h/?key=S3CRET", "{{7*7}}", "%s%n", "con", "~",
)  # fmt: skip
_LONG = b'{"top_score": 1' + b"0" * 400 + b', "gap": 1}'


def mteb_results(sound: Sound, folder: Path, rng: Random) -> list[str]:
    """Result files of mteb whose values or names are odd, and what is made of them afterwards."""
    task = {
        "task_name": rng.choice(("STSBenchmark", *ODD_NAMES)),
        "dataset_revision": "b0fddb56ed78048fa8b90373c8a3cfc37b684831",
        "mteb_version": "2.0",
        "evaluation_time": 1.5,
        "scores": {rng.choice(("test", *ODD_NAMES)): [{"main_score": 0.8, "hf_subset": "default", "languages": ["eng-Latn"]}]},
    }  # fmt: skip
    place = folder / "owner__name" / "revision"
    place.mkdir(parents=True)
    content: Any = task
    if rng.random() < 0.4:
        content = {"model_name": rng.choice(("owner/name", *ODD_NAMES)), "model_revision": rng.choice(("1", *ODD_NAMES)), "task_results": [task]}  # fmt: skip
    if rng.random() < 0.6:
        content = mutate_value(content, rng)
    (place / "STSBenchmark.json").write_bytes(to_json(content))
    if rng.random() < 0.5:
        meta = {"name": rng.choice(("owner/name", *ODD_NAMES)), "revision": rng.choice(("1", *ODD_NAMES)), "experiment_kwargs": rng.choice((None, {}, *VALUES))}  # fmt: skip
        (place / "model_meta.json").write_bytes(to_json(meta))
    if rng.random() < 0.15:
        change(place / "STSBenchmark.json", rng)
    store = ["--store", str(folder / "s")]
    more = rng.choice(
        ((), ("--common",), ("--model-id", rng.choice(ODD_NAMES)), ("--task", rng.choice(ODD_NAMES)), ("--json",))
    )
    target = folder / "written" / "o"
    after = rng.choice(
        (
            ["runs", "list"], ["runs", "list", "--csv"], ["runs", "list", "--json"], ["runs", "show", "latest", "--examples", "3"],
            ["report", "latest"], ["report", "latest", "--format", "json"], ["compare", "latest", "latest"],
            ["report", "latest", "--format", "mteb", "--mteb-task", "STSBenchmark", "-o", f"{target}/"],
            ["report", "latest", "--format", "eval-results", "--mteb-task", "STSBenchmark", "-o", f"{target}/"],
            ["report", "latest", "--format", "model-index", "--mteb-task", "STSBenchmark"],
            ["runs", "prune", "--keep", "1", "--dry-run"], ["runs", "rm", "latest"], ["doctor"],
        )
    )  # fmt: skip
    return ["runs", "import", str(folder / "owner__name"), *more, *store, "&&", *after, *store]


def _lines(rows: Sequence[Any], rng: Random) -> bytes:
    """Rows as jsonl, one or two of them changed."""
    written = [to_json(row) for row in rows]
    for _ in range(rng.choice((1, 1, 2))):
        at = rng.randrange(len(written))
        written[at] = rng.choice(
            (
                to_json(mutate_value(rows[at], rng)), mutations.mutate_bytes(written[at], rng), mutations.nested(rng), _LONG,
                b'{"id": "\\ud800", "text": "a", "query": "\\udfff", "top_score": 0.5, "gap": 0.1}', b'{"text": 1}', b"[]", b"1", b'"a"', b"{", b"\xff\xfe",
                b'{"text": "' + b"a " * 200_000 + b'"}', b'{"text": "\\u202ea\\u009b31m\\u0000", "id": "\\u001b[31m"}', b" " * 100_000, b'{"text": "x", "text": 2}',
            )
        )  # fmt: skip
    return b"\n".join(written) + b"\n"


def logs(sound: Sound, folder: Path, rng: Random) -> list[str]:
    """The log of a service against the queries that a trust score remembers."""
    facts = {"top_score": 0.5, "margin": 0.1, "gap": 0.1, "spread": 0.2, "stability": 0.9, "coherence": 0.8}
    rows = [{"event": "scored", "query": f"q{i}", "predictors": {k: v * (1 + i / 50) for k, v in facts.items()}} for i in range(12)]  # fmt: skip
    path = folder / rng.choice(("log.jsonl", "log", "log.gz"))
    path.write_bytes(_lines(rows, rng))
    if rng.random() < 0.1:
        change(path, rng)
    words = [
        "trust",
        str(sound.root / "static"),
        "--corpus",
        str(sound.root / "texts.txt"),
        "--load",
        str(sound.root / "asked.trust"),
    ]
    return [*words, "--watch", str(path), *rng.choice(((), ("--json",), ("--seed", "-1")))]


def questions(sound: Sound, folder: Path, rng: Random) -> list[str]:
    rows = [{"_id": f"q{i}", "text": f"a query {i}"} for i in range(5)]
    path = folder / "questions.jsonl"
    path.write_bytes(_lines(rows, rng))
    if rng.random() < 0.1:
        change(path, rng)
    words = ["trust", f"static:{sound.root / 'static'}", "--corpus", str(sound.root / "texts.txt"), "--no-cache"]
    loaded = ["--load", str(sound.root / "asked.trust")] if rng.random() < 0.5 else []
    return [*words, *loaded, "--questions", str(path)]


def drifts(sound: Sound, folder: Path, rng: Random) -> list[str]:
    """Two sets of texts, one of them odd."""
    texts = (sound.root / "texts.txt").read_text().splitlines()
    path = folder / f"texts.{rng.choice(('txt', 'jsonl', 'csv', 'tsv', 'parquet', 'json', 'gz', 'txt.gz'))}"
    kinds = (
        "\n".join(texts).encode(), "\n".join(texts[:3]).encode(), "\n".join([texts[0]] * 30).encode(), "\n".join(c * 40 for c in "\x1b\u202e\x9bab" * 4).encode("utf-8", "replace"),
        ("\n".join(str(i) * 3 for i in range(40))).encode(), _lines([{"_id": str(i), "text": text} for i, text in enumerate(texts)], rng), b"\n" * 50, " \n".join(["\u200b"] * 20).encode(),
        b"text\n" + b"\n".join(text.encode() for text in texts), ("a" * 300_000 + "\n").encode() * 12,
    )  # fmt: skip
    path.write_bytes(rng.choice(kinds))
    if rng.random() < 0.3:
        change(path, rng)
    other = rng.choice((str(sound.root / "texts.txt"), str(sound.root / "beir"), str(path), str(folder)))
    sides = ["--reference", other, "--current", str(path)] if rng.random() < 0.7 else ["--reference", str(path), "--current", other]  # fmt: skip
    return [
        "drift",
        str(sound.root / "static"),
        *sides,
        "--no-cache",
        *rng.choice(((), ("--json",), ("--confidence", "0.999999999999"))),
    ]


def parities(sound: Sound, folder: Path, rng: Random) -> list[str]:
    """A reference against what is not the same: another model, a damaged one, an endpoint that answers badly."""
    here = sound.root
    place = sound.copy(rng.choice(("static", "onnx")), folder)
    change(place / rng.choice(("config.json", "tokenizer.json")), rng)
    kinds = ("drip", "cut", "html", "nan", "echo", "short", "text", "wide", "zero", "flip", "endless", "strange")
    others = (str(place), str(here / "static"), str(here / "vectors.npy"), "bm25", "hybrid:x+bm25", f"http://user:S3CRET@SERVER/{rng.choice(kinds)}/embed?key=S3CRET", "http://user:S3CRET@SERVER/short")  # fmt: skip
    texts = sound.copy("texts.txt", folder)
    change(texts, rng)
    words = ["parity", rng.choice((str(here / "static"), str(here / "onnx"))), rng.choice(others), "--timeout", "1"]
    if rng.random() < 0.6:
        words += ["--dataset", str(texts)]
    written = folder / "written"
    return [
        *words,
        *rng.choice(
            (
                (),
                ("--json",),
                ("--markdown", str(written / "a.md")),
                ("--tolerance", "1e-300"),
                ("-o", str(written / "a.json")),
            )
        ),
    ]


_HYBRID = (
    "hybrid:", "hybrid:+", "hybrid:+bm25", "hybrid:bm25+bm25", "hybrid:{m}", "hybrid:{m}+", "hybrid:{m}+bm25:", "hybrid:{m}+bm25:nan", "hybrid:{m}+bm25:-1", "hybrid:{m}+bm25:1e300",
    "hybrid:{m}+bm25:0.5,0.6", "hybrid:{m}+bm25:weight=0.5,weight=0.6", "hybrid:{m}+bm25:depth=0", "hybrid:{m}+bm25:depth=1e9", "hybrid:{m}+bm25:depth=99999999999999999999", "hybrid:{m}+bm25:constant=inf",
    "hybrid:{m}+bm25:constant=0", "hybrid:{m}+bm25:k1=nan", "hybrid:{m}+bm25:b=2", "hybrid:hybrid:{m}+bm25+bm25", "hybrid:{m}+{m}", "hybrid:run:{m}+bm25", "hybrid:http://u:S3CRET@127.0.0.1:1/?key=S3CRET+bm25:0.5",
    "hybrid:u:S3CRET@127.0.0.1:1+bm25", "hybrid:{m}+bm25:\x1b[31m", "hybrid:{m}+bm25:²", "hybrid:{m}+bm25:٣", "hybrid:{m}+bm25:0x1", "hybrid:{m}+bm25:depth=1_0", "hybrid:" + "a" * 4_000 + "+bm25", "hybrid:{m}+bm25:,,,", "HYBRID:{m}+BM25",
)  # fmt: skip


def hybrids(sound: Sound, folder: Path, rng: Random) -> list[str]:
    reference = rng.choice(_HYBRID).replace("{m}", str(sound.root / "static"))
    beir = str(sound.root / "beir")
    return rng.choice(
        (
            eval_line(reference, "--task", "retrieval", "--dataset", beir),
            eval_line(reference, "--dataset", sound.root / "pairs.jsonl"),
            ["compare", "bm25", reference, "--task", "retrieval", "--dataset", beir, "--no-store", "--resamples", "100"],
            ["diagnose", reference, "--dataset", beir, "--no-store", "--layers", "retrieval"],
            ["trust", reference, "--corpus", str(sound.root / "texts.txt"), "a query"],
        )
    )  # fmt: skip


def run_files(sound: Sound, folder: Path, rng: Random) -> list[str]:
    """TREC run files whose ids, ranks and scores are odd."""
    rows = [[f"q{i // 3}", "Q0", f"d{i % 12}", str(i % 3 + 1), str(1 / (i + 1)), "tag"] for i in range(24)]
    for _ in range(rng.choice((1, 2, 5))):
        row = rng.choice(rows)
        row[rng.randrange(6)] = rng.choice(
            (
                "",
                "nan",
                "inf",
                "-inf",
                "1e999",
                "0x1",
                "²",
                "-1",
                "9" * 400,
                "1e308",
                "\x1b[31m",
                "\u202e",
                "a b",
                "q0",
                "d0",
                "\x85",
                "0",
                "é" * 3_000,
            )
        )
    path = folder / rng.choice(("run.trec", "run.txt", "run", "run.tsv", "run.gz"))
    path.write_bytes("\n".join(rng.choice((" ", "\t", "  ")).join(row) for row in rows).encode("utf-8", "replace"))
    if rng.random() < 0.2:
        change(path, rng)
    beir = str(sound.root / "beir")
    return rng.choice(
        (
            eval_line(f"run:{path}", "--task", "retrieval", "--dataset", beir),
            ["compare", "bm25", f"run:{path}", "--task", "retrieval", "--dataset", beir, "--no-store", "--resamples", "100"],
            ["diagnose", f"run:{path}", "--dataset", beir, "--no-store"],
            eval_line("bm25", "--task", "retrieval", "--dataset", beir, "--run-out", rng.choice((path, folder, "/dev/full", beir + "/corpus.jsonl"))),
        )
    )  # fmt: skip


_REGISTRY = """\
defaults: &d {{group: g}}
models:
  - id: {id}
    reference: {reference}
    priority: 1
    precisions: [{precision}]
  - {{id: b, reference: "static:{root}/static", baseline: a}}
tasks:
  - id: {task}
    task: sentence-similarity
    dataset: {root}/pairs.jsonl
    samples: 6
thresholds:
  cosine_spearman: {threshold}
exclude:
  - {{model: {exclude}}}
"""


def registries(sound: Sound, folder: Path, rng: Random) -> list[str]:
    """A registry in YAML whose ids, paths and values are odd, measured, and its last sweep in every format."""
    odd = [json.dumps(name) for name in ODD_NAMES if "\ud800" not in name]
    values = {
        "id": "a", "reference": f"static:{sound.root}/static", "precision": "float32", "task": "sts", "threshold": '"2.0,4.0"', "exclude": '"zzz"',
    }  # fmt: skip
    for _ in range(rng.choice((1, 1, 2))):
        key = rng.choice(sorted(values))
        values[key] = rng.choice(
            (
                *odd,
                "*d",
                "&x [*x]",
                "!!python/name:os.system",
                "2024-01-01",
                "~",
                "[]",
                "{}",
                "nan",
                ".inf",
                "1e400",
                "0o7",
                "yes",
                "'*'",
                '"[a"',
                "|",
                "9" * 5_000,
            )
        )
    path = folder / "registry.yaml"
    path.write_text(_REGISTRY.format(root=sound.root, **values), encoding="utf-8")
    if rng.random() < 0.15:
        change(path, rng)
    store, written = ["--store", str(folder / "s")], folder / "written"
    files = [
        "--html",
        str(written / "a.html"),
        "--junit",
        str(written / "a.xml"),
        "--csv",
        str(written / "a.csv"),
        "--markdown",
        str(written / "a.md"),
    ]
    run = ["sweep", str(path), *store, "--no-latency", "--resamples", "100", "--jobs", "1"]
    return rng.choice(
        (
            [*run, *files], ["sweep", str(path), "--check"], [*run[:4], "--dry-run"], ["sweep", "status", str(path), *store],
            ["sweep", "show", str(path), *store], [*run, "&&", "sweep", "show", str(path), *store, *files], ["sweep", "show", str(path), "--stages", *store],
        )
    )  # fmt: skip


def inits(sound: Sound, folder: Path, rng: Random) -> list[str]:
    """`sweep --init` on a folder whose models have odd names, and the registry that it writes."""
    models = folder / "models"
    models.mkdir()
    for name in rng.sample(
        [n for n in ODD_NAMES if "/" not in n and "\x00" not in n and "\ud800" not in n and 2 < len(n.encode()) < 200],
        2,
    ):
        place = sound.copy("static", models).rename(models / name)
        if rng.random() < 0.3:
            change(place / "config.json", rng)
    if rng.random() < 0.4:
        mutations.take_place(models / "odd", rng)
    path = folder / "registry.yaml"
    return ["sweep", "--init", str(models), str(path), "&&", "sweep", str(path), "--check"]


_RECIPES: tuple[dict[str, Any], ...] = (
    {"precision": "w8a8", "ranges": {"x": ["nan", 1]}}, {"precision": "w8a8", "ranges": {"x": [1, -1]}}, {"precision": "w8a8", "ranges": {"a\x1b[31m": [0, 1]}}, {"precision": "w8a8", "ranges": [1]},
    {"precision": "w8a8", "calibrated": {"rows": 5}, "ranges": {}}, {"precision": "w8a8", "calibrated": {"graph": "x", "rows": ["a"]}, "ranges": {"rows": [0, 1]}}, {"precision": "w8a8", "smoothing": {"x": [10**30]}},
    {"precision": "w8a8", "smoothing": {"x": [1] * 100_000}, "smooth": 0.5}, {"precision": "int4", "block_size": 10**9}, {"precision": "int4", "block_size": -1}, {"precision": "w8a8", "exclude": ["*a" * 60]},
    {"precision": "w8a8", "exclude": ["[" * 500]}, {"precision": "w8a8", "exclude": ["op:\u202e"]}, {"precision": "w8a8", "percentile": 1e308, "calibration": "percentile"}, {"precision": "../x"}, {"precision": "fp16", "smooth": 1},
    {"precision": "w8a8", "op_types": ["NoSuchOp"]}, {"precision": "w8a8", "wide": ["*"], "op_types": ["MatMul", "MatMul"]}, {"precision": "int8-dynamic", "exclude": ["*"]}, {"precision": "w8a8", "calibration": "entropy", "ranges": {"tokens": [0, 0]}},
)  # fmt: skip


def recipes(sound: Sound, folder: Path, rng: Random) -> list[str]:
    path = folder / rng.choice(("recipe.yaml", "recipe.json"))
    value: Any = rng.choice(_RECIPES)
    path.write_bytes(to_json(mutate_value(value, rng) if rng.random() < 0.3 else value))
    words = [
        "build",
        str(sound.root / "onnx" / "model.onnx"),
        "--recipe",
        str(path),
        "--calibration",
        str(sound.root / "texts.txt"),
        "-o",
        str(folder / "out"),
    ]
    return [*words, *rng.choice(((), ("--json",)))]


_WORDS: tuple[Any, ...] = (
    {"colours": {"\x1b[31m": {"words": ["a"], "families": ["b"]}}}, {"colours": {"teal": {"words": ["(a+)+$", "[", "*", "\\"], "families": []}}}, {"colours": {"a": {"words": ["x" * 100_000]}}}, {"brands": {"a": {"names": [""]}}},
    {"brands": {"a": {"names": [None, 1, True]}}}, {"brands": {f"b{i}": {"names": [f"n{i}"]} for i in range(3_000)}}, {"brands": {"a": {"names": ["x"]}, "b": {"names": ["x"]}}}, {"units": {"cm": {"factor": "1e999"}}}, {"units": {"cm": 0}},
    {"sizes": {"xl": -1}}, {"columns": {"colour": "\u202e"}}, {"columns": [["a"]]}, {"kinds": {"a": {"units": {"b": {"factor": float("nan")}}}}}, {"colours": {"a": "b"}}, {"colours": None, "brands": None}, {"colours": {"a": {"families": ["a", "a"]}}},
    {"contrasts": {"a": ["b"]}}, {"colours": {"red": {"words": ["red", "red"], "families": ["red"]}}, "nouns": ["x"] * 10_000}, [], "text", 1, {"": {}}, {"colours": {1: {2: 3}}}, {"colours": {"a": {"words": {"b": "c"}}}},
)  # fmt: skip


def word_lists(sound: Sound, folder: Path, rng: Random) -> list[str]:
    """Words of colours, brands and sizes for the layers attributes and contrasts."""
    path = folder / "words.yaml"
    value = rng.choice(_WORDS)
    path.write_bytes(to_json(mutate_value(value, rng) if rng.random() < 0.3 else value))
    layers = rng.choice(("attributes", "contrasts", "attributes,contrasts", "remedies,contrasts"))
    words = ["diagnose", str(sound.root / "static"), "--dataset", str(sound.root / "beir"), "--layers", layers]
    more = rng.choice(
        (
            (),
            ("--html", str(folder / "written" / "a.html")),
            ("--contrasts", "0"),
            ("--contrasts", "1000000000"),
            ("--json",),
        )
    )
    return [*words, "--attributes", str(path), "--no-store", *more]
