"""Exit codes and characters where standard output is a closed pipe, closed, full or of another encoding."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.samples import write_jsonl

CALIPERS = [sys.executable, "-m", "calipers"]


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, str]]:
    """A store with the runs of a good, a doubtful and a broken model, by name; ids and names are not ASCII."""
    folder = tmp_path_factory.mktemp("größe–湯")
    from calipers import evaluate
    from calipers.runs.store import Store

    rng = np.random.default_rng(5)
    score = np.round(rng.random(40) * 20) / 4
    pairs = [{"id": f"é{i}", "sentence1": f"l {i}", "sentence2": f"湯 {i}", "score": s} for i, s in enumerate(score)]
    rows = write_jsonl(folder / "pairs.jsonl", pairs)
    texts = [str(row[key]) for row in pairs for key in ("sentence1", "sentence2")]
    runs, values = {}, {}
    for name, noise in (("good", 0.1), ("doubtful", 0.3), ("broken", 2.0)):
        angle = (1 - score / 5) * 1.5 + np.random.default_rng(7).normal(0, noise, len(score))
        vectors = np.zeros((2 * len(score), 2), dtype=np.float32)
        vectors[0::2, 0], vectors[1::2] = 1.0, np.stack([np.cos(angle), np.sin(angle)], axis=1)
        np.save(folder / f"{name}.npy", vectors)
        (folder / f"{name}.txt").write_text("\n".join(texts) + "\n", encoding="utf-8")
        result = evaluate(str(folder / f"{name}.npy"), dataset=str(rows), store=Store(folder / "store"))
        runs[name], values[name] = result.run_id, result.metrics["cosine_spearman"]
    loss = values["good"] - values["doubtful"]  # a threshold at the loss itself: nothing settles on which side it is
    return folder / "store", {**runs, "threshold": f"cosine_spearman={loss - 0.001:.6f},{loss:.6f}"}


def lines(store: tuple[Path, dict[str, str]]) -> list[tuple[list[str], int]]:
    """Command lines on stored runs, with the exit codes that they have when all is read."""
    folder, runs = store
    compare = ["compare", runs["good"]]
    return [
        ([*compare, runs["good"], "--store", str(folder)], 0),
        ([*compare, runs["broken"], "--store", str(folder)], 1),
        ([*compare, runs["doubtful"], "--store", str(folder), "--threshold", runs["threshold"]], 5),
        (["runs", "show", runs["good"], "--store", str(folder), "--json", "--examples", "40"], 0),
        (["--help"], 0),
        (["eval", "--no-such-flag"], 2),
    ]


def start(words: list[str], **settings: Any) -> subprocess.Popen[bytes]:
    environment = {**os.environ, "PYTHONWARNINGS": "ignore", **settings.pop("env", {})}
    return subprocess.Popen([*CALIPERS, *words], env=environment, stderr=subprocess.PIPE, **settings)


def test_a_reader_that_goes_away_does_not_change_the_exit_code(stored: tuple[Path, dict[str, str]]) -> None:
    for words, code in lines(stored):
        with start(words, stdout=subprocess.PIPE) as process:
            assert process.stdout
            process.stdout.close()  # before anything is written, as `| true` does
            assert process.stderr
            err = process.stderr.read()
        assert process.returncode == code, (words, err)
        assert b"Traceback" not in err
        assert b"BrokenPipe" not in err


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "cp932", "cp1252"])
def test_an_encoding_that_lacks_a_character_gets_a_plain_one(
    stored: tuple[Path, dict[str, str]], encoding: str
) -> None:
    for words, code in lines(stored):
        process = start(words, stdout=subprocess.PIPE, env={"PYTHONIOENCODING": encoding})
        out, err = process.communicate()
        assert process.returncode == code, (words, err)
        text = out.decode(encoding)
        if "--json" in words:
            assert json.loads(text)["examples"][3]["id"] == "é3"
        elif words[0] == "compare":
            assert "cosine_spearman" in text


def test_without_standard_output_the_work_is_done(stored: tuple[Path, dict[str, str]]) -> None:
    words, code = lines(stored)[1]
    command = " ".join(f"'{word}'" for word in [*CALIPERS, *words])
    assert subprocess.run(f"{command} >&- 2>&-", shell=True, check=False).returncode == code


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full on this system")
def test_output_that_cannot_be_written_is_an_error_unless_there_is_a_verdict(
    stored: tuple[Path, dict[str, str]],
) -> None:
    for words, code in lines(stored)[:4]:
        with open("/dev/full", "wb") as full, start(words, stdout=full) as process:
            _, err = process.communicate()
        assert process.returncode == (code or 2), words
        assert code or b"the output cannot be written" in err, err


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full on this system")
def test_json_that_cannot_be_written_is_an_error_in_json() -> None:
    with open("/dev/full", "wb") as full, start(["doctor", "--json"], stdout=full) as process:
        _, err = process.communicate()
    expected = {"error": "the output cannot be written: No space left on device", "option": None, "exit": 2}
    assert (process.returncode, json.loads(err)) == (2, expected)


def test_a_closed_standard_error_is_no_failure(pairs: Path, vectors: Path) -> None:
    words = ["eval", str(vectors), "--dataset", str(pairs), "--no-store"]
    with start(words, stdout=subprocess.PIPE) as process:
        assert process.stderr
        process.stderr.close()
        assert process.stdout
        out = process.stdout.read()
    assert process.returncode == 0
    assert b"cosine_spearman" in out


# A command that writes past Python to the file of standard error, as ONNX Runtime and Rust do, then prints and fails.
NATIVE = """
import os, sys
from calipers.cli import streams
outlets = streams.open_outlets()
with streams.capture_native(show={show}):
    os.write(2, b"\\x1b[0;93mwarning\\x1b[0m at http://u:S3CRET@host/?key=S3CRET \\xe2\\x80\\xae\\xff\\x07\\n")
    print("a line of ours", file=sys.stderr)
    print("a result")
sys.exit(streams.close_outlets(outlets, {code}))
"""


@pytest.mark.parametrize(("show", "code"), [(False, 3), (True, 0)])
def test_what_libraries_write_to_standard_error_is_kept_back_or_shown_cleaned(show: bool, code: int) -> None:
    done = subprocess.run([sys.executable, "-c", NATIVE.format(show=show, code=code)], capture_output=True, check=False)
    lines = done.stderr.decode("utf-8").splitlines()
    assert (done.returncode, done.stdout) == (code, b"a result\n")
    assert lines[0] == "a line of ours"
    assert lines[1:] == (["�[0;93mwarning�[0m at http://host/ ���"] if show else [])


def test_the_file_of_standard_error_is_given_back() -> None:
    script = NATIVE.format(show=False, code=0).replace("sys.exit", 'os.write(2, b"after\\n"); sys.exit')
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, check=False)
    assert done.stderr == b"a line of ours\nafter\n"
