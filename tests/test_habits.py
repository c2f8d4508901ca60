"""The commands that contributors are shown elsewhere are those of the Makefile and of the command line."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import pytest
import yaml

import calipers
from calipers.cli import run
from tests.conftest import LONG
from tests.support.checkout import copy_tree

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


def test_the_long_files_that_come_first_are_there() -> None:
    assert [name for name in LONG if not (ROOT / "tests" / name).is_file()] == []


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


# --- releases ------------------------------------------------------------------------------------------------------


def load_release() -> ModuleType:
    spec = spec_from_file_location("release", ROOT / "docs" / "release.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def write_tree(folder: Path, *, log: str, citation: str = "1.2.0", package: str = "1.2.0") -> Path:
    (folder / "src" / "calipers").mkdir(parents=True)
    (folder / "pyproject.toml").write_text('[project]\nversion = "1.2.0"\n', encoding="utf-8")
    (folder / "src" / "calipers" / "__init__.py").write_text(f'__version__ = "{package}"\n', encoding="utf-8")
    (folder / "CITATION.cff").write_text(f"version: {citation}\n", encoding="utf-8")
    (folder / "CHANGELOG.md").write_text(log, encoding="utf-8")
    return folder


SOUND = "# Changelog\n\n## Unreleased\n\n## 1.2.0 (2026-11-18)\n\n- A change.\n"


@pytest.mark.parametrize(
    ("files", "problem"),
    [
        ({"log": SOUND}, ""),
        ({"log": SOUND.replace("## Unreleased\n", "## Unreleased\n\n- More.\n")}, "move what is under Unreleased"),
        ({"log": "# Changelog\n\n## 1.1.0 (2026-01-01)\n\n- Old.\n"}, "has no section 1.2.0"),
        ({"log": SOUND.replace("- A change.\n", "")}, "the section 1.2.0 is empty"),
        ({"log": SOUND.replace(" (2026-11-18)", "")}, "has no date"),
        ({"log": SOUND, "citation": "1.1.0"}, "CITATION.cff states version 1.1.0, pyproject.toml 1.2.0"),
        ({"log": SOUND, "package": "1.3.0"}, "__init__.py states version 1.3.0, pyproject.toml 1.2.0"),
    ],
)
def test_a_release_needs_its_version_everywhere(tmp_path: Path, files: dict[str, str], problem: str) -> None:
    lines = load_release().problems(write_tree(tmp_path, **files))
    assert (len(lines), problem in "".join(lines)) == (1 if problem else 0, True)


@pytest.mark.slow
def test_make_release_refuses_an_open_change_log_then_makes_files_that_pass(tmp_path: Path) -> None:
    """The whole target in a copy of this tree. pip fetches what builds and checks."""
    tree = copy_tree(tmp_path / "tree")
    log = tree / "CHANGELOG.md"
    log.write_text("# Changelog\n\n## Unreleased\n\n- Not yet.\n", encoding="utf-8")
    command = ["make", "release", f"PYTHON={sys.executable}"]
    refused = subprocess.run(command, cwd=tree, capture_output=True, text=True, check=False)
    assert refused.returncode != 0
    assert "move what is under Unreleased to a section" in refused.stdout
    assert not (tree / "dist").exists()
    version = calipers.__version__
    log.write_text(f"# Changelog\n\n## {version} (2026-11-18)\n\n- All of it.\n", encoding="utf-8")
    made = subprocess.run(command, cwd=tree, capture_output=True, text=True, check=False)
    assert made.returncode == 0, made.stdout + made.stderr
    assert made.stdout.count("PASSED") == 2
    names = sorted(path.name for path in (tree / "dist").iterdir())
    assert names == [f"calipers-{version}-py3-none-any.whl", f"calipers-{version}.tar.gz"]
