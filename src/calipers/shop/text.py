"""Texts in a normal form, and the search for many phrases in them. Every step is linear in the text."""

from __future__ import annotations

import re
import unicodedata
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")

# NFKC sorts runs of combining marks by insertion, which is quadratic: no run may be longer than this.
_CHUNK = 256
_MARKS = {ord(c): None for c in "®™©℠\u200b\u200c\u200d\ufeff"}  # NFKC would turn ™ into the letters TM
_PLAIN = str.maketrans(
    dict.fromkeys("‐‑‒–—―−", "-") | dict.fromkeys("“”„″", '"') | dict.fromkeys("‘’′`", "'") | {"〜": "~"}
)
_FOLDED = str.maketrans({"_": "-", "・": "-"})
_STARTS = re.compile(r"[a-z0-9]+|[^ ]")  # a Latin word at once, anything else by character
# 10'000 and, with a space that does not break a line, 10 000: separators that are nothing else between such digits.
_GROUPS = re.compile("(?<=[0-9０-９])['\u00a0\u2009\u202f](?=[0-9０-９]{3}(?![0-9０-９]))")
_VULGAR = re.compile("([0-9０-９]?)([½⅓⅔¼¾⅕⅖⅗⅘⅙⅚⅛⅜⅝⅞])")


@dataclass(frozen=True)
class Line:
    """A text in NFKC with single spaces (`base`), and the same in lower case with one kind of hyphen (`folded`).

    Both have the same length, so a place in one is a place in the other.
    """

    base: str
    folded: str

    def __len__(self) -> int:
        return len(self.base)


@dataclass(frozen=True)
class Mention(Generic[T]):
    start: int
    end: int
    what: T


def normal(text: str) -> Line:
    """
    >>> normal("Ａ－ｏｎｅ　1½ ｉｎ").folded
    'a-one 1 1/2 in'
    """
    text = _VULGAR.sub(_spell_fraction, _GROUPS.sub("", text.translate(_MARKS).translate(_PLAIN)))
    base = " ".join("".join(_compose(word)) for word in text.split()).translate(_PLAIN).replace("''", '"')
    base = " ".join(base.split())
    lower = base.lower()
    if len(lower) != len(base):  # İ becomes two letters
        lower = "".join(c.lower() if len(c.lower()) == 1 else c for c in base)
    return Line(base, lower.translate(_FOLDED))


def _compose(word: str) -> Iterable[str]:
    return (unicodedata.normalize("NFKC", word[i : i + _CHUNK]) for i in range(0, len(word), _CHUNK))


def _spell_fraction(match: re.Match[str]) -> str:
    """1½ is 1 1/2. NFKC alone makes 11⁄2 of it."""
    fraction = unicodedata.normalize("NFKC", match[2]).replace("⁄", "/")
    return f"{match[1]} {fraction}" if match[1] else fraction


def fold(text: str) -> str:
    return normal(text).folded


def squash(text: str) -> str:
    """Letters and digits only: what two spellings of a name have in common.

    >>> squash("TP-Link"), squash("エー・ワン")
    ('tplink', 'エーワン')
    """
    return "".join(c for c in fold(text) if c.isalnum())


def script(character: str) -> str:
    """The script of a character, within which a word continues: a Latin (or other alphabet, digits), k katakana,
    h hiragana, j kanji; a space for everything else.

    >>> "".join(map(script, "red赤あかレッド!"))
    'aaajhhkkk '
    """
    code = ord(character)
    if code < 0x2E80:
        return "a" if character.isalnum() else " "
    if 0x30A1 <= code <= 0x30FF and code != 0x30FB:
        return "k"
    if 0x3041 <= code <= 0x309F:
        return "h"
    if 0x3400 <= code <= 0x9FFF or character == "々":
        return "j"
    return "a" if character.isalnum() else " "


def opens(text: str, start: int, affixes: Sequence[str] = ()) -> bool:
    """Whether a word may begin at `start`: at a change of script, or behind one of these prefixes that does."""
    if start == 0 or script(text[start]) == " " or script(text[start - 1]) != script(text[start]):
        return True
    return any(text.endswith(a, 0, start) and opens(text, start - len(a)) for a in affixes)


def closes(text: str, end: int, affixes: Sequence[str] = ()) -> bool:
    """Whether a word may end before `end`: at a change of script, or before one of these suffixes."""
    if end >= len(text) or script(text[end - 1]) == " " or script(text[end]) != script(text[end - 1]):
        return True
    return any(text.startswith(a, end) for a in affixes)


def holds(text: str, name: str) -> bool:
    """Whether a folded text has a folded name as a word of its own. Japanese writes names together with other words, so
    that there it only has to be in the text.

    >>> holds("php book", "hp"), holds("an hp book", "hp"), holds("ナイキシューズ", "ナイキ")
    (False, True, True)
    """
    start = text.find(name) if name else -1
    while start >= 0:
        end = start + len(name)
        latin = script(name[0]) == "a", script(name[-1]) == "a"
        if (not latin[0] or opens(text, start)) and (not latin[1] or closes(text, end)):
            return True
        start = text.find(name, start + 1)
    return False


class Phrases(Generic[T]):
    """Many phrases, looked up at once: from left to right, the longest that fits first, without overlaps.

    A phrase is compared only where a text has its first two characters, so the time is proportional to the text.
    """

    def __init__(self, phrases: Mapping[str, T]) -> None:
        index: dict[str, list[tuple[str, T]]] = defaultdict(list)
        for phrase, what in phrases.items():
            index[phrase[:2]].append((phrase, what))
        self._index = {key: sorted(entries, key=lambda entry: -len(entry[0])) for key, entries in index.items()}

    def __contains__(self, phrase: str) -> bool:
        return any(phrase == entry for entry, _ in self._index.get(phrase[:2], ()))

    def at(self, text: str, place: int) -> Iterable[tuple[str, T]]:
        """The phrases that begin here, longest first."""
        for key in dict.fromkeys((text[place : place + 2], text[place])):
            yield from (entry for entry in self._index.get(key, ()) if text.startswith(entry[0], place))

    def find(self, text: str, fits: Callable[[int, int, T], bool]) -> list[Mention[T]]:
        """The phrases of a text; none begins inside a Latin word, and `fits(start, end, what)` decides on the rest."""
        mentions: list[Mention[T]] = []
        free = 0
        for begin in _STARTS.finditer(text):
            place = begin.start()
            if place < free or (text[place : place + 2] not in self._index and text[place] not in self._index):
                continue
            for phrase, what in self.at(text, place):
                if fits(place, place + len(phrase), what):
                    free = place + len(phrase)
                    mentions.append(Mention(place, free, what))
                    break
        return mentions
