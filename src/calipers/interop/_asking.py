"""Asking a model for the scores of pairs: a CrossEncoder of sentence-transformers, or one of our PairScorers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calipers.core import SILENT, InferenceError, InvalidOutput, Progress, RequestError, name_some

Pair = tuple[str, str]
Scores = NDArray[np.floating[Any]]


@dataclass(frozen=True)
class Asking:
    """How a CrossEncoder is asked. A PairScorer has its prompt and its batches from where it was loaded."""

    prompt_name: str | None
    batch_size: int
    show_progress_bar: bool


def ask(model: Any, pairs: Sequence[Pair], asking: Asking) -> Scores:
    """Scores in the order of the pairs and in the model's own type of float: [n], or [n, labels].

    The model is called once, with each distinct pair once, in the order of first appearance; not at all without pairs.
    """
    if not pairs:
        return np.zeros(0)
    place = {pair: i for i, pair in enumerate(dict.fromkeys(pairs))}
    found = np.asarray(_answer(model, list(place), asking))
    if found.ndim not in (1, 2) or len(found) != len(place):
        raise InferenceError(f"the model was asked for {len(place)} pairs and answered with the shape {found.shape}")
    return found[[place[pair] for pair in pairs]]


def _answer(model: Any, pairs: list[Pair], asking: Asking) -> Any:
    if hasattr(model, "predict"):
        prompt = {} if asking.prompt_name is None else {"prompt_name": asking.prompt_name}
        return model.predict(
            [list(pair) for pair in pairs],
            batch_size=asking.batch_size,
            show_progress_bar=asking.show_progress_bar,
            convert_to_numpy=True,
            **prompt,
        )
    if not hasattr(model, "score"):
        raise RequestError(f"expected a model with predict (a CrossEncoder) or score (a PairScorer), found {model!r}")
    if asking.prompt_name is not None:
        raise RequestError(
            f"prompt_name={asking.prompt_name!r} needs a CrossEncoder: give a PairScorer its prompt at load"
        )
    return model.score(pairs, progress=_Bar() if asking.show_progress_bar else SILENT)


class _Bar(Progress):
    """The bar that sentence-transformers' users know."""

    def start(self, label: str, total: int) -> None:
        from tqdm.auto import tqdm  # type: ignore[import-untyped,unused-ignore]

        self._bar = tqdm(desc=label, total=total)

    def advance(self, count: int) -> None:
        self._bar.update(count)


def outputs(model: Any, scores: Scores) -> int:
    """How many scores the model gives a pair: what it says itself, else what the scores show; 1 if there are none."""
    told = getattr(model, "num_labels", None)
    if told is not None:
        return int(told)
    return scores.shape[1] if scores.ndim == 2 else 1


def one_score(scores: Scores, what: str) -> Scores:
    """[n], of a model with one output."""
    if scores.ndim == 2 and scores.shape[1] != 1:
        raise ValueError(f"{what} needs a model with one output, and this one gives {scores.shape[1]} scores a pair")
    return scores.reshape(len(scores))


def refuse_dead(scores: Scores, ids: Sequence[str]) -> None:
    """`ids[i]` is the example of score i. That all scores are equal is no fault here: ties have an honest figure, and
    a model may be so at its first step of training."""
    dead = ~np.isfinite(scores.reshape(len(scores), -1)).all(axis=1) if len(scores) else np.zeros(0, dtype=bool)
    if dead.any():
        rows = list(dict.fromkeys(ids[i] for i in np.flatnonzero(dead).tolist()))
        raise InvalidOutput(
            f"the model gives NaN or infinite scores for {dead.sum()} of {len(scores)} pairs (rows {name_some(rows)})",
            rows,
        )
