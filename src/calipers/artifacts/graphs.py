"""ONNX graphs as protos: loaded with the type of every tensor, and saved with their weights inside or beside them."""

from __future__ import annotations

import hashlib
import logging
import os
import shutil
import tempfile
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from calipers.artifacts.form import tidy
from calipers.core import ModelError
from calipers.core.errors import install
from calipers.models.onnx_session import open_session
from calipers.models.tokenizer_files import first_line

if TYPE_CHECKING:
    from onnx import ModelProto
    from onnxruntime import InferenceSession

_INLINE = 1_900_000_000  # bytes: a protobuf message may have 2 GB, so a larger graph keeps its weights beside it

T = TypeVar("T")


@dataclass(frozen=True)
class Node:
    name: str
    op_type: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


@dataclass(frozen=True)
class FloatGraph:
    """A graph to quantise, as often as needed. `proto` must not be changed: copy it."""

    path: Path
    proto: ModelProto  # its value_info has the type of every tensor
    nodes: tuple[Node, ...]
    tensors: tuple[str, ...]  # float tensors that nodes compute: those that calibration observes
    opset: int

    @property
    def kinds(self) -> list[tuple[str, str]]:
        """(name, op type) of every node."""
        return [(node.name, node.op_type) for node in self.nodes]

    def touching(self, tensors: Iterable[str]) -> tuple[str, ...]:
        """The nodes that compute or read these tensors: a tensor stays in float when all of them are excluded."""
        wanted = set(tensors)
        return tuple(node.name for node in self.nodes if wanted & {*node.inputs, *node.outputs})


def load_graph(path: Path) -> FloatGraph:
    """Load a graph with the type of every tensor, from onnxruntime: onnx's own type inference stops at its fused
    operators, and the quantiser skips tensors without a type."""
    proto = read_proto(path)
    _name_nodes(proto)
    types = _tensor_types(proto, path)
    _write_types(proto, types)
    nodes = tuple(Node(n.name, n.op_type, tuple(n.input), tuple(n.output)) for n in proto.graph.node)
    floats = tuple(name for name, kind in types.items() if kind in ("tensor(float)", "tensor(float16)"))
    opset = next((int(o.version) for o in proto.opset_import if o.domain in ("", "ai.onnx")), 0)
    return FloatGraph(path, proto, nodes, floats, opset)


def read_proto(path: Path, *, weights: bool = True) -> ModelProto:
    """An onnx.ModelProto, with the weights that may lie beside the file."""
    try:
        import onnx
    except ImportError as error:
        raise ModelError(f"building needs onnx: {install('torch')}") from error
    try:
        return onnx.load(str(path), load_external_data=weights)
    except Exception as error:  # errors of protobuf, onnx and the system
        raise ModelError(f"{path} is not a readable ONNX graph: {first_line(error)}") from error


def save_proto(proto: ModelProto, path: Path) -> Path:
    """In its form (see `artifacts/form.py`), with the weights inside, or beside it where one file cannot hold them."""
    import onnx

    tidy(proto)
    if proto.ByteSize() < _INLINE:
        onnx.save(proto, str(path))
    else:
        path.with_name(f"{path.name}.data").unlink(missing_ok=True)  # onnx would write behind what is there
        onnx.save(proto, str(path), save_as_external_data=True, location=f"{path.name}.data")
    return path


def external_files(path: Path) -> list[Path]:
    """The files beside a graph that hold its weights. A file outside its folder is an error."""
    from onnx.external_data_helper import ExternalDataInfo, uses_external_data

    tensors = read_proto(path, weights=False).graph.initializer
    places = {ExternalDataInfo(tensor).location for tensor in tensors if uses_external_data(tensor)}
    for place in places:
        if Path(place).is_absolute() or ".." in Path(place).parts:
            raise ModelError(f"{path} keeps weights outside its folder, at {place!r}")
    return [path.parent / place for place in sorted(places)]


def copy_graph(path: Path, target: Path) -> None:
    """Copy the graph and its weights to another name, following symlinks."""
    for file in external_files(path):
        place = target.parent / file.relative_to(path.parent)
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, place)
    shutil.copyfile(path, target)


def move_weights(path: Path, target: Path) -> None:
    """Copy a graph whose weights lie beside it to another name, with one file of weights named after it."""
    import onnx

    proto, data = read_proto(path), f"{target.name}.data"
    target.with_name(data).unlink(missing_ok=True)
    onnx.save(proto, str(target), save_as_external_data=True, location=data, size_threshold=1024)


def content_hash(path: Path) -> str:
    """SHA-256 over a graph and the weights beside it."""
    total = hashlib.sha256()
    for file in (path, *external_files(path)):
        with file.open("rb") as handle:
            total.update(hashlib.file_digest(handle, "sha256").digest())
    return total.hexdigest()


def content_size(path: Path) -> int:
    return sum(file.stat().st_size for file in (path, *external_files(path)))


def copy_proto(proto: ModelProto) -> ModelProto:
    import onnx

    copy = onnx.ModelProto()
    copy.CopyFrom(proto)
    return copy


def replace_entries(field: Any, entries: Iterable[Any]) -> None:
    """Put copies of the entries in the place of a repeated field's content."""
    copies = [type(entry).FromString(entry.SerializeToString()) for entry in entries]
    del field[:]
    field.extend(copies)


def reach(starts: Iterable[T], onward: Callable[[T], Iterable[T]]) -> set[T]:
    """The starts and everything that `onward` leads to from them."""
    reached: set[T] = set()
    waiting = list(starts)
    while waiting:
        here = waiting.pop()
        if here not in reached:
            reached.add(here)
            waiting += onward(here)
    return reached


def with_outputs(proto: ModelProto, names: Sequence[str]) -> ModelProto:
    """A copy of the graph with these tensors as further outputs; onnxruntime infers their types."""
    import onnx

    copy = copy_proto(proto)
    already = {output.name for output in copy.graph.output}
    copy.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names if name not in already)
    return copy


def session_of(proto: ModelProto, name: str) -> InferenceSession:
    """A session that runs the graph without optimisation. `name` stands for the graph in errors."""
    if proto.ByteSize() < _INLINE:
        return open_session(proto.SerializeToString(), name=name, optimize=False)
    with tempfile.TemporaryDirectory() as folder:
        return open_session(save_proto(proto, Path(folder) / "model.onnx"), name=name, optimize=False)


def _tensor_types(proto: ModelProto, path: Path) -> dict[str, str]:
    names = [name for node in proto.graph.node for name in node.output if name]
    session = session_of(with_outputs(proto, names), str(path))
    shapes = {output.name: str(output.type) for output in session.get_outputs()}
    return {name: shapes[name] for name in names if name in shapes}


def _write_types(proto: ModelProto, types: dict[str, str]) -> None:
    import onnx

    # The exporter of torch writes the shapes of weights too, and onnxruntime's quantiser transposes some of them.
    weights = {tensor.name for tensor in proto.graph.initializer}
    replace_entries(proto.graph.value_info, [v for v in proto.graph.value_info if v.name not in weights])
    elements = {"tensor(float)": onnx.TensorProto.FLOAT, "tensor(float16)": onnx.TensorProto.FLOAT16}
    typed = {value.name for value in (*proto.graph.value_info, *proto.graph.output, *proto.graph.input)}
    proto.graph.value_info.extend(
        onnx.helper.make_tensor_value_info(name, elements[kind], None)
        for name, kind in types.items()
        if kind in elements and name not in typed
    )


def _name_nodes(proto: ModelProto) -> None:
    """Give every node a unique name: nodes are excluded by name."""
    seen: set[str] = set()
    for i, node in enumerate(proto.graph.node):
        if not node.name or node.name in seen:
            node.name = f"{node.op_type}_{i}"
        seen.add(node.name)


@contextmanager
def quiet() -> Iterator[None]:
    """Silence exporters and quantisers, which print and log; what matters is raised, checked or noted here."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings(), open(os.devnull, "w") as nowhere, redirect_stdout(nowhere):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)
