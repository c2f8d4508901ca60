"""What both models read: the bundled texts, or those of a dataset, in groups."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import yaml

from calipers.data import texts as data
from calipers.fidelity.records import ProbeText

_SHORT, _LONG = 40, 400  # characters
_LONG_WORDS = (90, 220, 450)  # of texts that many servers cut: about 120, 300 and 600 tokens
_MOST_WORDS = 2600  # a text beyond a limit of about 4,000 tokens would cost minutes


@cache
def bundled() -> Mapping[str, Any]:
    return dict(yaml.safe_load((Path(__file__).parent / "sentences.yaml").read_text(encoding="utf-8")))


def usual_prompts() -> dict[str, str]:
    return dict(bundled()["prompts"])


def probe_texts(limit: int | None, prompts: Mapping[str, str]) -> list[ProbeText]:
    """The bundled texts, with some beyond `limit` tokens and some behind each of the `prompts`."""
    content = bundled()
    chosen = [_grouped(text, "length: short") for text in content["short"]]
    for language, sentences in content["languages"].items():
        chosen += [_grouped(text, f"language: {language}") for text in sentences]
        chosen.append(_grouped(" ".join(sentences) * 2, f"language: {language}"))
    chosen += [_grouped(text, "special characters") for text in content["special"]]
    english = content["languages"]["en"]
    for name, prompt in {**usual_prompts(), **prompts}.items():
        chosen.append(_grouped(prompt + english[len(name) % len(english)], "prompts"))
    beyond = [] if limit is None else [min(limit, _MOST_WORDS)]  # a word is a token and a bit more
    for words in sorted({*_LONG_WORDS, *beyond}):
        group = "beyond the reference's limit" if limit is not None and words * 1.2 > limit else "long"
        chosen.append(ProbeText(" ".join(islice(_words(english), words)), (f"truncation: {group}", "length: long")))
    return chosen


def dataset_texts(reference: str, samples: int) -> list[ProbeText]:
    """The first texts of a file that are not blank and not equal."""
    rows = data.load_texts(reference, "corpus").columns["text"]
    distinct = dict.fromkeys(str(text) for text in rows)
    return [_grouped(text) for text in islice(distinct, samples)]


def _grouped(text: str, *groups: str) -> ProbeText:
    if any(group.startswith("length") for group in groups):
        return ProbeText(text, groups)
    length = "short" if len(text) < _SHORT else "long" if len(text) > _LONG else "medium"
    return ProbeText(text, (f"length: {length}", *groups))


def _words(sentences: Sequence[str]) -> Iterator[str]:
    """The words of the sentences again and again, in another order each time."""
    for turn in cycle(range(1, 97)):
        for place in range(len(sentences)):
            yield from sentences[(place * turn + turn) % len(sentences)].split()[turn % 3 :]
