"""`calipers report`, on stored runs."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from calipers import cli
from calipers.core import DataSource
from calipers.runs.store import Store
from tests.support import verdicts as made
from tests.support.documents import strict
from tests.support.samples import Run

Report = Callable[..., tuple[int, str, str]]


@pytest.fixture
def report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Report:
    """The command on a store with two runs, "whole" and "some": exit code, standard output, standard error."""
    place = Store(tmp_path / "store")
    place.save(made.result(run_id="whole", dataset=DataSource("pairs.csv")))
    place.save(made.result(run_id="some", dataset=DataSource("pairs.csv", requested=3)))

    def run(*arguments: str | Path) -> tuple[int, str, str]:
        code = cli.run(["report", *map(str, arguments), "--store", str(place.folder)])
        return code, *capsys.readouterr()

    return run


def test_a_real_run_is_reported(calipers: Run, vectors: Path, pairs: Path) -> None:
    assert calipers("eval", "-m", vectors, "--dataset", pairs).returncode == 0
    found = calipers("report", "latest")
    assert (found.returncode, found.stderr) == (0, "")
    assert found.stdout.startswith("## `vectors`: sentence-similarity\n")
    assert "| `cosine_spearman` |" in found.stdout


def test_json_is_the_document_of_eval_and_several_are_a_list(report: Report) -> None:
    _, one, _ = report("whole", "--format", "json")
    assert strict(one)["schema"] == "calipers/eval/1"
    _, both, _ = report("whole", "some", "whole", "--format", "json")
    assert [run["run"] for run in json.loads(both)] == ["whole", "some"]


@pytest.mark.parametrize("kind", ["mteb", "model-index"])
def test_a_task_of_mteb_can_be_named(report: Report, tmp_path: Path, kind: str) -> None:
    target = tmp_path / "out"
    asked = ("whole", "--format", kind, "--mteb-task", "STSBenchmark", "-o", target)
    code, out, err = report(*asked)
    assert (code, out) == (0, "")
    assert ("is not known to be of MTEB's own data of STSBenchmark (3 of 1,379 pairs)" in err) is (kind == "mteb")
    assert "STSBenchmark" in target.read_text()
    assert report(*asked)[0] == 2
    assert report(*asked, "--force")[0] == 0


@pytest.mark.parametrize("exists", [True, False])
def test_a_folder_gets_the_layout_of_mtebs_cache(report: Report, tmp_path: Path, exists: bool) -> None:
    folder = tmp_path / "results"
    if exists:
        folder.mkdir()
    asked = ("whole", "--format", "mteb", "--mteb-task", "STSBenchmark", "-o", f"{folder}/")
    code, out, _ = report(*asked)
    assert code == 0
    task, meta = map(Path, out.splitlines())
    assert task.parent == meta.parent
    assert task.relative_to(folder).parts[:2] == ("results", "calipers__all-MiniLM-L6-v2")
    assert strict(task.read_text())["task_name"] == "STSBenchmark"
    assert strict(meta.read_text())["revision"] == task.parent.name
    assert report(*asked)[0] == 2
    assert report(*asked, "--force")[0] == 0
    code, _, err = report("whole", "-o", f"{tmp_path / 'new'}/")
    assert (code, "is a folder" in err) == (2, True)


def test_a_sampled_run_is_called_one(report: Report) -> None:
    _, out, err = report("some", "--format", "mteb", "--mteb-task", "STSBenchmark")
    assert "scored 3 chosen rows" in err
    strict(out)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("nonsense",), "there is no run 'nonsense'"),
        (("whole", "--format", "mteb"), "name it with --mteb-task"),
        (("whole", "--mteb-task", "STSBenchmark"), "--mteb-task is for the formats mteb, model-index and eval-results"),
        (("whole", "--format", "mteb", "--mteb-task", "SciFact"), "judged by ndcg_at_10"),
        (("whole", "some", "--format", "model-index"), "measure the same"),
        (("whole", "-o", "/dev/null/folder/x.md"), "there is no such folder"),
    ],
)
def test_a_wrong_request_is_one_sentence(report: Report, arguments: tuple[str, ...], words: str) -> None:
    code, out, err = report(*arguments)
    assert (code, out) == (2, "")
    assert words in err
    assert err.count("\n") == 1
