"""The layers of a diagnosis: each has the shape of a task, and reads a Space that was embedded once.

`LAYERS` is the table: a layer is one module and one line here.
"""

from __future__ import annotations

from collections.abc import Iterable

from calipers.core import RequestError
from calipers.diagnosis.layer import Layer
from calipers.diagnosis.layers.attributes import LAYER as ATTRIBUTES
from calipers.diagnosis.layers.certainty import LAYER as CERTAINTY
from calipers.diagnosis.layers.contrasts import LAYER as CONTRASTS
from calipers.diagnosis.layers.geometry import LAYER as GEOMETRY
from calipers.diagnosis.layers.knowledge import LAYER as KNOWLEDGE
from calipers.diagnosis.layers.remedies import LAYER as REMEDIES
from calipers.diagnosis.layers.retrieval import LAYER as RETRIEVAL
from calipers.diagnosis.layers.semantic_gap import LAYER as SEMANTIC_GAP
from calipers.runs.space import GroupVectors, PairVectors, Space, Texts

LAYERS: dict[str, Layer] = {
    layer.name: layer
    for layer in (GEOMETRY, RETRIEVAL, ATTRIBUTES, SEMANTIC_GAP, KNOWLEDGE, CONTRASTS, CERTAINTY, REMEDIES)
}
# Names that stand for several layers. The method has four: geometry, retrieval, behaviour, certainty.
GROUPS: dict[str, tuple[str, ...]] = {"behaviour": (ATTRIBUTES.name, SEMANTIC_GAP.name, KNOWLEDGE.name)}

__all__ = ["GROUPS", "LAYERS", "GroupVectors", "Layer", "PairVectors", "Space", "Texts", "find", "select"]


def find(name: str) -> Layer:
    if name not in LAYERS:
        raise RequestError(f"there is no layer {name!r}: expected {', '.join(LAYERS)}")
    return LAYERS[name]


def select(names: Iterable[str]) -> tuple[Layer, ...]:
    """The layers of these names, each once, in the order of the names; none where there are no names.

    >>> [layer.name for layer in select(["certainty", "behaviour", "knowledge"])]
    ['certainty', 'attributes', 'semantic_gap', 'knowledge']
    """
    chosen: dict[str, Layer] = {}
    for name in names:
        if name not in LAYERS and name not in GROUPS:
            raise RequestError(f"there is no layer {name!r}: expected {', '.join((*LAYERS, *GROUPS))}")
        chosen |= {member: LAYERS[member] for member in GROUPS.get(name, (name,))}
    return tuple(chosen.values())
