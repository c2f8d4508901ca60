"""Sizes that are understood beside a thing: L of a shirt, 27.5 or US 9.5 of a shoe, 2.5 inch of a drive.

A bare number of a shoe is the length of the foot in centimetres, as in Japan; the American, British and European scales
are kinds of their own, which neither match nor contradict it. The size of a drive is no length of it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from calipers.shop.lexicon import Words
from calipers.shop.text import Line, Mention, closes, fold, opens, script
from calipers.shop.units import Quantity

LETTERS = "letter-size"
DRIVE = "drive-size"
_SCALES = {"us": (3.0, 16.0), "uk": (2.0, 15.0), "eu": (34.0, 50.0), "eur": (34.0, 50.0)}
_SCALE = re.compile(r"(?P<scale>us|uk|eur?)(?: size)? ?(?P<after>[0-9]{1,2}(?:\.5)?)(?![0-9.])")
_SCALE_BEHIND = re.compile(r"(?P<before>[0-9]{1,2}(?:\.5)?) ?(?P<scale>us|uk|eu)(?![a-z0-9])")
_SIZE_NUMBER = re.compile(r"size ?(?P<number>[0-9]{1,2}(?:\.5)?)(?![0-9./-])")
_BARE = re.compile(r"(?<![0-9a-z.,/-])[0-9]{2}(?:\.[05])?(?![0-9a-z.,/%-])")
_FOOT = (21.0, 32.0)  # cm of adults' shoes
_WHOLE_FOOT = (22.0, 29.0)  # a whole number beyond these is more often a model: Gel-Kayano 30
_DRIVES = tuple(inches * 0.0254 for inches in (1.8, 2.5, 3.5, 5.25))
_NAMED = re.compile(r"(?:size|サイズ)[ :：]?$")
_WORD_SIZES = 4  # letters from which a size is a word: small, medium, large


@dataclass(frozen=True)
class Sizes:
    _letters: re.Pattern[str]
    _values: Mapping[str, float]
    _clothes: tuple[str, ...]
    _shoes: tuple[str, ...]
    _drives: tuple[str, ...]

    @classmethod
    def from_words(cls, words: Words) -> Sizes:
        sizes, goods = words["sizes"], words["nouns"]["goods"]
        names = sorted(sizes["letters"], key=len, reverse=True)
        # A hyphen (or ・) only between two sizes: M・L, but not M-65.
        pattern = (
            rf"(?<![a-z0-9.'&+])(?<!(?<![smlx])-)(?:{'|'.join(map(re.escape, names))})"
            r"(?![a-z0-9.'&+]|-(?!size|x*[sml](?![a-z0-9])))"
        )
        return cls(
            re.compile(pattern),
            {name: float(value) for name, value in sizes["letters"].items()},
            tuple(map(fold, (*sizes["clothes"], *goods["clothes"]))),
            tuple(map(fold, (*sizes["shoes"], *goods["shoes"]))),
            tuple(map(fold, sizes["drives"])),
        )

    def find(self, line: Line, measured: Sequence[Mention[Quantity]], context: str = "") -> list[Mention[Quantity]]:
        """The quantities with units of a text (`measured`), and its sizes without one.

        `context` is a text beside this one that may name the thing: the title, for the value of a size column.
        """
        around = f"{line.folded} {context}"
        shoes, clothes = _names_any(around, self._shoes), _names_any(around, self._clothes)
        own = [
            *self._scaled(line, shoes=shoes or bool(context)),
            *self._lettered(line, clothes=clothes, column=bool(context)),
        ]
        if shoes or context:
            bare = (m for m in _bare(line) if shoes or "." in m.what.text)
            own += [m for m in bare if not _overlaps(m, measured) and not _overlaps(m, own)]
        kept = [m for m in measured if not _overlaps(m, own)]
        if _names_any(around, self._drives):
            kept = [_as_drive(m) for m in kept]
        return sorted((*kept, *own), key=lambda m: m.start)

    def _scaled(self, line: Line, *, shoes: bool) -> Iterator[Mention[Quantity]]:
        """US 9.5, 9.5 US, EU 42; "size 9" of shoes is an American one, "size 42" a European one."""
        text = line.folded
        for pattern, group in ((_SCALE, "after"), (_SCALE_BEHIND, "before")):
            for match in pattern.finditer(text):
                low, high = _SCALES[match["scale"]]
                capital = line.base[match.start("scale") : match.end("scale")].isupper()
                sure = shoes or text.endswith(("size ", "size"), 0, match.start()) or (capital and "." in match[group])
                if sure and opens(text, match.start()) and low <= float(match[group]) <= high:
                    yield _mention(line, match, f"shoe-{match['scale'][:2]}", float(match[group]))
        for match in _SIZE_NUMBER.finditer(text) if shoes else ():
            number, behind = float(match["number"]), text[match.end() :].lstrip()
            scale = next((s for s in ("us", "eu") if _SCALES[s][0] <= number <= _SCALES[s][1]), None)
            if scale and not behind.startswith(tuple(_SCALES)):
                yield _mention(line, match, f"shoe-{scale}", number)

    def _lettered(self, line: Line, *, clothes: bool, column: bool) -> Iterator[Mention[Quantity]]:
        text = line.folded
        for match in self._letters.finditer(text):
            name, start, end = match[0], match.start(), match.end()
            named = bool(_NAMED.search(text, 0, start)) or text.startswith((" size", "-size", "サイズ", " サイズ"), end)
            alone = column and (start, end) == (0, len(text))
            if len(name) >= _WORD_SIZES:
                stands = clothes and (end == len(text) or _names_any(text[end : end + 12], self._clothes))
            else:
                stands = clothes and line.base[start:end].isupper()
            if named or alone or stands:
                yield _mention(line, match, LETTERS, self._values[name])


def _bare(line: Line) -> Iterator[Mention[Quantity]]:
    for match in _BARE.finditer(line.folded):
        number = float(match[0])
        low, high = _FOOT if "." in match[0] else _WHOLE_FOOT
        if low <= number <= high and _stands_free(line.folded, match.end()):
            yield _mention(line, match, "length", number / 100)


def _stands_free(text: str, end: int) -> bool:
    """Whether nothing counts or measures behind the number: 24足, 25周年, 26 inch."""
    return end >= len(text) or script(text[end]) in " h" or text[end] == " "


def _mention(line: Line, match: re.Match[str], kind: str, value: float) -> Mention[Quantity]:
    return Mention(match.start(), match.end(), Quantity(kind, value, value, line.base[match.start() : match.end()]))


def _overlaps(one: Mention[Quantity], others: Sequence[Mention[Quantity]]) -> bool:
    return any(one.start < other.end and other.start < one.end for other in others)


def _as_drive(mention: Mention[Quantity]) -> Mention[Quantity]:
    quantity = mention.what
    is_drive = quantity.kind == "length" and any(abs(quantity.low - size) < 1e-6 for size in _DRIVES)
    return replace(mention, what=replace(quantity, kind=DRIVE)) if is_drive else mention


def _names_any(text: str, words: Sequence[str]) -> bool:
    """Whether one of the words stands in the text; in kana and kanji also inside of a compound."""
    return any(
        script(word[-1]) != "a" or (opens(text, place) and closes(text, place + len(word)))
        for word in words
        for place in _places(text, word)
    )


def _places(text: str, word: str) -> Iterator[int]:
    place = text.find(word)
    while place >= 0:
        yield place
        place = text.find(word, place + 1)
