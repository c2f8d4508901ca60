"""Brands in texts: a name in any script and spelling to the id of its brand."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from calipers.shop.compounds import Compounds
from calipers.shop.lexicon import Words
from calipers.shop.readings import Readings, is_kana, is_latin, join_spellings
from calipers.shop.text import Line, Mention, Phrases, fold, normal, script, squash

_LONG = 6  # letters from which a name may be split by a space: "tp link", but not "can on"
_SPELLED = ("names", "common", "column", "exact")
_SEPARATORS = re.compile(r"[()（）/／,、【】\[\]]+")
_KANA = re.compile(r"[ァ-ヺー]+(?:-[ァ-ヺー]+)*")
_NAME_KANA = {True: 3, False: 4}  # kana from which a name, built in or not, is rarely part of another word
_READ = 4  # letters from which a Latin name is also recognised by its sound
_LONGEST = 40


@dataclass(frozen=True)
class BrandName:
    brand: str  # empty for a phrase that is not a brand
    is_common: bool = False  # an ordinary word, which counts where it stands as a name
    is_line: bool = False  # a line of products
    exact: str = ""  # the required spelling, where the case matters
    before_digit: bool = False  # "galaxy s" of "galaxy s21"
    not_after_number: bool = False  # the HP of "5 hp"
    is_loose: bool = False  # nothing but a name: an unknown word may be written together with it
    not_with: tuple[str, ...] = ()  # words that show that an ordinary word is meant: "gap filler"
    after_colour: bool = False  # a common name that also counts behind colours: "black puma shoes"


@dataclass(frozen=True)
class Brands:
    _names: Mapping[str, tuple[BrandName, ...]]  # folded spelling → the brands of this name
    _ids: Mapping[str, str]  # squashed name → id, for columns
    _in_columns: Mapping[str, Words]  # id → entry with names for columns only, which a corpus of the brand wakes
    _company_words: frozenset[str]
    _common_words: frozenset[str]
    _leading: frozenset[str]  # colours and other words before a name
    _after: tuple[str, ...]
    _compounds: Compounds
    _latin: Mapping[str, str]  # Latin name → id, for names of the corpus in kana that are read alike
    _readings: Readings  # Latin names of the corpus, for names in kana in texts
    _phrases: Phrases[tuple[BrandName, ...]]

    @classmethod
    def from_words(cls, words: Words, compounds: Compounds) -> Brands:
        names: dict[str, tuple[BrandName, ...]] = {}
        ids: dict[str, str] = {}
        for id, brand in words["brands"].items():
            ids |= {squash(name): id for key in _SPELLED for name in brand.get(key, ())} | {squash(id): id}
            for spelling, name in _entries(id, brand, built_in=True):
                names[spelling] = (*names.get(spelling, ()), name)
        for phrase in words["not_brands"]:
            names[fold(phrase)] = (BrandName(""), *names.get(fold(phrase), ()))
        affixes = words["brand_affixes"]
        colours = (word for colour in words["colours"].values() for word in colour.get("words", ()))
        latin = {
            name: id
            for id, brand in words["brands"].items()
            for name in brand.get("names", ())
            if is_latin(name) and len(squash(name)) >= _READ
        }
        return cls(
            names,
            ids,
            {id: brand for id, brand in words["brands"].items() if brand.get("column")},
            frozenset(map(fold, words["company_words"])),
            frozenset(map(squash, words["common_words"])),
            frozenset(map(fold, (*affixes["before"], *colours))),
            tuple(map(fold, affixes["after"])),
            compounds,
            latin,
            Readings({}),
            Phrases(names),
        )

    def find(self, line: Line) -> list[Mention[BrandName]]:
        """The brands that a text names, from left to right."""
        text = line.folded
        firsts = self._firsts(text)

        def fits(start: int, end: int, names: tuple[BrandName, ...]) -> bool:
            return any(self._fits(line, start, end, name, firsts) for name in names)

        mentions = self._phrases.find(text, fits)
        best = ((m, next(n for n in m.what if self._fits(line, m.start, m.end, n, firsts))) for m in mentions)
        written = [Mention(m.start, m.end, name) for m, name in best]
        return sorted((*(m for m in written if m.what.brand), *self._read_alike(text, written)), key=lambda m: m.start)

    def _firsts(self, text: str) -> tuple[int, int]:
        """Where the text begins, and where it goes on behind colours and the like."""
        first = next((place for place, c in enumerate(text) if c.isalnum()), 0)
        place = first
        while (end := text.find(" ", place)) >= 0 and text[place:end] in self._leading:
            place = end + 1
        return first, place

    def _read_alike(self, text: str, written: Iterable[Mention[BrandName]]) -> Iterator[Mention[BrandName]]:
        """Names in kana that sound like exactly one Latin name, at the head of their run."""
        taken = {place for m in written for place in range(m.start, m.end)}
        for run in _KANA.finditer(text):
            if taken.intersection(range(run.start(), run.end())) or not 3 <= len(run[0]) <= _LONGEST:
                continue
            if self._compounds.splits(run[0]):
                continue
            for end in range(len(run[0]), 2, -1):
                rest = run[0][end:]
                ids = self._readings.ids(run[0][:end]) if not rest or self._compounds.splits(rest) else set()
                if len(ids) == 1:
                    yield Mention(run.start(), run.start() + end, BrandName(ids.pop()))
                    break

    def in_column(self, value: str) -> str | None:
        """The id of the brand in a brand column; an unknown name is its own id. None for a blank value.

        A name with two spellings, A-one(エーワン), is recognised by either; the Latin one is shown.
        """
        return self._identify(value, self._ids)

    def _identify(self, value: str, ids: Mapping[str, str]) -> str | None:
        parts = name_parts(value)
        for part in (value, *parts):
            if id := ids.get(squash(part)) or ids.get(self._without_company(part)):
                return id
        return self._without_company(next((p for p in parts if p.isascii()), parts[0])) if parts else None

    def with_brands(self, values: Iterable[str], not_names: Collection[str]) -> Brands:
        """These brands and those of a corpus: each value of its brand column gets an id, under all its spellings.

        Values that are colour words (`not_names`, squashed) or a single letter count in columns only; ordinary words
        count where `common` names do; names of two letters or digits count only in the case of the column. A name in
        kana that is read like one Latin name is the same brand.
        """
        names, ids = dict(self._names), dict(self._ids)
        # Values with two spellings come first: they show which single spellings belong together.
        several = sorted(dict.fromkeys(values), key=lambda value: -len(name_parts(value)))
        ids |= self._joined_by_reading(several, ids)
        added: dict[str, str] = {}
        for value in several:
            id = self._identify(value, ids)
            column = _woken(self._in_columns[id]) if id and id in self._in_columns else {}
            for spelling, name in _entries(id or "", column):
                names[spelling] = (*names.get(spelling, ()), name)
            for part in name_parts(value):  # a value without parts has no id
                key = squash(part)
                if id is None or self._ids.get(key) or key in added or key in not_names or _is_too_short(key):
                    continue
                ids[key] = added[key] = id
                how = "common" if key in self._common_words else "exact" if len(key) < 3 else "names"
                for spelling, name in _entries(id, {how: [part]}):
                    names[spelling] = (*names.get(spelling, ()), name)
        latin = {
            part: id
            for part, id in self._latin_parts(several, ids)
            if squash(part) in added and squash(part) not in self._common_words and len(squash(part)) >= _READ
        }
        kana = [spelling for value in several for spelling in name_parts(value)]
        return replace(
            self,
            _names=names,
            _ids=ids,
            _latin={**self._latin, **latin},
            _readings=Readings(latin),
            _compounds=self._compounds.and_words(kana),
            _phrases=Phrases(names),
        )

    def _joined_by_reading(self, values: Iterable[str], ids: Mapping[str, str]) -> dict[str, str]:
        """Ids of the values in kana that are read like one Latin name, of the corpus or built in."""
        single = [value for value in values if len(name_parts(value)) == 1 and squash(value) not in ids]
        paired = {squash(part) for value in values if len(name_parts(value)) > 1 for part in name_parts(value)}
        kana = [value for value in single if is_kana(value) and squash(value) not in paired]
        latin = {**self._latin, **dict(self._latin_parts(values, ids))}
        return {squash(name): id for name, id in join_spellings(kana, latin).items()}

    def _latin_parts(self, values: Iterable[str], ids: Mapping[str, str]) -> Iterator[tuple[str, str]]:
        for value in values:
            for part in name_parts(value):
                if is_latin(part) and (id := self._identify(value, ids)):
                    yield part, id

    def is_company_form(self, name: str) -> bool:
        """Whether a name is nothing but words such as Inc. and 株式会社."""
        return all(word in self._company_words for word in fold(name).replace(".", " ").replace(",", " ").split())

    def _without_company(self, name: str) -> str:
        words = fold(name).replace(".", " ").replace(",", " ").split()
        kept = [word for word in words if word not in self._company_words]
        return squash(" ".join(kept or words))

    def _fits(self, line: Line, start: int, end: int, name: BrandName, firsts: tuple[int, int]) -> bool:
        text = line.folded
        if not name.brand and script(text[start]) != "a":
            return True
        if name.before_digit:
            ends = text[end : end + 1].isdigit()
        elif name.is_line and text[end : end + 1].isdigit():  # iphone15
            ends = True
        else:
            ends = self._compounds.closes(text, end, self._after, loose=name.is_loose)
        if not ends or not self._compounds.opens(text, start) or _is_no_name(text, start, end):
            return False
        if name.exact and line.base[start:end] != name.exact:
            return False
        if name.not_after_number and text[max(0, start - 2) : start].strip(" -").isdigit():
            return False
        if name.not_with and not name.is_line and _has_word(text, end, name.not_with):
            return False
        return not name.is_common or start in firsts[: 1 + name.after_colour] or _is_proper(line, start)


def _is_no_name(text: str, start: int, end: int) -> bool:
    """A pattern (ゼブラ柄), and what is one "of" something: "The Canon of Medicine"."""
    if text.startswith("柄", end):
        return True
    return text.startswith(" of ", end) and script(text[end - 1]) == "a" and not text.endswith("by ", 0, start)


def _has_word(text: str, start: int, words: tuple[str, ...]) -> bool:
    rest = text[start : start + _LONGEST]
    return any(word in words for word in re.split(r"[ ,-]", rest))


def _is_too_short(key: str) -> bool:
    return len(key) < 2 or key.isdecimal()


def _woken(brand: Words) -> Words:
    """A brand whose names count in columns only, in a corpus that has it: they are common names; in kana, names."""
    words = brand["column"]
    kana = [word for word in words if is_kana(word)]
    return {
        "common": [word for word in words if word not in kana],
        "names": kana,
        "not_with": brand.get("not_with", ()),
    }


def _is_proper(line: Line, start: int) -> bool:
    """Whether a word is a name by its place: after "by" or "from", or with a capital after a word in lower case."""
    if line.folded.endswith(("by ", "from "), 0, start):
        return True
    before = line.base[max(0, start - 24) : start].rstrip(" -").rpartition(" ")[2]
    return line.base[start].isupper() and before.isalpha() and before.islower()


def name_parts(value: str) -> list[str]:
    """The spellings of a name in a brand column.

    >>> name_parts("エーワン(A-one)")
    ['エーワン', 'A-one']
    """
    return [part.strip() for part in _SEPARATORS.split(normal(value).base) if squash(part)]


def _entries(id: str, brand: Words, *, built_in: bool = False) -> Iterable[tuple[str, BrandName]]:
    awkward = set(map(fold, brand.get("not_after_number", ())))
    not_with = tuple(map(fold, brand.get("not_with", ())))
    is_word = any(brand.get(key) for key in ("common", "column", "exact", "not", "not_with"))
    for key in ("names", "common", "lines"):
        for word in brand.get(key, ()):
            before_digit, not_after_number = word.endswith("#"), fold(word) in awkward
            loose = key == "names" and not is_word and is_kana(word) and len(squash(word)) >= _NAME_KANA[built_in]
            name = BrandName(
                id,
                is_common=key == "common",
                is_line=key == "lines",
                before_digit=before_digit,
                not_after_number=not_after_number,
                is_loose=loose,
                not_with=not_with,
                after_colour=built_in and key == "common" and not brand.get("lines"),  # a "green apple" is a fruit
            )
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
