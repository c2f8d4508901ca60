"""What `parity` takes and what it gives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from calipers.core import ModelInfo
from calipers.core.options import Options, option
from calipers.metrics.arrays import Floats

FLOAT32 = 1e-4  # how far float32 moves a vector at most, between two runtimes, as a share of its length


@dataclass(frozen=True)
class ParityOptions(Options):
    """How two models are compared."""

    tolerance: float = option(
        FLOAT32,
        "How far a vector may be from the reference's, as a share of its length. 0.0001 holds for float32 in any "
        "runtime; 0.02 accepts half precision.",
        group="Comparison",
        metavar="SHARE",
        above=0,
        below=0.5,
    )
    samples: int = option(200, "At most so many texts of a dataset.", group="Comparison", metavar="N", at_least=2)


@dataclass(frozen=True)
class ProbeText:
    """A text that both models read, and the groups that it belongs to, such as "language: de"."""

    text: str
    groups: tuple[str, ...]


@dataclass(frozen=True)
class Cosines:
    """How near the vectors of some texts are."""

    smallest: float
    median: float
    texts: int

    @classmethod
    def of(cls, cosines: Floats) -> Cosines:
        """At least one cosine."""
        return cls(float(np.min(cosines)), float(np.median(cosines)), len(cosines))


@dataclass(frozen=True)
class Deviation:
    """A setting that differs: what each side does, in words; `restores` is the smallest cosine of all texts once the
    reference does as the other one, with all differences that are named; None where that cannot be tried."""

    setting: str
    reference: str
    other: str
    restores: float | None
    sentence: str


@dataclass(frozen=True)
class Tried:
    """Settings that the reference was tried with, and how near that brought it on a few texts."""

    settings: Mapping[str, str]
    smallest: float
    median: float


@dataclass(frozen=True)
class Parity:
    """Whether two models are the same, and what differs. `cosines` are by group of texts."""

    reference: ModelInfo
    other: ModelInfo
    same: bool
    headline: str
    cosine: Cosines
    groups: Mapping[str, Cosines]
    differences: Sequence[Deviation]
    tried: Sequence[Tried]
    tolerance: float
    notes: Sequence[str] = ()
    refused: Mapping[str, str] = field(default_factory=dict)  # text → what the server said

    def to_dict(self) -> dict[str, Any]:
        groups = {name: asdict(cosines) for name, cosines in self.groups.items()}
        return {
            "schema": "calipers/parity/1",
            "same": self.same,
            "headline": self.headline,
            "reference": _describe(self.reference),
            "other": _describe(self.other),
            "tolerance": self.tolerance,
            "cosine": {**asdict(self.cosine), "groups": groups},
            "differences": [asdict(difference) for difference in self.differences],
            "tried": [asdict(tried) for tried in self.tried],
            "refused": dict(self.refused),
            "notes": list(self.notes),
        }


def _describe(info: ModelInfo) -> dict[str, Any]:
    return {
        "model_id": info.model_id,
        "model_path": info.path,
        "backend": info.backend,
        "fingerprint": info.fingerprint,
        "settings": dict(info.settings),
    }
