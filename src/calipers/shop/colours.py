"""Colours in texts: words, kana and kanji to their bucket, and which buckets agree."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from calipers.shop.lexicon import Words
from calipers.shop.text import Line, Mention, Phrases, closes, fold, opens, script


@dataclass(frozen=True)
class Colours:
    families: Mapping[str, frozenset[str]]  # bucket → the families that it belongs to
    any_colour: str  # the bucket that stands for several colours
    _anywhere: Phrases[str | None]  # None: a phrase that is not a colour
    _column: Phrases[str | None]
    _before: tuple[str, ...]
    _after: tuple[str, ...]

    @classmethod
    def from_words(cls, words: Words) -> Colours:
        anywhere: dict[str, str | None] = {}
        column: dict[str, str | None] = {}
        for id, colour in words["colours"].items():
            anywhere |= {spelling: id for word in colour.get("words", ()) for spelling in _spellings(word)}
            column |= {spelling: id for word in colour.get("column", ()) for spelling in _spellings(word)}
        anywhere |= {spelling: None for phrase in words["not_colours"] for spelling in _spellings(phrase)}
        affixes = words["colour_affixes"]
        return cls(
            {id: frozenset(colour.get("families", (id,))) for id, colour in words["colours"].items()},
            words["any_colour"],
            Phrases(anywhere),
            Phrases(column),
            tuple(map(fold, affixes["before"])),
            tuple(map(fold, affixes["after"])),
        )

    def find(self, line: Line) -> list[Mention[str]]:
        """The colours that a text names, from left to right."""
        return self._find(self._anywhere, line)

    def in_column(self, line: Line) -> list[Mention[str]]:
        """The same for the value of a colour column, where more words are colours."""
        return self.find(line) or self._find(self._column, line)

    def is_word(self, text: str) -> bool:
        return fold(text) in self._anywhere

    def agree(self, one: str, other: str) -> bool:
        """Whether two buckets count as the same colour: the same one, or a family in common."""
        return one == other or bool(self.families[one] & self.families[other])

    def _find(self, phrases: Phrases[str | None], line: Line) -> list[Mention[str]]:
        text = line.folded

        def fits(start: int, end: int, colour: str | None) -> bool:
            if colour is None:  # a Japanese phrase that is not a colour blocks inside a longer word too
                return script(text[start]) != "a" or (opens(text, start) and closes(text, end))
            return opens(text, start, self._before) and closes(text, end, self._after)

        return [Mention(m.start, m.end, m.what) for m in phrases.find(text, fits) if m.what is not None]


def _spellings(word: str) -> tuple[str, ...]:
    """Two words may be written with a space or a hyphen."""
    word = fold(word)
    return (word, word.replace(" ", "-")) if " " in word else (word,)
