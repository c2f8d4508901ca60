"""The hand-written cases of attribute extraction, and how well an extractor does on them.

    python -m tests.support.attribute_cases        prints precision and recall, and every case that fails
    python -m tests.support.attribute_cases fresh  the same for one file

The cases were written before the extractor, those of `fresh` before the code for Japanese compounds. `t` is the text,
`cols` the columns of a product; `c`, `b`, `q` are the colours, brands and quantities that it states, `xc`, `xb`, `xq`
those that it excludes, `fb`, `fq` those that it is made for. A key that is missing means none. Quantities are written
"kind value unit", and turned into the base unit of the kind by the table below, which is not the extractor's. `known`
are the values of a brand column of the corpus; letter sizes are numbered XS 1, S 2, M 3, L 4, XL 5 and so on.
"""

from __future__ import annotations

import json
import math
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from calipers.shop import Attributes, Extractor, Quantity

FILES = ("colour", "brand", "dimension", "mixed", "heldout")
FRESH = ("fresh", "second", "third")
PARTS = ("colour", "brand", "dimension")
KEYS = {
    "c": ("colour", "colours"),
    "xc": ("colour", "not_colours"),
    "b": ("brand", "brands"),
    "xb": ("brand", "not_brands"),
    "fb": ("brand", "fits_brands"),
    "q": ("dimension", "quantities"),
    "xq": ("dimension", "not_quantities"),
    "fq": ("dimension", "fits_quantities"),
}
# To the base units: m, g, ml, GB, Gbps, W, V, A, Ah, GHz, K, °C, lm, MP, rpm, s, m².
FACTORS = {
    "mm": 0.001,
    "cm": 0.01,
    "m": 1.0,
    "in": 0.0254,
    "ft": 0.3048,
    "g": 1.0,
    "lb": 453.59237,
    "oz": 28.349523125,
    "ml": 1.0,
    "floz": 29.5735295625,
    "gal": 3785.411784,
    "GB": 1.0,
    "Gbps": 1.0,
    "W": 1.0,
    "V": 1.0,
    "A": 1.0,
    "Ah": 1.0,
    "GHz": 1.0,
    "K": 1.0,
    "C": 1.0,
    "lm": 1.0,
    "MP": 1.0,
    "rpm": 1.0,
    "s": 1.0,
    "d": 86400.0,
    "mo": 2629746.0,
    "y": 31556952.0,
    "m2": 1.0,
    "": 1.0,
}


@dataclass(frozen=True)
class Case:
    text: str
    columns: dict[str, Any] | None
    expected: frozenset[tuple[str, Any]]  # (key, value)
    japanese: bool
    place: str
    known: tuple[str, ...] = ()


def read_cases(files: Sequence[str] = FILES) -> list[Case]:
    folder = Path(__file__).parent / "cases"
    return [
        _case(json.loads(line), f"attributes_{name}.jsonl:{number}")
        for name in files
        for number, line in enumerate((folder / f"attributes_{name}.jsonl").read_text(encoding="utf-8").splitlines(), 1)
    ]


def _case(row: dict[str, Any], place: str) -> Case:
    assert row.keys() <= {"t", "cols", "n", "known", *KEYS}, place
    expected = {(key, _amount(v) if key.endswith("q") else _name(v)) for key in KEYS for v in row.get(key, ())}
    japanese = any(ord(c) >= 0x3040 for c in row["t"])
    return Case(row["t"], row.get("cols"), frozenset(expected), japanese, place, tuple(row.get("known", ())))


def _name(value: str) -> str:
    """Ids of brands that a corpus adds have no hyphens."""
    return value.replace("-", "")


def _amount(text: str) -> tuple[str, float, float]:
    """
    >>> _amount("length 10..15 cm")
    ('length', 0.1, 0.15)
    """
    kind, number, unit = (*text.split(), "")[:3]
    low, _, high = number.partition("..")
    if number.startswith((">=", "<=")):
        low, high = (number[2:], "inf") if number[0] == ">" else ("-inf", number[2:])
    return kind, _rounded(float(low) * FACTORS[unit]), _rounded(float(high or low) * FACTORS[unit])


def _rounded(value: float) -> float:
    return float(f"{value:.9g}") if math.isfinite(value) else value


def found_in(extractor: Extractor, case: Case) -> frozenset[tuple[str, Any]]:
    read = extractor.with_brands(case.known).read(case.text, case.columns)
    return frozenset((key, value) for key, (_, name) in KEYS.items() for value in _plain(read, name))


def _plain(read: Attributes, name: str) -> Iterator[Any]:
    for value in getattr(read, name):
        yield (value.kind, _rounded(value.low), _rounded(value.high)) if isinstance(value, Quantity) else _name(value)


@dataclass(frozen=True)
class Score:
    """Over values, not cases: a value is right when text, key and value agree."""

    right: int
    wrong: int
    missed: int

    @property
    def precision(self) -> float:
        return self.right / (self.right + self.wrong)

    @property
    def recall(self) -> float:
        return self.right / (self.right + self.missed)


def score(extractor: Extractor, cases: list[Case]) -> tuple[dict[str, Score], list[str]]:
    """Scores of each part, each language and all, and a line for each case that fails."""
    counts: Counter[tuple[str, str]] = Counter()
    failures = []
    for case in cases:
        found = found_in(extractor, case)
        for which, values in (
            ("right", found & case.expected),
            ("wrong", found - case.expected),
            ("missed", case.expected - found),
        ):
            for key, _ in values:
                for group in (KEYS[key][0], "Japanese" if case.japanese else "English", "all"):
                    counts[group, which] += 1
        if found != case.expected:
            difference = f"wrong {sorted(found - case.expected)}, missed {sorted(case.expected - found)}"
            failures.append(f"{case.place}: {case.text!r}: {difference}")
    groups = (*PARTS, "English", "Japanese", "all")
    return {g: Score(counts[g, "right"], counts[g, "wrong"], counts[g, "missed"]) for g in groups}, failures


def report(extractor: Extractor, files: Sequence[str] = FILES) -> str:
    cases = read_cases(files)
    scores, failures = score(extractor, cases)
    lines = [f"{len(cases)} cases, {len(cases) - len(failures)} right in every value"]
    for group, s in scores.items():
        counts = f"{s.right} right, {s.wrong} wrong, {s.missed} missed"
        lines.append(f"  {group:10} precision {s.precision:.4f}  recall {s.recall:.4f}  ({counts})")
    return "\n".join([*lines, *(f"  {failure}" for failure in failures)])


if __name__ == "__main__":
    print(report(Extractor.from_files(), sys.argv[1:] or FILES))
