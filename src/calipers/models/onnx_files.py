"""Where the files of an ONNX model are, and what the bytes of a graph tell: 2 GB are not parsed for one bit."""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from calipers.core import ModelError, RequestError
from calipers.core.inputs import below, check_input, expand, refuse_irregular
from calipers.models import hub
from calipers.models.onnx_wire import locations
from calipers.models.options import ModelOptions
from calipers.models.source import Source


def graph_file(source: Source, options: ModelOptions) -> Path:
    """The .onnx file that a reference means, fetched from the hub where it is not on this machine."""
    name = options.file_name or ""
    if source.path is None:
        repository = "/".join(source.reference.split("/")[:2])
        inside = source.reference[len(repository) + 1 :] or name
        default = ["*.onnx*", "onnx/model.onnx*"]
        patterns = [*hub.SETTINGS, *([inside, f"{inside}*", f"onnx/{inside}*"] if inside else default)]
        place = hub.fetch(repository, revision=options.revision, patterns=patterns)
        place = place / inside if (place / inside).is_file() else place
    else:
        place = source.path
    if place.is_file():
        if name and place.name != Path(name).name:
            raise RequestError(f"`file_name` chooses a graph of a folder, and {place} is a file")
        return place
    if not place.is_dir():
        refuse_irregular(place, ModelError)
    return _of_folder(place, name)


def _of_folder(place: Path, name: str) -> Path:
    """The only graph of a folder, or the one with this name; each also in its folder `onnx`."""
    files = sorted(place.glob("*.onnx")) or sorted(place.glob("onnx/*.onnx"))
    if not files:
        raise ModelError(f"there is no .onnx file in {place}")
    names = ", ".join(str(file.relative_to(place)) for file in files)
    if name:
        for file in (below(place, name, RequestError), place / "onnx" / name):
            if file.is_file():
                return file
        raise ModelError(f"`file_name` {name!r} is not in {place}: it holds {names}")
    if len(files) > 1:
        raise ModelError(
            f"{place} holds several graphs: {names}; choose one with `file_name`, or name the file "
            f"itself, such as {files[0]}"
        )
    return files[0]


def settings_folder(file: Path, options: ModelOptions) -> Path:
    """Where tokenizer and settings are: at `model_id`, beside the graph, or one folder up as on the hub."""
    if options.model_id:
        folder = expand(options.model_id)
        if folder.is_dir():
            return folder
        return hub.fetch(options.model_id, revision=options.revision, patterns=hub.SETTINGS)
    for folder in (file.parent, file.parent.parent):
        if any((folder / name).exists() for name in ("tokenizer.json", "tokenizer_config.json", "modules.json")):
            return folder
    raise ModelError(
        f"there is no tokenizer beside {file}: put tokenizer.json there, or set `model_id` to a folder or hub id"
    )


def folder_name(file: Path) -> str:
    """A graph's name: its folder, which on the hub is the one above `onnx`, and its file."""
    return f"{(file.parent.parent if file.parent.name == 'onnx' else file.parent).resolve().name}/{file.name}"


def quantises_dynamically(file: Path) -> bool:
    """Whether a row's answer depends on its neighbours: DynamicQuantizeLinear and the fused DynamicQuantizeMatMul take
    one range over the whole batch. Operator names stand in the file as plain text."""
    with _content(file) as content:
        return content.find(b"DynamicQuantize") >= 0


def quantises(file: Path) -> bool:
    """Whether a graph computes with rounded integers."""
    with _content(file) as content:
        return any(content.find(name) >= 0 for name in (b"QuantizeLinear", b"MatMulInteger", b"QLinear", b"QGemm"))


def weight_files(file: Path) -> list[Path]:
    """The graph and the files that hold its external weights: those it names, and those named after it."""
    files = [p for p in file.parent.iterdir() if p.name.startswith(file.name) and p.is_file()]
    files += file.parent.glob(f"{file.stem}*.data")
    files += [below(file.parent, name, ModelError, file) for name in external_names(file)]
    for path in files:
        refuse_irregular(path, ModelError)
    return [path for path in dict.fromkeys(files) if path.is_file()]


def external_names(file: Path) -> list[str]:
    """The files, relative to the graph's folder, in which it says that weights lie; each once, sorted."""
    with _content(file) as content:
        try:
            return sorted(set(locations(content)) - {""})
        except ValueError as fault:
            raise ModelError(f"{file} is not an ONNX graph: {fault}") from fault


@contextmanager
def _content(file: Path) -> Iterator[mmap.mmap]:
    if not check_input(file, ModelError).st_size:
        raise ModelError(f"{file} is empty: expected an ONNX graph")
    with file.open("rb") as handle, mmap.mmap(handle.fileno(), 0, access=mmap.ACCESS_READ) as content:
        yield content
