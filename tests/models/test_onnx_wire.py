"""Where the weights of a graph lie, whatever form its bytes have."""

from __future__ import annotations

from pathlib import Path

import pytest
from onnx import TensorProto, helper

from calipers.core import ModelError
from calipers.models.onnx_files import external_names, weight_files

ENTRY = b"\x0a\x08location\x12\x04../x"


def field(*path: int, content: bytes) -> bytes:
    """A message within messages, by the numbers of their fields."""
    for number in reversed(path):
        tag = bytes([number << 3 | 2]) if number < 16 else bytes([(number << 3 | 2) & 0x7F | 0x80, number >> 4])
        content = tag + bytes([len(content)]) + content
    return content


@pytest.mark.parametrize(
    "content",
    [
        field(7, 5, 13, content=ENTRY),
        field(7, 5, 13, content=b"\x12\x04../x\x0a\x08location"),
        field(7, 5, 13, content=b"\x0a\x08location\x12\x01w\x12\x04../x"),
        field(7, 5, 13, content=b"\x8a\x00\x88\x80\x00location\x12\x84\x00../x"),
        field(7, 5, 13, content=b"\x0a\x08location\x12\x06../x\x00y"),
        field(7, 15, 1, 13, content=ENTRY),
        field(7, 1, 5, 5, 13, content=ENTRY),
        field(7, 1, 5, 6, 1, 5, 11, 5, 13, content=ENTRY),
        field(25, 7, 5, 5, 13, content=ENTRY),
        field(7, 1, content=b"\x22\x01a") + field(7, 5, content=b"\x08\x01" + field(13, content=ENTRY)),
    ],
    ids=["plain", "value first", "twice", "long", "nul", "sparse", "node", "branch", "function", "second graph"],
)
def test_no_form_of_a_graph_hides_where_its_weights_lie(content: bytes, tmp_path: Path) -> None:
    """Protobuf takes fields in any order, the last of several, and numbers of more bytes than they need."""
    (tmp_path / "m.onnx").write_bytes(content)
    with pytest.raises(ModelError, match="leads out of the folder"):
        weight_files(tmp_path / "m.onnx")


@pytest.mark.parametrize("content", [b"\x3a\x7flocation", b"\x3b\x00location", b"\xff" * 12 + b"location"])
def test_other_bytes_are_named(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_bytes(content)
    with pytest.raises(ModelError, match=r"m\.onnx is not an ONNX graph: a "):
        weight_files(tmp_path / "m.onnx")


def test_a_tensor_may_be_called_location(tmp_path: Path) -> None:
    node = helper.make_node("Add", ["location", "location"], ["../output"])
    infos = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [3]) for name in (*node.input[:1], *node.output)]
    graph = helper.make_graph([node], "g", infos[:1], infos[1:])
    (tmp_path / "m.onnx").write_bytes(helper.make_model(graph).SerializeToString())
    assert external_names(tmp_path / "m.onnx") == []


def test_weights_that_are_a_device_are_refused(tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_bytes(field(7, 5, 13, content=b"\x0a\x08location\x12\x05w.bin"))
    (tmp_path / "w.bin").symlink_to("/dev/zero")
    with pytest.raises(ModelError, match="expected a regular file, found a device"):
        weight_files(tmp_path / "m.onnx")
