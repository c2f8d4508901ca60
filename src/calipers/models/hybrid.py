"""Hybrid search: an encoder and BM25, whose rankings are fused. `hybrid:MODEL+bm25`, or with settings behind a colon.

`hybrid:./model+bm25` fuses reciprocal ranks (constant 60, the first 1,000 of each list); `hybrid:./model+bm25:0.7` is a
weighted sum of scores with 0.7 for the encoder. Settings are written `weight=0.7`, `constant=20`, `depth=500`; the
others are BM25's: `hybrid:./model+bm25:constant=20,k1=0.9`.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from calipers.core import Encoder, ModelInfo, RequestError
from calipers.core.errors import quote
from calipers.core.references import clean
from calipers.metrics.fusion import Fusion
from calipers.models.source import Source, split_hybrid

if TYPE_CHECKING:
    from calipers.models import bm25

_DEEPEST = 1_000_000_000  # results of a list
_KINDS: dict[str, type[float]] = {"weight": float, "constant": float, "depth": int}


@dataclass(frozen=True, eq=False)
class Hybrid:
    """An encoder and a lexical search of the same corpus. `lexical.rank` and a search by vectors are fused."""

    encoder: Encoder
    lexical: bm25.BM25
    fusion: Fusion
    info: ModelInfo


def combine(encoder: Encoder, source: Source) -> Hybrid:
    """The encoder of a reference, once it is loaded, with the BM25 and the fusion that the reference names."""
    from calipers.models import bm25

    fusion, lexical = settle(source)
    settings, facts = bm25.settle(lexical)
    ranker = bm25.BM25(settings, ModelInfo("bm25", "bm25", None, "cpu", "", facts))
    info = encoder.info
    both = hashlib.sha256(f"{info.fingerprint} {sorted(facts.items())} {fusion}".encode()).hexdigest()
    return Hybrid(
        encoder,
        ranker,
        fusion,
        replace(
            info,
            backend="hybrid",
            model_id=f"{info.model_id} + bm25",
            fingerprint=f"sha256:{both}",
            settings={**info.settings, "fusion": asdict(fusion), "bm25": facts},
        ),
    )


def settle(source: Source) -> tuple[Fusion, Source]:
    """How the rankings are fused, and BM25's own part of the reference.

    >>> settle(Source("hybrid", "hybrid:./model+bm25:0.7,k1=0.9", None))
    (Fusion(weight=0.7, constant=60.0, depth=1000), Source(backend='bm25', reference='bm25:k1=0.9', path=None))
    """
    _, text = split_hybrid(source.reference)
    values: dict[str, Any] = {}
    rest = []
    for part in filter(None, text.split(",")):
        key, equals, value = part.partition("=")
        if not equals:
            key, value = "weight", key
        if key not in _KINDS:
            rest.append(part)
        elif key in values:
            raise RequestError(f"{clean(source.reference)} gives {key} twice")
        else:
            values[key] = _number(key, value)
    return Fusion(**values), Source("bm25", f"bm25:{','.join(rest)}", None)


def _number(key: str, text: str) -> float:
    try:
        value = _KINDS[key](text)
    except ValueError:
        value = math.nan
    least, most = {"weight": (0, 1), "constant": (0, math.inf), "depth": (1, _DEEPEST)}[key]
    if not least <= value <= most or math.isinf(value):
        wanted = f"a number from {least} on" if key == "constant" else f"a number from {least} to {most:,}"
        raise RequestError(f"the {key} of a hybrid search must be {wanted}, found {quote(text)}")
    return value
