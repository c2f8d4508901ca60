"""Every flag of `calipers sweep` changes what is printed or written, or is refused, in every kind of call."""

from __future__ import annotations

from pathlib import Path

import pytest

from calipers import cli
from tests.support import sweeps
from tests.support.flags import Walker

VALUES = {
    "only": ["near"], "exclude": ["bad"], "retry_failed": ["nothing"], "on": ["nowhere"], "cell_timeout": ["0.01"],
    "memory_limit": ["0.001"], "confidence": ["0.9"], "resamples": ["300"], "columns": ["classic"],
}  # fmt: skip


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sweep-flags")
    registry = sweeps.write_registry(folder)
    sweeps.run(registry, folder / "store")
    return folder


def lines(place: Path) -> dict[str, list[str]]:
    registry, store = str(place / "registry.yaml"), ["--store", str(place / "store")]
    return {
        "--check": ["sweep", registry, "--check"],
        "--dry-run": ["sweep", registry, "--dry-run", *store],
        "status": ["sweep", "status", registry, *store],
        "show": ["sweep", "show", registry, *store],
        "run": ["sweep", registry, "--no-latency", "--resamples", "200", "--jobs", "1", "--keep-going", *store],
    }


@pytest.mark.parametrize("name", ["--check", "--dry-run", "status", "show"])
def test_a_flag_shows_or_is_refused(
    name: str, place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(place)
    assert Walker(place, VALUES, capsys.readouterr).ignored(lines(place)[name]) == []


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["status", "--html", "x.html"], "--html has no effect with status"),
        (["--dry-run", "--junit", "x.xml"], "--junit has no effect with --dry-run"),
        (["--check", "--only", "near"], "--only has no effect with --check"),
        (["show", "--only", "near"], "--only has no effect with show"),
        (["show", "--stages", "--csv", "x.csv"], "--csv has no effect with show --stages"),
        (["--stages"], "--stages has no effect here"),
        (["--only", "near", "--only", "naer"], "--only naer matches no cell"),
        (["--exclude", "badd"], "--exclude badd matches no cell"),
        (["--retry-failed", "timeout"], "--retry-failed must be among"),
    ],
)
def test_what_would_be_ignored_is_refused(
    words: list[str], message: str, place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(place)
    verb = [word for word in words if word in ("status", "show")]
    rest = [word for word in words if word not in verb]
    assert cli.run(["sweep", *verb, "registry.yaml", *rest, "--store", "store"]) == 2
    assert message in capsys.readouterr().err
