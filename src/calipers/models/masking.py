"""Masked language models: a tokenizer with a mask, batches of questions, and the model that backends share.

A question hides one token of a text: how likely was it? The questions of all texts are batched together, and only the
logits of one position are kept of a row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from calipers.core import SILENT, MaskedTokens, ModelError, ModelInfo, Progress, TokenizedText
from calipers.metrics.arrays import Ints, Vectors
from calipers.models.batching import Answer, Batch, Batching, Work, answers, pad
from calipers.models.heads import log_softmax
from calipers.models.layout import Layout
from calipers.models.probe import LEAST_LOGIT, BatchProbe, long_lengths, trial_lengths
from calipers.models.tokenizer import Tokens, named_token, pad_id, sample_rows, unknown_id
from calipers.models.tokenizer_files import prepare

if TYPE_CHECKING:
    from tokenizers import Encoding
    from tokenizers import Tokenizer as Backend

Logits = Vectors
Forward = Callable[[Batch, Ints], Logits]  # a batch and one position per row, to float32[rows, vocabulary]

EXACT = 1e-4  # a short cut whose logits differ by more than this is not taken
_TRIAL = 23  # tokens of the longest row that a short cut is tried on: a prime, so that rows are padded to any multiple
SHORTEST = 4  # tokens of a row that a model is tried on: some families take no fewer than 3
_CELLS = 1 << 24  # logits in hand at a time and thread: 64 MB


class MaskTokenizer:
    """A layout's tokenizer with a mask token. It tells a text's tokens from special ones."""

    def __init__(self, layout: Layout, *, max_length: int, trust_remote_code: bool = False) -> None:
        folder = layout.transformer
        prepared = prepare(folder, arguments=layout.tokenizer_arguments, trust_remote_code=trust_remote_code)
        self._backend = backend = prepared.backend
        backend.no_padding()
        self._side = prepared.truncation_side
        self._unknown = unknown_id(backend)
        self.pad_id = pad_id(folder, backend)
        self.first_position = layout.first_position
        self.mask_id = _find_mask(folder, backend)
        self.max_length = max_length
        self.vocab_size: int = backend.get_vocab_size(with_added_tokens=True)

    def encode(self, texts: Sequence[str], *, truncate: bool = True) -> list[TokenizedText]:
        if truncate:
            self._backend.enable_truncation(self.max_length, direction=self._side)
        else:
            self._backend.no_truncation()
        encodings = self._backend.encode_batch(list(texts))
        return [_tokenized(row, text, self._unknown) for row, text in zip(encodings, texts, strict=True)]

    def spans(self, text: str) -> tuple[dict[int, tuple[int, int]], bool]:
        """Where each of the text's own tokens stands in it, by its position, and whether they are all of the text."""
        self._backend.enable_truncation(self.max_length, direction=self._side)
        row = self._backend.encode(text)
        own = [i for i, special in enumerate(row.special_tokens_mask) if not special]
        return {i: row.offsets[i] for i in own}, not row.overflowing

    def strings(self, ids: Sequence[int]) -> list[str]:
        """What the vocabulary holds for each id; empty where it holds nothing."""
        return [self._backend.id_to_token(id) or "" for id in ids]

    def masks(self, length: int, *, rows: int = 1) -> Batch:
        """A batch of masks only, to look at the shape of an output."""
        return pad([untyped(np.full(length, self.mask_id, np.int32))], self, rows=rows)

    def sample(self, lengths: Sequence[int]) -> list[Tokens]:
        """Rows of random tokens between the special ones; see `sample_rows`."""
        return sample_rows(self._backend, self._backend.encode("a"), lengths)

    def spell(self, id: int) -> str:
        """The token as the vocabulary writes it."""
        return str(self._backend.id_to_token(id))

    @property
    def special_ids(self) -> list[int]:
        """Tokens that stand for no text: padding, separators, the mask."""
        return [id for id, token in self._backend.get_added_tokens_decoder().items() if token.special]


def _tokenized(encoding: Encoding, text: str, unknown: int | None) -> TokenizedText:
    scored = np.flatnonzero(np.array(encoding.special_tokens_mask, np.int8) == 0).astype(np.int32)
    spaced = _spans_whitespace(encoding, text)
    words = _by_whitespace(encoding, text) if spaced else [-1 if word is None else word for word in encoding.word_ids]
    return TokenizedText(
        ids=np.array(encoding.ids, np.int32),
        scored=scored,
        words=np.array(words, np.int32),
        characters=max((encoding.offsets[i][1] for i in scored), default=0),
        unknown=sum(encoding.ids[i] == unknown for i in scored),
        truncated=bool(encoding.overflowing),
        spaced=spaced,
    )


def _spans_whitespace(encoding: Encoding, text: str) -> bool:
    """Whether a word of the tokenizer holds whitespace: to some, such as Gemma's, a whole text is one word."""
    spans: dict[int, tuple[int, int]] = {}
    for word, (start, end) in zip(encoding.word_ids, encoding.offsets, strict=True):
        if word is not None:
            spans[word] = (spans.get(word, (start, end))[0], end)
    return any(len(text[start:end].split()) > 1 for start, end in spans.values())


def _by_whitespace(encoding: Encoding, text: str) -> list[int]:
    """The word of each token, -1 for a special one. Whitespace belongs to the word behind it."""
    space = np.array([character.isspace() for character in text])
    begins = ~space & np.append(True, space[:-1])
    word = np.cumsum(begins) + space  # of each character
    tokens = zip(encoding.offsets, encoding.special_tokens_mask, strict=True)
    return [-1 if special or not len(word) else int(word[max(start, end - 1)]) for (start, end), special in tokens]


def untyped(ids: NDArray[np.int32]) -> Tokens:
    """A row of one text, whose type ids are all 0."""
    return Tokens(ids, np.zeros_like(ids))


def _find_mask(folder: Path, backend: Backend) -> int:
    """The id of the mask token, from the tokenizer's settings or by the usual names."""
    named = (named_token(folder / file, "mask_token") for file in ("tokenizer_config.json", "special_tokens_map.json"))
    for name in (*named, "[MASK]", "<mask>"):
        id = backend.token_to_id(name) if name is not None else None
        if isinstance(id, int):
            return id
    raise ModelError(f"the tokenizer of {folder} has no mask token: this is not a masked language model")


@dataclass(frozen=True, eq=False)
class MaskedModel:
    """What every backend's masked language model does with its `forward`."""

    forward: Forward
    tokenizer: MaskTokenizer
    work: Work
    info: ModelInfo

    @property
    def max_length(self) -> int:
        return self.tokenizer.max_length

    def tokenize(self, texts: Sequence[str], *, truncate: bool = True) -> list[TokenizedText]:
        return self.tokenizer.encode(texts, truncate=truncate)

    def token_strings(self, ids: Sequence[int]) -> list[str]:
        return self.tokenizer.strings(ids)

    def log_probs(self, questions: MaskedTokens, *, progress: Progress = SILENT) -> tuple[Vectors, Vectors]:
        """Log-probability and rank of every hidden token. Equal logits share the middle of their ranks."""
        log_probs, ranks = np.empty(len(questions), np.float32), np.empty(len(questions), np.float32)
        progress.start("Masking", len(questions))
        for rows, (log_prob, rank) in self._answers(questions, likelihood):
            log_probs[rows], ranks[rows] = log_prob, rank
            progress.advance(len(rows))
        return log_probs, ranks

    def distributions(self, questions: MaskedTokens) -> Vectors:
        """The log-probabilities of all tokens for each question, float32[n, vocabulary]: ask for a few at a time."""
        table: Vectors | None = None
        for rows, values in self._answers(questions, lambda logits, _: log_softmax(logits)):
            if table is None:
                table = np.empty((len(questions), values.shape[1]), np.float32)
            table[rows] = values
        assert table is not None, "there is no question"
        return table

    def _answers(
        self, questions: MaskedTokens, read: Callable[[Logits, Ints], Answer]
    ) -> Iterator[tuple[Ints, Answer]]:
        """`read(logits, targets)` of every batch of questions, with the numbers of its questions."""

        def compute(rows: Ints) -> Answer:
            batch, positions, targets = hide(questions, rows, self.tokenizer, self.work)
            return read(self.forward(batch, positions)[: batch.rows], targets)

        lengths = np.array([len(ids) for ids in questions.texts])[questions.text]
        with self.work.one_core_each():
            yield from answers(lengths, compute, self.work)


def hide(questions: MaskedTokens, rows: Ints, tokenizer: MaskTokenizer, work: Work) -> tuple[Batch, Ints, Ints]:
    """The batch with its masks in place, the position to read in each row, and the token that stood there."""
    texts = [questions.texts[i] for i in questions.text[rows]]
    batch = work.pad([untyped(text) for text in texts], tokenizer)
    positions = np.zeros(len(batch.ids), np.int64)
    positions[: len(rows)] = questions.position[rows]
    for i, (start, stop) in enumerate(zip(positions, questions.until[rows], strict=False)):
        batch.ids[i, start:stop] = tokenizer.mask_id
    batch.ids[len(rows) :] = batch.ids[0]  # rows that fill a fixed shape are copies of the first
    targets = np.array([text[p] for text, p in zip(texts, positions, strict=False)], np.int64)
    return batch, positions, targets


def likelihood(logits: Logits, targets: Ints) -> tuple[Vectors, Vectors]:
    """Log-softmax at the target, and its rank: 1 is best, ties share the middle.

    >>> log_prob, rank = likelihood(np.log(np.array([[1, 6, 1, 2]], np.float32)), np.array([3]))
    >>> np.exp(log_prob).round(4), rank
    (array([0.2], dtype=float32), array([2.], dtype=float32))
    """
    target = logits[np.arange(len(logits)), targets][:, None]
    highest = logits.max(axis=1, keepdims=True)
    total = np.exp(logits - highest).sum(axis=1, dtype=np.float64)
    above, equal = (logits > target).sum(axis=1), (logits == target).sum(axis=1)
    log_prob = target[:, 0] - highest[:, 0] - np.log(total)
    return log_prob.astype(np.float32), (above + (equal + 1) / 2).astype(np.float32)


def bound_memory(batching: Batching, vocabulary: int, *, positions_kept: int) -> Batching:
    """Fewer rows where their logits would take more than 64 MB: one position is kept of a row, or all of them."""
    rows = max(1, _CELLS // (vocabulary * positions_kept))
    if batching.rows:
        return batching if batching.fixed_rows else replace(batching, rows=min(batching.rows, rows))
    return replace(batching, most_rows=rows)


def make_probe(
    model: MaskedModel, vocabulary: int, *, positions_kept: int, dtype: Callable[[], str], long: int = 0
) -> BatchProbe:
    """Random rows with one mask each, some of up to `long` tokens, to compare their log-probabilities alone and in a
    batch."""
    longest = min(model.max_length, model.work.batching.fixed_length or model.max_length)
    if positions_kept > 1:  # all logits of four rows are in hand at a time
        longest = min(longest, max(2, _CELLS // (4 * vocabulary)))
    rows = model.tokenizer.sample(trial_lengths(longest))
    long_rows = model.tokenizer.sample(long_lengths(min(long, longest)))
    for row in (*rows, *long_rows):
        row.ids[len(rows[0].ids) // 2] = model.tokenizer.mask_id

    def read(batch: Batch) -> Vectors:
        positions = np.full(len(batch.ids), len(rows[0].ids) // 2)
        return log_softmax(model.forward(batch, positions)).astype(np.float32)

    return BatchProbe(rows, read, dtype, LEAST_LOGIT, long_rows=long_rows)


def difference(one: Forward, other: Forward, tokenizer: MaskTokenizer, vocabulary: int, work: Work) -> float:
    """The largest difference of two ways to the logits, on ragged rows of random tokens with one mask each."""
    rng = np.random.default_rng(0)
    longest = min(tokenizer.max_length, work.batching.fixed_length or _TRIAL)
    lengths = sorted({longest, max(SHORTEST, longest // 2), min(SHORTEST, longest)}, reverse=True)
    texts = [rng.integers(0, min(vocabulary, tokenizer.vocab_size), n).astype(np.int32) for n in lengths]
    row = np.repeat(np.arange(len(texts), dtype=np.int32), 2)
    position = np.array([p for n in lengths for p in (0, n - 1)], np.int32)
    questions = MaskedTokens(texts, row, position, position + 1)
    size = work.batching.fixed_rows or work.batching.rows or len(row)
    worst = 0.0
    for start in range(0, len(row), size):
        batch, positions, _ = hide(questions, np.arange(start, min(start + size, len(row))), tokenizer, work)
        a, b = one(batch, positions)[: batch.rows], other(batch, positions)[: batch.rows]
        if a.shape != b.shape or not np.isfinite(b).all():
            return float("inf")
        worst = max(worst, float(np.abs(a - b).max()))
    return worst
