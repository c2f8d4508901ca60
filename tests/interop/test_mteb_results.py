"""mteb's result files as runs: read, stored, shown and compared, without mteb."""

from __future__ import annotations

import csv
import json
import math
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from calipers import tasks
from calipers.core import DataError, DataSource, InvalidOutput, ModelInfo, RequestError
from calipers.interop.mteb import TaskScore, drops, import_results, to_result
from calipers.runs.store import Store
from tests.support.samples import Run

WHO = ModelInfo("mteb", "a/b", None, "cpu", "revision:1")
MTEB = DataSource("mteb")


def score(task: str, value: float, subset: str = "default", type_: str = "", revision: str = "r") -> TaskScore:
    return TaskScore(task, "test", subset, value, revision, "2.26.24", type_)


def write(folder: Path, task: str, scores: Any, **more: Any) -> Path:
    """A file as mteb's TaskResult writes it."""
    folder.mkdir(parents=True, exist_ok=True)
    content = {"dataset_revision": "r1", "task_name": task, "mteb_version": "2.1.0", "scores": scores} | more
    (folder / f"{task}.json").write_text(json.dumps(content), encoding="utf-8")
    return folder


def rows(**subsets: Any) -> list[dict[str, Any]]:
    return [{"hf_subset": name, "languages": ["eng-Latn"], "main_score": value} for name, value in subsets.items()]


def a_model(folder: Path, name: str, values: Iterable[float]) -> Path:
    place = folder / "results" / name.replace("/", "__") / "abc123"
    for number, value in enumerate(values):
        write(place, f"Task{number}", {"test": rows(default=value)}, evaluation_time=1.5)
    return place


def test_every_task_counts_the_same_and_so_does_every_type() -> None:
    scores = [
        score("A", 0.1, "en", "STS"), score("A", 0.3, "ja", "STS"), score("B", 0.8, type_="STS"),
        score("C", 0.9, type_="Retrieval"),
    ]  # fmt: skip
    result = to_result(scores, WHO, source=MTEB)
    assert result.metrics["mean_main_score"] == pytest.approx(100 * (0.2 + 0.8 + 0.9) / 3)
    assert result.metrics["mean_by_type"] == pytest.approx(100 * ((0.2 + 0.8) / 2 + 0.9) / 2)
    assert result.intervals == {"mean_main_score": None, "mean_by_type": None}
    assert result.warnings == ("no interval: too few scores to resample, at least 8 are needed and 4 found",)


def test_a_type_that_is_not_known_leaves_only_the_mean_over_tasks() -> None:
    result = to_result([score("A", 0.5, type_="STS"), score("B", 0.7)], WHO, source=MTEB)
    assert list(result.metrics) == ["mean_main_score"]


def test_eight_scores_have_an_interval_that_holds_the_mean() -> None:
    result = to_result([score(f"T{i}", i / 10) for i in range(8)], WHO, source=MTEB)
    low, high = result.intervals["mean_main_score"] or (math.nan, math.nan)
    spread = 100 * np.std(np.arange(8) / 10, ddof=1) / math.sqrt(8)
    assert low == pytest.approx(35 - 2.365 * spread, abs=2)  # Student's t with 7 degrees of freedom
    assert high == pytest.approx(35 + 2.365 * spread, abs=2)
    assert result.warnings == ()


@pytest.mark.parametrize(
    ("scores", "kind", "message"),
    [
        ([], DataError, "no mteb score"),
        ([score("A", 0.5), score("A", 0.6)], DataError, "more than one mteb score for A/test/default"),
        ([score("A", 0.5), score("B", math.nan)], InvalidOutput, "no main score for B/test/default"),
    ],
)
def test_scores_that_give_no_mean_are_refused(scores: Any, kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=message):
        to_result(scores, WHO, source=MTEB)


def test_what_was_forgotten_comes_first() -> None:
    before = to_result([score("A", 0.5), score("B", 0.6), score("C", 0.7)], WHO, source=MTEB)
    after = to_result([score("A", 0.55), score("B", 0.2), score("C", 0.65)], WHO, source=MTEB)
    assert [(d.id[0], round(d.delta, 6)) for d in drops(before, after)] == [("B", -40), ("C", -5), ("A", 5)]
    other = to_result([score("A", 0.5), score("B", 0.6), score("C", 0.7, revision="new")], WHO, source=MTEB)
    with pytest.raises(RequestError, match="not over the same mteb tasks and data"):
        drops(before, other)


def test_a_folder_of_mteb_is_read_model_by_model(tmp_path: Path) -> None:
    a_model(tmp_path, "minishlab/potion", [0.5, 0.75])
    write(tmp_path / "results" / "x__y" / "rev", "STS22", {"test": rows(en=0.5, de=0.25)})
    first, second = import_results([tmp_path])
    assert (first.model.model_id, first.model.fingerprint) == ("minishlab/potion", "revision:abc123")
    assert first.outcomes.ids == ("Task0/test/default", "Task1/test/default")
    assert first.metrics == {"mean_main_score": 62.5}
    assert first.timing == {"evaluation_seconds": 3.0}
    assert second.outcomes.ids == ("STS22/test/de", "STS22/test/en")
    assert second.timing == {}


def test_names_come_from_the_metadata_and_results_of_models_hold_their_own(tmp_path: Path) -> None:
    place = write(tmp_path / "any", "A", {"test": rows(default=0.5)})
    with pytest.raises(DataError, match="does not name the model of its results"):
        import_results([place])
    assert import_results([place], model_id="me")[0].model.model_id == "me"
    (place / "model_meta.json").write_text('{"name": "o/m", "revision": "r7"}')
    assert import_results([place])[0].model.fingerprint == "revision:r7"
    inner = json.loads((place / "A.json").read_text())
    whole = tmp_path / "model.json"
    whole.write_text(json.dumps({"model_name": "o/n", "model_revision": "r8", "task_results": [inner]}))
    many = tmp_path / "models.json"
    many.write_text(json.dumps({"model_results": [json.loads(whole.read_text())]}))
    for file in (whole, many):
        (result,) = import_results([file])
        assert (result.model.model_id, result.metrics) == ("o/n", {"mean_main_score": 50.0})


def test_the_common_scores_make_two_models_comparable(tmp_path: Path) -> None:
    a_model(tmp_path, "o/a", [0.5, 0.6, 0.7])
    place = a_model(tmp_path, "o/b", [0.4, 0.5])
    write(place, "Task1", {"test": rows(default=0.9)}, dataset_revision="another")
    first, second = import_results([tmp_path], common=True)
    assert first.outcomes.ids == second.outcomes.ids == ("Task0/test/default",)
    assert first.fingerprint == second.fingerprint
    whole = import_results([tmp_path])
    assert whole[0].fingerprint != whole[1].fingerprint
    with pytest.raises(DataError, match="no score in common"):
        import_results([tmp_path], tasks=["Task1"], common=True)


def test_a_score_that_is_no_number_is_left_out_and_told(tmp_path: Path) -> None:
    place = a_model(tmp_path, "o/a", [0.5])
    write(place, "Lost", {"test": rows(en=math.nan, de=None)})
    (result,) = import_results([tmp_path])
    assert result.outcomes.ids == ("Task0/test/default",)
    assert result.warnings[0] == "left out, as mteb has no main score: Lost/test/de, Lost/test/en"
    with pytest.raises(DataError, match="none of the 2 scores"):
        import_results([place / "Lost.json"])


WRONG = {
    "not JSON": ("{", "not valid JSON"),
    "a list": ("[1]", "expected an object, found list"),
    "something else": ('{"a": 1}', "expected task_name and scores, found a"),
    "an old format": ('{"mteb_dataset_name": "A"}', "before 1.11"),
    "scores as a number": ('{"task_name": "A", "scores": {"test": 1}}', "a list as scores of test, found int"),
    "no main score": ('{"task_name": "A", "scores": {"test": [{}]}}', "main_score of split test, found nothing"),
    "a text": ('{"task_name": "A", "scores": {"test": [{"main_score": "1"}]}}', "found '1'"),
    "deep": ("[" * 100_000, "nested too deeply"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_file_that_is_no_result_is_named(tmp_path: Path, case: str) -> None:
    content, message = WRONG[case]
    file = tmp_path / "file.json"
    file.write_text(content)
    with pytest.raises(DataError, match="file.json.*" + message.replace("[", "\\[")):
        import_results([file], model_id="me")


def test_nothing_there_and_twice_the_same_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="there is no file or folder"):
        import_results([tmp_path / "none"])
    with pytest.raises(DataError, match="no mteb result is there"):
        import_results([tmp_path])
    place = a_model(tmp_path, "o/a", [0.5])
    with pytest.raises(DataError, match="no mteb result of X is there"):
        import_results([tmp_path], tasks=["X"])
    with pytest.raises(DataError, match=r"has a score for Task0/test/default of o/a, and so has"):
        import_results([place, place / "Task0.json"])


def test_imported_runs_are_stored_shown_and_compared(calipers: Run, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    before = rng.uniform(0.4, 0.8, 20)
    for name, values in (("o/before", before), ("o/after", 0.7 * before), ("o/same", before - 0.001)):
        a_model(tmp_path, name, values)
    done = calipers("runs", "import", tmp_path / "results", "--json")
    runs = {run["model_id"]: run for run in json.loads(done.stdout)}
    assert runs["o/before"]["metrics"]["mean_main_score"] == pytest.approx(100 * before.mean())
    ids = {name: run["run"] for name, run in runs.items()}
    shown = calipers("runs", "show", ids["o/before"], "--examples", "2")
    assert (shown.returncode, "30.0 s, elsewhere" in shown.stdout, "Task0/test/default" in shown.stdout) == (
        0,
        True,
        True,
    )
    lost = calipers("compare", ids["o/before"], ids["o/after"], ids["o/same"], "--json")
    assert lost.returncode == 1, lost.stderr
    assert [c["label"] for c in json.loads(lost.stdout)["comparisons"]] == ["REGRESSION", "PASS"]
    assert calipers("compare", ids["o/before"], ids["o/same"]).returncode == 0


def test_too_few_scores_decide_nothing(calipers: Run, tmp_path: Path) -> None:
    for name, values in (("o/before", [0.5, 0.6, 0.7]), ("o/after", [0.1, 0.1, 0.1])):
        a_model(tmp_path, name, values)
    runs = {run["model_id"]: run["run"] for run in json.loads(calipers("runs", "import", tmp_path, "--json").stdout)}
    found = calipers("compare", runs["o/before"], runs["o/after"], "--json")
    (comparison,) = json.loads(found.stdout)["comparisons"]
    assert (found.returncode, comparison["label"], comparison["interval"]) == (5, "INCONCLUSIVE", None)
    assert comparison["delta"] == pytest.approx(-50)


def test_the_command_says_what_it_took(calipers: Run, tmp_path: Path) -> None:
    a_model(tmp_path, "o/a", [0.5, 0.6])
    done = calipers("runs", "import", tmp_path, "--task", "Task1")
    assert (done.returncode, "60 mean_main_score" in done.stdout) == (0, True)
    assert "at least 8 are needed and 1 found" in done.stderr
    assert calipers("runs", "import", tmp_path / "nothing").returncode == 2


def test_an_imported_run_is_loaded_as_it_was_saved(tmp_path: Path) -> None:
    a_model(tmp_path, "o/a", [0.5, 0.6])
    (result,) = import_results([tmp_path])
    store = Store(tmp_path / "store")
    store.save(result)
    back = store.load(result.run_id)
    assert (back.metrics, back.intervals, back.outcomes.ids) == (result.metrics, result.intervals, result.outcomes.ids)
    assert tasks.find("mteb").metrics[0].value(back.outcomes.columns) == pytest.approx(55)


def test_the_task_cannot_be_asked_for(calipers: Run, vectors: Path) -> None:
    found = calipers("eval", "-m", vectors, "--task", "mteb")
    assert (found.returncode, "calipers runs import" in found.stderr) == (2, True)


def test_reading_files_does_not_import_mteb() -> None:
    code = "import sys, calipers.interop.mteb; print(*[m for m in ('mteb', 'torch', 'datasets') if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "\n"


def test_published_scores_give_their_own_means(data: Callable[[str], Path], tmp_path: Path) -> None:
    source = data("../reference/mteb_results.tsv")
    published: dict[tuple[str, str, str], dict[str, Any]] = {}
    with source.open(encoding="utf-8") as file:
        for row in csv.DictReader(file, delimiter="\t"):
            splits = published.setdefault((row["model"], row["revision"], row["task"]), {})
            value = json.loads(row["scores"])["main_score"]
            splits.setdefault(row["split"], []).extend(rows(**{row["subset"]: value}))
    for (model, revision, task), splits in published.items():
        write(tmp_path / model.replace("/", "__") / revision, task, splits)
    results = {(r.model.model_id, r.model.settings["revision"]): r for r in import_results([tmp_path])}
    assert len(results) == len({key[:2] for key in published})
    for (model, revision), result in results.items():
        means = [
            np.mean([row["main_score"] for part in splits.values() for row in part])
            for key, splits in published.items()
            if key[:2] == (model, revision)
        ]
        assert result.metrics["mean_main_score"] == pytest.approx(100 * np.mean(means), abs=1e-9)


def test_a_number_that_no_float_can_hold_is_refused(tmp_path: Path) -> None:
    place = a_model(tmp_path, "o/a", [0.5])
    file = next(file for file in place.glob("*.json") if file.name != "model_meta.json")
    content = json.loads(file.read_text())
    content["evaluation_time"] = 10**400
    file.write_text(json.dumps(content))
    assert import_results([tmp_path])[0].timing == {}
    file.write_text(file.read_text().replace("0.5", "1" + "0" * 400))
    with pytest.raises(DataError, match="expected a number as main_score of split test, found 1000"):
        import_results([tmp_path])


def test_every_task_that_is_named_must_be_there(tmp_path: Path) -> None:
    a_model(tmp_path, "o/a", [0.5, 0.6])
    with pytest.raises(DataError, match=r"no mteb result of Tsk1 is there; there are Task0, Task1"):
        import_results([tmp_path], tasks=["Task0", "Tsk1"])


def test_names_in_result_files_lose_their_logins(tmp_path: Path) -> None:
    secret = "http://u:S3CRET@h/?key=S3CRET"
    place = write(tmp_path / "o__a" / "1", "Task0", {secret: rows(**{secret: 0.5})}, task_name=secret)
    (place / "model_meta.json").write_text(json.dumps({"name": secret, "revision": secret}))
    (result,) = import_results([tmp_path])
    assert list(result.outcomes.ids) == ["http://h//http://h//http://h/"]
    assert (result.model.model_id, result.model.settings["revision"]) == ("http://h/", "http://h/")
