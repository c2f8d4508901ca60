"""README, CONTRIBUTING and docs are true: their code runs, their commands parse, the names and links in them exist.

Every block of Python is parsed, and the arguments of each public function in it must fit the signature. A block of
README or docs also runs, in a folder with the bundled sample data, where `STAND_INS` replaces models by small ones.
Three kinds do not run here: those that import mteb, which needs the hub, those that export a graph (`build`,
`attribute`, `sweep`), which takes long, and those of docs/evaluators.md, which have a test of their own. The blocks of
CONTRIBUTING.md are pieces of modules and do not run either.
"""

from __future__ import annotations

import ast
import csv
import importlib
import inspect
import json
import re
import shlex
import shutil
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
import numpy as np
import pytest

import calipers
from calipers import cli, data, tasks
from calipers.core import Encoder, options
from calipers.metrics import geometry, means
from calipers.models import ABILITIES, ModelOptions, bm25
from calipers.runs import report
from calipers.tasks import rankers

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "calipers"
GENERATED = "cli.md"
PAGES = [ROOT / "README.md", *sorted(p for p in (ROOT / "docs").glob("*.md") if p.name != GENERATED)]
NAMING = [ROOT / "CONTRIBUTING.md", ROOT / "docs" / "design.md"]  # the documents that name modules and signatures
DOCUMENTS = [*PAGES, ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"]

_FENCE = re.compile(r"^( *)```(\w*)\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)


def blocks(page: Path, *languages: str) -> list[str]:
    return [textwrap.dedent(text) for _, language, text in _FENCE.findall(read(page)) if language in languages]


def read(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def spans(page: Path) -> list[str]:
    """What stands in code spans, outside of blocks."""
    prose = _FENCE.sub("", read(page))
    return [" ".join((double or single).split()) for double, single in re.findall(r"`` (.+?) ``|`([^`]+)`", prose)]


def python_blocks(pages: list[Path], without: tuple[str, ...] = ()) -> list[Any]:
    return [
        pytest.param(text, id=f"{page.name}-{i}")
        for page in pages
        for i, text in enumerate(blocks(page, "python"), start=1)
        if not any(word in text for word in without)
    ]


# --- Python ------------------------------------------------------------------------------------------------------

NOT_RUN = ("import mteb", "calipers.interop.mteb", "build(", "attribute(", "sweep(", "evaluator", 'backend="onnx"')
TEXTS = ["does aspirin prevent colds", "vitamin D and bone density"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Scored pairs and a corpus with judgements, from the bundled pairs, and vectors for all of their texts."""
    place = tmp_path_factory.mktemp("documents")
    rows = [json.loads(line) for line in data.sample("english").read_text(encoding="utf-8").splitlines()]
    names = ["sentence1", "sentence2", "score"]
    for name, header in (("pairs", names), ("ratings", ["query", "title", "rating"])):
        with (place / f"{name}.csv").open("w", encoding="utf-8", newline="") as file:
            csv.writer(file).writerows([header, *([row[key] for key in names] for row in rows)])
    _write_corpus(place / "scifact", [row["sentence1"] for row in rows], [row["sentence2"] for row in rows])
    texts = list(dict.fromkeys([*(row[f"sentence{n}"] for row in rows for n in (1, 2)), *TEXTS]))
    for name, seed in (("one", 0), ("two", 1)):
        np.save(place / f"{name}.npy", np.random.default_rng(seed).normal(size=(len(texts), 8)).astype(np.float32))
        (place / f"{name}.txt").write_text("\n".join(texts) + "\n", encoding="utf-8")
    (place / "more.yaml").write_text("not_colours: [red herring]\n", encoding="utf-8")
    shutil.copy(data.sample("english"), place)
    return place


def _write_corpus(place: Path, queries: list[str], documents: list[str]) -> None:
    (place / "qrels").mkdir(parents=True)
    for name, texts in (("queries", queries), ("corpus", documents)):
        lines = (json.dumps({"_id": f"{name[0]}{i}", "text": text}) for i, text in enumerate(texts))
        (place / f"{name}.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    grades = "".join(f"q{i}\tc{i}\t1\n" for i in range(len(queries)))
    (place / "qrels" / "test.tsv").write_text(f"query-id\tcorpus-id\tscore\n{grades}", encoding="utf-8")


STAND_INS = {"./model.onnx": "one.npy", "./model": "one.npy", "./float32": "one.npy", "./quantised": "two.npy"}


def surroundings() -> dict[str, Any]:
    """The names that blocks take for granted: vectors of a corpus and of queries, and their ids."""
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(60, 8)).astype(np.float32)
    names = {
        "corpus_vectors": vectors,
        "queries": vectors[:2] + 0.1,
        "query_vectors": vectors[:2] + 0.1,
        "neighbour_vectors": vectors[:20].reshape(2, 10, 8),
        "query_ids": ["q1", "q2"],
        "ids": [f"d{i}" for i in range(60)],
        "corpus_brands": ["サーモス(Thermos)"],
    }
    return {"__name__": "__document__", **names}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("text", python_blocks(PAGES, without=NOT_RUN))
def test_a_block_runs(text: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    monkeypatch.setenv("CALIPERS_STORE", str(folder / "store"))
    for name, file in STAND_INS.items():
        text = text.replace(f'"{name}"', f'"{file}"')
    exec(compile(text, "document", "exec"), surroundings())


def calls(text: str) -> Iterator[tuple[Any, ast.Call]]:
    """Every call in a block of a name that it imports from calipers, or of an attribute of `calipers`."""
    tree = ast.parse(text)
    names = {
        alias.asname or alias.name: getattr(importlib.import_module(node.module or ""), alias.name)
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("calipers")
        for alias in node.names
    }
    names["calipers"] = calipers
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            called = _resolve(node.func, names)
            if called is not None:
                yield called, node


def _resolve(node: ast.expr, names: dict[str, Any]) -> Any:
    if isinstance(node, ast.Name):
        return names.get(node.id)
    if isinstance(node, ast.Attribute):
        owner = _resolve(node.value, names)
        return None if owner is None else getattr(owner, node.attr)
    return None


@pytest.mark.parametrize("text", python_blocks([*PAGES, ROOT / "CONTRIBUTING.md"]))
def test_the_calls_of_a_block_fit_the_signatures(text: str) -> None:
    for called, node in calls(text):
        inspect.signature(called).bind(*node.args, **{k.arg: k.value for k in node.keywords if k.arg})


def test_the_readme_shows_every_public_function() -> None:
    functions = {called for text in blocks(ROOT / "README.md", "python") for called, _ in calls(text)}
    for name in ("evaluate", "compare", "build", "attribute", "diagnose", "trust", "sweep", "report"):
        assert getattr(calipers, name) in functions, name


# --- commands ----------------------------------------------------------------------------------------------------

# A command keeps the help option of the first context that it sees, so it must be that of the real command line.
APP = click.Context(cli.app, info_name="calipers", **cli.app.context_settings)


def command_lines(page: Path) -> list[list[str]]:
    """Every `calipers …` of the blocks, as words without the program."""
    lines = []
    for text in blocks(page, "", "bash"):
        for line in text.replace("\\\n", " ").splitlines():
            line = line.removeprefix("$ ").partition(" || ")[0]
            if line.startswith("calipers "):
                lines.append(shlex.split(line, comments=True)[1:])
    return lines


def command_of(words: list[str]) -> tuple[click.Command, list[str]]:
    command, rest = cli.app.commands[words[0]], words[1:]
    if isinstance(command, click.Group) and rest:
        return command.commands[rest[0]], rest[1:]
    return command, rest


@pytest.mark.parametrize("words", [pytest.param(w, id=" ".join(w)[:60]) for page in PAGES for w in command_lines(page)])
def test_a_command_parses(words: list[str]) -> None:
    command, rest = command_of(words)
    command.make_context(words[0], cli.spread_columns(rest), parent=APP).close()


def flags_of(command: click.Command) -> set[str]:
    parameters = command.get_params(click.Context(command, parent=APP))
    names = {name for parameter in parameters for name in (*parameter.opts, *parameter.secondary_opts)}
    inner = command.commands.values() if isinstance(command, click.Group) else ()
    return names.union(*map(flags_of, inner))


@pytest.mark.parametrize("page", [*PAGES, ROOT / "CHANGELOG.md"], ids=lambda page: page.name)
def test_the_flags_that_a_page_speaks_of_exist(page: Path) -> None:
    """In `calipers COMMAND …` they are flags of that command, elsewhere of any."""
    unknown = []
    for span in spans(page):
        words = span.split()
        named = words[0] == "calipers" and len(words) > 1 and words[1] in cli.app.commands
        flags = flags_of(cli.app.commands[words[1]] if named else cli.app)
        if named or words[0].startswith("--"):
            unknown += [word for word in words if re.match(r"--?[a-z]", word) and word.partition("=")[0] not in flags]
    assert unknown == []


@pytest.mark.parametrize("line", ["eval ./model --no-such-flag", "report latest --format nonsense", "eval ./a ./b"])
def test_a_planted_command_that_does_not_parse_is_noticed(line: str) -> None:
    with pytest.raises(click.UsageError):
        test_a_command_parses(line.split())


# --- names -------------------------------------------------------------------------------------------------------

_FILE = re.compile(r"[\w./]+\.(py|yaml|md|txt)")
_CALL = re.compile(r"([\w.]+)\(([\w*, ]+)\)")


@pytest.mark.parametrize("page", NAMING, ids=lambda page: page.name)
def test_the_files_that_a_page_names_exist(page: Path) -> None:
    own = {"api.py", "records.py"}  # every room has them
    names = [span for span in spans(page) if _FILE.fullmatch(span) and span not in own]
    assert len(names) > 10
    missing = [name for name in names if not (SOURCE / name).exists() and not (ROOT / name).exists()]
    assert [name for name in missing if name != "bench/NAME.py"] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_files_of_this_repository_that_a_page_names_exist(page: Path) -> None:
    names = re.findall(r"(?<![\w/.])(?:src|tests|bench|docs)/[\w/.*-]*[\w*/]", read(page))
    assert [name for name in names if not list(ROOT.glob(name))] == []


@pytest.mark.parametrize("page", NAMING, ids=lambda page: page.name)
def test_the_folders_that_a_page_names_exist(page: Path) -> None:
    names = [span for span in spans(page) if re.fullmatch(r"[a-z_/]+/", span)]
    inside = (SOURCE, ROOT, SOURCE / "diagnosis")
    assert [name for name in names if not any((place / name).is_dir() for place in inside)] == []


def backend_loaders() -> list[Callable[..., Any]]:
    places = {tuple(place.split(".")) for backends in ABILITIES.values() for place in backends.values()}
    places -= {("hybrid", "combine")}  # which is given an encoder that another backend has loaded
    return [getattr(importlib.import_module(f"calipers.models.{module}"), name) for module, name in sorted(places)]


def layer_runs() -> list[Callable[..., Any]]:
    from calipers.diagnosis.layers import LAYERS

    return [layer.run for layer in LAYERS.values()]


# A signature as the documents write it → everything that must have it.
SIGNATURES: dict[str, Callable[[], list[Callable[..., Any]]]] = {
    "Task.run": lambda: [task.run for task in tasks.TASKS],
    "Layer.run": layer_runs,
    "load": backend_loaders,
    "encode": lambda: [Encoder.encode],
    "rank": lambda: [rankers.Ranker.rank, rankers.GivenRun.rank, bm25.BM25.rank],
    "option": lambda: [options.option],
    "options.refuse_others": lambda: [ModelOptions.refuse_others],
    "report": lambda: [report.report],
    "mean_statistic": lambda: [means.mean_statistic],
    "Estimate": lambda: [geometry.Estimate],
}
ELSEWHERE = {"main", "score", "log_probs", "statistic", "evaluate"}  # abilities and functions, named by what they read


@pytest.mark.parametrize("page", NAMING, ids=lambda page: page.name)
def test_the_signatures_that_a_page_names_are_those_of_the_source(page: Path) -> None:
    """Word for word; parameters with a default may be left out at the end."""
    for span in spans(page):
        match = _CALL.fullmatch(span)
        if not match or match[1] in ELSEWHERE or " -> " in span:
            continue
        assert match[1] in SIGNATURES, span
        for function in SIGNATURES[match[1]]():
            assert _fits(match[2], inspect.signature(function)), (span, function, inspect.signature(function))


def _fits(written: str, signature: inspect.Signature) -> bool:
    named = inspect.signature(eval(f"lambda {written}: None")).parameters
    wanted = {name: p for name, p in signature.parameters.items() if name != "self"}
    head = list(wanted.items())[: len(named)]
    rest = list(wanted.values())[len(named) :]
    same = [(name, p.kind) for name, p in head] == [(name, p.kind) for name, p in named.items()]
    return same and all(p.default is not p.empty for p in rest)


@pytest.mark.parametrize(
    ("written", "fits"),
    [("model, dataset, options, progress", True), ("model, dataset, progress", False), ("model", False)],
)
def test_a_planted_signature_of_the_past_is_noticed(written: str, fits: bool) -> None:
    assert all(_fits(written, inspect.signature(task.run)) is fits for task in tasks.TASKS)


_MEMBER = re.compile(r"`(\w+)(?:\.\w+)?(?:\([^`]*\))?`\s+(?:of|in)\s+`([\w/]+\.py)`")


@pytest.mark.parametrize("page", NAMING, ids=lambda page: page.name)
def test_a_name_of_a_module_is_there(page: Path) -> None:
    members = [(name, file) for name, file in _MEMBER.findall(read(page)) if not file.startswith("bench/NAME")]
    for name, file in members:
        place = next(p for p in (SOURCE / file, ROOT / file) if p.exists())
        assert re.search(rf"^(def |class |)(async )?{name}\b", read(place), re.MULTILINE), (name, file)
    assert page.name != "CONTRIBUTING.md" or len(members) >= 8


def test_the_rooms_and_their_ranks_are_those_of_the_architecture() -> None:
    source = read(ROOT / "tests" / "test_architecture.py")
    table = re.search(r"^RANKS = (\{.*?^\})", source, re.MULTILINE | re.DOTALL)
    assert table
    ranks = {room: rank for room, rank in ast.literal_eval(table[1]).items() if not room.startswith("__")}
    rows = re.findall(r"^\| `(\w+)/` \| (\d+) \|", read(ROOT / "docs" / "design.md"), re.MULTILINE)
    assert {room: int(rank) for room, rank in rows} == ranks


# --- words ---------------------------------------------------------------------------------------------------------

# The usual terms instead: reported, depends on, requested, skipped, not supported for.
_AVOIDED = r"\b(told|hangs?|wish(es|ed)?|spared?|asked|of which|that of|did not go|has no form for)\b"


@pytest.mark.parametrize("page", DOCUMENTS, ids=lambda page: page.name)
def test_a_page_is_in_plain_english(page: Path) -> None:
    assert [line for line in read(page).splitlines() if re.search(_AVOIDED, line)] == []


# --- links -------------------------------------------------------------------------------------------------------


def anchors(page: Path) -> set[str]:
    titles = re.findall(r"^#+ (.*)$", _FENCE.sub("", read(page)), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", DOCUMENTS, ids=lambda page: page.name)
def test_links_between_documents_resolve(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", read(page)):
        if "://" in target:
            continue
        path, _, anchor = target.partition("#")
        file = page.parent / path if path else page
        assert file.exists(), target
        assert not anchor or anchor in anchors(file), target
