"""Entities for the knowledge probe: terms of a corpus that a model may never have learned."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from calipers.core import Encoder
from calipers.diagnosis.layers.fragmentation import ShowsPieces
from calipers.diagnosis.layers.words import plain_words

MOST = 50
_TEXTS = 20_000  # that are looked through
_LETTERS, _CASELESS_LETTERS = 6, 2
_COMMON = 0.05  # of the texts: a word in more of them is not rare


def mine(texts: Sequence[str], model: Encoder | None, *, most: int = MOST, how: str = "auto") -> tuple[str, ...]:
    """Rare words of the texts: half of them those that the tokenizer splits most, half the rarest that it does not.

    A candidate is in at least two texts and at most 5 % of them, and has six letters or more (in scripts without case
    two), no digit (what has digits is mostly a part number) and no slash, comma or plus (a list). Without a tokenizer
    to look at, the longest are taken. Fewer than `most` where the texts have fewer; none where there is no candidate.
    """
    within = _texts_with(texts[:_TEXTS], how)
    bound = max(2.0, _COMMON * min(len(texts), _TEXTS))
    words = [word for word, count in within.items() if 2 <= count <= bound and _is_name(word)]
    longest = sorted(words, key=lambda w: (-len(w), within[w], w))
    if not isinstance(model, ShowsPieces):
        return tuple(longest[:most])
    size = {word: len(pieces) for word, pieces in zip(words, model.pieces(words), strict=True)}
    split = sorted((w for w in words if size[w] > 1), key=lambda w: (-size[w], -within[w], w))
    whole = sorted((w for w in words if size[w] == 1), key=lambda w: (within[w], -len(w), w))
    half = max(most - len(whole), (most + 1) // 2)
    chosen = split[:half]
    return tuple(chosen + whole[: most - len(chosen)])


def count_pieces(model: Encoder | None, entities: Sequence[str]) -> list[tuple[int, int]] | None:
    """Words and sub-words of each entity; None where the model does not show its tokenizer."""
    if not isinstance(model, ShowsPieces):
        return None
    words = [plain_words(entity) or [entity] for entity in entities]
    sizes = iter(model.pieces([word for several in words for word in several]))
    return [(len(several), sum(len(next(sizes)) for _ in several)) for several in words]


def _texts_with(texts: Sequence[str], how: str) -> Counter[str]:
    """In how many texts each word is, upper and lower case alike; written as it is first seen."""
    within: Counter[str] = Counter()
    written: dict[str, str] = {}
    for text in texts:
        found = {word.casefold(): word for word in plain_words(text, how)}
        for folded, word in found.items():
            written.setdefault(folded, word)
        within.update(found.keys())
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
