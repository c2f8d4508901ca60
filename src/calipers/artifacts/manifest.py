"""The files of a build: a record for each stage and a manifest for all, written whole or not at all."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import IO, Any

from calipers.artifacts.graphs import content_hash, external_files
from calipers.artifacts.records import Difference, Latency, Manifest, Stage
from calipers.core import CalipersError, RequestError
from calipers.core.errors import explain
from calipers.core.files import whole_file, write_whole
from calipers.core.inputs import load_json

_MARK = ".calipers-build"


def read_manifest(path: Path) -> Manifest:
    """A manifest.json, or the folder that holds it."""
    file = path / "manifest.json" if path.is_dir() else path
    content = load_json(file, RequestError)
    try:
        content.pop("schema")
        stages = [_stage(stage) for stage in content["stages"]]
        content["stages"] = tuple(replace(stage, path=str(file.parent / stage.path)) for stage in stages)
        return Manifest(**content | {"folder": str(file.parent), "model": str(file.parent / content["model"])})
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise RequestError(f"{file} is not the manifest of a build: {explain(error)}") from error


def write_manifest(manifest: Manifest, folder: Path) -> None:
    """Paths inside the folder are relative to it, so that the folder can be moved."""
    stages = tuple(replace(stage, path=_inside(stage.path, folder)) for stage in manifest.stages)
    plain = replace(manifest, stages=stages, model=_inside(manifest.model, folder), folder=".")
    write_whole(folder / "manifest.json", to_json(plain) + "\n")


def to_json(record: Manifest | Stage) -> str:
    return json.dumps(record.to_dict(), indent=1, ensure_ascii=False, allow_nan=False)


def _inside(path: str, folder: Path) -> str:
    return str(Path(path).relative_to(folder)) if Path(path).is_relative_to(folder) else path


def _stage(content: dict[str, Any]) -> Stage:
    content = {key: value for key, value in content.items() if key != "schema"}
    content["latency"] = Latency(**content["latency"])
    content["difference"] = Difference(**content["difference"]) if content["difference"] else None
    return Stage(**content | {"notes": tuple(content["notes"])})


def key_of(*parts: Any) -> str:
    """SHA-256 over the JSON values that decide an artifact."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True, ensure_ascii=True).encode()).hexdigest()


def read_stage(folder: Path, key: str) -> Stage | None:
    """A stage that was finished with this key, and whose file has not changed since; else None."""
    try:
        stage = _stage(load_json(folder / "stage.json"))
        if stage.key != key:
            return None
        return stage if stage.name == "torch" or content_hash(folder / "model.onnx") == stage.sha256 else None
    except (OSError, ValueError, KeyError, TypeError, AttributeError, CalipersError):
        return None


@contextlib.contextmanager
def unfinished(home: Path) -> Iterator[Path]:
    """A folder that takes the place of `home` when all went well, and is deleted otherwise. An older `home` is moved
    away first: a kill never leaves half of a stage."""
    part = home.with_name(f".{home.name}.{os.getpid()}.part")
    old = home.with_name(f".{home.name}.old.part")
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir()
    try:
        yield part
        shutil.rmtree(old, ignore_errors=True)
        if home.exists():
            home.rename(old)
        part.rename(home)
        shutil.rmtree(old, ignore_errors=True)
    finally:
        shutil.rmtree(part, ignore_errors=True)


@contextlib.contextmanager
def claim(folder: Path) -> Iterator[None]:
    """Lock the folder for this build and remove what a killed one left. A folder with other content is an error."""
    if folder.exists() and not folder.is_dir():
        raise RequestError(f"`output` must be a folder, and {folder} is a file")
    if folder.is_dir() and any(folder.iterdir()) and not (folder / _MARK).exists():
        raise RequestError(f"{folder} was not made by a build and is not empty: name a new folder as `output`")
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


def _lock(handle: IO[str], folder: Path) -> None:
    try:
        import fcntl
    except ImportError:
        return  # Windows has no such locks: two builds into one folder are not prevented
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        raise RequestError(f"another build is writing to {folder}: wait for it, or name another `output`") from error


def place_result(graph: Path, folder: Path) -> Path:
    """`folder/model.onnx`: a hard link to the last stage where the disk allows it, else a copy."""
    for file in (*external_files(graph), graph):
        place = folder / file.relative_to(graph.parent)
        place.parent.mkdir(parents=True, exist_ok=True)
        with whole_file(place) as part:
            try:
                os.link(file, part)
            except OSError:
                shutil.copyfile(file, part)
    return folder / "model.onnx"
