"""Colours in texts: words, kana and kanji to their bucket, and which buckets agree."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from calipers.shop.compounds import Compounds, before, behind
from calipers.shop.lexicon import Words
from calipers.shop.text import Line, Mention, Phrases, closes, fold, opens, script

_ENDINGS = "いのなにでとやかがをはもへっくじだよさみめ"  # hiragana behind a colour that inflect it or are particles
# "black rice cooker" is black, and "green Apple Watch" is green.
_THINGS = (
    "cooker",
    "kettle",
    "pot",
    "maker",
    "cup",
    "mug",
    "box",
    "bin",
    "watch",
    "iphone",
    "ipad",
    "pencil",
    "airpods",
)
_SHORT = 2  # kana: クロ stands alone; in クロス or シロップ it is none


@dataclass(frozen=True)
class Colours:
    families: Mapping[str, frozenset[str]]  # bucket → the families that it belongs to
    any_colour: str  # the bucket that stands for several colours
    _anywhere: Phrases[str | None]  # None: a phrase that is not a colour
    _column: Phrases[str | None]
    _before: tuple[str, ...]
    _after: tuple[str, ...]
    _compounds: Compounds
    _foods: Phrases[str]
    _metals: frozenset[str]
    _metal_care: tuple[str, ...]
    _hiragana: tuple[str, ...]  # things in hiragana that may follow a colour

    @classmethod
    def from_words(cls, words: Words, compounds: Compounds) -> Colours:
        anywhere: dict[str, str | None] = {}
        column: dict[str, str | None] = {}
        for id, colour in words["colours"].items():
            anywhere |= {spelling: id for word in colour.get("words", ()) for spelling in _spellings(word)}
            column |= {spelling: id for word in colour.get("column", ()) for spelling in _spellings(word)}
        anywhere |= {spelling: None for phrase in words["not_colours"] for spelling in _spellings(phrase)}
        affixes, nouns = words["colour_affixes"], words["nouns"]
        return cls(
            {id: frozenset(colour.get("families", (id,))) for id, colour in words["colours"].items()},
            words["any_colour"],
            Phrases(anywhere),
            Phrases(column),
            tuple(map(fold, affixes["before"])),
            tuple(map(fold, affixes["after"])),
            compounds,
            Phrases({fold(food): food for food in nouns["foods"]}),
            frozenset(map(fold, nouns["metals"])),
            tuple(map(fold, nouns["metal_care"])),
            tuple(word for group in nouns["goods"].values() for word in group if script(word[0]) == "h"),
        )

    def exact(self) -> Colours:
        """The same without families: navy is not blue."""
        return replace(self, families={bucket: frozenset({bucket}) for bucket in self.families})

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
            if end - start <= _SHORT and script(text[start]) == "k":
                return opens(text, start) and closes(text, end)
            stands = self._opens(text, start, end) and self._closes(text, end)
            return stands and not self._names_a_sort(text, start, end)

        return [Mention(m.start, m.end, m.what) for m in phrases.find(text, fits) if m.what is not None]

    def _opens(self, text: str, start: int, end: int) -> bool:
        """Behind an unknown word of katakana a colour that ends the run is a shade: モスグリーン."""
        if self._compounds.opens(text, start, self._before):
            return True
        return script(text[start]) == "k" and len(before(text, start)) > 1 and not behind(text, end)

    def _closes(self, text: str, end: int) -> bool:
        """Hiragana behind a kanji must be an ending, a particle or a known thing: 青りんご is no blue thing."""
        if script(text[end - 1]) == "j" and end < len(text) and script(text[end]) == "h":
            return text[end] in _ENDINGS or text.startswith((*self._after, *self._hiragana), end)
        return closes(text, end, self._after) or self._compounds.is_thing(behind(text, end))

    def _names_a_sort(self, text: str, start: int, end: int) -> bool:
        """Whether the colour belongs to a food (green onion, 黒ビール) or is a metal to care for (silver polish)."""
        japanese = script(text[end - 1]) != "a"
        places = {end, end + text.startswith("い", end)} if japanese else {end + 1}
        if any(self._is_food(text, place, japanese=japanese) for place in places if place < len(text)):
            return True
        care = end + text.startswith((" ", "-"), end)
        return text[start:end] in self._metals and any(
            text.startswith(word, care) and (japanese or closes(text, care + len(word))) for word in self._metal_care
        )

    def _is_food(self, text: str, place: int, *, japanese: bool) -> bool:
        for food, _ in self._foods.at(text, place):
            end = place + len(food)
            if japanese or (text[place - 1] in " -" and closes(text, end)):
                return not text.startswith(_THINGS, end + 1)
        return False


def _spellings(word: str) -> tuple[str, ...]:
    """Two words may be written with a space or a hyphen."""
    word = fold(word)
    return (word, word.replace(" ", "-")) if " " in word else (word,)
