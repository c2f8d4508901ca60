"""The service under load: the figures of docs/service.md.

    python -m bench.serve [--seconds 5] [--model M --corpus BEIR] [--soak MINUTES] [--cases N]

A trust score of random vectors (K = 10, d = 384) is served by the real command on loopback. Clients are threads of this
process with a connection each, so that both share the machine; /healthz is asked by a process of its own. With --model
and --corpus texts are sent to a service that has loaded them. With --soak the memory of the server is read before and
after; with --cases schemathesis sends at least that many cases made from the description. --no-load skips the tables.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import signal
import subprocess
import sys
import sysconfig
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path

import numpy as np

from calipers.metrics import search
from calipers.reliability import Trust

D, K = 384, 10
RNG = np.random.default_rng(0)


class Server:
    """`calipers serve` in a process of its own."""

    def __init__(self, trust: Path, *arguments: str) -> None:
        self.log = trust.with_suffix(".log")
        command = [sys.executable, "-m", "calipers", "serve", "--trust", str(trust), "--port", "0", *arguments]
        started = time.perf_counter()
        with self.log.open("wb") as file:
            self.process = subprocess.Popen(command, stderr=file)
        while '"listening"' not in self.log.read_text():
            assert self.process.poll() is None, self.log.read_text()
            time.sleep(0.02)
        self.started = time.perf_counter() - started
        self.port = json.loads(self.log.read_text().splitlines()[0])["port"]

    def memory(self) -> float:
        """Resident, in MB."""
        pages = int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / 1e6

    def stop(self, number: int = signal.SIGTERM) -> None:
        self.process.send_signal(number)
        self.process.wait(30)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--soak", type=float, default=0, metavar="MINUTES")
    parser.add_argument("--cases", type=int, default=0)
    parser.add_argument("--model", metavar="M")
    parser.add_argument("--corpus", type=Path, metavar="BEIR")
    parser.add_argument("--no-load", action="store_true", help="only --soak and --cases")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        trust, bodies = prepare(Path(folder))
        server = Server(trust)
        print(f"ready in {server.started:.1f} s, {server.memory():.0f} MB\n")
        print("| body | clients | answers a second | p50 ms | p99 ms | other statuses |\n|---|---|---|---|---|---|")
        if not chosen.no_load:
            run_loads(server, bodies, chosen.seconds)
        if chosen.model:
            run_texts(Path(folder), chosen)
        if chosen.soak:
            load(server, "warming, one of scores", bodies["one of scores"], 4, 20)
            before = server.memory()
            load(server, "soak, one of scores", bodies["one of scores"], 4, 60 * chosen.soak)
            after = server.memory()
            grown = f"{after / before - 1:+.2%}"
            print(f"memory {before:.1f} MB before, {after:.1f} MB after {chosen.soak:g} minutes ({grown})", flush=True)
        if chosen.cases:
            fire(server, chosen.cases)
        server.stop(signal.SIGKILL)
        again = Server(trust)
        print(f"after kill -9 it is ready again in {again.started:.1f} s")
        again.stop()


def run_loads(server: Server, bodies: dict[str, bytes], seconds: float) -> None:
    for name, body in bodies.items():
        for clients in (1, 8, 64):
            load(server, name, body, clients, seconds)
    for name in ("one of scores", "100 of scores", "one of vectors"):
        overload(server, name, bodies[name], seconds)


def run_texts(folder: Path, chosen: argparse.Namespace) -> None:
    """A service of its own, with a model and its corpus."""
    where = ["--corpus", str(chosen.corpus), "--no-cache"]
    save = [sys.executable, "-m", "calipers", "trust", chosen.model, *where, "--save", str(folder / "texts.trust")]
    subprocess.run(save, check=True, stdout=subprocess.DEVNULL)
    server = Server(folder / "texts.trust", "--model", chosen.model, *where)
    with (chosen.corpus / "queries.jsonl").open(encoding="utf-8") as file:
        text = json.loads(next(file))["text"]
    for clients in (1, 8, 64):
        load(server, "one text", json.dumps({"text": text}).encode(), clients, chosen.seconds)
    server.stop()


def prepare(folder: Path) -> tuple[Path, dict[str, bytes]]:
    centres = RNG.normal(size=(50, D))
    corpus = (np.repeat(centres, 20, axis=0) + RNG.normal(size=(1000, D))).astype(np.float32)
    corpus /= np.linalg.norm(corpus, axis=1, keepdims=True)
    queries = (centres[RNG.integers(0, 50, 300)] + RNG.normal(size=(300, D))).astype(np.float32)
    queries /= np.linalg.norm(queries, axis=1, keepdims=True)
    Trust.fit(corpus, query_vectors=queries, labels=(RNG.random(300) < 0.9).astype(float)).save(folder / "t.trust")
    rows = search.nearest(queries, corpus, K)[1]
    scores = [{"scores": (corpus[rows[i]] @ queries[i]).round(6).tolist()} for i in range(100)]
    vectors = {"vector": queries[0].tolist(), "neighbours": corpus[rows[0]].tolist()}
    documents = {"one of scores": scores[0], "100 of scores": {"batch": scores}, "one of vectors": vectors}
    return folder / "t.trust", {name: json.dumps(document).encode() for name, document in documents.items()}


def load(server: Server, name: str, body: bytes, clients: int, seconds: float) -> None:
    times: list[float] = []
    statuses: Counter[int] = Counter()
    stop = time.perf_counter() + seconds

    def work() -> None:
        connection = http.client.HTTPConnection("127.0.0.1", server.port)
        while time.perf_counter() < stop:
            started = time.perf_counter()
            connection.request("POST", "/v1/score", body, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            answer.read()
            times.append(time.perf_counter() - started)
            statuses[answer.status] += 1
        connection.close()

    threads = [threading.Thread(target=work) for _ in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    median, high = np.quantile(times, [0.5, 0.99]) * 1000
    others = ", ".join(f"{status}: {count}" for status, count in statuses.items() if status != 200) or "none"
    print(f"| {name} | {clients} | {statuses[200] / seconds:.0f} | {median:.2f} | {high:.2f} | {others} |", flush=True)


def overload(server: Server, name: str, body: bytes, seconds: float) -> None:
    """Five times as many clients as the service takes: refused ones at once, and health in between."""
    thread = threading.Thread(target=load, args=(server, f"five times its limit, {name}", body, 320, seconds))
    thread.start()
    time.sleep(seconds / 4)
    probe = [sys.executable, "-c", PROBE, str(server.port), str(seconds / 2)]
    print(subprocess.run(probe, check=True, capture_output=True, text=True).stdout.strip(), flush=True)
    thread.join()


PROBE = """
import http.client, sys, time
statuses, times, stop = set(), [], time.perf_counter() + float(sys.argv[2])
while time.perf_counter() < stop:
    started = time.perf_counter()
    connection = http.client.HTTPConnection("127.0.0.1", int(sys.argv[1]))
    connection.request("GET", "/healthz")
    statuses.add(connection.getresponse().status)
    times.append(1000 * (time.perf_counter() - started))
    connection.close()
    time.sleep(0.02)
times.sort()
print(f"/healthz meanwhile: {sorted(statuses)}, median {times[len(times) // 2]:.1f} ms, highest {times[-1]:.1f} ms")
"""


def fire(server: Server, cases: int) -> None:
    tool = str(Path(sysconfig.get_path("scripts")) / "schemathesis")
    command = [tool, "run", f"http://127.0.0.1:{server.port}/openapi.json", "--max-examples", str(cases)]
    command += ["--checks", "not_a_server_error", "--no-color", "--generation-database", "none"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=server.log.parent)
    print("\n".join(done.stdout.splitlines()[-25:]))


if __name__ == "__main__":
    main()
