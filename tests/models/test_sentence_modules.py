"""Folders that only sentence-transformers runs: routes for queries and documents, and causal rerankers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sentence_transformers import CrossEncoder, SentenceTransformer
from sentence_transformers.base.modules import Transformer
from sentence_transformers.cross_encoder.modules import LogitScore
from sentence_transformers.sentence_transformer.modules import Pooling, Router

from calipers import models
from calipers.core import ModelError, on_side
from calipers.models import ModelOptions
from tests.support.architectures import PAIRS, TEXTS, make_tiny
from tests.support.retrieving import run


def load(folder: Path, ability: str = "encode", **options: Any) -> Any:
    return models.load(models.find(str(folder)), ModelOptions(**options), ability)


@pytest.fixture(scope="module")
def routed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """BERT for queries and RoBERTa for documents."""
    folder = tmp_path_factory.mktemp("routed")
    bert, roberta = make_tiny("bert", "encode", folder / "a"), make_tiny("roberta", "encode", folder / "b")
    query, document = ([Transformer(str(place)), Pooling(32, "mean")] for place in (bert, roberta))
    SentenceTransformer(modules=[Router.for_query_document(query, document)], device="cpu").save(str(folder / "model"))
    return folder / "model"


def test_queries_and_documents_take_their_routes(routed: Path) -> None:
    model, theirs = load(routed), SentenceTransformer(str(routed), device="cpu")
    np.testing.assert_allclose(on_side(model, "query").encode(TEXTS), theirs.encode_query(TEXTS), atol=1e-5)
    np.testing.assert_allclose(on_side(model, "document").encode(TEXTS), theirs.encode_document(TEXTS), atol=1e-5)
    np.testing.assert_allclose(model.encode(TEXTS), theirs.encode(TEXTS), atol=1e-5)
    assert np.abs(theirs.encode_query(TEXTS) - theirs.encode_document(TEXTS)).max() > 0.1
    assert model.info.settings["max_length"] == theirs.max_seq_length
    assert load(routed, max_length=4).info.settings["max_length"] == 4


def test_a_search_uses_both_routes(routed: Path) -> None:
    from sentence_transformers.sentence_transformer.evaluation import InformationRetrievalEvaluator

    from calipers.core import Dataset, DataSource

    words = ["dog", "cat", "child", "run", "sleep", "park", "house", "street"]
    corpus = {f"{a}{b}": f"the {a} {b}" for a in words for b in words if a != b}
    queries = {word: f"a {word}" for word in words}
    qrels = {word: {id: 1.0 for id in corpus if id.endswith(word)} for word in words}
    source = DataSource("made")
    table = Dataset(tuple(corpus), {"text": list(corpus.values())}, source, "sha256:c")
    columns: dict[str, Any] = {"query": list(queries.values()), "qrels": [qrels[word] for word in words]}
    dataset = Dataset(tuple(words), columns, source, "sha256:q", {"corpus": table})
    theirs = InformationRetrievalEvaluator(queries, corpus, {q: set(ids) for q, ids in qrels.items()})
    figures = theirs(SentenceTransformer(str(routed), device="cpu"))
    outcomes = run(load(routed), dataset)
    assert outcomes.columns["ndcg@10"].mean() == pytest.approx(figures["cosine_ndcg@10"], abs=1e-6)


def test_code_on_a_route_is_refused(routed: Path, tmp_path: Path) -> None:
    import shutil

    folder = tmp_path / "model"
    shutil.copytree(routed, folder)
    config = json.loads((folder / "router_config.json").read_text())
    config["types"]["query_1_Pooling"] = "trap.Pooling"
    (folder / "router_config.json").write_text(json.dumps(config))
    with pytest.raises(ModelError, match=r"names trap\.Pooling, code of its own"):
        load(folder)


@pytest.mark.parametrize("chat", [False, True])
@pytest.mark.parametrize("tokens", [(7, 8), (7, None)])
def test_a_causal_reranker_scores_as_in_sentence_transformers(
    tmp_path: Path, tokens: tuple[int, int | None], chat: bool
) -> None:
    from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

    plain = make_tiny("qwen3", "encode", tmp_path / "plain")
    torch.manual_seed(0)
    config = AutoConfig.from_pretrained(plain)
    AutoModelForCausalLM.from_config(config).save_pretrained(plain)
    if chat:
        tokenizer = AutoTokenizer.from_pretrained(plain)
        tokenizer.chat_template = "{% for m in messages %}the {{ m.role }} sees {{ m.content }} . {% endfor %}"
        tokenizer.save_pretrained(plain)
    transformer = Transformer(str(plain), transformer_task="text-generation")
    CrossEncoder(modules=[transformer, LogitScore(*tokens)], device="cpu").save_pretrained(str(tmp_path / "model"))
    theirs = CrossEncoder(str(tmp_path / "model"), device="cpu")
    alone = [float(theirs.predict([pair], show_progress_bar=False)[0]) for pair in PAIRS]
    np.testing.assert_allclose(load(tmp_path / "model", "score").score(PAIRS), alone, atol=1e-5)
