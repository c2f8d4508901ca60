"""parity against servers that plain transformers run: a faithful one, eleven faults, and two at once."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

import calipers
from calipers import cli
from calipers.core import SILENT, Encoder, InvalidOutput, ModelInfo, Progress
from calipers.fidelity.records import Parity
from calipers.models import ModelOptions
from tests.support.endpoint import Reply
from tests.support.schemas import faults
from tests.support.served import LIMIT, Fault, make_encoder, served

FAULTS: dict[str, tuple[Fault, str, str]] = {
    "wrong pooling": (Fault(pooling="cls"), "pooling", "cls"),
    "no normalisation": (Fault(normalize=False), "normalize", "not normalised"),
    "missing prompt": (Fault(prompt=""), "prompt", "no prompt"),
    "cut at 128": (Fault(cut=128), "max_length", "128"),
    "EOS missing": (Fault(eos=False), "eos", "no [SEP]"),
    "lower-cased": (Fault(lower=True), "lower_case", "lower-cases texts"),
    "float16": (Fault(dtype=torch.float16), "dtype", "float16"),
    "half the dimensions": (Fault(size=16), "truncate_dim", "16"),
    "another order": (Fault(order=True), "order", "another order"),
    "batch-dependent": (Fault(batch=True), "batch", "other vectors"),
}
FURTHER: dict[str, tuple[Fault, str, str]] = {
    "bfloat16": (Fault(dtype=torch.bfloat16), "dtype", "bfloat16"),
    "cut at a length of its own": (Fault(cut=71), "max_length", "71"),
    "BOS missing": (Fault(bos=False), "bos", "no [CLS]"),
    "another prompt": (Fault(prompt="passage: "), "prompt", "document prompt"),
    "last token": (Fault(pooling="last"), "pooling", "last"),
    "the prompt twice": (Fault(prompt="query: query: "), "prompt", "query prompt 'query: ' twice"),
    "new lines as spaces": (Fault(lines=True), "whitespace", "new lines"),
    "compatible characters": (Fault(form="NFKC"), "unicode", "NFKC"),
    "accents removed": (Fault(form="accents"), "unicode", "removes accents"),
    "spaces joined": (Fault(strip=True), "whitespace", "one space"),
    "half the dimensions, not scaled": (Fault(size=16, normalize=False), "truncate_dim", "16"),
}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_encoder(tmp_path_factory.mktemp("model"))


@pytest.fixture(autouse=True)
def direct(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.delenv("GITHUB_STEP_SUMMARY", raising=False)


def compare(model: Path, fault: Fault, path: str = "/embed") -> Parity:
    with served(model, fault) as endpoint:
        return calipers.parity(str(model), endpoint.url + path)


@pytest.mark.parametrize("path", ["/embed", pytest.param("/v1", marks=pytest.mark.slow)])
def test_a_faithful_server_is_the_same(model: Path, path: str) -> None:
    parity = compare(model, Fault(), path)
    assert (parity.same, list(parity.differences)) == (True, [])
    assert parity.headline.startswith("The same: the smallest cosine of ")
    assert parity.cosine.smallest > 1 - 1e-9
    assert {f"language: {name}" for name in ("en", "de", "fr", "es", "ru", "zh", "ja", "ar")} <= set(parity.groups)
    assert {"length: short", "length: long", "special characters", "prompts", "batch size: 32"} <= set(parity.groups)


PATHS = ("/embed", "/v1")
TURNS = [(name, PATHS[i % 2]) for i, name in enumerate(FAULTS)]  # of the two protocols; the others are slow
OTHERS = [(name, PATHS[(i + 1) % 2]) for i, name in enumerate(FAULTS)] + [(name, "/embed") for name in FURTHER]


@pytest.mark.parametrize(("name", "path"), [*TURNS, *(pytest.param(*p, marks=pytest.mark.slow) for p in OTHERS)])
def test_a_fault_is_named(model: Path, name: str, path: str) -> None:
    fault, setting, other = {**FAULTS, **FURTHER}[name]
    parity = compare(model, fault, path)
    assert not parity.same
    assert [difference.setting for difference in parity.differences][:1] == [setting], parity.headline
    assert other in parity.differences[0].other
    assert parity.differences[0].restores > 1 - 1e-3  # type: ignore[operator]
    if name != "half the dimensions, not scaled":
        assert len(parity.differences) == 1


def test_another_model_is_named(model: Path, tmp_path: Path) -> None:
    other = make_encoder(tmp_path / "other", seed=1)
    with served(other) as endpoint:
        parity = calipers.parity(str(model), endpoint.url)
    (difference,) = parity.differences
    assert (difference.setting, difference.restores, parity.same) == ("model", None, False)
    assert "is another model" in parity.headline


@pytest.mark.parametrize(
    ("fault", "settings"),
    [
        (Fault(pooling="cls", normalize=False), {"pooling", "normalize"}),
        (Fault(prompt="", lower=True), {"prompt", "lower_case"}),
        *(
            pytest.param(*pair, marks=pytest.mark.slow)
            for pair in (
                (Fault(cut=128, pooling="max"), {"max_length", "pooling"}),
                (Fault(eos=False, prompt="passage: "), {"eos", "prompt"}),
                (Fault(dtype=torch.float16, eos=False), {"dtype", "eos"}),
                (Fault(dtype=torch.float16, prompt=""), {"dtype", "prompt"}),
                (Fault(order=True, cut=64), {"order", "max_length"}),
                (Fault(batch=True, pooling="cls"), {"batch", "pooling"}),
                (Fault(size=16, lower=True), {"truncate_dim", "lower_case"}),
                (Fault(bos=False, eos=False), {"bos", "eos"}),
                (Fault(normalize=False, cut=100), {"normalize", "max_length"}),
            )
        ),
    ],
)
def test_two_faults_at_once_are_both_named(model: Path, fault: Fault, settings: set[str]) -> None:
    parity = compare(model, fault)
    assert {difference.setting for difference in parity.differences} == settings, parity.headline
    assert not parity.same


def test_small_gaps_that_no_number_type_restores_are_no_number_type(model: Path) -> None:
    """Vectors stored in 8 bits are as far away as bfloat16, and bfloat16 does not come nearer to them."""
    parity = compare(model, Fault(steps=127))
    assert (parity.same, list(parity.differences)) == (False, [])
    assert "neither a setting nor a number type explains them" in parity.headline


def test_a_little_noise_is_named_as_such(model: Path) -> None:
    rng = np.random.default_rng(0)
    with served(model) as endpoint:
        endpoint.spoil = lambda texts, _: [(v + rng.normal(scale=1e-3, size=32)).tolist() for v in embed(model, texts)]
        parity = calipers.parity(str(model), endpoint.url)
    assert [difference.setting for difference in parity.differences] == ["repeat"], parity.headline


def embed(model: Path, texts: list[str]) -> np.ndarray:
    return np.array(Fault().embed(model, texts))


def test_what_no_setting_explains_is_said(model: Path) -> None:
    parity = calipers.parity(str(model), Noisy(calipers.load_model(str(model))))  # type: ignore[arg-type]
    assert (parity.same, list(parity.differences)) == (False, [])
    assert "No single setting explains it" in parity.headline


class Noisy:
    """A neighbour: the same weights, each vector moved by something that depends on the text alone."""

    def __init__(self, model: Encoder) -> None:
        self._model = model
        self.info: ModelInfo = model.info

    def encode(self, texts: list[str], *, prompt: str | None = None, progress: Progress = SILENT) -> np.ndarray:
        vectors = self._model.encode(texts, prompt=prompt)
        noise = [np.random.default_rng(len(text)).normal(scale=0.08, size=vectors.shape[1]) for text in texts]
        return np.asarray(vectors + np.array(noise), np.float32)


def test_the_missing_prompt_is_sent_to_prove_it(model: Path) -> None:
    parity = compare(model, Fault(prompt=""))
    sentence = "The endpoint does not add the query prompt 'query: '; with it the cosine is 1.0000."
    assert parity.differences[0].sentence == sentence
    assert parity.headline == f"Different: {sentence}"


def test_the_command_has_an_exit_code_json_and_markdown(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    summary = tmp_path / "summary.md"
    with served(model, Fault(pooling="max")) as endpoint:
        assert cli.run(["parity", str(model), endpoint.url, "--json", "--markdown", str(summary)]) == 1
    document = json.loads(capsys.readouterr().out)
    assert document["same"] is False
    assert {"smallest", "median", "texts", "groups"} == set(document["cosine"])
    assert faults(document, "parity") == []
    (difference,) = document["differences"]
    assert set(difference) == {"setting", "reference", "other", "restores", "sentence"}
    assert (difference["setting"], difference["reference"], difference["other"]) == ("pooling", "mean", "max")
    assert {"settings": {"pooling": "max"}} in [{"settings": tried["settings"]} for tried in document["tried"]]
    assert "## Different: " in summary.read_text(encoding="utf-8")


def test_the_command_prints_a_table_and_ends_with_0_for_the_same(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    texts = tmp_path / "texts.txt"
    texts.write_text("a red mug\nThe blue Mug\n" + "many words " * LIMIT + "\n", encoding="utf-8")
    with served(model) as endpoint:
        assert cli.run(["parity", str(model), endpoint.url, "--dataset", str(texts)]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("The same: the smallest cosine of 3 texts is 1.0000.")
    assert "length: long" in printed


def test_a_larger_tolerance_accepts_half_precision(model: Path) -> None:
    with served(model, Fault(dtype=torch.float16)) as endpoint:
        options = calipers.ParityOptions(tolerance=0.02)
        assert calipers.parity(str(model), endpoint.url, options=options).same


def test_a_prompt_of_the_reference_may_be_chosen(tmp_path: Path) -> None:
    model = make_encoder(tmp_path / "plain", prompt=None)
    with served(model, Fault(prompt="passage: ")) as endpoint:
        without = calipers.parity(str(model), endpoint.url)
        chosen = calipers.parity(str(model), endpoint.url, model_options=ModelOptions(prompt_name="document"))
    assert [(d.setting, d.reference) for d in without.differences] == [("prompt", "no prompt")]
    assert chosen.same


def test_texts_that_a_server_refuses_are_left_out_with_its_words(model: Path) -> None:
    with served(model) as endpoint:
        reply = endpoint.reply

        def refuse_long(path: str, body: dict[str, list[str]]) -> Reply:
            long = max(map(len, next(iter(body.values())))) > 600
            return Reply(413, b'{"error": "must have less than 200 tokens"}') if long else reply(path, body)

        endpoint.reply = refuse_long  # type: ignore[method-assign]
        parity = calipers.parity(str(model), endpoint.url)
    assert parity.same
    assert len(parity.refused) >= 3
    assert "texts were refused and are left out" in parity.notes[-1]
    assert "must have less than 200 tokens" in parity.notes[-1]


def test_dead_numbers_are_invalid(model: Path) -> None:
    with served(model) as endpoint:
        endpoint.spoil = lambda texts, _: [[float("nan")] * 32 for _ in texts]
        with pytest.raises(InvalidOutput, match="the other model gives NaN"):
            calipers.parity(str(model), endpoint.url)


def test_lengths_that_no_setting_gives_are_said_to_be_so(model: Path) -> None:
    encoder = calipers.load_model(str(model))
    parity = calipers.parity(str(model), Scaled(encoder))  # type: ignore[arg-type]
    (deviation,) = parity.differences
    assert (deviation.setting, deviation.other, deviation.restores) == ("normalize", "length 3", None)
    assert deviation.sentence.endswith("and no setting of it gives these lengths.")


class Scaled(Noisy):
    """The same vectors, three times as long."""

    def encode(self, texts: list[str], *, prompt: str | None = None, progress: Progress = SILENT) -> np.ndarray:
        return np.asarray(3 * self._model.encode(texts, prompt=prompt), np.float32)
