"""Scores of pairs, and refusal of output that cannot be measured: `InvalidOutput` with the examples' ids."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np

from calipers.core import InvalidOutput, PairScorer, Progress, RequestError, name_some
from calipers.metrics.arrays import Array, Bools, Vectors

MOST_UNREAD = 0.1  # share of the texts of a kind that may have no vector
ROUNDING = 1e-9  # scores that differ by no more than this differ by rounding only


def not_finite(values: Array) -> Bools:
    """Which rows hold NaN or an infinite number, bool[n].

    >>> not_finite(np.array([[1.0, 2.0], [np.nan, 0.0]]))
    array([False,  True])
    """
    return np.asarray(~np.isfinite(values).all(axis=tuple(range(1, values.ndim))))


def is_zero(vectors: Array) -> Bools:
    """Which rows of [n, d] are zero, bool[n]."""
    return np.asarray(~vectors.any(axis=1))


def refuse_rows(
    dead: Bools, ids: Sequence[str], problem: str, unit: str, *, model: str = "the model", limit: str = ""
) -> None:
    """Refuse output with dead rows. `ids[i]` is the example of row i; several rows may belong to one example.

    >>> refuse_rows(np.array([True, False]), ["a", "b"], "NaN", "pairs")
    Traceback (most recent call last):
    calipers.core.errors.InvalidOutput: INVALID: the model gives NaN for 1 of 2 pairs (rows a)
    """
    if dead.any():
        rows = list(dict.fromkeys(ids[i] for i in np.flatnonzero(dead).tolist()))
        reason = f"{model} gives {problem} for {dead.sum()} of {len(dead)} {unit}{limit} (rows {name_some(rows)})"
        raise InvalidOutput(reason, rows)


def refuse_constant(
    values: Array,
    ids: Sequence[str],
    answer: str,
    unit: str,
    *,
    inputs: Sequence[Hashable] = (),
    rounding: float = 0.0,
    model: str = "the model",
) -> None:
    """Refuse one and the same answer, within `rounding`, for all examples. Equal `inputs` may have equal answers."""
    if len(values) < 2 or np.ptp(values, axis=0).max() > rounding or (inputs and len(set(inputs)) < 2):
        return
    rows = list(dict.fromkeys(ids))
    raise InvalidOutput(f"{model} gives {answer} for all {len(values)} {unit} (rows {name_some(rows)})", rows)


def unread(vectors: Array, ids: Sequence[str], texts: Sequence[str], unit: str, *, model: str = "the model") -> Bools:
    """Which rows of [n, d] are zero, bool[n]: a model that knows no word of a text has nothing to say about it.

    Refuses vectors that are not finite, or the same for different texts. How many may be zero: see `refuse_unread`.
    """
    refuse_rows(not_finite(vectors), ids, "NaN or infinite numbers", unit, model=model)
    zero = is_zero(vectors)
    if not zero.any():
        refuse_constant(vectors, ids, "the same vector", unit, inputs=texts, model=model)
    elif not zero.all():
        rows = np.flatnonzero(~zero).tolist()
        chosen, inputs = [ids[i] for i in rows], [texts[i] for i in rows]
        refuse_constant(vectors[rows], chosen, "the same vector", unit, inputs=inputs, model=model)
    return zero


def refuse_unread(zero: Bools, ids: Sequence[str], unit: str, *, model: str = "the model") -> None:
    """Refuse output in which more than a tenth of the texts have no vector: what is left would say little.

    >>> refuse_unread(np.array([True, False]), ["a", "b"], "queries")
    Traceback (most recent call last):
    calipers.core.errors.InvalidOutput: INVALID: the model gives zero vectors for 1 of 2 queries, more than 10% (rows a)
    """
    if zero.sum() > MOST_UNREAD * len(zero):
        refuse_rows(zero, ids, "zero vectors", unit, model=model, limit=f", more than {MOST_UNREAD:.0%}")


def note_unread(zero: Bools, ids: Sequence[str], unit: str, effect: str) -> tuple[str, ...]:
    """A sentence with the count and the names of the texts without a vector, if there are any.

    >>> note_unread(np.array([True, False]), ["a", "b"], "queries", "they find nothing")
    ('1 of 2 queries have no vector, the model gives zeros (rows a): they find nothing',)
    """
    if not zero.any():
        return ()
    rows = [ids[i] for i in np.flatnonzero(zero).tolist()]
    return (
        f"{len(rows)} of {len(zero)} {unit} have no vector, the model gives zeros (rows {name_some(rows)}): {effect}",
    )


def refuse_dead_scores(scores: Array, ids: Sequence[str]) -> None:
    """Refuse scores of pairs, [n] or [n, labels], that are not finite. `ids[i]` is the example of pair i."""
    refuse_rows(not_finite(scores), ids, "NaN or infinite scores", "pairs")


def score_pairs(model: PairScorer, pairs: Sequence[tuple[str, str]], ids: Sequence[str], progress: Progress) -> Vectors:
    """Scores of the pairs, float32[n] or [n, labels]; `ids[i]` is the example that pair i belongs to."""
    scores = model.score(pairs, progress=progress)
    refuse_dead_scores(scores, ids)
    if len(set(pairs)) > 1:
        answer = f"the same score, {scores.reshape(-1)[0]:.6f},"
        refuse_constant(scores, ids, answer, "pairs", rounding=ROUNDING)
    return scores


def score_once(
    model: PairScorer, pairs: Sequence[tuple[str, str]], ids: Sequence[str], progress: Progress, what: str
) -> Vectors:
    """The same of a model that must have one output, float32[n]; `what` needs it."""
    return one_score(score_pairs(model, pairs, ids, progress), what)


def one_score(scores: Array, what: str) -> Array:
    """Scores [n] of a model with one output, from [n] or [n, 1]."""
    if scores.ndim == 2 and scores.shape[1] > 1:
        raise RequestError(f"{what} needs a model with one output; this one gives {scores.shape[1]} scores a pair")
    return scores.reshape(len(scores))
