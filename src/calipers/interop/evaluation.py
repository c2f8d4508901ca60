"""What the evaluators for sentence-transformers compute: scores of pairs, then figures for pairs or for rankings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calipers.core import SILENT, Document, InferenceError, Outcomes, Progress, RequestError
from calipers.metrics import classification
from calipers.metrics.arrays import Array, Floats
from calipers.metrics.correlation import pearson, spearman
from calipers.tasks import outputs, reranking
from calipers.tasks.reranking import Lists, QueryRow, RerankingOptions

Pair = tuple[str, str]
Scores = NDArray[np.floating[Any]]


# --- scores of pairs ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class PairModel:
    """A CrossEncoder with the arguments of its calls, or a PairScorer, which has prompt and batches of its own."""

    model: object
    prompt_name: str | None
    batch_size: int
    show_progress_bar: bool
    repeats: bool = False  # in the batches of sentence-transformers, which decide the scores where padding leaks

    def score(self, pairs: Sequence[Pair]) -> Scores:
        """[n] or [n, labels], in the model's own type of float, all in one call. Each distinct pair is scored once,
        unless `repeats` are kept."""
        if not pairs:
            return np.zeros(0)
        place = {pair: i for i, pair in enumerate(dict.fromkeys(pairs))}
        scored = list(pairs if self.repeats else place)
        scores = np.asarray(self._call(scored))
        if scores.ndim not in (1, 2) or len(scores) != len(scored):
            raise InferenceError(
                f"the model was called with {len(scored)} pairs and answered with the shape {scores.shape}"
            )
        return scores if self.repeats else scores[[place[pair] for pair in pairs]]

    def _call(self, pairs: list[Pair]) -> Any:
        if hasattr(self.model, "predict"):
            prompt = {} if self.prompt_name is None else {"prompt_name": self.prompt_name}
            return self.model.predict(
                [list(pair) for pair in pairs],
                batch_size=self.batch_size,
                show_progress_bar=self.show_progress_bar,
                convert_to_numpy=True,
                **prompt,
            )
        if not hasattr(self.model, "score"):
            raise RequestError(
                f"expected a model with predict (a CrossEncoder) or score (a PairScorer), found {self.model!r}"
            )
        if self.prompt_name is not None:
            raise RequestError(
                f"prompt_name={self.prompt_name!r} needs a CrossEncoder: give a PairScorer its prompt when it is loaded"
            )
        return self.model.score(pairs, progress=_TqdmProgress() if self.show_progress_bar else SILENT)

    def outputs(self, scores: Scores) -> int:
        """How many scores a pair has: what the model declares, else what the scores show; 1 if there are none."""
        shown = scores.shape[1] if scores.ndim == 2 else 1
        declared = getattr(self.model, "num_labels", None)
        return shown if declared is None else int(declared)


class _TqdmProgress(Progress):
    """The progress bar of sentence-transformers."""

    def start(self, label: str, total: int) -> None:
        from tqdm.auto import tqdm  # type: ignore[import-untyped,unused-ignore]

        self._bar = tqdm(desc=label, total=total)

    def advance(self, count: int) -> None:
        self._bar.update(count)


def _one_score(scores: Scores, what: str) -> Scores:
    """Scores [n]; a ValueError, as in sentence-transformers, where the model has several outputs."""
    try:
        return outputs.one_score(scores, what)
    except RequestError as error:
        raise ValueError(str(error)) from error


# --- figures for pairs -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class PairScores:
    """What an evaluator of pairs reports, metrics in the order of the CSV's headers. Equal scores are valid here: ties
    have a figure, and a model may start its training so."""

    metrics: Mapping[str, Any]
    primary: str
    headers: Sequence[str]
    lines: Sequence[str]
    outcomes: Outcomes


def binary(scores: Scores, labels: Array, *, compat: bool) -> PairScores:
    """`scores` [n] or [n, 1]; `labels` 0 or 1. Without positives NaN, in compat mode 0."""
    score = _one_score(scores, "classification by a threshold")
    ids = _ids(labels)
    outputs.refuse_dead_scores(score, ids)
    accuracy, f1 = classification.best_accuracy(score, labels), classification.best_f1(score, labels)
    figures = {
        "accuracy": accuracy.accuracy,
        "accuracy_threshold": accuracy.threshold,
        "f1": f1.f1,
        "f1_threshold": f1.threshold,
        "precision": f1.precision,
        "recall": f1.recall,
        "average_precision": classification.average_precision(score, labels),
    }
    if compat:
        figures = {key: 0.0 if np.isnan(value) else value for key, value in figures.items()}
    thresholds = {key: value for key, value in figures.items() if key.endswith("_threshold")}
    as_score = score.dtype.type if np.issubdtype(score.dtype, np.floating) else float
    return PairScores(
        # A threshold is a score, and a CSV shows it with the digits of one.
        metrics=figures | {key: as_score(value) for key, value in thresholds.items()},
        primary="average_precision",
        headers=[key.title() for key in figures],
        lines=[_binary_line(key, figures) for key in figures if key not in thresholds],
        outcomes=Outcomes(ids, {"label": labels, "score": score}, counts={"pairs": len(labels), **thresholds}),
    )


def _binary_line(key: str, figures: Mapping[str, float]) -> str:
    label, threshold = key.replace("_", " ").title() + ":", figures.get(f"{key}_threshold")
    tail = "" if threshold is None else f"\t(Threshold: {threshold:.4f})"
    return f"{label:<18} {figures[key] * 100:.2f}{tail}"


def several(scores: Scores, labels: Array, *, compat: bool) -> PairScores:
    """`scores` [n, classes]; `labels` are class numbers. No rows: NaN."""
    ids = _ids(labels)
    if not compat:
        outputs.refuse_dead_scores(scores, ids)
    prediction = scores.argmax(axis=1) if len(labels) else np.zeros(0, dtype=np.int64)
    figures = {
        "Macro": classification.f1_macro(prediction, labels),
        "Micro": classification.f1_micro(prediction, labels),
        "Weighted": classification.f1_weighted(prediction, labels),
    }
    return PairScores(
        metrics={f"f1_{average.lower()}": value for average, value in figures.items()},
        primary="f1_macro",
        headers=[f"{average}_F1" for average in figures],
        lines=[f"{f'{average} F1:':<19} {value * 100:.2f}" for average, value in figures.items()],
        outcomes=Outcomes(ids, {"label": labels, "prediction": prediction}, counts={"pairs": len(labels)}),
    )


def correlation(scores: Scores, gold: Sequence[float], *, compat: bool) -> PairScores:
    """`scores` [n] or [n, 1]. NaN where either is constant, and of fewer than two pairs (compat: a ValueError)."""
    score, target = _one_score(scores, "correlation"), np.asarray(gold, dtype=np.float64)
    ids = _ids(target)
    if compat and len(target) < 2:
        raise ValueError("a correlation needs at least two pairs: sentence-transformers fails here and so does compat")
    if not compat:
        outputs.refuse_dead_scores(score, ids)
        if not np.isfinite(target).all():
            raise ValueError(f"gold scores are not finite in rows {np.flatnonzero(~np.isfinite(target))[:10].tolist()}")
    linear, by_rank = _correlations(target, score.astype(np.float64))
    return PairScores(
        metrics={"pearson": linear, "spearman": by_rank},
        primary="spearman",
        headers=["Pearson_Correlation", "Spearman_Correlation"],
        lines=[f"Correlation:\tPearson: {linear:.4f}\tSpearman: {by_rank:.4f}"],
        outcomes=Outcomes(ids, {"gold": target, "score": score}, counts={"pairs": len(target)}),
    )


def _correlations(gold: Floats, score: Floats) -> tuple[float, float]:
    """Pearson of infinite values is NaN; they do have ranks, which NaN has not."""
    both = np.concatenate([gold, score])
    if len(gold) < 2 or np.isnan(both).any():
        return np.nan, np.nan
    return pearson(gold, score) if np.isfinite(both).all() else np.nan, spearman(gold, score)


def _ids(values: Array) -> tuple[str, ...]:
    return tuple(str(i) for i in range(len(values)))


# --- figures for rankings ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Sample:
    """A query with its lists, and how many positives and negatives it has."""

    id: str
    query: str
    lists: Lists
    positives: int
    negatives: int

    @property
    def pairs(self) -> list[Pair]:
        return [(self.query, text) for text in self.lists.ranked.texts]


def read_sample(row: int, sample: Mapping[str, Any], options: RerankingOptions) -> Sample:
    """In compat mode a sample that sentence-transformers fails on is a ValueError that says so."""
    _check_keys(row, sample)
    positives = [sample["positive"]] if isinstance(sample["positive"], str) else list(sample["positive"] or [])
    documents = [Document(text) for text in sample["documents"] or []] if "documents" in sample else None
    candidates = QueryRow(positives, documents, list(sample.get("negative") or []))
    lists = reranking.make_lists(candidates, options)
    if options.compat and (why := reranking.their_failure(candidates, lists)):
        raise ValueError(
            f"sample {row} {why}: sentence-transformers fails here and so does compat; leave compat out for a figure"
        )
    # Without a relevant candidate no order changes a figure, so nothing need be scored.
    unscored = replace(lists, ranked=replace(lists.ranked, texts=[], relevance=[]))
    return Sample(
        id=str(sample.get("query-id", row)),
        query=sample["query"],
        lists=lists if lists.relevant else unscored,
        positives=len(positives if options.compat else set(positives)),
        negatives=len(lists.ranked.texts) - lists.relevant,
    )


def _check_keys(row: int, sample: Mapping[str, Any]) -> None:
    required = "CrossEncoderRerankingEvaluator requires"
    for key in ("query", "positive"):
        if key not in sample:
            raise ValueError(f"{required} a {key!r} key in each sample: sample {row} has {', '.join(sample)}")
    if ("negative" in sample) == ("documents" in sample):
        has = "both" if "negative" in sample else "neither"
        raise ValueError(f"{required} exactly one of 'negative' and 'documents' in each sample: sample {row} has {has}")


def measure(samples: Sequence[Sample], scores: Scores, options: RerankingOptions) -> Outcomes:
    """Outcomes per query and per document, as in `reranking.run`. `scores` are those of the pairs of all samples."""
    lists, values = [sample.lists for sample in samples], _one_score(scores, "reranking")
    table = reranking.details(lists, values)
    outputs.refuse_dead_scores(values, [samples[i].id for i in table["example"].tolist()])
    columns = reranking.measure(lists, values, options)
    return Outcomes(
        ids=tuple(sample.id for sample in samples),
        # map, mrr@k, ndcg@k, then the base
        columns={name: columns[name] for name in sorted(columns, key=lambda name: (name.startswith("base_"), name))},
        texts={"query": tuple(sample.query for sample in samples)},
        details={"documents": table},
        counts={"queries": len(samples), "pairs": len(values), "without_relevant": int(np.isnan(columns["map"]).sum())},
    )
