"""The examples of docstrings run in a folder that has what they name, with a store of their own."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.examples import write_workspace


@pytest.fixture(scope="session")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_workspace(tmp_path_factory.mktemp("examples"))


@pytest.fixture(autouse=True)
def in_workspace(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """An example that names a path runs where that path is; the others need no folder."""
    if "./" in request.node.dtest.docstring or "latest" in request.node.dtest.docstring:
        monkeypatch.chdir(request.getfixturevalue("workspace"))
        monkeypatch.setenv("CALIPERS_STORE", "store")
