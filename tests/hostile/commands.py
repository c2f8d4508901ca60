"""Hostile requests beyond `eval`: every flag of every command, registries, builds, side files, names and surroundings.

Each function makes one and returns the words of the command; words such as NAME=value before it are its environment.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from random import Random

import click

from calipers.cli import app
from tests.hostile import mutations
from tests.hostile.mutations import change, eval_line
from tests.hostile.places import Sound

_NUMBERS = ("nan", "inf", "-inf", "-1", "0", "1", "2", "1e300", "1e-300", "0.5", "²", "1_0", "0x1", "9" * 400, "1,5", "٣", "1000000000")  # fmt: skip
_TEXTS = (
    "", " ", "\x1b[31mred", "\u202egnirts", "a" * 5_000, "é" * 300, "*", "%s%n", "{0}", "$(id)", "-", "--", "a=b", "=", "a,b,,c", "all",
    "none", "[", "(", "\\", "\n", "\udcff", "../../x", "[red]x[/red]", "[/]", "<b>", "http://u:S3CRET@h/?key=S3CRET",
)  # fmt: skip
_PLACES = ("", "a" * 300, "/dev/full", "/proc/nothing", "no/such/place", ".", "/dev/null/x", "\udcff", "a\nb", "[red]")
_WRITTEN = ("output", "html", "junit", "markdown", "save", "recipe_out", "store", "work", "init")


def _base(sound: Sound, folder: Path) -> dict[str, list[str]]:
    """A request of each command that works as it is."""
    static, onnx, pairs, beir = (str(sound.root / name) for name in ("static", "onnx", "pairs.jsonl", "beir"))
    keep = ["--store", str(folder / "s")]
    return {
        "eval": ["eval", static, "--dataset", pairs, *keep, "--resamples", "100"],
        "compare": ["compare", static, onnx, "--dataset", pairs, *keep, "--resamples", "100"],
        "diagnose": [
            "diagnose",
            static,
            "--dataset",
            beir,
            *keep,
            "--layers",
            "geometry,retrieval",
        ],
        "trust": ["trust", static, "--corpus", str(sound.root / "texts.txt"), *keep, "a query"],
        "build": ["build", f"{onnx}/model.onnx", "--precision", "int8-dynamic", "-o", str(folder / "out")],
        "sweep": ["sweep", str(_registry(sound, folder)), *keep, "--no-latency", "--resamples", "100"],
        "report": ["report", "latest", "--store", str(sound.root / "store")],
        "attribute": ["attribute", f"{onnx}/model.onnx", "--dataset", pairs, "--precision", "int8-dynamic", *keep],
    }


def _registry(sound: Sound, folder: Path) -> Path:
    path = folder / "registry.yaml"
    models = [
        {"id": "a", "reference": f"static:{sound.root}/static"},
        {"id": "b", "reference": f"{sound.root}/onnx", "baseline": "a"},
    ]
    tasks = [{"id": "sts", "task": "sentence-similarity", "dataset": f"{sound.root}/pairs.jsonl", "samples": 8}]
    path.write_text(json.dumps({"models": models, "tasks": tasks, "thresholds": {"cosine_spearman": "2.0,4.0"}}))
    return path


def every_flag(sound: Sound, folder: Path, rng: Random) -> list[str]:
    """A flag of a command, chosen among all that it has, with a value that makes no sense."""
    name, words = rng.choice(sorted(_base(sound, folder).items()))
    command = app.commands[name]
    option = rng.choice(
        [
            p
            for p in command.get_params(click.Context(command, **app.context_settings))
            if isinstance(p, click.Option) and not p.is_eager
        ]
    )
    flag = rng.choice([*option.opts, *option.secondary_opts])
    if option.is_flag:
        return [*words, flag]
    if option.name in _WRITTEN:
        value = rng.choice((*_PLACES, str(folder), str(sound.root / "pairs.jsonl" / "x")))
    else:
        value = rng.choice((*_NUMBERS, *_TEXTS, *_PLACES, str(folder), str(sound.root / "pairs.jsonl")))
    return [*words, flag, value] if rng.random() < 0.5 else [*words, f"{flag}={value}"]


def registry(sound: Sound, folder: Path, rng: Random) -> list[str]:
    path = _registry(sound, folder)
    content = json.loads(path.read_text())
    for _ in range(rng.choice((1, 1, 2))):
        content = mutations.mutate_value(content, rng)
    path.write_bytes(mutations.to_json(content))
    if rng.random() < 0.3:
        change(path, rng)
    how = rng.choice((["--check"], ["--dry-run"], ["--json"], []))
    return ["sweep", str(path), "--store", str(folder / "s"), "--no-latency", "--resamples", "100", "--jobs", "1", *how]


def builds(sound: Sound, folder: Path, rng: Random) -> list[str]:
    """A model or the record of an earlier build that is damaged, and then built or attributed."""
    place = sound.copy("onnx", folder)
    words = ["build", f"{place}/model.onnx", "--precision", rng.choice(("int8-dynamic", "fp16", "w8a8", "int4"))]
    words += ["-o", str(folder / "out")]
    if rng.random() < 0.5:
        change(place / rng.choice(("model.onnx", "model.onnx", "tokenizer.json", "config.json")), rng)
        return words
    out = folder / "out"
    out.mkdir()
    (out / ".calipers-build").touch()
    stage = {
        "name": "exported",
        "path": rng.choice(("model.onnx", "../x", "/etc/passwd", "")),
        "sha256": "0",
        "size": 1,
    }
    entry = {
        "model": rng.choice(("model_quantized.onnx", "../../x", "/etc/passwd")),
        "stages": [stage],
        "settings": {},
        "key": "x",
    }
    record = {"schema": "calipers/build/1", "precisions": {"int8-dynamic": entry}}
    (out / "manifest.json").write_bytes(mutations.to_json(mutations.mutate_value(record, rng)))
    pairs = str(sound.root / "pairs.jsonl")
    return rng.choice(
        (
            words,
            eval_line(out, "--dataset", pairs),
            ["attribute", str(place / "model.onnx"), "--built", str(out), "--dataset", pairs],
        )
    )


def side_files(sound: Sound, folder: Path, rng: Random) -> list[str]:
    """The files that `diagnose`, `trust` and tasks take beside their data."""
    static, beir = str(sound.root / "static"), str(sound.root / "beir")
    kind = rng.choice(
        (
            "terms",
            "paraphrases",
            "entities",
            "out-of-domain",
            "attributes",
            "pairs",
            "qrels",
            "queries",
            "corpus",
            "sts",
        )
    )
    path = folder / f"file.{rng.choice(('txt', 'jsonl', 'csv', 'tsv', 'json', 'parquet', 'yaml', 'qrels', ''))}".rstrip(
        "."
    )
    texts = (sound.root / "texts.txt").read_text()
    content = rng.choice(
        (
            texts.encode(),
            texts.replace(" ", "\t").encode(),
            (sound.root / "pairs.jsonl").read_bytes(),
            b"q0 0 d0 1\n",
            b"\x00\xff",
            b"",
            b"{}",
            b"[1, 2]",
        )
    )
    path.write_bytes(content)
    change(path, rng)
    if kind in ("qrels", "queries", "corpus") and rng.random() < 0.5:
        files = {
            "corpus": str(sound.root / "texts.txt"),
            "queries": str(sound.root / "texts.txt"),
            "qrels": f"{beir}/qrels/test.tsv",
            kind: str(path),
        }
        return [
            "trust",
            static,
            "--corpus",
            files["corpus"],
            "--queries",
            files["queries"],
            "--calibrate",
            files["qrels"],
            "a query",
            "--no-cache",
        ]
    words = ["diagnose", static, "--no-store", "--samples", "5"]
    return [*words, *([] if kind == "corpus" else ["--dataset", beir]), f"--{kind}", str(path)]


def odd_names(sound: Sound, folder: Path, rng: Random) -> list[str]:
    """Sound files under names that shells, terminals, tables and globs read as something else."""
    name = rng.choice(
        (
            "a b",
            "-x",
            "--json",
            "[red]x",
            "\x1b[31m",
            "\u202e",
            "a\nb",
            "*",
            "%s",
            "\udcff",
            "é" * 100,
            "a=b",
            "~",
            "http:",
            "hub:x",
            "run:1",
            "$HOME",
            "a.b.c",
        )
    )
    place = folder / "d"
    place.mkdir()
    table = place / f"{name}.jsonl"
    table.write_bytes((sound.root / "pairs.jsonl").read_bytes())
    model = sound.copy("static", place).rename(place / name)
    words = eval_line(
        rng.choice((f"static:{model}", f"./{os.path.relpath(model, folder.parent / 'home')}", str(model))),
        "--dataset",
        table,
    )
    return rng.choice(
        (
            words,
            [*words, "--json"],
            [
                "compare",
                str(model),
                str(model),
                "--dataset",
                str(table),
                "--no-store",
                "--markdown",
                str(place / "m.md"),
            ],
        )
    )


def surroundings(sound: Sound, folder: Path, rng: Random) -> list[str]:
    """Variables of the environment that are not what they should be."""
    name = rng.choice(
        (
            "CALIPERS_STORE",
            "CALIPERS_SANDBOX",
            "COLUMNS",
            "LINES",
            "XDG_CACHE_HOME",
            "XDG_DATA_HOME",
            "HF_HOME",
            "GITHUB_STEP_SUMMARY",
            "HOME",
            "TMPDIR",
            "LANG",
            "TERM",
            "OMP_NUM_THREADS",
            "HF_ENDPOINT",
        )
    )
    value = rng.choice((*_NUMBERS, *_TEXTS, *_PLACES, str(sound.root / "pairs.jsonl"))).replace("\n", " ")
    words = _base(sound, folder)[rng.choice(("eval", "compare", "trust"))]
    drop = words.index("--store")
    return [f"{name}={value}", *words[:drop], *words[drop + 2 :]]
