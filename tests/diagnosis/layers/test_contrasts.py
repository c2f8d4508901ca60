"""The contrast layer: accuracies against plain cosines with a real model, and models that are made to fail."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from calipers import models
from calipers.core import Figure, ModelInfo, RequestError
from calipers.core.figures import read_figures, read_named
from calipers.diagnosis import api
from calipers.diagnosis.options import DiagnosisOptions
from calipers.runs.embedding import CorpusInputs
from calipers.shop import Extractor
from calipers.shop import sample as shop
from calipers.shop.contrasts import make_contrasts
from tests.support.samples import write_jsonl

TITLES = [
    f"{brand} {colour} mug {size} ml case for {thing}"
    for brand in ("Bramwyn", "Vestrilo", "Oruvi")
    for colour in ("red", "green", "blue")
    for size, thing in ((250, "lamp"), (400, "phone"))
]


class Bag:
    """A bag of words: the order of words and the word "not" change nothing."""

    info = ModelInfo("test", "bag", None, "cpu", "none")

    def encode(self, texts: Sequence[str], **_: object) -> Any:
        table = np.zeros((len(texts), 64), np.float32)
        for row, text in enumerate(texts):
            for word in text.lower().split():
                table[row, sum(map(ord, word)) % 64] += word not in ("not", "without")
        return table


def write(folder: Path, titles: Sequence[str]) -> CorpusInputs:
    rows = [{"_id": f"p{i}", "title": title, "text": "", "brand": title.split()[0]} for i, title in enumerate(titles)]
    write_jsonl(folder / "corpus.jsonl", rows)
    return CorpusInputs(corpus=str(folder / "corpus.jsonl"))


def run(model: Any, inputs: CorpusInputs, **options: Any) -> Any:
    request = DiagnosisOptions(layers=("contrasts",), layer_options=options)
    (finding,) = api.diagnose(model, inputs, options=request).findings
    assert finding.result is not None
    return finding.result.outcomes


def figures(outcomes: Any) -> dict[str, Figure]:
    return {figure.name: figure for figure in read_figures(outcomes)}


def test_a_bag_of_words_reads_attributes_and_neither_roles_nor_negation(tmp_path: Path) -> None:
    outcomes = run(Bag(), write(tmp_path, TITLES))
    known = figures(outcomes)
    assert known["contrast/colour"].value == known["contrast/brand"].value == known["contrast/number"].value == 1
    assert known["contrast/role"].value == 0.5  # both are one bag
    assert known["contrast/negation"].value == 0  # it is drawn to what it should avoid
    for name in ("role", "negation"):
        assert known[f"contrast/{name}"].warning
    assert known["contrast/number_respelled"].reason == (
        "no amount of a title is written in another way elsewhere in the corpus"
    )
    notes = [named.note for named in read_named(outcomes) if named.figure == "contrast/role"]
    assert all("is no closer than" in note for note in notes)
    assert len(notes) == 10


def test_few_items_do_not_warn(tmp_path: Path) -> None:
    known = figures(run(Bag(), write(tmp_path, TITLES), contrasts=4))
    assert (known["contrast/negation"].value, known["contrast/negation"].count) == (0, 4)
    assert known["contrast/negation"].warning is None


def test_accuracies_equal_plain_cosines(tmp_path: Path, model: Callable[[str], Path]) -> None:
    folder = shop.write(tmp_path / "shop")
    outcomes = run(str(model("potion-base-4m-int8")), CorpusInputs(dataset=str(folder)), contrasts=20)
    made = shop.make()
    brands = [str(p.row["brand"]) for p in made.products]
    titles = [str(p.row["title"]) for p in made.products]
    items = make_contrasts(Extractor.from_files(brands=brands), titles, most=20, seed=42)
    assert outcomes.texts["query"] == tuple(item.query for item in items)
    encoder: Any = models.load(models.find(str(model("potion-base-4m-int8"))), models.ModelOptions(), "encode")

    def unit(texts: list[str]) -> Any:
        rows = encoder.encode(texts).astype(np.float64)
        return rows / np.linalg.norm(rows, axis=1, keepdims=True)

    query, right, wrong = (unit([getattr(item, side) for item in items]) for side in ("query", "right", "wrong"))
    apart = (query * right).sum(axis=1) - (query * wrong).sum(axis=1)
    expected = np.where(np.abs(apart) < 1e-6, 0.5, apart > 0)
    for name, column in outcomes.columns.items():
        mine = np.array([f"contrast/{item.kind}" == name for item in items])
        finite = mine & np.isfinite(apart)
        np.testing.assert_array_equal(column[finite], expected[finite], err_msg=name)
        assert np.isnan(column[~mine]).all()
        assert figures(outcomes)[name].value == pytest.approx(expected[finite].mean())


def test_titles_without_anything_to_exchange_say_what_is_missing(tmp_path: Path) -> None:
    inputs = replace(write(tmp_path, TITLES), corpus=None)
    write_jsonl(tmp_path / "plain.jsonl", [{"_id": str(i), "text": f"thought number {i}"} for i in "abcde"])
    with pytest.raises(RequestError, match="needs titles that state a colour"):
        run(Bag(), replace(inputs, corpus=str(tmp_path / "plain.jsonl")))
