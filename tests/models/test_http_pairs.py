"""The http cross-encoder against a real server on this machine."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from calipers import models
from calipers.core import InferenceError, ModelError, PairScorer, RequestError
from calipers.models import ModelOptions, transport
from tests.support import endpoint as served
from tests.support.endpoint import Endpoint, Reply, serving, trigrams

PAIRS = [
    ("red bicycle", "He sold the red bicycle."),
    ("rain", "Rain is expected tonight."),
    ("red bicycle", "Rain is expected tonight."),
    ("rain", "Rain is expected tonight."),
    ("red bicycle", "A bakery."),
]


def overlap(query: str, document: str) -> float:
    return float(np.dot(trigrams(query), trigrams(document)))


class Reranker(Endpoint):
    """Both protocols, best document first. `spoil(documents, rows)` changes what is answered."""

    def __init__(self) -> None:
        super().__init__()
        self.paths = ["/rerank", "/v1/rerank", "/v2/rerank"]

    def reply(self, path: str, body: dict[str, Any]) -> Reply:
        if self.replies or self.every:
            return self.replies.pop(0) if self.replies else self.every or Reply()
        if path not in self.paths:
            return Reply(404, b"no such path")
        texts, key = (body["texts"], "score") if path == "/rerank" else (body["documents"], "relevance_score")
        rows = [{"index": i, key: overlap(body["query"], text)} for i, text in enumerate(texts)]
        rows = self.spoil(texts, sorted(rows, key=lambda row: -row[key]))
        return Reply(body=json.dumps(rows if path == "/rerank" else {"id": "1", "results": rows}).encode())


@pytest.fixture
def endpoint(monkeypatch: pytest.MonkeyPatch) -> Iterator[Reranker]:
    for name in ("CALIPERS_API_KEY", "OPENAI_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setattr(transport, "_FIRST_PAUSE", 0.001)
    monkeypatch.setattr(served, "Endpoint", Reranker)
    with serving() as server:
        assert isinstance(server, Reranker)
        yield server


def load(url: str, **options: Any) -> PairScorer:
    return models.load(models.find(url), ModelOptions(**options), "score")  # type: ignore[return-value]


def expected(pairs: list[tuple[str, str]]) -> np.ndarray:
    return np.array([overlap(*pair) for pair in pairs], np.float32)


@pytest.mark.parametrize("path", ["/rerank", "/v1/rerank", "/v2/rerank", "/v1", "/v2/", "", "/"])
def test_scores_come_in_the_order_of_the_pairs(endpoint: Reranker, path: str) -> None:
    found = load(endpoint.url + path).score(PAIRS)
    assert (found.dtype, found.shape) == (np.float32, (5,))
    np.testing.assert_array_equal(found, expected(PAIRS))


@pytest.mark.parametrize(("path", "through"), [("/rerank", "TEI"), ("/v1/rerank", "Cohere"), ("/v2/rerank", "Cohere")])
def test_a_bare_address_finds_the_only_path_that_is_there(endpoint: Reranker, path: str, through: str) -> None:
    endpoint.paths = [path]
    scorer = load(endpoint.url)
    assert scorer.info.path == endpoint.url + path
    assert scorer.info.settings["through"].startswith(through)
    np.testing.assert_array_equal(scorer.score(PAIRS), expected(PAIRS))


def test_each_protocol_is_asked_in_its_own_words(endpoint: Reranker) -> None:
    load(f"{endpoint.url}/rerank", prompt="find: ").score([("a", "b")])
    assert endpoint.requests[-1].body == {"query": "find: a", "texts": ["b"], "raw_scores": True, "truncate": True}
    load(f"{endpoint.url}/v2/rerank", model_id="rerank-3").score([("a", "b"), ("a", "c")])
    assert endpoint.requests[-1].body == {"model": "rerank-3", "query": "a", "documents": ["b", "c"], "top_n": 2}


def test_scores_that_depend_on_the_request_are_fetched_one_by_one(endpoint: Reranker) -> None:
    def rank(documents: list[str], rows: list[Any]) -> list[Any]:
        return [{**row, "score": row["score"] + len(documents) - 1} for row in rows]

    endpoint.spoil = rank
    scorer = load(f"{endpoint.url}/rerank")
    np.testing.assert_array_equal(scorer.score(PAIRS), expected(PAIRS))
    assert "one of the documents is sent at a time" in scorer.info.notes[0]
    assert "the requested 4 documents share a request" in load(f"{endpoint.url}/rerank", batch_size=4).info.notes[0]


def test_pairs_go_by_query_at_most_so_many_at_once_and_repeats_once(endpoint: Reranker) -> None:
    pairs = [(f"query {i % 2}", f"document number {i % 90}") for i in range(200)]
    scorer = load(f"{endpoint.url}/rerank")
    endpoint.requests.clear()
    np.testing.assert_array_equal(scorer.score(pairs), expected(pairs))
    assert sorted(len(request.body["texts"]) for request in endpoint.requests) == [13, 13, 32, 32]
    load(f"{endpoint.url}/rerank", batch_size=7).score(pairs)
    assert max(len(request.body["texts"]) for request in endpoint.requests[5:]) == 7


def test_no_pairs_give_no_scores(endpoint: Reranker) -> None:
    assert load(endpoint.url).score([]).shape == (0,)


@pytest.mark.parametrize("reply", [Reply(503), Reply(429), Reply(body=b"[", lost=9)], ids=["503", "429", "cut"])
def test_a_passing_failure_is_tried_again(endpoint: Reranker, reply: Reply) -> None:
    scorer = load(f"{endpoint.url}/rerank")
    endpoint.replies = [reply, reply]
    np.testing.assert_array_equal(scorer.score(PAIRS), expected(PAIRS))


@pytest.mark.parametrize(
    ("reply", "message"),
    [
        (Reply(404), "status 404"),
        (Reply(401, b"who are you?"), "CALIPERS_API_KEY.*who are you"),
        (Reply(500), "did not answer in 5 tries: status 500"),
        (Reply(body=b"<html>"), "something else than JSON"),
        (Reply(body=b'{"error": "no"}'), "in the form of /rerank"),
        (Reply(302, headers={"Location": "http://127.0.0.1:1/"}), "status 302"),
    ],
    ids=["404", "401", "500", "html", "error", "redirect"],
)
@pytest.mark.parametrize("path", ["/rerank", "/v1/rerank"])
def test_an_endpoint_that_cannot_be_used_is_refused_with_what_it_said(
    endpoint: Reranker, path: str, reply: Reply, message: str
) -> None:
    endpoint.every = reply
    with pytest.raises(ModelError, match=message):
        load(endpoint.url + path)


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda texts, rows: rows[:-1], "2 scores to 3 documents"),
        (lambda texts, rows: [rows[0], rows[0], rows[2]], "names no document, or one twice"),
        (lambda texts, rows: [{**row, "index": str(row["index"])} for row in rows], "names no document"),
        (lambda texts, rows: [{**row, "index": row["index"] + 1} for row in rows], "names no document"),
        (lambda texts, rows: [{"index": row["index"]} for row in rows], "in the form of /rerank"),
        (lambda texts, rows: [[0, 1.0]] * 3, "in the form of /rerank"),
    ],
    ids=["one missing", "twice", "strings", "beyond", "no score", "lists"],
)
@pytest.mark.parametrize("path", ["/rerank", "/v1/rerank"])
def test_an_answer_that_does_not_fit_is_refused(endpoint: Reranker, path: str, spoil: Any, message: str) -> None:
    scorer = load(endpoint.url + path)
    endpoint.spoil = spoil
    with pytest.raises(InferenceError, match=message):
        scorer.score(PAIRS)


def test_null_is_unknown_and_not_zero(endpoint: Reranker) -> None:
    scorer = load(f"{endpoint.url}/rerank")
    endpoint.spoil = lambda texts, rows: [{**row, "score": None} for row in rows]
    assert np.isnan(scorer.score(PAIRS)).all()


def test_the_key_is_sent_as_bearer_and_the_password_is_not_told(
    endpoint: Reranker, monkeypatch: pytest.MonkeyPatch
) -> None:
    scorer = load(f"http://user:hunter2@{endpoint.host}/rerank?key=hunter2")
    assert "hunter2" not in repr(scorer.info)
    monkeypatch.setenv("CALIPERS_API_KEY", "sk-1")
    scorer.score(PAIRS)
    assert endpoint.requests[-1].headers["Authorization"] == "Bearer sk-1"


@pytest.mark.parametrize("wish", [{"max_length": 8}, {"normalize": True}, {"batch_tokens": 8}], ids=str)
def test_a_wish_that_no_endpoint_can_be_told_is_refused(endpoint: Reranker, wish: dict[str, Any]) -> None:
    with pytest.raises(RequestError, match=f"`{next(iter(wish))}` is not supported for an endpoint"):
        load(f"{endpoint.url}/rerank", **wish)
