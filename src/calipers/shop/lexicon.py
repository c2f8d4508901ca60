"""The words: built-in files and those that a user adds, read, checked and merged.

Every file has the same schema (docs/attributes.md); a file may hold any part of it. An added file extends: lists grow,
an entry of the same id gets the new words, a single value is replaced. Nothing in a file is executed.
"""

from __future__ import annotations

import reprlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from calipers.core import DataError, RequestError, printable
from calipers.core.errors import boundary
from calipers.core.inputs import load_yaml

_HERE = Path(__file__).parent

Words = dict[str, Any]


@boundary(DataError, "the attributes files cannot be read")
def read_words(paths: Sequence[Path | str] = ()) -> Words:
    """The built-in words, and those of the files at `paths` (YAML or JSON) on top, in their order."""
    words: Words = {}
    schema = _load(_HERE / "schema.yaml")
    for path in (*sorted(_HERE.glob("data/*.yaml")), *map(Path, paths)):
        content = _load(path)
        _check(content, schema, str(path), ())
        _merge(words, content)
    _check_whole(words)
    return words


_COLUMNS = ("type", "colour", "brand", "dimension")


def name_columns(words: Words, pairs: Sequence[str]) -> list[str]:
    """Add the columns that a user names, KEY=NAME, to the words, before all others of the key; the names."""
    names = []
    for pair in pairs:
        key, equals, name = pair.partition("=")
        if key not in _COLUMNS or not equals or not name.strip():
            keys = ", ".join(_COLUMNS)
            raise RequestError(f"`CorpusInputs.columns` must be KEY=NAME, KEY one of {keys}, found {printable(pair)!r}")
        words["columns"][key] = [name, *words["columns"].get(key, ())]
        names.append(name)
    return names


def _load(path: Path) -> Any:
    content = load_yaml(path)
    return {} if content is None else content


def _check(content: Any, schema: Words | str, path: str, place: tuple[str, ...]) -> None:
    where = f"{path}, {' → '.join(map(printable, place)) or 'top level'}"
    if isinstance(schema, str):
        if not _IS[schema](content):
            raise DataError(f"{where}: expected {schema}, found {_show(content)}")
        return
    if not isinstance(content, Mapping):
        raise DataError(f"{where}: expected a map of {_keys(schema)}, found {_show(content)}")
    for key, value in content.items():
        if not isinstance(key, str):
            raise DataError(f"{where}: the key {key!r} must be a word; put it in quotes")
        if key not in schema and "*" not in schema:
            raise DataError(f"{where}: there is no key {printable(key)!r}; expected {_keys(schema)}")
        _check(value, schema[key if key in schema else "*"], path, (*place, key))


def _show(content: Any) -> str:
    # Not repr: aliases can make a short file stand for a value that no memory holds.
    return printable(reprlib.repr(content))[:80]


def _keys(schema: Mapping[str, Any]) -> str:
    return "names" if "*" in schema else "one of " + ", ".join(schema)


_IS = {
    "a list of words": lambda value: isinstance(value, list) and all(map(_is_word, value)),
    "a word": lambda value: _is_word(value),
    "a number": lambda value: isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e30,
    "true or false": lambda value: isinstance(value, bool),
}


def _is_word(value: object) -> bool:
    return isinstance(value, str) and bool(value.strip())


def _merge(words: Words, more: Mapping[str, Any]) -> None:
    for key, value in more.items():
        present = words.get(key)
        if isinstance(value, Mapping):
            words[key] = present if isinstance(present, dict) else {}
            _merge(words[key], value)
        elif isinstance(present, list) and isinstance(value, list):
            words[key] = list(dict.fromkeys([*present, *value]))
        else:
            words[key] = list(value) if isinstance(value, list) else value


def _check_whole(words: Words) -> None:
    """Check the merged words: every entry is complete, and a name belongs to units of one kind."""
    for id, colour in words["colours"].items():
        if not colour.get("words") and not colour.get("column"):
            raise DataError(f"attributes files: the colour {printable(id)!r} has no words")
    owner: dict[str, str] = {}
    for kind, entry in words["kinds"].items():
        for id, unit in entry.get("units", {}).items():
            if not unit.get("factor", 0) > 0:
                raise DataError(f"attributes files: the unit {printable(id)!r} of {kind} has no factor above 0")
            for name in (*map(str.lower, unit.get("names", ())), *unit.get("exact", ())):
                if owner.setdefault(name, kind) != kind:
                    raise DataError(
                        f"attributes files: the name {printable(name)!r} belongs to units of {owner[name]} and of "
                        f"{kind}; expected one kind"
                    )
