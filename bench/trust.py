"""Microseconds per query of a trust score: K = 10 neighbours, 384 dimensions, against a plain numpy loop.

    python -m bench.trust [--queries 10000] [--rounds 50] [--codec int8]

Neighbours are known beforehand. "score" is stability, coherence, reliability, top cosine and margin; "calibrated" adds
the probability by the logistic map, a detector and the decision. The loop takes a query at a time and every pair of its
neighbours, with numpy for each cosine, as the formulas read; it runs on some of the queries. The best of the rounds
counts, in time on the clock and in CPU time of this process, which on a busy machine tells more.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.common.entries import Entry, record
from calipers.metrics import codecs
from calipers.metrics import trust as metrics
from calipers.reliability import Trust

D, K = 384, 10
LOOPED = ALONE = 20  # few, so that a round fits between two turns of the scheduler


def cosine(a: NDArray[Any], b: NDArray[Any]) -> float:
    return float(np.dot(a, b) / (np.linalg.norm(a) * np.linalg.norm(b)))


def loop(queries: NDArray[Any], neighbours: NDArray[Any], codec: codecs.Codec) -> NDArray[np.float64]:
    """R_q, one query and one pair at a time."""
    found = []
    for query, near in zip(queries, neighbours, strict=True):
        g = cosine(query, codec.decode(codec.encode(query[None]))[0])
        pairs = [cosine(near[i], near[j]) for i in range(K) for j in range(i + 1, K)]
        i = sum(pairs) / len(pairs)
        top = max(cosine(query, x) for x in near)
        assert -1 <= top <= 1.000001
        found.append(2 * g * i / (g + i) if g > 0 and i > 0 else 0.0)
    return np.array(found)


def made(count: int, seed: int) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Queries, and neighbours that lie around them, as a search would give."""
    rng = np.random.default_rng(seed)
    queries = rng.normal(size=(count, D)).astype(np.float32)
    spread = rng.uniform(0.5, 3.0, size=(count, 1, 1)).astype(np.float32)
    return queries, queries[:, None] + spread * rng.normal(size=(count, K, D)).astype(np.float32)


def fitted(codec: str) -> Trust:
    rng = np.random.default_rng(1)
    corpus = rng.normal(size=(3000, D)).astype(np.float32)
    queries = corpus[:400] + rng.uniform(0, 3, size=(400, 1)).astype(np.float32) * rng.normal(size=(400, D))
    labels = (rng.random(400) < 0.5).astype(np.float64)
    odd = {"gibberish": rng.normal(size=(200, D)).astype(np.float32) + 1}
    return Trust.fit(corpus, query_vectors=queries, labels=labels, odd=odd, codec=codec)


def best(work: Callable[[], Any], rounds: int) -> tuple[float, float]:
    """Seconds on the clock and of CPU, each the best of the rounds."""
    found = []
    for _ in range(rounds):
        wall, cpu = time.perf_counter(), time.process_time()
        work()
        found.append((time.perf_counter() - wall, time.process_time() - cpu))
    return min(w for w, _ in found), min(c for _, c in found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--queries", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--codec", choices=list(codecs.CODECS), default="int8")
    asked = parser.parse_args()
    trust = fitted(asked.codec)
    queries, near = made(asked.queries, 2)
    few = slice(0, min(LOOPED, asked.queries))
    ours = metrics.parts(queries[few], near[few], trust.codec).reliability
    gap = float(np.abs(ours - loop(queries[few], near[few], trust.codec)).max())
    print(f"K = {K}, d = {D}, codec {asked.codec}; R_q differs from the loop's by at most {gap:.1e}")
    one = range(min(ALONE, asked.queries))

    def alone(score: Callable[[NDArray[Any], NDArray[Any]], Any]) -> Callable[[], None]:
        def work() -> None:
            for i in one:
                score(queries[i : i + 1], near[i : i + 1])

        return work

    def parts(q: NDArray[Any], n: NDArray[Any]) -> Any:
        return metrics.parts(q, n, trust.codec)

    rows = (
        ("plain numpy loop", len(queries[few]), lambda: loop(queries[few], near[few], trust.codec)),
        ("score, one at a time", len(one), alone(parts)),
        ("calibrated, one at a time", len(one), alone(trust.score)),
        (f"score, {asked.queries:,} at once", len(queries), lambda: parts(queries, near)),
        (f"calibrated, {asked.queries:,} at once", len(queries), lambda: trust.score(queries, near)),
    )
    slow, entries = 0.0, []
    print(f"{'':32} {'µs per query':>14} {'CPU µs':>10} {'loop / this (CPU)':>18}")
    for name, count, work in rows:
        rounds = asked.rounds if count <= ALONE else max(3, asked.rounds // 10)
        wall, cpu = (1e6 * seconds / count for seconds in best(work, rounds))
        slow = slow or cpu
        print(f"{name:32} {wall:14.1f} {cpu:10.1f} {slow / cpu:18.1f}", flush=True)
        peer = "plain numpy loop, CPU time of both"
        entries.append(
            Entry(f"trust score, a query: {name}", peer, cpu / 1e6, slow / cpu, agreement=f"within {gap:.0e}")
        )
    record(entries[1:])


if __name__ == "__main__":
    main()
