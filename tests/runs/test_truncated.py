"""Texts that a model cuts are counted in every task, and shown."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from calipers import ModelOptions, compare, evaluate
from calipers.comparison import json as documents
from calipers.comparison.markdown import verdicts_markdown
from tests.support.cross_encoders import tiny
from tests.support.samples import write_jsonl
from tests.support.shown import shown, shown_verdicts


def pairs(folder: Path) -> Path:
    """Of six pairs two have a long first text, each another one."""
    rows: list[dict[str, object]] = [
        {"id": f"{i}", "sentence1": f"bread {i} " * (60 if i < 2 else 2), "sentence2": f"wine {i}", "score": float(i)}
        for i in range(6)
    ]
    return write_jsonl(folder / "pairs.jsonl", rows)


def test_every_backend_counts_the_texts_that_it_cuts(
    minilm: Path, minilm_onnx: Path, model: Callable[[str], Path], tmp_path: Path
) -> None:
    file = str(pairs(tmp_path))
    short = ModelOptions(max_length=32)
    for reference in (minilm, minilm_onnx, model("potion-base-4m-int8")):
        result = evaluate(str(reference), dataset=file, model_options=short)
        assert result.outcomes.counts["truncated"] == 2, reference
        assert "2 truncated" in shown(result)
        whole = evaluate(str(reference), dataset=file, model_options=ModelOptions(max_length=256))
        assert "truncated" not in whole.outcomes.counts


def test_pairs_and_searches_count_them_too(minilm: Path, tmp_path: Path) -> None:
    ranker = tiny(tmp_path / "ranker", minilm)
    options: dict[str, Any] = {"dataset": str(pairs(tmp_path)), "model_options": ModelOptions(max_length=32)}
    assert evaluate(str(ranker), task="pair-correlation", **options).outcomes.counts["truncated"] == 2
    shop = tmp_path / "shop"
    (shop / "qrels").mkdir(parents=True)
    write_jsonl(shop / "corpus.jsonl", [{"_id": f"d{i}", "text": f"bread {i} " * (60 if i else 1)} for i in range(3)])
    write_jsonl(shop / "queries.jsonl", [{"_id": "q", "text": "bread"}])
    (shop / "qrels" / "test.tsv").write_text("q\td1\t1\n")
    search = evaluate(str(minilm), task="retrieval", dataset=str(shop), model_options=ModelOptions(max_length=32))
    assert search.outcomes.counts["truncated"] == 2


def test_what_sentence_transformers_runs_is_counted(minilm: Path, tmp_path: Path) -> None:
    """With the prompt and in routes, and pairs of a cross-encoder that is padded on the left."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Dense, Pooling, Transformer

    dense = [Transformer(str(minilm)), Pooling(384), Dense(384, 8)]
    SentenceTransformer(modules=dense, device="cpu").save(str(tmp_path / "dense"))
    result = evaluate(str(tmp_path / "dense"), dataset=str(pairs(tmp_path)), model_options=ModelOptions(max_length=32))
    assert result.outcomes.counts["truncated"] == 2
    prompted = ModelOptions(max_length=32, prompt="wine " * 28)
    result = evaluate(str(tmp_path / "dense"), dataset=str(pairs(tmp_path)), model_options=prompted)
    assert result.outcomes.counts["truncated"] == 6
    ranker = tiny(tmp_path / "ranker", minilm)
    settings = json.loads((ranker / "tokenizer_config.json").read_text())
    (ranker / "tokenizer_config.json").write_text(json.dumps(settings | {"padding_side": "left"}))
    options: dict[str, Any] = {"dataset": str(pairs(tmp_path)), "model_options": ModelOptions(max_length=32)}
    assert evaluate(str(ranker), task="pair-correlation", **options).outcomes.counts["truncated"] == 2


def make_shop(folder: Path) -> Path:
    """Three documents of which two are long, and one long query of two."""
    (folder / "qrels").mkdir(parents=True)
    write_jsonl(folder / "corpus.jsonl", [{"_id": f"d{i}", "text": "bread " * (60 + i if i else 1)} for i in range(3)])
    write_jsonl(folder / "queries.jsonl", [{"_id": f"q{i}", "text": "tea " * 60 if i else "bread"} for i in range(2)])
    (folder / "qrels" / "test.tsv").write_text("q0\td1\t1\nq1\td0\t1\n")
    return folder


def test_a_search_counts_queries_documents_and_reranked_pairs_apart(minilm: Path, tmp_path: Path) -> None:
    shop, short = make_shop(tmp_path / "shop"), ModelOptions(max_length=32)
    options: dict[str, Any] = {"task": "retrieval", "dataset": str(shop)}
    search = evaluate(str(minilm), model_options=short, **options)
    counts = search.outcomes.counts
    assert (counts["queries_truncated"], counts["documents_truncated"], counts["truncated"]) == (1, 2, 3)
    assert "2 scored, 1 query and 2 documents truncated" in shown(search)
    sizes = evaluate(str(minilm), model_options=ModelOptions(max_length=32, truncate_dim="32,all"), **options)
    assert sizes.outcomes.counts["documents_truncated"] == 2
    ranker = tiny(tmp_path / "ranker", minilm, max_position_embeddings=40)
    staged = evaluate("bm25", rerank=str(ranker), **options)
    assert staged.outcomes.counts["reranked_pairs_truncated"] > 0
    assert "documents_truncated" not in staged.outcomes.counts


def test_a_comparison_shows_what_each_model_cuts(minilm: Path, tmp_path: Path) -> None:
    dataset = str(make_shop(tmp_path / "shop"))
    short, whole = (
        evaluate(str(minilm), task="retrieval", dataset=dataset, model_options=ModelOptions(max_length=length))
        for length in (32, 128)
    )
    verdicts = compare(whole, [short], resamples=100)
    line = "Texts longer than a model reads: "
    assert line in shown_verdicts(verdicts)
    assert "none truncated" in shown_verdicts(verdicts)
    assert "1 query and 2 documents truncated" in shown_verdicts(verdicts)
    assert "1 query and 2 documents truncated" in verdicts_markdown(verdicts)
    document = documents.document(verdicts)
    assert document["baseline"]["truncated"] == {"truncated": 0}
    cut = {"truncated": 3, "queries_truncated": 1, "documents_truncated": 2}
    assert document["candidates"][0]["truncated"] == cut
    assert f"{line}1 query and 2 documents truncated in every model" in shown_verdicts(compare(short, [short]))
    assert line not in shown_verdicts(compare(whole, [whole]))
