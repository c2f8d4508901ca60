"""More hostile models: sound files with values that cost memory, time or trust. See `models` for the damaged ones."""

from __future__ import annotations

import json
import os
import struct
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import onnx
import pyarrow
import pyarrow.parquet
from onnx import TensorProto, helper, numpy_helper

from tests.hostile.mutations import eval_line
from tests.hostile.places import Sound, graph

_HUGE = (10**6, 10**9, 2**31, 2**63, -1, 0, 1.5, "768", None, [768], True, 1e300)


def _edit(path: Path, **values: Any) -> None:
    content = json.loads(path.read_text()) if path.exists() else {}
    path.write_text(json.dumps({**content, **values}))


def sizes(sound: Sound, folder: Path, rng: Random) -> list[str]:
    """A torch folder whose settings ask for more than there is, or lead elsewhere."""
    place = sound.copy("torch", folder)
    kind = rng.choice(
        (
            "config",
            "config",
            "sbert",
            "pooling",
            "prompts",
            "adapter",
            "tokenizer",
            "quantised",
            "links",
            "header",
            "dense",
        )
    )
    modules = [{"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"}]
    if kind == "config":
        key = rng.choice(("hidden_size", "vocab_size", "num_hidden_layers", "max_position_embeddings", "intermediate_size", "num_attention_heads", "model_type", "architectures", "hidden_act", "torch_dtype", "dtype", "_attn_implementation", "pad_token_id", "type_vocab_size", "position_embedding_type", "transformers_version", "is_decoder", "layer_norm_eps", "tie_word_embeddings"))  # fmt: skip
        _edit(
            place / "config.json",
            **{key: rng.choice((*_HUGE, "x", "../x", {"a": 1}, "float99", "flash_attention_2", "\x1b[31m"))},
        )
    elif kind == "sbert":
        _edit(place / "sentence_bert_config.json", max_seq_length=rng.choice(_HUGE), do_lower_case=rng.choice(_HUGE))
    elif kind == "pooling":
        (place / "1_Pooling").mkdir()
        _edit(
            place / "1_Pooling" / "config.json",
            word_embedding_dimension=rng.choice(_HUGE),
            pooling_mode_mean_tokens=rng.choice(_HUGE),
            pooling_mode=rng.choice(("mean", "x", 1, ["mean", "cls"])),
        )
        modules.append({"idx": 1, "name": "1", "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"})
    elif kind == "dense":
        (place / "2_Dense").mkdir()
        _edit(
            place / "2_Dense" / "config.json",
            in_features=rng.choice(_HUGE),
            out_features=rng.choice(_HUGE),
            bias=True,
            activation_function=rng.choice(
                ("torch.nn.modules.activation.Tanh", "torch.nn.Identity", "builtins.eval", 1)
            ),
        )
        modules.append({"idx": 1, "name": "1", "path": "2_Dense", "type": "sentence_transformers.models.Dense"})
    elif kind == "prompts":
        _edit(place / "config_sentence_transformers.json", prompts=rng.choice(({"query": 1}, ["a"], "x", {"query": "a" * 100_000}, {"\x1b[31m": "x"}, None)), default_prompt_name=rng.choice(("query", "none", 1)), similarity_fn_name=rng.choice(("cosine", "evil", 1, None)))  # fmt: skip
    elif kind == "adapter":
        _edit(
            place / "adapter_config.json",
            base_model_name_or_path=rng.choice(("../x", "/etc", "http://h/", "owner/none", 1)),
            peft_type="LORA",
            r=8,
        )
        (place / "adapter_model.safetensors").write_bytes(b"")
    elif kind == "tokenizer":
        _edit(place / "tokenizer_config.json", **{rng.choice(("model_max_length", "tokenizer_class", "pad_token", "added_tokens_decoder", "do_lower_case", "chat_template", "extra_special_tokens", "padding_side")): rng.choice((*_HUGE, {"0": {}}, "x", "../x", "PreTrainedTokenizerFast"))})  # fmt: skip
    elif kind == "quantised":
        _edit(
            place / "config.json",
            quantization_config=rng.choice(
                (
                    {"quant_method": "gptq", "bits": 4},
                    {"quant_method": "bitsandbytes", "load_in_8bit": True},
                    {"quant_method": "x"},
                    1,
                    [],
                )
            ),
        )
    elif kind == "links":
        target = rng.choice(("/dev/zero", "/etc/passwd", str(place), "nowhere", "/proc/self/mem"))
        name = rng.choice(("model.safetensors", "vocab.txt", "1_Pooling", "added_tokens.json"))
        (place / name).unlink(missing_ok=True)
        os.symlink(target, place / name)
    else:
        content = (place / "model.safetensors").read_bytes()
        size = int.from_bytes(content[:8], "little")
        header = json.loads(content[8 : 8 + size])
        name = rng.choice([key for key in header if key != "__metadata__"])
        header[name] |= rng.choice(
            (
                {"shape": [2**40, 2**40]},
                {"data_offsets": [0, 2**60]},
                {"dtype": "F4"},
                {"shape": [-1]},
                {"shape": []},
                {"data_offsets": [8, 0]},
                {"dtype": "I64"},
            )
        )
        written = json.dumps(header).encode()
        length = rng.choice((len(written), len(written), 2**63, 0, 10**8))
        (place / "model.safetensors").write_bytes(struct.pack("<Q", length) + written + content[8 + size :])
    if kind in ("pooling", "dense"):
        (place / "modules.json").write_text(json.dumps(modules))
    return eval_line(place, "--dataset", sound.root / "pairs.jsonl")


def graphs(sound: Sound, folder: Path, rng: Random) -> list[str]:
    """ONNX that parses: strange types, versions, names, external data, very many nodes."""
    path = graph(folder / "onnx", sound.root / "torch")
    proto = onnx.load(path)
    kind = rng.choice(
        (
            "version",
            "opset",
            "domain",
            "names",
            "dims",
            "external",
            "output",
            "inputs",
            "many",
            "metadata",
            "deep",
            "function",
            "strings",
            "empty",
            "half",
            "unused",
            "wire",
            "kind",
        )
    )
    made, more = proto.graph, b""
    if kind == "version":
        proto.ir_version = rng.choice((0, 1, 99, 2**40))
    elif kind == "opset":
        proto.opset_import[0].version = rng.choice((0, 1, 5, 999, 2**40))
    elif kind == "domain":
        made.node[0].domain = rng.choice(("evil", "com.microsoft", "\x1b[31m"))
    elif kind == "names":
        odd = rng.choice(("", "\x1b[31m", "\u202e", "a" * 5_000, "a b", "../x", "<script>"))
        made.output[0].name = made.node[-1].output[0] = odd
        made.node[0].name = odd
    elif kind == "dims":
        made.initializer[0].dims[:] = rng.choice(([2**40, 2**40], [-1, 8], [0, 8], [], [4_000], [500, 8, 1], [250, 16]))
    elif kind == "external":
        tensor = made.initializer[0]
        tensor.ClearField("raw_data")
        tensor.data_location = TensorProto.EXTERNAL
        facts = {
            "location": rng.choice(
                ("../x", "/etc/passwd", "/dev/zero", "data.bin", "", ".", "link", "a/../data.bin", "data.bin\x00y")
            ),
            "offset": rng.choice(("0", "-1", "9999999999", "x")),
            "length": rng.choice(("16000", "-1", "99999999999999", "x")),
        }
        for key, value in facts.items():
            entry = tensor.external_data.add()
            entry.key, entry.value = key, value
        (path.parent / "data.bin").write_bytes(bytes(16_000))
        os.symlink(rng.choice(("/dev/zero", "/etc/passwd", "data.bin", "/proc/self/mem")), path.parent / "link")
    elif kind == "output":
        made.output[0].type.tensor_type.elem_type = rng.choice(
            (TensorProto.INT8, TensorProto.STRING, TensorProto.BOOL, TensorProto.COMPLEX64, 99, TensorProto.DOUBLE)
        )
        cast = helper.make_node(
            "Cast",
            ["rows"],
            ["tokens"],
            to=rng.choice((TensorProto.INT64, TensorProto.BOOL, TensorProto.DOUBLE, TensorProto.FLOAT16)),
        )
        del made.node[-1:]
        made.node.append(cast)
    elif kind == "inputs":
        for name in ("pixel_values", "token_type_ids", "past_key_values", "\x1b[31m")[: rng.choice((1, 2, 4))]:
            made.input.append(
                helper.make_tensor_value_info(
                    name,
                    rng.choice((TensorProto.FLOAT, TensorProto.INT64)),
                    rng.choice((["b", "s"], [1, 3, 224, 224], [10**9], [])),
                )
            )
    elif kind == "many":
        del made.node[-1:]
        last = "rows"
        for i in range(rng.choice((2_000, 20_000))):
            made.node.append(helper.make_node("Neg", [last], [f"n{i}"]))
            last = f"n{i}"
        made.node.append(helper.make_node("Identity", [last], ["tokens"]))
    elif kind == "metadata":
        for key, value in (("author", "\x1b[31m"), ("x" * 10_000, "y" * 100_000), ("\u202e", "")):
            entry = proto.metadata_props.add()
            entry.key, entry.value = key, value
        proto.producer_name = "\x1b]0;x\x07"
    elif kind == "deep":
        inner = helper.make_graph(
            [helper.make_node("Identity", ["rows"], ["o"])],
            "i",
            [],
            [helper.make_tensor_value_info("o", TensorProto.FLOAT, None)],
        )
        for i in range(rng.choice((10, 30))):  # protobuf itself builds no more than 100 messages in one another
            made.initializer.append(numpy_helper.from_array(np.array(True), f"c{i}")) if i == 0 else None
            node = (
                helper.make_node("If", ["c0"], ["o"], then_branch=inner, else_branch=inner)
                if i < 8
                else helper.make_node(
                    "If",
                    ["c0"],
                    ["o"],
                    then_branch=inner,
                    else_branch=helper.make_graph(
                        [helper.make_node("Identity", ["rows"], ["o"])],
                        "e",
                        [],
                        [helper.make_tensor_value_info("o", TensorProto.FLOAT, None)],
                    ),
                )
            )
            inner = helper.make_graph(
                [node], f"g{i}", [], [helper.make_tensor_value_info("o", TensorProto.FLOAT, None)]
            )
        del made.node[-1:]
        made.node.append(helper.make_node("If", ["c0"], ["tokens"], then_branch=inner, else_branch=inner))
    elif kind == "function":
        function = helper.make_function(
            "evil",
            "F",
            ["x"],
            ["y"],
            [helper.make_node("F", ["x"], ["y"], domain="evil")],
            [helper.make_opsetid("", 18), helper.make_opsetid("evil", 1)],
        )
        proto.functions.append(function)
        proto.opset_import.append(helper.make_opsetid("evil", 1))
        made.node[-1].CopyFrom(helper.make_node("F", ["rows"], ["tokens"], domain="evil"))
    elif kind == "strings":
        made.initializer[0].CopyFrom(helper.make_tensor("table", TensorProto.STRING, [2], [b"\xff", b"x"]))
    elif kind == "wire":  # a second graph, which protobuf adds to the first: a tensor whose bytes have an unusual form
        entry = rng.choice(_ENTRIES)
        more = _field(7, 5, content=b"\x08\x08\x10\x01\x42\x01w\x70\x01" + _field(13, content=entry))
    elif kind == "kind":
        operator = rng.choice(("SequenceConstruct", "Optional", "Shape", "NonZero", "RandomNormalLike", "Size"))
        made.node[-1].CopyFrom(helper.make_node(operator, ["rows"], ["tokens"]))
        made.output[0].ClearField("type")
    elif kind == "empty":
        del made.node[:]
    elif kind == "half":
        made.initializer[0].raw_data = made.initializer[0].raw_data[: rng.choice((0, 1, 8_000))]
    else:
        made.initializer.append(numpy_helper.from_array(np.zeros(rng.choice((1, 10**6)), np.float32), "unused"))
        made.node.append(helper.make_node("RandomNormal", [], ["noise"], shape=rng.choice(([1], [10**9], [2**40]))))
    path.write_bytes(proto.SerializeToString() + more)
    return eval_line(path.parent, "--dataset", sound.root / "pairs.jsonl")


_ENTRIES = (
    b"\x12\x04../x\x0a\x08location", b"\x0a\x08location\x12\x01w\x12\x04../x", b"\x8a\x00\x88\x80\x00location\x12\x84\x00../x", b"\x0a\x08location\x12\x06../x\x00y",
    b"\x0a\x08location", b"\x0a\x08location\x12\x7fx", b"\x0b\x0a\x08location\x0c", b"\x0a\x08location\x12\x0b/etc/passwd\x1a\x00", b"\xff" * 11 + b"location",
)  # fmt: skip


def _field(*numbers: int, content: bytes) -> bytes:
    """A message within messages, by the numbers of their fields."""
    for number in reversed(numbers):
        content = bytes([number << 3 | 2, len(content)]) + content
    return content


def tables(sound: Sound, folder: Path, rng: Random) -> list[str]:
    """Vectors and static tables that parse: other types and orders, huge shapes in a header, odd keys."""
    keys = sound.copy("vectors.txt", folder)
    count = len(keys.read_text().splitlines())
    path = folder / "vectors.npy"
    pairs = sound.root / "pairs.jsonl"
    kind = rng.choice(("dtype", "order", "header", "sparse", "parquet", "keys", "static", "values"))
    base = np.random.default_rng(1).normal(size=(count, 4))
    if kind == "dtype":
        np.save(
            path,
            base.astype(rng.choice((">f4", "<f8", "f2", "i8", "u1", "?", "c8", "S4", "U2", "M8[s]", [("a", "f4")])))
            if True
            else base,
        )
    elif kind == "order":
        np.save(path, np.asfortranarray(base[:, ::-1]))
    elif kind == "header":
        shape = rng.choice(("(1000000000000, 4)", "(-1, 4)", "(23,", "(23, 4L)", "(__import__('os').system('touch pwned'), 4)", "(True, 4)", "[23, 4]", "(23.0, 4)", "(2147483648, 2147483648)", "(0, 0)"))  # fmt: skip
        header = f"{{'descr': '{rng.choice(('<f4', '|O', '<f99', 'x', '<V1000000000'))}', 'fortran_order': False, 'shape': {shape}, }}"
        written = header.ljust(117 + rng.choice((0, 20_000))) + "\n"
        path.write_bytes(
            b"\x93NUMPY\x01\x00"
            + struct.pack("<H", min(65_535, len(written)))
            + written.encode()
            + bytes(rng.choice((0, 16, 400)))
        )
    elif kind == "sparse":
        path.write_bytes(
            b"\x93NUMPY\x01\x00v\x00{'descr': '<f4', 'fortran_order': False, 'shape': (2500000000, 4), }".ljust(127)
            + b"\n"
        )
        os.truncate(path, 40_000_000_000)
    elif kind == "parquet":
        path = folder / "vectors.parquet"
        texts = keys.read_text().splitlines()
        columns: dict[str, Any] = {"text": texts, "vector": [list(row) for row in base]}
        columns |= rng.choice(({"vector": [[1.0]] * (count - 1) + [[1.0, 2.0]]}, {"vector": [None] * count}, {"vector": ["a"] * count}, {"text": [1] * count}, {"text": [None] * count}, {"vector": [[]] * count}, {"vector": [[float("nan")] * 4] * count}, {"text": ["a"] * count}, {"vector": [[[1.0]]] * count}, {"extra": [b"\xff"] * count}))  # fmt: skip
        pyarrow.parquet.write_table(pyarrow.table(columns), path)
    elif kind == "keys":
        np.save(path, base.astype(np.float32))
        keys.write_bytes(
            rng.choice(
                (
                    b"a\n" * count,
                    b"\xff\n" * count,
                    b"\n" * count,
                    b"",
                    keys.read_bytes() * 2,
                    b"\x1b[31m\n" * count,
                    keys.read_bytes().replace(b"\n", b"\r\n"),
                )
            )
        )
    elif kind == "static":
        from safetensors.numpy import save_file

        place = sound.copy("static", folder)
        rows = len(json.loads((place / "tokenizer.json").read_text())["model"]["vocab"])
        table = rng.choice((np.full((rows, 4), np.nan, np.float32), np.zeros((rows, 4), np.float32), np.ones((rows, 0), np.float32), np.ones((rows, 4), bool), np.ones((rows, 4), np.uint64), np.full((rows, 4), 1e38, np.float32), np.ones((rows, 1), np.float64), np.ones(rows, np.float32), np.ones((rows, 2, 2), np.float32)))  # fmt: skip
        save_file({rng.choice(("embeddings", "embedding.weight", "x", "0")): table}, place / "model.safetensors")
        _edit(
            place / "config.json",
            **{
                rng.choice(
                    ("normalize", "max_length", "model_type", "seq_length", "hidden_dim", "apply_pca")
                ): rng.choice(_HUGE)
            },
        )
        return eval_line(f"static:{place}", "--dataset", pairs)
    else:
        np.save(path, (base * rng.choice((1e38, 1e-45, 0.0, float("inf"), float("nan")))).astype(np.float32))
    return eval_line(f"vectors:{path}", "--dataset", pairs)
