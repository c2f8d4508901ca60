"""Every flag of every command changes the record of the run, or is refused: none is taken and ignored.

The flags are read from the commands, so that a new one is covered by itself. A flag that is found to be ignored here
needs an effect, or an error where it has none.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import numpy as np
import pytest

from calipers import cli, evaluate
from calipers.cli.options import HomePath
from calipers.runs.store import Store
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

# What cannot show in a record, and why that is no fault.
NEUTRAL = {
    "as_json": "how the record is shown",
    "force": "whether a file may be overwritten",
    "store": "where runs are kept",
    "no_store": "whether they are",
    "no_cache": "whether vectors are kept",
    "cache_size": "how many of them",
    "threads": "speed alone: results do not depend on it",
    "fresh": "whether a stored run answers",
    "fail_on": "the exit code of a label that is AT_RISK or INCONCLUSIVE, which these runs do not have",
    "allow_pickle": "a permission that these models do not need",
    "trust_remote_code": "a permission that these models do not need",
    "help": "no run",
}
PASSING = ("created", "run", "timing", "request", "environment", "seconds", "model_path")  # keys that differ by nature


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
    return Place(folder, (made[0], made[1]))


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
        "report": ["report", *place.runs, "--store", place["store"]],
        "show": ["runs", "show", place.runs[0], "--store", place["store"]],
    }


def values(option: click.Option, place: Place) -> list[str]:
    """Values that this option has not by itself: what its type allows, or what its name suggests."""
    named = {
        "dataset": [place["others.jsonl"]], "columns": ["score_column=score2"], "metric": ["cosine_pearson"],
        "limits": ["cosine_spearman=1,2"], "task": ["pair-correlation"], "baseline": [place["two.npy"]],
        "corpus": [place["lines.txt"]], "queries": [place["lines.txt"]], "qrels": [place["shop/qrels/train.tsv"]],
        "calibrate": [place["shop/qrels/train.tsv"]], "layers": ["geometry"], "split": ["train"],
        "pairs": [place["pairs.jsonl"]], "terms": [place["lines.txt"]], "out_of_domain": [place["lines.txt"]],
        "entities": [place["lines.txt"]], "relevant_from": ["2"], "resamples": ["500"], "worst": ["1"],
    }  # fmt: skip
    if option.name in named:
        return named[option.name]
    if isinstance(option.type, click.Choice):
        return [choice for choice in option.type.choices if choice != option.default]
    if isinstance(option.type, HomePath):
        return [str(place.folder / f"out-{option.name}")]
    number = option.default if isinstance(option.default, (int, float)) else None
    if option.type is click.INT:
        return ["3", "7"] if number is None else [str(number + 1)]
    if isinstance(option.type, click.FloatRange) or option.type is click.FLOAT:
        return [str(0.5 if not number else 0.9 * number)]
    return ["x "]


def probes(option: click.Option, place: Place) -> Iterator[list[str]]:
    if option.is_flag or option.secondary_opts:
        names = [max(option.opts, key=len)] if option.default is not True else []
        for name in (*names, *option.secondary_opts):
            yield [name]
    else:
        for value in values(option, place):
            yield [max(option.opts, key=len), value]


def find_command(line: list[str]) -> click.Command:
    command: Any = cli.app.get_command(click.Context(cli.app), line[0])
    return command.get_command(click.Context(command), line[1]) if isinstance(command, click.Group) else command


def strip(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: strip(inner) for key, inner in value.items() if key not in PASSING}
    return [strip(inner) for inner in value] if isinstance(value, list) else value


@pytest.fixture
def record(capsys: pytest.CaptureFixture[str]) -> Callable[[list[str]], tuple[int, Any, str]]:
    """The exit code of a command line, its record, and its message."""

    def run(line: list[str]) -> tuple[int, Any, str]:
        as_json = ["--json"] if "--json" not in line and line[0] != "report" else []
        code = cli.run([*line, *as_json])
        printed = capsys.readouterr()
        try:
            return code, strip(json.loads(printed.out)), printed.err
        except ValueError:
            return code, printed.out, printed.err

    return run


NAMES = (
    "pairs", "search", "bm25", "models", "stored", "agreement", "space", "table", "files", "corpus", "two", "query",
    "judged", "report", "show",
)  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_a_flag_changes_the_record_or_is_refused(
    name: str, place: Place, record: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(place.folder)
    line = lines(place)[name]
    command = find_command(line)
    code, before, message = record(line)
    assert code in (0, 1, 5), message
    given = {word.partition("=")[0] for word in line if word.startswith("-")}
    ignored = []
    for option in command.get_params(click.Context(command)):
        if not isinstance(option, click.Option) or option.name in NEUTRAL:
            continue
        if given & {*option.opts, *option.secondary_opts}:
            continue
        if not any(has_effect([*line, *words], option, (code, before), record) for words in probes(option, place)):
            ignored.append(max(option.opts, key=len))
    assert ignored == []


def has_effect(line: list[str], option: click.Option, before: tuple[int, Any], record: Any) -> bool:
    """Whether the line is refused in one sentence, gives another record, or writes the file that it names."""
    code, after, message = record(line)
    if code in (2, 3):
        assert message.count("\n") == 1, message
        return True
    file = Path(line[-1]) if isinstance(option.type, HomePath) else None
    return (code, after) != before or bool(file and file.exists())
