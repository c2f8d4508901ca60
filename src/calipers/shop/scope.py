"""Whose value is it? A word may be the product's own, excluded ("not black", 黒以外), or what the product is made for
("for iPhone", iPhone用)."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from calipers.shop.text import Line, Mention, closes, fold, opens

_MODEL = re.compile(r"[a-z0-9 ./+()-]{0,24}(?:シリーズ)? ?")  # what may stand between a name and 用: " 14 pro max"
_REACH = 4  # words between "for" and a name, between a product line and its accessory


class Role(Enum):
    OWN = "own"
    EXCLUDED = "excluded"
    FITS = "fits"


@dataclass(frozen=True)
class Scope:
    negation: Mapping[str, tuple[str, ...]]
    fits: Mapping[str, tuple[str, ...]]

    @classmethod
    def from_words(cls, words: Mapping[str, Any]) -> Scope:
        def folded(part: Mapping[str, Sequence[str]]) -> dict[str, tuple[str, ...]]:
            return {key: tuple(sorted(map(fold, found), key=len, reverse=True)) for key, found in part.items()}

        return cls(folded(words["negation"]), folded(words["fits"]))

    # --- negation ----------------------------------------------------------------------------------------------

    def excluded(self, line: Line, mentions: Sequence[Mention[Any]]) -> list[bool]:
        """Which of these are negated, by a word before or behind them, directly or as part of a list."""
        forwards = [self._negated_before(line, m.start) for m in mentions]
        backwards = [self._negated_after(line, m.end) for m in mentions]
        for i in range(1, len(mentions)):  # "not black or white"
            if forwards[i - 1] and self._listed(line, mentions[i - 1], mentions[i]):
                forwards[i] = True
        for i in range(len(mentions) - 2, -1, -1):  # 黒と白以外
            if backwards[i + 1] and self._listed(line, mentions[i], mentions[i + 1]):
                backwards[i] = True
        return [before or after for before, after in zip(forwards, backwards, strict=True)]

    def _negated_before(self, line: Line, start: int) -> bool:
        text = line.folded
        end = _back_over(text, start, " -")
        for _ in range(2):
            if not text.endswith(self.negation["between"], 0, end):
                break
            between = next((w for w in self.negation["between"] if _ends_with(text, end, w)), None)
            end = _back_over(text, end - len(between), " -") if between else end
        return end < start and _ends_with_any(text, end, self.negation["before"])

    def _negated_after(self, line: Line, end: int) -> bool:
        text = line.folded
        for link in ("", *self.negation["linked_after"]):
            place = end + len(link)
            if text.startswith(link, end) and text.startswith(self.negation["after"], place):
                return True
        return False

    def _listed(self, line: Line, one: Mention[Any], other: Mention[Any]) -> bool:
        return _gap(line, one, other) in self.negation["lists"]

    # --- made for ----------------------------------------------------------------------------------------------

    def made_for(self, line: Line, mentions: Sequence[Mention[Any]], is_line: Sequence[bool]) -> list[bool]:
        """Which of these name what the product is made for. `is_line` marks product lines, which accessories follow."""
        text = line.folded
        found = [False] * len(mentions)
        accessory = [False] * len(mentions)
        for i, mention in enumerate(mentions):
            limit = mentions[i + 1].start if i + 1 < len(mentions) else len(text)
            accessory[i] = is_line[i] and self._accessory_after(text, mention.end, limit)
            found[i] = (
                accessory[i] or self._for_before(text, mention.start) or self._for_after(text, mention.end, limit)
            )
        for i in range(1, len(mentions)):  # "for HP, Canon and Brother"
            found[i] = found[i] or (found[i - 1] and self._for_list(line, mentions[i - 1], mentions[i]))
        for i in range(len(mentions) - 2, -1, -1):  # iPhone/iPad対応, "apple ipad case"
            gap = _gap(line, mentions[i], mentions[i + 1])
            joined = (gap in self.fits["lists"] and found[i + 1]) or (gap == "" and accessory[i + 1])
            found[i] = found[i] or (joined and (gap != "" or mentions[i].what == mentions[i + 1].what))
        return found

    def directly_for(self, line: Line, start: int) -> bool:
        """Whether "for" stands right before: "for black paper"."""
        end = _back_over(line.folded, start, " ")
        return end < start and _ends_with_any(line.folded, end, self.fits["before"])

    def directly_fitting(self, line: Line, end: int) -> bool:
        """Whether 用 or 対応 stands right behind."""
        return line.folded.startswith(self.fits["after_ja"], end)

    def _for_before(self, text: str, start: int) -> bool:
        """A word of `before` at most four words back, with no clause and no "by" between."""
        place = start
        for _ in range(_REACH + 1):
            end = _back_over(text, place, " ")
            if end == place and place != start:
                return False
            if _ends_with_any(text, end, self.fits["before"]):
                return True
            place = _word_start(text, end)
            if place == end or text[place:end] in self.fits["ends"]:
                return False
        return False

    def _for_after(self, text: str, end: int, limit: int) -> bool:
        for word in self.fits["after"]:
            for place in (end + 1, *_next_words(text, end, limit)):
                if text.startswith(word, place) and place > end and closes(text, place + len(word)):
                    return not text.startswith((" with", " for"), place + len(word))
        if any(text.find(w, end, min(limit, end + 64)) >= 0 for w in self.fits["anywhere_after"]):
            return True
        model = _MODEL.match(text, end, limit)
        stop = model.end() if model else end
        return any(text.startswith(self.fits["after_ja"], place) for place in (end, stop))

    def _accessory_after(self, text: str, end: int, limit: int) -> bool:
        return any(
            text.startswith(word, place) and closes(text, place + len(word)) and opens(text, place)
            for place in (end, *_next_words(text, end, limit))
            for word in self.fits["accessories"]
        )

    def _for_list(self, line: Line, one: Mention[Any], other: Mention[Any]) -> bool:
        """Only list words and model names, few of them, between two names."""
        words = line.folded[one.end : min(other.start, one.end + 40)].replace(",", " , ").split()
        if other.start - one.end > 40 or not any(w in self.fits["lists"] for w in words):
            return False
        return words[-1] in self.fits["lists"] and len(words) <= _REACH and not set(words) & set(self.fits["ends"])


def _gap(line: Line, one: Mention[Any], other: Mention[Any]) -> str:
    """What stands between two mentions, without spaces around; a long gap is as good as none of the short words."""
    if other.start - one.end > 12:
        return "…"
    return line.base[one.end : other.start].strip().lower()


def _back_over(text: str, end: int, characters: str) -> int:
    while end > 0 and text[end - 1] in characters:
        end -= 1
    return end


def _ends_with(text: str, end: int, word: str) -> bool:
    return text.endswith(word, 0, end) and opens(text, end - len(word))


def _ends_with_any(text: str, end: int, words: tuple[str, ...]) -> bool:
    return text.endswith(words, 0, end) and any(_ends_with(text, end, word) for word in words)


def _word_start(text: str, end: int) -> int:
    """Where the word that ends here begins: back to a space or the end of a clause; at most 24 characters."""
    place = end
    while place > 0 and text[place - 1] not in " ,;|()[]【】" and end - place < 24:
        place -= 1
    return place


def _next_words(text: str, end: int, limit: int) -> list[int]:
    """Where the next few words begin, within the clause."""
    places: list[int] = []
    place = end
    stop = min(limit, end + 48)
    while place < stop and len(places) < _REACH:
        if text[place] in ",;|()[]【】":
            break
        if text[place] == " " and place + 1 < stop:
            places.append(place + 1)
        place += 1
    return places
