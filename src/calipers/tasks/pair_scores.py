"""What the tasks for cross-encoders share: asking for scores, and refusing dead ones."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from calipers.core import InvalidOutput, PairScorer, Progress, RequestError, name_some

_CONSTANT = 1e-9


def ask(
    model: PairScorer, pairs: Sequence[tuple[str, str]], ids: Sequence[str], progress: Progress
) -> NDArray[np.float32]:
    """Scores of the pairs, float32[n] or [n, labels]; `ids[i]` is the example that pair i belongs to.

    Non-finite scores are INVALID with the ids, and so is one and the same answer to all of several distinct pairs.
    """
    scores = model.score(pairs, progress=progress)
    table = scores.reshape(len(pairs), -1)
    dead = ~np.isfinite(table).all(axis=1)
    if dead.any():
        rows = list(dict.fromkeys(ids[i] for i in np.flatnonzero(dead).tolist()))
        raise InvalidOutput(
            f"the model gives NaN or infinite scores for {dead.sum()} of {len(pairs)} pairs (rows {name_some(rows)})",
            rows,
        )
    if len(set(pairs)) > 1 and np.ptp(table, axis=0).max() < _CONSTANT:
        rows = list(dict.fromkeys(ids))
        raise InvalidOutput(
            f"the model gives each of {len(pairs)} pairs the same score, {table[0, 0]:.6f} (rows {name_some(rows)})",
            rows,
        )
    return scores


def one_score(scores: NDArray[np.float32], what: str) -> NDArray[np.float32]:
    """float32[n], of a model with one output."""
    if scores.ndim == 2 and scores.shape[1] > 1:
        raise RequestError(f"{what} needs a model with one output, and this one gives {scores.shape[1]} scores a pair")
    return scores.reshape(len(scores))
