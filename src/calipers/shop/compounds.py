"""Words inside of what Japanese writes together: ナイキシューズ, ブラックスーツケース, 象印水筒.

A name or a colour stands by itself where what is left of its run (of katakana, or of kanji) falls into known words:
things, what may stand before a thing, colours and brands. So ソニー is not read in ソニック, and タイガー not in
タイガース.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from calipers.shop.lexicon import Words
from calipers.shop.text import closes, fold, opens, script

_LONGEST_RUN = 40  # characters of a run that are looked at: time stays proportional to the text
_LAST = 2  # characters of a thing that a compound may end with
_LOOSE = 3  # kana: an unknown word beside a name that is nothing but a name
# Where an unknown word does not begin: タイガー|ス is a plural, リコー|ダー another word.
_NO_START = "ースズッンァィゥェォャュョ"


@dataclass(frozen=True)
class Compounds:
    _vocabulary: frozenset[str]
    _longest: int
    _things: frozenset[str]  # what a compound may be, its last word: a thing, or another colour (ピンクベージュ)

    @classmethod
    def from_words(cls, words: Words) -> Compounds:
        nouns = words["nouns"]
        things = [word for group in nouns["goods"].values() for word in group]
        others = [*nouns["modifiers"], *nouns["ordinary"]]
        colours = [word for colour in words["colours"].values() for word in colour.get("words", ())]
        brands = [word for brand in words["brands"].values() for word in brand.get("names", ())]
        last = frozenset(word for word in _with_short([*things, *colours]) if len(word) >= _LAST)
        return cls(frozenset(), 0, last).and_words([*things, *others, *colours, *brands])

    def and_words(self, more: Iterable[str]) -> Compounds:
        """The same with more words. One that ends in ー may also stand without it: プリンタ."""
        vocabulary = self._vocabulary.union(word for word in _with_short(more) if len(word) > 1)
        return Compounds(vocabulary, max(map(len, vocabulary), default=0), self._things)

    def opens(self, text: str, start: int, affixes: Sequence[str] = ()) -> bool:
        return opens(text, start, affixes) or self.splits(before(text, start))

    def closes(self, text: str, end: int, affixes: Sequence[str] = (), *, loose: bool = False) -> bool:
        """`loose`: what follows may also be a word that is not known, of three kana or more."""
        if closes(text, end, affixes):
            return True
        rest = behind(text, end)
        unknown = loose and len(rest) >= _LOOSE and rest[0] not in _NO_START
        return self.splits(rest) or self.is_thing(rest) or (unknown and script(rest[0]) == "k")

    def is_thing(self, run: str) -> bool:
        """Whether the last word of a run is a thing, and the words before it known or long enough to be one."""
        ends = [place for place in range(len(run) - _LAST + 1) if run[place:] in self._things]
        if self.splits(run):
            return bool(ends)
        return any(place >= _LOOSE - 1 for place in ends) and run[0] not in _NO_START

    def splits(self, run: str) -> bool:
        """Whether a run falls into known words.

        >>> compounds = Compounds(frozenset(), 0, frozenset()).and_words(["シューズ", "ランニング"])
        >>> compounds.splits("ランニングシューズ"), compounds.splits("ランニングマン")
        (True, False)
        """
        reached = [True, *[False] * len(run)]
        for end in range(1, len(run) + 1):
            starts = range(max(0, end - self._longest), end)
            reached[end] = any(reached[start] and run[start:end] in self._vocabulary for start in starts)
        return bool(run) and reached[-1]


def _with_short(words: Iterable[str]) -> list[str]:
    japanese = [word for word in map(fold, words) if word and all(script(c) in "kj" for c in word)]
    return [*japanese, *(word[:-1] for word in japanese if word.endswith("ー") and len(word) > 3)]


def behind(text: str, end: int) -> str:
    """What follows in the same script; nothing where it is too long to be a compound."""
    kind, stop = script(text[end - 1]), end
    while stop < len(text) and script(text[stop]) == kind and stop - end <= _LONGEST_RUN:
        stop += 1
    return text[end:stop] if kind in "kj" and stop - end <= _LONGEST_RUN else ""


def before(text: str, start: int) -> str:
    kind, place = script(text[start]), start
    while place > 0 and script(text[place - 1]) == kind and start - place <= _LONGEST_RUN:
        place -= 1
    return text[place:start] if kind in "kj" and start - place <= _LONGEST_RUN else ""
