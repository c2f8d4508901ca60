"""The layer attributes in `calipers diagnose`: columns, nested maps or titles, words of one's own, and all outputs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from calipers import cli
from calipers.core import DataError
from calipers.diagnosis import api, findings
from calipers.diagnosis import html as diagnosis_html
from calipers.diagnosis.options import DiagnosisOptions
from calipers.diagnosis.records import Diagnosis
from calipers.runs.embedding import CorpusInputs
from calipers.runs.store import Store
from calipers.shop import read_words
from calipers.shop.products import Noticing
from tests.support.diagnoses import Letters, ask
from tests.support.samples import write_jsonl

COLOURS = ("red", "blue", "green", "black")
BRANDS = ("Sony", "LG", "Acmeco", "HP")
SIZES = ("300 ml", "500 ml", "1 L", "0.3 L")
QUERIES = {"q0": "red mug", "q1": "sony mug", "q2": "mug 300 ml", "q3": "mug", "q4": "acmeco lapis mug"}
# Every query finds these four first, in this order, and then the others.
SHOWN = ("p0", "p1", "p2", "p3")


def in_columns(i: int) -> dict[str, Any]:
    return {"title": f"Mug {i}", "colour": COLOURS[i % 4], "brand": BRANDS[i % 4], "size": SIZES[i % 4]}


def in_a_map(i: int) -> dict[str, Any]:
    stated = [{"name": "Color", "value": COLOURS[i % 4]}, {"name": "Capacity", "value": SIZES[i % 4]}]
    return {"title": f"Mug {i}", "attributes": {"manufacturer": BRANDS[i % 4], "specs": stated}}


def in_the_title(i: int) -> dict[str, Any]:
    return {"title": f"{BRANDS[i % 4]} {COLOURS[i % 4]} mug {i}, {SIZES[i % 4]}"}


def write(folder: Path, make: Any) -> list[str]:
    """A corpus of 12 products, queries, and vectors by which every query finds the products in their order."""
    rows = [{"_id": f"p{i}", "text": f"Product {i}.", **make(i)} for i in range(12)]
    write_jsonl(folder / "corpus.jsonl", rows)
    write_jsonl(folder / "queries.jsonl", [{"_id": id, "text": text} for id, text in QUERIES.items()])
    turns = np.concatenate([np.linspace(0.1, 1.2, 12), np.zeros(len(QUERIES))])
    np.save(folder / "v.npy", np.stack([np.cos(turns), np.sin(turns), 0.01 * np.arange(17)], axis=1).astype(np.float32))
    texts = [f"{row['title']} {row['text']}" for row in rows] + list(QUERIES.values())
    (folder / "v.txt").write_text("\n".join(texts) + "\n", encoding="utf-8")
    files = ("--corpus", folder / "corpus.jsonl", "--queries", folder / "queries.jsonl")
    return [str(folder / "v.npy"), *map(str, files), "--k", "4", "--no-store"]


def layer_of(capsys: Any, *line: str) -> dict[str, Any]:
    code, found = ask(capsys, *line)
    assert code == 0
    layer: dict[str, Any] = found["layers"]["attributes"]
    return layer


@pytest.mark.parametrize("make", [in_columns, in_a_map, in_the_title])
def test_products_state_attributes_in_columns_in_a_map_or_in_the_title(make: Any, tmp_path: Path, capsys: Any) -> None:
    layer = layer_of(capsys, *write(tmp_path, make), "--layers", "attributes")
    rates = layer["metrics"]
    # q0 finds red, blue, green, black. q4 asks for no colour that is known.
    assert rates["colour_explicit_failure_rate"] == 3 / 4
    assert rates["colour_global_failure_rate"] == 3 / 20
    # q1 finds Sony, LG, Acmeco, HP. That Acmeco is a brand only a column can say: without one q4 asks for none.
    titles = make is in_the_title
    assert rates["brand_explicit_failure_rate"] == (2 / 4 if titles else 3 / 4)
    assert rates["brand_unknown_rate"] == (1 / 4 if titles else 0)
    assert rates["brand_global_failure_rate"] == (2 / 20 if titles else 6 / 20)
    assert rates["dimension_explicit_failure_rate"] == 2 / 4  # 0.3 L is 300 ml
    named = [(e["id"], e["text"]) for e in layer["examples"] if e["figure"] == "colour_explicit_failure_rate"]
    assert named[0] == ("q0 / p1", make(1)["title"])
    assert layer["scored"]["queries_stating_colour"] == 1


def test_every_figure_has_what_a_reader_needs(tmp_path: Path, capsys: Any) -> None:
    layer = layer_of(capsys, *write(tmp_path, in_columns), "--layers", "attributes")
    for figure in layer["figures"]:
        assert figure["meaning"].endswith(".")
        assert figure["unit"] == "query"
        if "floor" in figure["name"] or "random" in figure["name"] or figure["name"].startswith("type"):
            assert "no column names the type of a product (--column)" in figure["reason"]
            continue
        assert figure["higher_is_better"] is False
        assert figure["value"] is not None
        if figure["name"].endswith("explicit_failure_rate"):
            assert "there is no floor: no column names the type of a product" in figure["level"]
    assert layer["metrics"]["brand_explicit_failure_rate"] == 0.75
    assert layer["warnings"] == []  # two queries are no ground for one
    low, high = layer["intervals"]["brand_global_failure_rate"]
    assert 0 <= low < 6 / 20 < high <= 0.75
    assert layer["intervals"]["colour_explicit_failure_rate"] is None  # one query has no spread


def test_words_of_ones_own_are_added(tmp_path: Path, capsys: Any) -> None:
    line = write(tmp_path, in_columns)
    words = {"colours": {"lapis": {"families": ["blue"], "words": ["lapis"]}}, "columns": {"brand": ["house"]}}
    (tmp_path / "more.yaml").write_text(json.dumps(words))
    layer = layer_of(capsys, *line, "--layers", "attributes", "--attributes", str(tmp_path / "more.yaml"))
    assert layer["metrics"]["colour_explicit_failure_rate"] == 6 / 8  # lapis agrees with blue alone
    (tmp_path / "unit.yaml").write_text("kinds: {volume: {units: {gill: {factor: 0.1, names: [gill]}}}}")
    both = ("--attributes", str(tmp_path / "more.yaml"), "--attributes", str(tmp_path / "unit.yaml"))
    assert layer_of(capsys, *line, *both)["metrics"]["colour_explicit_failure_rate"] == 6 / 8


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("colours: {red: [", "is not valid YAML: line 2, column 1: "),
        ("colours: {red: {words: red}}", "colours → red → words: expected a list of words, found 'red'"),
        ("coulours: {}", "there is no key 'coulours'"),
        ("[" * 50_000, "a value is nested too deeply: its depth is more than the limit"),
        (None, "cannot be read: No such file"),
    ],
)
def test_a_bad_file_is_one_sentence_before_the_model_is_loaded(
    content: str | None, told: str, tmp_path: Path, capsys: Any
) -> None:
    line = write(tmp_path, in_columns)
    if content is not None:
        (tmp_path / "bad.yaml").write_text(content)
    (tmp_path / "v.npy").write_bytes(b"no vectors at all")
    assert cli.run(["diagnose", *line, "--attributes", str(tmp_path / "bad.yaml")]) == 2
    error = capsys.readouterr().err
    assert told in error
    assert error.count("\n") == 1
    assert "Traceback" not in error


def test_a_file_that_stands_for_too_much_is_refused_in_time(tmp_path: Path, capsys: Any) -> None:
    """Ten lists of ten aliases each: 10¹⁰ words, were they written out."""
    lists = [f"- &l{i + 1} [{', '.join([f'*l{i}'] * 10)}]" for i in range(10)]
    (tmp_path / "bomb.yaml").write_text("\n".join(["not_colours:", "- &l0 [x, x, x, x]", *lists]))
    line = write(tmp_path, in_columns)
    assert cli.run(["diagnose", *line, "--attributes", str(tmp_path / "bomb.yaml")]) == 2
    assert "the number of values, with aliases written out, is more than the limit" in capsys.readouterr().err


def test_words_without_the_layer_are_refused(tmp_path: Path, capsys: Any) -> None:
    line = write(tmp_path, in_columns)
    assert cli.run(["diagnose", *line, "--layers", "retrieval", "--attributes", "more.yaml"]) == 2
    assert "add it to --layers" in capsys.readouterr().err


def test_texts_that_are_no_products_go_without_unless_asked(tmp_path: Path, capsys: Any) -> None:
    line = write(tmp_path, lambda i: {"title": f"Paper {i} on red algae of Sony"})
    asked = [{"_id": f"q{i}", "text": f"do algae number {i} grow"} for i in range(11)] + [
        {"_id": "q", "text": "red sea"}
    ]
    write_jsonl(tmp_path / "queries.jsonl", asked)
    inputs = CorpusInputs(corpus=line[2], queries=line[4])
    found = {f.layer: f for f in api.diagnose(Letters(), inputs).findings}
    assert "only 8% of the queries state one" in (found["attributes"].reason or "")
    options = DiagnosisOptions(layers=("attributes",))
    asked_for = api.diagnose(Letters(), inputs, options=options).findings[0]
    assert asked_for.result is not None
    assert asked_for.result.outcomes.counts["queries_stating_colour"] == 1


def test_queries_that_state_nothing_leave_nothing_to_check(tmp_path: Path, capsys: Any) -> None:
    line = write(tmp_path, in_columns)
    write_jsonl(tmp_path / "queries.jsonl", [{"_id": "q3", "text": "mug"}])
    assert cli.run(["diagnose", *line, "--layers", "attributes"]) == 2
    assert "none states a colour, brand or size" in capsys.readouterr().err


def diagnose(folder: Path, store: Store | None = None, words: Mapping[str, Any] | None = None) -> Diagnosis:
    line = write(folder, in_columns)
    (folder / "words.yaml").write_text(json.dumps(words or {}))
    inputs = CorpusInputs(corpus=line[2], queries=line[4], attributes=(str(folder / "words.yaml"),))
    options = DiagnosisOptions(layers=("attributes",), layer_options={"k": 4}, resamples=200)
    return api.diagnose(line[0], inputs, baseline=line[0], options=options, store=store)


def test_text_and_page_show_rates_and_pairs(tmp_path: Path, capsys: Any) -> None:
    line = write(tmp_path, in_columns)
    assert cli.run(["diagnose", *line, "--layers", "attributes"]) == 0
    told = capsys.readouterr().out
    page = diagnosis_html.page(diagnose(tmp_path))
    for place in (told, page):
        assert "colour_explicit_failure_rate" in place
        assert "q0 / p1" in place
        assert "requested red, found blue" in place
    assert "How many results contradict what their query states" in page


def test_beside_a_baseline_rates_are_judged_in_points(tmp_path: Path) -> None:
    finding = diagnose(tmp_path).findings[0]
    compared = findings.comparisons_of(finding)["brand_explicit_failure_rate"]
    assert (compared.delta, compared.thresholds.passes, compared.thresholds.relative) == (0, 0.02, False)
    assert not finding.decides


def test_runs_with_other_words_or_other_columns_are_not_compared(tmp_path: Path, capsys: Any) -> None:
    store = Store(tmp_path / "store")
    for number, words in enumerate(({}, {"not_colours": ["red sea"]})):
        (tmp_path / str(number)).mkdir()
        diagnose(tmp_path / str(number), store, words)
    runs = [line.run_id for line in store.list()]
    assert cli.run(["compare", runs[0], runs[-1], "--store", str(tmp_path / "store")]) == 2
    assert "options differ: dictionary" in capsys.readouterr().err


def test_a_corpus_that_changes_under_the_reader_is_refused() -> None:
    noticing = Noticing(read_words())
    noticing.notice("p1", {"title": "Mug", "brand": "Acmeco"})
    products = noticing.finish(lambda: iter([("p1", {"title": "Acmeco mug"})]))
    assert products.read(["p1"])["p1"].attributes.brands == {"acmeco"}
    assert products.read([]) == {}
    with pytest.raises(DataError, match="has changed since it was read: p2"):
        products.read(["p1", "p2"])


def test_a_table_of_esci_pairs_has_its_columns_used(tmp_path: Path) -> None:
    rows = [f"1,red mug,p{i},Mug {i},{'E' if i % 4 == 0 else 'S'},{COLOURS[i % 4]},{BRANDS[i % 4]}" for i in range(12)]
    header = "query_id,query,product_id,product_title,esci_label,product_color,product_brand"
    (tmp_path / "esci.csv").write_text("\n".join([header, *rows, "2,acmeco mug,p0,Mug 0,S,red,Sony"]) + "\n")
    options = DiagnosisOptions(layers=("attributes",), layer_options={"k": 12})
    found = api.diagnose(Letters(), CorpusInputs(dataset=str(tmp_path / "esci.csv")), options=options)
    result = found.findings[0].result
    assert result is not None
    assert result.metrics["colour_explicit_failure_rate"] == 9 / 12
    assert result.metrics["brand_explicit_failure_rate"] == 9 / 12
