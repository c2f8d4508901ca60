"""sentence-transformers' four evaluators for cross-encoders: same names, signatures, keys, CSV files and log lines.

They take a CrossEncoder or any of our PairScorers, and serve as `evaluator=` of a CrossEncoderTrainer. All pairs of a
run are scored in one call, repeated ones once; what came out of each example stays on the evaluator as `outcomes`, so
that two models can be compared. A PairScorer has batches of its own, and refuses a `prompt_name`.

`compat="sentence-transformers"` gives the figures of 6.2.0 to 1e-9, and an error where it fails. The default differs:

- Reranking: positives that the documents lack count in the ideal, so a model that keeps the order changes no figure.
  Tied documents have the expected value of all their orders. A text counts once in a query. A query without positives
  is left out of the means, and counted (`outcomes.counts["without_relevant"]`). A lone positive scores 1, before and
  after; so do positives of empty documents, or 0 with `always_rerank_positives=False`, which ranks nothing.
- Classification without positives: F1, its precision, recall and threshold, and average precision are NaN, not 0.
- Correlation of fewer than two pairs is NaN; so it is, in both modes, where either side is constant.
- No samples: NaN for every key and a warning in the log, which a trainer survives (it never takes NaN for the best).
- NaN or infinite scores are InvalidOutput with the examples.
"""

from __future__ import annotations

import csv
import logging
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from calipers.core import CalipersError, Outcomes
from calipers.core.errors import install
from calipers.data import nanobeir
from calipers.interop import evaluation
from calipers.interop.evaluation import Pair, PairModel, PairScores, Sample, Scores
from calipers.metrics.ranking import mean_over_queries
from calipers.tasks.nanobeir import SETS, USUAL
from calipers.tasks.reranking import COMPAT, RerankingOptions

try:
    from sentence_transformers.base.evaluation import BaseEvaluator
except ModuleNotFoundError as error:
    if error.name == "sentence_transformers":
        raise ModuleNotFoundError(
            f"calipers.interop.sentence_transformers needs sentence-transformers: {install('torch')}"
        ) from error
    from sentence_transformers.evaluation import SentenceEvaluator as BaseEvaluator  # before version 6

__all__ = [
    "CrossEncoderClassificationEvaluator",
    "CrossEncoderCorrelationEvaluator",
    "CrossEncoderNanoBEIREvaluator",
    "CrossEncoderRerankingEvaluator",
]

Compat = Literal["sentence-transformers"] | None
logger = logging.getLogger("calipers.interop.sentence_transformers")


@dataclass(frozen=True)
class _Call:
    """One call of an evaluator: the model, the folder of its CSV file, and where the training is (-1: nowhere)."""

    model: Any
    output_path: str | None
    epoch: float
    steps: int

    def __str__(self) -> str:
        if self.epoch == -1:
            return ""
        return f" after epoch {self.epoch}" if self.steps == -1 else f" in epoch {self.epoch} after {self.steps} steps"


class _Evaluator(BaseEvaluator):  # type: ignore[misc]  # sentence-transformers is not read by mypy here
    """What the four share. `outcomes` is what came out of each example in the last call."""

    name: str
    csv_file: str
    csv_headers: Sequence[str]
    outcomes: Any = None
    _title: str
    _line_end = "\r\n"

    def __init__(
        self, name: str, calling: tuple[str | None, int, bool | None], write_csv: bool, compat: Compat
    ) -> None:
        super().__init__()
        if compat not in (None, COMPAT):
            raise ValueError(f"compat must be None or {COMPAT!r}, found {compat!r}")
        self.name, self.write_csv, self.compat = name, write_csv, compat
        self.prompt_name, self.batch_size, show = calling
        verbose = logger.getEffectiveLevel() in (logging.INFO, logging.DEBUG)
        self.show_progress_bar = verbose if show is None else show

    def _pair_model(self, model: object) -> PairModel:
        compat = self.compat is not None
        return PairModel(model, self.prompt_name, self.batch_size, self.show_progress_bar, repeats=compat)

    def _finish(self, call: _Call, metrics: Mapping[str, float], row: Sequence[float]) -> dict[str, float]:
        """Metrics under the name of the evaluator, also in its CSV file and on the card of a model that has one."""
        if self.write_csv and call.output_path is not None:
            self._append(Path(call.output_path) / self.csv_file, [call.epoch, call.steps, *row])
        named: dict[str, float] = self.prefix_name_to_metrics(dict(metrics), self.name)
        if hasattr(call.model, "model_card_data"):
            card = self.prefix_name_to_metrics(_for_card(metrics), self.name)
            self.store_metrics_in_model_card_data(call.model, card, call.epoch, call.steps)
        return named

    def _append(self, path: Path, row: Sequence[float]) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        rows = [row] if path.is_file() else [self.csv_headers, row]
        with path.open("a", newline="", encoding="utf-8") as stream:
            csv.writer(stream, lineterminator=self._line_end).writerows(rows)

    def _warn_if_empty(self, examples: Sequence[Any]) -> None:
        if not len(examples) and self.compat:
            raise ValueError("there is nothing to evaluate: sentence-transformers fails here and so does compat")
        if not len(examples):
            logger.warning(f"{type(self).__name__}: there is nothing to evaluate, so every figure is NaN")


def _for_card(metrics: Mapping[str, float]) -> dict[str, Any]:
    """Metrics as the model card shows them: with the gain over the base, where there is one.

    >>> _for_card({"map": 0.5, "base_map": 0.25})
    {'map': '0.5000 (+0.2500)'}
    """
    gains = {key: value - metrics[f"base_{key}"] for key, value in metrics.items() if f"base_{key}" in metrics}
    return {key: f"{metrics[key]:.4f} ({gain:+.4f})" for key, gain in gains.items()} or dict(metrics)


# --- rankings ----------------------------------------------------------------------------------------------------


class _RankingEvaluator(_Evaluator):
    """What the two evaluators of rankings share: the CSV columns, and three log lines."""

    def _set_depth(self, at_k: int, always_rerank_positives: bool) -> None:
        self.at_k, self.always_rerank_positives = at_k, always_rerank_positives
        self.csv_headers = ["epoch", "steps", "MAP", f"MRR@{at_k}", f"NDCG@{at_k}"]
        self.primary_metric = f"ndcg@{at_k}"

    def _conclude(self, call: _Call, metrics: Mapping[str, float]) -> dict[str, float]:
        k, gap = self.at_k, " " * len(str(self.at_k))
        has_base = "base_map" in metrics
        if has_base:
            logger.info(f"{gap}       Base  -> Reranked")
        for label, key in ((f"MAP:{gap}  ", "map"), (f"MRR@{k}: ", f"mrr@{k}"), (f"NDCG@{k}:", f"ndcg@{k}")):
            base = f"{metrics[f'base_{key}'] * 100:.2f} -> " if has_base else ""
            logger.info(f"{label} {base}{metrics[key] * 100:.2f}")
        return self._finish(call, metrics, [metrics[key] for key in ("map", f"mrr@{k}", f"ndcg@{k}")])


class CrossEncoderRerankingEvaluator(_RankingEvaluator):
    """How well a model reranks the documents of a query: `map`, `mrr@k`, `ndcg@k` (primary), and `base_…` of the same.

    A sample has `query`, `positive` (a text or several) and either `negative` texts or `documents`, best first; only
    the latter give a base. `always_rerank_positives` adds the positives that the documents lack.
    `outcomes`: `calipers.core.Outcomes` with a column for each metric, a value for each query (NaN: none).
    """

    def __init__(
        self,
        samples: list[dict[str, Any]] | dict[Any, dict[str, Any]],
        at_k: int = 10,
        always_rerank_positives: bool = True,
        name: str = "",
        prompt_name: str | None = None,
        batch_size: int = 64,
        show_progress_bar: bool = False,
        write_csv: bool = True,
        mrr_at_k: int | None = None,
        compat: Compat = None,
    ) -> None:
        super().__init__(name, (prompt_name, batch_size, show_progress_bar), write_csv, compat)
        self.samples = list(samples.values()) if isinstance(samples, dict) else samples
        if mrr_at_k is not None:
            logger.warning(f"The `mrr_at_k` parameter has been deprecated; please use `at_k={mrr_at_k}` instead.")
        self._set_depth(at_k if mrr_at_k is None else mrr_at_k, always_rerank_positives)
        self.csv_file = f"CrossEncoderRerankingEvaluator{'_' if name else ''}{name}_results_@{self.at_k}.csv"

    def __call__(
        self, model: Any, output_path: str | None = None, epoch: float = -1, steps: int = -1
    ) -> dict[str, float]:
        call, samples = _Call(model, output_path, epoch, steps), self._read()
        scores = self._pair_model(model).score([pair for sample in samples for pair in sample.pairs])
        return self._report(call, samples, scores)

    @property
    def _options(self) -> RerankingOptions:
        return RerankingOptions(self.at_k, self.always_rerank_positives, compat=self.compat)

    def _read(self) -> list[Sample]:
        self._warn_if_empty(self.samples)
        return [evaluation.read_sample(row, sample, self._options) for row, sample in enumerate(self.samples)]

    def _report(self, call: _Call, samples: Sequence[Sample], scores: Scores) -> dict[str, float]:
        logger.info(f"CrossEncoderRerankingEvaluator: Evaluating the model on the {self.name} dataset{call}:")
        self.outcomes: Outcomes = evaluation.measure(samples, scores, self._options)
        sizes = {"Positives": [s.positives for s in samples], "Negatives": [s.negatives for s in samples]}
        parts = [
            f"{label}: Min {min(counts):.1f}, Mean {sum(counts) / len(counts):.1f}, Max {max(counts):.1f}"
            for label, counts in sizes.items()
            if counts
        ]
        logger.info("\t".join([f"Queries: {len(samples)}", *parts]))
        columns = self.outcomes.columns.items()
        return self._conclude(call, {name: mean_over_queries(values).value for name, values in columns})

    def get_config_dict(self) -> dict[str, Any]:
        has_documents = self.samples and "documents" in self.samples[0]
        depth = {"always_rerank_positives": self.always_rerank_positives} if has_documents else {}
        return {"at_k": self.at_k, **depth}


class CrossEncoderNanoBEIREvaluator(_RankingEvaluator):
    """Reranking of BM25's first `rerank_k` documents on the sets of NanoBEIR: each set, and `aggregate_fn` over sets.

    `dataset_id` is a hub id or a folder of that layout. Keys: `Nano{Set}_R{rerank_k}_{metric}` and
    `NanoBEIR_R{rerank_k}_{aggregate_key}_{metric}`; `ndcg@k` of the latter is primary.
    `outcomes`: name of the set → `calipers.core.Outcomes`, with the ids of its queries.
    """

    _line_end = "\n"

    def __init__(
        self,
        dataset_names: list[str] | None = None,
        dataset_id: str = "sentence-transformers/NanoBEIR-en",
        rerank_k: int = 100,
        at_k: int = 10,
        always_rerank_positives: bool = True,
        prompt_name: str | None = None,
        batch_size: int = 32,
        show_progress_bar: bool = False,
        write_csv: bool = True,
        aggregate_fn: Callable[[list[float]], float] = np.mean,
        aggregate_key: str = "mean",
        compat: Compat = None,
    ) -> None:
        name = f"NanoBEIR_R{rerank_k:d}_{aggregate_key}"
        super().__init__(name, (prompt_name, batch_size, show_progress_bar), write_csv, compat)
        self.dataset_names = list(USUAL) if dataset_names is None else dataset_names
        if not self.dataset_names:
            raise ValueError("dataset_names cannot be empty: leave it out (None) for the usual sets.")
        if unknown := [name for name in self.dataset_names if name.lower() not in SETS]:
            raise ValueError(f"{', '.join(unknown)}: no NanoBEIR dataset; expected some of {', '.join(SETS)}.")
        self.dataset_id, self.rerank_k = dataset_id, rerank_k
        self._set_depth(at_k, always_rerank_positives)
        self.aggregate_fn, self.aggregate_key = aggregate_fn, aggregate_key
        self.evaluators = [self._load(f"Nano{SETS[name.lower()]}") for name in self.dataset_names]
        self.csv_file = f"NanoBEIR_evaluation_{aggregate_key}_results.csv"

    def _load(self, split: str) -> CrossEncoderRerankingEvaluator:
        return CrossEncoderRerankingEvaluator(
            _nanobeir_samples(self.dataset_id, split, self.rerank_k, compat=self.compat is not None),
            at_k=self.at_k,
            always_rerank_positives=self.always_rerank_positives,
            name=f"{split}_R{self.rerank_k}",
            prompt_name=self.prompt_name,
            batch_size=self.batch_size,
            show_progress_bar=self.show_progress_bar,
            write_csv=self.write_csv,
            compat=self.compat,
        )

    def __call__(
        self, model: Any, output_path: str | None = None, epoch: float = -1, steps: int = -1, *args: Any, **kwargs: Any
    ) -> dict[str, float]:
        call = _Call(model, output_path, epoch, steps)
        logger.info(f"NanoBEIR Evaluation of the model on {self.dataset_names} dataset{call}:")
        per_set = self._each_set(call)
        logger.info("CrossEncoderNanoBEIREvaluator: Aggregated Results:")
        named = {key: value for metrics in per_set.values() for key, value in metrics.items()}
        return {**named, **self._conclude(call, self._aggregate(per_set))}

    def _each_set(self, call: _Call) -> dict[str, dict[str, float]]:
        """Name of the set → its metrics."""
        samples = [evaluator._read() for evaluator in self.evaluators]
        scores = self._score_sets(call.model, [[pair for sample in part for pair in sample.pairs] for part in samples])
        metrics = {}
        for evaluator, sample, part in zip(self.evaluators, samples, scores, strict=True):
            logger.info(f"Evaluating {evaluator.name}")
            metrics[evaluator.name] = evaluator._report(call, sample, part)
            logger.info("")
        self.outcomes: dict[str, Outcomes] = {evaluator.name: evaluator.outcomes for evaluator in self.evaluators}
        return metrics

    def _score_sets(self, model: object, sets: Sequence[Sequence[Pair]]) -> list[Scores]:
        """The pairs of all sets are scored together, in compat mode each set by itself, in the batches of theirs."""
        pair_model = self._pair_model(model)
        if self.compat:
            return [pair_model.score(pairs) for pairs in sets]
        scores = pair_model.score([pair for pairs in sets for pair in pairs])
        return np.split(scores, np.cumsum([len(pairs) for pairs in sets])[:-1])

    def _aggregate(self, per_set: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
        values: dict[str, list[float]] = {}
        for name, metrics in per_set.items():
            for key, value in metrics.items():
                values.setdefault(key.removeprefix(f"{name}_"), []).append(value)
        return {key: self.aggregate_fn(of_sets) for key, of_sets in values.items()}

    def get_config_dict(self) -> dict[str, Any]:
        keys = ("dataset_names", "dataset_id", "rerank_k", "at_k", "always_rerank_positives")
        return {key: getattr(self, key) for key in keys}


def _nanobeir_samples(dataset_id: str, split: str, rerank_k: int, *, compat: bool) -> list[dict[str, Any]]:
    """One sample for each query that BM25 ranked. Positives come in the order of the judgements; in compat mode in the
    order of a Python set, which decides ties."""
    try:
        nano_set = nanobeir.read_set(dataset_id, split, rerank_k)
    except CalipersError as error:
        raise ValueError(str(error)) from error
    for note in nano_set.notes:
        logger.warning(note)
    return [
        {
            "query-id": row.id,
            "query": row.query,
            # iter: a set that grows as theirs does has the same order; one made of a mapping is sized beforehand.
            "positive": [row.positives[id] for id in (set(iter(row.positives)) if compat else row.positives)],
            "documents": list(row.documents),
        }
        for row in nano_set.rows
    ]


# --- pairs -------------------------------------------------------------------------------------------------------


class _PairEvaluator(_Evaluator):
    """What the two evaluators of pairs share: a call. `outcomes` are `calipers.core.Outcomes`."""

    def _set_pairs(self, sentence_pairs: list[list[str]], values: Sequence[Any], what: str) -> None:
        if (pairs := len(sentence_pairs)) != len(values):
            raise ValueError(f"sentence_pairs and {what} must have the same length: found {pairs} and {len(values)}")
        self.sentence_pairs = sentence_pairs
        self.csv_file = f"{self._title}{'_' if self.name else ''}{self.name}_results.csv"

    @abstractmethod
    def _measure(self, model: PairModel, scores: Scores) -> PairScores: ...

    def __call__(
        self, model: Any, output_path: str | None = None, epoch: float = -1, steps: int = -1
    ) -> dict[str, float]:
        call, pair_model = _Call(model, output_path, epoch, steps), self._pair_model(model)
        logger.info(f"{self._title}: Evaluating the model on {self.name} dataset{call}:")
        self._warn_if_empty(self.sentence_pairs)
        result = self._measure(pair_model, pair_model.score([(a, b) for a, b in self.sentence_pairs]))
        self.outcomes: Outcomes = result.outcomes
        self.csv_headers, self.primary_metric = ["epoch", "steps", *result.headers], result.primary
        for line in result.lines:
            logger.info(line)
        return self._finish(call, result.metrics, list(result.metrics.values()))


class CrossEncoderClassificationEvaluator(_PairEvaluator):
    """How well a model tells the class of a pair. One output, labels 0 and 1: `accuracy` and `f1` at their best
    thresholds, `precision` and `recall` at the one of F1, `average_precision` (primary); ties stay together. Several
    outputs, the highest counts: `f1_macro` (primary), `f1_micro`, `f1_weighted`. Figures are in 0–1.
    `outcomes`: `calipers.core.Outcomes` with `label`, and `score` or `prediction`, of each pair."""

    _title = "CrossEncoderClassificationEvaluator"

    def __init__(
        self,
        sentence_pairs: list[list[str]],
        labels: list[int],
        *,
        name: str = "",
        prompt_name: str | None = None,
        batch_size: int = 32,
        show_progress_bar: bool | None = None,
        write_csv: bool = True,
        compat: Compat = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(name, (prompt_name, batch_size, show_progress_bar), write_csv, compat)
        self._set_pairs(sentence_pairs, labels, "labels")
        self.labels = np.asarray(labels)

    def _measure(self, model: PairModel, scores: Scores) -> PairScores:
        measure = evaluation.binary if model.outputs(scores) == 1 else evaluation.several
        return measure(scores, self.labels, compat=self.compat is not None)


class CrossEncoderCorrelationEvaluator(_PairEvaluator):
    """How well a model's scores of pairs agree with gold scores: `pearson` and `spearman` (primary), in -1–1.
    `outcomes`: `calipers.core.Outcomes` with `gold` and `score` of each pair."""

    _title = "CrossEncoderCorrelationEvaluator"

    def __init__(
        self,
        sentence_pairs: list[list[str]],
        scores: list[float],
        name: str = "",
        prompt_name: str | None = None,
        batch_size: int = 32,
        show_progress_bar: bool | None = None,
        write_csv: bool = True,
        compat: Compat = None,
    ) -> None:
        super().__init__(name, (prompt_name, batch_size, show_progress_bar), write_csv, compat)
        self._set_pairs(sentence_pairs, scores, "scores")
        self.scores, self.primary_metric = scores, "spearman"
        self.csv_headers = ["epoch", "steps", "Pearson_Correlation", "Spearman_Correlation"]

    @classmethod
    def from_input_examples(cls, examples: list[Any], **kwargs: Any) -> CrossEncoderCorrelationEvaluator:
        """From sentence-transformers' InputExamples: two texts and a label each."""
        return cls([example.texts for example in examples], [example.label for example in examples], **kwargs)

    def _measure(self, model: PairModel, scores: Scores) -> PairScores:
        return evaluation.correlation(scores, self.scores, compat=self.compat is not None)
