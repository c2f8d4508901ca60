"""Fresh environments: `python -m tests.packaging.environments [NAME …]`, or `make packages`.

The wheel and the sdist are built and checked. The wheel is installed alone and with each extra alone, in the newest
versions and in the lowest that pyproject.toml allows (PyTorch excepted); in each environment the promised commands
are run, outside the source tree. Every Python from 3.11 to 3.13 that is on this machine is tried; one that is not is
named. A NAME such as `torch`, `lowest-mteb` or `3.12` runs that part only; `plain` is the wheel without an extra.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tests.hostile.places import build
from tests.support.sweeps import write_registry

ROOT = Path(__file__).parents[2]
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS = ("", *(extra for extra in PROJECT["optional-dependencies"] if extra != "dev"))
PYTHONS = ("3.11", "3.12", "3.13")
# What the packages of an extra themselves require in a higher version than we do.
RAISED = {
    "torch": ("click", "huggingface-hub", "safetensors", "tokenizers"),
    "mteb": ("click", "datasets", "huggingface-hub", "pyarrow", "rich", "safetensors", "tokenizers"),
    "demo": ("click", "huggingface-hub", "safetensors", "tokenizers"),
}
SHOWN = ("click", "datasets", "mteb", "numpy", "onnxruntime", "pyarrow", "ray", "sentence-transformers", "submitit")
MTEB = """
import json, runpy, sys
from calipers.interop.mteb import measure
tasks, rows, model = runpy.run_path(sys.argv[1]), [json.loads(line) for line in open(sys.argv[2])], sys.argv[3]
print(measure(model, [tasks["sts"]("Local", rows)], cache=None).metrics)
"""
SERVE = """
import json, subprocess, sys, urllib.request
command = [sys.executable, "-m", "calipers", "serve", "--trust", sys.argv[1], "--port", "0"]
with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
    port = next(json.loads(line)["port"] for line in process.stderr if '"listening"' in line)
    body = json.dumps({"scores": [0.9, 0.5, 0.4]}).encode()
    print(urllib.request.urlopen(f"http://127.0.0.1:{port}/v1/score", body, timeout=60).read())
    process.terminate()
"""


@dataclass(frozen=True)
class Environment:
    """A wheel with an extra, in the newest versions or the lowest."""

    name: str
    extra: str
    lowest: bool = False
    python: str = sys.executable

    @property
    def packages(self) -> list[str]:
        return lowest(self.extra) if self.lowest else []


def environments() -> list[Environment]:
    newest = [Environment(extra or "plain", extra) for extra in EXTRAS]
    oldest = [Environment(f"lowest-{extra or 'plain'}", extra, lowest=True) for extra in EXTRAS if extra != "demo"]
    return [*newest, *oldest, *(Environment(version, "", python=where(version)) for version in PYTHONS)]


def main(names: Sequence[str]) -> int:
    chosen = [one for one in environments() if not names or one.name in names]
    with TemporaryDirectory() as folder:
        place = Path(folder)
        sound = make_files(place / "sound")
        wheel = build_wheel(place)
        failures = [failure for one in chosen for failure in try_environment(place, sound, wheel, one)]
    print("\n".join(failures) or f"{len(chosen)} environments work")
    return bool(failures)


def where(version: str) -> str:
    """The interpreter, or nothing where it is not on this machine (a shim of pyenv may stand for none)."""
    name = f"python{version}"
    pyenv = sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/{name}"))
    for python in (shutil.which(name), *map(str, pyenv)):
        if python and not subprocess.run([python, "-V"], check=False, capture_output=True).returncode:
            return python
    return ""


def make_files(sound: Path) -> Path:
    sound.mkdir()
    build(sound)
    (sound / "hub").mkdir()
    shutil.copy(sound / "pairs.parquet", sound / "hub" / "train-00000-of-00001.parquet")
    (sound / "sweep").mkdir()
    write_registry(sound / "sweep")
    (sound / "measure_local.py").write_text(MTEB)
    (sound / "serve.py").write_text(SERVE)
    shutil.copy(ROOT / "tests" / "support" / "mteb_tasks.py", sound)
    return sound


def build_wheel(place: Path) -> Path:
    tools = make_environment(place / "tools", sys.executable, "build", "twine", "hatchling")
    run(tools, "-m", "build", "-q", "--no-isolation", "--outdir", str(place / "dist"), str(ROOT))
    run(tools, "-m", "twine", "check", "--strict", *map(str, (place / "dist").iterdir()))
    return next((place / "dist").glob("*.whl"))


def lowest(extra: str) -> list[str]:
    """Every dependency of the package and of the extra in the lowest version that is allowed, but for PyTorch."""
    extras: Mapping[str, list[str]] = PROJECT["optional-dependencies"]
    named = [*PROJECT["dependencies"], *extras.get(extra, [])]
    while parts := [entry for entry in named if entry.startswith("calipers[")]:
        named = [entry for entry in named if entry not in parts] + extras[parts[0][len("calipers[") : -1]]
    left_out = ("torch>", *RAISED.get(extra, ()))
    return [entry.replace(">=", "==") for entry in named if not entry.startswith(left_out)]


def make_environment(place: Path, python: str, *packages: str) -> Path:
    subprocess.run([python, "-m", "venv", str(place)], check=True)
    binary = place / "bin" / "python"
    run(binary, "-m", "pip", "install", "-qq", "--no-compile", *packages)  # most modules are never imported
    return binary


def try_environment(place: Path, sound: Path, wheel: Path, one: Environment) -> list[str]:
    """What does not work there; each command runs in an empty folder."""
    print(f"== {one.name}", flush=True)
    if not one.python:
        print("not on this machine")
        return []
    home = place / one.name
    try:
        binary = make_environment(home, one.python, f"{wheel}[{one.extra}]" if one.extra else str(wheel), *one.packages)
    except subprocess.CalledProcessError as error:
        return [f"{one.name}: cannot be installed: {error}"]
    print(f"   {versions(binary)}", flush=True)
    commands = [[str(binary.with_name("calipers")), *line] for line in lines(sound, home, one.extra)]
    commands += [[str(binary), *line] for line in scripts(sound, one.extra)]
    cache = {"CALIPERS_STORE": str(home / "runs"), "XDG_CACHE_HOME": str(home / "cache"), "HF_HOME": str(home / "hf")}
    surroundings = {**without_sources(), **cache, "HF_HUB_OFFLINE": "1"}
    failures = []
    for command in commands:
        done = subprocess.run(command, cwd=home, env=surroundings, capture_output=True, check=False)
        if done.returncode not in ((1,) if command[1] == "sweep" else (0, 5)):  # the sweep holds a model that is worse
            failures.append(f"{one.name}: {' '.join(command)}: {done.returncode} {done.stderr.decode()[-300:]}")
            print(f"   {failures[-1]}", flush=True)
    print(f"   {len(commands) - len(failures)} of {len(commands)} commands work", flush=True)
    shutil.rmtree(home)
    return failures


def lines(sound: Path, home: Path, extra: str) -> list[list[str]]:
    """What works without an extra, and what the extra adds."""
    pairs, beir, static, onnx = (str(sound / name) for name in ("pairs.jsonl", "beir", "static", "onnx"))
    registry = str(sound / "sweep" / "registry.yaml")
    sweep = ["sweep", registry, "--no-latency", "--resamples", "200", "--store", str(home / "swept")]
    torch = str(sound / "torch")
    added = {
        "torch": [
            ["eval", torch, "--dataset", pairs],
            ["build", torch, "-o", "built", "--precision", "w8a8", "--calibration", str(sound / "texts.txt")],
        ],
        "hub": [["eval", static, "--dataset", f"hub:{sound / 'hub'}", "--split", "train"]],
        "ray": [[*sweep, "--on", "ray"]],
        "slurm": [[*sweep, "--on", "slurm:local"]],
        "demo": [["demo"]],
    }
    return [
        ["--help"], ["eval", static, "--dataset", pairs], ["eval", onnx, "--dataset", pairs],
        ["eval", f"vectors:{sound / 'vectors.npy'}", "--dataset", pairs], ["runs", "list"], ["doctor"],
        ["report", "latest"], ["compare", static, static, "--dataset", pairs],
        ["compare", static, onnx, "--dataset", pairs],
        ["eval", "bm25", "--task", "retrieval", "--dataset", beir], ["diagnose", static, "--dataset", beir],
        ["trust", static, "--corpus", str(sound / "texts.txt"), "a query"], sweep, *added.get(extra, []),
    ]  # fmt: skip


def scripts(sound: Path, extra: str) -> list[list[str]]:
    """What an extra adds that is no single command."""
    names = {
        "mteb": ("measure_local.py", "mteb_tasks.py", "pairs.jsonl", "static"),
        "serve": ("serve.py", "score.trust"),
    }
    return [[str(sound / name) for name in names[extra]]] if extra in names else []


def versions(binary: Path) -> str:
    words = [str(binary), "-m", "pip", "list", "--format", "json"]
    entries = json.loads(subprocess.run(words, check=True, capture_output=True).stdout)
    shown = (f"{entry['name']} {entry['version']}" for entry in entries if entry["name"].lower() in SHOWN)
    python = subprocess.run([str(binary), "-V"], check=True, capture_output=True, text=True).stdout.strip()
    return ", ".join([python, *shown])


def without_sources() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not re.fullmatch("PYTHONPATH|CALIPERS_.*", name)}


def run(python: Path, *words: str) -> None:
    subprocess.run([str(python), *words], check=True, env=without_sources())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
