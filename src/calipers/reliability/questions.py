"""Questions from a file or a stream: one a line, or a JSON object a line with a `text` (or `query`) and an id."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from calipers.core import DataError
from calipers.core.inputs import numbered_lines, open_input, parse_json
from calipers.reliability.answer import TrustAnswer
from calipers.reliability.trust import REFERENCE
from calipers.rendering.document import to_line


@dataclass(frozen=True)
class Questions:
    """Texts in their order, with their ids: the line's number where a line states none."""

    ids: tuple[str, ...]
    texts: tuple[str, ...]


def read_questions(path: Path) -> Questions:
    with open_input(path) as file:
        return parse_questions(file, str(path))


def parse_questions(file: IO[bytes], name: str) -> Questions:
    """Blank lines are skipped.

    >>> from io import BytesIO
    >>> parse_questions(BytesIO(b'red wine\\n\\n{"_id": "q7", "text": "tea"}'), "x")
    Questions(ids=('1', 'q7'), texts=('red wine', 'tea'))
    """
    pairs = []
    for number, line in numbered_lines(file, name):
        try:
            text = line.decode("utf-8-sig" if number == 1 else "utf-8").strip()
        except UnicodeDecodeError as error:
            raise DataError(f"{name} line {number} is not UTF-8: {error.reason}") from error
        if text:
            pairs.append(_parse(text, f"{name} line {number}", str(number)))
    if not pairs:
        raise DataError(f"{name} holds no question")
    return Questions(tuple(id for id, _ in pairs), tuple(text for _, text in pairs))


def _parse(line: str, where: str, number: str) -> tuple[str, str]:
    if not line.startswith("{"):
        return number, line
    row = parse_json(line, where)
    text = row.get("text", row.get("query"))
    if not isinstance(text, str) or not text.strip():
        raise DataError(f"{where}: expected a text in 'text' or 'query', found {_shown(text)}")
    return str(row.get("_id", row.get("id", number))), text.strip()


def _shown(value: Any) -> str:
    return "none" if value is None else repr(value)[:60]


def answer_lines(answer: TrustAnswer, ids: Iterable[str]) -> Iterator[str]:
    """One JSON object a line for each question, in their order; neighbours by their ids."""
    for row, id in enumerate(ids):
        facts = answer.query(row)
        facts["neighbours"] = [{key: near[key] for key in ("id", "cosine")} for near in facts["neighbours"]]
        columns = answer.scores.columns
        facts["predictors"] = {name: float(columns[name][row]) for name in REFERENCE if name in columns}
        yield to_line({"id": id, **facts})
