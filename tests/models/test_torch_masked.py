"""The semantic halo of small real masked language models against the plain full pass, in every family."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from calipers import models
from calipers.core import Halo, InferenceError, ModelError, ShowsHalo
from calipers.models import ModelOptions, torch_masked

torch = pytest.importorskip("torch")

from transformers import AutoModelForMaskedLM, AutoTokenizer  # noqa: E402

from tests.support.masked_models import FAMILIES, make_model  # noqa: E402

TEXTS = ["the old dog runs", "cats", "slow readers sleeping in the garden"]


@pytest.fixture(scope="module")
def family(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    made: dict[str, Path] = {}

    def get(name: str) -> Path:
        if name not in made:
            made[name] = make_model(name, tmp_path_factory.mktemp(name))
        return made[name]

    return get


def load(folder: Path) -> Any:
    return models.load(models.find(f"torch:{folder}"), ModelOptions(), "fill-mask")


def full_pass(trunk: Path, head: Path, texts: Sequence[str], k: int) -> list[list[tuple[str, float]]]:
    """Hidden states one text at a time, their mean, the whole head on it, and a sort."""
    tokenizer = AutoTokenizer.from_pretrained(trunk)
    model = AutoModelForMaskedLM.from_pretrained(head).eval()
    states = AutoModelForMaskedLM.from_pretrained(trunk).eval().base_model
    pooled: list[Any] = []

    def put(module: Any, arguments: Any, output: Any) -> Any:
        output.last_hidden_state = pooled[-1]
        return output

    model.base_model.register_forward_hook(put)
    found = []
    for text in texts:
        inputs = tokenizer(text, return_tensors="pt", return_special_tokens_mask=True)
        own = inputs.pop("special_tokens_mask")[0] == 0
        inputs.pop("token_type_ids", None)
        with torch.no_grad():
            pooled.append(states(**inputs).last_hidden_state[0][own].mean(0)[None, None])
            scores = model(**inputs).logits[0, 0].log_softmax(-1)[: len(tokenizer)]
        scores[tokenizer.all_special_ids] = -np.inf
        top = scores.topk(k)
        tokens = tokenizer.convert_ids_to_tokens(top.indices.tolist())
        found.append(list(zip(tokens, top.values.tolist(), strict=True)))
    return found


def assert_same(halos: Sequence[Halo], trunk: Path, head: Path) -> None:
    for halo, expected in zip(halos, full_pass(trunk, head, TEXTS, 5), strict=True):
        assert halo.tokens == tuple(token for token, _ in expected)
        np.testing.assert_allclose(halo.log_probs, [score for _, score in expected], atol=1e-4)


@pytest.mark.parametrize("name", list(FAMILIES))
def test_a_halo_equals_the_full_pass(family: Callable[[str], Path], name: str) -> None:
    folder = family(name)
    assert_same(load(folder).top_tokens(TEXTS, 5), folder, folder)


def test_echoes_are_the_tokens_of_the_text(family: Callable[[str], Path]) -> None:
    model = load(family("bert"))
    assert isinstance(model, ShowsHalo)
    for text, halo in zip(TEXTS, model.top_tokens(TEXTS, 39), strict=True):
        own = {"".join(token.split("##")) for token in AutoTokenizer.from_pretrained(family("bert")).tokenize(text)}
        assert {token.removeprefix("##") for token, echo in zip(halo.tokens, halo.echoes, strict=True) if echo} == own
        assert not {"[PAD]", "[CLS]", "[MASK]"} & set(halo.tokens)
        assert sum(np.exp(halo.log_probs)) <= 1 + 1e-5


def test_a_text_without_tokens_has_no_halo_and_the_hook_is_taken_off(family: Callable[[str], Path]) -> None:
    model = load(family("bert"))
    hooks = dict(model.network.model.base_model._forward_hooks)
    before = model.top_tokens(["cats"], 3)
    assert model.top_tokens(["", "cats"], 3) == [Halo((), (), ()), *before]
    assert model.top_tokens([], 3) == []
    assert model.network.model.base_model._forward_hooks == hooks


def test_a_head_that_mixes_positions_is_refused(family: Callable[[str], Path]) -> None:
    model = load(family("bert"))
    with pytest.raises(InferenceError, match="mixes positions"):
        replace(model, forward=model.network.full).top_tokens(TEXTS)


class TestGraft:
    def graft(self, trunk: Path, head: Path) -> torch_masked.TorchMaskedLM:
        return torch_masked.graft(models.find(f"torch:{trunk}"), models.find(f"torch:{head}"), ModelOptions())

    def test_states_of_one_model_under_the_head_of_another(self, family: Callable[[str], Path], tmp_path: Path) -> None:
        other = make_model("bert", tmp_path / "other", hidden_act="relu")
        with torch.no_grad():
            trained = AutoModelForMaskedLM.from_pretrained(other)
            for parameter in trained.parameters():
                parameter.mul_(1.1)
            trained.base_model.save_pretrained(other)  # an encoder: its own head is gone
        with pytest.raises(ModelError, match="do not make a masked language model"):
            load(other)
        grafted = self.graft(other, family("bert"))
        assert grafted.info.settings["mlm_head"] == str(family("bert"))
        assert grafted.info.model_id == "other"
        assert_same(grafted.top_tokens(TEXTS, 5), _with_head(other, family("bert"), tmp_path), family("bert"))

    def test_another_width_is_refused(self, family: Callable[[str], Path], tmp_path: Path) -> None:
        wide = make_model("bert", tmp_path, hidden_size=48)
        with pytest.raises(ModelError, match="reads 32 numbers a token"):
            self.graft(wide, family("bert"))

    def test_another_vocabulary_is_refused(self, family: Callable[[str], Path], tmp_path: Path) -> None:
        shutil.copytree(family("bert"), tmp_path / "own")
        tokenizer = (tmp_path / "own" / "tokenizer.json").read_text(encoding="utf-8")
        (tmp_path / "own" / "tokenizer.json").write_text(tokenizer.replace('"garden"', '"meadow"'), encoding="utf-8")
        with pytest.raises(ModelError, match="vocabularies differ"):
            self.graft(tmp_path / "own", family("bert"))


def _with_head(trunk: Path, head: Path, folder: Path) -> Path:
    """A folder for the plain pass: only the states of it are read."""
    model = AutoModelForMaskedLM.from_pretrained(head, hidden_act="relu")
    from transformers import AutoModel

    setattr(model, model.base_model_prefix, AutoModel.from_pretrained(trunk))
    model.config.tie_word_embeddings = False
    model.save_pretrained(folder / "joined")
    AutoTokenizer.from_pretrained(trunk).save_pretrained(folder / "joined")
    return folder / "joined"
