"""The ids of a text are those of a dictionary of all texts, without one."""

from __future__ import annotations

import random

from calipers.core.text_ids import TextIds


def test_ids_are_those_of_every_side_in_their_order() -> None:
    rng = random.Random(0)
    sides = [(name, [f"{rng.randrange(30)}" for _ in range(40)], rng.choices("abcdefgh", k=40)) for name in ("q", "d")]
    expected: dict[str, list[str]] = {}
    for name, ids, texts in sides:
        for id, text in zip(ids, texts, strict=True):
            expected.setdefault(text, []).append(f"{id}/{name}")
    ids_of = TextIds(*sides)
    assert dict(ids_of) == expected
    assert (list(ids_of), len(ids_of)) == (list(expected), len(expected))
    assert ids_of.get("absent") is None
    both = {*sides[0][1]} & {*sides[1][1]}
    assert [id for id in map(str, range(31)) if ids_of.is_shared(id)] == sorted(both, key=int)


def test_the_plain_id_of_the_last_text_counts_and_a_side_may_have_no_name() -> None:
    listed = (["1", "2"], ["x", "x"])
    assert dict(TextIds(("document", *listed), plain=listed)) == {"x": ["1/document", "2/document", "2"]}
    assert dict(TextIds(("", *listed))) == {"x": ["1", "2"]}
