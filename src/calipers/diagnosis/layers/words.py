"""The words of texts: how a text is split, what a tokenizer makes of its words, and which words are rare.

Words are separated by whitespace; what a script without spaces writes together falls into phrases (budoux).

A model shows its tokenizer by an optional method, `pieces(words) -> list[list[str | None]]`: the sub-words of each
word as it stands inside a text, without special tokens, None for one that the vocabulary does not have.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import zip_longest
from typing import Protocol, runtime_checkable

import numpy as np

from calipers.core import Encoder, RequestError, printable
from calipers.metrics.arrays import Floats

_KANA = re.compile(r"[\u3041-\u30ff\uff66-\uff9f]")
_MARKS = ("##", "▁", "Ġ")  # how vocabularies write that a piece goes on, or begins, a word
_SPACES = re.compile(r"(\s+)")
_HAN = re.compile(r"[\u3400-\u4dbf\u4e00-\u9fff\U00020000-\U000323af]")
_MOSTLY = 0.3  # share of characters that makes a text Japanese or Chinese: product names mix in much Latin
_TEXTS = 20_000  # whose words are counted
_LETTERS, _CASELESS_LETTERS = 6, 2
_COMMON = 0.05  # share of the texts: a word in more of them is not rare


class Unsplittable(RequestError):
    """A text that has no spaces and does not fall into phrases. It costs this text, not the figure."""


def writes_no_spaces(text: str) -> bool:
    """Japanese or Chinese, by its characters.

    >>> writes_no_spaces("今日は天気です。"), writes_no_spaces("The word 気 means spirit")
    (True, False)
    """
    characters = len(_KANA.findall(text)) + len(_HAN.findall(text))
    return characters > 0 and characters >= _MOSTLY * len("".join(text.split()))


@dataclass(frozen=True)
class Split:
    """The words of a text in their order, and what stands between them: nothing between the phrases of a run."""

    words: tuple[str, ...]
    gaps: tuple[str, ...]

    def join(self, words: Sequence[str]) -> str:
        """These words with the gaps of the text.

        >>> split("ナイキ 赤").join(["赤", "ナイキ"])
        '赤 ナイキ'
        """
        return "".join(word + gap for word, gap in zip_longest(words, self.gaps, fillvalue=""))


def split(text: str, how: str = "auto") -> Split:
    """Split at spaces, and inside of what a script without spaces writes together into phrases.

    >>> split("two  words"), split("one")
    (Split(words=('two', 'words'), gaps=('  ',)), Split(words=('one',), gaps=()))
    """
    parts = _SPACES.split(text.strip())
    language = "ja" if _KANA.search(text) else "zh"
    words: list[str] = []
    gaps: list[str] = []
    for run, gap in zip(parts[::2], [*parts[1::2], ""], strict=True):
        phrases = how == "phrases" or (how == "auto" and writes_no_spaces(run))
        inside = _phrases(run, language) if phrases else [run]
        words += inside
        gaps += [*[""] * (len(inside) - 1), gap]
    return Split(tuple(words), tuple(gaps[:-1])) if words != [""] else Split((), ())


def plain_words(text: str, how: str = "auto") -> list[str]:
    """Words without the punctuation around them; what holds no letter or digit is no word.

    >>> plain_words("A (black) 17.3-inch one — new!")
    ['A', 'black', '17.3-inch', 'one', 'new']
    """
    bare = (_bare(word) for word in split(text, how).words)
    return [word for word in bare if word]


def _bare(word: str) -> str:
    start, end = 0, len(word)
    while start < end and not _counts(word[start]):
        start += 1
    while end > start and not _counts(word[end - 1]):
        end -= 1
    return word[start:end]


def _counts(character: str) -> bool:
    return character.isalnum() or unicodedata.category(character).startswith("M")


def _phrases(run: str, language: str) -> list[str]:
    try:
        return [phrase for phrase in _parser(language)(run) if phrase]
    except Exception as error:  # budoux names no errors of its own
        raise Unsplittable(f"budoux cannot split {printable(run)[:40]!r} into phrases: {error}") from error


@cache
def _parser(language: str) -> Callable[[str], Sequence[str]]:
    import budoux

    load = budoux.load_default_japanese_parser if language == "ja" else budoux.load_default_simplified_chinese_parser
    parse: Callable[[str], Sequence[str]] = load().parse
    return parse


# --- sub-words -------------------------------------------------------------------------------------------------------


@runtime_checkable
class ShowsPieces(Protocol):
    def pieces(self, words: Sequence[str]) -> list[list[str | None]]: ...


def bare_piece(piece: str) -> str:
    """A sub-word without the marks of its vocabulary; empty for a mark alone.

    >>> bare_piece("##ing"), bare_piece("▁red"), bare_piece("##")
    ('ing', 'red', '')
    """
    for mark in _MARKS:
        piece = piece.removeprefix(mark)
    return piece.removesuffix("</w>")


def piece_sets(model: ShowsPieces, texts: Sequence[str]) -> list[frozenset[str | None]]:
    """The distinct sub-words of each text, None for all that the vocabulary lacks: to the model these are one and the
    same. Pieces without a letter or digit are left out; a text that cannot be split is taken as one word."""
    words = [_words_or_none(text, "auto") or [text] for text in texts]
    distinct = list(dict.fromkeys(word for several in words for word in several))
    pieces = dict(zip(distinct, model.pieces(distinct), strict=True))
    return [
        frozenset(
            None if piece is None else bare_piece(piece).casefold()
            for word in several
            for piece in pieces[word]
            if piece is None or any(map(str.isalnum, piece))
        )
        for several in words
    ]


@dataclass(frozen=True)
class Term:
    """A word, its sub-words, and in how many texts it is."""

    word: str
    pieces: tuple[str | None, ...]
    texts: int

    @property
    def shown(self) -> str:
        """The word as it is split, such as kar·cher; [UNK] is what the vocabulary does not have."""
        return "·".join(
            "[UNK]" if piece is None else bare for piece in self.pieces if (bare := bare_piece(piece or " "))
        )


@dataclass(frozen=True, eq=False)
class Fragmentation:
    """Per text, float64[n]: words, sub-words, words of more than one sub-word, words with an unknown one.

    `unsplit` counts the texts that do not fall into words; they have none here.
    """

    words: Floats
    pieces: Floats
    split: Floats
    unknown: Floats
    worst: tuple[Term, ...]
    unsplit: int = 0


def fragment(model: ShowsPieces, texts: Iterable[str], *, how: str = "auto", most: int = 10) -> Fragmentation:
    """Every distinct word is tokenised once. The worst are those with unknown sub-words, then with the most of them,
    then in the most texts; a word of a single text comes last, since it is more often a serial number than a term."""
    tried = [_words_or_none(text, how) for text in texts]
    words = [several or [] for several in tried]
    within = Counter(word for several in words for word in set(several))
    distinct = list(within)
    pieces = [tuple(sub_words) for sub_words in model.pieces(distinct)]
    place = {word: i for i, word in enumerate(distinct)}
    size = np.array([len(p) for p in pieces], np.float64)
    unknown = np.array([None in p for p in pieces], np.float64)
    rows = np.repeat(np.arange(len(words)), [len(several) for several in words])
    whole = np.array([place[word] for several in words for word in several], np.int64)

    def total(values: Floats) -> Floats:
        return np.asarray(np.bincount(rows, values[whole], minlength=len(words)), np.float64)

    broken = [Term(w, p, within[w]) for w, p in zip(distinct, pieces, strict=True) if len(p) > 1 or None in p]
    broken.sort(key=lambda t: (t.texts == 1, None not in t.pieces, -len(t.pieces), -t.texts, t.word))
    return Fragmentation(
        words=total(np.ones(len(distinct))),
        pieces=total(size),
        split=total((size > 1).astype(np.float64)),
        unknown=total(unknown),
        worst=tuple(broken[:most]),
        unsplit=tried.count(None),
    )


def _words_or_none(text: str, how: str) -> list[str] | None:
    try:
        return plain_words(text, how)
    except Unsplittable:
        return None


# --- rare words ------------------------------------------------------------------------------------------------------


def rare_words(texts: Sequence[str], *, most: int, how: str = "auto") -> tuple[str, ...]:
    """Rare words of the texts, the longest first.

    One is in at least two texts and at most 5 % of them, and has six letters or more (in scripts without case two), no
    digit and no slash, comma or plus (a list). Fewer than `most` where the texts have fewer.
    """
    within = _texts_with(texts[:_TEXTS], how)
    bound = max(2.0, _COMMON * min(len(texts), _TEXTS))
    words = [word for word, count in within.items() if 2 <= count <= bound and _is_name(word)]
    return tuple(sorted(words, key=lambda w: (-len(w), within[w], w))[:most])


def count_pieces(model: Encoder | None, entities: Sequence[str]) -> list[tuple[int, int]] | None:
    """Words and sub-words of each entity; None where the model does not show its tokenizer."""
    if not isinstance(model, ShowsPieces):
        return None
    words = [_words_or_none(entity, "auto") or [entity] for entity in entities]
    sizes = iter(model.pieces([word for several in words for word in several]))
    return [(len(several), sum(len(next(sizes)) for _ in several)) for several in words]


def _texts_with(texts: Sequence[str], how: str) -> Counter[str]:
    """In how many texts each word is, upper and lower case alike; written as it is first seen."""
    within: Counter[str] = Counter()
    written: dict[str, str] = {}
    for text in texts:
        folds = {word.casefold(): word for word in _words_or_none(text, how) or ()}
        for folded, word in folds.items():
            written.setdefault(folded, word)
        within.update(folds.keys())
    return Counter({written[folded]: count for folded, count in within.items()})


def _is_name(word: str) -> bool:
    """
    >>> [word for word in ("Zalman", "Canon", "dv7000ea", "GSM/WCDMA", "ヘッドホン", "A-ONE") if _is_name(word)]
    ['Zalman', 'ヘッドホン']
    """
    letters = sum(character.isalpha() for character in word)
    cased = word.lower() != word.upper()
    plain = all(character.isalpha() or character in "-'’・ー" for character in word)
    return plain and letters >= (_LETTERS if cased else _CASELESS_LETTERS)
