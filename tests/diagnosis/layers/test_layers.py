"""Which layers there are, and how they are selected."""

from __future__ import annotations

import pytest

from calipers.core import RequestError
from calipers.diagnosis.layers import GROUPS, LAYERS, find, select

METHOD = ("geometry", "retrieval", "behaviour", "certainty")


def test_layers_are_found_by_name() -> None:
    assert find("geometry") is LAYERS["geometry"]
    with pytest.raises(RequestError, match="expected geometry"):
        find("geomancy")


def test_the_four_names_of_the_method_are_all_layers_but_our_own() -> None:
    ours = ("contrasts", "remedies")
    assert select(METHOD) == tuple(layer for layer in LAYERS.values() if layer.name not in ours)
    assert [layer.name for layer in select(["behaviour"])] == ["attributes", "semantic_gap", "knowledge"]


def test_layers_are_selected_once_in_the_order_of_their_names() -> None:
    chosen = select(["knowledge", "behaviour", "geometry", "geometry"])
    assert [layer.name for layer in chosen] == ["knowledge", "attributes", "semantic_gap", "geometry"]
    assert select([]) == ()


def test_a_name_that_no_layer_has_is_refused_with_all_names() -> None:
    with pytest.raises(RequestError, match="there is no layer 'trust'") as caught:
        select(["geometry", "trust"])
    assert all(name in str(caught.value) for name in (*LAYERS, *GROUPS))
