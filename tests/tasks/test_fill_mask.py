"""Pseudo-perplexity against plain loops, for every family, in torch and ONNX; and what the task does with texts."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoModelForMaskedLM

import calipers
from calipers import DataOptions, ModelOptions, models
from calipers.core import (
    SILENT,
    DataError,
    Dataset,
    DataSource,
    InvalidOutput,
    ModelError,
    Outcomes,
    RequestError,
    fingerprint,
)
from calipers.models.batching import Batching
from calipers.models.masking import bound_memory, likelihood
from calipers.tasks import fill_mask
from tests.support.exporting import export_masked_lm, fix_shape
from tests.support.masked_models import FAMILIES, make_model, make_tokenizer
from tests.support.samples import Run, write_jsonl

Named = Callable[[str], Path]
TEXTS = [
    "The old dog sleeps near the garden.",
    "A cat sees children",
    "the readers run slowly in the big park, and the cats sleep on the street.",
    "A cat sees children",
    "runs",
]
MASK = 4


def load(reference: str | Path, **options: object):  # type: ignore[no-untyped-def]
    return models.load(models.find(str(reference)), ModelOptions(**options), "fill-mask")  # type: ignore[arg-type]


def rows(texts: Sequence[str]) -> Dataset:
    ids, columns = tuple(f"t{i}" for i in range(len(texts))), {"input_column": list(texts)}
    return Dataset(ids, columns, DataSource("here"), fingerprint(ids, columns))


def score(model: object, texts: Sequence[str], **options: object) -> Outcomes:
    return fill_mask.run(model, rows(texts), fill_mask.FillMaskOptions(**options), SILENT)  # type: ignore[arg-type]


def nll(outcomes: Outcomes) -> float:
    return fill_mask.METRICS[1].value(outcomes.columns)


def plain_loop(
    folder: Path, sequences: Sequence[Sequence[int]], until: Callable[[int, int], int] | None = None
) -> list[float]:
    """One forward pass per token, unpadded, through the whole model: [CLS] and [SEP] are not scored."""
    network = AutoModelForMaskedLM.from_pretrained(folder, dtype=torch.float32).eval()
    found = []
    for number, sequence in enumerate(sequences):
        for position in range(1, len(sequence) - 1):
            ids = torch.tensor([list(sequence)])
            ids[0, position : until(number, position) if until else position + 1] = MASK
            with torch.inference_mode():
                logits = network(input_ids=ids, attention_mask=torch.ones_like(ids)).logits[0, position]
            found.append(float(torch.log_softmax(logits, -1)[sequence[position]]))
    return found


@pytest.fixture(scope="session")
def family(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    made: dict[str, Path] = {}

    def get(name: str) -> Path:
        if name not in made:
            made[name] = make_model(name, tmp_path_factory.mktemp(name))
        return made[name]

    return get


@pytest.fixture(scope="session")
def family_onnx(family: Callable[[str], Path]) -> Callable[[str], Path]:
    made: dict[str, Path] = {}

    def get(name: str) -> Path:
        if name not in made:
            made[name] = export_masked_lm(family(name), family(name) / "onnx")
        return made[name]

    return get


@pytest.mark.parametrize("name", FAMILIES)
class TestFamilies:
    def test_the_torch_short_cut_equals_the_plain_loop(self, family: Callable[[str], Path], name: str) -> None:
        model = load(family(name))
        assert model.info.settings["short_cut"].startswith("at the masked position")
        self.compare(model, family(name))

    def test_the_onnx_short_cut_equals_the_plain_loop(
        self, family: Callable[[str], Path], family_onnx: Callable[[str], Path], name: str
    ) -> None:
        model = load(family_onnx(name))
        assert model.info.settings["short_cut"].startswith("at the masked position")
        self.compare(model, family(name))

    def compare(self, model: object, folder: Path) -> None:
        outcomes = score(model, TEXTS)
        wanted = plain_loop(folder, [t.ids.tolist() for t in model.tokenize(TEXTS)])  # type: ignore[attr-defined]
        assert outcomes.counts["tokens"] == len(wanted)
        assert nll(outcomes) == pytest.approx(-np.mean(wanted), abs=1e-5)
        np.testing.assert_allclose(outcomes.details["tokens"]["log_prob"], wanted, atol=2e-5)


@pytest.fixture(scope="session")
def reference_onnx(model: Named, tmp_path_factory: pytest.TempPathFactory) -> Named:
    made: dict[str, Path] = {}

    def get(name: str) -> Path:
        if name not in made:
            made[name] = export_masked_lm(model(name), tmp_path_factory.mktemp(name))
        return made[name]

    return get


@pytest.mark.parametrize("name", ["bert", "albert", "roberta"])
@pytest.mark.parametrize("shape", [(1, 32), (3, 64)], ids=str)
def test_a_fixed_shape_equals_the_plain_loop(
    family: Named, family_onnx: Named, tmp_path: Path, name: str, shape: tuple[int, int]
) -> None:
    model = load(fix_shape(family_onnx(name), tmp_path, rows=shape[0], length=shape[1]))
    assert model.info.settings["shape"] == f"[{shape[0]}, {shape[1]}]"
    wanted = plain_loop(family(name), [t.ids.tolist() for t in model.tokenize(TEXTS)])
    np.testing.assert_allclose(score(model, TEXTS).details["tokens"]["log_prob"], wanted, atol=2e-5)


ALBERT = ("rxnmapper-albert-mlm-smiles", "smiles/reactions.txt", 395, 0.3467295)
ROBERTA = ("sapiens-roberta-mlm-antibody-vh", "antibodies/vh.txt", 364, 0.9230891)


@pytest.mark.parametrize(
    ("form", "name", "texts", "tokens", "wanted"),
    [
        *(pytest.param(form, *ALBERT) for form in ("torch", "onnx")),
        *(pytest.param(form, *ALBERT, marks=pytest.mark.slow) for form in ("onnx [1, 256]", "onnx [1, 512]")),
        *(pytest.param(form, *ROBERTA) for form in ("torch", "onnx", "onnx [1, 256]", "onnx [1, 512]")),
    ],
)
def test_the_figures_of_the_reference(
    model: Named,
    reference_onnx: Named,
    data: Named,
    tmp_path: Path,
    form: str,
    name: str,
    texts: str,
    tokens: int,
    wanted: float,
) -> None:
    folder = model(name)
    if form != "torch":
        positions = json.loads((folder / "config.json").read_text())["max_position_embeddings"] - 2
        length = min(int(form.split()[-1][:-1]), positions) if "[" in form else None
        folder = fix_shape(reference_onnx(name), tmp_path, rows=1 if length else None, length=length)
    result = calipers.evaluate(str(folder), task="fill-mask", dataset=str(data(texts)), resamples=100)
    assert result.outcomes.counts["tokens"] == tokens
    assert result.metrics["nll"] == pytest.approx(wanted, abs=1e-5)
    assert result.metrics["pseudo_perplexity"] == pytest.approx(math.exp(wanted), abs=2e-5)
    assert result.metrics["bits_per_token"] == pytest.approx(wanted / math.log(2), abs=2e-5)


@pytest.mark.parametrize(
    "options", [{"batch_size": 1}, {"batch_size": 7}, {"batch_tokens": 40}, {"threads": 1}], ids=str
)
def test_batches_and_threads_do_not_matter(family: Callable[[str], Path], options: dict[str, int]) -> None:
    plain, other = score(load(family("bert")), TEXTS), score(load(family("bert"), **options), TEXTS)
    np.testing.assert_allclose(other.details["tokens"]["log_prob"], plain.details["tokens"]["log_prob"], atol=1e-5)


def test_word_l2r_hides_the_rest_of_the_word(family: Callable[[str], Path]) -> None:
    model = load(family("bert"))
    outcomes = score(model, ["the readers sleeping", "a slowly running"], pll="word-l2r")
    # Pieces: [CLS] the read ##ers sleep ##ing [SEP]; [CLS] a slow ##ly run [UNK…]: ends of words by hand.
    tokens = model.tokenize(["the readers sleeping", "a slowly running"])
    assert [t.words.tolist() for t in tokens] == [[-1, 0, 1, 1, 2, 2, -1], [-1, 0, 1, 1, 2, -1]]
    ends = [{1: 2, 2: 4, 3: 4, 4: 6, 5: 6}, {1: 2, 2: 4, 3: 4, 4: 5}]
    wanted = plain_loop(family("bert"), [t.ids.tolist() for t in tokens], until=lambda n, p: ends[n][p])
    np.testing.assert_allclose(outcomes.details["tokens"]["log_prob"], wanted, atol=2e-5)
    assert nll(outcomes) != nll(score(model, ["the readers sleeping", "a slowly running"]))


def test_a_window_scores_every_token_once_and_in_its_context(family: Callable[[str], Path]) -> None:
    model = load(family("bert"), max_length=12)
    text = "the old dog sleeps near the garden and the young cat runs in the big park , not far on the street ."
    cut, whole = score(model, [text]), score(model, [text], window=True)
    full = load(family("bert")).tokenize([text])[0]
    assert cut.counts == {"texts": 1, "tokens": 10, "unknown": 0, "truncated": 1, "without_tokens": 0}
    assert whole.counts == {"texts": 1, "tokens": len(full.scored), "unknown": 0, "truncated": 0, "without_tokens": 0}
    # Windows of ten tokens, five apart, the last one flush with the end; each token where it is most central.
    content = full.ids[1:-1].tolist()
    starts = [*range(0, len(content) - 10, 5), len(content) - 10]
    scored = plain_loop(family("bert"), [[2, *content[start : start + 10], 3] for start in starts])
    wanted = []
    for i in range(len(content)):
        window = min(range(len(starts)), key=lambda number: abs(i + 0.5 - (starts[number] + 5)))
        wanted.append(scored[10 * window + i - starts[window]])
    found = dict(zip(np.arange(len(content)), sorted(whole.details["tokens"]["log_prob"]), strict=True))
    np.testing.assert_allclose(sorted(found.values()), sorted(wanted), atol=2e-5)


def test_short_texts_need_no_window(family: Callable[[str], Path]) -> None:
    model = load(family("bert"))
    assert nll(score(model, TEXTS, window=True)) == nll(score(model, TEXTS))


def test_words_are_those_that_were_scored(family: Callable[[str], Path]) -> None:
    outcomes = score(
        load(family("bert"), max_length=6), ["the old dog sleeps near the garden", "cats"], word_level=True
    )
    assert outcomes.columns["words"].tolist() == [4, 1]  # [CLS] the old dog sleeps [SEP]; the rest is cut off
    log_likelihood = outcomes.columns["log_likelihood"].sum()
    metric = next(m for m in fill_mask.METRICS if m.name == "word_pseudo_perplexity")
    assert metric.value(outcomes.columns) == pytest.approx(math.exp(-log_likelihood / 5))


def test_ranks_and_accuracy_by_hand(family: Callable[[str], Path]) -> None:
    outcomes = score(load(family("bert")), TEXTS)
    rank = outcomes.details["tokens"]["rank"]
    example = outcomes.details["tokens"]["example"]
    assert outcomes.columns["correct"].tolist() == [float((rank[example == i] == 1).sum()) for i in range(5)]
    assert outcomes.columns["correct@5"].tolist() == [float((rank[example == i] <= 5).sum()) for i in range(5)]


def test_constant_logits_do_not_look_perfect() -> None:
    log_prob, rank = likelihood(np.zeros((2, 9), np.float32), np.array([0, 8]))
    np.testing.assert_allclose(log_prob, -math.log(9), rtol=1e-6)
    assert rank.tolist() == [5.0, 5.0]


def test_huge_logits_neither_overflow_nor_vanish() -> None:
    log_prob, rank = likelihood(np.array([[1e4, -1e4, 0]], np.float32), np.array([1]))
    assert log_prob.tolist() == [-2e4]
    assert rank.tolist() == [3.0]


def test_equal_texts_are_asked_once(family: Callable[[str], Path]) -> None:
    class Counter:
        total = 0

        def start(self, label: str, total: int) -> None:
            self.total = total

        def advance(self, count: int) -> None:
            pass

    counter = Counter()
    outcomes = fill_mask.run(load(family("bert")), rows(TEXTS), fill_mask.FillMaskOptions(), counter)
    assert counter.total == outcomes.counts["tokens"] - outcomes.columns["tokens"][3]
    assert outcomes.columns["log_likelihood"][1] == outcomes.columns["log_likelihood"][3]


def test_tokens_bound_the_work_by_whole_texts(family: Callable[[str], Path]) -> None:
    model = load(family("bert"))
    some = score(model, TEXTS, tokens=13)
    assert 0 < some.counts["tokens"] <= 13
    assert set(some.ids) < {"t0", "t1", "t2", "t3", "t4"}
    assert score(model, TEXTS, tokens=13).ids == some.ids
    assert len(score(model, [TEXTS[2]], tokens=1).ids) == 1  # at least one text


def test_a_text_without_tokens_is_left_out_and_counted(family: Callable[[str], Path]) -> None:
    outcomes = score(load(family("bert")), ["the dog", "\u200b\u00ad"[:0], "a cat"])
    assert outcomes.ids == ("t0", "t2")
    assert outcomes.counts["without_tokens"] == 1
    with pytest.raises(DataError, match="none of the 1 texts"):
        score(load(family("bert")), [""])


def test_a_head_that_mixes_positions_is_run_in_full(
    family: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    from transformers.models.bert import modeling_bert

    plain = modeling_bert.BertLMPredictionHead.forward
    monkeypatch.setattr(
        modeling_bert.BertLMPredictionHead,
        "forward",
        lambda self, hidden: plain(self, hidden + hidden.mean(dim=1, keepdim=True)),
    )
    model = load(family("bert"))
    assert model.info.settings["short_cut"].startswith("none: the full pass is used (the short cut differs by ")
    wanted = plain_loop(family("bert"), [t.ids.tolist() for t in model.tokenize(TEXTS[1:2])])
    np.testing.assert_allclose(score(model, TEXTS[1:2]).details["tokens"]["log_prob"], wanted, atol=2e-5)


def test_a_dynamically_quantised_head_is_run_in_full(family_onnx: Callable[[str], Path], tmp_path: Path) -> None:
    from onnxruntime.quantization import quantize_dynamic

    from tests.support.exporting import copy_settings

    copy_settings(family_onnx("bert").parent, tmp_path)
    quantize_dynamic(family_onnx("bert"), tmp_path / "model.onnx")
    model = load(tmp_path)
    assert "none: the full pass is used" in model.info.settings["short_cut"]
    assert "one row at a time" in model.info.settings["batching"]
    assert nll(score(model, TEXTS)) == pytest.approx(nll(score(load(family_onnx("bert")), TEXTS)), rel=0.05)


def test_logits_in_hand_are_bounded() -> None:
    assert bound_memory(Batching(2048, None, ""), 250_002, positions_kept=1).size(4) == 67
    assert bound_memory(Batching(2048, None, ""), 250_002, positions_kept=512).size(4) == 1
    assert bound_memory(Batching(2048, None, ""), 30_522, positions_kept=1).size(128) == 16


def test_a_tokenizer_without_a_mask_is_refused(family: Callable[[str], Path], tmp_path: Path) -> None:
    folder = make_model("bert", tmp_path)
    make_tokenizer(folder, mask=False)
    with pytest.raises(ModelError, match="no mask token"):
        load(folder)


@pytest.mark.parametrize("backend", ["torch", "onnx"])
def test_a_tokenizer_that_does_not_fit_is_refused(tmp_path: Path, backend: str) -> None:
    folder = make_model("bert", tmp_path, vocab_size=20)
    place = export_masked_lm(folder, folder / "onnx") if backend == "onnx" else folder
    with pytest.raises(ModelError, match=r"\d+ tokens.*\b20\b.*") as refusal:
        load(place)
    assert "does not fit" in str(refusal.value)


def test_non_finite_logits_are_invalid_with_row_ids(family: Callable[[str], Path], tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    folder = make_model("bert", tmp_path)
    tensors = load_file(folder / "model.safetensors")
    dog = load(folder).tokenize(["dog"])[0].ids[1]
    tensors["bert.embeddings.word_embeddings.weight"][dog] = math.nan
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(InvalidOutput, match="INVALID"):
        score(load(folder), TEXTS)


def test_an_encoder_without_a_head_is_refused(minilm: Path) -> None:
    with pytest.raises(ModelError, match="lack"):
        load(minilm)


def test_only_torch_and_onnx_fill_masks(model: Named) -> None:
    with pytest.raises(ModelError, match="cannot fill-mask: that takes torch or onnx"):
        load(model("potion-base-4m-int8"))


def test_a_hundred_texts_of_wikitext_are_a_hundred_texts(
    family: Callable[[str], Path], data: Named, calipers: Run
) -> None:
    """Half of its lines are blank; they do not use up the samples."""
    asked = ("eval", "-m", family("bert"), "--task", "fill-mask", "--dataset", data("wikitext2/wiki.test.raw"))
    found = calipers(*asked, "--samples", "100", "--max-length", "16", "--json")
    assert found.returncode == 0, found.stderr
    document = json.loads(found.stdout)
    assert document["dataset"]["samples"] == document["scored"]["texts"] == 100
    assert document["dataset"]["rows_blank"] > 1000
    assert document["scored"]["truncated"] > 50
    assert set(document["metrics"]) == {m.name for m in fill_mask.METRICS if not m.needs}
    shown = calipers("runs", "show", "latest").stdout
    assert "100 scored of 100 requested" in shown
    assert f"{document['scored']['tokens']:,} tokens" in shown


def test_token_outcomes_survive_the_store(family: Callable[[str], Path], tmp_path: Path) -> None:
    from calipers.runs.store import Store

    file = write_jsonl(tmp_path / "t.jsonl", [{"text": text} for text in TEXTS])
    store = Store(tmp_path / "store")
    result = calipers.evaluate(str(family("bert")), task="fill-mask", dataset=str(file), store=store, resamples=50)
    again = store.load(result.run_id)
    assert again.outcomes.counts == result.outcomes.counts
    for name, column in result.outcomes.details["tokens"].items():
        np.testing.assert_array_equal(again.outcomes.details["tokens"][name], column)
    store.remove(result.run_id)
    assert list((tmp_path / "store" / "outcomes").iterdir()) == []


def test_an_option_of_another_task_is_refused(calipers: Run, vectors: Path, pairs: Path) -> None:
    found = calipers("eval", "-m", vectors, "--dataset", pairs, "--window")
    assert found.returncode == 2
    assert found.stderr == "calipers: --window is not an option of the task sentence-similarity\n"


def test_a_plain_text_file_is_one_text_per_line(tmp_path: Path) -> None:
    from calipers.data import load_rows

    (tmp_path / "t.txt").write_text("the dog runs\n\n  \na cat sleeps", encoding="utf-8")
    found = load_rows(str(tmp_path / "t.txt"), fill_mask.TASK.columns, mapping={}, options=DataOptions())
    assert found.columns["input_column"] == ["the dog runs", "a cat sleeps"]
    assert found.source.rows_blank == 2


def test_what_would_surprise_is_told(family: Callable[[str], Path]) -> None:
    model = load(family("bert"))
    odd = score(model, ["the zebra quux", "gnu"], word_level=True, pll="word-l2r", tokens=1000)
    assert odd.counts["unknown"] == 3
    assert [note.split(":")[0] for note in odd.notes] == [
        "75% of the scored tokens are unknown to the tokenizer",
        "no word has several tokens here",
        "1000 tokens were requested and whole texts with 4 fit",
    ]
    assert score(model, TEXTS).notes == ()


@pytest.mark.parametrize("backend", ["torch", "onnx"])
def test_more_tokens_than_the_model_has_positions_are_refused(
    backend: str, family: Callable[[str], Path], family_onnx: Callable[[str], Path]
) -> None:
    with pytest.raises(RequestError, match=r"`max_length` must be at most \d+ for this model, found 9999"):
        load((family if backend == "torch" else family_onnx)("bert"), max_length=9999)
