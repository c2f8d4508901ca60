"""Whether a row's output depends on the rows beside it, measured at load.

Most models hide padding behind a mask. Some read it (FNet, ConvBERT, YOSO, Nyströmformer), some choose another
attention for a longer batch (BigBird), some quantised graphs let it through or take one range for a whole batch. A few
rows are run alone, padded beside a longer row and among rows of their own length; what differs decides the batches.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Protocol, TypeVar

import numpy as np

from calipers.core import InferenceError, ModelInfo
from calipers.metrics.arrays import Array, Vectors
from calipers.models.batching import Batch, Batching, Padding, Work, pad
from calipers.models.tokenizer import Tokens
from calipers.models.tokenizer_files import Config

Run = Callable[[Batch], Vectors]  # what is compared: one row of numbers for each row of the batch

# What rounding can do, as a share of the largest output. Measured: at most 2e-6 in float32 over 30 families of tiny
# models and MiniLM, where the smallest leak seen is 3e-3.
TOLERANCES = {"float32": 1e-4, "float16": 5e-3, "bfloat16": 4e-2}
LEAST_LOGIT = 0.1  # logits smaller than this are compared as if they were this large
_LONGEST = 32  # tokens of the longest row


@dataclass(frozen=True)
class Effect:
    """How far outputs move: the largest difference, and the largest output of a row that runs alone."""

    difference: float
    scale: float

    def beyond(self, tolerance: float) -> bool:
        return self.difference > tolerance * self.scale

    def __str__(self) -> str:
        if not np.isfinite(self.difference):
            return "an unknown amount, since a batch fails or gives NaN"
        share = 100 * self.difference / self.scale if self.scale else np.inf
        return f"{self.difference:.2g}, {share:{'.2g' if share < 10 else '.0f'}} % of the largest output"


NONE = Effect(0.0, 0.0)


def _share(effect: Effect) -> float:
    return effect.difference / effect.scale if effect.scale else effect.difference


def compare(alone: Array, together: Array, least: float = 0.0) -> Effect:
    """The effect of sharing a batch. A value that is NaN in both is no difference; `least` is the smallest scale.

    >>> str(compare(np.array([[2.0, -4.0]]), np.array([[2.5, -4.0]])))
    '0.5, 12 % of the largest output'
    """
    a, b = np.asarray(alone, np.float64), np.asarray(together, np.float64)
    if a.shape != b.shape:
        return Effect(np.inf, 1.0)
    with np.errstate(invalid="ignore", over="ignore"):
        moved = np.where((a == b) | (np.isnan(a) & np.isnan(b)), 0.0, np.abs(a - b))
    largest = float(np.abs(a[np.isfinite(a)]).max(initial=least))
    return Effect(float(np.where(np.isfinite(moved), moved, np.inf).max(initial=0.0)), largest)


def trial_lengths(longest: int) -> list[int]:
    """Token counts of the rows to try: two short ones of equal length, a middle one, and one that pads the others.

    The shorter ones are odd: padding that fills a group of tokens (CANINE) leaks where a row ends within a group.

    >>> trial_lengths(512), trial_lengths(4)
    ([5, 5, 11, 32], [3, 3, 3, 4])
    """
    long = min(longest, _LONGEST)
    short = max(1, min(5, long - 1))
    return [short, short, max(short, long // 3 | 1), long]


# Values of model_type whose attention is a masked softmax at every length: what padding does, it does to short rows.
_PLAIN = {
    *("albert", "bert", "camembert", "data2vec-text", "deberta", "deberta-v2", "distilbert", "electra", "ernie", "esm"),
    *(
        "flaubert",
        "layoutlm",
        "lilt",
        "luke",
        "megatron-bert",
        "mobilebert",
        "modernbert",
        "mpnet",
        "mt5",
        "nomic_bert",
    ),
    *("rembert", "roberta", "roberta-prelayernorm", "roc_bert", "splinter", "squeezebert", "t5", "umt5", "xlm"),
    *("xlm-roberta", "xlm-roberta-xl"),
}
_LONG, _LONGER = 512, 4096  # tokens of the longest row of a long trial, usually and at most


def long_trial(config: Config, longest: int, *, quantised: bool = False) -> int:
    """How many tokens a row must have to show all that a model does with its length; 0 where short rows show it.

    Attention in blocks or segments, rotations that change behind a length, and rounding that adds up over many tokens
    are seen in long rows only.

    >>> long_trial({"model_type": "bert"}, 512), long_trial({"model_type": "big_bird", "block_size": 64}, 4096)
    (0, 1056)
    """
    kind = config.get("model_type")
    rope = config.get("rope_parameters") or config.get("rope_scaling") or {}
    turns = isinstance(rope, dict) and rope.get("rope_type", rope.get("type")) in ("dynamic", "longrope")
    if kind in _PLAIN and not turns and not quantised:
        return 0
    first = _first_change(config, rope if turns else {})
    return min(longest, _LONGER, max(_LONG, first + first // 2))


def _first_change(config: Config, rope: Config) -> int:
    """The length up to which a model may treat rows in another way than behind it, 0 where its config does not say."""
    blocks = 5 + 2 * _whole(config.get("num_random_blocks"), 3)  # BigBird: full attention up to so many blocks
    window = config.get("attention_window")  # Longformer
    windows = window if isinstance(window, list) else [window]
    turned = rope.get("original_max_position_embeddings", config.get("original_max_position_embeddings"))
    return max(_whole(config.get("block_size")) * blocks, *(_whole(size) for size in windows), _whole(turned), 0)


def _whole(value: object, default: int = 0) -> int:
    return value if isinstance(value, int) and value > 0 else default


def long_lengths(longest: int) -> list[int]:
    """Token counts of a long trial: a short row and a long one, one that pads them, and one that is as long as that.

    >>> long_lengths(512)
    [11, 385, 512, 512]
    """
    return [11, longest * 3 // 4 | 1, longest, longest] if longest > _LONGEST else []


class Batched(Protocol):
    """A model in batches, a dataclass: BatchedModel or MaskedModel."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    @property
    def tokenizer(self) -> Padding: ...

    @property
    def work(self) -> Work: ...

    @property
    def info(self) -> ModelInfo: ...


Probed = TypeVar("Probed", bound=Batched)


# Short and long, some of equal length, for a trial of how a model takes padding where it is given texts.
TRIAL_TEXTS = (
    *("bread", "It rains.", "It falls.", "Rain is water.", "Snow is water."),
    "The old bakery opens at seven and sells warm bread, 24 kinds of cake and tea. " * 3,
)


def compare_items(
    compute: Callable[[Sequence[int]], Vectors],
    items: int,
    lengths: Array | None,
    alone: Callable[[], str],
    dtype: str,
    least: float = 0.0,
) -> Choice:
    """Where another library makes the tokens: `compute(rows)` gives the outputs of so many `items` in one batch, and
    `lengths` int[items] are their tokens, if they can be counted."""
    everything = range(items)
    try:
        single = np.concatenate([compute([row]) for row in everything])
    except InferenceError:
        return Choice("", NONE, NONE)
    effect = _compare_batch(compute, everything, single, least)
    why = alone()
    if not effect.beyond(TOLERANCES[dtype]):
        return Choice("alone" if why else "", NONE, NONE, why)
    twins = [] if lengths is None or why else _equal_rows(lengths)
    if twins and not _compare_batch(compute, twins, single[twins], least).beyond(TOLERANCES[dtype]):
        return Choice("equal", effect, NONE, f"padding moves the outputs by up to {effect}")
    return Choice("alone", effect, NONE, f"a batch moves the outputs by up to {effect}")


def _compare_batch(
    compute: Callable[[Sequence[int]], Vectors], rows: Sequence[int], alone: Vectors, least: float
) -> Effect:
    try:
        return compare(alone, compute(rows), least)
    except InferenceError:
        return Effect(np.inf, 1.0)


def _equal_rows(lengths: Array) -> list[int]:
    """The rows of the first length that several have.

    >>> _equal_rows(np.array([7, 3, 5, 3]))
    [1, 3]
    """
    values, counts = np.unique(lengths, return_counts=True)
    return np.flatnonzero(lengths == values[np.argmax(counts > 1)]).tolist() if (counts > 1).any() else []


@dataclass(frozen=True)
class BatchProbe:
    """The rows to try, the first two equally long, how a batch of them is run, and what counts as rounding.

    `alone` says, after some runs, why rows must run alone whatever differs; `masked` is whether the model is given a
    mask; `unpadded` makes a way to run a row without the padding that a fixed length demands.
    """

    rows: Sequence[Tokens]
    run: Run
    dtype: Callable[[], str]  # a key of TOLERANCES; not called where float32 would not differ
    least: float = 0.0
    alone: Callable[[], str] = str
    masked: bool = True
    unpadded: Callable[[], Run] | None = None
    long_rows: Sequence[Tokens] = ()  # those of `long_lengths`, where short rows may not show all

    def settle(self, model: Probed) -> Probed:
        """The model with batches that do not change its outputs, or with a warning where they must."""
        try:
            with model.work.one_core_each():
                choice = self._choose(model.work, model.tokenizer)
        except InferenceError:  # not even alone: if real rows fail as well, that is reported then
            settings = {**model.info.settings, "batching": f"{model.work.batching}; a trial of padding failed"}
            return replace(model, info=replace(model.info, settings=settings))
        batching, notes = choice.apply(model.work.batching)
        info = choice.report(model.info, batching, notes)
        return replace(model, work=replace(model.work, batching=batching), info=info)

    def _choose(self, work: Work, padding: Padding) -> Choice:
        forced = self._padding_effect(work, padding) if work.batching.fixed_length else NONE
        if work.batching.size(1) == 1 or work.batching.fixed_rows == 1:
            return Choice("", NONE, forced)
        padded, equal = self._try(work, padding, self.rows, self.rows[:2])
        if self.long_rows and not work.batching.fixed_length:
            longer, twins = self._try(work, padding, self.long_rows[:-1], self.long_rows[-2:])
            padded, equal = max(padded, longer, key=_share), max(equal, twins, key=_share)
        if not self._counts(padded):
            why = self.alone()
            return Choice("alone" if why else "", NONE, forced, why)
        if why := self.alone():
            return Choice("alone", padded, forced, f"{why}, and padding moves its outputs by up to {padded}")
        if self._counts(equal) or work.batching.fixed_length:
            return Choice("alone", padded, forced, f"the rows of a batch move each other's outputs by up to {padded}")
        return Choice("equal", padded, forced, f"padding moves the outputs by up to {padded}")

    def _try(
        self, work: Work, padding: Padding, rows: Sequence[Tokens], twins: Sequence[Tokens]
    ) -> tuple[Effect, Effect]:
        """What padding does to the rows but the last, which pads them; if it does anything, what a batch does to the
        first of two equally long ones."""
        padded = self._effect(work, padding, rows)
        return padded, self._effect(work, padding, twins) if self._counts(padded) else NONE

    def _counts(self, effect: Effect) -> bool:
        """Whether an effect is more than rounding."""
        return effect.beyond(TOLERANCES["float32"]) and effect.beyond(TOLERANCES[self.dtype()])

    def _effect(self, work: Work, padding: Padding, rows: Sequence[Tokens]) -> Effect:
        """What happens to all rows but the last, which is in every batch: the others are padded beside it."""
        alone = np.concatenate([self._together(work, padding, [row]) for row in rows[:-1]])
        size = (work.batching.fixed_rows or len(rows)) - 1
        parts = [[*rows[i : min(i + size, len(rows) - 1)], rows[-1]] for i in range(0, len(rows) - 1, size)]
        try:
            together = [self._together(work, padding, part)[:-1] for part in parts]
        except InferenceError:
            return Effect(np.inf, 1.0)
        return compare(alone, np.concatenate(together), self.least)

    def _together(self, work: Work, padding: Padding, rows: Sequence[Tokens]) -> Vectors:
        batch = work.pad(rows, padding)
        return np.asarray(self.run(batch)[: batch.rows])

    def _padding_effect(self, work: Work, padding: Padding) -> Effect:
        """What the padding of a fixed length does to short rows. It is seen by other tokens in its place, which a mask
        must hide, and measured by a run without it where that is possible."""
        length = work.batching.fixed_length or 0
        rows = [row for row in self.rows if len(row.ids) < length]
        if not rows:
            return NONE
        padded = np.concatenate([self._together(work, padding, [row]) for row in rows])
        effect = NONE
        if self.masked:
            other = _Filler(int(self.rows[-1].ids[len(rows[0].ids) // 2]), padding.first_position)
            filled = np.concatenate([self._together(work, other, [row]) for row in rows])
            effect = compare(padded, filled, self.least)
            if not self._counts(effect):
                return NONE
        try:
            if self.unpadded is None:
                return effect
            run = self.unpadded()
            free = [run(pad([row], padding, rows=work.batching.fixed_rows))[:1] for row in rows]
        except InferenceError:
            return effect
        real = compare(np.concatenate(free), padded, self.least)
        return real if self._counts(real) else NONE


@dataclass(frozen=True)
class _Filler:
    """Padding with another token."""

    pad_id: int
    first_position: int


@dataclass(frozen=True)
class Choice:
    """`groups` is "" for any batches, "equal" for rows of equal length, "alone"; `padding` is the effect of the padding
    that a fixed length demands."""

    groups: str
    shared: Effect
    padding: Effect
    why: str = ""

    def report(self, info: ModelInfo, batching: Batching, notes: tuple[str, ...]) -> ModelInfo:
        """What a model says of its batches: those that are made, and what they still do to its outputs."""
        effect = self.shared if self.padding is NONE else self.padding
        moves = {"batch_dependence": f"outputs move by up to {effect}"} if notes and effect is not NONE else {}
        settings = {**info.settings, "batching": str(batching), **moves}
        return replace(info, settings=settings, notes=(*info.notes, *notes))

    def apply(self, batching: Batching) -> tuple[Batching, tuple[str, ...]]:
        """The batches to make, and what to warn of."""
        notes = []
        if self.padding is not NONE:
            notes.append(
                f"the graph pads every row to {batching.fixed_length} tokens, and that moves its outputs by up to "
                f"{self.padding}: the results are not those of the model without padding"
            )
        if not self.groups:
            return batching, tuple(notes)
        if batching.forced:
            better = "rows of equal length share a batch" if self.groups == "equal" else "every row runs alone"
            notes.append(f"the results depend on the batches that were requested: {self.why}; by default, {better}")
            return batching, tuple(notes)
        if self.groups == "equal":
            return replace(batching, equal_lengths=True, why=self.why), tuple(notes)
        return replace(batching, tokens=None, rows=1, why=self.why), tuple(notes)
