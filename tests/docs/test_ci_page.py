"""docs/ci.md promises only what there is."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from calipers import cli
from calipers.cli.compare import read_config
from calipers.comparison.junit import to_junit
from calipers.comparison.records import GateOptions
from calipers.core import Thresholds
from tests.support import verdicts as made

PAGE = (Path(__file__).parents[2] / "docs" / "ci.md").read_text(encoding="utf-8")
YAML = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
SHELL = re.findall(r"```bash\n(.*?)```", PAGE, re.DOTALL)


def commands() -> list[list[str]]:
    """Every `calipers …` of the page as words, those of workflow steps included."""
    steps = yaml.safe_load(YAML[0])["jobs"]["compare"]["steps"]
    lines = [step["run"] for step in steps if "run" in step]
    lines += yaml.safe_load(YAML[2])["compare"]["script"]
    lines += [line for block in SHELL for line in block.splitlines()]
    return [line.split("||")[0].split("#")[0].split() for line in lines if line.startswith("calipers ")]


def test_every_flag_of_the_page_exists() -> None:
    lines = commands()
    assert len(lines) == 7
    for words in lines:
        command = cli.app.commands[words[1]]
        context = click.Context(command, parent=click.Context(cli.app, **cli.app.context_settings))
        flags = {name for parameter in command.get_params(context) for name in parameter.opts}
        assert [w for w in words if w.startswith("-") and w not in flags] == []


def test_the_workflow_keeps_the_store_also_after_a_failure() -> None:
    job: dict[str, Any] = yaml.safe_load(YAML[0])["jobs"]["compare"]
    save = next(step for step in job["steps"] if "cache/save" in step.get("uses", ""))
    assert save["if"] == "always()"
    assert ".calipers" in save["with"]["path"]
    assert job["env"]["CALIPERS_STORE"].endswith("/.calipers")


def test_the_config_is_read_as_the_page_says(tmp_path: Path) -> None:
    file = tmp_path / "calipers.yaml"
    file.write_text(YAML[1])
    config = read_config(file)
    assert config["thresholds"] == {
        "cosine_spearman": Thresholds(1.0, 2.0, relative=False),
        "pseudo_perplexity": Thresholds(0.05, 0.10),
    }
    assert set(config) == {"thresholds", "metrics", "confidence", "fail_on", "worst", "resamples"}


def test_the_exit_codes_are_those_of_the_command() -> None:
    rows = dict(re.findall(r"^\| (\d) \| (.*?) \|", PAGE, re.MULTILINE))
    assert sorted(rows) == list("012345")
    for label, code in (("PASS", 0), ("AT_RISK", 0), ("REGRESSION", 1), ("INVALID", 1), ("INCONCLUSIVE", 5)):
        assert GateOptions().exit_code([label]) == code
        assert label in rows[str(code)]


@pytest.mark.parametrize(
    ("label", "tag"), [("REGRESSION", "failure"), ("INVALID", "failure"), ("INCONCLUSIVE", "error")]
)
def test_the_junit_table_is_true(label: Any, tag: str) -> None:
    rows = (made.comparison(label=label), made.comparison("nll", label))
    text = to_junit([made.passing(label=label, comparisons=rows)])
    assert (text.count(f"<{tag} "), text.count("<skipped ")) == (1, 1)
    assert re.search(rf"^\| .*{label}.* \| {tag}.* \| skipped \|$", PAGE, re.MULTILINE)


def test_the_config_of_the_page_serves_its_workflow(
    tmp_path: Path, vectors: Path, pairs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The page's own file names a metric of another task; a metric of no task is a mistake."""
    file = tmp_path / "calipers.yaml"
    file.write_text(YAML[1])
    line = ["compare", str(vectors), str(vectors), "--dataset", str(pairs), "--no-store", "--config", str(file)]
    assert cli.run(line) == 0
    assert "pseudo_perplexity of --config: not a metric of sentence-similarity, left out" in capsys.readouterr().err
    file.write_text("compare:\n  thresholds:\n    cosine_spaerman: 1.0,2.0\n")
    assert cli.run(line) == 2
    assert "no metric 'cosine_spaerman'" in capsys.readouterr().err
    assert cli.run([*line[:-2], "--threshold", "pseudo_perplexity=5%,10%"]) == 2


def test_a_failed_comparison_leaves_no_green_file(tmp_path: Path, vectors: Path, pairs: Path) -> None:
    file = tmp_path / "verdict.xml"
    line = ["--dataset", str(pairs), "--no-store", "--junit", str(file), "--force"]
    assert cli.run(["compare", str(vectors), str(vectors), *line]) == 0
    assert 'errors="0"' in file.read_text()
    assert cli.run(["compare", str(vectors), str(tmp_path / "gone.onnx"), *line]) == 3
    assert 'errors="1"' in file.read_text()
    assert "gone.onnx" in file.read_text()
    assert cli.run(["compare", str(vectors), str(vectors), *line, "--metric", "f1"]) == 2
    assert "no metric" in file.read_text()
