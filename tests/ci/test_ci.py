"""The steps of the GitHub Action and of the GitLab template, run in a scratch repository as their runners run them."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
import yaml

from tests.support.checkout import copy_tree

ROOT = Path(__file__).parents[2]
ACTION = yaml.safe_load((ROOT / "ci" / "action.yml").read_text(encoding="utf-8"))
GITLAB = yaml.safe_load((ROOT / "ci" / "gitlab.yml").read_text(encoding="utf-8"))[".calipers"]
PAIRS = 150


@dataclass(frozen=True)
class Job:
    """What a runner shows of a job: whether it is green, its log, its summary page and the outputs of its steps."""

    code: int
    log: str
    summary: str
    outputs: dict[str, str]


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A git repository with scored pairs and vectors: a baseline, and candidates with little, some and much noise."""
    place = tmp_path_factory.mktemp("scratch-repository")
    subprocess.run(["git", "init", "--quiet", place], check=True)
    rng = np.random.default_rng(3)
    left, angle = rng.normal(size=(PAIRS, 16)), rng.uniform(0, 1.5, (PAIRS, 1))
    right = np.cos(angle) * left + np.sin(angle) * rng.normal(size=left.shape)
    vectors = np.concatenate([left, right])
    texts = [f"sentence {side} {i}" for side in "ab" for i in range(PAIRS)]
    scores = 5 * np.cos(angle[:, 0]) + rng.normal(scale=0.3, size=PAIRS)
    pairs = zip(texts[:PAIRS], texts[PAIRS:], scores, strict=True)
    rows = [{"sentence1": a, "sentence2": b, "score": round(float(score), 3)} for a, b, score in pairs]
    (place / "eval").mkdir()
    (place / "eval" / "pairs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    for name, noise in {"base": 0.0, "good": 0.01, "open": 0.28, "bad": 2.0}.items():
        moved = vectors + noise * np.random.default_rng(5).normal(size=vectors.shape)
        np.save(place / f"{name}.npy", moved.astype(np.float32))
        (place / f"{name}.txt").write_text("\n".join(texts) + "\n", encoding="utf-8")
    return place


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """Of a step: the command on the path, files for outputs and the summary, a store of its own."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name, arguments in {"calipers": "-m calipers", "python": ""}.items():
        (folder / name).write_text(f'#!/bin/sh\nexec "{sys.executable}" {arguments} "$@"\n', encoding="utf-8")
        (folder / name).chmod(0o755)
    files = {name: str(tmp_path / name.lower()) for name in ("GITHUB_OUTPUT", "GITHUB_STEP_SUMMARY")}
    source = str(ROOT / "src")
    return {
        **os.environ,
        **files,
        "PATH": f"{folder}:{os.environ['PATH']}",
        "PYTHONPATH": source,
        "CALIPERS_STORE": str(tmp_path / "store"),
        "GITHUB_ACTION_PATH": str(ROOT / "ci"),
    }


def run_action(repository: Path, environment: dict[str, str], **inputs: str) -> Job:
    """The steps of the composite action, with the inputs put in where GitHub puts them."""
    given = {name: str(entry.get("default", "")) for name, entry in ACTION["inputs"].items()} | inputs
    log, code = "", 0
    for step in ACTION["runs"]["steps"]:
        condition = step.get("if", "")
        if condition and given["install"] == "none":
            assert condition == "${{ inputs.install != 'none' }}"
            continue
        values = {name: fill(value, given) for name, value in step["env"].items()}
        assert "${{" not in step["run"], "an input would become part of a script"
        shell = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]]
        done = subprocess.run(shell, cwd=repository, env={**environment, **values}, capture_output=True, text=True)
        log, code = log + done.stdout + done.stderr, done.returncode
        if code:
            break
    return Job(code, log, _read(environment["GITHUB_STEP_SUMMARY"]), _outputs(environment["GITHUB_OUTPUT"]))


def fill(value: str, inputs: dict[str, str]) -> str:
    return re.sub(r"\$\{\{ inputs\.([\w-]+) \}\}", lambda match: inputs[match[1]], value)


def _read(path: str) -> str:
    return Path(path).read_text(encoding="utf-8") if Path(path).exists() else ""


def _outputs(path: str) -> dict[str, str]:
    return dict(line.split("=", 1) for line in _read(path).splitlines())


ARGUMENTS = "--resamples 500 --threshold cosine_spearman=2,4"


@pytest.mark.parametrize(
    ("candidate", "inconclusive", "code", "label", "annotation"),
    [
        ("good", "fail", 0, "PASS", ""),
        ("bad", "fail", 1, "REGRESSION", "::error title=Calipers: REGRESSION::"),
        ("open", "fail", 5, "INCONCLUSIVE", "::error title=Calipers: INCONCLUSIVE::"),
        ("open", "warn", 0, "INCONCLUSIVE", "::warning title=Calipers: INCONCLUSIVE::"),
    ],
)
def test_the_action_gives_the_job_its_status_and_summary(
    repository: Path,
    environment: dict[str, str],
    candidate: str,
    inconclusive: str,
    code: int,
    label: str,
    annotation: str,
) -> None:
    names = {"baseline": "base.npy", "candidates": f"{candidate}.npy\n", "dataset": "eval/pairs.jsonl"}
    job = run_action(repository, environment, **names, arguments=ARGUMENTS, install="none", inconclusive=inconclusive)
    assert (job.code, job.outputs["label"]) == (code, label), job.log
    assert annotation in job.log
    assert ("::" in job.log) == bool(annotation)
    name = re.escape(repository.name)
    assert re.match(f"## {label}: `{name}/{candidate}.npy` against `{name}/base.npy`\n", job.summary), job.summary
    assert "`cosine_spearman`, with the chances of PASS/AT_RISK/REGRESSION:" in job.summary
    assert f"{repository.name}/{candidate}.npy` |" in job.summary
    suites = ElementTree.parse(repository / "verdict.xml").getroot()
    assert bool(suites.findall(".//failure") + suites.findall(".//error")) == (label != "PASS")


def test_a_model_that_is_not_there_fails_the_job_with_the_reason(repository: Path, environment: dict[str, str]) -> None:
    names = {"baseline": "base.npy", "candidates": "./none.npy", "dataset": "eval/pairs.jsonl"}
    job = run_action(repository, environment, **names, install="none")
    assert (job.code, job.outputs) == (3, {"label": "", "exit": "3"})
    assert "::error title=Calipers: no verdict::" in job.log
    assert job.summary.startswith("## No verdict: `./none.npy` against `base.npy`")


def test_inputs_are_words_and_never_commands(repository: Path, environment: dict[str, str], tmp_path: Path) -> None:
    candidate = f"good.npy $(touch {tmp_path}/owned) `touch {tmp_path}/owned`"
    job = run_action(repository, environment, baseline="base.npy", candidates=candidate, install="none")
    assert job.code in (2, 3)
    assert not (tmp_path / "owned").exists()


@pytest.mark.parametrize("name", ["candidates", "arguments"])
def test_a_quote_that_is_not_closed_is_no_verdict(repository: Path, environment: dict[str, str], name: str) -> None:
    """Flags that cannot be read would else be left out: a comparison with other thresholds than the job names."""
    names = {"baseline": "base.npy", "candidates": "good.npy", "dataset": "eval/pairs.jsonl", "arguments": ARGUMENTS}
    job = run_action(repository, environment, **{**names, name: f"{names[name]} 'open"}, install="none")
    assert job.code == 2, job.log
    assert f"::error title=Calipers::{name}: No closing quotation" in job.log
    assert "Traceback" not in job.log


def test_the_worst_of_several_candidates_decides(repository: Path, environment: dict[str, str]) -> None:
    names = {"baseline": "base.npy", "candidates": "good.npy\nbad.npy", "dataset": "eval/pairs.jsonl"}
    job = run_action(repository, environment, **names, arguments=ARGUMENTS, install="none")
    assert (job.code, job.outputs["label"]) == (1, "REGRESSION"), job.log
    assert "good.npy" in job.summary
    assert "bad.npy" in job.summary


def test_a_wrong_input_is_named(repository: Path, environment: dict[str, str]) -> None:
    job = run_action(
        repository, environment, baseline="base.npy", candidates="good.npy", install="none", inconclusive="pass"
    )
    assert job.code == 2
    assert "inconclusive must be fail or warn, found 'pass'" in job.log


@pytest.mark.slow
def test_the_action_installs_what_it_then_runs(repository: Path, environment: dict[str, str], tmp_path: Path) -> None:
    """Both steps in a fresh environment, as on a runner. The default is the action's own checkout with PyTorch, which
    these vectors do not need: the same checkout without the extra."""
    step = ACTION["runs"]["steps"][0]
    assert step["run"] == 'python -m pip install --quiet "${INSTALL:-$GITHUB_ACTION_PATH/..[torch]}"'
    tree = copy_tree(tmp_path / "checkout")
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "fresh"], check=True)
    fresh = {name: value for name, value in environment.items() if not name.startswith("PYTHON")}
    fresh |= {"PATH": f"{tmp_path}/fresh/bin:{os.environ['PATH']}", "PIP_CONSTRAINT": str(tree / "constraints.txt")}
    names = {"baseline": "base.npy", "candidates": "good.npy", "dataset": "eval/pairs.jsonl"}
    job = run_action(repository, fresh, **names, arguments=ARGUMENTS, install=str(tree))
    assert (job.code, job.outputs.get("label")) == (0, "PASS"), job.log
    assert (tmp_path / "fresh" / "bin" / "calipers").exists()


@pytest.mark.parametrize(
    ("candidate", "code", "status"), [("good", 0, "passed"), ("bad", 1, "failed"), ("open", 5, "passed with warnings")]
)
def test_the_gitlab_job_has_the_right_status(
    repository: Path, environment: dict[str, str], candidate: str, code: int, status: str
) -> None:
    given = {"BASELINE": "base.npy", "CANDIDATES": f"{candidate}.npy", "DATASET": "eval/pairs.jsonl"}
    values = {**GITLAB["variables"], **given, "ARGUMENTS": ARGUMENTS, "CALIPERS_STORE": environment["CALIPERS_STORE"]}
    (repository / "verdict.md").unlink(missing_ok=True)
    environment = {name: value for name, value in environment.items() if name != "GITHUB_STEP_SUMMARY"}
    script = "\n".join(["set -eo pipefail", *GITLAB["before_script"], *GITLAB["script"]])
    done = subprocess.run(["bash", "-c", script], cwd=repository, env={**environment, **values}, capture_output=True)
    assert done.returncode == code, done.stderr.decode()
    allowed = GITLAB["allow_failure"]["exit_codes"] == code
    assert ("passed" if code == 0 else "passed with warnings" if allowed else "failed") == status
    assert (repository / "verdict.md").read_text(encoding="utf-8").startswith("## ")
    assert {"junit"} == set(GITLAB["artifacts"]["reports"])
    assert json.loads((repository / "verdict.json").read_text(encoding="utf-8"))["gate"]["exit"] == code
