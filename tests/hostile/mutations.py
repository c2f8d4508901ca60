"""How a sound file becomes a hostile one: by bytes, by values of its JSON, and by what stands in its place."""

from __future__ import annotations

import gzip
import json
import os
import socket
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

Mutation = Callable[[bytes, Random], bytes]

# Values that a setting or a cell may have where something else is expected.
VALUES: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 2**31, 2**63, 10**30, 10**400, 1.5, -0.0, 1e308, float("nan"), float("inf"), "", " ",
    "²", "1e999", "0x10", "1_000", "nan", "\x1b[31mred", "\u202egnirts", "\x00", "a" * 5_000, "é" * 300, "../../x",
    "/etc/passwd", "*", "$(id)", "{{7*7}}", "<script>alert(1)</script>", [], {}, [[]], [None], ["a", 1, None], {"a": {}},
    {"": ""}, [[[[[[]]]]]], {"content": "x"}, "os.system", "torch.nn.Sigmoid", "2024-13-45", [1] * 2_000,
)  # fmt: skip


def truncate(content: bytes, rng: Random) -> bytes:
    return content[: rng.randrange(len(content) + 1)]


def flip(content: bytes, rng: Random) -> bytes:
    changed = bytearray(content)
    for _ in range(rng.choice((1, 3, 20, 200))):
        if changed:
            changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
    return bytes(changed)


def insert(content: bytes, rng: Random) -> bytes:
    at = rng.randrange(len(content) + 1)
    return content[:at] + rng.randbytes(rng.choice((1, 4, 64, 3_000))) + content[at:]


def repeat(content: bytes, rng: Random) -> bytes:
    low = rng.randrange(len(content) + 1)
    high = min(len(content), low + rng.randrange(1, 500))
    return content[:high] + content[low:high] * rng.choice((1, 2, 50)) + content[high:]


def remove(content: bytes, rng: Random) -> bytes:
    low = rng.randrange(len(content) + 1)
    return content[:low] + content[low + rng.randrange(1, 200) :]


def blank(content: bytes, rng: Random) -> bytes:
    low = rng.randrange(len(content) + 1)
    size = min(len(content) - low, rng.randrange(1, 100))
    return content[:low] + bytes(size) + content[low + size :]


def nothing(content: bytes, rng: Random) -> bytes:
    return b""


def noise(content: bytes, rng: Random) -> bytes:
    return rng.randbytes(rng.choice((1, 100, 10_000)))


def bom(content: bytes, rng: Random) -> bytes:
    return (
        rng.choice((b"\xef\xbb\xbf", b"\xff\xfe", b"\xfe\xff", b"\x1f\x8b", b"PK\x03\x04", b"PAR1", b"\x80\x04"))
        + content
    )


def other_code(content: bytes, rng: Random) -> bytes:
    return content.decode("utf-8", "replace").encode(rng.choice(("utf-16", "utf-32", "latin-1", "cp1252")), "replace")


BYTES: tuple[Mutation, ...] = (truncate, flip, insert, repeat, remove, blank, nothing, noise, bom, other_code)


def mutate_bytes(content: bytes, rng: Random) -> bytes:
    return rng.choice(BYTES)(content, rng)


def mutate_value(value: Any, rng: Random, depth: int = 0) -> Any:
    """A JSON value with one of its parts changed, added, renamed or removed."""
    if isinstance(value, dict) and value and (depth == 0 or rng.random() < 0.7):
        key = rng.choice(list(value))
        how = rng.random()
        if how < 0.15:
            return {k: v for k, v in value.items() if k != key}
        if how < 0.25:
            return {**value, str(rng.choice(VALUES))[:200]: rng.choice(VALUES)}
        return {**value, key: mutate_value(value[key], rng, depth + 1)}
    if isinstance(value, list) and value and (depth == 0 or rng.random() < 0.7):
        at = rng.randrange(len(value))
        how = rng.random()
        if how < 0.2:
            return value[:at] + value[at + 1 :]
        if how < 0.4:
            return [*value, rng.choice([*value, *VALUES])]
        return [*value[:at], mutate_value(value[at], rng, depth + 1), *value[at + 1 :]]
    return rng.choice(VALUES)


def mutate_json(content: bytes, rng: Random) -> bytes:
    try:
        value = json.loads(content)
    except ValueError:
        return mutate_bytes(content, rng)
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        value = mutate_value(value, rng)
    return to_json(value)


def to_json(value: Any) -> bytes:
    """As Python writes it, NaN and numbers of many digits included."""
    return json.dumps(value, default=str).encode("utf-8", "surrogatepass") if not _is_long(value) else _long_json(value)


def _is_long(value: Any) -> bool:
    return isinstance(value, int) and abs(value) > 10**300


def _long_json(value: Any) -> bytes:
    return b"1" + b"0" * 400


def nested(rng: Random) -> bytes:
    depth = rng.choice((90, 150, 900, 5_000, 100_000))
    return rng.choice((b"[" * depth, b"[" * depth + b"]" * depth, b'{"a":' * depth + b"1" + b"}" * depth))


def bomb(rng: Random) -> bytes:
    """A few hundred kilobytes that stand for hundreds of megabytes."""
    line = rng.choice((b"\n", b" ", b'{"sentence1": "a", "sentence2": "b", "score": 1}\n', b"0"))
    return gzip.compress(line * (200_000_000 // len(line)), 1)


def take_place(path: Path, rng: Random) -> None:
    """Something that is no regular file, in the place of a file."""
    path.unlink(missing_ok=True)
    kind = rng.choice(("pipe", "socket", "zero", "random", "proc", "folder", "loop", "nowhere", "terminal"))
    targets = {"zero": "/dev/zero", "random": "/dev/urandom", "proc": "/proc/self/environ", "nowhere": "nowhere"}
    targets |= {"loop": str(path), "terminal": "/dev/tty"}
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "socket":
        place = os.getcwd()
        os.chdir(path.parent)
        try:
            with socket.socket(socket.AF_UNIX) as server:
                server.bind(path.name)
        finally:
            os.chdir(place)
    elif kind == "folder":
        path.mkdir()
    else:
        path.symlink_to(targets[kind])


def change(path: Path, rng: Random) -> None:
    """Bytes, values or the file itself."""
    how = rng.random()
    if how < 0.08:
        take_place(path, rng)
    elif how < 0.55 and path.suffix in (".json", ".jsonl"):
        lines = path.read_bytes().split(b"\n") if path.suffix == ".jsonl" else [path.read_bytes()]
        at = rng.randrange(max(1, len(lines) - 1))
        lines[at] = mutate_json(lines[at], rng)
        path.write_bytes(b"\n".join(lines))
    else:
        path.write_bytes(mutate_bytes(path.read_bytes(), rng))


def eval_line(model: str | Path, *words: str | Path) -> list[str]:
    return ["eval", str(model), "--no-store", "--resamples", "100", *map(str, words)]
