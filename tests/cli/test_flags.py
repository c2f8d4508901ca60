"""Every flag of every command changes the record of the run, or is refused: none is taken and ignored.

The flags are read from the commands, so that a new one is covered by itself. A flag that is found to be ignored here
needs an effect, or an error where it has none.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import click
import numpy as np
import pytest

from calipers import cli, evaluate
from calipers.runs.store import Store
from tests.support.flags import NEUTRAL, Walker, flags_of
from tests.support.samples import PAIRS, write_jsonl

WORDS = [
    "apple",
    "banana",
    "cherry",
    "date",
    "elder",
    "fig",
    "grape",
    "iris",
    "jasmine",
    "kale",
    "lemon",
    "mango",
    "nut",
    "olive",
    "pear",
    "quince",
    "radish",
]


@dataclass(frozen=True)
class Place:
    """Files that commands read."""

    folder: Path
    runs: tuple[str, str]

    def __getitem__(self, name: str) -> str:
        return str(self.folder / name)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    folder = tmp_path_factory.mktemp("flags")
    shop = folder / "shop"
    (shop / "qrels").mkdir(parents=True)
    documents = [{"_id": f"d{i}", "text": f"{w} {w[::-1]} {WORDS[i - 1]}"} for i, w in enumerate(WORDS)]
    write_jsonl(shop / "corpus.jsonl", documents)  # type: ignore[arg-type]
    write_jsonl(shop / "queries.jsonl", [{"_id": f"q{i}", "text": w} for i, w in enumerate(WORDS)])
    for split, shift in (("test", 0), ("train", 1)):
        rows = [f"q{i}\td{(i + shift) % len(WORDS)}\t{1 + i % 2}\n" for i in range(len(WORDS))]
        (shop / "qrels" / f"{split}.tsv").write_text("".join(rows))
    table = ["query_id,query,product_id,product_title,esci_label"]
    table += [f"q{i},{w},d{i},{w} {w[::-1]},{'ESCI'[i % 4]}" for i, w in enumerate(WORDS)]
    (folder / "table.csv").write_text("\n".join(table) + "\n")
    (folder / "lines.txt").write_text("\n".join(f"{w} {w}" for w in WORDS) + "\n")
    write_jsonl(folder / "pairs.jsonl", PAIRS)  # type: ignore[arg-type]
    write_jsonl(folder / "others.jsonl", [{**row, "score": 5 - i} for i, row in enumerate(PAIRS)])
    texts = [str(row[key]) for row in PAIRS for key in ("sentence1", "sentence2")]
    texts += [*WORDS, *(str(row["text"]) for row in documents), *(f"{w} {w[::-1]}" for w in WORDS)]
    texts += [f"{w} {w}" for w in WORDS]
    distinct = list(dict.fromkeys(texts))
    for seed, name in enumerate(("one", "two")):
        vectors = np.random.default_rng(seed).normal(size=(len(distinct), 8)).astype(np.float32)
        np.save(folder / f"{name}.npy", vectors)
        (folder / f"{name}.txt").write_text("\n".join(distinct) + "\n")
    made = [
        evaluate(str(folder / f"{name}.npy"), dataset=str(folder / "pairs.jsonl"), store=Store(folder / "store")).run_id
        for name in ("one", "two")
    ]
    corpus = ["--corpus", str(shop), "--no-cache"]
    assert cli.run(["trust", str(folder / "one.npy"), *corpus, "--save", str(folder / "saved.trust"), "apple"]) == 0
    assert cli.run(["runs", "tag", made[0], "kept", "--store", str(folder / "store")]) == 0
    write_mteb(folder / "mteb")
    return Place(folder, (made[0], made[1]))


def write_mteb(folder: Path) -> None:
    """Two tasks of two models, as mteb writes them."""
    for name, tasks in (("one", ("This", "Other")), ("two", ("This",))):
        for task in tasks:
            scores = {"test": [{"hf_subset": "default", "languages": ["eng-Latn"], "main_score": 0.5, "spearman": 0.5}]}
            content = {"dataset_revision": "1", "task_name": task, "mteb_version": "1.0.0", "scores": scores}
            path = folder / f"us__{name}" / "no_revision" / f"{task}.json"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps({**content, "evaluation_time": 1.0, "kg_co2_emissions": None}))


def lines(place: Place) -> dict[str, list[str]]:
    """Command lines that work, by a name. Each flag of their commands is added to each of them."""
    one, two = place["one.npy"], place["two.npy"]
    shop = ["--dataset", place["shop"]]
    files = ["--corpus", place["shop/corpus.jsonl"], "--queries", place["shop/queries.jsonl"]]
    return {
        "pairs": ["eval", one, "--dataset", place["pairs.jsonl"]],
        "search": ["eval", one, "--task", "retrieval", *shop],
        "bm25": ["eval", "bm25", "--task", "retrieval", *shop],
        "models": ["compare", two, one, "--dataset", place["pairs.jsonl"], "--no-store"],
        "stored": ["compare", *reversed(place.runs), "--store", place["store"]],
        "agreement": ["compare", one, two, "--unlabelled", "--dataset", place["lines.txt"]],
        "space": ["diagnose", one, *shop, "--layers", "geometry,retrieval", "--no-store"],
        "table": ["diagnose", one, "--dataset", place["table.csv"], "--layers", "retrieval", "--no-store"],
        "files": ["diagnose", one, *files, "--layers", "retrieval", "--no-store"],
        "corpus": ["diagnose", one, "--corpus", place["shop/corpus.jsonl"], "--layers", "geometry", "--no-store"],
        "two": ["diagnose", one, *shop, "--baseline", two, "--layers", "retrieval", "--no-store"],
        "query": ["trust", one, "--corpus", place["shop"], "--no-cache", "apple"],
        "judged": ["trust", one, "--corpus", place["shop"], "--calibrate", place["shop/qrels/test.tsv"], "--no-cache"],
        "loaded": ["trust", one, "--corpus", place["shop"], "--load", place["saved.trust"], "--no-cache", "apple"],
        "drift": [
            "drift",
            one,
            "--reference",
            place["lines.txt"],
            "--current",
            place["shop/queries.jsonl"],
            "--no-cache",
        ],
        "parity": ["parity", one, two, "--dataset", place["lines.txt"]],
        "report": ["report", *place.runs, "--store", place["store"]],
        "show": ["runs", "show", place.runs[0], "--store", place["store"]],
        "list": ["runs", "list", "--store", place["store"]],
        "prune": ["runs", "prune", "--keep", "0", "--dry-run", "--store", place["store"]],
        "tag": ["runs", "tag", place.runs[0], "one", "--store", place["store"]],
        "import": ["runs", "import", place["mteb"], "--store", place["imported"]],
        "doctor": ["doctor", "--store", place["store"]],
        "tasks": ["tasks"],
    }


def values(place: Place) -> dict[str, list[str]]:
    """Values of options whose types do not suggest them."""
    return {
        "dataset": [place["others.jsonl"]], "columns": ["score_column=score2"], "metric": ["cosine_pearson"],
        "limits": ["cosine_spearman=1,2"], "task": ["pair-correlation"], "baseline": [place["two.npy"]],
        "corpus": [place["lines.txt"]], "queries": [place["lines.txt"]], "qrels": [place["shop/qrels/train.tsv"]],
        "calibrate": [place["shop/qrels/train.tsv"]], "layers": ["geometry"], "split": ["train"],
        "pairs": [place["pairs.jsonl"]], "terms": [place["lines.txt"]], "out_of_domain": [place["lines.txt"]],
        "entities": [place["lines.txt"]], "relevant_from": ["2"], "resamples": ["500"], "worst": ["1"],
        "names": ["Other"], "limit": ["1"], "reference": [place["table.csv"]], "current": [place["pairs.jsonl"]],
    }  # fmt: skip


NAMES = (
    "pairs", "search", "bm25", "models", "stored", "agreement", "space", "table", "files", "corpus", "two", "query",
    "judged", "loaded", "drift", "parity", "report", "show", "list", "prune", "tag", "import", "doctor", "tasks",
)  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_a_flag_changes_the_record_or_is_refused(
    name: str, place: Place, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(place.folder)
    monkeypatch.setenv("CALIPERS_STORE", place["default-store"])
    assert Walker(place.folder, values(place), capsys.readouterr).ignored(lines(place)[name]) == []


def commands() -> list[tuple[str, ...]]:
    """Every command, those of a group by two words."""
    context = click.Context(cli.app)
    named = {name: cli.app.get_command(context, name) for name in cli.app.list_commands(context)}
    groups = {
        name: command.list_commands(context) for name, command in named.items() if isinstance(command, click.Group)
    }
    return [
        (name, *part) for name in named for part in ([(inner,) for inner in groups[name]] if name in groups else [()])
    ]


def test_every_command_is_walked() -> None:
    """Here, with models that need time in test_model_flags.py, a sweep in tests/sweeps and a service in tests/service.
    What is not walked has flags that are neutral everywhere, and is named here: a new command, or a new flag of one of
    these, makes this fail until it is walked."""
    from tests.cli import test_model_flags
    from tests.service import test_flags as service_flags
    from tests.sweeps import test_flags as sweep_flags

    nowhere = Path("x")
    here = [*lines(Place(nowhere, ("a", "b"))).values(), *test_model_flags.lines(nowhere).values()]
    here += [*sweep_flags.lines(nowhere).values(), *service_flags.LINES.values()]
    walked = {tuple(line[:2]) if line[0] == "runs" else (line[0],) for line in here}
    rest = {command for command in commands() if command not in walked}
    assert rest == {("demo",), ("schema",), ("runs", "rm")}
    for command in rest:
        assert {option.name for option in flags_of(list(command))} <= NEUTRAL.keys(), command


def test_every_line_is_walked() -> None:
    """A line that no test names is walked by none."""
    from tests.cli import test_model_flags

    assert set(NAMES) == set(lines(Place(Path("x"), ("a", "b"))))
    assert {*test_model_flags.QUICK, *test_model_flags.SLOW} == set(test_model_flags.lines(Path("x")))


def test_what_is_neutral_is_a_flag() -> None:
    """A name that no command has is left from a flag that was renamed, and would hide one of its name."""
    assert NEUTRAL.keys() <= {option.name for command in commands() for option in flags_of(list(command))}
