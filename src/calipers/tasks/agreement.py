"""Agreement of a candidate with a baseline where nothing says what is right: drift, neighbours, tokens, order.

Tasks for two models at once. A verdict is a comparison with what perfect agreement would give (`perfect`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from calipers.core.datasets import Column, Dataset
from calipers.core.errors import DataError, RequestError, name_some
from calipers.core.models import Encoder, MaskedTokens, ModelInfo, Progress, TokenizedText
from calipers.core.options import Options, option
from calipers.core.outcomes import Outcomes
from calipers.core.results import DefaultData, Metric, NoOptions, Task, Thresholds
from calipers.metrics import agreement
from calipers.metrics.arrays import Array, Bools, Floats, Vectors, slices
from calipers.metrics.correlation import kendall
from calipers.metrics.means import mean_of
from calipers.tasks import outputs
from calipers.tasks.columns import QUERY, TEXT, per_token, text_ids

NEIGHBOURS = 10
_QUESTIONS = 64  # at a time: the log-probabilities of the whole vocabulary are held for each


@dataclass(frozen=True)
class Both:
    """The two models; to the outside they are the candidate."""

    baseline: Any
    candidate: Any

    @property
    def models(self) -> tuple[Any, Any]:
        return self.baseline, self.candidate

    @property
    def info(self) -> ModelInfo:
        return self.candidate.info  # type: ignore[no-any-return]

    def bind(self, text_ids: Mapping[str, Sequence[str]]) -> Both:
        """Vectors that are stored under ids learn which text has which."""
        return Both(*(m.bind(text_ids) if hasattr(m, "bind") else m for m in self.models))


_PERFECT = {"cosine_drift": 0.0, "neighbour_overlap@10": 1.0, "cka": 1.0, "kl": 0.0, "kendall": 1.0, "overlap@k": 1.0}


# 1 − cosine is 1 where a vector is zero, as libraries have it.
_NO_AGREEMENT = {"cosine_drift": 1.0, "neighbour_overlap@10": 0.0, "cka": np.nan}


def perfect(outcomes: Outcomes) -> Outcomes:
    """What a candidate would give that agrees in everything."""
    columns = dict(outcomes.columns)
    for name in columns.keys() & _PERFECT.keys():
        columns[name] = np.where(np.isnan(columns[name]), np.nan, _PERFECT[name])
    if "same_top" in columns:
        columns["same_top"] = np.asarray(columns["tokens"], np.float64)
    return replace(outcomes, columns=columns, details={})


# --- embeddings ------------------------------------------------------------------------------------------------


def run_encoders(both: Both, dataset: Dataset, options: NoOptions, progress: Progress) -> Outcomes:
    """Per distinct text: its cosine drift (where the widths agree), the share of neighbours kept, its part of CKA."""
    first: dict[str, str] = {}  # text → the id of its first row
    for id, text in zip(dataset.ids, dataset.columns["input_column"], strict=True):
        first.setdefault(text, id)
    texts, ids = list(first), tuple(first.values())
    _refuse_few(len(texts), dataset, "distinct texts")
    (a, lost_a), (b, lost_b) = (_encode(model, texts, ids, progress) for model in both.models)
    _refuse_few(int((~(lost_a | lost_b)).sum()), dataset, "texts that both models have a vector for")
    columns, notes = _agree(a, b, lost_a, lost_b)
    repeated = len(dataset) - len(ids)
    notes = [f"{repeated} repeated texts count once", *notes] if repeated else notes
    for side, lost, effect in (
        ("the baseline", lost_a, "they are left out"),
        ("the candidate", lost_b & ~lost_a, "they count as no agreement"),
    ):
        notes += [f"{side}: {note}" for note in outputs.note_unread(lost, ids, "texts", effect)]
    unread = lost_a | lost_b
    counts = {"texts": len(ids), "repeated": repeated}
    counts |= {"texts_without_vector": int(unread.sum())} if unread.any() else {}
    return Outcomes(ids, columns, texts={"text": tuple(texts)}, counts=counts, notes=tuple(notes))


def _refuse_few(texts: int, dataset: Dataset, what: str) -> None:
    if texts < NEIGHBOURS + 2:
        raise DataError(
            f"{dataset.source.path} has {texts} {what}: expected at least {NEIGHBOURS + 2}, "
            f"for {NEIGHBOURS} neighbours that could differ"
        )


def _encode(model: Encoder, texts: Sequence[str], ids: Sequence[str], progress: Progress) -> tuple[Vectors, Bools]:
    """Vectors, and which of them are zero."""
    vectors = model.encode(texts, progress=progress)
    unread = outputs.unread(vectors, ids, texts, "texts", model=model.info.model_id)
    outputs.refuse_unread(unread, ids, "texts", model=model.info.model_id)
    return vectors, unread


def _agree(a: Vectors, b: Vectors, lost_a: Bools, lost_b: Bools) -> tuple[dict[str, Floats], list[str]]:
    """The columns, among the texts that both have a vector for. Of the others, those that the candidate alone has none
    for agree in nothing, but have no part in CKA; the rest are NaN."""
    rows = np.flatnonzero(~(lost_a | lost_b))
    a, b = a[rows], b[rows]
    measured = {"neighbour_overlap@10": agreement.neighbour_overlap(a, b, NEIGHBOURS), "cka": agreement.cka(a, b)}
    notes = []
    if a.shape[1] == b.shape[1]:
        measured["cosine_drift"] = agreement.cosine_drift(a, b)
    else:
        notes.append(f"cosine_drift is unknown: the vectors have {a.shape[1]} and {b.shape[1]} dimensions")
    columns = {}
    for name, values in measured.items():
        columns[name] = np.where(lost_b & ~lost_a, _NO_AGREEMENT[name], np.nan)
        columns[name][rows] = values
    return columns, notes


# --- masked language models --------------------------------------------------------------------------------------


def run_masked(both: Both, dataset: Dataset, options: NoOptions, progress: Progress) -> Outcomes:
    """Per text: its tokens, for how many both put the same token first, and the sum of KL divergences in nats."""
    texts = list(dataset.columns["input_column"])
    tokenized = both.baseline.tokenize(texts)
    _refuse_other_tokens(tokenized, both.candidate.tokenize(texts), dataset)
    kept = [i for i, text in enumerate(tokenized) if len(text.scored)]
    if not kept:
        raise DataError(f"none of the {len(texts)} texts of {dataset.source.path} has a token to hide")
    sizes = [len(tokenized[i].scored) for i in kept]
    example = np.repeat(np.arange(len(kept), dtype=np.int32), sizes)
    position = np.concatenate([tokenized[i].scored for i in kept]).astype(np.int32)
    questions = MaskedTokens([tokenized[i].ids for i in kept], example, position, position + 1)
    same, kl, dead = _differences(both, questions, progress)
    ids = tuple(dataset.ids[i] for i in kept)
    owners = [ids[i] for i in example.tolist()]
    for number, model in enumerate(both.models, 1):
        outputs.refuse_rows(dead == number, owners, "non-finite probabilities", "tokens", model=model.info.model_id)
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


def _differences(both: Both, questions: MaskedTokens, progress: Progress) -> tuple[Array, ...]:
    """For every question whether both put the same token first, the KL divergence in nats, and whose answer is dead:
    1 the baseline's, 2 the candidate's, 0 neither's."""
    same, kl, dead = np.empty(len(questions)), np.empty(len(questions)), np.zeros(len(questions), np.int8)
    order = np.argsort([len(questions.texts[i]) for i in questions.text], kind="stable")
    progress.start("Masking", len(questions))
    for block_rows in slices(len(order), _QUESTIONS):
        rows = order[block_rows]
        block = MaskedTokens(questions.texts, questions.text[rows], questions.position[rows], questions.until[rows])
        a, b = (model.distributions(block) for model in both.models)
        if a.shape != b.shape:
            raise RequestError(f"the models have different vocabularies: {a.shape[1]} and {b.shape[1]} tokens")
        same[rows] = a.argmax(axis=1) == b.argmax(axis=1)
        kl[rows] = agreement.divergence(a, b)
        dead[rows] = np.where(np.isnan(a).any(axis=1), 1, np.where(np.isnan(b).any(axis=1), 2, 0))
        progress.advance(len(rows))
    return same, kl, dead


def _refuse_other_tokens(a: Sequence[TokenizedText], b: Sequence[TokenizedText], dataset: Dataset) -> None:
    unlike = [id for id, x, y in zip(dataset.ids, a, b, strict=True) if not np.array_equal(x.ids, y.ids)]
    if unlike:
        raise RequestError(
            f"the models divide {len(unlike)} of {len(a)} texts into different tokens (rows {name_some(unlike)}): "
            "their distributions cannot be compared; set `max_length`, or compare fill-mask with `word_level`"
        )


# --- rankers -----------------------------------------------------------------------------------------------------


def run_scorers(both: Both, dataset: Dataset, options: RankersOptions, progress: Progress) -> Outcomes:
    """Per query with two documents or more: Kendall's tau of the two orders, and the share of the first k in both."""
    documents = [[d.text for d in row] for row in dataset.columns["documents_column"]]
    queries, ids = dataset.columns["query_column"], dataset.ids
    pairs = [(q, text) for q, texts in zip(queries, documents, strict=True) for text in texts]
    owners = [id for id, texts in zip(ids, documents, strict=True) for _ in texts]
    ends = np.cumsum([len(texts) for texts in documents])
    scores = (outputs.score_once(model, pairs, owners, progress, "agreement") for model in both.models)
    parts = list(zip(*(np.split(values.astype(np.float64), ends[:-1]) for values in scores), strict=True))
    return Outcomes(
        ids=ids,
        columns={
            "kendall": np.array([kendall(x, y) for x, y in parts]),
            "overlap@k": np.array([_top_overlap(x, y, options.at_k) for x, y in parts]),
        },
        texts={"query": tuple(queries)},
        counts={"queries": len(ids), "documents": len(pairs)},
    )


def _top_overlap(a: Floats, b: Floats, k: int) -> float:
    """NaN with no more than k documents: they would all be in both."""
    if len(a) <= k:
        return np.nan
    tops = (set(np.argsort(-x, kind="stable")[:k].tolist()) for x in (a, b))
    return len(set.intersection(*tops)) / k


# --- the tasks ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class RankersOptions(Options):
    at_k: int = option(10, "Cut-off of MRR and nDCG.", group="Task", metavar="K", at_least=1)


_higher = partial(Metric, digits=4)
_lower = partial(_higher, higher_is_better=False, thresholds=Thresholds(0.01, 0.05, relative=False))

ENCODERS = Task(
    name="embedding-agreement",
    about="how far a candidate's vectors agree with a baseline's",
    ability="encode",
    unit="text",
    columns=(TEXT,),
    default_data=DefaultData("mteb/stsbenchmark-sts", None, "test"),
    metrics=(
        _higher("neighbour_overlap@10", "share of the 10 nearest others kept", mean_of("neighbour_overlap@10")),
        _higher("cka", "linear CKA: 1 is the same space but for a rotation", mean_of("cka")),
        _lower("cosine_drift", "1 − cosine of a text's two vectors", mean_of("cosine_drift"), needs=("cosine_drift",)),
    ),
    text_ids=text_ids,
    run=run_encoders,
)

MASKED = Task(
    name="fill-mask-agreement",
    about="how far a candidate's guesses at hidden tokens agree with a baseline's",
    ability="fill-mask",
    unit="text",
    columns=(TEXT,),
    default_data=DefaultData("Salesforce/wikitext", "wikitext-2-raw-v1", "test"),
    metrics=(
        _higher("top1_agreement", "share of tokens with the same first guess", per_token("same_top")),
        _lower("kl", "KL divergence of the distributions, nats per token", per_token("kl")),
    ),
    run=run_masked,
)

SCORERS = Task(
    name="ranking-agreement",
    about="how far a candidate orders documents as a baseline does",
    ability="score",
    unit="query",
    columns=(QUERY, Column("documents_column", "documents", "documents", "the texts to order")),
    default_data=DefaultData("", None, "test"),
    metrics=(
        _higher("kendall", "Kendall's tau of the two orders", mean_of("kendall")),
        _higher("overlap@k", "share of the first k documents in both", mean_of("overlap@k")),
    ),
    run=run_scorers,
    options=RankersOptions,
)

TASKS: dict[str, Task[Any]] = {"encode": ENCODERS, "retrieve": ENCODERS, "fill-mask": MASKED, "score": SCORERS}
