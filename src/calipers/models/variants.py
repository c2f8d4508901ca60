"""An encoder as it would be with other settings: the same weights, and nothing is loaded again."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

from calipers.core import Encoder
from calipers.models.heads import PooledEncoder
from calipers.models.tokenizer import Frame


@dataclass(frozen=True)
class Variation:
    """Settings that differ from an encoder's own; None keeps them. `lower_case` False keeps the case of texts where the
    tokenizer would lower it. `frame` has the special tokens before and behind a text."""

    pooling: str | None = None
    normalize: bool | None = None
    frame: Frame | None = None
    max_length: int | None = None
    side: str | None = None  # where long texts are cut
    lower_case: bool | None = None

    def joined(self, other: Variation) -> Variation:
        """Both; `other` wins."""
        changed = {f.name: getattr(other, f.name) for f in fields(other) if getattr(other, f.name) is not None}
        return replace(self, **changed)


def as_variable(encoder: Encoder) -> PooledEncoder | None:
    """The encoder if its settings can be changed: pooling and tokens are in our hands."""
    return encoder if isinstance(encoder, PooledEncoder) else None


def vary(encoder: PooledEncoder, variation: Variation) -> PooledEncoder:
    settings = encoder.settings
    pooling = variation.pooling or settings.pooling
    normalize = settings.normalize if variation.normalize is None else variation.normalize
    tokenizer = encoder.tokenizer
    if {variation.frame, variation.max_length, variation.side, variation.lower_case} != {None}:
        tokenizer = tokenizer.varied(
            frame=variation.frame,
            max_length=variation.max_length,
            side=variation.side,
            keep_case=variation.lower_case is False,
        )
    settings = replace(settings, pooling=pooling, normalize=normalize)
    return replace(encoder, settings=settings, tokenizer=tokenizer)
