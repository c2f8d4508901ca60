"""What is possible for a failure rate: the floor and random results among products of the requested type."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from calipers import cli
from calipers.core import SILENT, Figure, ModelInfo, RequestError
from calipers.core.figures import read_figures
from calipers.diagnosis import api
from calipers.diagnosis.options import DiagnosisOptions
from calipers.runs.embedding import CorpusInputs
from tests.support.samples import write_jsonl

# 12 bottles, of which 3 are red and 6 hold 500 ml, then 6 red bags of 20 litres.
BOTTLES = [
    {"title": f"Bottle {i}", "category": "Home > Bottles", "colour": "red" if i % 4 == 0 else "blue", "size": size}
    for i in range(12)
    for size in ["500 ml" if i % 2 else "1 L"]
]
BAGS = [{"title": f"Bag {i}", "category": "Bags", "colour": "red", "size": "20 L"} for i in range(6)]
SHOP = BOTTLES + BAGS
RED = [f"red bottle {word}" for word in ("one", "two", "three", "four", "five", "six")]


class InOrder:
    """An encoder for tests: every query finds the documents in the order of these titles."""

    info = ModelInfo("test", "in order", None, "cpu", "none")

    def __init__(self, titles: Sequence[str]) -> None:
        self.titles = list(titles)

    def encode(self, texts: Sequence[str], *, prompt: str | None = None, progress: Any = SILENT) -> Any:
        places = [self.titles.index(text) + 1 if text in self.titles else 0 for text in texts]
        turns = np.array(places) * 0.05
        return np.stack([np.cos(turns), np.sin(turns), np.arange(len(texts)) * 1e-4], axis=1).astype(np.float32)


def write(folder: Path, rows: Sequence[Mapping[str, Any]], queries: Sequence[str]) -> CorpusInputs:
    write_jsonl(folder / "corpus.jsonl", [{"_id": f"p{i}", "text": "", **row} for i, row in enumerate(rows)])
    write_jsonl(folder / "queries.jsonl", [{"_id": f"q{i}", "text": text} for i, text in enumerate(queries)])
    return CorpusInputs(corpus=str(folder / "corpus.jsonl"), queries=str(folder / "queries.jsonl"))


def judge(folder: Path, inputs: CorpusInputs, queries: int, grades: Mapping[str, int], **others: Any) -> CorpusInputs:
    lines = [f"q{q} 0 {id} {grade}" for q in range(queries) for id, grade in grades.items()]
    (folder / "qrels.txt").write_text("\n".join(lines) + "\n")
    return CorpusInputs(corpus=inputs.corpus, queries=inputs.queries, qrels=str(folder / "qrels.txt"), **others)


def figures(inputs: CorpusInputs, shown: Sequence[Mapping[str, Any]], **options: Any) -> dict[str, Figure]:
    model = InOrder([row["title"] for row in shown])
    request = DiagnosisOptions(layers=("attributes",), layer_options=options)
    (finding,) = api.diagnose(model, inputs, options=request).findings
    assert finding.result is not None
    return {figure.name: figure for figure in read_figures(finding.result.outcomes)}


def without(rows: Sequence[Mapping[str, Any]], column: str) -> list[dict[str, Any]]:
    return [{key: value for key, value in row.items() if key != column} for row in rows]


def test_a_floor_is_among_the_products_of_the_type(tmp_path: Path) -> None:
    found = figures(write(tmp_path, SHOP, RED), SHOP)
    assert found["colour_failure_floor"].value == pytest.approx(
        0.7
    )  # 3 of the 12 bottles are red; red bags do not count
    assert found["colour_failure_random"].value == pytest.approx(9 / 12)
    assert found["colour_failure_floor"].count == 6
    assert found["colour_failure_floor"].higher_is_better is None
    assert "random (0.75) than to the best possible (0.70)" in str(found["colour_explicit_failure_rate"].level)


def test_a_search_at_its_floor_does_not_warn_though_most_results_fail(tmp_path: Path) -> None:
    inputs = write(tmp_path, SHOP, RED)
    best = sorted(BOTTLES, key=lambda row: row["colour"] != "red")
    found = figures(inputs, [*best, *BAGS])
    assert (found["colour_explicit_failure_rate"].value, found["colour_explicit_failure_rate"].warning) == (0.7, None)
    worst = sorted(BOTTLES, key=lambda row: row["colour"] == "red")
    blind = figures(inputs, [*worst, *BAGS])["colour_explicit_failure_rate"]
    assert blind.value == 0.9
    assert "results often contradict" in str(blind.warning)
    assert "above 0.5" not in str(blind.warning)


def test_a_type_is_the_one_of_the_products_judged_relevant(tmp_path: Path) -> None:
    vessels = [f"red vessel {i}" for i in range(6)]
    inputs = write(tmp_path, SHOP, vessels)
    assert figures(inputs, SHOP)["colour_failure_floor"].value is None
    found = figures(judge(tmp_path, inputs, 6, {"p0": 1, "p4": 1, "p12": 1}), SHOP)
    assert found["colour_failure_floor"].value == pytest.approx(0.7)


def test_another_type_is_a_type_failure_and_its_size_contradicts_nothing(tmp_path: Path) -> None:
    inputs = write(tmp_path, SHOP, ["bottle 500 ml"])
    found = figures(inputs, [*BAGS, *BOTTLES])
    assert found["type_failure_rate"].value == 0.6
    assert found["dimension_explicit_failure_rate"].value == 0.2  # of four bottles two hold a litre
    assert (found["dimension_failure_floor"].value, found["dimension_failure_random"].value) == (0.4, 0.5)
    plain = figures(write(tmp_path, without(SHOP, "category"), ["bottle 500 ml"]), [*BAGS, *BOTTLES])
    assert plain["dimension_explicit_failure_rate"].value == 0.8
    assert "no column names the type" in str(plain["type_failure_rate"].reason)


def test_without_a_column_judged_products_stand_for_the_type(tmp_path: Path) -> None:
    inputs = write(tmp_path, without(SHOP, "category"), RED)
    grades = {f"p{i}": int(i % 4 == 0) for i in range(8)}  # two are red
    found = figures(judge(tmp_path, inputs, 6, grades), SHOP)
    assert found["colour_failure_floor"].value == pytest.approx(6 / 8)  # of as many results as were judged
    assert found["colour_failure_random"].value == pytest.approx(6 / 8)


def test_a_type_with_no_more_products_than_results_leaves_no_choice_and_no_warning(tmp_path: Path) -> None:
    """The ESCI sample judges one product a query: "nearer to random (0.22) than to the best possible (0.22)"."""
    inputs = write(tmp_path, without(SHOP, "category"), RED)
    found = figures(judge(tmp_path, inputs, 6, {"p0": 1, "p1": 0}), SHOP)
    rate = found["colour_explicit_failure_rate"]
    assert (found["colour_failure_floor"].value, found["colour_failure_random"].value) == (0.5, 0.5)
    assert rate.value is not None
    assert rate.value > 0.5
    assert rate.warning is None
    assert rate.level == "never: no more products of the type than results, and 50% of them must fail"


def test_judgements_of_right_products_alone_give_no_floor_and_the_report_says_so(tmp_path: Path) -> None:
    inputs = judge(tmp_path, write(tmp_path, without(SHOP, "category"), RED), 6, {"p0": 1, "p4": 1})
    found = figures(inputs, SHOP)
    assert found["colour_failure_floor"].value is None
    assert "no product is judged as wrong" in str(found["colour_failure_floor"].reason)
    rate = found["colour_explicit_failure_rate"]
    assert "never, for there is no floor" in str(rate.level)
    assert rate.warning is None


def test_a_complement_of_esci_is_of_another_type(tmp_path: Path) -> None:
    inputs = write(tmp_path, without(SHOP, "category"), RED)
    grades = {**{f"p{i}": 3 if i % 4 == 0 else 0 for i in range(12)}, **{f"p{i}": 1 for i in range(12, 18)}}
    found = figures(judge(tmp_path, inputs, 6, grades), [*BAGS, *BOTTLES], grades="esci")
    assert found["type_failure_rate"].value == 0.6
    assert found["colour_failure_floor"].value == pytest.approx(0.7)


def test_the_user_names_the_column_of_the_type(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [{**row, "category": "everything", "attributes": {"shelf": row["category"]}} for row in SHOP]
    inputs = write(tmp_path, rows, ["red bottle"])
    named = CorpusInputs(corpus=inputs.corpus, queries=inputs.queries, columns=("type=shelf",))
    assert figures(named, SHOP)["colour_failure_floor"].value == pytest.approx(0.7)
    line = ["diagnose", "bm25", "--corpus", str(inputs.corpus), "--queries", str(inputs.queries), "--no-store"]
    assert cli.run([*line, "--column", "type=shlef"]) == 2
    assert "no product has a column shlef: fix --column" in capsys.readouterr().err
    assert cli.run([*line, "--column", "kind=shelf"]) == 2
    assert "--column must be KEY=NAME, KEY one of type, colour" in capsys.readouterr().err


def test_a_column_without_the_layer_is_refused(tmp_path: Path) -> None:
    inputs = write(tmp_path, SHOP, RED)
    named = CorpusInputs(corpus=inputs.corpus, queries=inputs.queries, columns=("type=category",))
    with pytest.raises(RequestError, match="is for the layer attributes"):
        api.diagnose(InOrder([]), named, options=DiagnosisOptions(layers=("geometry",)))


def test_a_large_type_is_read_in_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [
        {"title": f"Bottle {i}", "category": "Bottle", "colour": "red" if i % 4 == 0 else "blue"} for i in range(400)
    ]
    inputs = write(tmp_path, rows, RED)
    monkeypatch.setattr("calipers.diagnosis.layers.product_types._PRODUCTS", 200)
    found = figures(inputs, rows)
    assert found["colour_failure_floor"].value == 0
    assert found["colour_failure_random"].value == pytest.approx(0.75, abs=0.08)
