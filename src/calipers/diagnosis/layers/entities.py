"""The entities of a corpus: rare names that tell whether a model knows a domain, mined from the corpus itself.

- *brands*: values of a brand column in all their spellings; without one, the brands that the lexicon reads in texts.
- *codes*: letters with digits (QC45, WH-1000XM5) that are no sizes.
- *names*: of products, franchises and people, by how they are written. A capital inside (PlayStation), or a capital at
  almost every place that is not the first of a sentence; katakana that does not fall into known words; what stands in
  『』. Where brands are known, such a name also goes with one of them and stands behind it, as ThinkPad does.

What is in more than 5 % of the texts is not rare. Nothing here depends on a model, so that two are asked the same.
"""

from __future__ import annotations

import re
import zlib
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from calipers.diagnosis.layers.words import rare_words
from calipers.shop import Extractor
from calipers.shop.brands import name_parts
from calipers.shop.products import Products
from calipers.shop.text import Line, fold, holds, normal, script

MINED = 50
_TEXTS, _CHARACTERS = 10_000, 1000  # that are looked at, evenly over the corpus, and characters of each
_READ_BY_LEXICON, _BEGINNING = 2000, 200  # texts, and characters of each: a third of a millisecond
_SHOP = 0.1  # share of these that name a brand: in fewer, Columbia is no brand
_COMMON = 0.05  # share of the texts: a word in more of them is not rare
_LEAST, _FEW = 2, 10  # texts that an entity is in at least, and that are few in a corpus of any size
_ENOUGH = 10  # entities, below which rare words fill up
_ALWAYS, _ONE_BRAND, _BEHIND = 0.95, 0.9, 0.3  # shares: of places with a capital, of texts of one brand, behind it
_BRAND_WORDS = 3
_SHOUTED = 0.6  # share of words with a capital from which a capital says nothing
_CODE_LENGTH = 4
_LONGEST = 40
_SHARES = {"brand": 0.4, "name": 0.3, "code": 0.3}
_NO_BRANDS = frozenset(
    ["generic", "unbranded", "no brand", "none", "unknown", "other", "others", "various", "n/a", "oem"]
).union(["ノーブランド", "その他", "なし", "不明"])

_TOKEN = re.compile(r"[^\W_]+(?:['’&+./-]+[^\W_]+)*")
_KATAKANA = re.compile(r"[ァ-ヺー]{3,}(?:・[ァ-ヺー]{2,})*")
_QUOTED = re.compile(r"『([^』]{2,30})』")
_SENTENCE_END = ".!?:;|•"
_INNER_CAPITAL = re.compile(r"[a-z][A-Z]|[A-Z]{2}[a-z]{2}")
_PLAIN = re.compile(r"[A-Za-z]?[a-z]{2,}")
_MEASURE = re.compile(
    r"[\d.,]+[^\W\d]{0,5}|\d+(?:[.,]\d+)?(?:x\d+(?:[.,]\d+)?)+\w{0,3}|\d+(?:st|nd|rd|th)", re.IGNORECASE
)


@dataclass(frozen=True)
class Entity:
    """`kind` is brand, code, name or word; given for one that a user gives."""

    text: str
    kind: str


@dataclass
class _Word:
    """A word as texts write it: in how many of them, its spellings, and how often it has a capital, or none, at a place
    where a sentence does not begin."""

    texts: int = 0
    spellings: Counter[str] = field(default_factory=Counter)
    capital: int = 0
    small: int = 0
    brands: Counter[str] = field(default_factory=Counter)  # of its texts
    behind: int = 0  # texts in which it follows a brand

    @property
    def spelling(self) -> str:
        return self.spellings.most_common(1)[0][0]

    @property
    def of_one_brand(self) -> bool:
        """Of three texts or more that name a brand, almost all name the same."""
        total = sum(self.brands.values())
        return total > _LEAST and self.brands.most_common(1)[0][1] >= _ONE_BRAND * total

    @property
    def is_line(self) -> bool:
        """A line of products: of one brand, and often behind it."""
        return self.of_one_brand and self.behind >= _BEHIND * self.texts

    @property
    def always_capital(self) -> bool:
        places = self.capital + self.small
        return places > 0 and self.capital >= _ALWAYS * places


def mine(
    texts: Sequence[str], products: Products | None, *, most: int = MINED, how: str = "auto"
) -> tuple[Entity, ...]:
    """Up to `most` entities, in equal parts as far as there are any; rare words where there are fewer than ten."""
    step = -(-len(texts) // _TEXTS) if len(texts) else 1
    lines = [normal(texts[row][:_CHARACTERS]) for row in range(0, len(texts), step)]
    extractor = products.extractor if products else Extractor.from_files()
    brands = _brands(lines, products.brands if products else {}, extractor)
    words = _count(lines, {fold(name) for name in brands})
    bound = max(float(_FEW), _COMMON * len(lines))
    groups = {
        "brand": _in_texts(_rarest(brands, bound), lines, 2 * most),
        "name": _names(words, extractor, brands, bound),
        "code": [word for word in _codes(words, extractor, bound) if fold(word) not in set(map(fold, brands))],
    }
    entities = [Entity(text, kind) for kind, chosen in _divide(groups, most).items() for text in chosen]
    if len(entities) < min(most, _ENOUGH):
        present = {fold(entity.text) for entity in entities}
        others = [word for word in rare_words(texts, most=most, how=how) if fold(word) not in present]
        entities += [Entity(word, "word") for word in others[: most - len(entities)]]
    return tuple(entities)


def _divide(groups: Mapping[str, Sequence[str]], most: int) -> dict[str, list[str]]:
    """The first of each group by its share; what a group leaves is divided among those that have more.

    >>> _divide({"brand": ["a"], "name": ["b", "c", "d", "e"], "code": []}, 4)
    {'brand': ['a'], 'name': ['b', 'c', 'd'], 'code': []}
    """
    sizes = {kind: min(len(groups[kind]), round(share * most)) for kind, share in _SHARES.items()}
    while sum(sizes.values()) < most and any(sizes[kind] < len(groups[kind]) for kind in sizes):
        for kind in sizes:
            sizes[kind] += sizes[kind] < len(groups[kind]) and sum(sizes.values()) < most
    return {kind: list(groups[kind][:size]) for kind, size in sizes.items()}


# --- words -------------------------------------------------------------------------------------------------------


def _tokens(line: Line) -> Iterator[tuple[str, bool]]:
    """The Latin words of a text as they are written, and whether a sentence may begin there."""
    end = 0
    for match in _TOKEN.finditer(line.base):
        between = line.base[end : match.start()]
        first = end == 0 or any(character in _SENTENCE_END for character in between)
        end = match.end()
        if script(match[0][0]) == "a" and match[0].isascii() and len(match[0]) <= _LONGEST:
            yield match[0], first


def _count(lines: Iterable[Line], brands: Collection[str]) -> dict[str, _Word]:
    """Every Latin word, katakana and quoted name, by its folded spelling."""
    words: dict[str, _Word] = {}
    for line in lines:
        present: dict[str, str] = {}
        tokens = list(_tokens(line))
        folds = [_fold_word(token) for token, _ in tokens]
        for (token, first), folded in zip(tokens, folds, strict=True):
            word = words.setdefault(folded, _Word())
            present.setdefault(folded, token)
            if not first:
                word.capital += not token[0].islower()
                word.small += token[0].islower()
        for name in (*_KATAKANA.findall(line.base), *_QUOTED.findall(line.base)):
            words.setdefault(_fold_word(name), _Word())
            present.setdefault(_fold_word(name), name)
        named = list(_named_brands(folds, brands))
        katakana = (word for word in present if word in brands)
        brand = named[0][0] if named else next(katakana, None)
        for folded, written in present.items():
            words[folded].texts += 1
            words[folded].spellings[written] += 1
            if brand is not None and folded != brand:
                words[folded].brands[brand] += 1
        for folded in {folds[end] for _, end in named if end < len(folds)}:
            words[folded].behind += 1
    return words


def _named_brands(words: Sequence[str], brands: Collection[str]) -> Iterator[tuple[str, int]]:
    """The brands of up to three words among these, and where each ends."""
    for start in range(len(words)):
        for end in range(min(len(words), start + _BRAND_WORDS), start, -1):
            if (name := " ".join(words[start:end])) in brands:
                yield name, end
                break


def _fold_word(word: str) -> str:
    """What `shop.text.fold` makes of a word of a normal text."""
    return word.lower().replace("_", "-").replace("・", "-")


def _order(words: Mapping[str, _Word], chosen: Iterable[str]) -> list[str]:
    """Those that go with one brand first, then those of the most texts, up to ten; the rest in no order."""
    return sorted(
        chosen,
        key=lambda word: (not words[word].of_one_brand, -min(words[word].texts, 10), zlib.crc32(word.encode())),
    )


# --- kinds -------------------------------------------------------------------------------------------------------


def _brands(lines: Sequence[Line], column: Mapping[str, int], extractor: Extractor) -> dict[str, int]:
    """Brands as they are written, and in how many texts: of a column, else those that the lexicon reads."""
    counts: Counter[str] = Counter()
    if column:
        for value, rows in column.items():
            for name in name_parts(value):
                counts[name] += rows
    else:
        read = [Line(line.base[:_BEGINNING], line.folded[:_BEGINNING]) for line in lines[:_READ_BY_LEXICON]]
        named = [
            {line.base[m.start : m.end] for m in extractor.brands.find(line) if not m.what.is_line} for line in read
        ]
        counts.update(name for names in named for name in names)
        if sum(map(bool, named)) < _SHOP * len(read):
            return {}
    counts = _one_spelling(counts)
    return {name: count for name, count in counts.items() if _may_be_brand(name, extractor)}


def _one_spelling(counts: Counter[str]) -> Counter[str]:
    """The most frequent of spellings that differ in case, with the counts of all."""
    spelled: dict[str, str] = {}
    total: Counter[str] = Counter()
    for name in sorted(counts, key=lambda name: (-counts[name], name)):
        total[spelled.setdefault(fold(name), name)] += counts[name]
    return total


def _may_be_brand(name: str, extractor: Extractor) -> bool:
    letters = sum(character.isalpha() for character in name)
    ordinary = fold(name) in _NO_BRANDS or extractor.colours.is_word(name) or extractor.brands.is_company_form(name)
    return letters > 1 and len(name) <= _LONGEST and not ordinary


def _in_texts(names: Sequence[str], lines: Sequence[Line], most: int) -> list[str]:
    """Those of the first `most` names that a text has."""
    missing = {fold(name): name for name in names[:most]}
    for line in lines:
        if not missing:
            break
        for folded in [folded for folded in missing if holds(line.folded, folded)]:
            del missing[folded]
    return [name for name in names[:most] if fold(name) not in missing]


def _rarest(brands: Mapping[str, int], bound: float) -> list[str]:
    """Rare ones evenly from the rarest to the most frequent; behind them the frequent ones and those of one text."""
    rare = sorted((n for n, count in brands.items() if _LEAST <= count <= bound), key=lambda n: (brands[n], n))
    frequent = sorted((n for n, count in brands.items() if count > bound), key=lambda n: (brands[n], n))
    single = sorted((n for n, count in brands.items() if count < _LEAST), key=lambda n: zlib.crc32(n.encode()))
    return [*_spread(rare), *frequent, *single]


def _spread(ordered: Sequence[str]) -> list[str]:
    """The same, so that the first few stand for all: every 2nd of what is left, and so on.

    >>> _spread("abcdefgh")
    ['h', 'd', 'b', 'f', 'a', 'c', 'e', 'g']
    """
    rest, step = list(ordered), 1
    while step * 2 <= max(1, len(rest)):
        step *= 2
    places: dict[int, None] = {}
    while step:
        places |= dict.fromkeys(range(step - 1, len(rest), step))
        step //= 2
    return [rest[place] for place in places]


def _codes(words: Mapping[str, _Word], extractor: Extractor, bound: float) -> list[str]:
    chosen = (w for w, word in words.items() if _LEAST <= word.texts <= bound and _is_code(word.spelling, extractor))
    return [words[word].spelling for word in _order(words, chosen)]


def _is_code(word: str, extractor: Extractor) -> bool:
    plain = [character for character in word if character.isalnum()]
    digits = sum(map(str.isdigit, plain))
    if len(plain) < _CODE_LENGTH or not digits or digits == len(plain) or "/" in word or _MEASURE.fullmatch(word):
        return False
    parts = re.split(r"[-.+&'’]", word)
    if any(_PLAIN.fullmatch(part) for part in parts) and any(map(str.isdigit, parts)):  # 32-bit, interleukin-4
        return False
    return not extractor.units.find(normal(word))


def _names(words: Mapping[str, _Word], extractor: Extractor, brands: Mapping[str, int], bound: float) -> list[str]:
    taken = set(map(fold, brands))
    places = sum(word.capital + word.small for word in words.values())
    shouted = sum(word.capital for word in words.values()) > _SHOUTED * max(1, places)
    chosen = [
        folded
        for folded, word in words.items()
        if _LEAST <= word.texts <= bound
        and folded not in taken
        and _is_name(word, extractor, by_brand=bool(brands), shouted=shouted)
        and not _is_compound(word.spelling, words)
    ]
    return [words[word].spelling for word in _order(words, chosen)]


def _is_compound(word: str, words: Mapping[str, _Word]) -> bool:
    """Whether a word falls into two that texts also write small: Heavy-Duty, Patchcord."""
    if not word.isascii() or _INNER_CAPITAL.search(word):
        return False
    plain = word.lower()
    halves = [(plain[:place], plain[place:].lstrip("-")) for place in range(3, len(plain) - 2)]
    return any(all(half in words and words[half].small for half in pair) for pair in halves)


def _is_name(word: _Word, extractor: Extractor, *, by_brand: bool, shouted: bool) -> bool:
    written = word.spelling
    if any(map(str.isdigit, written)) or "/" in written or extractor.colours.is_word(written):
        return False
    if not written.isascii():
        return not extractor.is_ordinary(written) and (word.of_one_brand or not by_brand)
    if len(written) < _CODE_LENGTH or extractor.units.find(normal(f"1 {written}")):
        return False
    if _INNER_CAPITAL.search(written) and not re.fullmatch(r"[A-Z]+s", written):
        return word.small == 0
    if by_brand:
        return word.is_line and word.small == 0
    return word.always_capital and not shouted and word.texts > _LEAST


# --- mentions ----------------------------------------------------------------------------------------------------


def count_mentions(texts: Sequence[str], entities: Sequence[str], enough: int) -> list[int]:
    """How many texts mention each entity; one that has reached `enough` is not counted on."""
    counts, wanted = [0] * len(entities), dict(enumerate(map(mention_test, entities)))
    for text in texts:
        if not wanted:
            break
        line = fold(text)
        for row in [row for row, is_in in wanted.items() if is_in(line)]:
            counts[row] += 1
            if counts[row] >= enough:
                del wanted[row]
    return counts


def mention_test(entity: str) -> Callable[[str], bool]:
    """Whether a folded text mentions an entity as a word of its own. A Latin name may be written with or without a
    space, a hyphen or a dot where it has one, and where letters and digits meet.

    >>> mention_test("LGA775")("intel lga 775"), mention_test("Da-Lite")("dalite"), mention_test("HP")("a book on php")
    (True, True, False)
    """
    name = fold(entity)
    runs = re.findall(r"[^\W\d_]+|\d+", name)
    if not name.isascii() or not runs:
        return lambda line: holds(line, name)
    pattern = re.compile(r"(?<![a-z0-9])" + r"[ ./-]?".join(map(re.escape, runs)) + r"(?![a-z0-9])")
    return lambda line: runs[0] in line and pattern.search(line) is not None


def mentions(text: str, entity: str) -> bool:
    return mention_test(entity)(fold(text))
