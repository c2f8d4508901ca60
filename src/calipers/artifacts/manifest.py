"""What was built, of what and how: a record per stage and one for all, in files that are whole or not there."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from importlib import metadata
from pathlib import Path
from typing import Any

from calipers.artifacts.check import Difference
from calipers.artifacts.graphs import content_hash
from calipers.core import ModelError, RequestError

SCHEMA = 1
_MARK = ".calipers-build"
_PACKAGES = ("calipers", "torch", "transformers", "onnx", "onnxscript", "onnxruntime", "numpy")


@dataclass(frozen=True)
class Latency:
    """Of one row at a time on one thread, in milliseconds, over the real rows that were timed."""

    p50: float
    p95: float
    rows: int
    tokens: float  # in a row, on average


@dataclass(frozen=True)
class Stage:
    """One artifact: where it is, what it costs, how far it is from the stage before it."""

    name: str  # torch, exported, optimized or quantized
    path: str
    key: str  # over its inputs and settings: the same key need not be made again
    sha256: str
    size: int  # bytes
    latency: Latency
    difference: Difference | None  # None where there is no stage before
    settings: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    seconds: float = 0.0
    reused: bool = False  # found whole, from an earlier build


@dataclass(frozen=True)
class Manifest:
    folder: str
    model: str  # the file that is the result
    model_id: str
    ability: str
    precision: str
    stages: tuple[Stage, ...]
    recipe: Mapping[str, Any]
    settings: Mapping[str, Any]
    calibration: Mapping[str, Any] | None  # dataset, ids of the rows, fingerprint
    checked_on: Mapping[str, Any]
    versions: Mapping[str, str]
    created: str

    def stage(self, name: str) -> Stage:
        return next(stage for stage in self.stages if stage.name == name)


def to_json(record: Manifest | Stage) -> str:
    return json.dumps({"schema": SCHEMA, **asdict(record)}, indent=1, ensure_ascii=False, allow_nan=False)


def read_manifest(path: Path) -> Manifest:
    """A manifest.json, or the folder that holds it."""
    file = path / "manifest.json" if path.is_dir() else path
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
        found.pop("schema")
        stages = (_stage(stage) for stage in found["stages"])
        here = tuple(replace(stage, path=str(file.parent / stage.path)) for stage in stages)
        placed = {"stages": here, "folder": str(file.parent), "model": str(file.parent / found["model"])}
        return Manifest(**found | placed)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise RequestError(f"{file} is not the manifest of a build: {error!r}") from error


def write_manifest(found: Manifest, folder: Path) -> None:
    """With the paths of what lies in the folder relative to it, so that the folder can be moved."""
    stages = tuple(replace(stage, path=_inside(stage.path, folder)) for stage in found.stages)
    plain = replace(found, stages=stages, model=_inside(found.model, folder), folder=".")
    write_whole(folder / "manifest.json", to_json(plain) + "\n")


def _inside(path: str, folder: Path) -> str:
    return str(Path(path).relative_to(folder)) if Path(path).is_relative_to(folder) else path


def _stage(found: dict[str, Any]) -> Stage:
    found = {key: value for key, value in found.items() if key != "schema"}
    difference = found["difference"]
    return Stage(
        **found
        | {
            "latency": Latency(**found["latency"]),
            "difference": Difference(**difference) if difference else None,
            "notes": tuple(found["notes"]),
        }
    )


def key_of(*parts: Any) -> str:
    """SHA-256 over JSON values: what decides an artifact."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True, ensure_ascii=True).encode()).hexdigest()


def versions(*only: str) -> dict[str, str]:
    found = {}
    for package in only or _PACKAGES:
        with contextlib.suppress(metadata.PackageNotFoundError):
            found[package] = metadata.version(package)
    return found


def read_stage(folder: Path, key: str) -> Stage | None:
    """A stage that was finished with this key, and whose file is still what was written."""
    try:
        stage = _stage(json.loads((folder / "stage.json").read_text(encoding="utf-8")))
    except (OSError, ValueError, KeyError, TypeError):
        return None
    if stage.key != key:
        return None
    return stage if stage.name == "torch" or _is_whole(folder / "model.onnx", stage.sha256) else None


def _is_whole(graph: Path, sha256: str) -> bool:
    try:
        return content_hash(graph) == sha256
    except (OSError, ModelError):
        return False


def write_whole(path: Path, content: str) -> None:
    """All of it or nothing: written beside its place, flushed to the disk, and moved there."""
    part = path.with_name(f".{path.name}.part")
    with part.open("w", encoding="utf-8") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    part.replace(path)


def move_in(part: Path, place: Path) -> None:
    """A finished stage to its place. What stood there goes first: a kill between leaves no stage, never half a one."""
    if place.exists():
        old = place.with_name(f".{place.name}.old.part")
        shutil.rmtree(old, ignore_errors=True)
        place.rename(old)
        part.rename(place)
        shutil.rmtree(old, ignore_errors=True)
    else:
        part.rename(place)


@contextlib.contextmanager
def claim(folder: Path) -> Iterator[None]:
    """The folder for this build alone, without what a killed one left. A folder of other things is refused."""
    if folder.exists() and not folder.is_dir():
        raise RequestError(f"{folder} is a file: -o wants a folder")
    if folder.is_dir() and any(folder.iterdir()) and not (folder / _MARK).exists():
        raise RequestError(f"{folder} holds other things and was not made by calipers build: name a new folder with -o")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handle = (folder / _MARK).open("w")
    except OSError as error:
        raise RequestError(f"{folder} cannot be written: {error.strerror}") from error
    with handle:
        _lock(handle, folder)
        for left in folder.glob(".*.part"):
            shutil.rmtree(left) if left.is_dir() else left.unlink()
        yield


def _lock(handle: Any, folder: Path) -> None:
    try:
        import fcntl
    except ImportError:
        return  # no such locks on Windows: two builds into one folder are the user's to avoid
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        raise RequestError(f"another calipers build is writing to {folder}: wait for it, or name another -o") from error


def place_result(graph: Path, folder: Path) -> Path:
    """`folder/model.onnx`, the same file as the last stage's where the disk allows it."""
    from calipers.artifacts.graphs import external_files

    for file in (*external_files(graph), graph):
        place = folder / file.name
        part = folder / f".{file.name}.part"
        part.unlink(missing_ok=True)
        try:
            os.link(file, part)
        except OSError:
            shutil.copyfile(file, part)
        part.replace(place)
        part.unlink(missing_ok=True)  # a rename between two names of one file does nothing
    return folder / "model.onnx"


def now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
