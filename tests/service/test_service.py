"""`calipers serve` as a real process: what it answers, refuses, logs and survives."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from calipers.cli import run
from calipers.reliability import Trust
from calipers.service.app import Service, create_app
from calipers.service.calibration import Calibration, Served
from calipers.service.meters import Meters
from calipers.service.options import ServeOptions
from tests.support.serving import CORPUS, QUERIES, D, K, make_trust, neighbours, served

pytest.importorskip("starlette", reason="needs the extra serve")
pytest.importorskip("uvicorn", reason="needs the extra serve")
NEAR = neighbours(QUERIES[:20])
COSINES = np.einsum("qkd,qd->qk", NEAR, QUERIES[:20])


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("service")
    make_trust(folder / "t.trust")
    return folder


@pytest.fixture(scope="module")
def trust(place: Path) -> Trust:
    return Trust.load(place / "t.trust")


@pytest.fixture(scope="module")
def client(place: Path) -> Iterator[httpx.Client]:
    with served(place / "t.trust", place / "log", "--max-batch", "50", "--max-body", "200000") as (client, _):
        yield client


def vector_body(row: int) -> dict[str, Any]:
    return {"vector": QUERIES[row].tolist(), "neighbours": NEAR[row].tolist()}


def test_scores_and_vectors_are_decided_as_the_library_decides(client: httpx.Client, trust: Trust) -> None:
    by_scores, by_vectors = trust.score_scores(COSINES), trust.score(QUERIES[:20], NEAR)
    batch = [{"scores": COSINES[row].tolist(), "id": str(row)} for row in range(20)]
    batch += [vector_body(row) for row in range(20)]
    answers = client.post("/v1/score", json={"batch": batch}).json()["answers"]
    for row, answer in enumerate(answers):
        own = by_scores if row < 20 else by_vectors
        assert answer["decision"] == own.decision[row % 20]
        assert answer["probability"] == pytest.approx(own.probability[row % 20], abs=1e-6)
        assert answer["map"] == ("scores" if row < 20 else "vectors")
        assert answer["promise"] == "holds"
        assert len(answer["calibration"]) == 16
    assert [answer.get("id") for answer in answers[:20]] == [str(row) for row in range(20)]
    assert client.post("/v1/score", json=vector_body(3)).json()["parts"]["coherence"] is not None


@pytest.mark.parametrize(
    ("body", "status", "why"),
    [
        (b"{", 400, "no JSON"),
        (b"[" * 100_000, 400, "no JSON"),
        (b"\xff\xfe", 400, "no JSON"),
        (b"[1]", 422, "expected a JSON object, found list"),
        (b"{}", 422, "exactly one of"),
        (b'{"scores": [NaN]}', 422, "must be finite, found NaN"),
        (b'{"scores": [1e999, 0, 0, 0, 0, 0, 0, 0, 0, 0]}', 422, "finite"),
        (b'{"scores": ["a", 0, 0, 0, 0, 0, 0, 0, 0, 0]}', 422, "numbers only"),
        (b'{"scores": [true, 0, 0, 0, 0, 0, 0, 0, 0, 0]}', 422, "numbers only"),
        (b'{"scores": [7, 0, 0, 0, 0, 0, 0, 0, 0, 0]}', 422, "cosines"),
        (b'{"scores": [0.1, 0.2]}', 422, "must be 10 numbers, as the calibration was fitted with, found 2"),
        (b'{"scores": [[0.1], 0.2]}', 422, "must be 10 numbers"),
        (b'{"scores": null}', 422, "found a single value"),
        (b'{"vector": [1, 2], "neighbours": []}', 422, "'vector' must be 16 numbers"),
        (b'{"text": "red wine"}', 422, "no model is loaded"),
        (b'{"text": ""}', 422, "not blank"),
        (b'{"text": "a", "scores": []}', 422, "exactly one of"),
        (b'{"scores": [], "more": 1}', 422, "'more' is not a key"),
        (b'{"batch": []}', 422, "a list of queries"),
        (b'{"batch": [3]}', 422, "expected an object, found int"),
        (b'{"batch": ' + json.dumps([{"scores": [0] * 10}] * 51).encode() + b"}", 413, "51 queries is more than"),
        (b" " * 200_001, 413, "more than the limit of 200,000 bytes"),
    ],
)
def test_what_is_wrong_is_one_sentence_and_no_500(client: httpx.Client, body: bytes, status: int, why: str) -> None:
    answer = client.post("/v1/score", content=body)
    assert answer.status_code == status, answer.text
    assert why in answer.json()["error"]
    assert "\n" not in answer.json()["error"]


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"model_fingerprint": "sha256:other"}, "is of another model than the calibration's"),
        ({"corpus_fingerprint": "sha256:other"}, "is of another corpus than the calibration's"),
        ({"vector": (30 * QUERIES[0]).tolist()}, "has length 30"),
        ({"neighbours": (0.01 * NEAR[0]).tolist()}, "has length 0.01"),
    ],
)
def test_vectors_of_another_model_or_corpus_are_refused(client: httpx.Client, change: Any, why: str) -> None:
    answer = client.post("/v1/score", json={**vector_body(0), **change})
    assert (answer.status_code, why in answer.json()["error"]) == (409, True)
    same = {**vector_body(0), "model_fingerprint": "sha256:m", "corpus_fingerprint": "sha256:c"}
    assert client.post("/v1/score", json=same).status_code == 200


def test_operators_see_health_counts_and_a_description(client: httpx.Client) -> None:
    assert client.get("/healthz").json() == {"status": "alive"}
    ready = client.get("/readyz").json()
    assert (ready["status"], ready["k"], ready["dimensions"]) == ("ready", K, D)
    client.post("/v1/score", json={"scores": COSINES[0].tolist()})
    text = client.get("/metrics").text
    for name in ("calipers_requests_total", "calipers_request_seconds_bucket", "calipers_decisions_total"):
        assert f"\n{name}{{" in text
    assert "calipers_promise_void 0" in text
    described = client.get("/openapi.json").json()
    example = described["paths"]["/v1/score"]["post"]["requestBody"]["content"]["application/json"]["example"]
    assert client.post("/v1/score", json=example).status_code == 200
    assert client.get("/nowhere").status_code == 404
    assert client.get("/v1/score").status_code == 405


def test_a_slow_client_is_cut_and_health_stays_quick(place: Path) -> None:
    with served(place / "t.trust", place / "slow", "--request-timeout", "1", "--max-requests", "2") as (client, _):
        slow = []
        for _ in range(2):
            one = socket.create_connection((client.base_url.host, client.base_url.port))
            one.sendall(b"POST /v1/score HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{")
            slow.append(one)
        time.sleep(0.3)
        full = client.post("/v1/score", json={"scores": COSINES[0].tolist()})
        assert (full.status_code, full.headers["retry-after"]) == (503, "1")
        started = time.perf_counter()
        assert client.get("/healthz").status_code == 200
        assert time.perf_counter() - started < 1
        assert b" 408 " in slow[0].recv(1000)
        for one in slow:
            one.close()
        time.sleep(0.2)
        assert client.post("/v1/score", json={"scores": COSINES[0].tolist()}).status_code == 200


def test_health_is_answered_while_a_large_batch_is_scored(place: Path) -> None:
    """The scoring waits until health was answered: in the event loop it would wait in vain."""
    calibration = Calibration(place / "t.trust", Served.read(place / "t.trust"))
    answered, waited, real = threading.Event(), [], calibration.score

    def score(queries: Any) -> Any:
        waited.append(answered.wait(20))
        return real(queries)

    calibration.score = score  # type: ignore[method-assign]
    app = create_app(Service(calibration, ServeOptions()))
    batch = {"batch": [vector_body(row) for row in range(20)]}

    async def both() -> list[int]:
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://service") as client:
            scoring = asyncio.create_task(client.post("/v1/score", json=batch))
            await asyncio.sleep(0.05)
            healthy = await client.get("/healthz")
            answered.set()
            return [healthy.status_code, (await scoring).status_code]

    assert (asyncio.run(both()), waited) == ([200, 200], [True])


def test_health_is_answered_beside_hundreds_of_open_connections(client: httpx.Client) -> None:
    where = (str(client.base_url.host), int(client.base_url.port or 0))
    idle = [socket.create_connection(where) for _ in range(300)]
    try:
        assert client.get("/healthz").status_code == 200
        assert client.post("/v1/score", json={"scores": COSINES[0].tolist()}).status_code == 200
    finally:
        for one in idle:
            one.close()


@pytest.mark.slow
def test_a_new_calibration_is_taken_and_a_broken_one_is_not(place: Path, tmp_path: Path) -> None:
    file = tmp_path / "t"
    make_trust(file, 0.2)
    with served(file, tmp_path / "log") as (client, _):
        first = client.get("/readyz").json()["calibration"]
        file.write_bytes(b"broken")
        time.sleep(1.5)
        assert client.get("/readyz").json()["calibration"] == first
        make_trust(tmp_path / "new", 0.3)
        os.replace(tmp_path / "new", file)
        deadline = time.time() + 10
        while client.get("/readyz").json()["calibration"] == first and time.time() < deadline:
            time.sleep(0.1)
        assert client.get("/readyz").json()["calibration"] != first
        assert client.post("/v1/score", json={"scores": COSINES[0].tolist()}).status_code == 200
    events = [json.loads(line) for line in (tmp_path / "log").read_text().splitlines()]
    messages = [event["message"] for event in events if event["event"] == "calibration"]
    assert "stays" in messages[0]
    assert "takes the place of" in messages[-1]
    assert events[-1]["event"] == "stopped"


def test_shadow_mode_always_answers_and_logs_what_it_would_have_done(place: Path, tmp_path: Path) -> None:
    with served(place / "t.trust", tmp_path / "log", "--shadow") as (client, _):
        answer = client.post("/v1/score", json={"scores": [0.0] * K}).json()
    assert (answer["decision"], answer["shadow_decision"]) == ("answer", "fall back")
    line = next(json.loads(one) for one in (tmp_path / "log").read_text().splitlines() if '"scored"' in one)
    assert line["shadow"] == "fall back"


def test_traffic_that_is_new_makes_the_promise_void(place: Path, tmp_path: Path) -> None:
    with served(place / "t.trust", tmp_path / "log") as (client, _):
        rng = np.random.default_rng(3)
        odd = np.sort(rng.uniform(-1.0, 1.0, size=(50, K)))[:, ::-1]
        answers = client.post("/v1/score", json={"batch": [{"scores": row.tolist()} for row in odd]}).json()["answers"]
        assert answers[0]["promise"] == "holds"
        assert answers[-1]["promise"] == "void"
        assert "calipers_promise_void 1" in client.get("/metrics").text
        assert client.get("/readyz").json()["promise_void"]
    code = run(["trust", "made", "--corpus", "c", "--load", str(place / "t.trust"), "--watch", str(tmp_path / "log")])
    assert code == 1


def test_another_host_needs_a_token_and_requests_must_carry_it(
    place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["serve", "--trust", str(place / "t.trust"), "--host", "0.0.0.0"]) == 2
    assert "--token is needed: --host 0.0.0.0 can be reached from other machines" in capsys.readouterr().err
    (tmp_path / "token").write_text("short")
    assert run(["serve", "--trust", str(place / "t.trust"), "--token", str(tmp_path / "token")]) == 2
    for other, why in (("/dev/zero", "a device"), ("~nobody-here/x", "cannot be read"), (str(tmp_path), "a folder")):
        assert run(["serve", "--trust", str(place / "t.trust"), "--token", other]) == 2
        assert why in capsys.readouterr().err
    (tmp_path / "token").write_text("a-long-enough-secret\n")
    with served(place / "t.trust", tmp_path / "log", "--token", str(tmp_path / "token")) as (client, _):
        body = {"scores": COSINES[0].tolist()}
        assert client.post("/v1/score", json=body).status_code == 401
        wrong = client.post("/v1/score", json=body, headers={"Authorization": "Bearer a-long-enough-secreT"})
        assert wrong.status_code == 401
        right = client.post("/v1/score", json=body, headers={"Authorization": "Bearer a-long-enough-secret"})
        assert right.status_code == 200
        assert client.get("/healthz").status_code == 200


@pytest.mark.slow
def test_a_killed_service_starts_again(place: Path, tmp_path: Path) -> None:
    with served(place / "t.trust", tmp_path / "one") as (client, process):
        before = client.get("/readyz").json()
        process.kill()
        process.wait(10)
    with served(place / "t.trust", tmp_path / "two") as (client, _):
        assert client.get("/readyz").json() == before


def test_texts_are_scored_where_a_model_is_loaded(tmp_path: Path) -> None:
    texts = [f"product {i}" for i in range(500)]
    (tmp_path / "v.txt").write_text(
        "\n".join([*texts, "red wine", "a first question, so that the next ones find everything loaded"]) + "\n"
    )
    np.save(tmp_path / "v.npy", np.concatenate([CORPUS, QUERIES[:2]]))
    (tmp_path / "corpus.txt").write_text("\n".join(texts) + "\n")
    arguments = ["trust", str(tmp_path / "v.npy"), "--corpus", str(tmp_path / "corpus.txt"), "--no-cache"]
    assert run([*arguments, "--save", str(tmp_path / "t")]) == 0
    model = ("--model", str(tmp_path / "v.npy"), "--corpus", str(tmp_path / "corpus.txt"), "--no-cache")
    with served(tmp_path / "t", tmp_path / "log", *model) as (client, _):
        answer = client.post("/v1/search", json={"text": "red wine"}).json()
        assert answer["neighbours"][0]["text"] == texts[int(np.argmax(CORPUS @ QUERIES[0]))]
        assert answer["decision"] in ("hedge", "fall back")  # nothing is calibrated
        assert client.post("/v1/score", json={"batch": [{"text": "red wine"}] * 3}).status_code == 200
        assert client.post("/v1/score", json={"text": "a text without a vector"}).status_code == 422
    log = (tmp_path / "log").read_text()
    assert "red wine" not in log  # its hash is


# --- what clients of vector databases write ----------------------------------------------------------------------


def ask(client: httpx.Client, scores: list[float]) -> dict[str, Any]:
    answer = client.post("/v1/score", json={"scores": scores})
    answer.raise_for_status()
    return dict(answer.json())


def test_the_scores_of_qdrant(client: httpx.Client, trust: Trust) -> None:
    qdrant = pytest.importorskip("qdrant_client", reason="needs qdrant-client")
    database = qdrant.QdrantClient(":memory:")
    kind = qdrant.models.VectorParams(size=D, distance=qdrant.models.Distance.COSINE)
    database.create_collection("products", vectors_config=kind)
    points = [qdrant.models.PointStruct(id=row, vector=vector.tolist()) for row, vector in enumerate(CORPUS)]
    database.upsert("products", points)
    hits = database.query_points("products", query=QUERIES[0].tolist(), limit=K).points
    answer = ask(client, [hit.score for hit in hits])
    assert answer["probability"] == pytest.approx(trust.score_scores(COSINES[:1]).probability[0], abs=1e-4)
    database.close()


def test_the_scores_of_faiss(client: httpx.Client, trust: Trust) -> None:
    import faiss

    index = faiss.IndexFlatIP(D)
    index.add(CORPUS)
    scores, _ = index.search(QUERIES[:1], K)
    answer = ask(client, scores[0].tolist())
    assert answer["probability"] == pytest.approx(trust.score_scores(COSINES[:1]).probability[0], abs=1e-4)


@pytest.mark.slow
def test_schemathesis_finds_no_500(place: Path, tmp_path: Path) -> None:
    """Cases that are made from the description; `bench/serve.py --cases 10000` runs more."""
    pytest.importorskip("schemathesis", reason="needs schemathesis")
    with served(place / "t.trust", tmp_path / "log") as (client, _):
        tool = str(Path(sys.executable).with_name("schemathesis"))
        command = [tool, "run", f"{client.base_url}/openapi.json", "--checks", "not_a_server_error"]
        command += ["--max-examples", "300", "--no-color", "--generation-database", "none"]
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stdout[-2000:]


def test_labels_of_meters_and_lines_of_the_log_are_escaped(place: Path, tmp_path: Path) -> None:
    meters = Meters()
    meters.count("x_total", map='a"b\\\n\x1b')
    assert meters.text({}).splitlines()[1] == 'x_total{map="a\\"b\\\\ \ufffd"} 1'
    with served(place / "t.trust", tmp_path / "log") as (client, _):
        odd = "\\ud800\\u202e\\u009b31m"
        content = f'{{"id": "{odd}", "scores": {[0.0] * K}}}'
        answer = client.post("/v1/score", content=content)
    assert (answer.status_code, answer.json()["id"]) == (200, "\ud800\u202e\x9b31m")
    assert odd in answer.text
    assert odd in (tmp_path / "log").read_text("utf-8")
