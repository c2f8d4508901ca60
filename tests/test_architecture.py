"""The import graph, stated; and what `import calipers` and `calipers --help` may cost."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import calipers

ROOT = Path(calipers.__file__).parent

# A part imports lower ranks only; parts of one rank do not import each other.
RANKS = {
    "core": 0,
    "metrics": 0,
    "rendering": 2,
    "shop": 2,
    "models": 3,
    "data": 3,
    "tasks": 3,
    "runs": 4,
    "comparison": 5,
    "interop": 5,
    "fidelity": 5,
    "testing": 6,
    "artifacts": 5,
    "attribution": 6,
    "diagnosis": 6,
    "reliability": 6,
    "sweeps": 7,
    "service": 7,
    "cli": 8,
    "__init__": 9,
    "__main__": 9,
}


def read_sources() -> dict[str, str]:
    """Module name below `calipers` → its text."""
    files = {path.relative_to(ROOT).with_suffix(""): path.read_text(encoding="utf-8") for path in ROOT.rglob("*.py")}
    return {".".join(path.parts).removesuffix(".__init__"): text for path, text in files.items()}


def imports(text: str, modules: Mapping[str, str]) -> Iterator[str]:
    """Our own modules that a text imports, at its top or inside a function. The package itself counts for nothing."""
    for name in imported_names(text):
        inside = name.removeprefix("calipers.")
        if inside != name:
            yield inside if inside in modules else inside.rpartition(".")[0] or inside


@cache
def imported_names(text: str) -> tuple[str, ...]:
    names: list[str] = []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            names += [f"{node.module}.{alias.name}" for alias in node.names]
    return tuple(names)


def violations(sources: Mapping[str, str]) -> list[str]:
    found = []
    for module, text in sources.items():
        part = module.split(".")[0]
        for target in imports(text, sources):
            other = target.split(".")[0]
            # `from calipers import __version__` names no module
            if other in RANKS and other != part and RANKS[other] >= RANKS[part]:
                found.append(f"{module} imports {target}")
    return found


def cycle(sources: Mapping[str, str]) -> list[str]:
    graph = {module: {t for t in imports(text, sources) if t != module} for module, text in sources.items()}
    try:
        tuple(TopologicalSorter(graph).static_order())
    except CycleError as error:
        return list(error.args[1])
    return []


def test_every_part_is_in_the_graph() -> None:
    assert {module.split(".")[0] for module in read_sources()} == set(RANKS)


def test_every_import_follows_an_arrow() -> None:
    assert violations(read_sources()) == []


def test_no_module_imports_itself_through_others() -> None:
    assert cycle(read_sources()) == []


@pytest.mark.parametrize(
    ("module", "line"),
    [
        ("metrics.correlation", "from calipers.core import Metric"),
        ("tasks.similarity", "def f():\n    import calipers.models.onnx"),
        ("data.readers", "from calipers.runs import store"),
        ("core", "from calipers.metrics import bootstrap"),
    ],
)
def test_a_planted_import_against_the_arrows_is_found(module: str, line: str) -> None:
    sources = read_sources()
    sources[module] += f"\n{line}\n"
    assert [v for v in violations(sources) if v.startswith(f"{module} imports")]


def test_a_planted_cycle_is_found() -> None:
    sources = read_sources()
    sources["data.readers"] += "\nfrom calipers.data import columns\n"
    assert {"data.readers", "data.columns"} <= set(cycle(sources))


HEAVY = ("torch", "transformers", "onnxruntime", "pandas", "sentence_transformers", "datasets", "scipy", "pyarrow")


@pytest.mark.parametrize(
    "code",
    [
        "import calipers",
        "from calipers.cli import run; run(['--help'])",
        "from calipers.cli import run; run(['eval', '--help'])",
        "from calipers.cli import run; run(['tasks', 'sentence-similarity'])",
    ],
)
def test_light_doors_import_nothing_heavy(code: str) -> None:
    check = f"import sys; {code}; print('heavy:', *[m for m in {HEAVY} if m in sys.modules])"
    found = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True)
    assert found.stdout.splitlines()[-1].strip() == "heavy:"


def test_help_does_not_even_import_numpy() -> None:
    """numpy alone costs most of the 0.3 s that `calipers --help` may take; a count of modules does not flicker."""
    code = "import sys; from calipers.cli import run; run(['--help']); print('numpy' in sys.modules)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.splitlines()[-1] == "False"


def test_stored_runs_are_compared_without_what_measures_models() -> None:
    """Each of these takes about a hundredth of the time of `calipers compare RUN RUN`, together a tenth."""
    needless = "runs.api", "shop", "models.loading", "models.source", "data.api", "data.readers", "tasks.retrieval"
    code = f"import sys, calipers.comparison.api; print(*(m for m in {needless} if 'calipers.' + m in sys.modules))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == ""


def test_unknown_attributes_are_refused() -> None:
    with pytest.raises(AttributeError, match="nonsense"):
        calipers.nonsense  # noqa: B018
    assert callable(calipers.evaluate)
