"""Fresh environments: `python -m tests.packaging.environments`, or `make packages`.

The wheel and the sdist are built and checked. The wheel is installed alone, with each extra alone, and in the lowest
versions that pyproject.toml allows (PyTorch excepted); in each environment the commands that need no more are run,
outside the source tree. Every Python from 3.11 to 3.13 that is on this machine is tried; one that is not is named.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tests.hostile.places import build

ROOT = Path(__file__).parents[2]
PYTHONS = ("3.11", "3.12", "3.13")
EXTRAS = ("", "torch", "hub", "mteb")


def main() -> int:
    with TemporaryDirectory() as folder:
        place = Path(folder)
        (place / "sound").mkdir()
        build(place / "sound")
        wheel = build_wheel(place)
        failures = [f for extra in EXTRAS for f in try_environment(place, wheel, sys.executable, extra)]
        failures += try_environment(place, wheel, sys.executable, "torch", lowest())
        for version in PYTHONS:
            python = shutil.which(f"python{version}")
            works = python and not subprocess.run([python, "-V"], check=False, capture_output=True).returncode
            if python and works:
                failures += try_environment(place, wheel, python, "")
            else:
                print(f"Python {version}: not on this machine")
    print("\n".join(failures) or "all environments work")
    return bool(failures)


def build_wheel(place: Path) -> Path:
    tools = make_environment(place / "tools", sys.executable, "build", "twine", "hatchling")
    run(tools, "-m", "build", "-q", "--outdir", str(place / "dist"), str(ROOT))
    run(tools, "-m", "twine", "check", "--strict", *map(str, (place / "dist").iterdir()))
    return next((place / "dist").glob("*.whl"))


def lowest() -> list[str]:
    """Every dependency of the package and of its extra torch, in the lowest version that is allowed."""
    project: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    named = [*project["dependencies"], *project["optional-dependencies"]["torch"]]
    return [re.sub(r">=", "==", entry) for entry in named if not entry.startswith("torch>")]


def make_environment(place: Path, python: str, *packages: str) -> Path:
    subprocess.run([python, "-m", "venv", str(place)], check=True)
    binary = place / "bin" / "python"
    run(binary, "-m", "pip", "install", "-q", *packages)
    return binary


def try_environment(place: Path, wheel: Path, python: str, extra: str, versions: list[str] | None = None) -> list[str]:
    """What does not work with the wheel and one extra; each command runs in an empty folder."""
    name = f"{Path(python).name} [{extra}]{' lowest' if versions else ''}"
    home = place / re.sub(r"\W", "_", name)
    print(f"== {name}", flush=True)
    try:
        wanted = [f"{wheel}[{extra}]" if extra else str(wheel), *resolvable(versions or [])]
        binary = make_environment(home, python, *wanted)
    except subprocess.CalledProcessError as error:
        return [f"{name}: cannot be installed: {error}"]
    sound, cache = place / "sound", {"CALIPERS_STORE": str(home / "runs"), "XDG_CACHE_HOME": str(home / "cache")}
    pairs, beir, static = str(sound / "pairs.jsonl"), str(sound / "beir"), str(sound / "static")
    lines = [
        ["--help"], ["eval", static, "--dataset", pairs], ["eval", str(sound / "onnx"), "--dataset", pairs],
        ["eval", f"vectors:{sound / 'vectors.npy'}", "--dataset", pairs], ["runs", "list"], ["doctor"],
        ["compare", static, static, "--dataset", pairs],
        ["eval", "bm25", "--task", "retrieval", "--dataset", beir], ["diagnose", static, "--dataset", beir],
        ["trust", static, "--corpus", str(sound / "texts.txt"), "a query"],
        *([["eval", str(sound / "torch"), "--dataset", pairs]] if extra == "torch" else []),
    ]  # fmt: skip
    failures = []
    for line in lines:
        command, surroundings = [str(binary.with_name("calipers")), *line], {**os.environ, **cache}
        done = subprocess.run(command, cwd=home, env=surroundings, capture_output=True, check=False)
        if done.returncode not in (0, 5):
            failures.append(f"{name}: {' '.join(line)}: {done.returncode} {done.stderr.decode()[-300:]}")
    return failures


def resolvable(versions: list[str]) -> list[str]:
    """Without what sentence-transformers itself requires in a higher version than we do."""
    raised = ("huggingface-hub", "tokenizers", "safetensors")
    return [entry for entry in versions if not entry.startswith(raised)]


def run(python: Path, *words: str) -> None:
    subprocess.run([str(python), *words], check=True, env={k: v for k, v in os.environ.items() if k != "PYTHONPATH"})


if __name__ == "__main__":
    sys.exit(main())
