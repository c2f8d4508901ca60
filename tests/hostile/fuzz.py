"""Coverage-guided fuzzing of the parsers with atheris: `python -m tests.hostile.fuzz PARSER [SECONDS]`, `make fuzz`.

A parser may refuse its input with an error of ours; any other exception is a finding, and so is an input that takes
longer than ten seconds or 1 GB.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

from calipers.core import CalipersError

Parse = Callable[[Path], object]


def _rows(ending: str) -> Parse:
    from calipers.data import readers

    def parse(path: Path) -> object:
        file = path.with_suffix(ending)
        path.replace(file)
        return sum(1 for _ in readers.read(file, None))

    return parse


def _parsers() -> dict[str, Parse]:
    from calipers.artifacts.recipe import read_recipe
    from calipers.core.inputs import load_json, load_yaml
    from calipers.core.references import clean_text, secrets_of
    from calipers.data import trec
    from calipers.models.bm25 import parse as parse_bm25
    from calipers.models.layout import known_class
    from calipers.reliability.trust import Trust
    from calipers.shop import read_words

    def words(path: Path) -> object:
        text = path.read_bytes().decode("utf-8", "replace")
        return clean_text(text), secrets_of(text), known_class(text), parse_bm25(text)

    return {
        "jsonl": _rows(".jsonl"), "json": _rows(".json"), "csv": _rows(".csv"), "tsv": _rows(".tsv"),
        "parquet": _rows(".parquet"), "qrels": trec.read_qrels, "run": trec.read_run, "yaml": load_yaml,
        "settings": load_json, "recipe": read_recipe, "attributes": lambda path: read_words([path]),
        "trust": Trust.load, "words": words,
    }  # fmt: skip


def main(name: str, seconds: int) -> None:
    import atheris  # type: ignore[import-not-found,import-untyped,unused-ignore]

    with atheris.instrument_imports(include=["calipers"]):
        parse = _parsers()[name]
    folder = TemporaryDirectory()
    path = Path(folder.name, "input")

    def test_one(content: bytes) -> None:
        path.write_bytes(content)
        with suppress(CalipersError):
            parse(path)

    limits = [f"-max_total_time={seconds}", "-timeout=10", "-rss_limit_mb=2500", "-max_len=4096", "-verbosity=1"]
    atheris.Setup([sys.argv[0], f"-artifact_prefix={folder.name}/", *limits], test_one)
    atheris.Fuzz()


if __name__ == "__main__":
    if importlib.util.find_spec("atheris") is None:
        sys.exit("fuzzing needs atheris, which is made for Linux and Python up to 3.13: pip install atheris")
    if len(sys.argv) < 2:
        print(*_parsers())
    else:
        main(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 45)
