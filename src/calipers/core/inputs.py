"""The one door for files that someone else wrote: regular files only, within limits that can be raised.

A FIFO, a socket, a device or a file of the kernel has no end, or blocks whoever opens it. A file of a few kilobytes can
stand for gigabytes: compressed, nested, or by the aliases of YAML. Above a limit there is a sentence that names it.
"""

from __future__ import annotations

import gzip
import io
import json
import os
import re
import stat
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import IO, Any

from calipers.core.errors import CalipersError, DataError, RequestError, boundary, quote

_MB = 1_000_000


@dataclass(frozen=True)
class Limits:
    """What an input may be: `calipers --input-limit NAME=VALUE`, or `with limited(line=…)` around a call."""

    file: int = 100_000 * _MB  # bytes of a file of data
    settings: int = 200 * _MB  # bytes of a file that is parsed as a whole: JSON, YAML, a tokenizer
    line: int = 16 * _MB  # characters of one line or row
    blank: int = 1_000_000  # blank lines in a row
    columns: int = 10_000  # of a table
    nesting: int = 100  # levels of lists and objects
    nodes: int = 1_000_000  # values of a YAML file, aliases written out
    expansion: int = 20  # how many times larger a compressed file may become, above 16 MB
    group: int = 1_000  # texts of one paraphrase group
    sandbox_seconds: int = 5  # of processor time for the first run of an unknown graph, and one for each 20 MB of it
    sandbox_memory: int = 800 * _MB  # bytes beyond the backend and four times the graph's size


_ACTIVE: ContextVar[Limits] = ContextVar("limits", default=Limits())  # noqa: B039 (it is frozen)
_FREE_EXPANSION = 16 * _MB
_MEASURED = 50 * _MB  # a compressed file up to here is decompressed once before it is read


def limits() -> Limits:
    """Those that hold here."""
    return _ACTIVE.get()


@contextmanager
def limited(**changes: int) -> Iterator[None]:
    """Other limits while this lasts.

    >>> with limited(line=10):
    ...     limits().line
    10
    """
    token = _ACTIVE.set(replace(_ACTIVE.get(), **changes))
    try:
        yield
    finally:
        _ACTIVE.reset(token)


def read_limits(pairs: Iterable[str]) -> dict[str, int]:
    """Limits as they are typed, with k, M, G or T behind a number.

    >>> read_limits(["line=64M", "columns=20000"])
    {'line': 64000000, 'columns': 20000}
    """
    names = [field.name for field in fields(Limits)]
    changes: dict[str, int] = {}
    for pair in pairs:
        name, _, value = pair.partition("=")
        match = re.fullmatch(r"(\d{1,15})([kMGT]?)", value, re.ASCII)
        if name not in names or match is None or name in changes or not int(match[1]):
            raise RequestError(
                f"`input_limit` must be NAME=NUMBER, each once, with k, M, G or T behind the number, found "
                f"{quote(pair)}: there are {', '.join(names)}"
            )
        changes[name] = int(match[1]) * 1000 ** " kMGT".index(match[2] or " ")
    return changes


def refuse_above(name: str, size: int, what: str, error: type[CalipersError] = DataError) -> None:
    """Refuse what is larger than the limit of this name; `what` says what it is."""
    most = getattr(limits(), name)
    if size > most:
        raise error(f"{what} is more than the limit of {most:,} (raise it with `input_limit` {name}=N)")


# --- files ---------------------------------------------------------------------------------------------------------


def check_input(path: Path, error: type[CalipersError] = DataError, limit: str = "file") -> os.stat_result:
    """The facts of a file, once it is clear that it is a regular one, with an end, within the limit of this name."""
    try:
        facts = path.stat()
        place = path.resolve()
    except (OSError, ValueError, RuntimeError) as fault:
        why = getattr(fault, "strerror", None) or str(fault)
        raise error(f"{path} cannot be read: {why}") from fault
    if not stat.S_ISREG(facts.st_mode):
        raise error(f"{path} cannot be read: expected a regular file, found {_kind(facts.st_mode)}")
    if place.parts[:2] in (("/", "proc"), ("/", "sys")):
        raise error(f"{path} cannot be read: it is a file of the kernel, expected a regular file")
    refuse_above(limit, facts.st_size, f"{path} has {facts.st_size:,} bytes, which", error)
    return facts


def _kind(mode: int) -> str:
    kinds = {
        stat.S_IFDIR: "a folder", stat.S_IFIFO: "a pipe", stat.S_IFSOCK: "a socket",
        stat.S_IFCHR: "a device", stat.S_IFBLK: "a device",
    }  # fmt: skip
    return kinds.get(stat.S_IFMT(mode), "something else")


def open_input(path: Path, error: type[CalipersError] = DataError) -> IO[bytes]:
    """A file to read from, decompressed where its name ends in .gz."""
    facts = check_input(path, error)
    try:
        # Not blocking: between the check and this a pipe may have taken its place.
        file = io.open(os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0)), "rb")  # noqa: SIM115, UP020
    except OSError as fault:
        raise error(f"{path} cannot be read: {fault.strerror}") from fault
    if path.suffix.lower() != ".gz":
        return file
    most = max(_FREE_EXPANSION, limits().expansion * facts.st_size)
    if facts.st_size <= _MEASURED:
        _refuse_bomb(file, path, most, error)
    return io.BufferedReader(_Expanding(file, path, most, error), 1 << 16)


def _refuse_bomb(file: IO[bytes], path: Path, most: int, error: type[CalipersError]) -> None:
    """Rows are parsed a hundred times slower than they are decompressed. What is damaged, their reader says."""
    content, size = gzip.GzipFile(fileobj=file), 0
    with suppress(OSError, EOFError, zlib.error):
        while part := content.read(1 << 20):
            size += len(part)
            if size > most:
                file.close()
                raise _too_large(path, most, error)
    file.seek(0)


def _too_large(path: Path, most: int, error: type[CalipersError]) -> CalipersError:
    return error(f"{path} decompresses to more than {most:,} bytes (raise it with `input_limit` expansion=N)")


class _Expanding(io.RawIOBase):
    """The content of a compressed file, which ends with an error after `most` bytes."""

    def __init__(self, file: IO[bytes], path: Path, most: int, error: type[CalipersError]) -> None:
        super().__init__()
        self._raw, self._file = file, gzip.GzipFile(fileobj=file)
        self._path, self._most, self._error, self._read = path, most, error, 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        content = self._file.read(len(buffer))
        buffer[: len(content)] = content
        self._read += len(content)
        if self._read > self._most:
            raise _too_large(self._path, self._most, self._error)
        return len(content)

    def close(self) -> None:
        if not self.closed:
            self._file.close()
            self._raw.close()
        super().close()


def numbered_lines(file: IO[bytes], name: str) -> Iterator[tuple[int, bytes]]:
    """The lines of a file with their numbers, from 1; `name` is the file's in errors. No more of a line is read than it
    may have."""
    most, number = limits().line, 0
    try:
        while line := file.readline(most + 1):
            number += 1
            refuse_above("line", len(line), f"{name} line {number}: {len(line):,} bytes or more, which")
            yield number, line
    except (OSError, EOFError, zlib.error) as fault:  # compressed, and damaged
        raise DataError(f"{name}, after line {number}: {fault}") from fault


def read_text(path: Path, error: type[CalipersError] = DataError) -> str:
    """The whole content of a settings file, which must be UTF-8."""
    check_input(path, error, "settings")
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as fault:
        raise error(f"{path} is not UTF-8, at byte {fault.start}") from fault
    except OSError as fault:
        raise error(f"{path} cannot be read: {fault.strerror}") from fault


# --- JSON and YAML -------------------------------------------------------------------------------------------------


def parse_json(text: str, where: str, error: type[CalipersError] = DataError) -> Any:
    """The value of a JSON text; `where` names it in errors."""
    _refuse_deep(text, where, error)
    try:
        return json.loads(text)
    except json.JSONDecodeError as fault:
        place = f"line {fault.lineno} column {fault.colno}" if fault.lineno > 1 else f"column {fault.colno}"
        raise error(f"{where}: not valid JSON: {fault.msg} at {place}") from fault
    except (ValueError, RecursionError) as fault:
        raise error(f"{where}: not valid JSON: {str(fault)[:100]}") from fault


def load_json(path: Path, error: type[CalipersError] = DataError) -> Any:
    return parse_json(read_text(path, error), str(path), error)


_BRACKETS = re.compile(r'"(?:[^"\\]|\\.)*"|[\[\]{}]')


def _refuse_deep(text: str, where: str, error: type[CalipersError]) -> None:
    """By the brackets outside strings; texts with fewer brackets than the limit need no look."""
    if text.count("[") + text.count("{") <= limits().nesting:
        return
    depth = 0
    for match in _BRACKETS.finditer(text):
        depth += (match[0] in "[{") - (match[0] in "]}")
        if depth > limits().nesting:
            refuse_above("nesting", depth, f"{where}: a value is nested too deeply: its depth", error)


def load_yaml(path: Path, error: type[CalipersError] = DataError) -> Any:
    """The value of a YAML file (or JSON, which is YAML). No tag makes an object of Python; a repeated key is an
    error."""
    import yaml

    text, loader = read_text(path, error), getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    with boundary(error, f"{path} is not valid YAML"):
        try:
            _refuse_large_yaml(yaml.parse(text, Loader=loader), path, error)
            return _construct(loader(text), path, error)
        except yaml.YAMLError as fault:
            mark, problem = getattr(fault, "problem_mark", None), getattr(fault, "problem", None)
            place = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
            raise error(f"{path} is not valid YAML: {place}{str(problem or fault)[:200]}") from fault


def _construct(reader: Any, path: Path, error: type[CalipersError]) -> Any:
    try:
        node = reader.get_single_node()
        _refuse_repeated_keys(node, path, error)
        return None if node is None else reader.construct_document(node)
    finally:
        reader.dispose()


def _refuse_repeated_keys(root: Any, path: Path, error: type[CalipersError]) -> None:
    nodes, visited = [root], set()
    while nodes:
        node = nodes.pop()
        if node is None or node.id == "scalar" or id(node) in visited:
            continue
        visited.add(id(node))
        if node.id == "sequence":
            nodes += node.value
            continue
        keys = set()
        for key, value in node.value:
            nodes += (key, value)
            if key.id == "scalar" and (key.tag, key.value) in keys:
                line = key.start_mark.line + 1
                raise error(f"{path} line {line}: the key {quote(key.value)} is there twice")
            keys.add((key.tag, key.value) if key.id == "scalar" else id(key))


def _refuse_large_yaml(events: Iterable[Any], path: Path, error: type[CalipersError]) -> None:
    """Count values with the aliases written out, by the events of the parser: libyaml reads a nested value by recursion
    in C, and a merge key copies what it names."""
    sizes: dict[str, int | None] = {}  # of what has an anchor; None while it is open
    stack: list[tuple[str | None, int]] = [(None, 0)]
    for event in events:
        kind, anchor = type(event).__name__, getattr(event, "anchor", None)
        if kind.endswith(("SequenceStartEvent", "MappingStartEvent")):
            stack.append((anchor, 1))
            sizes.update({anchor: None} if anchor else {})
            refuse_above("nesting", len(stack) - 1, f"{path}: a value is nested too deeply: its depth", error)
            continue
        if kind.endswith(("SequenceEndEvent", "MappingEndEvent")):
            anchor, size = stack.pop()
        elif kind == "AliasEvent":
            size = sizes.get(str(anchor), 0) or 0
            if anchor in sizes and sizes[anchor] is None:
                raise error(f"{path}: the value *{quote(anchor)[1:-1]} contains itself")
        else:
            size = int(kind == "ScalarEvent")
        if anchor and kind != "AliasEvent":
            sizes[anchor] = size
        stack[-1] = (stack[-1][0], stack[-1][1] + size)
        refuse_above("nodes", stack[-1][1], f"{path}: the number of values, with aliases written out,", error)


# --- paths ---------------------------------------------------------------------------------------------------------


def expand(path: str | os.PathLike[str]) -> Path:
    """The path with the user's home folder in the place of a leading ~; ~name stays where there is no such user.

    >>> expand("~no-such-user/x").as_posix(), expand("a").as_posix()
    ('~no-such-user/x', 'a')
    """
    return Path(os.path.expanduser(path))


def below(root: Path, name: str, error: type[CalipersError] = DataError, where: object = "") -> Path:
    """The path of `name` below `root`, in which no part leads elsewhere; `where` is the file that names it.

    >>> below(Path("store"), "a/b").as_posix()
    'store/a/b'
    """
    parts = Path(name).parts
    if not name or Path(name).is_absolute() or ".." in parts or "\0" in name:
        raise error(f"{where or root}: the path {quote(name)} leads out of the folder")
    return root / name


def files_below(folder: Path, error: type[CalipersError], most: int = 10_000) -> list[Path]:
    """All files of a folder, at any depth and behind links. A pipe, a socket, a device or a link to a file of the
    kernel is refused: a library that reads the folder may open any of its files."""
    files: list[Path] = []
    for place, _, names in os.walk(folder, followlinks=True):
        files += [Path(place, name) for name in names]
        if len(files) > most:
            raise error(f"{folder} holds more than {most:,} files: expected the folder of one model")
    for file in files:
        refuse_irregular(file, error)
    return files


def refuse_irregular(path: Path, error: type[CalipersError]) -> None:
    """Refuse what is there and no regular file. A link that leads nowhere is for whoever needs it."""
    try:
        mode = path.stat().st_mode
    except OSError:
        return
    is_kernel = path.is_symlink() and path.resolve().parts[:2] in (("/", "proc"), ("/", "sys"))
    if stat.S_ISREG(mode) and not is_kernel:
        return
    kind = "a link to a file of the kernel" if is_kernel else _kind(mode)
    raise error(f"{path} cannot be read: expected a regular file, found {kind}")


def number_of(value: object) -> float | None:
    """A number of JSON as float64; None for anything else, and for one that float64 cannot hold.

    >>> number_of(2), number_of(True), number_of(10**400), number_of("2")
    (2.0, None, None, None)
    """
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        return float(value)
    except OverflowError:  # JSON has integers of any length
        return None


def expect_object(value: object, where: str, error: type[CalipersError] = DataError) -> Mapping[str, Any]:
    """A JSON object with named values."""
    if not isinstance(value, dict):
        raise error(f"{where}: expected an object with named values, found {type(value).__name__}")
    return value
