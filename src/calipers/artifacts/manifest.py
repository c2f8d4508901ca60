"""The files of a build: its graphs, a record for each stage and a manifest for all, written whole or not at all."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import IO, Any

from calipers.artifacts.graphs import content_hash, external_files, move_weights
from calipers.artifacts.records import FILES, SCHEMA, Difference, Latency, Leak, Manifest, Stage
from calipers.core import CalipersError, ModelError, RequestError
from calipers.core.errors import explain
from calipers.core.files import whole_file, write_whole
from calipers.core.inputs import below, load_json

_MARK = ".calipers-build"
_FILE = "manifest.json"


def read_manifest(path: Path, precision: str | None = None) -> Manifest:
    """Of a manifest.json, or of the folder that holds it. With several precisions one must be named."""
    file = path / _FILE if path.is_dir() else path
    builds = read_builds(file.parent)
    if not builds:
        raise RequestError(f"{file} is not the manifest of a build")
    if precision is None and len(builds) == 1:
        return next(iter(builds.values()))
    if precision not in builds:
        raise RequestError(f"`precision` must be among those that {file} holds: {', '.join(builds)}")
    return builds[precision]


def read_builds(folder: Path) -> dict[str, Manifest]:
    """Precision → what was built of it, as the manifest of the folder has it; empty without a manifest."""
    file = folder / _FILE
    if not file.exists():
        return {}
    content = load_json(file, RequestError)
    try:
        if content["schema"] != SCHEMA:
            raise RequestError(f"{file} is of another version of calipers: build into a new folder")
        return {name: _manifest(entry, folder) for name, entry in content["precisions"].items()}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise RequestError(f"{file} is not the manifest of a build: {explain(error)}") from error


def _manifest(content: dict[str, Any], folder: Path) -> Manifest:
    stages = [_stage(stage) for stage in content["stages"]]
    inside = partial(below, folder, error=RequestError, where=folder / _FILE)
    placed = tuple(replace(stage, path=str(inside(stage.path)) if stage.path else "") for stage in stages)
    model = str(inside(content["model"]))
    return Manifest(**{**content, "stages": placed, "folder": str(folder), "model": model})


def write_builds(builds: dict[str, Manifest], folder: Path) -> None:
    """Paths are relative to the folder, so that it can be moved; a file outside it has none."""
    entries = {}
    for name, built in builds.items():
        stages = tuple(replace(stage, path=_inside(stage.path, folder)) for stage in built.stages)
        plain = replace(built, stages=stages, model=_inside(built.model, folder), folder=".")
        entries[name] = {key: value for key, value in plain.to_dict().items() if key != "schema"}
    content = {"schema": SCHEMA, "precisions": entries}
    write_whole(folder / _FILE, json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False) + "\n")


def to_json(record: Manifest | Stage) -> str:
    return json.dumps(record.to_dict(), indent=1, ensure_ascii=False, allow_nan=False)


def _inside(path: str, folder: Path) -> str:
    return str(Path(path).relative_to(folder)) if path and Path(path).is_relative_to(folder) else ""


def _stage(content: dict[str, Any]) -> Stage:
    content = {key: value for key, value in content.items() if key not in ("schema", "title")}
    content["latency"] = Latency(**content["latency"])
    content["difference"] = Difference(**content["difference"]) if content["difference"] else None
    content["leak"] = Leak(**content["leak"]) if content["leak"] else None
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
        return stage if content_hash(folder / "model.onnx") == stage.sha256 else None
    except (OSError, ValueError, KeyError, TypeError, AttributeError, CalipersError):
        return None


def write_stage(stage: Stage, folder: Path) -> None:
    write_whole(folder / "stage.json", to_json(replace(stage, path="model.onnx")))


def finished(folder: Path, precision: str, key: str, *, stages: bool) -> Manifest | None:
    """What the same request built before, where its graph, and with `stages` each stage, is as it was; else None."""
    built = read_builds(folder).get(precision)
    if built is None or built.key != key:
        return None
    graphs = [stage for stage in built.stages if stage.name != "torch"]
    if not all(is_unchanged(stage) for stage in (graphs if stages else graphs[-1:])):
        return None
    return replace(built, stages=tuple(replace(stage, reused=True) for stage in built.stages))


def is_unchanged(stage: Stage) -> bool:
    try:
        return bool(stage.path) and content_hash(Path(stage.path)) == stage.sha256
    except (ModelError, OSError):
        return False


def check_room(folder: Path, precision: str, source: str, *, force: bool) -> None:
    """Refuse to replace the graph of another request, or to mix models, without `force`."""
    if force:
        return
    others = {name: built for name, built in read_builds(folder).items() if built.settings.get("source") != source}
    place = folder / FILES[precision]
    if others:
        files, owner = ", ".join(FILES[name] for name in others), next(iter(others.values())).model_id
        raise RequestError(
            f"{folder} holds {files} of another model, {owner}: name another `output`, or set `force` to replace them"
        )
    if place.exists():
        raise RequestError(
            f"{place} is there already, made with other settings, texts or versions: name another `output`, or set "
            "`force` to replace it"
        )


def add_build(built: Manifest, folder: Path) -> None:
    """Note what was built; graphs of another model in the folder go."""
    builds = {**read_builds(folder), built.precision: built}
    others = [name for name, other in builds.items() if other.settings.get("source") != built.settings["source"]]
    for name in others:
        for file in (*_weights_of(folder / FILES[name]), folder / FILES[name]):
            file.unlink(missing_ok=True)
    write_builds({name: other for name, other in builds.items() if name not in others}, folder)


def _weights_of(graph: Path) -> list[Path]:
    try:
        return external_files(graph)
    except ModelError:
        return []


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
def scratch(folder: Path) -> Iterator[Path]:
    """A folder for stages that are not kept."""
    part = folder / f".stages.{os.getpid()}.part"
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir()
    try:
        yield part
    finally:
        shutil.rmtree(part, ignore_errors=True)


class FolderRefused(RequestError):
    """Nothing can be built into this folder."""


@contextlib.contextmanager
def claim(folder: Path) -> Iterator[None]:
    """Lock the folder for this build and remove what a killed one left. A folder with other content is an error. A new
    folder goes with a build that ends without a file of its own."""
    if folder.exists() and not folder.is_dir():
        raise FolderRefused(f"`output` must be a folder, and {folder} is a file")
    if folder.is_dir() and any(folder.iterdir()) and not (folder / _MARK).exists():
        raise FolderRefused(f"{folder} was not made by a build and is not empty: name a new folder as `output`")
    is_new = not folder.exists()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handle = (folder / _MARK).open("w")
    except OSError as error:
        raise FolderRefused(f"{folder} cannot be written: {error.strerror}") from error
    with handle:
        _lock(handle, folder)
        for left in folder.glob(".*.part"):
            shutil.rmtree(left) if left.is_dir() else left.unlink()
        try:
            yield
        finally:
            if is_new and [file.name for file in folder.iterdir()] == [_MARK]:
                shutil.rmtree(folder)


def _lock(handle: IO[str], folder: Path) -> None:
    try:
        import fcntl
    except ImportError:
        return  # Windows has no such locks: two builds into one folder are not prevented
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        raise FolderRefused(f"another build is writing to {folder}: wait for it, or name another `output`") from error


def place_result(graph: Path, place: Path) -> None:
    """The last stage under the name of its precision: a hard link where the disk allows it, else a copy. Weights beside
    it are named after it, so that precisions do not share a file."""
    if external_files(graph):
        move_weights(graph, place)
        return
    with whole_file(place) as part:
        try:
            os.link(graph, part)
        except OSError:
            shutil.copyfile(graph, part)
