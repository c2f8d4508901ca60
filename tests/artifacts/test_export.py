"""Heads and pooled graphs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from calipers.artifacts import export
from calipers.artifacts.export import head_of
from calipers.core import CalipersError
from calipers.models.layout import read_layout
from tests.support import build_models as small
from tests.support.tokenizer_settings import write_modules, write_tokenizer


def test_architectures_without_a_head_of_ours_are_named() -> None:
    with pytest.raises(CalipersError, match="T5ForConditionalGeneration cannot be built"):
        head_of("T5ForConditionalGeneration")


@pytest.mark.parametrize("pooling", ["mean", "weightedmean", "mean_sqrt_len_tokens"])
def test_a_pooled_graph_of_fixed_shape_gives_the_encoders_vectors(
    tiny_bert: Path,
    few_texts: Path,
    tmp_path: Path,
    pooling: str,
) -> None:
    from calipers import models

    out, pooled = tmp_path / "out", models.ModelOptions(pooling=pooling)
    options = {"task": "sentence-similarity", "static_shape": (2, 16), "pooled": True, "optimize": False}
    small.run(tiny_bert, out, "fp32", few_texts, model_options=pooled, **options)
    vectors = [
        models.load(models.find(f"{kind}:{place}"), chosen).encode(list(small.TEXTS))
        for kind, place, chosen in (("torch", tiny_bert, pooled), ("onnx", out, models.ModelOptions()))
    ]
    np.testing.assert_allclose(*vectors, atol=1e-5)


def test_settings_of_another_model_do_not_stay(tmp_path: Path) -> None:
    first, second, target = tmp_path / "first", tmp_path / "second", tmp_path / "out"
    for folder in (first, second, target):
        folder.mkdir()
    write_tokenizer(first, cased=False, added=[])
    pooling = {"pooling_mode_cls_token": True}
    write_modules(first, sentence={}, name="sentence_roberta_config.json", prompts={"q": "q: "}, pooling=pooling)
    write_tokenizer(second, cased=True, added=[])
    export.copy_settings(first, target)
    assert read_layout(target).pooling == "cls"
    assert (target / "sentence_roberta_config.json").exists()
    (target / "manifest.json").write_text("{}")
    export.copy_settings(second, target)
    assert sorted(p.name for p in target.iterdir() if p.is_file()) == [
        *("manifest.json", "tokenizer.json", "tokenizer_config.json"),
    ]
    assert read_layout(target).pooling is None
