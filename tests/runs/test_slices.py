"""Metrics by group: what a name means, which examples are of which group, and how a group is measured."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from calipers.core import DataSource, Outcomes, RequestError, Result
from calipers.core.slices import Slice, Slices
from calipers.metrics.means import mean_statistic
from calipers.rendering.document import to_json
from calipers.rendering.markdown import results_markdown
from calipers.runs import catalogue, slices
from calipers.runs.api import evaluate
from calipers.runs.store import Store
from calipers.shop import sample
from tests.support.samples import write_jsonl


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sample shop; queries have a locale for all but five, how often they are made, and a constant."""
    folder = sample.write(tmp_path_factory.mktemp("shop"))
    rows = [json.loads(line) for line in (folder / "queries.jsonl").read_text(encoding="utf-8").splitlines()]
    for number, row in enumerate(rows):
        row |= {"locale": "en" if row["text"].isascii() else "ja", "count": number, "all": "one", "number": number}
        if number < 5:
            row["locale"] = ["", None, " "][number % 3]
    write_jsonl(folder / "queries.jsonl", rows)
    return folder


def run(shop: Path, *group_by: str, **more: Any) -> Result:
    return evaluate("bm25", task="retrieval", dataset=str(shop), resamples=200, group_by=group_by, **more)


def groups(made: Slices) -> dict[str | None, int]:
    return {each.group: each.examples for each in made.slices}


def test_a_group_of_all_examples_has_the_numbers_of_the_whole(shop: Path) -> None:
    result = run(shop, "all")
    (only,) = result.slices[0].slices
    assert (only.group, only.examples) == ("one", 200)
    assert only.metrics == result.metrics
    assert only.intervals == result.intervals


def test_languages_against_a_plain_loop(shop: Path) -> None:
    result = run(shop, "language")
    made = result.slices[0]
    assert made.about == "column 'locale'"
    locale = {
        row["_id"]: (row["locale"] or "").strip() or None
        for row in map(json.loads, (shop / "queries.jsonl").read_text(encoding="utf-8").splitlines())
    }
    values = dict(zip(result.outcomes.ids, result.outcomes.columns["ndcg@10"], strict=True))
    for each in made.slices:
        mine = [values[id] for id, label in locale.items() if label == each.group]
        assert each.examples == len(mine)
        assert each.metrics["ndcg@10"] == pytest.approx(sum(mine) / len(mine), abs=1e-12)
        low, high = each.intervals["ndcg@10"] or (1, 0)
        assert low < each.metrics["ndcg@10"] < high
    assert [each.group for each in made.slices][-1] is None
    assert sum(groups(made).values()) == 200


def test_without_a_column_the_script_tells_the_language(tmp_path: Path) -> None:
    folder = sample.write(tmp_path)
    made = run(folder, "language").slices[0]
    assert groups(made) == {"Japanese": 100, "Latin letters": 100}


def test_thirds_are_in_the_order_of_their_values(shop: Path) -> None:
    heads, numbers, lengths = run(shop, "head-tail", "number", "length").slices
    assert [each.group for each in heads.slices] == ["tail", "middle", "head"]
    assert [each.group for each in numbers.slices] == ["up to 66", "above 66 to 133", "above 133"]
    assert str(next(iter(groups(lengths)))).startswith("up to ")
    for made in (heads, numbers, lengths):
        assert sum(groups(made).values()) == 200


def test_queries_take_the_column_of_their_documents(shop: Path) -> None:
    made = run(shop, "brand").slices[0]
    assert made.about == "column 'brand' of the most relevant documents"
    assert len(made.slices) == slices.MOST
    assert made.notes[0].startswith(f"brand has 47 groups: the {slices.MOST} largest are shown")


def test_a_group_of_one_has_a_value_and_no_interval(shop: Path) -> None:
    made = run(shop, "_id").slices[0]
    first = made.slices[0]
    assert (first.examples, first.intervals["ndcg@10"], first.reason) == (1, None, "no interval of 1 query")


def test_a_column_that_does_not_exist_lists_those_that_do(shop: Path) -> None:
    with pytest.raises(RequestError, match=r"no column 'nope' in .*_id, text, locale.*title.*language, length"):
        run(shop, "nope")
    with pytest.raises(RequestError, match="category needs a column category or"):
        run(shop, "category")


def test_groups_are_no_part_of_a_stored_run_or_its_key(shop: Path, tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    first = run(shop, "language", store=store)
    assert store.load(first.run_id).slices == ()
    again = run(shop, "length", store=store, reuse=True)
    assert again.run_id == first.run_id
    assert [made.by for made in again.slices] == ["length"]
    assert "reused_seconds" in again.timing


def test_rows_of_a_table_have_their_own_columns(tmp_path: Path) -> None:
    rows = [
        {"sentence1": f"a {i}", "sentence2": f"a {i} b", "score": i % 5, "kind": ["x", 2, 2.0, True][i % 4]}
        for i in range(40)
    ]
    pairs = write_jsonl(tmp_path / "pairs.jsonl", rows)
    vectors = np.random.default_rng(0).normal(size=(80, 4)).astype(np.float32)
    made = evaluate(_Model(vectors), dataset=str(pairs), resamples=50, group_by=["kind"]).slices[0]
    assert groups(made) == {"2": 20, "true": 10, "x": 10}


class _Model:
    def __init__(self, vectors: Any) -> None:
        from calipers.core import ModelInfo

        self.info, self.vectors = ModelInfo("test", "m", None, "cpu", ""), vectors

    def encode(self, texts: Any, **_: Any) -> Any:
        return np.stack([self.vectors[hash(text) % len(self.vectors)] for text in texts])


def test_an_undefined_metric_says_so() -> None:
    outcomes = Outcomes(("a", "b", "c"), {"x": np.array([np.nan, 1.0, 2.0])}, texts={"text": ("é", "ю", "水")})
    from calipers.core import Metric
    from calipers.runs.record import Resampling

    metric = Metric("mean", "", lambda c: mean_statistic(c["x"]))
    labels = slices.find(["language"], _gone)
    (made,) = slices.measure_slices([metric], "text", outcomes, labels, Resampling())
    assert {each.group: each.reason for each in made.slices} == {
        "Chinese": "no interval of 1 text",
        "Cyrillic letters": "no interval of 1 text",
        "Latin letters": "mean is not defined on 1 text",
    }


def _gone() -> Any:
    return slices.columns_of(catalogue.find("retrieval"), DataSource("./nowhere"), ())


def test_data_that_are_gone_still_have_the_groups_of_their_texts() -> None:
    assert [labels.about for labels in slices.find(["language", "length"], _gone)] == [
        "script of the text",
        "characters of the text",
    ]
    with pytest.raises(RequestError, match="nowhere"):
        slices.find(["brand"], _gone)


def test_labels_of_other_data_are_refused(shop: Path) -> None:
    labels = slices.find(
        ["locale"], lambda: slices.columns_of(catalogue.find("retrieval"), DataSource(str(shop), split="test"), ())
    )
    with pytest.raises(RequestError, match="no query has a value in the column 'locale'"):
        labels[0].group(Outcomes(("other",), {}), "query")


def test_text_from_data_is_harmless_in_every_format(shop: Path) -> None:
    result = run(shop)
    bad = "<script>|`x`\x1b[2J\n# title"
    made = Slices(bad, bad, (Slice(bad, 3, result.metrics, result.intervals, None),), "ndcg@10", (bad,))
    task = catalogue.find("retrieval")
    markdown = results_markdown([(replace(result, slices=(made,)), task)])
    assert "\n# title" not in markdown
    assert "\x1b" not in markdown
    assert "``" in next(line for line in markdown.splitlines() if line.startswith("| `` <script>\\|"))
    document = json.loads(to_json(replace(result, slices=(made,)).to_dict()))
    assert document["slices"][0]["slices"][0]["group"] == bad
