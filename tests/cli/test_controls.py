"""No command writes what a terminal would obey, wherever it prints names and texts of others."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from calipers.rendering.document import to_json, to_line
from tests.support.samples import Run

CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
NAME = "a\x1b[31mb\u202ec\x9bd"
COMMANDS = Path(__file__).parents[2] / "src" / "calipers" / "cli"


def test_commands_print_by_the_functions_that_clean() -> None:
    """`options.echo_lines`, `options.echo_json` and the tables; errors are cleaned where they are caught."""
    own = {"__init__.py", "options.py", "demo_steps.py"}
    bare = re.compile(r"click\.s?echo\(|\berr\.print\(")
    assert {path.name for path in COMMANDS.glob("*.py") if bare.search(path.read_text())} <= own


def rename(vectors: Path, name: str) -> Path:
    for ending in (".npy", ".txt"):
        vectors.with_suffix(ending).rename(vectors.with_name(name + ending))
    return vectors.with_name(f"{name}.npy")


def test_runs_of_odd_models_are_listed_tagged_and_pruned_without_control_characters(
    calipers: Run, vectors: Path, pairs: Path, tmp_path: Path
) -> None:
    store = ("--store", str(tmp_path / f"store {NAME}"))
    model = rename(vectors, NAME)
    for _ in range(2):
        assert calipers("eval", f"vectors:{model}", "--dataset", pairs, *store).returncode == 0
    lines = [
        *(("runs", "list"), ("runs", "list", "--csv"), ("runs", "list", "--json"), ("runs", "tag", "latest", NAME)),
        *(("report", "latest"), ("report", "latest", "--format", "json"), ("runs", "show", "latest"), ("doctor",)),
        *(("runs", "prune", "--keep", "1", "--dry-run"), ("runs", "rm", "latest")),
    ]
    for done in (calipers(*line, *store) for line in lines):
        assert done.returncode == (2 if "tag" in done.args else 0), done
        assert not CONTROL.search(done.stdout + done.stderr), done.args


def test_a_name_typed_as_an_address_is_shown_without_its_secret(calipers: Run, vectors: Path, pairs: Path) -> None:
    reference = f"vectors:{vectors}"
    made = calipers("eval", reference, "--dataset", pairs, "--model-id", "http://u:S3CRET@h/v1?key=S3CRET")
    for done in (made, calipers("runs", "list", "--json"), calipers("report", "latest")):
        assert "S3CRET" not in done.stdout + done.stderr
        assert done.returncode in (0, 2)


def test_a_list_for_a_spreadsheet_has_no_formula(calipers: Run, vectors: Path, pairs: Path) -> None:
    assert calipers("eval", f"vectors:{rename(vectors, '=1+1')}", "--dataset", pairs).returncode == 0
    assert ",'=1+1" in calipers("runs", "list", "--csv").stdout


@pytest.mark.parametrize("write", [to_json, to_line])
def test_json_escapes_what_a_terminal_obeys_and_half_a_pair(write: object) -> None:
    assert callable(write)
    text = write({"a": NAME + "\ud800é"})
    assert not CONTROL.search(text)
    text.encode()
    assert json.loads(text) == {"a": NAME + "\ud800é"}
