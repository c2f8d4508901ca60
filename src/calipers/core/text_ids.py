"""The ids under which the vector of a text may be stored."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain

from calipers.core.packed import TextPlaces

Side = tuple[str, Sequence[str], Sequence[str]]  # its name, the ids of its texts, the texts


class TextIds(Mapping[str, Sequence[str]]):
    """Text → its ids as ID/SIDE on every side that has it; as they are on a side without a name. The id of the last of
    the `plain` texts (ids, texts) that is the same is one as well. Nothing is held for a text but its place.

    >>> ids = TextIds(("1", ["a"], ["x"]), ("2", ["a", "b"], ["x", "y"]), plain=(["p"], ["y"]))
    >>> dict(ids), ids.is_shared("a"), ids.is_shared("b")
    ({'x': ['a/1', 'a/2'], 'y': ['b/2', 'p']}, True, False)
    """

    def __init__(self, *sides: Side, plain: tuple[Sequence[str], Sequence[str]] | None = None) -> None:
        self._sides, self._plain = sides, plain
        self._texts = [TextPlaces(texts) for _, _, texts in sides]
        self._ids = [TextPlaces(ids) for _, ids, _ in sides]
        self._plain_texts = TextPlaces(plain[1] if plain else ())

    def __getitem__(self, text: str) -> Sequence[str]:
        ids = [
            f"{side_ids[i]}/{name}" if name else side_ids[i]
            for (name, side_ids, _), places in zip(self._sides, self._texts, strict=True)
            for i in places.of(text)
        ]
        if self._plain and (places := self._plain_texts.of(text)):
            ids.append(self._plain[0][places[-1]])
        if not ids:
            raise KeyError(text)
        return ids

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys(chain.from_iterable(texts for _, _, texts in self._sides)))

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def is_shared(self, id: str) -> bool:
        """Whether texts of several sides have this id."""
        return sum(bool(places.of(id)) for places in self._ids) > 1
