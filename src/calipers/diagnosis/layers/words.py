"""Words of a text: what whitespace separates, or phrases where a language writes no spaces (budoux, extra `ja`)."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

from calipers.core import RequestError

HOW = ("auto", "space", "phrases")
_KANA = re.compile(r"[\u3041-\u30ff\uff66-\uff9f]")
_HAN = re.compile(r"[\u3400-\u4dbf\u4e00-\u9fff\U00020000-\U000323af]")
_MOSTLY = 0.3  # share of characters that makes a text Japanese or Chinese: product names mix in much Latin


class MissingExtra(RequestError):
    """A package that is not installed; the message has the pip command."""


def writes_no_spaces(text: str) -> bool:
    """Japanese or Chinese, by its characters.

    >>> writes_no_spaces("今日は天気です。"), writes_no_spaces("The word 気 means spirit")
    (True, False)
    """
    found = len(_KANA.findall(text)) + len(_HAN.findall(text))
    return found > 0 and found >= _MOSTLY * len("".join(text.split()))


def split(text: str, how: str = "auto") -> tuple[list[str], str]:
    """The words of a text in their order, and what joins them again.

    >>> split("two  words"), split("one")
    ((['two', 'words'], ' '), (['one'], ' '))
    """
    if how == "phrases" or (how == "auto" and writes_no_spaces(text)):
        return _phrases(text), ""
    return text.split(), " "


def plain_words(text: str, how: str = "auto") -> list[str]:
    """Words without the punctuation around them; what holds no letter or digit is no word.

    >>> plain_words("A (black) 17.3-inch one — new!")
    ['A', 'black', '17.3-inch', 'one', 'new']
    """
    bare = (_bare(word) for word in split(text, how)[0])
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


def _phrases(text: str) -> list[str]:
    parse = _parser("ja" if _KANA.search(text) else "zh")
    return [phrase for phrase in parse("".join(text.split())) if phrase]


@cache
def _parser(language: str) -> Callable[[str], Sequence[str]]:
    try:
        import budoux
    except ImportError as error:
        raise MissingExtra(
            "Japanese and Chinese texts are split into phrases by budoux, which is not installed: "
            "pip install 'calipers[ja]'"
        ) from error
    parser: Any = (
        budoux.load_default_japanese_parser() if language == "ja" else budoux.load_default_simplified_chinese_parser()
    )
    return parser.parse  # type: ignore[no-any-return]
