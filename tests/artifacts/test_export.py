"""Heads and pooled graphs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from calipers.artifacts.export import head_of
from calipers.core import CalipersError
from tests.support import build_models as small


def test_architectures_without_a_head_of_ours_are_named() -> None:
    with pytest.raises(CalipersError, match="T5ForConditionalGeneration cannot be built"):
        head_of("T5ForConditionalGeneration")


def test_a_pooled_graph_of_fixed_shape_gives_the_encoders_vectors(
    tiny_bert: Path,
    few_texts: Path,
    tmp_path: Path,
) -> None:
    from calipers import models

    out = tmp_path / "out"
    small.run(
        tiny_bert, out, "fp32", few_texts, task="sentence-similarity", static_shape=(2, 16), pooled=True, optimize=False
    )
    vectors = [
        models.load(models.find(f"{kind}:{place}"), models.ModelOptions()).encode(list(small.TEXTS))
        for kind, place in (("torch", tiny_bert), ("onnx", out))
    ]
    np.testing.assert_allclose(*vectors, atol=1e-5)
