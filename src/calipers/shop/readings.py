"""Which spelling in kana and which in Latin letters are one name: ギャップ and Gap, コカ・コーラ and Coca-Cola.

Kana spell a foreign name by its sound, so both are brought to consonants: the vowels that Japanese adds between them
go, long vowels and doubled consonants are single, l is r, v is b, z is s. A Latin name has several such skeletons where
its letters have several sounds (ch, g before e, r behind a vowel).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from difflib import SequenceMatcher
from functools import lru_cache
from itertools import product

from calipers.shop.text import fold

_ROWS = {
    "": "アイウエオ",
    "k": "カキクケコ",
    "g": "ガギグゲゴ",
    "s": "サシスセソ",
    "z": "ザジズゼゾ",
    "t": "タチツテト",
    "d": "ダヂヅデド",
    "n": "ナニヌネノ",
    "h": "ハヒフヘホ",
    "b": "バビブベボ",
    "p": "パピプペポ",
    "m": "マミムメモ",
    "r": "ラリルレロ",
}
_KANA = {kana: (consonant, vowel) for consonant, row in _ROWS.items() for kana, vowel in zip(row, "aiueo", strict=True)}
_KANA |= {"ヤ": ("y", "a"), "ユ": ("y", "u"), "ヨ": ("y", "o"), "ワ": ("w", "a"), "ヲ": ("", "o"), "ヴ": ("b", "u")}
_KANA |= {"フ": ("f", "u"), "ン": ("n", "")}
_SMALL = dict(zip("ァィゥェォャュョヮ", "aiueoauoa", strict=True))
_VOWELS = "aiueo"
# Letters and their sounds, the longest first; several where they are read in several ways.
_SOUNDS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("sch", ("s",)),
    ("tch", ("t",)),
    ("ch", ("t", "s", "k")),
    ("ck", ("k",)),
    ("ph", ("f",)),
    ("sh", ("s",)),
    ("th", ("s", "t")),
    ("qu", ("k",)),
    ("ci", ("si", "s")),
    ("ce", ("se", "s")),
    ("cy", ("si",)),
    ("ge", ("ge", "se")),
    ("gi", ("gi", "si")),
    ("ee", ("i",)),
    ("ea", ("i", "e")),
    ("oo", ("u",)),
    ("ei", ("ei", "ai")),
    ("c", ("k",)),
    ("q", ("k",)),
    ("x", ("ks",)),
    ("j", ("s",)),
    ("z", ("s",)),
    ("l", ("r",)),
    ("v", ("b",)),
    ("y", ("i",)),
    ("w", ("",)),
    ("h", ("",)),
)
_MOST = 64  # spellings of one Latin name
_LONGEST = 32
_R = re.compile(r"(?<=[aiueo])r(?=[^aiueo]|$)")
_ER = re.compile(r"[aeo]r(?=[^aiueo]|$)")  # ダナー is Danner
_M = re.compile(r"m(?=[bp])")  # ン before b and p
_ADDED = re.compile(r"(?<=[^aiueo])[uo](?=[^aiueo]|$)")  # the vowels that kana add
_ALIKE = ("ie", "ei", "ea", "oa", "ao", "ou", "uo", "ai", "au")  # a first vowel in kana and in Latin letters
_PLAIN_LATIN = re.compile(r"[a-z][a-z '&.-]*[a-z]")


def is_kana(name: str) -> bool:
    return bool(name) and all(c in _KANA or c in _SMALL or c in "ーッ" for c in _katakana(name))


def is_latin(name: str) -> bool:
    return bool(_PLAIN_LATIN.fullmatch(fold(name)))


def _katakana(name: str) -> str:
    plain = "".join(c for c in fold(name) if c.isalnum() or c == "ー")
    return "".join(chr(ord(c) + 0x60) if 0x3041 <= ord(c) <= 0x3096 else c for c in plain)


@lru_cache(maxsize=65536)
def kana_sound(name: str) -> str:
    """
    >>> kana_sound("ギャップ"), kana_sound("コカ・コーラ"), kana_sound("ティンバーランド")
    ('gapu', 'kokakora', 'tinbarando')
    """
    sounds: list[str] = []
    for c in _katakana(name):
        if c in _SMALL and sounds:
            sounds[-1] = sounds[-1][:-1] + _SMALL[c]
        elif c in _KANA:
            consonant, vowel = _KANA[c]
            sounds.append({"z": "s", "w": "", "y": ""}.get(consonant, consonant) + vowel)
    return _single("".join(sounds).replace("h", ""))


@lru_cache(maxsize=65536)
def latin_sounds(name: str) -> frozenset[str]:
    """
    >>> sorted(latin_sounds("Gap")), "kokakora" in latin_sounds("Coca-Cola")
    (['gap'], True)
    """
    plain = "".join(c for c in fold(name).removeprefix("the ") if c.isalpha())[:_LONGEST]
    parts: list[tuple[str, ...]] = []
    place = 0
    while place < len(plain):
        letters, sounds = next((s for s in _SOUNDS if plain.startswith(s[0], place)), (plain[place], (plain[place],)))
        parts.append(sounds)
        place += len(letters)
    spoken = [_single(_M.sub("n", "".join(sounds))) for sounds, _ in zip(product(*parts), range(_MOST), strict=False)]
    return frozenset(
        version for sound in spoken for version in (sound, _single(_R.sub("", sound)), _single(_ER.sub("a", sound)))
    )


def _single(sound: str) -> str:
    return re.sub(r"(.)\1+", r"\1", sound)


def skeleton(sound: str) -> str:
    return "".join(c for c in sound if c not in _VOWELS)


def same_name(kana: str, latin: str) -> bool:
    """Whether the two spell one name.

    >>> same_name("ギャップ", "Gap"), same_name("サロモン", "Salomon"), same_name("ソニー", "Nikon")
    (True, True, False)
    """
    sound = kana_sound(kana)
    return any(_sound_alike(sound, spoken) for spoken in latin_sounds(latin))


def _sound_alike(kana: str, latin: str) -> bool:
    bones = skeleton(kana)
    bare = _ADDED.sub("", kana)
    alike = _begin_alike(kana, latin) or _begin_alike(bare, latin)
    if len(bones) < 2 or bones != skeleton(latin) or not alike:
        return kana == latin
    return max(SequenceMatcher(None, form, latin).ratio() for form in (kana, bare)) >= (0.8 if len(bones) == 2 else 0.6)


def _begin_alike(kana: str, latin: str) -> bool:
    """Both begin with a vowel or both with a consonant, and their first vowels may be one sound."""
    one, other = (next((c for c in sound if c in _VOWELS), "") for sound in (kana, latin))
    if not other or (kana[0] in _VOWELS) != (latin[0] in _VOWELS):
        return False
    return one == other or one + other in _ALIKE


class Readings:
    """Latin names by the skeletons of their sounds, to look up names in kana."""

    def __init__(self, names: Mapping[str, str]) -> None:
        self._by_bones: dict[str, list[tuple[str, str]]] = {}
        for name, id in names.items():
            for bones in {skeleton(sound) for sound in latin_sounds(name)}:
                self._by_bones.setdefault(bones, []).append((name, id))

    def ids(self, kana: str) -> set[str]:
        """The ids of the Latin names that this may spell."""
        candidates = self._by_bones.get(skeleton(kana_sound(kana)), ())
        return {id for name, id in candidates if same_name(kana, name)}


def join_spellings(kana: Iterable[str], latin: Mapping[str, str]) -> dict[str, str]:
    """Each name in kana that spells exactly one of the Latin names, with the id of that one."""
    readings = Readings(latin)
    joined = {name: readings.ids(name) for name in kana}
    return {name: ids.pop() for name, ids in joined.items() if len(ids) == 1}
