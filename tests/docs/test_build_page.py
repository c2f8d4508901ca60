"""docs/build.md: its Python runs, and its folders are there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.build_models import make_bert, make_texts

PAGE = (Path(__file__).parents[2] / "docs" / "build.md").read_text(encoding="utf-8")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_the_python_of_the_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (block,) = (code for code in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL) if "from calipers" in code)
    make_bert(tmp_path / "model")
    make_texts(tmp_path)
    monkeypatch.chdir(tmp_path)
    exec(compile(block.replace("in graph.nodes:", "in list(graph.nodes)[:2]:"), "build.md", "exec"), {})
    assert (tmp_path / "try.onnx").is_file()
    for name in ("exported", "optimized", "quantized-w8a8"):
        assert f"`{name}/`" in PAGE
        assert {"model.onnx", "stage.json"} <= {file.name for file in (tmp_path / "out" / name).iterdir()}
