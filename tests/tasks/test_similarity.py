"""Pairs are read in parts, so that the vectors of a million of them are never held at once; no figure depends on it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from numpy.typing import NDArray

from calipers.core import SILENT, Dataset, DataSource, InvalidOutput, ModelInfo, Outcomes
from calipers.tasks import similarity
from calipers.tasks.sizes import SizeOptions

INFO = ModelInfo("memory", "numbers", "", "cpu", "", {})


class Numbers:
    """A text is the place of its vector. `most` is the largest number of texts that were requested at once."""

    info = INFO

    def __init__(self, vectors: NDArray[np.floating]) -> None:
        self.vectors, self.most = vectors, 0

    def encode(self, texts: Sequence[str], *, prompt: str | None = None, progress: object = SILENT) -> NDArray:
        self.most = max(self.most, len(texts))
        return self.vectors[[int(text) for text in texts]]


def run(vectors: NDArray[np.floating]) -> tuple[Outcomes, int]:
    pairs = len(vectors) // 2
    first, second = ([str(i) for i in range(start, start + pairs)] for start in (0, pairs))
    columns = {"input_column_1": first, "input_column_2": second, "score_column": list(range(pairs))}
    dataset = Dataset(tuple(f"r{i}" for i in range(pairs)), columns, DataSource("pairs"), "")
    model = Numbers(vectors)
    return similarity.run(model, dataset, SizeOptions(), SILENT), model.most


@pytest.mark.parametrize("scale", [np.float32(1), np.float64(1e250)])
def test_parts_give_what_the_whole_gives(scale: np.floating, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where each part of a model in memory would be divided by a power of two of its own."""
    vectors = (np.random.default_rng(0).normal(size=(80, 6)) * scale).astype(scale.dtype)
    vectors[:20] /= 1024
    vectors[5] = 0
    whole, _ = run(vectors)
    monkeypatch.setattr(similarity, "_PAIRS", 7)
    parts, most = run(vectors)
    assert most == 14
    assert parts.columns.keys() == whole.columns.keys()
    for name, values in whole.columns.items():
        np.testing.assert_array_equal(parts.columns[name], values)


def test_dead_rows_of_all_parts_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    vectors = np.random.default_rng(0).normal(size=(20, 3)).astype(np.float32)
    vectors[[1, 18]] = np.nan
    monkeypatch.setattr(similarity, "_PAIRS", 3)
    with pytest.raises(InvalidOutput, match=r"2 of 10 pairs") as caught:
        run(vectors)
    assert caught.value.rows == ("r1", "r8")
