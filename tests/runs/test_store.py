"""The store: exact, whole after any crash, shared by processes, and brought up from any age."""

from __future__ import annotations

import json
import os
import re
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from calipers.core import DataSource, Outcomes, RequestError
from calipers.runs import api, migrations
from calipers.runs.store import Store
from tests.support.samples import Run
from tests.support.stores import BASE, ODD, make, same, sql


@pytest.fixture
def place(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


def test_what_is_saved_is_loaded_exactly(place: Store) -> None:
    place.save(make("20250101-000000-abc123"))
    assert same(place.load("20250101-000000-abc123"), make("20250101-000000-abc123"))


def test_a_measured_result_is_loaded_exactly_and_holds_no_verdict(place: Store, vectors: Path, pairs: Path) -> None:
    result = api.evaluate(str(vectors), dataset=str(pairs), resamples=50, store=place)
    assert same(place.load("latest"), result)
    (facts,) = sql(place, "SELECT facts FROM runs")
    json.loads(facts, parse_constant=pytest.fail)
    assert not re.search(r'"(verdict|label|pass|regression|at_risk)"', facts, re.IGNORECASE)


def test_runs_are_listed_as_they_were_written_the_last_first(place: Store) -> None:
    for run_id, day in (("a", 3), ("b", 2), ("c", 1)):
        place.save(make(run_id, f"2025-01-0{day}T00:00:00.000+00:00"))
    lines = place.list()
    assert [line.run_id for line in lines] == ["c", "b", "a"]
    assert (lines[0].model_id, lines[0].examples, lines[0].dataset) == ("odd/ü\x00 name", 6, "pairs.csv")
    assert (lines[0].metric, lines[0].value) == ("cosine_spearman", 0.1 + 0.2)


def test_a_run_is_found_by_its_id_its_beginning_and_as_the_latest(place: Store) -> None:
    for run_id, day in (("2025-a1", 1), ("2025-b", 2), ("2025-a", 3)):
        place.save(make(run_id, f"2025-01-0{day}"))
    assert place.resolve("2025-b") == place.resolve("2025-b"[:6]) == "2025-b"
    assert place.resolve("latest") == "2025-a"
    assert place.resolve("2025-a") == "2025-a"  # whole, though it is also the beginning of another


@pytest.mark.parametrize(("name", "message"), [("2025", "beginning of 2 runs: 2025-b, 2025-a"), ("x", "no run 'x'")])
def test_a_name_that_is_not_one_run_is_refused(name: str, message: str, place: Store) -> None:
    place.save(make("2025-a"))
    place.save(make("2025-b"))
    with pytest.raises(RequestError, match=message):
        place.load(name)


def test_an_empty_store_lists_nothing_and_is_not_made_by_looking(place: Store) -> None:
    assert place.list() == []
    with pytest.raises(RequestError, match="there is no run 'latest'"):
        place.load("latest")
    assert not place.folder.exists()


def test_removing_a_run_removes_its_row_and_its_file(place: Store) -> None:
    place.save(make("a"))
    place.save(make("b"))
    assert place.remove("a") == "a"
    assert [line.run_id for line in place.list()] == ["b"]
    assert [file.name for file in (place.folder / "outcomes").iterdir()] == ["b.parquet"]


def test_a_second_run_with_the_same_id_is_refused_and_the_first_stays_as_it_was(place: Store) -> None:
    place.save(make("a"))
    with pytest.raises(RequestError):
        place.save(make("a", outcomes=Outcomes(ids=("x",), columns={"gold": np.ones(1)})))
    assert same(place.load("a"), make("a"))


WRONG: dict[str, dict[str, Any]] = {
    "NaN in the facts": {"environment": {"load": float("nan")}},
    "facts that are not JSON": {"environment": {"path": Path("/")}},
    "lone surrogate in a text": {"outcomes": Outcomes(("a",), {"gold": np.ones(1)}, {"text_1": ("\ud800",)})},
}


@pytest.mark.parametrize("name", WRONG)
def test_what_cannot_be_stored_is_refused_and_leaves_nothing_behind(name: str, place: Store) -> None:
    with pytest.raises(RequestError, match="could not be stored"):
        place.save(make("a", **WRONG[name]))
    assert place.list() == list((place.folder / "outcomes").iterdir()) == []


def test_a_file_name_that_is_not_utf8_is_stored(place: Store) -> None:
    place.save(make("a", dataset=DataSource("caf\udce9.csv")))
    assert place.load("a").dataset.path == "caf\udce9.csv"
    assert place.list()[0].dataset == "caf\\udce9.csv"


def test_a_run_that_the_store_does_not_take_is_left_beside_it(place: Store) -> None:
    place.save(make("a"))
    (warning,) = place.keep(make("a"))
    assert "could not be stored" in warning
    file = Path(warning.rpartition(" is in ")[2])
    assert file == place.folder / "unsaved" / "a.json"
    assert json.loads(file.read_text())["run"] == "a"


@pytest.mark.parametrize("run_id", ["../../x", "*", "[2]*", "??", "/etc/x", "a/b", "", "a.b", "a\0b", "..", "x" * 65])
def test_an_id_that_is_none_of_ours_touches_no_file(place: Store, run_id: str, tmp_path: Path) -> None:
    place.save(make("2025"))
    canary = tmp_path / "x.parquet"
    canary.write_text("stays")
    columns = "created, task, model_id, dataset, examples, metric, value, facts, cache_key"
    sql(place, f"INSERT INTO runs (run_id, {columns}) SELECT 'REPLACED', {columns} FROM runs")
    with sqlite3.connect(place.folder / "calipers.db") as database:
        database.execute("UPDATE runs SET run_id = ? WHERE run_id = 'REPLACED'", (run_id,))
    database.close()
    assert [line.run_id for line in place.list()] == ["2025"]
    with pytest.raises(RequestError):
        place.remove(run_id) if run_id else place.files_of(run_id)
    assert canary.exists()
    assert [file.name for file in (place.folder / "outcomes").iterdir()] == ["2025.parquet"]


def test_outcomes_of_other_bytes_are_damaged(place: Store) -> None:
    place.save(make("a"))
    place.save(make("b", outcomes=Outcomes(("x",), {"gold": np.zeros(1)})), "k")
    files = place.folder / "outcomes"
    (files / "b.parquet").write_bytes((files / "a.parquet").read_bytes())
    damaged: list[str] = []
    assert place.find("k", damaged) is None
    assert "checksum" in damaged[0]


def test_a_missing_column_of_outcomes_is_named(place: Store) -> None:
    place.save(make("a"))
    with pytest.raises(RequestError, match=r"a\.parquet have no column 'other'"):
        place.load("a").outcomes.columns["other"]


def test_one_bad_row_does_not_break_the_list(place: Store) -> None:
    place.save(make("a"))
    place.save(make("b"))
    sql(place, "UPDATE runs SET value = x'ff00', model_id = x'c3' WHERE run_id = 'b'")
    assert [line.run_id for line in place.list()] == ["a"]


def test_what_is_broken_is_refused_with_its_place(place: Store) -> None:
    place.save(make("a"))
    (place.folder / "outcomes" / "a.parquet").unlink()
    with pytest.raises(RequestError, match=r"a\.parquet cannot be read"):
        place.load("a")
    (place.folder / "calipers.db").write_bytes(b"not a database, and long enough to be looked at" * 40)
    with pytest.raises(RequestError, match=r"calipers\.db cannot be used as a store"):
        place.list()
    with pytest.raises(RequestError, match="cannot be opened"):
        Store(place.folder / "calipers.db").check_writable()


def test_an_empty_database_is_brought_up_and_has_no_write_ahead_log(place: Store) -> None:
    place.folder.mkdir()
    sql(place, "PRAGMA user_version = 0")
    place.save(make("a"))
    assert sql(place, "PRAGMA user_version") == (len(migrations.MIGRATIONS),)
    assert sql(place, "PRAGMA journal_mode") == ("delete",)
    assert same(place.load("a"), make("a"))


def test_what_is_no_file_of_its_own_is_no_queue_of_writers(place: Store, tmp_path: Path) -> None:
    place.save(make("a"))
    queue, canary = place.folder / ".writing", tmp_path / "canary"
    canary.write_text("stays")
    for make_other in (lambda: os.mkfifo(queue), lambda: queue.symlink_to(canary)):
        queue.unlink()
        make_other()
        with pytest.raises(RequestError, match="cannot be written"):
            place.remove("a")
    assert canary.read_text() == "stays"


def test_a_store_of_no_version_is_refused(place: Store) -> None:
    place.save(make("a"))
    sql(place, "PRAGMA user_version = -1")
    with pytest.raises(RequestError, match="its schema is -1"):
        place.list()


def test_a_store_of_a_newer_version_is_refused_and_left_alone(place: Store) -> None:
    place.save(make("a"))
    sql(place, "PRAGMA user_version = 999")
    for act in (place.list, lambda: place.save(make("b")), lambda: place.remove("a")):
        with pytest.raises(RequestError, match=r"written by a newer Calipers \(schema 999\): update Calipers"):
            act()
    assert sql(place, "SELECT count(*) FROM runs") == (1,)


def multiply(place: Store, runs: int, year: int) -> None:
    """Add rows: copies of the first run with ids and names of their own."""
    columns = "created, task, model_id, dataset, examples, metric, value, cache_key"
    numbers = f"WITH RECURSIVE n(number) AS (SELECT 1 UNION ALL SELECT number + 1 FROM n WHERE number < {runs})"
    own = f"'{year}-' || number, json_set(facts, '$.name', '{year}n' || number)"
    into = f"INSERT INTO runs (run_id, facts, {columns})"
    sql(place, f"{numbers} {into} SELECT {own}, {columns} FROM n, (SELECT * FROM runs ORDER BY rowid LIMIT 1)")


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """One number: how much SQLite did since it was set to 0, in tens of instructions."""
    count, connect = [0], sqlite3.connect

    def counted(*args: Any, **settings: Any) -> sqlite3.Connection:
        database = connect(*args, **settings)
        database.set_progress_handler(lambda: count.__setitem__(0, count[0] + 1), 10)
        return database

    monkeypatch.setattr(sqlite3, "connect", counted)
    return count


NEW_IDS = (f"2026-{i}" for i in range(10))
QUESTIONS: dict[str, Callable[[Store], object]] = {
    "an id": lambda place: place.load("2025-mine"),
    "the beginning of an id": lambda place: place.resolve("2025-m"),
    "a name": lambda place: place.load("mine"),
    "latest": lambda place: place.resolve("latest"),
    "a key": lambda place: place.find("key"),
    "whether a name is there": lambda place: (place.has_name("mine"), place.has_name("other")),
    "the first 50 lines": lambda place: list(islice(place.lines(), 50)),
    "an append": lambda place: place.save(make(next(NEW_IDS)), "other"),
    "tags": lambda place: place.tag("mine", ["release"]),
}


@pytest.mark.parametrize("question", QUESTIONS)
def test_what_one_run_costs_does_not_grow_with_the_store(place: Store, question: str, steps: list[int]) -> None:
    place.save(make("2025-mine", name="mine"), "key")
    sql(place, "UPDATE runs SET cache_key = 'key'")
    costs = []
    for runs, year in ((100, 2023), (10_000, 2024)):
        multiply(place, runs, year)
        sql(place, "UPDATE runs SET cache_key = run_id WHERE run_id != '2025-mine'")
        steps[0] = 0
        QUESTIONS[question](place)
        costs.append(steps[0])
    assert costs[1] <= 1.5 * costs[0] + 10, costs


def test_a_list_is_read_page_by_page_and_writers_need_not_wait_for_its_end(place: Store) -> None:
    place.save(make("2025-mine"))
    multiply(place, 400, 2024)
    lines = place.lines()
    first = next(lines)
    place.save(make("2026-new"))  # while the list is read
    rest = [line.run_id for line in lines]
    assert (first.run_id, rest[-1], len(rest)) == ("2024-400", "2025-mine", 400)
    assert place.count() == 402


def test_each_migration_runs_once_on_an_old_store(place: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    place.save(make("a"))
    more = (lambda db: db.execute("CREATE TABLE notes (x)"), lambda db: db.execute("INSERT INTO notes VALUES (1)"))
    monkeypatch.setattr(migrations, "MIGRATIONS", (*migrations.MIGRATIONS, *more))
    assert [line.run_id for line in place.list()] == ["a"]
    place.save(make("b"))
    assert sql(place, "PRAGMA user_version") == (len(migrations.MIGRATIONS),)
    assert sql(place, "SELECT count(*) FROM notes") == (1,)


def test_a_migration_that_fails_changes_nothing(place: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    place.save(make("a"))
    old = migrations.MIGRATIONS
    bad = (lambda db: db.execute("CREATE TABLE notes (x)"), lambda db: db.execute("CREATE TABLE runs (x)"))
    monkeypatch.setattr(migrations, "MIGRATIONS", (*old, *bad))
    with pytest.raises(RequestError, match="table runs already exists"):
        place.list()
    assert sql(place, "PRAGMA user_version") == (len(old),)
    assert sql(place, "SELECT count(*) FROM sqlite_master WHERE name = 'notes'") == (0,)


SAVER = """
import os, random, signal, sys, time
from pathlib import Path
from tests.support.stores import Store, make
def save(name, runs):
    for i in range(runs):
        Store(Path(sys.argv[1])).save(make(f"{name}{i}"))
        os.write(1, f"{name}{i} ".encode())  # whole or not at all, which print does not promise
print("ready", flush=True)
sys.stdin.readline() or sys.exit()
"""
KILLER = """
save("first", 1)
for number in range(25):
    child = os.fork() or save(f"{number}-", 1_000_000)
    time.sleep(random.uniform(0.02, 0.08))
    os.kill(child, signal.SIGKILL)
    assert os.waitpid(child, 0)[1] == signal.SIGKILL, "it ended by itself"
"""


def start(place: Store, script: str) -> subprocess.Popen[str]:
    """A process that waits for a line, then saves runs and prints the id of each one that is saved."""
    command, root = [sys.executable, "-c", SAVER + script, place.folder], Path(__file__).parents[2]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=root)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


def test_two_processes_that_save_at_the_same_time_both_succeed(place: Store) -> None:
    processes = [start(place, f"save({name!r}, 15)") for name in "ab"]
    for process in processes:
        print("go", file=process.stdin, flush=True)
    saved = [run_id for process in processes for run_id in process.communicate()[0].split()]
    assert [process.returncode for process in processes] == [0, 0]
    assert sorted(line.run_id for line in place.list()) == sorted(f"{name}{i}" for name in "ab" for i in range(15))
    assert all(same(place.load(run_id), make(run_id)) for run_id in saved)


def test_processes_killed_while_they_save_leave_a_whole_store(place: Store) -> None:
    process = start(place, KILLER)
    saved = process.communicate("go\n")[0].split()
    assert process.returncode == 0
    assert len(saved) > 1
    assert set(saved) <= {line.run_id for line in place.list()}
    assert all(same(place.load(line.run_id), make(line.run_id)) for line in place.list())
    assert sql(place, "PRAGMA integrity_check") == ("ok",)


def test_a_part_left_by_a_crash_is_harmless(place: Store) -> None:
    place.save(make("a"))
    (place.folder / "outcomes" / "b.123.part").write_bytes(b"PAR1 and then the power went")
    (place.folder / "outcomes" / "c.parquet").write_bytes(b"moved in place, but its row was never written")
    assert [line.run_id for line in place.list()] == ["a"]
    place.save(make("c"))
    assert same(place.load("c"), make("c"))


def test_runs_are_listed_on_the_command_line(calipers: Run, place: Store) -> None:
    assert json.loads(calipers("runs", "list", "--json").stdout) == []
    place.save(make("run-1", "2025-01-01T09:30:00.000+00:00"))
    place.save(make("run-2", "2025-01-02T09:30:00.000+00:00"))
    table, document = calipers("runs", "list"), calipers("runs", "list", "--json", "--limit", "1")
    assert re.findall(r"(?m)^(run-\d)  2025-01-0\d 09:30 ", table.stdout) == ["run-2", "run-1"]
    assert [line["run_id"] for line in json.loads(document.stdout)] == ["run-2"]


def test_a_run_is_shown_as_one_json_document_with_its_examples(calipers: Run, place: Store) -> None:
    place.save(make("run-1"))
    found = calipers("runs", "show", "latest", "--json", "--examples", "5")
    content = json.loads(found.stdout, parse_constant=pytest.fail)
    assert (content["schema"], content["run"], content["metrics"]) == ("calipers/eval/1", "run-1", BASE.metrics)
    assert [example["text_1"] for example in content["examples"]] == list(ODD[:5])
    assert [example["gold"] for example in content["examples"]] == [0.0, -0.0, 5e-324, 1 / 3, None]


def test_a_run_is_shown_with_one_line_an_example_and_no_control_characters(calipers: Run, place: Store) -> None:
    place.save(make("run-1", outcomes=replace(BASE.outcomes, texts={"text_1": ("\x1b[2Jclear", *ODD[1:])})))
    shown = calipers("runs", "show", "run", "--examples", "2").stdout
    assert "cosine_spearman" in shown
    assert len(shown.split("text_1")[1].rstrip("\n").splitlines()) == 3  # the rest of the header, two examples
    assert all(c.isprintable() for c in shown.replace("\n", ""))


def test_runs_are_removed_on_the_command_line(calipers: Run, place: Store) -> None:
    place.save(make("run-1"))
    place.save(make("run-2"))
    gone = calipers("runs", "rm", "latest", "run-2")  # the same run by two names
    assert (gone.returncode, gone.stdout, gone.stderr) == (0, "removed run-2\n", "")
    assert [line.run_id for line in place.list()] == ["run-1"]
    missing = calipers("runs", "rm", "run-1", "")
    assert (missing.returncode, missing.stdout, missing.stderr.count("\n")) == (2, "", 1)
    assert [line.run_id for line in place.list()] == ["run-1"]


@pytest.mark.parametrize(
    "change",
    [
        lambda facts: facts.pop("options"),
        lambda facts: facts.update(task=[]),
        lambda facts: facts.update(metrics=[]),
        lambda facts: facts["metrics"].update(x="a"),
        lambda facts: facts["model"].update(settings=5),
        lambda facts: facts["dataset"].update(path=None),
    ],
)
def test_a_run_whose_facts_another_version_wrote_is_refused_in_one_sentence(
    change: Callable[[dict[str, Any]], object], tmp_path: Path
) -> None:
    kept = Store(tmp_path)
    kept.save(make("20250101-000000-aaaaaa"))
    with closing(sqlite3.connect(tmp_path / "calipers.db")) as database, database:
        facts = json.loads(database.execute("SELECT facts FROM runs").fetchone()[0])
        change(facts)
        database.execute("UPDATE runs SET facts = ?", (json.dumps(facts),))
    with pytest.raises(RequestError, match="another version of calipers"):
        kept.load("latest")


def test_several_runs_are_stored_together_or_not_at_all(tmp_path: Path) -> None:
    place = Store(tmp_path / "store")
    runs = [make("a"), make("b"), make("a")]
    with pytest.raises(RequestError, match="could not be stored"):
        place.save_all(runs)
    assert place.list() == []
    place.save_all(runs[:2])
    assert {line.run_id for line in place.list()} == {"a", "b"}
