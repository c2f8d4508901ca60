"""What a trust score is worth: the tables of docs/trust.md.

    python -m bench.trust_quality --model minilm=FOLDER --model potion=FOLDER [--data icecat --data scifact]
        [--vectors DIR] [--k 10] [--codec int8] [--reranker FOLDER [--rerank-depth 10]]

Each model embeds each BEIR folder of CALIPERS_DATA once; with --vectors the vectors are kept there (and found again:
delete them where a model or the data change). Out-of-domain queries are those of the other folder, and bundled ones.
Intervals are 95 %, over resampled queries; maps are measured out of fold. With a reranker its predictors join, and the
trade of a second stage is printed.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calipers import models
from calipers.core import Dataset
from calipers.data import DataOptions, beir, odd_queries
from calipers.metrics import assessment, calibration, codecs, predictors, search
from calipers.metrics import trust as metrics
from calipers.metrics.abstention import nauc
from calipers.metrics.assessment import Assessment, Detection, IntervalEstimate
from calipers.metrics.trust import TrustParts
from calipers.models import ModelOptions
from calipers.reliability import Trust, mapping
from calipers.reliability.searching import Lexicon

ODD = 200


class Embedder:
    """A model that is loaded when a text comes whose vector is not kept."""

    def __init__(self, name: str, reference: str, folder: Path | None) -> None:
        self.name, self.reference, self.folder = name, reference, folder
        self.model: Any = None

    def __call__(self, key: str, texts: Sequence[str]) -> NDArray[np.float32]:
        file = self.folder / f"vec_{self.name}_{key}.npy" if self.folder else None
        if file and file.is_file():
            found = np.load(file)
            if len(found) == len(texts):
                return np.asarray(found)
        if self.model is None:
            self.model = models.load(models.find(self.reference), ModelOptions())
        found = self.model.encode(texts)
        if file:
            file.parent.mkdir(parents=True, exist_ok=True)
            np.save(file, found)
        return np.asarray(found)


def main() -> None:
    asked = arguments()
    root = Path(os.environ["CALIPERS_DATA"])
    data = {name: beir.load(str(root / name), DataOptions(shuffle=False)) for name in asked.data}
    for given in asked.model:
        name, _, reference = given.partition("=")
        embed = Embedder(name, reference, asked.vectors)
        for place in data:
            for line in report(name, place, data, embed, asked):
                print(line, flush=True)


def report(
    name: str, place: str, data: dict[str, Dataset], embed: Embedder, asked: argparse.Namespace
) -> Iterator[str]:
    rows = data[place]
    corpus = rows.tables["corpus"]
    vectors = embed(f"{place}_corpus", corpus.columns["text"])
    queries = embed(f"{place}_queries", rows.columns["query"])
    nearest = search.nearest(queries, vectors, asked.k)[1]
    labels = metrics.success(nearest, rows.columns["qrels"], corpus.ids)
    codec = codecs.fit(asked.codec, vectors)
    parts = metrics.parts_in(queries, vectors, nearest, codec)
    found = assessment.assess(parts, labels)
    yield f"\n### {name} on {place}\n"
    yield (
        f"{found.count} queries, {len(corpus):,} documents, K = {asked.k}, codec {asked.codec}; "
        f"{found.base_rate:.1%} of the queries have a relevant result among the first {asked.k}.\n"
    )
    yield from qualities(found)
    if not found.reason:
        yield from maps(rows, vectors, queries, nearest, asked)
        yield weights(parts, labels)
    yield from abstention(found)
    yield from detections(place, data, embed, vectors, parts, codec, asked.k)
    yield from stabilities(queries, vectors, nearest, labels)


def qualities(found: Assessment) -> Iterator[str]:
    if found.reason:
        yield found.sentences[0]
        return
    yield "| score | AUROC | Brier | ECE | ECE of chance alone |"
    yield "|---|---|---|---|---|"
    for q in found.qualities:
        yield f"| {q.about} | {told(q.auroc)} | {told(q.brier)} | {told(q.ece)} | {q.honest:.3f} |"
    yield ""
    for sentence in found.sentences:
        yield f"{sentence}  "


def maps(
    rows: Dataset, vectors: NDArray[np.float32], queries: NDArray[np.float32], nearest: Any, asked: argparse.Namespace
) -> Iterator[str]:
    """Every predictor alone, the map of each kind of input, its promise, and the promise on held-out halves."""
    corpus, qrels = rows.tables["corpus"], rows.columns["qrels"]
    deep = predictors.deep_rows(queries, vectors, "cosine")
    lexicon, texts = Lexicon(corpus, load_reranker(asked.reranker)), rows.columns["query"]
    first = deep[:, : max(asked.k, asked.rerank_depth)]
    scores = lexicon.rerank(texts, first) if lexicon.reranker else None
    lexical = lexicon.columns(texts, deep, asked.k, reranked=scores)
    stages: dict[str, Any] = {"qrels": qrels, "corpus_ids": corpus.ids}
    if scores is not None:
        stages["reranked"] = predictors.reordered(first, scores)
    labels = metrics.success(nearest, qrels, corpus.ids)
    quality = metrics.ndcg_of(nearest, qrels, corpus.ids)
    fitted = Trust.fit(vectors, query_vectors=queries, extra=lexical, k=asked.k, codec=asked.codec, **stages)
    calibration_report = fitted.report["calibration"]
    columns = every_column(vectors, queries, nearest, deep, lexical, fitted)
    yield "| predictor | input | AUROC | nAUC of success | nAUC of nDCG@10 |"
    yield "|---|---|---|---|---|"
    for one in calibration_report["predictors"]:
        name = one["name"]
        figures = f"{one['nauc']:.3f} | {nauc(columns[name], quality):.3f}"
        yield f"| {name.replace('_', ' ')} | {one['input']} | {told(IntervalEstimate(**one['auroc']))} | {figures} |"
    yield "\n| map of | chosen on all | AUROC, chosen in the folds | over the top cosine | nAUC of success |"
    yield "|---|---|---|---|---|"
    for kind, one in calibration_report["maps"].items():
        cells = (told(IntervalEstimate(**one[key])) for key in ("auroc", "gain"))
        yield f"| {kind} | {one['chosen']['about'].replace('_', ' ')} | {' | '.join(cells)} | {one['nauc']:.3f} |"
    yield ""
    for kind, one in calibration_report["maps"].items():
        promised = one["promise"]["sentence"] if one["promise"] else "Too few queries to test a promise."
        yield f"{kind}: {one['sentence']} {promised}  "
    yield ""
    yield from trades(calibration_report["maps"])
    judged = metrics.success(judged_rows(deep, qrels, corpus.ids, asked.k), qrels, corpus.ids)
    yield from on_judged_results(vectors, queries, judged, lexical, asked)
    yield from halves(columns, labels, asked)


def judged_rows(deep: Any, qrels: Sequence[Any], ids: Sequence[str], k: int) -> NDArray[np.int64]:
    """The first k results of each query that somebody judged, -1 for none."""
    rows = np.full((len(deep), k), -1)
    for query, results in enumerate(deep.tolist()):
        judged = [row for row in results if row >= 0 and ids[row] in qrels[query]][:k]
        rows[query, : len(judged)] = judged
    return rows


def on_judged_results(
    vectors: Any, queries: Any, labels: Any, lexical: Any, asked: argparse.Namespace
) -> Iterator[str]:
    """The maps where results that nobody judged are skipped: what a pool owes to the engine that made it."""
    share = f"{np.nanmean(labels):.1%} of the queries succeed on judged results alone (the first {asked.k} of them)"
    if calibration.why_not(labels):
        yield f"{share}: {calibration.why_not(labels)}.  "
        return
    fitted = Trust.fit(
        vectors, query_vectors=queries, labels=labels, extra=lexical, k=asked.k, codec=asked.codec
    ).report["calibration"]
    yield f"{share}:\n\n| on judged results | AUROC | over the top cosine |\n|---|---|---|"
    for one in fitted["predictors"]:
        if one["name"] in ("top_score", "margin", "bm25_overlap_10"):
            yield f"| {one['name'].replace('_', ' ')} | {told(IntervalEstimate(**one['auroc']))} | |"
    for kind, one in fitted["maps"].items():
        cells = (told(IntervalEstimate(**one[key])) for key in ("auroc", "gain"))
        yield f"| map of {kind} | {' | '.join(cells)} |"
    yield ""


def load_reranker(reference: str | None) -> Any:
    return models.load_model(reference, ability="score") if reference else None


def trades(fitted_maps: dict[str, Any]) -> Iterator[str]:
    """nDCG@10 kept against rerank calls saved, by the map that decides."""
    given = {kind: one["rerank"] for kind, one in fitted_maps.items() if one["rerank"]}
    for kind, trade in given.items():
        yield f"{kind}: {trade['sentence']}  "
    if given:
        saved = range(0, 101, 20)
        yield f"\n| rerank calls saved | {' | '.join(f'{share} %' for share in saved)} |"
        yield f"|---|{'---|' * len(saved)}"
        for kind, trade in given.items():
            points = {round(100 * (1 - point["calls"])): point["ndcg"] for point in trade["curve"]}
            yield f"| nDCG@10, map of {kind} | {' | '.join(f'{points[share]:.3f}' for share in saved)} |"
        yield ""


def every_column(vectors: Any, queries: Any, nearest: Any, deep: Any, lexical: Any, fitted: Trust) -> dict[str, Any]:
    parts = metrics.parts_in(queries, vectors, nearest, fitted.codec)
    assert parts.cosines is not None
    near = predictors.vector_columns(parts, queries, lambda part: vectors[nearest[part]], fitted.background)
    scores = predictors.score_columns(parts.cosines)
    return {**scores, **near, **predictors.corpus_columns(queries, vectors, deep, fitted.k), **lexical}


def halves(columns: dict[str, Any], labels: NDArray[np.float64], asked: argparse.Namespace) -> Iterator[str]:
    """The promise fitted on one half of the queries, checked on the other, over 30 random halves."""
    yield "| requested error | promised in | broken on the other half | by a standard error or more | answered |"
    yield "|---|---|---|---|---|"
    for error in (0.1, 0.2, 0.3):
        given, broken, clearly, answered = 0, 0, 0, []
        for seed in range(30):
            rows = np.random.default_rng(seed).permutation(len(labels))
            first, other = rows[: len(rows) // 2], rows[len(rows) // 2 :]
            wanted = mapping.MapRequest(asked.k, "logistic", error, 0.95, 5, seed)
            own = {name: column[first] for name, column in columns.items()}
            if calibration.why_not(labels[first]):
                continue
            judged = mapping.JudgedQueries(own, labels[first], mapping.split(labels[first], wanted))
            one = mapping.fit_input("texts", judged, wanted, quality=False)
            if one.promise is None or one.promise.threshold is None:
                continue
            p = one.map({name: column[other] for name, column in columns.items()}, "logistic")
            right = labels[other][p >= one.promise.threshold]
            risk = 1 - right.mean() if len(right) else 0.0
            given, broken = given + 1, broken + (risk > error)
            clearly += risk > error + np.sqrt(error * (1 - error) / max(1, len(right)))
            answered.append(len(right) / len(other))
        share = f"{np.mean(answered):.0%}" if answered else "–"
        yield f"| {error:.0%} | {given} of 30 | {broken} | {clearly} | {share} |"


def weights(parts: TrustParts, labels: NDArray[np.float64]) -> str:
    rows = np.flatnonzero(parts.complete & np.isfinite(labels))
    fitted = calibration.fit_logistic(parts.features[rows], labels[rows])
    each = (
        f"{name.replace('_', ' ')} {weight:+.2f}" for name, weight in zip(metrics.FEATURES, fitted.weights, strict=True)
    )
    return f"Weights of the logistic map, features standardised: {', '.join(each)}."


def abstention(found: Assessment) -> Iterator[str]:
    if found.reason:
        return
    yield "\n| requested error rate | threshold | queries answered | area under risk–coverage |"
    yield "|---|---|---|---|"
    curve = found.risks["logistic"]
    for error in (0.05, 0.1, 0.2):
        threshold = curve.at(error)
        reached = "none reaches it | 0 %" if threshold is None else f"{threshold:.3f} | {curve.covered(threshold):.0%}"
        yield f"| {error:.0%} | {reached} | {curve.area:.3f} |"


def detections(
    place: str,
    data: dict[str, Dataset],
    embed: Embedder,
    vectors: NDArray[np.float32],
    real: TrustParts,
    codec: codecs.Codec,
    k: int,
) -> Iterator[str]:
    own = data[place].tables["corpus"].columns["text"]
    bundled = odd_queries.foreign(own, data[place].columns["query"])
    texts: dict[str, Sequence[str]] = {
        "gibberish": odd_queries.gibberish(ODD),
        "vague": odd_queries.vague(own, ODD),
        **{f"out of domain: {other}": data[other].columns["query"] for other in data if other != place},
        f"out of domain: {', '.join(bundled.domains)}": bundled.queries,
    }
    yield "\n| odd queries | AUROC | by a low R_q alone | by a low top cosine alone | found at 5 % false alarms |"
    yield "|---|---|---|---|---|"
    for kind, some in texts.items():
        other = kind.rpartition(": ")[2]
        key = f"{other}_queries" if other in data else kind if kind == "gibberish" else f"{place}_{kind.split()[0]}"
        asking = embed(key, some)
        parts = metrics.parts_in(asking, vectors, search.nearest(asking, vectors, k)[1], codec)
        yield row(assessment.detect(kind, parts, real))


def row(d: Detection) -> str:
    cells = (told(d.auroc), told(d.by_reliability), told(d.by_top_score), f"{d.found:.0%}")
    return f"| {d.kind} ({d.count}) | {' | '.join(cells)} |"


def stabilities(
    queries: NDArray[np.float32], vectors: NDArray[np.float32], nearest: NDArray[np.int64], labels: NDArray[np.float64]
) -> Iterator[str]:
    """What the codec changes: stability itself, and the AUROC of R_q."""
    yield "\n| codec | bits per dimension | mean G_q | lowest | AUROC of G_q | AUROC of R_q |"
    yield "|---|---|---|---|---|---|"
    from calipers.metrics.probabilities import auroc_statistic

    for name in codecs.CODECS:
        codec = codecs.fit(name, vectors)
        parts = metrics.parts_in(queries, vectors, nearest, codec)
        both = [auroc_statistic(x, labels)(np.ones((len(labels), 1)))[0] for x in (parts.stability, parts.reliability)]
        g = parts.stability
        yield f"| {name} | {codec.bits:g} | {g.mean():.5f} | {g.min():.5f} | {both[0]:.3f} | {both[1]:.3f} |"


def told(found: IntervalEstimate) -> str:
    ends = f" ({found.interval[0]:.3f} to {found.interval[1]:.3f})" if found.interval else ""
    return f"{found.value:.3f}{ends}"


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", action="append", required=True, metavar="NAME=REFERENCE")
    parser.add_argument("--data", action="append", metavar="FOLDER")
    parser.add_argument("--vectors", type=Path, metavar="DIR")
    parser.add_argument("--k", type=int, default=metrics.K)
    parser.add_argument("--reranker", metavar="REFERENCE")
    parser.add_argument("--rerank-depth", type=int, default=0, metavar="N")
    parser.add_argument("--codec", default="int8", choices=list(codecs.CODECS))
    found = parser.parse_args()
    found.data = found.data or ["icecat", "scifact"]
    return found


if __name__ == "__main__":
    main()
