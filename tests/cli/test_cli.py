"""The command line as people and scripts meet it."""

from __future__ import annotations

import io
import json
import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from calipers import data
from calipers.cli import app, spread_columns
from calipers.cli import demo_steps as demo
from calipers.tasks import TASKS
from tests.support.documents import strict
from tests.support.samples import Run

ROOT = Path(__file__).parents[2]
KEYS = {
    "schema",
    "model_id",
    "model_path",
    "task",
    "device",
    "dataset",
    "metrics",
    "intervals",
    "timing",
    "environment",
}
DATASET_KEYS = {
    "path", "name", "split", "samples", "requested", "shuffle", "seed", "columns_mapping", "fingerprint",
}  # fmt: skip


def test_json_is_one_document_with_the_fixed_keys(calipers: Run, vectors: Path, pairs: Path) -> None:
    found = calipers("eval", "-m", vectors, "--dataset", pairs, "--json")
    assert (found.returncode, found.stderr) == (0, "")
    document = strict(found.stdout)
    assert document.keys() >= KEYS
    assert document["dataset"].keys() >= DATASET_KEYS  # type: ignore[attr-defined]
    assert document["task"] == "sentence-similarity"
    assert document["dataset"]["samples"] == 5  # type: ignore[index]
    assert set(document["metrics"]) == {m.name for m in TASKS[0].metrics} == set(document["intervals"])  # type: ignore[call-overload]


def test_both_names_of_the_task_give_the_same(calipers: Run, vectors: Path, pairs: Path) -> None:
    one, two = (
        strict(calipers("eval", "-m", vectors, "--dataset", pairs, "--task", task, "--json").stdout)
        for task in ("sentence-similarity", "feature-extraction")
    )
    for key in ("metrics", "intervals", "canonical_task", "dataset"):
        assert one[key] == two[key]
    assert [document["task"] for document in (one, two)] == ["sentence-similarity", "feature-extraction"]


def test_text_output_is_plain_where_there_is_no_terminal(calipers: Run, vectors: Path, pairs: Path) -> None:
    found = calipers("eval", "-m", vectors, "--dataset", pairs)
    assert found.returncode == 0
    assert "\x1b" not in found.stdout
    assert "5 scored" in found.stdout
    assert re.search(r"cosine_spearman\s+-?\d+\.\d\d\s+-?\d+\.\d\d – -?\d+\.\d\d", found.stdout)
    assert found.stderr == ""


def test_a_terminal_gets_a_panel_and_a_table_that_fit(vectors: Path, pairs: Path, tmp_path: Path) -> None:
    """A real pseudo-terminal of 80 columns."""
    import os
    import pty
    import subprocess

    leader, follower = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-m", "calipers", "eval", "-m", vectors, "--dataset", pairs, "--no-store"],
        stdout=follower,
        stderr=follower,
        env={**os.environ, "COLUMNS": "80", "TERM": "xterm"},
    ) as process:
        os.close(follower)
        chunks = []
        while True:
            try:
                chunk = os.read(leader, 65536)
            except OSError:
                break
            if not chunk:
                break
            chunks.append(chunk)
    os.close(leader)
    shown = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", b"".join(chunks).decode())
    assert process.returncode == 0
    assert "╭" in shown
    assert "cosine_spearman" in shown
    assert max(len(line.split("\r")[-1]) for line in shown.replace("\r\n", "\n").split("\n")) <= 80


def test_the_document_goes_to_a_file_and_is_not_overwritten(
    calipers: Run, vectors: Path, pairs: Path, tmp_path: Path
) -> None:
    target = tmp_path / "out.json"
    assert calipers("eval", "-m", vectors, "--dataset", pairs, "-o", target).returncode == 0
    first = strict(target.read_text())
    assert calipers("eval", "-m", vectors, "--dataset", pairs, "-o", target).returncode == 2
    assert calipers("eval", "-m", vectors, "--dataset", pairs, "-o", target, "--force").returncode == 0
    assert strict(target.read_text())["run"] != first["run"]


def test_the_request_tells_what_was_given_and_what_was_not(calipers: Run, vectors: Path, pairs: Path) -> None:
    document = strict(calipers("eval", "-m", vectors, "--dataset", pairs, "--samples", "4", "--json").stdout)
    request = document["request"]
    assert request["given"]["data_options"] == {"samples": 4}  # type: ignore[index]
    assert request["defaulted"]["data_options"]["seed"] == 42  # type: ignore[index]


def test_columns_may_follow_one_flag(calipers: Run, vectors: Path, pairs: Path) -> None:
    renamed = pairs.with_name("renamed.jsonl")
    renamed.write_text(pairs.read_text().replace('"sentence1"', '"left"').replace('"score"', '"label"'))
    columns = ("--column", "input_column_1=left", "score_column=label")
    found = calipers("eval", "-m", vectors, "--dataset", renamed, *columns, "--json")
    plain = calipers("eval", "-m", vectors, "--dataset", pairs, "--json")
    assert strict(found.stdout)["metrics"] == strict(plain.stdout)["metrics"]
    assert strict(found.stdout)["dataset"]["fingerprint"] == strict(plain.stdout)["dataset"]["fingerprint"]  # type: ignore[index]


def test_spreading_stops_at_the_next_flag() -> None:
    line = ["eval", "--column", "a=1", "b=2", "--dataset", "x=y.csv"]
    assert spread_columns(line) == ["eval", "--column", "a=1", "--column", "b=2", "--dataset", "x=y.csv"]


def test_no_store_keeps_nothing(calipers: Run, vectors: Path, pairs: Path, tmp_path: Path) -> None:
    assert calipers("eval", "-m", vectors, "--dataset", pairs, "--no-store").returncode == 0
    assert not (tmp_path / "store").exists()


def test_fewer_rows_than_asked_for_is_said(calipers: Run, vectors: Path, pairs: Path) -> None:
    found = calipers("eval", "-m", vectors, "--dataset", pairs, "--samples", "100")
    assert "100 samples were requested and 5 could be scored" in found.stdout


@pytest.mark.parametrize("package", ["torch", "transformers"])
def test_a_missing_extra_is_one_sentence_with_the_pip_command(
    calipers: Run, minilm: Path, pairs: Path, tmp_path: Path, package: str
) -> None:
    (tmp_path / "sitecustomize.py").write_text(f"import sys\nsys.modules[{package!r}] = None\n")
    found = calipers("eval", "-m", minilm, "--dataset", pairs, env={"PYTHONPATH": str(tmp_path)})
    assert found.returncode == 3
    needs = (
        "pip install torch transformers sentence-transformers onnx onnxscript (in a checkout: pip install '.[torch]')"
    )
    assert found.stderr == f"calipers: PyTorch models need {package}: {needs}\n"


def test_a_missing_datasets_package_is_one_sentence(calipers: Run, vectors: Path, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("import sys\nsys.modules['datasets'] = None\n")
    found = calipers("eval", "-m", vectors, "--dataset", "org/name", env={"PYTHONPATH": str(tmp_path)})
    assert found.returncode == 2
    assert "pip install datasets" in found.stderr


def test_the_demo_runs_every_step_with_the_real_model(calipers: Run, minilm: Path) -> None:
    found = calipers("demo")
    assert found.returncode == 0, found.stderr
    assert found.stdout.count("cosine_spearman") == len(demo.STEPS)
    assert "120 scored" in found.stdout
    assert "40 scored" in found.stdout
    folder = next(
        line.split()[-1] for line in found.stdout.splitlines() if line.strip().startswith("runs and outcomes")
    )
    assert f"calipers runs list --store {folder}\n" in found.stdout
    assert strict(calipers("runs", "list", "--json").stdout) == []  # the user's own store
    assert "1,500 products, 200 queries" in found.stdout
    for what, ignored in (("colour", 86), ("brand", 94), ("size", 65)):
        assert re.search(rf"  {what} +\d+ %  \(95 % interval \d+ – \d+ %\)   {ignored} % if", found.stdout)
    report = re.search(r"report of the shop  (.*)\n", found.stdout)
    assert report
    page = Path(report[1]).read_text(encoding="utf-8")
    assert all(f'id="{layer}"' in page for layer in demo.SHOP_LAYERS)
    kept = strict(calipers("runs", "list", "--store", folder, "--json").stdout)
    assert len(kept) == len(demo.STEPS) + len(demo.SHOP_LAYERS)


def test_the_demo_keeps_nothing_of_the_shop_if_asked(
    model: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from rich.console import Console

    monkeypatch.chdir(tmp_path)
    out = io.StringIO()
    potion = f"static:{model('potion-base-4m-int8')}"
    assert demo.visit_shop(Console(file=out, width=200), Console(file=io.StringIO()), potion, None) is None
    assert "contradicts it" in out.getvalue()
    assert "--html" not in out.getvalue()
    assert list(tmp_path.iterdir()) == []


def test_the_demo_refuses_other_weights(monkeypatch: pytest.MonkeyPatch, minilm: Path) -> None:
    monkeypatch.setattr(demo, "_SHA256", "0" * 64)
    with pytest.raises(demo.ModelError, match="not all-MiniLM-L6-v2"):
        demo.find_model()


def test_without_the_package_the_demo_takes_the_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "_PACKAGE", "no-such-package")
    assert demo.find_model() == demo.HUB_ID


def test_doctor_says_what_there_is(calipers: Run, tmp_path: Path) -> None:
    found = calipers("doctor")
    assert found.returncode == 0
    for words in ("CPUExecutionProvider", "onnxruntime", str(tmp_path / "store"), "Cores"):
        assert words in found.stdout
    assert "Kernels of matrix products" in found.stdout


def test_the_reference_is_what_the_help_texts_say(monkeypatch: pytest.MonkeyPatch) -> None:
    import runpy

    for name in ("COLUMNS", "TERMINAL_WIDTH"):  # which it sets
        monkeypatch.setenv(name, "100")
    made = runpy.run_path(str(ROOT / "docs" / "generate.py"))["cli_reference"]()
    assert (ROOT / "docs" / "cli.md").read_text(encoding="utf-8") == made, "run `make docs`"


def test_every_command_task_and_metric_is_documented(calipers: Run) -> None:
    reference = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
    assert all(f"## calipers {name}\n" in reference for name in app.commands)
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    for task in TASKS:
        shown = calipers("tasks", task.name).stdout
        assert all(metric.name in shown and metric.about in shown for metric in task.metrics)
        assert all(column.key in shown for column in task.columns)
        assert task.metrics[0].name in readme


def test_the_samples_are_ours_and_complete() -> None:
    assert len(data.sample("english").read_text(encoding="utf-8").splitlines()) == 120
    assert len(data.sample("japanese").read_text(encoding="utf-8").splitlines()) == 40


@pytest.mark.parametrize("words", [("{vectors}",), ("-m", "{vectors}"), ("--model", "{vectors}")])
def test_the_model_is_the_first_argument_of_eval_or_its_flag(
    calipers: Run, pairs: Path, vectors: Path, words: tuple[str, ...]
) -> None:
    named = [word.format(vectors=vectors) for word in words]
    run = calipers("eval", *named, "--dataset", pairs, "--resamples", "20", "--json")
    assert run.returncode == 0, run.stderr
    assert json.loads(run.stdout)["dataset"]["samples"] == 5


@pytest.mark.parametrize("words", [(), ("a.npy", "-m", "b.npy")])
def test_eval_takes_one_model(calipers: Run, pairs: Path, words: tuple[str, ...]) -> None:
    run = calipers("eval", *words, "--dataset", pairs)
    assert run.returncode == 2
    assert "name one model" in run.stderr
