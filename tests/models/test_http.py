"""The http encoder against a real server on this machine."""

from __future__ import annotations

import base64
import json
import re
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from calipers import cli, evaluate, models
from calipers.core import Encoder, InferenceError, InvalidOutput, ModelError, RequestError
from calipers.core.models import truncated_by
from calipers.models import ModelOptions, transport
from tests.support.endpoint import Endpoint, Reply, expected, serving
from tests.support.samples import PAIRS, Run
from tests.support.shown import shown

TEXTS = ["the red bicycle", "a bakery", "rain tonight"]
CUT = Reply(body=b'{"data": [', lost=9)


@pytest.fixture
def endpoint(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Endpoint]:
    for name in ("CALIPERS_API_KEY", "OPENAI_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setenv("CALIPERS_STORE", str(tmp_path / "store"))
    monkeypatch.setattr(transport, "_FIRST_PAUSE", 0.001)
    with serving() as server:
        yield server


def load(url: str, **options: Any) -> Encoder:
    return models.load(models.find(url), ModelOptions(**options))


# --- protocols -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/v1/embeddings", "/v1", "/v1/", "/embed", "", "/"])
def test_vectors_come_in_the_order_of_the_texts(endpoint: Endpoint, path: str) -> None:
    np.testing.assert_array_equal(load(endpoint.url + path).encode(TEXTS), expected(TEXTS))


@pytest.mark.parametrize(("path", "protocol"), [("/v1/embeddings", "openai"), ("/embed", "tei")])
def test_a_bare_address_finds_the_only_path_that_is_there(endpoint: Endpoint, path: str, protocol: str) -> None:
    endpoint.paths = [path]
    encoder = load(endpoint.url)
    assert (encoder.info.settings["protocol"], encoder.info.path) == (protocol, endpoint.url + path)
    np.testing.assert_array_equal(encoder.encode(TEXTS), expected(TEXTS))


def test_vectors_in_base64_are_read(endpoint: Endpoint) -> None:
    """Some servers send them so whatever is requested."""
    endpoint.spoil = lambda _, rows: [base64.b64encode(np.array(row, "<f4").tobytes()).decode() for row in rows]
    np.testing.assert_array_equal(load(f"{endpoint.url}/v1").encode(TEXTS), expected(TEXTS))


@pytest.mark.parametrize("vector", ["%%%", "AAAA", "AAAAAAA"], ids=["no base64", "three bytes", "cut off"])
def test_a_string_that_holds_no_vector_is_an_error(endpoint: Endpoint, vector: str) -> None:
    endpoint.spoil = lambda _, rows: [vector for _ in rows]
    with pytest.raises(ModelError, match="something else than vectors"):
        load(f"{endpoint.url}/v1")


def test_a_query_in_the_address_stays_behind_the_path(endpoint: Endpoint) -> None:
    load(f"{endpoint.url}/v1/embeddings?api-version=1")
    assert endpoint.requests[-1].path == "/v1/embeddings?api-version=1"


def test_openai_is_asked_for_the_named_model_in_floats(endpoint: Endpoint) -> None:
    load(f"{endpoint.url}/v1", model_id="e5-small", prompt="query: ").encode(["a"])
    assert endpoint.requests[-1].body == {"input": ["query: a"], "model": "e5-small", "encoding_format": "float"}


@pytest.mark.parametrize(("wish", "asked"), [(None, {}), (True, {"normalize": True}), (False, {"normalize": False})])
def test_tei_is_asked_to_truncate_and_to_normalise_as_wished(
    endpoint: Endpoint, wish: bool | None, asked: dict[str, bool]
) -> None:
    load(f"{endpoint.url}/embed", normalize=wish).encode(["a"])
    assert endpoint.requests[-1].body == {"inputs": ["a"], "truncate": True, **asked}


class TestTextsThatAreCut:
    """TEI reports its limit under /info, counts tokens under /tokenize, and refuses longer texts unless it may cut."""

    TEXTS = ("one two", "one two three four five", "a b c d", "five", "one two three four five")

    def test_tei_s_are_counted_once_each(self, endpoint: Endpoint) -> None:
        endpoint.limit = 3
        encoder = load(endpoint.url + "/embed")
        np.testing.assert_array_equal(encoder.encode(self.TEXTS)[:2], expected(["one two", "one two three"]))
        assert (truncated_by(encoder), encoder.info.settings["max_length"]) == (2, 3)
        assert "truncation" not in encoder.info.settings

    def test_no_further_request_where_nothing_is_cut(self, endpoint: Endpoint) -> None:
        endpoint.limit = 5
        encoder = load(endpoint.url + "/embed")
        before = len(endpoint.requests)
        encoder.encode(self.TEXTS)
        assert (truncated_by(encoder), len(endpoint.requests) - before) == (0, 1)

    @pytest.mark.parametrize("path", ["/embed", "/v1/embeddings"])
    def test_an_endpoint_that_reports_no_limit_says_that_it_is_unknown(
        self, endpoint: Endpoint, path: str, pairs: Path
    ) -> None:
        result = evaluate(endpoint.url + path, dataset=str(pairs))
        assert result.model.settings["truncation"].startswith("unknown")
        assert "truncated texts unknown" in shown(result)

    def test_a_limit_without_a_way_to_count_is_unknown(self, endpoint: Endpoint) -> None:
        endpoint.limit = 3
        original = endpoint.reply
        endpoint.reply = lambda path, body: Reply(404) if path == "/tokenize" else original(path, body)  # type: ignore[method-assign]
        assert load(endpoint.url + "/embed").info.settings["max_length"] is None


def test_normalize_holds_for_openai_too_which_cannot_be_asked(endpoint: Endpoint) -> None:
    vectors = load(f"{endpoint.url}/v1", normalize=True).encode(TEXTS)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1.0, rtol=1e-6)


def test_many_texts_go_in_several_requests_and_duplicates_once(endpoint: Endpoint) -> None:
    texts = [f"text number {i % 70}" for i in range(100)]
    encoder = load(f"{endpoint.url}/v1")
    endpoint.requests.clear()
    np.testing.assert_array_equal(encoder.encode(texts), expected(texts))
    sent = [request.body["input"] for request in endpoint.requests]
    assert sorted(map(len, sent)) == [6, 32, 32]
    assert sorted(text for batch in sent for text in batch) == sorted(set(texts))


@pytest.mark.parametrize("wish", [{"prompt_name": "query"}, {"pooling": "cls"}, {"max_length": 8}], ids=str)
def test_a_wish_that_no_endpoint_can_be_told_is_refused(endpoint: Endpoint, wish: dict[str, Any]) -> None:
    with pytest.raises(RequestError, match=f"`{next(iter(wish))}` is not supported for"):
        load(f"{endpoint.url}/v1", **wish)


def pad_together(texts: list[str], vectors: list[Any]) -> list[Any]:
    """A server whose padding leaks: every vector moves with the longest text of the request."""
    return [[value + 0.01 * max(map(len, texts)) for value in vector] for vector in vectors]


class TestAnswersThatDependOnTheRequest:
    def test_texts_are_sent_one_at_a_time_with_a_warning(self, endpoint: Endpoint) -> None:
        endpoint.spoil = pad_together
        encoder = load(f"{endpoint.url}/v1")
        alone = [[value + 0.01 * len(text) for value in row] for text, row in zip(TEXTS, expected(TEXTS), strict=True)]
        np.testing.assert_allclose(encoder.encode(TEXTS), np.array(alone), rtol=1e-5)
        (note,) = encoder.info.notes
        assert "the endpoint's answers depend on what else is in a request (outputs move by up to 2.3" in note
        assert encoder.info.settings["batching"].startswith("1 texts a request (a batch moves the outputs")

    def test_a_requested_size_is_kept_with_a_warning(self, endpoint: Endpoint) -> None:
        endpoint.spoil = pad_together
        encoder = load(f"{endpoint.url}/v1", batch_size=8)
        assert "the requested 8 texts share a request" in encoder.info.notes[0]
        assert encoder.info.settings["batch_dependence"].startswith("outputs move by up to")
        endpoint.requests.clear()
        encoder.encode(TEXTS)
        assert len(endpoint.requests) == 1

    def test_a_sound_server_keeps_its_requests(self, endpoint: Endpoint) -> None:
        info = load(f"{endpoint.url}/v1").info
        assert (info.notes, info.settings["batching"]) == ((), "32 texts a request")
        assert len(endpoint.requests) == 5  # one for the address, three texts alone, and together


# --- failures that pass, and failures that stay ----------------------------------------------------------------


@pytest.mark.parametrize("reply", [Reply(503), Reply(429), CUT], ids=["503", "429", "cut"])
def test_a_passing_failure_is_tried_again(endpoint: Endpoint, reply: Reply) -> None:
    encoder = load(f"{endpoint.url}/v1")
    endpoint.requests.clear()
    endpoint.replies = [reply, reply]
    np.testing.assert_array_equal(encoder.encode(TEXTS), expected(TEXTS))
    assert len(endpoint.requests) == 3


def test_retry_after_is_waited_for_up_to_the_longest_pause(endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport, "_LONGEST_PAUSE", 0.2)
    endpoint.replies = [Reply(429, headers={"Retry-After": "1"})]
    load(f"{endpoint.url}/v1")
    first, second, *_ = endpoint.requests
    assert 0.2 <= second.when - first.when < 1.0


@pytest.mark.parametrize(
    ("reply", "said"),
    [(Reply(503), "status 503"), (Reply(stalls=True), "timed out"), (CUT, "9 more expected|cut off")],
    ids=["503", "timeout", "cut"],
)
def test_a_lasting_failure_is_given_up_after_five_tries(endpoint: Endpoint, reply: Reply, said: str) -> None:
    encoder = load(f"{endpoint.url}/v1", timeout=0.1)
    endpoint.requests.clear()
    endpoint.every = reply
    with pytest.raises(InferenceError, match=said):
        encoder.encode(TEXTS)
    assert len(endpoint.requests) == 5


def test_a_refusal_is_not_tried_again_and_its_connection_is_closed(endpoint: Endpoint) -> None:
    endpoint.every = Reply(400, b"the input is too long" + b"!" * 1000)
    with pytest.raises(ModelError, match="status 400: the input is too long!") as caught:
        load(f"{endpoint.url}/v1")
    assert len(endpoint.requests) == 1
    assert caught.value.__cause__.__cause__.closed


def test_a_redirect_is_not_followed(endpoint: Endpoint) -> None:
    endpoint.replies = [Reply(307, headers={"Location": f"{endpoint.url}/embed"})]
    with pytest.raises(ModelError, match="status 307"):
        load(f"{endpoint.url}/v1")
    assert len(endpoint.requests) == 1


def test_a_model_that_is_not_found_is_said_when_both_paths_fail(endpoint: Endpoint) -> None:
    endpoint.replies = [Reply(404, b"model 'default' not found, try pulling it first")]
    endpoint.paths = []
    with pytest.raises(ModelError, match="try pulling it first"):
        load(endpoint.url)


def test_nobody_listening_is_said(endpoint: Endpoint) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with pytest.raises(ModelError, match=f"127.0.0.1:{port}.*refused"):
        load(f"http://127.0.0.1:{port}")


@pytest.mark.parametrize("rest", [":99999", ":port", ":1/a b", ":1/é"])
def test_an_impossible_address_is_one_sentence(
    endpoint: Endpoint, pairs: Path, capsys: pytest.CaptureFixture[str], rest: str
) -> None:
    assert cli.run(["eval", "-m", f"http://127.0.0.1{rest}", "--dataset", str(pairs), "--no-store"]) in (2, 3)
    assert "unexpected" not in capsys.readouterr().err


# --- answers that are no vectors -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"<html>hello</html>", "something else than JSON"),
        (b'{"vectors": []}', "not answer in the form of /v1/embeddings"),
        (b'{"data": [{"index": 0, "embedding": [[1.0]]}]}', "expected one vector each"),
    ],
    ids=["html", "other", "nested"],
)
def test_an_answer_in_another_form_is_refused(endpoint: Endpoint, body: bytes, said: str) -> None:
    endpoint.every = Reply(body=body)
    with pytest.raises(ModelError, match=said):
        load(f"{endpoint.url}/v1")


@pytest.mark.parametrize("path", ["/v1", "/embed"])
def test_a_wrong_number_of_vectors_is_refused(endpoint: Endpoint, path: str) -> None:
    encoder = load(endpoint.url + path)
    endpoint.spoil = lambda texts, vectors: vectors[:-1]
    with pytest.raises(InferenceError, match=re.escape("answered [2, 16] to 3 texts")):
        encoder.encode(TEXTS)


@pytest.mark.parametrize("batch_size", [1, 32], ids=["in several answers", "in one answer"])
def test_vectors_of_different_lengths_are_refused(endpoint: Endpoint, batch_size: int) -> None:
    encoder = load(f"{endpoint.url}/embed", batch_size=batch_size)
    endpoint.spoil = lambda texts, vectors: [v[: len(text)] for text, v in zip(texts, vectors, strict=True)]
    with pytest.raises(InferenceError, match="different lengths"):
        encoder.encode(TEXTS)


@pytest.mark.parametrize("indices", [(1, 1, 0), (0, 1, 5), ("10", "9", "8")], ids=["twice", "beyond", "strings"])
def test_an_index_that_names_no_text_is_refused(endpoint: Endpoint, indices: tuple[Any, ...]) -> None:
    encoder = load(f"{endpoint.url}/v1")
    rows = [{"index": i, "embedding": [1.0]} for i in indices]
    endpoint.every = Reply(body=json.dumps({"data": rows}).encode())
    with pytest.raises(InferenceError, match="index"):
        encoder.encode(TEXTS)


@pytest.mark.parametrize("dead", [None, float("nan"), 1e400], ids=["null", "nan", "infinite"])
def test_a_dead_number_is_invalid_with_the_ids_of_its_rows(
    calipers: Run, endpoint: Endpoint, pairs: Path, dead: float | None
) -> None:
    endpoint.spoil = lambda texts, vectors: [
        [dead, *v[1:]] if t in (PAIRS[1]["sentence2"], PAIRS[3]["sentence1"]) else v
        for t, v in zip(texts, vectors, strict=True)
    ]
    done = calipers("eval", "-m", endpoint.url, "--dataset", pairs, "--json")
    assert (done.returncode, done.stdout) == (4, "")
    assert "INVALID" in done.stderr
    assert "2 of 5 pairs (rows b, d)" in done.stderr


# --- keys and passwords ----------------------------------------------------------------------------------------


def test_a_missing_key_is_said_with_the_variable_to_set(calipers: Run, endpoint: Endpoint, pairs: Path) -> None:
    endpoint.every = Reply(401, b"who are you?")
    done = calipers("eval", "-m", endpoint.url, "--dataset", pairs)
    assert done.returncode == 3
    assert "status 401 (set CALIPERS_API_KEY): who are you?" in done.stderr


@pytest.mark.parametrize("value", ["sk-1", "sk-1\n"], ids=["plain", "with a line end"])
def test_the_key_is_sent_as_bearer(endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv("CALIPERS_API_KEY", value)
    load(f"{endpoint.url}/v1").encode(TEXTS)
    assert {request.headers["Authorization"] for request in endpoint.requests} == {"Bearer sk-1"}


def test_the_key_of_openai_is_not_sent_to_another_host(endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-1")
    load(f"{endpoint.url}/v1")
    assert endpoint.requests[-1].headers["Authorization"] is None


@pytest.mark.parametrize(
    ("host", "sent"), [("api.openai.com", "Bearer sk-1"), ("api.openai.com.example.org", None), ("openai.com", None)]
)
def test_the_key_of_openai_is_for_its_own_host(monkeypatch: pytest.MonkeyPatch, host: str, sent: str | None) -> None:
    monkeypatch.delenv("CALIPERS_API_KEY", raising=False)
    monkeypatch.setenv("OPENAI_API_KEY", "sk-1")
    assert transport._headers(f"https://{host}/v1/embeddings").get("Authorization") == sent


@pytest.mark.parametrize("key", ["sk-hunter2", "sk\nhunter2", "sk…hunter2"], ids=["plain", "two lines", "not latin"])
def test_the_key_is_not_shown_even_when_the_server_repeats_it(
    endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch, pairs: Path, capsys: pytest.CaptureFixture[str], key: str
) -> None:
    monkeypatch.setenv("CALIPERS_API_KEY", key)
    endpoint.every = Reply(401, f"the key {key} is wrong".encode())
    assert cli.run(["eval", "-m", endpoint.url, "--dataset", str(pairs)]) == 3
    assert "hunter2" not in capsys.readouterr().err


@pytest.mark.parametrize(
    "place", ["user:hunter2@HOST", "HOST/v1/embeddings?key=hunter2", "u:hunter2@127.0.0.1", "u:hunter2@"]
)
def test_a_password_in_the_address_is_neither_shown_nor_stored(
    endpoint: Endpoint, pairs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], place: str
) -> None:
    address = "http://" + place.replace("HOST", endpoint.host)
    cli.run(["eval", "-m", address, "--dataset", str(pairs), "--json"])
    assert "hunter2" not in "".join(capsys.readouterr())
    assert not [file for file in tmp_path.rglob("store/*") if file.is_file() and b"hunter2" in file.read_bytes()]


def test_user_and_password_in_the_address_are_sent_as_basic(endpoint: Endpoint) -> None:
    load(f"http://user:hunter2@{endpoint.host}/v1")
    assert endpoint.requests[-1].headers["Authorization"] == f"Basic {base64.b64encode(b'user:hunter2').decode()}"


# --- the whole way ---------------------------------------------------------------------------------------------


def test_eval_over_http_measures_what_the_same_vectors_measure(
    calipers: Run, endpoint: Endpoint, pairs: Path, tmp_path: Path
) -> None:
    texts = list(dict.fromkeys(str(row[key]) for row in PAIRS for key in ("sentence1", "sentence2")))
    np.save(tmp_path / "same.npy", expected(texts))
    (tmp_path / "same.txt").write_text("\n".join(texts) + "\n", encoding="utf-8")
    by_http = calipers("eval", "-m", endpoint.url, "--dataset", pairs, "--json", "--model-id", "trigrams")
    by_file = calipers("eval", "-m", tmp_path / "same.npy", "--dataset", pairs, "--json")
    assert (by_http.returncode, by_file.returncode) == (0, 0), by_http.stderr + by_file.stderr
    found, same = json.loads(by_http.stdout), json.loads(by_file.stdout)
    assert found["metrics"] == same["metrics"]
    assert (found["model_id"], found["model_path"]) == ("trigrams", f"{endpoint.url}/v1/embeddings")


# --- what a server says itself ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"CUDA out of memory", "CUDA out of memory"),
        (b'{"error": "CUDA out of memory", "error_type": "backend"}', "CUDA out of memory"),
        (b'{"error": {"message": "CUDA out of memory", "code": 500}}', "CUDA out of memory"),
        (b'{"detail": [{"msg": "CUDA out of memory"}]}', "CUDA out of memory"),
        (b"", "Internal Server Error"),
    ],
    ids=["plain", "TEI", "OpenAI", "FastAPI", "nothing"],
)
def test_a_lasting_fault_keeps_the_words_of_the_server(endpoint: Endpoint, body: bytes, words: str) -> None:
    encoder = load(f"{endpoint.url}/v1")
    endpoint.every = Reply(500, body)
    with pytest.raises(InferenceError, match=rf"did not answer in \d tries: status 500: {words}$"):
        encoder.encode(TEXTS)


def test_status_413_suggests_a_smaller_batch(calipers: Run, endpoint: Endpoint, pairs: Path) -> None:
    reply = endpoint.reply

    def refuse_large(path: str, body: dict[str, Any]) -> Reply:
        texts = body.get("input", body.get("inputs"))
        return Reply(413, b'{"error": "batch size 8 > maximum 4"}') if len(texts) > 4 else reply(path, body)

    endpoint.reply = refuse_large  # type: ignore[method-assign]
    done = calipers("eval", "-m", endpoint.url, "--dataset", pairs, "--no-store")
    assert done.returncode == 4
    assert re.search(r"status 413 \(set --batch-size below \d+\): batch size 8 > maximum 4", done.stderr), done.stderr
    assert calipers("eval", "-m", endpoint.url, "--dataset", pairs, "--no-store", "--batch-size", "4").returncode == 0


def test_status_413_of_one_text_does_not_suggest_a_smaller_batch(endpoint: Endpoint) -> None:
    encoder = load(f"{endpoint.url}/v1", batch_size=1)
    endpoint.every = Reply(413, b"must have less than 512 tokens")
    with pytest.raises(InferenceError, match=r"status 413 \(one text is more than it takes\): must have"):
        encoder.encode(TEXTS)


def test_a_size_that_changes_between_calls_is_invalid(endpoint: Endpoint) -> None:
    encoder = load(f"{endpoint.url}/embed")
    encoder.encode(TEXTS)
    endpoint.spoil = lambda texts, vectors: [v[:8] for v in vectors]
    with pytest.raises(InvalidOutput, match=r"INVALID: .*16 numbers in its first answer, then 8"):
        encoder.encode(["another text"])


def test_a_size_that_changes_is_invalid_on_the_command_line(calipers: Run, endpoint: Endpoint, pairs: Path) -> None:
    endpoint.spoil = lambda texts, vectors: [v[: 16 - len(text) % 2] for text, v in zip(texts, vectors, strict=True)]
    done = calipers("eval", "-m", endpoint.url, "--dataset", pairs, "--json", "--no-store")
    assert done.returncode == 4
    assert "INVALID" in json.loads(done.stderr)["error"]
