"""Completion in a shell: the lines that docs/ci.md shows give a script, and the script gets words."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = (Path(__file__).parents[2] / "docs" / "ci.md").read_text(encoding="utf-8")
SHELLS = re.findall(r"_CALIPERS_COMPLETE=(\w+)_source calipers", PAGE)


def ask(**variables: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "calipers"],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        check=True,
        stdin=subprocess.DEVNULL,
    )
    assert done.stderr == ""
    return done.stdout


def complete(line: str) -> list[str]:
    """What is offered for the last word of a line, as (kind, word)."""
    words = ask(_CALIPERS_COMPLETE="bash_complete", COMP_WORDS=line, COMP_CWORD=str(len(line.split(" ")) - 1))
    return words.splitlines()


def test_the_page_names_three_shells() -> None:
    assert SHELLS == ["bash", "zsh", "fish"]


@pytest.mark.parametrize("shell", SHELLS)
def test_each_line_of_the_page_gives_a_script(shell: str) -> None:
    if shell == "bash" and shutil.which("bash") is None:
        pytest.skip("bash is not installed, and its version decides what click writes")
    script = ask(_CALIPERS_COMPLETE=f"{shell}_source")
    assert "_calipers_completion" in script
    if shell == "bash":
        subprocess.run(["bash", "-n"], input=script, text=True, check=True)


def test_commands_flags_and_choices_are_completed() -> None:
    assert complete("calipers pa") == ["plain,parity"]
    assert "plain,--tolerance" in complete("calipers parity --t")
    assert complete("calipers eval --pooling m") == ["plain,mean", "plain,max", "plain,mean_sqrt_len_tokens"]
    assert complete("calipers eval -o x") == ["file,x"]


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")
def test_bash_completes_words_with_the_line_of_the_page(tmp_path: Path) -> None:
    """The script of the page in a real bash, which calls the function as the Tab key does."""
    (tmp_path / "calipers").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m calipers "$@"\n', encoding="utf-8")
    (tmp_path / "calipers").chmod(0o755)
    line = re.search(r'eval "\$\(_CALIPERS_COMPLETE=bash_source calipers\)"', PAGE)
    assert line, "docs/ci.md has no line for bash"
    press = "COMP_WORDS=(calipers par); COMP_CWORD=1; _calipers_completion calipers; printf '%s ' \"${COMPREPLY[@]}\""
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    shell = ["bash", "--norc", "-c", f"{line[0]}; {press}; complete -p calipers"]
    done = subprocess.run(shell, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("parity ")
    assert "-F _calipers_completion calipers" in done.stdout
