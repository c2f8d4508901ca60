"""A masked language model behind the hub's fill-mask protocol, served by transformers' own pipeline on this machine."""

from __future__ import annotations

import json
import re
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import transformers
from tokenizers import AddedToken, Tokenizer, decoders, pre_tokenizers, processors, trainers
from tokenizers import models as pieces

from calipers import cli, evaluate, models
from calipers.core import InferenceError, MaskedLM, MaskedTokens, ModelError
from calipers.models import ModelOptions, transport
from tests.support import endpoint as support
from tests.support.endpoint import Endpoint, Reply, serving
from tests.support.masked_models import make_model

TEXTS = [
    "the old dog sleeps in the garden.",
    "a child reads, slowly, on the street",
    "Readers and gardeners see the QUICK cats",
    "the snow \N{SNOWMAN} far",
]
_LOCK = threading.Lock()


@cache
def _pipeline(folder: Path) -> Any:
    return transformers.pipeline("fill-mask", model=str(folder), tokenizer=str(folder))


class MaskServer(Endpoint):
    """What huggingface-inference-toolkit does with `inputs` and `parameters`. `change(answer)` spoils its answers."""

    folder: Path
    takes_parameters = True

    def __init__(self) -> None:
        super().__init__()
        self.paths = ["/", "/predict"]
        self.change: Any = lambda answer: answer

    def reply(self, path: str, body: dict[str, Any]) -> Reply:
        if self.replies or self.every:
            return self.replies.pop(0) if self.replies else self.every or Reply()
        if path not in self.paths:
            return Reply(404, b"no such path")
        try:
            with _LOCK:
                given = body["parameters"] if self.takes_parameters else {}
                answer = _pipeline(self.folder)(body["inputs"], **given)
        except Exception as error:
            return Reply(400, json.dumps({"error": str(error)}).encode())
        return Reply(body=json.dumps(self.change(answer)).encode())


@contextmanager
def serving_masks(folder: Path) -> Iterator[MaskServer]:
    MaskServer.folder = folder
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(support, "Endpoint", MaskServer)
        with serving() as server:
            assert isinstance(server, MaskServer)
            yield server


@pytest.fixture(autouse=True)
def _surroundings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setenv("CALIPERS_STORE", str(tmp_path / "store"))
    monkeypatch.setattr(transport, "_FIRST_PAUSE", 0.001)


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Words and pieces of words."""
    return make_model("bert", tmp_path_factory.mktemp("bert"))


@pytest.fixture(scope="module")
def roberta(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Byte-level pieces, and a mask that takes the space before it."""
    folder = make_model("roberta", tmp_path_factory.mktemp("roberta"), vocab_size=400, bos_token_id=0, eos_token_id=2)
    tokenizer = Tokenizer(pieces.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    special: list[str | AddedToken] = ["<s>", "<pad>", "</s>", "<unk>", AddedToken("<mask>", lstrip=True, special=True)]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=330, special_tokens=special, initial_alphabet=alphabet)
    tokenizer.train_from_iterator(TEXTS, trainer)
    tokenizer.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0), add_prefix_space=False)
    names = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>"}
    mask = AddedToken("<mask>", lstrip=True, special=True)
    transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, model_max_length=64, mask_token=mask, **names
    ).save_pretrained(folder)
    return folder


def load(url: str, **options: Any) -> MaskedLM:
    return models.load(models.find(url), ModelOptions(**options), "fill-mask")  # type: ignore[return-value]


def write(path: Path, texts: list[str]) -> str:
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts), encoding="utf-8")
    return str(path)


def figures(model: str, data: str, *, pll: str, **options: Any) -> dict[str, float]:
    used = ModelOptions(**options)
    result = evaluate(
        model, task="fill-mask", dataset=data, task_options={"pll": pll}, model_options=used, resamples=20, timed=False
    )
    return dict(result.metrics)


# --- the same numbers as the files -------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["", "/", "/predict"])
def test_words_of_several_pieces_give_the_figures_of_the_files(bert: Path, tmp_path: Path, path: str) -> None:
    data = write(tmp_path / "texts.jsonl", TEXTS)
    with serving_masks(bert) as server:
        served = figures(server.url + path, data, pll="word-l2r", model_id=str(bert))
    assert served == pytest.approx(figures(str(bert), data, pll="word-l2r"), rel=1e-5)


def test_byte_level_pieces_are_hidden_one_by_one(roberta: Path, tmp_path: Path) -> None:
    data = write(tmp_path / "texts.jsonl", TEXTS[:3])
    with serving_masks(roberta) as server:
        served = figures(server.url, data, pll="original", model_id=str(roberta))
    assert served == pytest.approx(figures(str(roberta), data, pll="original"), rel=1e-5)


def test_whole_words_are_hidden_one_by_one(bert: Path, tmp_path: Path) -> None:
    data = write(tmp_path / "texts.jsonl", ["the dog runs.", "a cat and a child, far", "the dog runs."])
    with serving_masks(bert) as server:
        served = figures(server.url, data, pll="original", model_id=str(bert))
    assert served == pytest.approx(figures(str(bert), data, pll="original"), rel=1e-5)


def test_a_long_text_is_cut_where_the_files_cut_it(bert: Path, tmp_path: Path) -> None:
    data = write(tmp_path / "texts.jsonl", [" ".join(["the dog runs and a cat sleeps ."] * 5), "a dog"])
    with serving_masks(bert) as server:
        served = figures(server.url, data, pll="original", model_id=str(bert), max_length=16)
    assert served == pytest.approx(figures(str(bert), data, pll="original", max_length=16), rel=1e-5)


def test_a_text_may_hold_a_mask_of_its_own(bert: Path, tmp_path: Path) -> None:
    data = write(tmp_path / "texts.jsonl", ["the [MASK] runs and a dog", "a dog"])
    with serving_masks(bert) as server:
        served = figures(server.url, data, pll="original", model_id=str(bert))
    assert served == pytest.approx(figures(str(bert), data, pll="original"), rel=1e-5)


def test_compare_says_that_a_served_model_is_equivalent_to_its_files(
    bert: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names, verbs = ("dog", "cat", "child", "park", "house"), ("runs", "sees", "sleeps", "run", "sleep", "see")
    data = write(tmp_path / "texts.jsonl", [f"the {name} {verb}" for name in names for verb in verbs])
    with serving_masks(bert) as server:
        command = ["compare", str(bert), server.url, "--task", "fill-mask", "--dataset", data, "--model-id", str(bert)]
        code = cli.run([*command, "--threshold", "pseudo_perplexity=1%,2%", "--json"])
    printed = capsys.readouterr()
    assert code == 0, printed.err
    assert json.loads(printed.out)["label"] == "PASS"


# --- what cannot be asked ----------------------------------------------------------------------------------------


def test_a_piece_that_no_text_can_hide_is_refused_with_what_to_do(bert: Path, tmp_path: Path) -> None:
    data = write(tmp_path / "texts.jsonl", TEXTS)
    with serving_masks(bert) as server, pytest.raises(InferenceError) as caught:
        figures(server.url, data, pll="original", model_id=str(bert))
    said = str(caught.value)
    assert "4 of the 32 tokens cannot be hidden in a text" in said
    assert "set `pll` to word-l2r" in said


def test_windows_are_refused(bert: Path, tmp_path: Path) -> None:
    data = write(tmp_path / "texts.jsonl", [" ".join(["the dog runs and a cat sleeps ."] * 20)])
    options = ModelOptions(model_id=str(bert), max_length=16)
    with serving_masks(bert) as server, pytest.raises(InferenceError, match="`window`"):
        evaluate(server.url, task="fill-mask", dataset=data, task_options={"window": True}, model_options=options)


def test_the_tokenizer_must_be_named(bert: Path) -> None:
    with serving_masks(bert) as server, pytest.raises(ModelError, match="set `model_id` to the folder or hub id"):
        load(server.url)


def test_another_tokenizer_than_the_servers_is_refused(bert: Path, roberta: Path, tmp_path: Path) -> None:
    content = json.loads((bert / "tokenizer.json").read_text())
    vocabulary = content["model"]["vocab"]
    ordinary = [token for token in vocabulary if not token.startswith("[")]
    turned = zip(ordinary, reversed([vocabulary[token] for token in ordinary]), strict=True)
    content["model"]["vocab"] = vocabulary | dict(turned)
    other = shutil.copytree(bert, tmp_path / "other")
    (other / "tokenizer.json").write_text(json.dumps(content))
    with serving_masks(bert) as server:
        with pytest.raises(ModelError, match="has another tokenizer than"):
            load(server.url, model_id=str(other))
        with pytest.raises(ModelError, match=re.escape("status 400: No mask_token ([MASK]) found on the input")):
            load(server.url, model_id=str(roberta))


def test_whole_distributions_are_not_served(bert: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = write(tmp_path / "texts.jsonl", ["the dog runs", "a cat"])
    with serving_masks(bert) as server:
        command = ["compare", str(bert), server.url, "--task", "fill-mask", "--unlabelled", "--dataset", data]
        assert cli.run([*command, "--model-id", str(bert)]) == 2
    assert "an endpoint gives the probabilities of single tokens only" in " ".join(capsys.readouterr().err.split())


def test_a_server_that_ignores_parameters_is_refused(bert: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MaskServer, "takes_parameters", False)
    with serving_masks(bert) as server, pytest.raises(ModelError, match="targets"):
        load(server.url, model_id=str(bert))


def test_an_embedding_server_is_refused_by_its_status(bert: Path) -> None:
    with serving() as server, pytest.raises(ModelError, match="status 404"):
        load(server.url, model_id=str(bert))


# --- what a server may answer ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "answer",
    [
        {},
        "text",
        [],
        None,
        [[]],
        [{"token": 1}],
        [{"score": 0.5}],
        [{"score": "much", "token": 1}],
        [{"score": 1.5, "token": 1}],
        [{"score": -0.1, "token": 1}],
        [{"score": None, "token": 1}],
        [[{"score": 0.5, "token": 1}], [{"score": 0.5, "token": 1}]],
    ],
    ids=str,
)
def test_an_answer_of_another_form_is_an_error(bert: Path, answer: Any) -> None:
    with serving_masks(bert) as server:
        model = load(server.url, model_id=str(bert))
        server.change = lambda _: answer
        with pytest.raises(InferenceError, match=r"fill-mask|probability"):
            ask(model, ["a dog runs"])


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b'{"error": "CUDA out of memory"}', "CUDA out of memory"),
        (b'{"error": {"message": "the model is loading"}}', "the model is loading"),
        (b"upstream gone", "upstream gone"),
    ],
)
def test_an_error_keeps_the_servers_words(bert: Path, body: bytes, words: str) -> None:
    with serving_masks(bert) as server:
        model = load(server.url, model_id=str(bert))
        server.every = Reply(500, body)
        with pytest.raises(InferenceError, match=f"status 500.*{words}"):
            ask(model, ["a dog runs"])


def test_equal_questions_are_sent_once(bert: Path) -> None:
    with serving_masks(bert) as server:
        model = load(server.url, model_id=str(bert))
        ask(model, ["a dog runs"])
        before = len(server.requests)
        ask(model, ["a dog runs", "a  dog runs"])
    sent = [json.dumps(request.body) for request in server.requests[before:]]
    assert len(sent) == len(set(sent))


def ask(model: MaskedLM, texts: list[str]) -> tuple[np.ndarray, np.ndarray]:
    rows = model.tokenize(texts)
    position = np.concatenate([row.scored for row in rows])
    text = np.repeat(np.arange(len(rows)), [len(row.scored) for row in rows])
    return model.log_probs(MaskedTokens([row.ids for row in rows], text, position, position + 1))
