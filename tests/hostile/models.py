"""Hostile models: graphs, folders, tokenizers and tables. Each function makes one and returns the words of the command."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from tests.hostile.mutations import change, eval_line
from tests.hostile.places import Sound, graph


def onnx_bytes(sound: Sound, folder: Path, rng: Random) -> list[str]:
    place = sound.copy("onnx", folder)
    change(
        place / rng.choice(("model.onnx", "model.onnx", "tokenizer.json", "config.json", "tokenizer_config.json")), rng
    )
    return eval_line(place, "--dataset", sound.root / "pairs.jsonl")


def onnx_graphs(sound: Sound, folder: Path, rng: Random) -> list[str]:
    """Graphs that are sound and do harm: endless, enormous, or of another kind."""
    make, int64 = helper.make_node, TensorProto.INT64
    kind = rng.choice(("loop", "constant", "shape", "divide", "outside", "text", "nan", "width", "range", "missing"))
    weights: dict[str, np.ndarray] = {}
    if kind == "loop":
        body = helper.make_graph(
            [make("Identity", ["go"], ["on"]), make("Identity", ["x"], ["y"])], "body",
            [helper.make_tensor_value_info("i", int64, []), helper.make_tensor_value_info("go", TensorProto.BOOL, []), helper.make_tensor_value_info("x", TensorProto.FLOAT, None)],
            [helper.make_tensor_value_info("on", TensorProto.BOOL, []), helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        )  # fmt: skip
        weights = {"times": np.array(2**62, np.int64), "yes": np.array(True)}
        nodes = [make("Loop", ["times", "yes", "rows"], ["tokens"], body=body)]
    elif kind in ("constant", "range"):
        weights = {
            "shape": np.array([2**31] if kind == "constant" else [1, 2**16, 2**15], np.int64),
            "zero": np.array([0], np.int64),
        }
        nodes = [
            make("ConstantOfShape", ["shape"], ["huge"], value=numpy_helper.from_array(np.array([1.0], np.float32))),
            make("ReduceSum", ["huge"], ["total"], keepdims=0), make("Add", ["rows", "total"], ["tokens"]),
        ]  # fmt: skip
    elif kind == "shape":
        weights = {"to": np.array([7, 3, -1], np.int64)}
        nodes = [make("Reshape", ["rows", "to"], ["tokens"])]
    elif kind == "nan":
        nodes = [make("Log", ["rows"], ["tokens"])]
    elif kind == "divide":
        weights = {"none": np.array(0, np.float32)}
        nodes = [make("Div", ["rows", "none"], ["tokens"])]
    elif kind == "text":
        nodes = [make("Cast", ["rows"], ["tokens"], to=TensorProto.STRING)]
    elif kind == "width":
        nodes = [make("ReduceMean", ["rows"], ["tokens"], keepdims=1)]
    else:
        nodes = [make(rng.choice(("NoSuchOp", "Identity")), ["rows" if kind == "outside" else "nothing"], ["tokens"])]
    path = graph(folder / "onnx", sound.root / "torch", nodes, **weights)
    if kind == "outside":
        content = path.read_bytes()
        path.write_bytes(content + b"\x0a\x08location\x12\x0b/etc/passwd")
    return eval_line(path.parent, "--dataset", sound.root / "pairs.jsonl")


def torch_folder(sound: Sound, folder: Path, rng: Random) -> list[str]:
    place = sound.copy("torch", folder)
    how = rng.random()
    if how < 0.3:
        return _planted(place, rng, sound)
    change(place / rng.choice(("config.json", "tokenizer.json", "tokenizer_config.json", "model.safetensors")), rng)
    return eval_line(place, "--dataset", sound.root / "pairs.jsonl")


def _planted(place: Path, rng: Random, sound: Sound) -> list[str]:
    """Code and pickles, which must not run: they would leave a file `pwned`."""
    code = "import pathlib\npathlib.Path('pwned').touch()\nclass Evil: pass\n"
    kinds = (
        "evil.Evil",
        "sentence_transformers.evil.Evil",
        "sentence_transformers.models.evil.Pooling",
        "os.system",
        "sentence_transformers.models.Pooling",
        "torch.nn.Evil",
    )
    pickle = b"\x80\x04cos\nsystem\n(S'touch pwned'\ntR."
    (place / "evil.py").write_text(code)
    modules = [{"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"}]
    where = rng.choice(("modules", "auto_map", "pickle", "index", "activation", "router", "tokenizer"))
    if where == "modules":
        modules.append(
            {"idx": 1, "name": "1", "path": rng.choice(("1_Pooling", "../x", "/etc", "")), "type": rng.choice(kinds)}
        )
    elif where == "auto_map":
        config = json.loads((place / "config.json").read_text()) | {
            "auto_map": {"AutoModel": "evil.Evil", "AutoConfig": "evil.Evil"}
        }
        (place / "config.json").write_text(json.dumps(config))
    elif where == "pickle":
        deep = place / rng.choice(("", "1_Dense", "a/b/Dense"))
        deep.mkdir(parents=True, exist_ok=True)
        (deep / "pytorch_model.bin").write_bytes(pickle)
        modules.append(
            {"idx": 1, "name": "1", "path": str(deep.relative_to(place)), "type": "sentence_transformers.models.Dense"}
        )
    elif where == "index":
        (place / "model.safetensors").unlink()
        (place / "evil.bin").write_bytes(pickle)
        (place / "model.safetensors.index.json").write_text(
            json.dumps({"weight_map": {"embeddings.word_embeddings.weight": "evil.bin"}})
        )
    elif where == "activation":
        (place / "1_Dense").mkdir()
        (place / "1_Dense" / "config.json").write_text(
            json.dumps({"in_features": 32, "out_features": 4, "activation_function": "evil.Evil"})
        )
        modules.append({"idx": 1, "name": "1", "path": "1_Dense", "type": "sentence_transformers.models.Dense"})
    elif where == "router":
        modules[0]["type"] = "sentence_transformers.models.Router"
        (place / "router_config.json").write_text(
            json.dumps({"types": {rng.choice(("q", "../q")): rng.choice(kinds)}, "structure": {"query": ["q"]}})
        )
    else:
        config = {"auto_map": {"AutoTokenizer": ["evil.Evil", None]}, "tokenizer_class": "Evil"}
        (place / "tokenizer_config.json").write_text(json.dumps(config))
    (place / "modules.json").write_text(json.dumps(modules))
    return eval_line(place, "--dataset", sound.root / "pairs.jsonl", *rng.choice(((), ("--pooling", "mean"))))


def static(sound: Sound, folder: Path, rng: Random) -> list[str]:
    place = sound.copy("static", folder)
    if rng.random() < 0.3:
        from safetensors.numpy import save_file

        table = np.ones((rng.choice((1, 40, 500)), 4), np.float32)
        mapping = np.array(
            rng.choice(([0] * 500, [-1] * 500, [9_999] * 500, [0, 1])), rng.choice((np.int64, np.int32, np.float32))
        )
        tensors = {"embeddings": table, "mapping": mapping, "weights": np.ones(rng.choice((1, 500)), np.float32)}
        save_file(
            {name: tensors[name] for name in rng.sample(sorted(tensors), rng.choice((1, 2, 3)))},
            place / "model.safetensors",
        )
    else:
        change(place / rng.choice(("config.json", "tokenizer.json", "model.safetensors")), rng)
    return eval_line(f"static:{place}", "--dataset", sound.root / "pairs.jsonl")


def tokenizer(sound: Sound, folder: Path, rng: Random) -> list[str]:
    """A tokenizer that is sound JSON: patterns that never end, no unknown token, ids that no table has."""
    place = sound.copy(rng.choice(("static", "onnx")), folder)
    content = json.loads((place / "tokenizer.json").read_text())
    pattern = rng.choice((r"(a+)+$", r"(\w*)*\1x", r"(?=(a|aa)+$)", "(", r"(?<=a*)b", ""))
    changes = [
        {"pre_tokenizer": {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}},
        {"normalizer": {"type": "Replace", "pattern": {"Regex": pattern}, "content": "a" * 50}},
        {"model": {**content["model"], "unk_token": "[NONE]"}},
        {"model": {**content["model"], "vocab": {key: value + 10**6 for key, value in content["model"]["vocab"].items()}}},
        {"model": {**content["model"], "vocab": {}}},
        {"model": {"type": "Unigram", "unk_id": None, "vocab": [["a", -1.0]]}},
        {"model": {"type": "Unigram", "unk_id": 99, "vocab": [["a", -1.0]]}},
        {"model": {"type": "BPE", "vocab": {"a": 0}, "merges": [["a", "b"]]}},
        {"post_processor": {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "[X]", "type_id": 0}}], "pair": [], "special_tokens": {}}},
        {"truncation": {"direction": "Up", "max_length": -1, "strategy": "x", "stride": 0}},
        {"truncation": {"direction": "Right", "max_length": 2, "strategy": "LongestFirst", "stride": 9}},
        {"padding": {"strategy": {"Fixed": 10**9}, "direction": "Right", "pad_to_multiple_of": 0, "pad_id": 0, "pad_type_id": 0, "pad_token": "x"}},
        {"added_tokens": [{"id": 2**31, "content": "", "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}]},
    ]  # fmt: skip
    (place / "tokenizer.json").write_text(json.dumps({**content, **rng.choice(changes)}))
    pairs = folder / "pairs.csv"
    pairs.write_text("sentence1,sentence2,score\n" + "".join(f"{'a' * 40}!,word {i} b,{i}\n" for i in range(5)))
    return eval_line(place, "--dataset", pairs)


def vectors(sound: Sound, folder: Path, rng: Random) -> list[str]:
    path, keys = (sound.copy(name, folder) for name in ("vectors.npy", "vectors.txt"))
    how = rng.random()
    if how < 0.4:
        shape = rng.choice(((3,), (0, 4), (23, 0), (23, 4, 2), (10**6, 1), ()))
        np.save(path, np.zeros(shape, rng.choice((np.float32, np.int8, np.complex64, np.float16))))
    elif how < 0.5:
        with path.open("wb") as file:
            np.savez(file, a=np.zeros(3))
    elif how < 0.6:
        np.save(path, np.array([{"a": 1}, None], dtype=object), allow_pickle=True)
    else:
        change(rng.choice((path, keys)), rng)
    return eval_line(f"vectors:{path}", "--dataset", sound.root / "pairs.jsonl")
