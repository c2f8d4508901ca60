"""`calipers drift` and `calipers trust --watch` with a real model on real queries."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.samples import Run, write_jsonl


def questions(folder: Path, rows: slice) -> list[dict[str, str]]:
    lines = (folder / "queries.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines][rows]


def test_two_sets_of_texts_are_told_apart_or_not(
    calipers: Run, model: Callable[[str], Path], data: Callable[[str], Path], tmp_path: Path
) -> None:
    static, scifact = model("potion-base-4m-int8"), data("scifact")
    write_jsonl(tmp_path / "a.jsonl", questions(scifact, slice(0, 300, 2)))
    write_jsonl(tmp_path / "b.jsonl", questions(scifact, slice(1, 300, 2)))
    same = calipers("drift", static, "--reference", tmp_path / "a.jsonl", "--current", tmp_path / "b.jsonl", "--json")
    assert same.returncode == 0, same.stderr
    assert not json.loads(same.stdout)["alarm"]
    other = calipers("drift", static, "--reference", tmp_path / "a.jsonl", "--current", data("icecat"), "--json")
    told = json.loads(other.stdout)
    assert other.returncode == 1
    assert told["alarm"]
    assert told["interval"][0] > 0.9
    assert told["new"][0]["text"]
    for arguments, why in (
        (("--reference", tmp_path / "a.jsonl"), "--current is missing"),
        (("--reference", tmp_path / "a.jsonl", "--current", tmp_path / "none"), "none"),
    ):
        refused = calipers("drift", static, *arguments)
        assert (refused.returncode, refused.stderr.count("\n")) == (2, 1)
        assert why in refused.stderr


def test_a_log_of_other_queries_is_an_alarm_and_one_of_the_same_is_none(
    calipers: Run, model: Callable[[str], Path], data: Callable[[str], Path], tmp_path: Path
) -> None:
    """Documents of scifact's first 800; queries of scifact and of icecat."""
    static, scifact = model("potion-base-4m-int8"), data("scifact")
    lines = (scifact / "corpus.jsonl").read_text(encoding="utf-8").splitlines()[:800]
    write_jsonl(tmp_path / "corpus.jsonl", [json.loads(line) for line in lines])
    write_jsonl(tmp_path / "queries.jsonl", questions(scifact, slice(0, 300, 2)))
    arguments = ("trust", static, "--corpus", tmp_path)
    assert calipers(*arguments, "--save", tmp_path / "t").returncode == 0
    for name, rows, code in (
        ("same", questions(scifact, slice(1, 300, 2)), 0),
        ("other", questions(data("icecat"), slice(0, 50)), 1),
    ):
        write_jsonl(tmp_path / f"{name}.jsonl", rows)
        answers = calipers(*arguments, "--load", tmp_path / "t", "--questions", tmp_path / f"{name}.jsonl").stdout
        (tmp_path / f"{name}.log").write_text(answers, encoding="utf-8")
        done = calipers(*arguments, "--load", tmp_path / "t", "--watch", tmp_path / f"{name}.log", "--json")
        assert done.returncode == code, done.stdout
    told = json.loads(done.stdout)
    assert told["alarm"] <= 50
    assert told["new"][0]["query"] in {row["text"] for row in rows}


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("", "holds no scored query"),
        ("{", "line 1: not valid JSON"),
        ("[" * 5_000, "nested too deeply"),
        ('{"top_score": 1' + "0" * 400 + ', "gap": 1}', "holds no scored query"),
        ("{}\n" + "x" * 17_000_000, "line 2: 16,000,001 bytes or more, which is more than the limit"),
    ],
)
def test_a_log_that_is_none_is_one_sentence(
    calipers: Run, tmp_path: Path, shared_trust: Path, content: str, why: str
) -> None:
    (tmp_path / "log").write_text(content)
    done = calipers("trust", "m", "--corpus", "c", "--load", shared_trust, "--watch", tmp_path / "log")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert why in done.stderr


def test_a_seed_below_0_is_refused(calipers: Run, tmp_path: Path, shared_trust: Path) -> None:
    texts = tmp_path / "texts.txt"
    texts.write_text("\n".join(f"text {i}" for i in range(20)))
    watched = ("trust", "m", "--corpus", "c", "--load", shared_trust, "--watch", texts)
    for words in (
        watched,
        ("drift", "m", "--reference", texts, "--current", texts),
        ("trust", "m", "--corpus", texts, "q"),
    ):
        done = calipers(*words, "--seed", "-1")
        assert (done.returncode, done.stderr.count("\n")) == (2, 1)
        assert "--seed must be at least 0, found -1" in done.stderr


@pytest.fixture
def shared_trust(tmp_path: Path) -> Path:
    from tests.support.serving import make_trust

    make_trust(tmp_path / "t")
    return tmp_path / "t"
