"""Masked language models behind the hub's fill-mask protocol: `POST {"inputs": "the [MASK] runs", "parameters": {…}}`.

An answer lists tokens with their probabilities over the whole vocabulary: the likeliest `top_k`, or those of `targets`.
The protocol takes text, not tokens. So a token counts as hidden only where the text with a mask in its place is read as
the same tokens otherwise, which the tokenizer on this machine decides. Inside a word of several WordPieces it is not
("[MASK]ing" is read as a mask and the word "ing"); hiding the rest of the word too (word-l2r) works there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from calipers.core import (
    SILENT,
    InferenceError,
    MaskedTokens,
    ModelError,
    ModelInfo,
    Progress,
    RequestError,
    TokenizedText,
)
from calipers.core.inputs import expand
from calipers.metrics.arrays import Array, Vectors
from calipers.models import hub
from calipers.models.layout import masked_length, read_layout
from calipers.models.masking import MaskTokenizer
from calipers.models.options import ModelOptions
from calipers.models.source import Source
from calipers.models.transport import endpoint_info, fault, find_endpoint, in_order, send

_PATHS = ("", "/predict")  # the address itself as on the hub, and huggingface-inference-toolkit's other path
_BEST = 5  # tokens of the first answer, which rank 1 and 5 are read from
_TRIAL_TOKENS = 3


def load(source: Source, options: ModelOptions) -> HttpMaskedLM:
    options.refuse_others("an endpoint for fill-mask", "model_id", "revision", "max_length", "timeout")
    tokenizer = _open_tokenizer(options)
    url = find_endpoint(source.reference, _PATHS, lambda place: _try_targets(place, tokenizer, options))
    settings = {
        "protocol": "the hub's fill-mask",
        "tokenizer": options.model_id,
        "max_length": tokenizer.max_length,
        "batching": "one text a request",
    }
    return HttpMaskedLM(url, options, endpoint_info(url, options, settings), tokenizer)


def _open_tokenizer(options: ModelOptions) -> MaskTokenizer:
    if not options.model_id:
        raise ModelError(
            "an endpoint for fill-mask takes text, and its tokens are read here: set `model_id` to the folder or "
            "hub id of its model"
        )
    folder = expand(options.model_id)
    if not folder.is_dir():
        folder = hub.fetch(options.model_id, revision=options.revision, patterns=hub.SETTINGS)
    layout = read_layout(folder)
    return MaskTokenizer(layout, max_length=masked_length(layout, options))


def _try_targets(url: str, tokenizer: MaskTokenizer, options: ModelOptions) -> None:
    """Whether the server gives the probability of any token, and has the same ids for them."""
    special = set(tokenizer.special_ids)
    ordinary = [id for id in range(tokenizer.vocab_size) if id not in special and tokenizer.strings([id])[0]]
    mask = tokenizer.spell(tokenizer.mask_id)
    for place in np.linspace(0, len(ordinary) - 1, _TRIAL_TOKENS).astype(int):
        id = ordinary[place]
        answer = _request(url, Hidden(mask, 0, 1, id), options, targets=tokenizer.strings([id]))
        if len(answer) > 1:
            raise fault(url, "does not answer for a given token: it ignores the fill-mask parameter `targets`")
        if id not in answer:
            raise fault(url, f"has another tokenizer than {options.model_id}: other ids stand for the same tokens")


class Hidden(NamedTuple):
    """A text with masks, which of them is asked about, how many there are, and the token that stood there."""

    text: str
    which: int
    masks: int
    target: int


@dataclass(frozen=True, eq=False)
class HttpMaskedLM:
    url: str = field(repr=False)  # it may hold a password
    options: ModelOptions
    info: ModelInfo
    tokenizer: MaskTokenizer
    read: dict[bytes, str] = field(default_factory=dict, repr=False)  # token ids to the text that they were read from

    @property
    def max_length(self) -> int:
        return self.tokenizer.max_length

    def tokenize(self, texts: Sequence[str], *, truncate: bool = True) -> list[TokenizedText]:
        tokenized = self.tokenizer.encode(texts, truncate=truncate)
        self.read.update({row.ids.tobytes(): text for row, text in zip(tokenized, texts, strict=True)})
        return tokenized

    def token_strings(self, ids: Sequence[int]) -> list[str]:
        return self.tokenizer.strings(ids)

    def log_probs(self, questions: MaskedTokens, *, progress: Progress = SILENT) -> tuple[Vectors, Vectors]:
        """Log-probability and rank of every hidden token; the rank is NaN behind the first five, which the endpoint
        does not tell."""
        hidden = self._hide(questions)
        distinct = list(dict.fromkeys(hidden))
        progress.start("Masking", len(distinct))
        answers: dict[Hidden, tuple[float, float]] = {}
        for question, answer in zip(distinct, in_order(self._ask, distinct), strict=True):
            answers[question] = answer
            progress.advance(1)
        probability, rank = np.array([answers[question] for question in hidden], np.float64).reshape(-1, 2).T
        with np.errstate(divide="ignore"):
            return np.log(probability).astype(np.float32), rank.astype(np.float32)

    def distributions(self, questions: MaskedTokens) -> Vectors:
        raise RequestError(
            f"{self.info.artifact}: an endpoint gives the probabilities of single tokens only; distributions are "
            "compared between the files of two models"
        )

    def _ask(self, hidden: Hidden) -> tuple[float, float]:
        best = _request(self.url, hidden, self.options)
        if hidden.target in best:
            mine = best[hidden.target]
            equal, above = (sum(op(p) for p in best.values()) for op in (mine.__eq__, mine.__lt__))
            return mine, above + (equal + 1) / 2
        target = self.tokenizer.strings([hidden.target])
        answer = _request(self.url, hidden, self.options, targets=target)
        if hidden.target not in answer:
            raise fault(self.url, f"did not give the probability of {target[0]!r}, which the fill-mask request named")
        return answer[hidden.target], float("nan")

    def _hide(self, questions: MaskedTokens) -> list[Hidden]:
        """Every question as a text with masks. All are settled before the first one is sent."""
        hidden: list[Hidden] = []
        impossible: list[tuple[str, int, int]] = []
        for number, ids in enumerate(questions.texts):
            text = self.read.get(ids.tobytes())
            if text is None:
                raise InferenceError(
                    "an endpoint for fill-mask takes whole texts: leave `window` out, or measure the model's files"
                )
            mine = np.flatnonzero(questions.text == number)
            masker = _Masker(self.tokenizer, text, ids)
            for start, stop in zip(questions.position[mine], questions.until[mine], strict=True):
                content = masker.hide(int(start), int(stop))
                if content is None:
                    impossible.append((text, int(ids[start]), int(stop - start)))
                else:
                    hidden.append(content)
        if impossible:
            raise InferenceError(self._why(impossible, len(questions)))
        order = np.argsort(np.argsort(questions.text, kind="stable"))
        return [hidden[i] for i in order]

    def _why(self, impossible: Sequence[tuple[str, int, int]], total: int) -> str:
        text, token, width = impossible[0]
        piece = self.tokenizer.strings([token])[0]
        way = "set `pll` to word-l2r, which hides the rest of a word too" if width == 1 else "leave such texts out"
        return (
            f"{len(impossible)} of the {total} tokens cannot be hidden in a text, and the endpoint takes nothing else: "
            f"with a mask for {piece!r} the tokenizer reads other tokens beside it in {text[:60]!r}; {way}, or measure "
            f"the model's files"
        )


class _Masker:
    """Puts masks into one text."""

    def __init__(self, tokenizer: MaskTokenizer, text: str, ids: Array) -> None:
        self._tokenizer, self._ids = tokenizer, ids
        self._mask = tokenizer.spell(tokenizer.mask_id)
        self._spans, whole = tokenizer.spans(text)
        begin, end = (
            (0, len(text))
            if whole
            else (min(s for s, _ in self._spans.values()), max(e for _, e in self._spans.values()))
        )
        self._text, self._begin = text[begin:end], begin

    def hide(self, start: int, stop: int) -> Hidden | None:
        """None where no text with masks in their place is read as these tokens."""
        expected = self._ids.copy()
        expected[start:stop] = self._tokenizer.mask_id
        for text in self._candidates(start, stop):
            if np.array_equal(self._tokenizer.encode([text], truncate=False)[0].ids, expected):
                masks = np.flatnonzero(expected == self._tokenizer.mask_id)
                return Hidden(text, int(np.searchsorted(masks, start)), len(masks), int(self._ids[start]))
        return None

    def _candidates(self, start: int, stop: int) -> Iterator[str]:
        """A token may hold the space before it, and a mask may take it."""
        first, last = (place - self._begin for place in (self._spans[start][0], self._spans[stop - 1][1]))
        before, inside, behind = self._text[:first], self._text[first:last], self._text[last:]
        masks = self._mask * (stop - start)
        space = inside[: len(inside) - len(inside.lstrip())]
        yield before + masks + behind
        yield before + space + masks + behind
        yield before.rstrip() + masks + behind


def _request(
    url: str, hidden: Hidden, options: ModelOptions, *, targets: Sequence[str] | None = None
) -> dict[int, float]:
    """Token ids and their probabilities: of the targets, or the likeliest ones."""
    named: Mapping[str, object] = {"top_k": _BEST} if targets is None else {"top_k": len(targets), "targets": targets}
    rows: Any = send(url, {"inputs": hidden.text, "parameters": named}, options)
    if hidden.masks > 1:  # a list for each mask
        if not isinstance(rows, list) or len(rows) != hidden.masks:
            raise fault(
                url, f"did not answer in the form of fill-mask: expected a list for each of {hidden.masks} masks"
            )
        rows = rows[hidden.which]
    try:
        answer = {_integer(row["token"]): float(row["score"]) for row in rows}
    except (TypeError, KeyError, ValueError, OverflowError) as error:
        raise fault(url, "did not answer in the form of fill-mask: expected rows with token and score") from error
    if not answer:
        raise fault(url, "did not answer in the form of fill-mask: expected rows with token and score")
    if any(not 0 <= score <= 1.001 for score in answer.values()):
        raise fault(url, "answered with a score that is no probability: expected numbers between 0 and 1")
    return answer


def _integer(value: object) -> int:
    if type(value) is not int:
        raise TypeError("a token's id is a whole number")
    return value
