"""Fill-mask: how well a masked language model predicts each token of a text from all the others.

Pseudo-perplexity after Salazar et al. 2020 (arXiv 1910.14659): every real token is masked alone, in its full context,
and PPPL = exp(-Σ log P(token | the others) / N). `pll="word-l2r"` is the variant of Kauf and Ivanova 2023
(arXiv 2305.10588): the later sub-words of the same word are masked too, so that they do not give it away.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from calipers.core.choices import PSEUDO_LIKELIHOODS
from calipers.core.datasets import Dataset
from calipers.core.errors import DataError, RequestError
from calipers.core.models import MaskedLM, MaskedTokens, Progress, TokenizedText
from calipers.core.options import Options, option
from calipers.core.outcomes import Columns, Outcomes
from calipers.core.results import DefaultData, Metric, Statistic, Task
from calipers.metrics.arrays import Array
from calipers.metrics.means import perplexity_statistic
from calipers.tasks import columns, outputs
from calipers.tasks.columns import per_token

_MANY_UNKNOWN = 0.05
Ints = NDArray[np.int32]


@dataclass(frozen=True)
class FillMaskOptions(Options):
    tokens: int | None = option(None, "Score whole texts up to about N tokens.", group="Task", metavar="N", at_least=1)
    window: bool = option(False, "Score long texts whole, in overlapping windows.", group="Task")
    word_level: bool = option(
        False, "Also report perplexity per word, which models with different tokenizers share.", group="Task"
    )
    pll: str = option(
        "original", "Mask one token, or also the later sub-words of its word.", group="Task", choices=PSEUDO_LIKELIHOODS
    )


@dataclass(frozen=True)
class Piece:
    """A text or a window of one: the ids that the model reads, and the positions to score."""

    example: int
    ids: Ints
    positions: Ints
    until: Ints


def run(model: MaskedLM, dataset: Dataset, options: FillMaskOptions, progress: Progress) -> Outcomes:
    """Outcomes per text: `tokens`, `log_likelihood`, `correct`, `correct@5`; per token its log-probability and rank."""
    tokenized = model.tokenize(dataset.columns["input_column"], truncate=not options.window)
    rows = _choose(tokenized, dataset, options.tokens)
    pieces = [p for i, row in enumerate(rows) for p in _pieces(i, tokenized[row], model.max_length, options)]
    example, position, token, log_prob, rank = _score(model, pieces, progress)
    ids = tuple(dataset.ids[row] for row in rows)
    owners = [ids[i] for i in example.tolist()]
    outputs.refuse_rows(outputs.not_finite(log_prob), owners, "non-finite probabilities", "tokens")
    texts = tuple(dataset.columns["input_column"][row] for row in rows)
    table: dict[str, Array] = {
        "tokens": np.bincount(example, minlength=len(rows)),
        "log_likelihood": np.bincount(example, weights=log_prob, minlength=len(rows)),
        "correct": np.bincount(example, weights=rank <= 1, minlength=len(rows)),
        "correct@5": np.bincount(example, weights=rank <= 5, minlength=len(rows)),
    }
    if options.word_level:
        # of the part that was scored, by whitespace: the same for every tokenizer
        scored = (text[: tokenized[row].characters] for row, text in zip(rows, texts, strict=True))
        table["words"] = np.array([len(text.split()) for text in scored])
    counts = {
        "texts": len(rows),
        "tokens": len(log_prob),
        "unknown": sum(tokenized[row].unknown for row in rows),
        "truncated": sum(tokenized[row].truncated for row in rows),
        "without_tokens": sum(len(t.scored) == 0 for t in tokenized),
    }
    return Outcomes(
        ids=ids,
        columns=table,
        texts={"text": texts},
        details={
            "tokens": {
                "example": example,
                "position": position,
                "token": token,
                **_strings(model, token),
                "log_prob": log_prob,
                "rank": rank,
            }
        },
        counts=counts,
        notes=tuple(_notes(counts, table, [tokenized[row] for row in rows], options)),
    )


def _strings(model: MaskedLM, token: Array) -> dict[str, Array]:
    """The column `string`, what the tokenizer writes for each token, where the model can tell."""
    if not hasattr(model, "token_strings"):
        return {}
    distinct, place = np.unique(token, return_inverse=True)
    return {"string": np.array(model.token_strings(distinct.tolist()), dtype=object)[place]}


def _notes(
    counts: Mapping[str, int], table: Columns, texts: Sequence[TokenizedText], options: FillMaskOptions
) -> Iterator[str]:
    """What would surprise a reader of the figures."""
    if counts["unknown"] > _MANY_UNKNOWN * counts["tokens"]:
        share = counts["unknown"] / counts["tokens"]
        yield f"{share:.0%} of the scored tokens are unknown to the tokenizer: is it the right one for these texts?"
    if options.word_level and table["words"].max() < 2:
        yield "no text has two words by whitespace: word_pseudo_perplexity is then per text"
    if options.pll == "word-l2r" and any(text.spaced for text in texts):
        yield "the tokenizer does not split texts into words: words are what whitespace separates"
    if options.pll == "word-l2r" and not any((_word_ends(text) > text.scored + 1).any() for text in texts):
        yield "no word has several tokens here: word-l2r is the same as original"
    if options.tokens and counts["tokens"] < 0.5 * options.tokens:
        yield f"{options.tokens} tokens were requested and whole texts with {counts['tokens']} fit"


def _choose(tokenized: Sequence[TokenizedText], dataset: Dataset, most: int | None) -> list[int]:
    """Rows with something to score, in the data's order. Within a bound on tokens they are as many whole texts as it
    allows, at least one, drawn at random unless rows are not shuffled."""
    rows = [row for row, text in enumerate(tokenized) if len(text.scored)]
    if not rows:
        raise DataError(f"none of the {len(tokenized)} texts of {dataset.source.path} has a token to score")
    if most is None:
        return rows
    if dataset.source.shuffle:
        rows = list(np.random.default_rng(dataset.source.seed).permutation(rows))
    totals = accumulate(len(tokenized[row].scored) for row in rows)
    fitting = sum(total <= most for total in totals)
    return sorted(int(row) for row in rows[: max(1, fitting)])


def _pieces(example: int, text: TokenizedText, longest: int, options: FillMaskOptions) -> list[Piece]:
    """A long text in windows that overlap by half, each with the special tokens of the whole; a token is scored where
    it is most central, once."""
    until = _word_ends(text) if options.pll == "word-l2r" else text.scored + 1
    if len(text.ids) <= longest:
        return [Piece(example, text.ids, text.scored, until)]
    first, last = int(text.scored[0]), int(text.scored[-1]) + 1
    before, after = text.ids[:first], text.ids[last:]
    width = longest - len(before) - len(after)
    if width < 2:
        raise RequestError(f"`max_length` {longest} leaves no room for a window")
    starts = [*range(first, last - width, width // 2), last - width]
    middles = np.array(starts) + width / 2
    home = np.abs(text.scored[:, None] + 0.5 - middles[None, :]).argmin(axis=1)
    pieces = []
    for number, start in enumerate(starts):
        mine = home == number
        shift = len(before) - start
        ids = np.concatenate([before, text.ids[start : start + width], after])
        ends = np.minimum(until[mine], start + width)  # a word cut off by the window ends with it
        if mine.any():
            pieces.append(Piece(example, ids, text.scored[mine] + shift, ends + shift))
    return pieces


def _word_ends(text: TokenizedText) -> Ints:
    """Behind the last token of the word that each scored token belongs to."""
    change = np.flatnonzero(np.append(text.words[1:] != text.words[:-1], True)) + 1
    ends = change[np.searchsorted(change, text.scored, side="right")]
    alone = text.words[text.scored] < 0
    return np.where(alone, text.scored + 1, ends).astype(np.int32)


def _score(model: MaskedLM, pieces: Sequence[Piece], progress: Progress) -> tuple[Array, ...]:
    """Example, position, token, log-probability and rank of every scored token. Equal pieces are scored once."""
    keys = [tuple(a.tobytes() for a in (piece.ids, piece.positions, piece.until)) for piece in pieces]
    once = dict(zip(reversed(keys), reversed(pieces), strict=True))
    number, distinct = {key: i for i, key in enumerate(once)}, list(once.values())
    sizes = [len(piece.positions) for piece in distinct]
    questions = MaskedTokens(
        texts=[piece.ids for piece in distinct],
        text=np.repeat(np.arange(len(distinct), dtype=np.int32), sizes),
        position=np.concatenate([piece.positions for piece in distinct]).astype(np.int32),
        until=np.concatenate([piece.until for piece in distinct]).astype(np.int32),
    )
    log_prob, rank = model.log_probs(questions, progress=progress)
    starts = np.concatenate([[0], np.cumsum(sizes)])
    where = np.concatenate([np.arange(starts[number[key]], starts[number[key] + 1]) for key in keys])
    example = np.repeat([piece.example for piece in pieces], [len(piece.positions) for piece in pieces])
    token = np.concatenate([piece.ids[piece.positions] for piece in pieces])
    position = np.concatenate([piece.positions for piece in pieces])
    return example.astype(np.int32), position, token, log_prob[where], rank[where]


def _perplexity(unit: str) -> Callable[[Columns], Statistic]:
    return lambda outcomes: perplexity_statistic(outcomes["log_likelihood"], outcomes[unit])


_nll, _bits = (per_token("log_likelihood", sign=sign) for sign in (-1.0, -1.0 / np.log(2.0)))
_metric = partial(Metric, digits=4, same=("tokens",))
_loss = partial(_metric, higher_is_better=False)

METRICS = (
    _loss(
        "pseudo_perplexity",
        "exp of the mean negative log-likelihood per token",
        _perplexity("tokens"),
        log_scale=np.log,
    ),
    _loss("nll", "mean negative log-likelihood per token, in nats", _nll, log_scale=np.positive),
    _loss("bits_per_token", "the same in bits", _bits, log_scale=lambda bits: bits * np.log(2.0), minor=True),
    _metric("token_accuracy", "share of tokens that the model ranks first", per_token("correct")),
    _metric("token_accuracy@5", "share of tokens among its first five", per_token("correct@5")),
    _loss(
        "word_pseudo_perplexity",
        "the same per word: comparable between tokenizers",
        _perplexity("words"),
        needs=("words",),
        same=("words",),
        log_scale=np.log,
    ),
)

TASK = Task(
    name="fill-mask",
    aliases=("masked-lm",),
    about="how well a masked language model predicts each token from the others",
    ability="fill-mask",
    unit="text",
    columns=(columns.TEXT,),
    default_data=DefaultData("Salesforce/wikitext", "wikitext-2-raw-v1", "test"),
    metrics=METRICS,
    text_ids=columns.text_ids,
    run=run,
    options=FillMaskOptions,
)
