"""Groups of a bilingual shop against a plain loop: nDCG of Japanese and of English queries, with intervals."""

from __future__ import annotations

import json
import math
import random
from pathlib import Path

import pytest

import calipers
from calipers.data import trec
from calipers.shop import sample

pytestmark = pytest.mark.slow


def gain(grades: list[float]) -> float:
    return sum(grade / math.log2(place + 2) for place, grade in enumerate(grades[:10]))


def test_minilm_by_language(minilm: Path, tmp_path: Path) -> None:
    shop, out = sample.write(tmp_path / "shop"), tmp_path / "run.trec"
    result = calipers.evaluate(str(minilm), task="retrieval", dataset=str(shop), run_out=out, group_by=["language"])
    run, qrels = trec.read_run(out), trec.read_qrels(shop / "qrels" / "test.tsv")
    values: dict[str, list[float]] = {"Japanese": [], "Latin letters": []}
    for line in (shop / "queries.jsonl").read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        grades = qrels[row["_id"]]
        ranked = [grades.get(document, 0.0) for document in run[row["_id"]]]
        language = "Latin letters" if row["text"].isascii() else "Japanese"
        values[language].append(gain(ranked) / gain(sorted(grades.values(), reverse=True)))
    for each in result.slices[0].slices:
        mine = values[str(each.group)]
        assert each.examples == len(mine)
        assert each.metrics["ndcg@10"] == pytest.approx(sum(mine) / len(mine), abs=1e-9)
        draw = random.Random(0)
        means = sorted(sum(draw.choices(mine, k=len(mine))) / len(mine) for _ in range(4000))
        ends = each.intervals["ndcg@10"]
        assert ends is not None
        assert ends == pytest.approx((means[100], means[3900]), abs=0.012)  # ours is widened as Student's quantiles are
