"""sentence-transformers' four evaluators for cross-encoders: same names, signatures, keys, CSV files and log lines.

    from calipers.interop.sentence_transformers import CrossEncoderRerankingEvaluator

They take a CrossEncoder or any of our PairScorers, and serve as `evaluator=` of a CrossEncoderTrainer. All pairs of a
run are scored in one call, repeated ones once; what came out of each example stays on the evaluator as `outcomes`, so
that two models can be compared. `batch_size` and `prompt_name` are for a CrossEncoder; a PairScorer has batches of its
own, and refuses a prompt name.

`compat="sentence-transformers"` gives the figures of 6.2.0 to 1e-9, and an error where it fails. The default differs:

- Reranking: positives that the documents lack count in the ideal, so a model that keeps the order changes no figure.
  Tied documents have the expected value of all their orders, in every metric. A text counts once in a query. A query
  without positives has no figure: it is left out of the means, and counted (`outcomes.counts["without_relevant"]`). A
  lone positive scores 1, before and after. With empty documents the positives are all there is to rank and score 1,
  before and after; with `always_rerank_positives=False` nothing is ranked, and both are 0.
- Classification without positives: F1, its precision, recall and threshold, and average precision are NaN, not 0.
- Correlation of fewer than two pairs is NaN; so it is, in both modes, where either side is constant.
- No samples: NaN for every key and a warning in the log, which a trainer survives (it never takes NaN for the best).
- NaN or infinite scores are InvalidOutput with the examples.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import numpy as np

from calipers.core import Outcomes
from calipers.interop import _nanobeir, _pairs, _samples
from calipers.interop._asking import Asking, Scores, ask, outputs
from calipers.interop._reports import after, append_csv, for_card, logger, tell_counts, tell_ranking
from calipers.tasks.nanobeir import SETS, USUAL
from calipers.tasks.reranking import RerankingOptions

try:
    from sentence_transformers.base.evaluation import BaseEvaluator
except ModuleNotFoundError as error:
    if error.name == "sentence_transformers":
        raise ModuleNotFoundError(
            "calipers.interop.sentence_transformers needs sentence-transformers: pip install 'calipers[torch]'"
        ) from error
    from sentence_transformers.evaluation import SentenceEvaluator as BaseEvaluator  # before version 6

__all__ = [
    "CrossEncoderClassificationEvaluator",
    "CrossEncoderCorrelationEvaluator",
    "CrossEncoderNanoBEIREvaluator",
    "CrossEncoderRerankingEvaluator",
]

COMPAT = "sentence-transformers"
Compat = Literal["sentence-transformers"] | None


class _Evaluator(BaseEvaluator):  # type: ignore[misc]  # sentence-transformers is not read by mypy here
    """What the four share. `outcomes` is what came out of each example in the last call."""

    name: str
    csv_file: str
    csv_headers: Sequence[str]
    outcomes: Any = None
    _line_end = "\r\n"

    def __init__(
        self,
        name: str,
        asking: tuple[str | None, int, bool | None],
        write_csv: bool,
        compat: Compat,
    ) -> None:
        super().__init__()
        if compat not in (None, COMPAT):
            raise ValueError(f"compat must be None or {COMPAT!r}, found {compat!r}")
        self.name, self.write_csv, self.compat = name, write_csv, compat
        self.prompt_name, self.batch_size, show = asking
        talks = logger.getEffectiveLevel() in (logging.INFO, logging.DEBUG)
        self.show_progress_bar = talks if show is None else show

    def _ask(self, model: Any, pairs: Sequence[tuple[str, str]]) -> Scores:
        return ask(model, pairs, Asking(self.prompt_name, self.batch_size, self.show_progress_bar))

    def _write(self, output_path: str | None, row: Sequence[Any]) -> None:
        append_csv(output_path if self.write_csv else None, self.csv_file, self.csv_headers, row, self._line_end)

    def _finish(self, model: Any, metrics: Mapping[str, float], epoch: float, steps: int) -> dict[str, float]:
        """Metrics under the name of the evaluator, also on the card of a model that has one."""
        named: dict[str, float] = self.prefix_name_to_metrics(dict(metrics), self.name)
        if hasattr(model, "model_card_data"):
            card = self.prefix_name_to_metrics(for_card(metrics), self.name)
            self.store_metrics_in_model_card_data(model, card, epoch, steps)
        return named

    def _warn_if_empty(self, examples: int) -> None:
        if examples:
            return
        if self.compat:
            raise ValueError("there is nothing to evaluate: sentence-transformers fails here and so does compat")
        logger.warning(f"{type(self).__name__}: there is nothing to evaluate, so every figure is NaN")


class CrossEncoderRerankingEvaluator(_Evaluator):
    """How well a model reranks the documents of a query: `map`, `mrr@k`, `ndcg@k` (primary), and `base_…` of the same.

    A sample has `query`, `positive` (a text or several) and either `negative` texts or `documents`, best first; only
    the latter give a base, which is the mean over such samples. `always_rerank_positives` adds the positives that the
    documents lack. Figures are in 0–1.
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
        self.at_k = at_k if mrr_at_k is None else mrr_at_k
        self.always_rerank_positives = always_rerank_positives
        self.csv_file = f"CrossEncoderRerankingEvaluator{'_' if name else ''}{name}_results_@{self.at_k}.csv"
        self.csv_headers = ["epoch", "steps", "MAP", f"MRR@{self.at_k}", f"NDCG@{self.at_k}"]
        self.primary_metric = f"ndcg@{self.at_k}"

    def __call__(
        self, model: Any, output_path: str | None = None, epoch: float = -1, steps: int = -1
    ) -> dict[str, float]:
        self._announce(epoch, steps)
        samples = self._read()
        scores = self._ask(model, [pair for sample in samples for pair in sample.pairs])
        return self._conclude(model, samples, scores, output_path, epoch, steps)

    def _announce(self, epoch: float, steps: int) -> None:
        where = after(epoch, steps)
        logger.info(f"CrossEncoderRerankingEvaluator: Evaluating the model on the {self.name} dataset{where}:")

    def _read(self) -> list[_samples.Sample]:
        self._warn_if_empty(len(self.samples))
        return _samples.read(self.samples, self._options)

    @property
    def _options(self) -> RerankingOptions:
        return RerankingOptions(self.at_k, self.always_rerank_positives, compat=self.compat)

    def _conclude(
        self,
        model: Any,
        samples: list[_samples.Sample],
        scores: Scores,
        output_path: str | None,
        epoch: float,
        steps: int,
    ) -> dict[str, float]:
        self.outcomes: Outcomes = _samples.measure(samples, scores, self._options)
        metrics = _samples.means(self.outcomes, self.at_k)
        tell_counts(len(samples), [s.positives for s in samples], [s.negatives for s in samples])
        tell_ranking(metrics, self.at_k)
        self._write(
            output_path, [epoch, steps, *(metrics[key] for key in ("map", f"mrr@{self.at_k}", f"ndcg@{self.at_k}"))]
        )
        return self._finish(model, metrics, epoch, steps)

    def get_config_dict(self) -> dict[str, Any]:
        told = {"always_rerank_positives": self.always_rerank_positives}
        return {"at_k": self.at_k} | (told if self.samples and "documents" in self.samples[0] else {})


class CrossEncoderNanoBEIREvaluator(_Evaluator):
    """Reranking of BM25's first `rerank_k` documents on the sets of NanoBEIR: each set, and `aggregate_fn` over sets.

    `dataset_id` is a hub id or a folder of that layout. Keys: `Nano{Set}_R{rerank_k}_{metric}` and
    `NanoBEIR_R{rerank_k}_{aggregate_key}_{metric}`, of which `ndcg@k` is primary.
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
        _nanobeir.check_names(self.dataset_names)
        self.dataset_id, self.rerank_k, self.at_k = dataset_id, rerank_k, at_k
        self.always_rerank_positives = always_rerank_positives
        self.aggregate_fn, self.aggregate_key = aggregate_fn, aggregate_key
        self.evaluators = [self._load(f"Nano{SETS[name.lower()]}") for name in self.dataset_names]
        self.csv_file = f"NanoBEIR_evaluation_{aggregate_key}_results.csv"
        self.csv_headers = ["epoch", "steps", "MAP", f"MRR@{at_k}", f"NDCG@{at_k}"]
        self.primary_metric = f"ndcg@{at_k}"

    def _load(self, split: str) -> CrossEncoderRerankingEvaluator:
        return CrossEncoderRerankingEvaluator(
            _nanobeir.samples(self.dataset_id, split, self.rerank_k, compat=self.compat is not None),
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
        logger.info(f"NanoBEIR Evaluation of the model on {self.dataset_names} dataset{after(epoch, steps)}:")
        per_set = self._each_set(model, output_path, epoch, steps)
        metrics = self._aggregate(per_set)
        self._write(
            output_path, [epoch, steps, *(metrics[key] for key in ("map", f"mrr@{self.at_k}", f"ndcg@{self.at_k}"))]
        )
        logger.info("CrossEncoderNanoBEIREvaluator: Aggregated Results:")
        tell_ranking(metrics, self.at_k)
        named = {key: value for found in per_set.values() for key, value in found.items()}
        return {**named, **self._finish(model, metrics, epoch, steps)}

    def _each_set(self, model: Any, output_path: str | None, epoch: float, steps: int) -> dict[str, dict[str, float]]:
        """Name of the set → its metrics. The pairs of all sets are scored together."""
        samples = [evaluator._read() for evaluator in self.evaluators]
        pairs = [[pair for sample in found for pair in sample.pairs] for found in samples]
        scores = self._ask(model, [pair for part in pairs for pair in part])
        parts = np.split(scores, np.cumsum([len(part) for part in pairs])[:-1])
        metrics = {}
        for evaluator, found, part in zip(self.evaluators, samples, parts, strict=True):
            logger.info(f"Evaluating {evaluator.name}")
            evaluator._announce(epoch, steps)
            metrics[evaluator.name] = evaluator._conclude(model, found, part, output_path, epoch, steps)
            logger.info("")
        self.outcomes: dict[str, Outcomes] = {evaluator.name: evaluator.outcomes for evaluator in self.evaluators}
        return metrics

    def _aggregate(self, per_set: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
        values: dict[str, list[float]] = {}
        for name, metrics in per_set.items():
            for key, value in metrics.items():
                values.setdefault(key.removeprefix(f"{name}_"), []).append(value)
        return {key: self.aggregate_fn(found) for key, found in values.items()}

    def get_config_dict(self) -> dict[str, Any]:
        keys = ("dataset_names", "dataset_id", "rerank_k", "at_k", "always_rerank_positives")
        return {key: getattr(self, key) for key in keys}


class CrossEncoderClassificationEvaluator(_Evaluator):
    """How well a model tells the class of a pair. One output, labels 0 and 1: `accuracy` and `f1` at their best
    thresholds, `precision` and `recall` at that of F1, `average_precision` (primary); ties stay together. Several
    outputs, the highest of which counts: `f1_macro` (primary), `f1_micro`, `f1_weighted`. Figures are in 0–1.
    `outcomes`: `calipers.core.Outcomes` with `label`, and `score` or `prediction`, of each pair.
    """

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
        _pairs.check_lengths(sentence_pairs, labels, "labels")
        self.sentence_pairs, self.labels = sentence_pairs, np.asarray(labels)
        self.csv_file = f"CrossEncoderClassificationEvaluator{'_' if name else ''}{name}_results.csv"

    def __call__(
        self, model: Any, output_path: str | None = None, epoch: float = -1, steps: int = -1
    ) -> dict[str, float]:
        logger.info(
            f"CrossEncoderClassificationEvaluator: Evaluating the model on {self.name} dataset{after(epoch, steps)}:"
        )
        self._warn_if_empty(len(self.labels))
        scores = self._ask(model, _pairs.as_tuples(self.sentence_pairs))
        measure = _pairs.binary if outputs(model, scores) == 1 else _pairs.several
        found = measure(scores, self.labels, compat=self.compat is not None)
        self.outcomes: Outcomes = found.outcomes
        self.csv_headers, self.primary_metric = ["epoch", "steps", *found.headers], found.primary
        for line in found.lines:
            logger.info(line)
        self._write(output_path, [epoch, steps, *found.metrics.values()])
        return self._finish(model, found.metrics, epoch, steps)


class CrossEncoderCorrelationEvaluator(_Evaluator):
    """How well a model's scores of pairs agree with gold scores: `pearson` and `spearman` (primary), in -1–1.

    `outcomes`: `calipers.core.Outcomes` with `gold` and `score` of each pair.
    """

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
        _pairs.check_lengths(sentence_pairs, scores, "scores")
        self.sentence_pairs, self.scores = sentence_pairs, scores
        self.csv_file = f"CrossEncoderCorrelationEvaluator{'_' if name else ''}{name}_results.csv"
        self.csv_headers = ["epoch", "steps", "Pearson_Correlation", "Spearman_Correlation"]
        self.primary_metric = "spearman"

    @classmethod
    def from_input_examples(cls, examples: list[Any], **kwargs: Any) -> CrossEncoderCorrelationEvaluator:
        """From sentence-transformers' InputExamples: two texts and a label each."""
        return cls([example.texts for example in examples], [example.label for example in examples], **kwargs)

    def __call__(
        self, model: Any, output_path: str | None = None, epoch: float = -1, steps: int = -1
    ) -> dict[str, float]:
        logger.info(
            f"CrossEncoderCorrelationEvaluator: Evaluating the model on {self.name} dataset{after(epoch, steps)}:"
        )
        self._warn_if_empty(len(self.scores))
        scores = self._ask(model, _pairs.as_tuples(self.sentence_pairs))
        found = _pairs.correlation(scores, self.scores, compat=self.compat is not None)
        self.outcomes: Outcomes = found.outcomes
        for line in found.lines:
            logger.info(line)
        self._write(output_path, [epoch, steps, *found.metrics.values()])
        return self._finish(model, found.metrics, epoch, steps)
