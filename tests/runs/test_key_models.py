"""The cache with each kind of model: what is asked twice is computed once, if the model is known well enough."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from safetensors.numpy import load_file, save_file

from calipers import models
from calipers.core import ModelError, RequestError, Result
from calipers.models import ModelOptions
from calipers.models.identity import identity, names
from calipers.models.onnx_files import external_names, weight_files
from calipers.runs import api
from calipers.runs.store import Store
from tests.support.masked_models import SMALL, make_model, make_tokenizer
from tests.support.samples import write_jsonl
from tests.support.stores import Loaded, bits, edit, refuse

Named = Callable[[str], Path]


@pytest.fixture
def place(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


def twice(monkeypatch: pytest.MonkeyPatch, ask: Callable[[], Result]) -> Result:
    """Ask, make the models unusable, ask again: the same answer."""
    first = ask()
    with monkeypatch.context() as patch:
        patch.setattr(models, "load", refuse)
        second = ask()
    assert second.run_id == first.run_id
    assert bits(second.outcomes) == bits(first.outcomes)
    return first


def misses(monkeypatch: pytest.MonkeyPatch, ask: Callable[[], Result]) -> bool:
    with monkeypatch.context() as patch:
        patch.setattr(models, "load", refuse)
        try:
            ask()
        except Loaded:
            return True
    return False


def asking(model: Any, dataset: Path, store: Store, **more: Any) -> Callable[..., Result]:
    def ask(**options: Any) -> Result:
        wishes = ModelOptions(**options)
        return api.evaluate(
            model, dataset=str(dataset), model_options=wishes, store=store, reuse=True, resamples=20, **more
        )

    return ask


def test_a_static_model(
    model: Named, pairs: Path, place: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "potion"
    shutil.copytree(model("potion-base-4m-int8"), folder, copy_function=shutil.copyfile)
    folder.chmod(0o755)
    ask = asking(str(folder), pairs, place)
    twice(monkeypatch, ask)
    for wish in ({"max_length": 8}, {"prompt": "query: "}, {"normalize": False}, {"dtype": "float16"}):
        assert misses(monkeypatch, lambda wish=wish: ask(**wish))
    edit(folder / "tokenizer.json", normalizer=None)
    assert misses(monkeypatch, ask)


def test_a_dynamically_quantised_graph(
    weights: Named, pairs: Path, place: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(weights("all-MiniLM-L6-v2-quint8"), tmp_path / "graph")
    file = tmp_path / "graph" / "model_quantized.onnx"
    ask = asking(str(file), pairs, place, task="sentence-similarity")
    assert twice(monkeypatch, ask).model.settings["batching"].startswith("one row at a time")
    assert not misses(monkeypatch, lambda: ask(provider="cpu"))  # what it is by default
    # The protocol alone: the same file, eight rows a batch. Pooling that is asked for may choose another output.
    for wish in ({"batch_size": 8}, {"pooling": "mean"}, {"output": "x"}, {"provider": "xnnpack"}):
        assert misses(monkeypatch, lambda wish=wish: ask(**wish))
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    assert misses(monkeypatch, ask)


def test_a_masked_language_model_and_the_options_of_its_task(
    place: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = make_model("bert", tmp_path / "bert")
    rows = [{"text": text} for text in ("the dog runs .", "a cat sleeps in the garden .", "the children see the park")]
    dataset = write_jsonl(tmp_path / "texts.jsonl", rows)
    wishes: dict[str, Any] = {}

    def ask(**options: Any) -> Result:
        return asking(f"torch:{folder}", dataset, place, task="fill-mask", task_options=wishes)(**options)

    twice(monkeypatch, ask)
    for wish in ({"max_length": 8}, {"dtype": "float16"}, {"batch_tokens": 8}):
        assert misses(monkeypatch, lambda wish=wish: ask(**wish))
    for option in ({"tokens": 6}, {"pll": "word-l2r"}, {"word_level": True}):
        wishes = option
        assert misses(monkeypatch, ask)
    wishes = {"tokens": 8}  # fewer rows are scored than were read: the key is of those that were read
    assert len(twice(monkeypatch, ask).outcomes) < len(rows)


def test_stored_vectors(
    vectors: Path, pairs: Path, place: Store, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    ask = asking(str(vectors), pairs, place)
    twice(monkeypatch, ask)
    np.save(vectors, np.load(vectors) * np.array([1, 1, 1.5], np.float32))
    assert misses(monkeypatch, ask)


BEIR = {
    "corpus": [
        {"_id": str(i), "text": t} for i, t in enumerate(("red wine", "blue glass", "red bicycle", "green tea"))
    ],
    "queries": [
        {"_id": "q1", "text": "red wine glass"},
        {"_id": "q2", "text": "tea"},
        {"_id": "q3", "text": "bicycle"},
    ],
}


@pytest.fixture
def searchable(tmp_path: Path) -> Path:
    folder = tmp_path / "beir"
    (folder / "qrels").mkdir(parents=True)
    for name, rows in BEIR.items():
        write_jsonl(folder / f"{name}.jsonl", rows)  # type: ignore[arg-type]
    judged = "query-id\tcorpus-id\tscore\nq1\t0\t1\nq2\t3\t1\nq3\t2\t1\n"
    (folder / "qrels" / "test.tsv").write_text(judged)
    return folder


def make_reranker(folder: Path) -> Path:
    from transformers import BertConfig, BertForSequenceClassification

    BertForSequenceClassification(BertConfig(**SMALL, num_labels=1)).save_pretrained(folder)
    make_tokenizer(folder)
    return folder


def test_both_stages_of_a_search_are_ingredients(
    searchable: Path, place: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reranker = make_reranker(tmp_path / "reranker")
    one_stage = asking("bm25", searchable, place, task="retrieval")
    two_stages = asking("bm25", searchable, place, task="retrieval", rerank=str(reranker))
    twice(monkeypatch, one_stage)
    assert misses(monkeypatch, two_stages)
    found = twice(monkeypatch, two_stages)
    assert found.model.model_id == "bm25 + reranker"
    assert misses(monkeypatch, asking("bm25:k1=0.9", searchable, place, task="retrieval"))
    file = reranker / "model.safetensors"
    tensors = load_file(file)
    save_file(tensors | {"classifier.bias": tensors["classifier.bias"] + 1}, file, metadata={"format": "pt"})
    assert misses(monkeypatch, two_stages)


def test_a_reranked_run_is_not_compared_with_a_model_alone(searchable: Path, place: Store, tmp_path: Path) -> None:
    from calipers.comparison.api import compare

    reranker = make_reranker(tmp_path / "reranker")
    reranked = asking("bm25", searchable, place, task="retrieval", rerank=str(reranker))()
    with pytest.raises(RequestError, match="has a reranker, and a model is measured without one"):
        compare(reranked, ["bm25"])
    with pytest.raises(RequestError, match="`rerank_k` is how many results a reranker reads"):
        asking("bm25", searchable, place, task="retrieval", task_options={"rerank_k": 5})()


def test_a_run_file_is_known_by_its_content(searchable: Path, place: Store, tmp_path: Path) -> None:
    file = tmp_path / "a.run"
    first = asking("bm25", searchable, place, task="retrieval", run_out=file)()
    ask = asking(f"run:{file}", searchable, place, task="retrieval")
    made = ask()
    assert made.metrics == first.metrics
    assert ask().run_id == made.run_id
    lines = file.read_text().splitlines()
    file.write_text("\n".join(lines[:-1]) + "\n")
    assert ask().run_id != made.run_id


def test_a_reused_search_writes_its_run_file_too(searchable: Path, place: Store, tmp_path: Path) -> None:
    files = [tmp_path / "a.run", tmp_path / "b.run"]
    for file in files:
        asking("bm25", searchable, place, task="retrieval", run_out=file)()
    assert files[0].read_text() == files[1].read_text() != ""


def test_what_may_change_unseen_is_never_reused(vectors: Path, pairs: Path, place: Store) -> None:
    assert identity(models.find("http://localhost:1/embed"), ModelOptions(), "encode") is None
    loaded = models.load(models.find(str(vectors)), ModelOptions())
    ask = asking(loaded, pairs, place)
    assert ask().run_id != ask().run_id


def test_code_from_another_repository_is_not_known(tmp_path: Path) -> None:
    folder = make_model("bert", tmp_path / "bert")
    edit(folder / "config.json", auto_map={"AutoModel": "someone/else--modeling.Model"})
    wishes = ModelOptions(trust_remote_code=True, revision="0" * 40)
    assert identity(models.find(f"torch:{folder}"), wishes, "encode") is None


@pytest.fixture
def each(model: Named, weights: Named, vectors: Path, tmp_path: Path) -> Iterator[tuple[str, ModelOptions]]:
    graph = weights("all-MiniLM-L6-v2-quint8")
    bert = make_model("bert", tmp_path / "bert", head="")
    references = [str(model("potion-base-4m-int8")), str(graph), str(graph / "model_quantized.onnx"), str(vectors)]
    return iter([(r, ModelOptions(model_id=name)) for r in (*references, str(bert)) for name in (None, str(graph))])


def test_names_are_those_that_the_loaded_model_tells(each: Iterator[tuple[str, ModelOptions]]) -> None:
    for reference, options in each:
        source = models.find(reference)
        info = models.load(source, options).info
        assert names(source, options) == (info.model_id, info.path)


# --- weights that lie outside the graph --------------------------------------------------------------------------


def external_graph(folder: Path, place: str) -> Path:
    """y = x + w, with w in a file of its own."""
    weight = numpy_helper.from_array(np.arange(300, dtype=np.float32), "w")
    onnx.external_data_helper.set_external_data(weight, location=place)
    graph = helper.make_graph(
        [helper.make_node("Add", ["x", "w"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [300])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [300])],
        [weight],
    )
    onnx.save(helper.make_model(graph), folder / "m.onnx")
    return folder / "m.onnx"


@pytest.mark.parametrize("name", ["weights.bin", "ü" * 40, "w" * 200])
def test_external_weights_are_found_whatever_they_are_called(name: str, tmp_path: Path) -> None:
    file = external_graph(tmp_path, name)
    assert external_names(file) == [name]
    assert weight_files(file) == [file, tmp_path / name]


def test_a_graph_names_its_own_weights_only(tmp_path: Path) -> None:
    (tmp_path / "other.bin").write_bytes(b"1")
    file = external_graph(tmp_path, "w.bin")
    (tmp_path / "w.bin").unlink()
    assert weight_files(file) == [file]
    onnx.save(onnx.load(external_graph(tmp_path, "w.bin")), tmp_path / "m.onnx")  # with the weights inside
    assert external_names(tmp_path / "m.onnx") == []


def test_an_empty_graph_is_refused(tmp_path: Path) -> None:
    (tmp_path / "m.onnx").touch()
    (tmp_path / "tokenizer.json").write_text(json.dumps({}))
    with pytest.raises(ModelError, match="is empty"):
        identity(models.find(str(tmp_path / "m.onnx")), ModelOptions(), "encode")
