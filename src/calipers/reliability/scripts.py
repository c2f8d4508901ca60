"""Scripts: whether a query is written in one that a model may not read, and the same query in other letters of it."""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Sequence

_NAMES = {"CJK": "Chinese characters", "HIRAGANA": "Japanese kana", "KATAKANA": "Japanese kana"}
_LOST = 0.8  # share of letters from which on a script is not read
_STEPS = (1, -1, 2, -2, 3, -3, 5, -5, 8, -8)


def _script(character: str) -> str | None:
    """The first word of a letter's Unicode name; None for what is no letter.

    >>> _script("ж"), _script("湯"), _script("7")
    ('CYRILLIC', 'CJK', None)
    """
    return unicodedata.name(character, "").split(" ")[0] or None if character.isalpha() else None


def foreign(text: str) -> str | None:
    """The script of most of its letters, in words; None where that is Latin or there are none.

    >>> foreign("красное вино"), foreign("vin rouge"), foreign("赤いワイン")
    ('Cyrillic', None, 'Japanese kana')
    """
    scripts = Counter(script for script in map(_script, text) if script)
    if not scripts:
        return None
    most, count = scripts.most_common(1)[0]
    return None if most == "LATIN" or 2 * count < scripts.total() else _NAMES.get(most, most.capitalize())


def spelled_out(pieces: Sequence[Sequence[str | None]], words: Sequence[str]) -> bool:
    """Whether a tokenizer knows next to nothing of these words: most letters that are not Latin are in no sub-word
    (None), or in one of a single letter, which for Chinese characters is a word and for other scripts is not.

    >>> spelled_out([["д", "##а"]], ["да"]), spelled_out([["湯"]], ["湯"]), spelled_out([[None]], ["湯"])
    (True, False, True)
    """
    letters = lost = 0
    for word, parts in zip(words, pieces, strict=True):
        kinds = [script for script in map(_script, word) if script not in (None, "LATIN")]
        kept = sum(_known_letters(part) for part in parts if part)
        letters += len(kinds)
        lost += max(0, len(kinds) - kept)
    return letters > 0 and lost >= _LOST * letters


def _known_letters(piece: str) -> int:
    letters = [script for script in map(_script, piece) if script not in (None, "LATIN")]
    return len(letters) if len(letters) > 1 or letters == ["CJK"] else 0


def variant(text: str) -> str:
    """Other letters of the same scripts in the place of all that are not Latin.

    >>> variant("да OK"), variant("ok")
    ('еб OK', 'ok')
    """
    return "".join(map(_other, text))


def _other(character: str) -> str:
    script = _script(character)
    if script in (None, "LATIN"):
        return character
    for step in _STEPS:
        other = chr(max(0, ord(character) + step))
        if _script(other) == script and other.islower() == character.islower():
            return other
    return character
