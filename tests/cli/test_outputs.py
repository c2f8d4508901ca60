"""Files that a command writes: checked before the work, written whatever else fails, never at the cost of a verdict."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import click
import pytest

from calipers import cli
from calipers.cli import options
from calipers.core import RequestError
from calipers.rendering import markdown
from calipers.runs.store import Store
from tests.support.samples import Run, write_jsonl


def make_corpus(folder: Path, *, document: str = "d1") -> Path:
    (folder / "qrels").mkdir(parents=True)
    write_jsonl(folder / "corpus.jsonl", [{"_id": document, "text": "red wine"}, {"_id": "d2", "text": "white bread"}])
    write_jsonl(folder / "queries.jsonl", [{"_id": "q1", "text": "wine"}, {"_id": "q2", "text": "bread"}])
    (folder / "qrels" / "test.tsv").write_text(f"q1\t{document}\t1\nq2\td2\t1\n")
    return folder


def runs(tmp_path: Path) -> int:
    return len(Store(tmp_path / "store").list())


def test_a_run_file_is_checked_before_the_search(calipers: Run, tmp_path: Path) -> None:
    search = ("eval", "bm25", "--task", "retrieval", "--dataset", make_corpus(tmp_path / "plain"))
    folder, file = tmp_path / "folder", tmp_path / "kept.run"
    folder.mkdir()
    file.write_text("mine\n")
    for place, words in ((folder, "is a folder"), (tmp_path / "no" / "x.run", "no such folder"), (file, "--force")):
        done = calipers(*search, "--run-out", place)
        assert (done.returncode, done.stdout) == (2, "")
        assert words in done.stderr
    assert file.read_text() == "mine\n"
    assert runs(tmp_path) == 0
    done = calipers(*search, "--run-out", file, "--force")
    assert done.returncode == 0
    assert file.read_text().splitlines()[0].split()[:3] == ["q1", "Q0", "d1"]


def test_an_id_that_a_run_file_cannot_hold_is_refused_before_the_search(calipers: Run, tmp_path: Path) -> None:
    place, file = make_corpus(tmp_path / "spaced", document="d 1"), tmp_path / "x.run"
    done = calipers("eval", "bm25", "--task", "retrieval", "--dataset", place, "--run-out", file)
    assert done.returncode == 2
    assert "'d 1'" in done.stderr
    assert (runs(tmp_path), file.exists()) == (0, False)
    assert calipers("eval", "bm25", "--task", "retrieval", "--dataset", place).returncode == 0


def test_a_summary_that_cannot_be_written_does_not_cost_the_verdict(
    calipers: Run, vectors: Path, pairs: Path, tmp_path: Path
) -> None:
    compare = ("compare", vectors, vectors, "--dataset", pairs)
    done = calipers(*compare, "--markdown", tmp_path / "no" / "summary.md")
    assert (done.returncode, done.stdout) == (2, "")
    assert runs(tmp_path) == 0
    done = calipers(*compare, env={"GITHUB_STEP_SUMMARY": str(tmp_path / "no" / "summary.md")})
    assert done.returncode in (0, 5)  # five pairs: the label is of no matter here
    assert "cosine_spearman" in done.stdout
    assert "the summary of the job is skipped" in done.stderr


def test_every_output_is_tried_and_the_failure_comes_last(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    def fail() -> None:
        raise click.UsageError("x.html cannot be written: the disk is full")

    file = tmp_path / "x.txt"
    flags = {"as_json": True, "output": tmp_path / "x.json"}
    with pytest.raises(click.UsageError, match="the disk is full"):
        options.emit({"label": "PASS"}, flags, print, fail, lambda: options.write_output(file, "text"))
    assert json.loads(capsys.readouterr().out) == json.loads((tmp_path / "x.json").read_text()) == {"label": "PASS"}
    assert file.read_text() == "text\n"
    options.emit({"label": "REGRESSION"}, {"as_json": True}, print, fail, code=1)
    assert capsys.readouterr().err == "calipers: x.html cannot be written: the disk is full\n"


def test_a_device_is_written_to_and_not_replaced(calipers: Run, vectors: Path, pairs: Path) -> None:
    assert calipers("eval", vectors, "--dataset", pairs, "-o", "/dev/null").returncode == 0
    assert Path("/dev/null").is_char_device()


def test_a_pipe_is_written_to_and_nobody_is_waited_for(
    calipers: Run, vectors: Path, pairs: Path, tmp_path: Path
) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    done = calipers("eval", vectors, "--dataset", pairs, "-o", pipe)
    assert (done.returncode, "pipe cannot be written: nobody reads from it" in done.stderr) == (2, True), done.stderr
    with pytest.raises(RequestError, match="pipe cannot be written: nobody reads from it"):
        markdown.append(pipe, "what is added to a summary")
    with subprocess.Popen(["cat", pipe], stdout=subprocess.PIPE) as reader:
        assert calipers("eval", vectors, "--dataset", pairs, "-o", pipe).returncode == 0
        assert json.loads(reader.communicate()[0])["task"] == "sentence-similarity"


def test_a_tilde_in_a_path_is_the_home_folder(
    calipers: Run, vectors: Path, pairs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, work = tmp_path / "home", tmp_path / "work"
    home.mkdir()
    work.mkdir()
    monkeypatch.chdir(work)
    done = calipers("eval", vectors, "--dataset", pairs, "--store=~/x", "--output=~/r.json", env={"HOME": str(home)})
    assert done.returncode == 0, done.stderr
    assert sorted(path.name for path in home.iterdir()) == ["r.json", "x"]
    assert list(work.iterdir()) == []
    result = Store(home / "x").load("latest")
    assert len(result.outcomes) == 5
    listed = calipers("runs", "list", "--json", "--store=~/x", env={"HOME": str(home)})
    assert json.loads(listed.stdout)[0]["run_id"] == result.run_id
    by_variable = calipers("runs", "show", "latest", env={"HOME": str(home), "CALIPERS_STORE": "~/x"})
    assert by_variable.returncode == 0


@pytest.mark.parametrize("flag", ["-o", "--junit"])
def test_a_folder_is_not_written_as_a_file(flag: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["compare", "a", "b", flag, f"{tmp_path}/new/"]) == 2
    assert "names a folder: expected a file" in capsys.readouterr().err
    assert not (tmp_path / "new").exists()
