"""Odd names, ids and texts on their way into every format: tables, JSON, HTML, JUnit XML, Markdown, CSV, run files.

What is written goes to the folder `written`, whose files are read as strictly as what stands on the terminal.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from random import Random

from tests.hostile.documents import ODD_NAMES
from tests.hostile.places import WORDS, Sound

_ODD_TEXTS = (
    "\x1b]0;title\x07", "\u202etxet", "\u2066a\u2069", "\x9b31m", "<script>alert(1)</script>", "</td><img src=x onerror=alert(1)>", "]]><x>", "`code` | cell |", "[link](javascript:alert(1))", "![x](http://h/x.png)",
    "\x00", "\ud800", "a\rb", "=cmd|' /C calc'!A0", "\u2028line", "{% raw %}", "&#x1b;", "\x85", "\ufffe", "\U000e0041", "::error::x", "::set-output name=a::b", "%0A", "# HELP x", "\\u001b", "😀" * 50, "e\u0301" * 500,
)  # fmt: skip


def names(sound: Sound, folder: Path, rng: Random) -> list[str]:
    """A run under an odd name, with odd tags, then shown in a format of its own."""
    store, written = ["--store", str(folder / "s")], folder / "written"
    odd = rng.choice(ODD_NAMES)
    words = [
        "eval",
        str(sound.root / "static"),
        "--dataset",
        str(sound.root / "pairs.jsonl"),
        "--resamples",
        "100",
        *store,
    ]
    words += rng.choice((["--name", odd], ["--tag", odd], ["--tag", "ok", "--tag", odd], ["--model-id", odd]))
    after = rng.choice(
        (
            ["runs", "list"], ["runs", "list", "--csv"], ["runs", "list", "--json"], ["runs", "list", "--tag", odd], ["runs", "show", odd], ["runs", "tag", "latest", odd], ["runs", "tag", "latest", odd, "--remove"],
            ["runs", "prune", "--keep", "1"], ["report", "latest"], ["report", "latest", "--format", "model-index", "--mteb-task", "STSBenchmark"],
            ["report", "latest", "--format", "mteb", "--mteb-task", "STSBenchmark", "-o", f"{written}/"], ["report", "latest", "--format", "eval-results", "--mteb-task", "STSBenchmark", "-o", f"{written}/"],
            ["compare", odd, "latest", "--junit", str(written / "a.xml"), "--markdown", str(written / "a.md")], ["runs", "show", "latest", "--outcomes", str(written / "a.csv")],
        )
    )  # fmt: skip
    return [*words, "&&", *after, *store]


def texts(sound: Sound, folder: Path, rng: Random) -> list[str]:
    """Data whose texts, ids and columns are odd, in a command that shows them."""
    odd = [rng.choice(_ODD_TEXTS) for _ in range(3)]
    beir, written = folder / "beir", folder / "written"
    (beir / "qrels").mkdir(parents=True)
    corpus = [
        {"_id": f"d{i}{odd[0]}", "title": odd[1], "text": f"{WORDS[i]} {WORDS[i + 1]} {odd[2]}"} for i in range(12)
    ]
    queries = [{"_id": f"q{i}{odd[1]}", "text": f"{odd[0]} {WORDS[i]} {WORDS[-i]}"} for i in range(12)]
    for name, rows in (("corpus", corpus), ("queries", queries)):
        (beir / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    judged = "".join(f"{q['_id']}\t{d['_id']}\t1\n" for q, d in zip(queries, corpus, strict=True))
    (beir / "qrels" / "test.tsv").write_bytes(f"query-id\tcorpus-id\tscore\n{judged}".encode("utf-8", "replace"))
    static, keep = str(sound.root / "static"), ["--no-store", "--resamples", "100"]
    pairs = folder / "pairs.jsonl"
    rows = [
        {
            "id": f"{i}{odd[0]}",
            "sentence1": f"{odd[1]} {WORDS[i]}",
            "sentence2": f"{odd[2]} {WORDS[i * 7 % 5]}",
            "score": i % 5,
            "label": i % 2,
        }
        for i in range(12)
    ]
    pairs.write_text("".join(json.dumps(row) + "\n" for row in rows))
    lines = (
        ["diagnose", static, "--dataset", str(beir), "--no-store", "--layers", "geometry,retrieval,certainty", "--html", str(written / "a.html")],
        ["diagnose", static, "--dataset", str(beir), *keep, "--baseline", str(sound.root / "onnx"), "--layers", "retrieval", "--html", str(written / "b.html"), "--json"],
        ["eval", static, "--dataset", str(beir), "--task", "retrieval", *keep, "--run-out", str(written / "run.txt")],
        ["eval", static, "--dataset", str(pairs), *keep, "--json"], ["eval", static, "--dataset", str(pairs), *keep, "-o", str(written / "a.json")],
        ["compare", static, str(sound.root / "onnx"), "--dataset", str(pairs), *keep, "--worst", "3", "--junit", str(written / "a.xml"), "--markdown", str(written / "a.md")],
        ["trust", static, "--corpus", str(beir), "--no-cache", odd[0] or "q", "a query", "--json"], ["trust", static, "--corpus", str(beir), "--no-cache", "a query", "--details"],
        ["eval", static, "--dataset", str(pairs), "--store", str(folder / "s"), "&&", "runs", "show", "latest", "--examples", "5", "--store", str(folder / "s")],
        ["drift", static, "--reference", str(sound.root / "texts.txt"), "--current", str(beir / "queries.jsonl"), "--no-cache"],
        ["parity", static, str(sound.root / "onnx"), "--dataset", str(beir), "--markdown", str(written / "p.md")],
    )  # fmt: skip
    return [word.replace("\x00", " ") for word in rng.choice(lines)]


def targets(sound: Sound, folder: Path, rng: Random) -> list[str]:
    """Outputs that lead to what is there already: a canary must survive, whatever the command says."""
    canary = folder / "canary.txt"
    canary.write_text("canary")
    mine = folder / "mine"
    mine.mkdir()
    (mine / "canary.txt").write_text("canary")
    (mine / "manifest.json").write_text("[1]")
    link = folder / "link"
    os.symlink(rng.choice((canary, mine, folder / "nowhere", "/dev/full", link)), link)
    place = str(rng.choice((canary, mine, link, link / "x", canary / "x", mine / ".." / "canary.txt")))
    static, onnx, pairs = (str(sound.root / name) for name in ("static", "onnx", "pairs.jsonl"))
    keep = ["--no-store", "--resamples", "100"]
    flag = rng.choice(
        (
            "--html",
            "--junit",
            "-o",
            "--save",
            "--run-out",
            "--outcomes",
            "--recipe-out",
            "--csv",
            "--store",
            "--work",
        )
    )
    lines = {
        "--html": ["diagnose", static, "--dataset", str(sound.root / "beir"), "--no-store", "--layers", "geometry"], "--junit": ["compare", static, onnx, "--dataset", pairs, *keep],
        "-o": rng.choice((["build", f"{onnx}/model.onnx", "--precision", "fp16"], ["eval", static, "--dataset", pairs, *keep], ["report", "latest", "--store", str(sound.root / "store")])),
        "--save": ["trust", static, "--corpus", str(sound.root / "texts.txt"), "--no-cache"], "--run-out": ["eval", static, "--task", "retrieval", "--dataset", str(sound.root / "beir"), *keep],
        "--outcomes": ["runs", "show", "latest", "--store", str(sound.root / "store")], "--recipe-out": ["build", f"{onnx}/model.onnx", "--precision", "fp16", "-o", str(folder / "out")],
        "--csv": ["sweep", "show", str(folder / "none.yaml")], "--store": ["eval", static, "--dataset", pairs, "--resamples", "100"],
        "--work": ["attribute", f"{onnx}/model.onnx", "--dataset", pairs, "--precision", "int8-dynamic", "--no-store"],
    }  # fmt: skip
    return [*lines[flag], flag, place]
