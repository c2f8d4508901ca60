"""Agreement of a candidate with a baseline where nothing says what is right: drift, neighbours, tokens, order.

The same shape as any task, but for two models at once. What perfect agreement would give is known without a run
(`perfect`), so a verdict on a candidate is a comparison with that, like any other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calipers.core import (
    Column,
    Columns,
    DataError,
    Dataset,
    DefaultData,
    Encoder,
    InvalidOutput,
    MaskedTokens,
    Metric,
    ModelInfo,
    NoOptions,
    Outcomes,
    PairScorer,
    Progress,
    RequestError,
    Statistic,
    Task,
    Thresholds,
    name_some,
)
from calipers.core.options import Options, option
from calipers.metrics import agreement
from calipers.metrics.correlation import kendall
from calipers.metrics.means import mean_of, ratio_statistic
from calipers.tasks import pair_scores

NEIGHBOURS = 10
_QUESTIONS = 64  # at a time: the log-probabilities of the whole vocabulary are held for each


@dataclass(frozen=True)
class Both:
    """The two models that are asked the same; to the outside it is the candidate."""

    baseline: Any
    candidate: Any

    @property
    def info(self) -> ModelInfo:
        info: ModelInfo = self.candidate.info
        return info

    def bind(self, text_ids: Mapping[str, Sequence[str]]) -> Both:
        """Vectors that are stored under ids learn which text has which."""
        return Both(*(m.bind(text_ids) if hasattr(m, "bind") else m for m in (self.baseline, self.candidate)))


def perfect(outcomes: Outcomes) -> Outcomes:
    """What a candidate would give that agrees in everything."""
    whole = {name: _PERFECT.get(name) for name in outcomes.columns}
    columns = {
        name: values if whole[name] is None else _filled(values, outcomes.columns, whole[name])
        for name, values in outcomes.columns.items()
    }
    return replace(outcomes, columns=columns, details={})


_PERFECT: dict[str, float | str] = {
    "cosine_drift": 0.0,
    "neighbour_overlap@10": 1.0,
    "cka": 1.0,
    "same_top": "tokens",
    "kl": 0.0,
    "kendall": 1.0,
    "overlap@k": 1.0,
}


def _filled(values: NDArray[Any], columns: Columns, value: float | str | None) -> NDArray[Any]:
    if isinstance(value, str):
        return np.asarray(columns[value], np.float64)
    return np.where(np.isnan(values), np.nan, float(value or 0.0))


# --- embeddings ------------------------------------------------------------------------------------------------


def run_encoders(models: Both, dataset: Dataset, options: Any, progress: Progress) -> Outcomes:
    """Per distinct text: its cosine drift (where the widths agree), the share of neighbours kept, its part of CKA."""
    rows = [i for i, first in enumerate(_first_places(dataset.columns["input_column"])) if first == i]
    texts = [dataset.columns["input_column"][i] for i in rows]
    ids = tuple(dataset.ids[i] for i in rows)
    if len(texts) < NEIGHBOURS + 2:
        raise DataError(
            f"{dataset.source.path} has {len(texts)} distinct texts: expected at least {NEIGHBOURS + 2}, "
            f"for {NEIGHBOURS} neighbours that could differ"
        )
    a, b = (_encode(model, texts, ids, progress) for model in (models.baseline, models.candidate))
    columns = {
        "neighbour_overlap@10": agreement.neighbour_overlap(a, b, NEIGHBOURS),
        "cka": agreement.cka(a, b),
    }
    if a.shape[1] == b.shape[1]:
        columns["cosine_drift"] = agreement.cosine_drift(a, b)
    notes = [f"{len(dataset) - len(ids)} repeated texts count once"] if len(ids) < len(dataset) else []
    if "cosine_drift" not in columns:
        notes.append(f"cosine_drift is unknown: the vectors have {a.shape[1]} and {b.shape[1]} dimensions")
    return Outcomes(
        ids,
        columns,
        texts={"text": tuple(texts)},
        counts={"texts": len(ids), "repeated": len(dataset) - len(ids)},
        notes=tuple(notes),
    )


def _encode(model: Encoder, texts: Sequence[str], ids: Sequence[str], progress: Progress) -> NDArray[np.float32]:
    vectors = model.encode(texts, progress=progress)
    dead = ~np.isfinite(vectors).all(axis=1) | ~vectors.any(axis=1)
    if dead.any():
        rows = [ids[i] for i in np.flatnonzero(dead).tolist()]
        raise _invalid(model, f"NaN, infinite or zero vectors for {len(rows)} of {len(ids)} texts", rows)
    if not np.ptp(vectors, axis=0).any():
        raise _invalid(model, f"the same vector for all {len(ids)} texts", ids)
    return vectors


def _first_places(texts: Sequence[str]) -> list[int]:
    seen: dict[str, int] = {}
    return [seen.setdefault(text, i) for i, text in enumerate(texts)]


# --- masked language models --------------------------------------------------------------------------------------


def run_masked(models: Both, dataset: Dataset, options: Any, progress: Progress) -> Outcomes:
    """Per text: its tokens, for how many both put the same token first, and the sum of KL divergences in nats."""
    texts = list(dataset.columns["input_column"])
    tokenized = models.baseline.tokenize(texts)
    _refuse_other_tokens(tokenized, models.candidate.tokenize(texts), dataset)
    kept = [i for i, text in enumerate(tokenized) if len(text.scored)]
    if not kept:
        raise DataError(f"none of the {len(texts)} texts of {dataset.source.path} has a token to hide")
    sizes = [len(tokenized[i].scored) for i in kept]
    example = np.repeat(np.arange(len(kept), dtype=np.int32), sizes)
    position = np.concatenate([tokenized[i].scored for i in kept]).astype(np.int32)
    questions = MaskedTokens([tokenized[i].ids for i in kept], example, position, position + 1)
    same, kl, dead = _differences(models, questions, progress)
    ids = tuple(dataset.ids[i] for i in kept)
    for number, model in enumerate((models.baseline, models.candidate), 1):
        if (dead == number).any():
            rows = [ids[i] for i in dict.fromkeys(example[dead == number].tolist())]
            what = f"non-finite probabilities for {(dead == number).sum()} of {len(dead)} tokens"
            raise _invalid(model, what, rows)
    return Outcomes(
        ids=ids,
        columns={
            "tokens": np.array(sizes),
            "same_top": np.bincount(example, weights=same, minlength=len(kept)),
            "kl": np.bincount(example, weights=kl, minlength=len(kept)),
        },
        texts={"text": tuple(texts[i] for i in kept)},
        details={"tokens": {"example": example, "position": position, "same_top": same, "kl": kl}},
        counts={"texts": len(kept), "tokens": len(example)},
    )


def _differences(models: Both, questions: MaskedTokens, progress: Progress) -> tuple[NDArray[Any], ...]:
    """For every question whether both put the same token first, the KL divergence in nats, and whose answer is dead:
    1 the baseline's, 2 the candidate's, 0 neither's. Questions go by length, in blocks that bound the memory."""
    same, kl, dead = np.empty(len(questions)), np.empty(len(questions)), np.zeros(len(questions), np.int8)
    order = np.argsort([len(questions.texts[i]) for i in questions.text], kind="stable")
    progress.start("Masking", len(questions))
    for start in range(0, len(order), _QUESTIONS):
        rows = order[start : start + _QUESTIONS]
        asked = MaskedTokens(questions.texts, questions.text[rows], questions.position[rows], questions.until[rows])
        a, b = models.baseline.distributions(asked), models.candidate.distributions(asked)
        if a.shape != b.shape:
            raise RequestError(f"the models have other vocabularies: {a.shape[1]} and {b.shape[1]} tokens")
        same[rows] = a.argmax(axis=1) == b.argmax(axis=1)
        kl[rows] = agreement.divergence(a, b)
        dead[rows] = np.where(np.isnan(a).any(axis=1), 1, np.where(np.isnan(b).any(axis=1), 2, 0))
        progress.advance(len(rows))
    return same, kl, dead


def _refuse_other_tokens(a: Sequence[Any], b: Sequence[Any], dataset: Dataset) -> None:
    unlike = [dataset.ids[i] for i, (x, y) in enumerate(zip(a, b, strict=True)) if not np.array_equal(x.ids, y.ids)]
    if unlike:
        raise RequestError(
            f"the models divide {len(unlike)} of {len(a)} texts into other tokens (rows {name_some(unlike)}): their "
            "distributions cannot be compared; give both the same --max-length, or compare fill-mask with --word-level"
        )


# --- rankers -----------------------------------------------------------------------------------------------------


def run_scorers(models: Both, dataset: Dataset, options: Any, progress: Progress) -> Outcomes:
    """Per query with two documents or more: Kendall's tau of the two orders, and the share of the first k in both."""
    documents = [[d.text for d in row] for row in dataset.columns["documents_column"]]
    queries, ids = dataset.columns["query_column"], dataset.ids
    pairs = [(q, text) for q, texts in zip(queries, documents, strict=True) for text in texts]
    owners = [id for id, texts in zip(ids, documents, strict=True) for _ in texts]
    a, b = (_score(model, pairs, owners, progress) for model in (models.baseline, models.candidate))
    ends = np.cumsum([len(texts) for texts in documents])
    parts = [(x, y) for x, y in zip(np.split(a, ends[:-1]), np.split(b, ends[:-1]), strict=True)]
    return Outcomes(
        ids=ids,
        columns={
            "kendall": np.array([kendall(x, y) for x, y in parts]),
            "overlap@k": np.array([_top_overlap(x, y, options.at_k) for x, y in parts]),
        },
        texts={"query": tuple(queries)},
        counts={"queries": len(ids), "documents": len(pairs)},
    )


def _score(model: PairScorer, pairs: Any, owners: Sequence[str], progress: Progress) -> NDArray[np.float64]:
    found = pair_scores.one_score(pair_scores.ask(model, pairs, owners, progress), "agreement")
    return found.astype(np.float64)


def _top_overlap(a: NDArray[np.float64], b: NDArray[np.float64], k: int) -> float:
    """NaN with no more than k documents: they would all be in both."""
    if len(a) <= k:
        return np.nan
    tops = (set(np.argsort(-x, kind="stable")[:k].tolist()) for x in (a, b))
    return len(set.intersection(*tops)) / k


# --- the tasks ---------------------------------------------------------------------------------------------------


def _invalid(model: Any, what: str, rows: Sequence[str]) -> InvalidOutput:
    return InvalidOutput(f"{model.info.model_id} gives {what} (rows {name_some(rows)})", rows)


def _per_token(column: str) -> Callable[[Columns], Statistic]:
    return lambda columns: ratio_statistic(columns[column], columns["tokens"])


@dataclass(frozen=True)
class RankersOptions(Options):
    at_k: int = option(10, "Cut-off of MRR and nDCG. Default: 10.", group="Task", metavar="K", at_least=1)


def _no_ids(dataset: Dataset) -> Mapping[str, Sequence[str]]:
    return {}


def _text_ids(dataset: Dataset) -> Mapping[str, Sequence[str]]:
    return {text: [id] for id, text in zip(dataset.ids, dataset.columns["input_column"], strict=True)}


def _any(dataset: Dataset) -> None:
    if len(dataset) == 0:
        raise DataError(f"{dataset.source.path} gives no example")


_TEXT = (Column("input_column", "text", "text", "the text"),)
_NONE = Thresholds(0.01, 0.05, relative=False)

ENCODERS = Task(
    name="embedding-agreement",
    aliases=(),
    about="how far a candidate's vectors agree with a baseline's",
    ability="encode",
    unit="text",
    columns=_TEXT,
    default_data=DefaultData("mteb/stsbenchmark-sts", None, "test"),
    metrics=(
        Metric(
            "neighbour_overlap@10", "share of the 10 nearest others kept", mean_of("neighbour_overlap@10"), digits=4
        ),
        Metric("cka", "linear CKA: 1 is the same space but for a rotation", mean_of("cka"), digits=4),
        Metric(
            "cosine_drift",
            "1 − cosine of a text's two vectors",
            mean_of("cosine_drift"),
            higher_is_better=False,
            thresholds=_NONE,
            digits=4,
            needs=("cosine_drift",),
        ),
    ),
    check=_any,
    text_ids=_text_ids,
    run=run_encoders,
    options=NoOptions,
)

MASKED = Task(
    name="fill-mask-agreement",
    aliases=(),
    about="how far a candidate's guesses at hidden tokens agree with a baseline's",
    ability="fill-mask",
    unit="text",
    columns=_TEXT,
    default_data=DefaultData("Salesforce/wikitext", "wikitext-2-raw-v1", "test"),
    metrics=(
        Metric("top1_agreement", "share of tokens with the same first guess", _per_token("same_top"), digits=4),
        Metric(
            "kl",
            "KL divergence of the distributions, nats per token",
            _per_token("kl"),
            higher_is_better=False,
            thresholds=_NONE,
            digits=4,
        ),
    ),
    check=_any,
    text_ids=_no_ids,
    run=run_masked,
    options=NoOptions,
)

SCORERS = Task(
    name="ranking-agreement",
    aliases=(),
    about="how far a candidate orders documents as a baseline does",
    ability="score",
    unit="query",
    columns=(
        Column("query_column", "query", "text", "the query"),
        Column("documents_column", "documents", "documents", "the texts to order"),
    ),
    default_data=DefaultData("", None, "test"),
    metrics=(
        Metric("kendall", "Kendall's tau of the two orders", mean_of("kendall"), digits=4),
        Metric("overlap@k", "share of the first k documents in both", mean_of("overlap@k"), digits=4),
    ),
    check=_any,
    text_ids=_no_ids,
    run=run_scorers,
    options=RankersOptions,
)

TASKS = {"encode": ENCODERS, "retrieve": ENCODERS, "fill-mask": MASKED, "score": SCORERS}
