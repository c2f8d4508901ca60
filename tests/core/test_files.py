"""Files that are whole or not there."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from calipers.core.files import package_versions, whole_file, write_whole


def test_an_error_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    write_whole(path, "old")

    def write_half() -> None:
        with whole_file(path) as part:
            part.write_text("half of the new")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        write_half()
    assert [(file.name, file.read_text()) for file in tmp_path.iterdir()] == [("report.json", "old")]


def test_a_name_that_is_not_utf8_is_written_escaped(tmp_path: Path) -> None:
    write_whole(tmp_path / "a.json", '"caf\udce9"')
    assert json.loads((tmp_path / "a.json").read_text()) == "caf\udce9"


def test_a_second_link_to_the_same_file_leaves_no_part(tmp_path: Path) -> None:
    write_whole(tmp_path / "a", "content")
    for _ in range(2):
        with whole_file(tmp_path / "b") as part:
            part.hardlink_to(tmp_path / "a")
    assert sorted(file.name for file in tmp_path.iterdir()) == ["a", "b"]


def test_threads_that_write_one_file_do_not_disturb_each_other(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda number: write_whole(path, str(number) * 50_000), [1, 2, 3, 4] * 50))
    assert [file.name for file in tmp_path.iterdir()] == ["report.json"]
    assert len(path.read_text()) == 50_000


def test_packages_that_are_not_installed_are_left_out() -> None:
    assert package_versions("numpy", "no-such-package") == {"numpy": np.__version__}


def test_every_path_of_a_user_is_expanded_by_one_function() -> None:
    """`Path.expanduser` raises for the home of a user who is not there; `inputs.expand` leaves it a path."""
    sources = Path(__file__).parents[2].joinpath("src").rglob("*.py")
    assert not [path.name for path in sources if ".expanduser()" in path.read_text(encoding="utf-8")]
