"""Vectors cut to their first numbers, for models that were trained so that a beginning is a vector too (Matryoshka)."""

from __future__ import annotations

from dataclasses import dataclass

from calipers.core import RequestError
from calipers.metrics.arrays import Vectors
from calipers.metrics.geometry import unit_like
from calipers.models.options import ModelOptions


@dataclass(frozen=True)
class Shortening:
    """How many numbers of a vector are kept; None keeps all. As in sentence-transformers, vectors are cut behind the
    model's own normalisation; a normalisation that the user requests comes last."""

    size: int | None = None
    requested: bool = False  # by the user, not by the model's files
    unit: bool = False  # scale what is left to length 1

    def apply(self, vectors: Vectors) -> Vectors:
        """float32[n, d] to float32[n, size]; unchanged where the vectors are no longer than that.

        >>> import numpy as np
        >>> Shortening(2, unit=True).apply(np.array([[3.0, 4.0, 5.0]], np.float32))
        array([[0.6, 0.8]], dtype=float32)
        """
        if self.size is None:
            return vectors
        if self.requested and self.size > vectors.shape[1]:
            raise RequestError(
                f"`truncate_dim` must be at most {vectors.shape[1]}, the size of the vectors, found {self.size}"
            )
        kept = vectors[:, : self.size]
        return unit_like(kept) if self.unit else kept

    @property
    def settings(self) -> dict[str, object]:
        """What a model reports; nothing where vectors are whole."""
        return {} if self.size is None else {"truncate_dim": self.size}


def shorten(options: ModelOptions, declared: int | None = None) -> Shortening:
    """What the options request, else what the model's files declare."""
    if options.sizes:
        raise RequestError(
            "`truncate_dim` takes several sizes for sentence-similarity and retrieval only: set one size, or all"
        )
    if options.truncate_dim is None:
        return Shortening(declared, unit=options.normalize is True)
    size = options.truncate_dim if isinstance(options.truncate_dim, int) else None
    return Shortening(size, requested=True, unit=options.normalize is True)
