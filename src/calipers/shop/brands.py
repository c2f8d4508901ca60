"""Brands in texts: a name in any script and spelling to the id of its brand."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace

from calipers.shop.lexicon import Words
from calipers.shop.text import Line, Mention, Phrases, closes, fold, normal, opens, script, squash

_LONG = 6  # letters from which a name may be split by a space: "tp link", but not "can on"
_SPELLED = ("names", "common", "column", "exact")
_SEPARATORS = re.compile(r"[()（）/／,、【】\[\]]+")


@dataclass(frozen=True)
class BrandName:
    brand: str  # empty for a phrase that is not a brand
    is_common: bool = False  # an ordinary word, which counts where it stands as a name
    is_line: bool = False  # a line of products
    exact: str = ""  # the required spelling, where the case matters
    before_digit: bool = False  # "galaxy s" of "galaxy s21"
    not_after_number: bool = False  # the HP of "5 hp"


@dataclass(frozen=True)
class Brands:
    _names: Mapping[str, tuple[BrandName, ...]]  # folded spelling → the brands of this name
    _ids: Mapping[str, str]  # squashed name → id, for columns
    _company_words: frozenset[str]
    _common_words: frozenset[str]
    _after: tuple[str, ...]
    _phrases: Phrases[tuple[BrandName, ...]]

    @classmethod
    def from_words(cls, words: Words) -> Brands:
        names: dict[str, tuple[BrandName, ...]] = {}
        ids: dict[str, str] = {}
        for id, brand in words["brands"].items():
            ids |= {squash(name): id for key in _SPELLED for name in brand.get(key, ())} | {squash(id): id}
            for spelling, name in _entries(id, brand):
                names[spelling] = (*names.get(spelling, ()), name)
        return cls(
            names,
            ids,
            frozenset(map(fold, words["company_words"])),
            frozenset(map(squash, words["common_words"])),
            tuple(map(fold, words["brand_affixes"]["after"])),
            Phrases(names),
        )

    def find(self, line: Line) -> list[Mention[BrandName]]:
        """The brands that a text names, from left to right."""
        text = line.folded
        first = next((place for place, c in enumerate(text) if c.isalnum()), 0)

        def fits(start: int, end: int, names: tuple[BrandName, ...]) -> bool:
            return any(self._fits(line, start, end, name, first) for name in names)

        mentions = self._phrases.find(text, fits)
        best = ((m, next(n for n in m.what if self._fits(line, m.start, m.end, n, first))) for m in mentions)
        return [Mention(m.start, m.end, name) for m, name in best if name.brand]

    def in_column(self, value: str) -> str | None:
        """The id of the brand in a brand column; an unknown name is its own id. None for a blank value.

        A name with two spellings, A-one(エーワン), is recognised by either; the Latin one is shown.
        """
        return self._identify(value, self._ids)

    def _identify(self, value: str, ids: Mapping[str, str]) -> str | None:
        parts = _parts(value)
        for part in (value, *parts):
            if id := ids.get(squash(part)) or ids.get(self._without_company(part)):
                return id
        return self._without_company(next((p for p in parts if p.isascii()), parts[0])) if parts else None

    def with_brands(self, values: Iterable[str], not_names: Collection[str]) -> Brands:
        """These brands and those of a corpus: each value of its brand column gets an id, under all its spellings.

        Values that are colour words (`not_names`, squashed) or a single letter count in columns only; ordinary words
        count where `common` names do; names of two letters or digits count only in the case of the column.
        """
        names, ids = dict(self._names), dict(self._ids)
        # Values with two spellings come first: they show which single spellings belong together.
        for value in sorted(dict.fromkeys(values), key=lambda value: -len(_parts(value))):
            id = self._identify(value, ids)
            for part in _parts(value):  # a value without parts has no id
                key = squash(part)
                if id is None or key in ids or key in not_names or len(key) < 2 or key.isdecimal():
                    continue
                ids[key] = id
                how = "common" if key in self._common_words else "exact" if len(key) < 3 else "names"
                for spelling, name in _entries(id, {how: [part]}):
                    names[spelling] = (*names.get(spelling, ()), name)
        return replace(self, _names=names, _ids=ids, _phrases=Phrases(names))

    def _without_company(self, name: str) -> str:
        words = fold(name).replace(".", " ").replace(",", " ").split()
        kept = [word for word in words if word not in self._company_words]
        return squash(" ".join(kept or words))

    def _fits(self, line: Line, start: int, end: int, name: BrandName, first: int) -> bool:
        text = line.folded
        if not name.brand and script(text[start]) != "a":
            return True
        ends = text[end : end + 1].isdigit() if name.before_digit else closes(text, end, self._after)
        if not opens(text, start) or not ends:
            return False
        if name.exact and line.base[start:end] != name.exact:
            return False
        if name.not_after_number and text[max(0, start - 2) : start].strip(" -").isdigit():
            return False
        return not name.is_common or start == first or _is_proper(line, start)


def _is_proper(line: Line, start: int) -> bool:
    """Whether a word is a name by its place: after "by" or "from", or with a capital after a word in lower case."""
    if line.folded.endswith(("by ", "from "), 0, start):
        return True
    before = line.base[max(0, start - 24) : start].rstrip(" -").rpartition(" ")[2]
    return line.base[start].isupper() and before.isalpha() and before.islower()


def _parts(value: str) -> list[str]:
    """
    >>> _parts("エーワン(A-one)")
    ['エーワン', 'A-one']
    """
    return [part.strip() for part in _SEPARATORS.split(normal(value).base) if squash(part)]


def _entries(id: str, brand: Words) -> Iterable[tuple[str, BrandName]]:
    awkward = set(map(fold, brand.get("not_after_number", ())))
    for key in ("names", "common", "lines"):
        for word in brand.get(key, ()):
            before_digit, not_after_number = word.endswith("#"), fold(word) in awkward
            name = BrandName(id, key == "common", key == "lines", "", before_digit, not_after_number)
            yield from ((spelling, name) for spelling in _spellings(word.removesuffix("#")))
    for word in brand.get("exact", ()):
        yield fold(word), BrandName(id, exact=normal(word).base)
    for phrase in brand.get("not", ()):
        yield fold(phrase), BrandName("")


def _spellings(name: str) -> set[str]:
    """As written, in one word, with hyphens; with spaces if it has them or is long; in hiragana if it is katakana.

    >>> sorted(_spellings("TP-Link"))
    ['tp link', 'tp-link', 'tplink']
    >>> sorted(_spellings("A-one"))
    ['a-one', 'aone']
    """
    trailing = " " if name.endswith(" ") else ""
    folded = fold(name)
    words = [word for word in re.split(r"[ -]", folded) if word]
    joined = "".join(words)
    spellings = {folded, joined, "-".join(words)}
    if " " in folded or len(joined) >= _LONG:
        spellings.add(" ".join(words))
    if len(joined) >= 4 and all(script(c) == "k" for c in joined):
        spellings.add("".join(chr(ord(c) - 0x60) if 0x30A1 <= ord(c) <= 0x30F6 else c for c in joined))
    return {spelling + trailing for spelling in spellings}
