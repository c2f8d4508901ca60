"""The commands that contributors are shown elsewhere are those of the Makefile and of the command line."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import yaml

import calipers
from calipers.cli import run

ROOT = Path(__file__).parents[1]


def read(*parts: str) -> str:
    return ROOT.joinpath(*parts).read_text(encoding="utf-8")


def targets() -> dict[str, list[str]]:
    """Name of a target → its commands."""
    rules = re.findall(r"^([a-z-]+):.*\n((?:\t.*\n)+)", read("Makefile"), re.MULTILINE)
    return {name: [line.strip().lstrip("@") for line in body.splitlines()] for name, body in rules}


def test_the_workflow_runs_make_test_on_every_version() -> None:
    job = yaml.safe_load(read(".github", "workflows", "test.yml"))["jobs"]["test"]
    commands = [step["run"] for step in job["steps"] if "run" in step]
    assert commands == ["make test PYTHON=python"]
    assert "test" in targets()
    assert "PYTHON" in read("Makefile")
    declared = re.findall(r"Python :: (3\.\d+)", read("pyproject.toml"))
    assert job["strategy"]["matrix"]["python"] == (declared or ["3.11", "3.12", "3.13"])


def test_the_hooks_are_the_commands_of_make_lint() -> None:
    hooks = yaml.safe_load(read(".pre-commit-config.yaml"))["repos"][0]["hooks"]
    entries = [hook["entry"].replace(".venv/bin", "$(BIN)") for hook in hooks]
    assert entries == targets()["lint"]


def test_templates_name_a_command_that_works(capsys: pytest.CaptureFixture[str]) -> None:
    for page in (".github/pull_request_template.md", ".github/ISSUE_TEMPLATE/fault.md"):
        assert "calipers doctor --json" in read(page)
    assert run(["doctor", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["versions"]["calipers"] == calipers.__version__
    assert {"python", "system", "processor", "cores", "providers", "store", "damage"} <= set(document)


def test_the_citation_has_the_version_and_the_licence_of_the_package() -> None:
    citation = yaml.safe_load(read("CITATION.cff"))
    assert citation["version"] == calipers.__version__
    assert f'"{citation["license"]}"' in read("pyproject.toml") or citation["license"] in read("README.md")
