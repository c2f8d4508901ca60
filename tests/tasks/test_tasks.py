"""The table of tasks, and what it costs to find one."""

from __future__ import annotations

import subprocess
import sys

import pytest

from calipers import tasks
from calipers.core import RequestError


def test_a_task_stands_under_its_own_name() -> None:
    for name in ("mteb", "embedding-agreement", "fill-mask-agreement", "ranking-agreement"):
        assert tasks.find(name).name == name
    assert all(tasks.find(task.name) is task for task in tasks.TASKS)
    assert tasks.find("feature-extraction") is tasks.find("sentence-similarity")
    with pytest.raises(RequestError, match="unknown task 'x': expected one of sentence-similarity, feature-extraction"):
        tasks.find("x")
    with pytest.raises(AttributeError, match="nothing"):
        tasks.nothing  # noqa: B018


def test_a_task_that_is_found_imports_no_other() -> None:
    code = (
        "import sys; from calipers import tasks; tasks.find('sentence-similarity');"
        "print(*{f'calipers.tasks.{name}' for name in ('retrieval', 'reranking', 'fill_mask')} & {*sys.modules})"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == ""
