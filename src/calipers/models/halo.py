"""The semantic halo of a text: the tokens that a masked language model's head finds in the pooled states of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from calipers.core import Halo, TokenizedText
from calipers.models.batching import Batch, Batching, answers
from calipers.models.masking import MaskTokenizer, log_softmax

Ints = NDArray[np.int64]
Floats = NDArray[np.float32]
Pooled = Callable[[Batch, Floats], Floats]  # a batch and weights [rows, length], to logits float32[rows, vocabulary]

_MARKS = ("##", "▁", "Ġ", "</w>")  # how vocabularies write that a piece goes on, or begins, a word


def ask(
    texts: Sequence[TokenizedText],
    k: int,
    *,
    forward: Pooled,
    tokenizer: MaskTokenizer,
    batching: Batching,
    workers: int,
) -> list[Halo]:
    """One halo per text, in the order asked; an empty one for a text without tokens of its own."""
    found = [Halo((), (), ()) for _ in texts]
    asked = np.flatnonzero([len(text.scored) > 0 for text in texts])
    silent = np.array(tokenizer.special_ids, np.int64)

    def compute(rows: Ints) -> Floats:
        batch, weights = pad([texts[int(i)] for i in asked[rows]], tokenizer.pad_id)
        scores = log_softmax(forward(batch, weights))[:, : tokenizer.vocab_size]
        scores[:, silent[silent < scores.shape[1]]] = -np.inf
        return scores

    lengths = np.array([len(texts[int(i)].ids) for i in asked], np.int64)
    for rows, scores in answers(lengths, compute, batching, workers):
        for row, values in zip(asked[rows], scores, strict=True):
            found[int(row)] = _best(texts[int(row)], values, k, tokenizer)
    return found


def pad(texts: Sequence[TokenizedText], pad_id: int) -> tuple[Batch, Floats]:
    """The batch, and weights that make the mean over each text's own tokens, float32[rows, length]."""
    shape = len(texts), max(len(text.ids) for text in texts)
    ids, mask, weights = np.full(shape, pad_id), np.zeros(shape, np.int64), np.zeros(shape, np.float32)
    for i, text in enumerate(texts):
        ids[i, : len(text.ids)], mask[i, : len(text.ids)] = text.ids, 1
        weights[i, text.scored] = 1.0 / len(text.scored)
    return Batch(ids, np.zeros(shape, np.int64), mask, rows=len(texts)), weights


def _best(text: TokenizedText, scores: Floats, k: int, tokenizer: MaskTokenizer) -> Halo:
    """The k highest, among equals the earlier token."""
    top = np.argsort(-scores, kind="stable")[:k]
    top = top[np.isfinite(scores[top])]
    own = {plain(tokenizer.spell(int(id))) for id in text.ids[text.scored]}
    tokens = tuple(tokenizer.spell(int(id)) for id in top)
    return Halo(tokens, tuple(float(scores[id]) for id in top), tuple(plain(token) in own for token in tokens))


def plain(token: str) -> str:
    """A token without the marks of its vocabulary, case-folded: "##ing" and "Ing" are the same.

    >>> plain("##Ing"), plain("Ġdog"), plain("##")
    ('ing', 'dog', '##')
    """
    bare = token
    for mark in _MARKS:
        bare = bare.removesuffix(mark) if mark == "</w>" else bare.removeprefix(mark)
    return (bare or token).casefold()
