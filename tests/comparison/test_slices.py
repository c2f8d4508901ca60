"""A comparison by group: the same figures as on the examples of the group alone, and no part in any exit code."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

from calipers.cli import run
from calipers.comparison import slices
from calipers.comparison.api import compare
from calipers.comparison.json import document
from calipers.comparison.junit import to_junit
from calipers.comparison.markdown import verdicts_markdown
from calipers.comparison.records import SliceChange, SliceChanges, Verdict
from calipers.core import RequestError
from calipers.rendering.document import to_json
from calipers.runs.api import evaluate
from calipers.runs.protocol import Protocol
from calipers.runs.store import Store
from calipers.shop import sample
from tests.support import verdicts as made

BAD = '<b>|`x`"\x1b[2J\x00\n# title'


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return sample.write(tmp_path_factory.mktemp("shop"))


def judge(shop: Path, *group_by: str) -> Verdict:
    protocol = Protocol(task="retrieval", dataset=str(shop))
    return compare("bm25", ["bm25:k1=0.1,b=0"], protocol=protocol, resamples=300, group_by=group_by)[0]


def test_a_group_is_compared_as_if_it_were_alone(shop: Path, tmp_path: Path) -> None:
    verdict = judge(shop, "language")
    (changes,) = verdict.slices
    japanese = next(change for change in changes.changes if change.group == "Japanese")
    rows = [json.loads(line) for line in (shop / "queries.jsonl").read_text(encoding="utf-8").splitlines()]
    ids = {row["_id"] for row in rows if not row["text"].isascii()}
    baseline, candidate = verdict.baseline.outcomes, verdict.candidate.outcomes if verdict.candidate else None
    assert candidate is not None
    values = [
        np.mean([v for id, v in zip(o.ids, o.columns["ndcg@10"], strict=True) if id in ids])
        for o in (baseline, candidate)
    ]
    c = japanese.comparison
    assert (c.baseline, c.candidate) == pytest.approx(tuple(values), abs=1e-12)
    assert c.examples == len(ids) == 100
    assert not c.decides
    assert verdict.label == judge(shop).label


def test_stored_runs_are_grouped_after_the_fact(shop: Path, tmp_path: Path) -> None:
    store = Store(tmp_path)
    runs = [
        evaluate(model, task="retrieval", dataset=str(shop), resamples=100, store=store).run_id
        for model in ("bm25", "bm25:k1=0.1,b=0")
    ]
    by = [changes.by for changes in compare(runs[0], runs[1:], store=store, group_by=["brand", "length"])[0].slices]
    assert by == ["brand", "length"]
    with pytest.raises(RequestError, match="no column 'nope'"):
        compare(runs[0], runs[1:], store=store, group_by=["nope"])


def test_unlabelled_data_are_not_grouped(shop: Path) -> None:
    with pytest.raises(RequestError, match="`group_by` has no effect with `unlabelled`"):
        compare("bm25", ["bm25"], unlabelled=True, group_by=["language"])


def test_a_missing_column_is_exit_code_2_before_a_model_runs(shop: Path, capsys: pytest.CaptureFixture[str]) -> None:
    line = ["compare", "bm25", "./no-such-model", "--task", "retrieval", "--dataset", str(shop), "--group-by", "nope"]
    assert run([*line, "--no-store"]) == 2
    assert "--group-by: there is no column 'nope'" in capsys.readouterr().err


# --- where it hurts most ----------------------------------------------------------------------------------------------


def change(group: str, delta: float, interval: tuple[float, float] | None, *, higher: bool = True) -> SliceChange:
    return SliceChange(group, made.comparison(delta=delta, interval=interval, higher_is_better=higher))


def test_a_sure_loss_comes_before_a_larger_one_that_may_be_chance() -> None:
    sure, chance, single = change("a", -1, (-2, -0.5)), change("b", -5, (-11, 1)), change("c", -9, None)
    better = change("d", 3, (1, 5))
    assert slices.hurt_most([single, chance, sure, better]) is sure
    assert slices.hurt_most([single, chance, better]) is chance
    assert slices.hurt_most([single, better]) is single
    assert slices.hurt_most([better]) is None
    assert slices.hurt_most([change("e", 2, (1, 3), higher=False), change("f", -2, (-3, -1), higher=False)])


def test_text_from_data_is_harmless_in_every_format() -> None:
    changes = (change(BAD, -1, (-2, -0.5)), SliceChange(None, made.comparison(delta=0.0)))
    verdict = replace(made.passing(), slices=(SliceChanges(BAD, BAD, "ndcg@10", changes, (BAD,), changes[0]),))
    suite = ElementTree.fromstring(to_junit([verdict]))
    assert suite.get("tests") == ElementTree.fromstring(to_junit([made.passing()])).get("tests")
    names = [each.get("name") or "" for each in suite.iter("property")]
    assert any("(no value)" in name for name in names)
    markdown = verdicts_markdown([verdict])
    assert "\n# title" not in markdown
    assert "\x1b" not in markdown
    facts = json.loads(to_json(document([verdict])))["candidates"][0]["slices"][0]
    assert (facts["hurts_most"], facts["slices"][1]["group"]) == (BAD, None)
