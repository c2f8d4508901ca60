"""The cache: each ingredient of the key, changed alone, misses; none changed, no model is loaded."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from safetensors.numpy import load_file, save_file

import calipers
from calipers import models
from calipers.core import Result
from calipers.data import DataOptions
from calipers.models import ModelOptions
from calipers.runs import api
from calipers.runs import key as cache
from calipers.runs.store import Store
from tests.support.masked_models import make_model
from tests.support.samples import PAIRS, write_jsonl
from tests.support.stores import Loaded, bits, edit, refuse

FACTS: dict[str, Any] = {
    "model": {"weights": "w", "tokenizer": "t", "pooling": "mean"},
    "fingerprint": "sha256:1",
    "ids": ("a", "b"),
    "rows": {"columns": ["text"]},
    "task": "fill-mask",
    "options": {"tokens": None},
    "code": {"calipers": "1"},
}


@pytest.mark.parametrize(
    "change",
    [
        *({"model": {**FACTS["model"], name: "other"}} for name in FACTS["model"]),
        {"fingerprint": "sha256:2"},
        {"ids": ("a", "c")},
        {"ids": ("b", "a")},
        {"ids": ("a,b",)},
        {"rows": {"columns": ["text_2"]}},
        {"task": "other"},
        {"options": {"tokens": 5}},
        {"options": {}},
        {"code": {"calipers": "2"}},
    ],
)
def test_another_ingredient_is_another_key(change: dict[str, Any]) -> None:
    assert cache.cache_key(**{**FACTS, **change}) != cache.cache_key(**FACTS)


def test_the_order_of_facts_and_the_kind_of_list_are_no_ingredients() -> None:
    turned = {name: dict(reversed(v.items())) if isinstance(v, dict) else v for name, v in FACTS.items()}
    assert cache.cache_key(**{**turned, "ids": ["a", "b"]}) == cache.cache_key(**FACTS)


def test_the_code_is_known_by_the_content_of_the_files_that_can_change_a_number(tmp_path: Path) -> None:
    for name in ("core/a.py", "metrics/b.py", "rendering/c.py", "runs/api.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("x = 1\n")
    first = cache.source_digest(tmp_path)
    (tmp_path / "rendering" / "c.py").write_text("x = 2\n")
    assert cache.source_digest(tmp_path) == first
    (tmp_path / "metrics" / "b.py").rename(tmp_path / "metrics" / "d.py")
    second = cache.source_digest(tmp_path)
    (tmp_path / "runs" / "api.py").write_text("x = 2\n")
    assert len({first, second, cache.source_digest(tmp_path)}) == 3


def test_the_digest_reads_every_part_that_it_names() -> None:
    root = Path(calipers.__file__).parent
    assert all((root / part).exists() for part in cache.PARTS)


# --- a tiny BERT in PyTorch, measured on five pairs --------------------------------------------------------------


@dataclass(frozen=True)
class Question:
    """What is asked; `ask` answers it by the store or by the model, `needs_a_model` whether the store cannot."""

    folder: Path
    pairs: Path
    store: Store
    monkeypatch: pytest.MonkeyPatch

    def ask(self, *, rows: DataOptions | None = None, resamples: int = 20, **options: Any) -> Result:
        return api.evaluate(
            f"torch:{self.folder}",
            dataset=str(self.pairs),
            model_options=ModelOptions(**options),
            data_options=rows,
            resamples=resamples,
            store=self.store,
            reuse=True,
        )

    def needs_a_model(self, **changes: Any) -> bool:
        with self.monkeypatch.context() as patch:
            patch.setattr(models, "load", refuse)
            try:
                self.ask(**changes)
            except Loaded:
                return True
            return False


@pytest.fixture(scope="session")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The weights of a masked language model under the name of an encoder, which needs no `pooling`."""
    folder = make_model("bert", tmp_path_factory.mktemp("models") / "bert")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "architectures": ["BertModel"]}))
    return folder


@pytest.fixture(scope="module")
def answered(bert: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a model, pairs, and a store in which they have met."""
    place = tmp_path_factory.mktemp("answered")
    shutil.copytree(bert, place / "bert")
    pairs = write_jsonl(place / "pairs.jsonl", PAIRS)
    Question(place / "bert", pairs, Store(place / "store"), pytest.MonkeyPatch()).ask()
    return place


@pytest.fixture
def question(answered: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Question:
    """A copy of all of it, to be changed."""
    place = tmp_path / "copy"
    shutil.copytree(answered, place)
    monkeypatch.chdir(place)
    return Question(place / "bert", place / "pairs.jsonl", Store(place / "store"), monkeypatch)


def nudge_weights(question: Question) -> None:
    file = question.folder / "model.safetensors"
    tensors = load_file(file)
    name = sorted(tensors)[0]
    save_file({**tensors, name: tensors[name] * 1.0001}, file, metadata={"format": "pt"})


def pool_by_file(question: Question) -> None:
    kinds = (("", "Transformer"), ("1_Pooling", "Pooling"))
    rows = [{"idx": i, "path": path, "type": f"sentence_transformers.models.{k}"} for i, (path, k) in enumerate(kinds)]
    (question.folder / "modules.json").write_text(json.dumps(rows))
    (question.folder / "1_Pooling").mkdir(exist_ok=True)
    edit(question.folder / "1_Pooling" / "config.json", pooling_mode_cls_token=True)


def change_rows(question: Question, **entries: Any) -> None:
    write_jsonl(question.pairs, [{**PAIRS[0], **entries}, *PAIRS[1:]])


FILES: dict[str, Callable[[Question], None]] = {
    "model weights": nudge_weights,
    "the model's config": lambda q: edit(q.folder / "config.json", layer_norm_eps=1e-5),
    "tokenizer": lambda q: edit(q.folder / "tokenizer.json", normalizer=None),
    "tokenizer settings": lambda q: edit(q.folder / "tokenizer_config.json", add_eos_token=True),
    "pooling": pool_by_file,
    "prompts": lambda q: edit(q.folder / "config_sentence_transformers.json", prompts={"query": "q: "}),
    "maximum length": lambda q: edit(q.folder / "sentence_bert_config.json", max_seq_length=16),
    "dataset fingerprint": lambda q: change_rows(q, score=3.25),
    "row ids": lambda q: change_rows(q, id="z"),
}
WISHES: dict[str, dict[str, Any]] = {
    "pooling": {"pooling": "cls"},
    "normalisation": {"normalize": True},
    "prompts": {"prompt": "query: "},
    "dtype": {"dtype": "float16"},
    "maximum length": {"max_length": 16},
    "batching protocol, rows": {"batch_size": 2},
    "batching protocol, tokens": {"batch_tokens": 64},
    "device": {"device": "cuda"},
    "rows": {"rows": DataOptions(samples=4)},
    "which rows": {"rows": DataOptions(samples=4, seed=7)},
}


def test_nothing_changed_and_no_model_is_loaded(question: Question) -> None:
    (line,) = question.store.list()
    first = question.store.load(line.run_id)
    question.monkeypatch.setattr(models, "load", refuse)
    again = question.ask()
    assert (again.metrics, again.intervals, again.warnings) == (first.metrics, first.intervals, first.warnings)
    assert bits(again.outcomes) == bits(first.outcomes)
    assert "reused_seconds" in again.timing
    assert "reused_seconds" not in first.timing


@pytest.mark.parametrize("name", FILES)
def test_a_changed_file_misses(name: str, question: Question) -> None:
    FILES[name](question)
    assert question.needs_a_model()


@pytest.mark.parametrize("name", WISHES)
def test_a_changed_wish_misses(name: str, question: Question) -> None:
    assert question.needs_a_model(**WISHES[name])


def test_other_code_misses(question: Question, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not question.needs_a_model()
    for change in (
        (calipers, "__version__", "99"),
        (cache, "_own_digest", lambda *_: "sha256:other"),
        (cache, "_versions", lambda: (("numpy", "99"),)),
        (cache, "_machine", lambda: ("Linux", "riscv")),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(*change)
            assert question.needs_a_model()
    assert not question.needs_a_model()


def test_a_miss_is_stored_and_is_a_hit_from_then_on(question: Question) -> None:
    nudge_weights(question)
    fresh = question.ask()
    assert "reused_seconds" not in fresh.timing
    assert not question.needs_a_model()
    assert question.ask().run_id == fresh.run_id


def test_what_changes_no_answer_is_no_ingredient(question: Question) -> None:
    assert not question.needs_a_model(threads=1)
    assert not question.needs_a_model(pooling="mean")  # what it is by default, here
    (question.folder / "README.md").write_text("other words")
    (question.folder / "eval_results.json").write_text("{}")
    (question.folder.parent / "elsewhere").mkdir()
    moved = replace(question, pairs=question.pairs.rename(question.folder.parent / "elsewhere" / "rows.jsonl"))
    assert not moved.needs_a_model()


def test_the_same_content_under_another_name_is_told_by_that_name(question: Question) -> None:
    first = question.ask()
    other = replace(question, folder=question.folder.rename(question.folder.parent / "candidate"))
    assert not other.needs_a_model()
    result = other.ask()
    assert (result.model.model_id, result.model.path) == ("candidate", str(other.folder))
    assert result.run_id != first.run_id
    assert other.ask().run_id == result.run_id  # asked in the same words, it is the same run
    assert replace(result.model, model_id="", path="") == replace(first.model, model_id="", path="")


def test_other_resamples_are_drawn_from_the_stored_outcomes(question: Question) -> None:
    first = question.ask()
    assert not question.needs_a_model(resamples=50)
    more = question.ask(resamples=50)
    assert more.bootstrap["resamples"] == 50
    assert more.metrics == first.metrics
    assert bits(more.outcomes) == bits(first.outcomes)
    assert more.intervals != first.intervals


def test_reuse_does_not_even_import_what_runs_models(answered: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from calipers.runs import api, store; "
        "place = store.Store(Path(sys.argv[3])); "
        "r = api.evaluate(sys.argv[1], dataset=sys.argv[2], store=place, resamples=20, reuse=True); "
        "heavy = ('torch', 'transformers', 'onnxruntime', 'pandas'); "
        "print('reused_seconds' in r.timing, *[m for m in heavy if m in sys.modules])"
    )
    places = (f"torch:{answered / 'bert'}", str(answered / "pairs.jsonl"), str(answered / "store"))
    found = subprocess.run([sys.executable, "-c", code, *places], capture_output=True, text=True, check=True)
    assert found.stdout.split() == ["True"]


def test_without_reuse_the_model_is_asked_again(question: Question) -> None:
    question.monkeypatch.setattr(models, "load", refuse)
    with pytest.raises(Loaded):
        api.evaluate(f"torch:{question.folder}", dataset=str(question.pairs), store=question.store)
    with pytest.raises(Loaded):  # no store, nothing to reuse
        api.evaluate(f"torch:{question.folder}", dataset=str(question.pairs), reuse=True)


def test_a_run_whose_outcomes_are_gone_is_no_answer(question: Question) -> None:
    for file in (question.store.folder / "outcomes").iterdir():
        file.write_bytes(b"not parquet")
    assert question.needs_a_model()
    assert question.ask().run_id == question.ask().run_id
