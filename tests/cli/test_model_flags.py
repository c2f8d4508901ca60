"""Every flag changes the record or is refused, with PyTorch and ONNX models, builds and attributions.

`test_flags.py` has the commands and models that take no time.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.flags import NEW, Walker
from tests.support.masked_models import make_model
from tests.support.samples import write_jsonl

WORDS = ("dog", "cat", "house", "street", "garden", "children", "park", "readers")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Tiny models of both backends and each ability, and data in their words."""
    from tests.support.exporting import export, export_cross_encoder, export_masked_lm

    folder = tmp_path_factory.mktemp("flags")
    heads = {"encoder": "", "mlm": "MaskedLM", "scorer": "SequenceClassification"}
    for name, head in heads.items():
        changes = {"num_labels": 1} if name == "scorer" else {}
        make_model("bert", folder / name, head=head, num_hidden_layers=1, **changes)
    make_model("bert", folder / "other", head="", num_hidden_layers=1, intermediate_size=20)
    export(folder / "encoder", folder / "encoder-onnx")
    export_masked_lm(folder / "mlm", folder / "mlm-onnx")
    export_cross_encoder(folder / "scorer", folder / "scorer-onnx")
    texts = [f"the {a} near the old {b} ." for a in WORDS for b in WORDS[:3]]
    pairs = [
        {"id": f"p{i}", "sentence1": text, "sentence2": texts[-i], "score": i % 5, "label": i % 2}
        for i, text in enumerate(texts)
    ]
    write_jsonl(folder / "pairs.jsonl", pairs)
    write_jsonl(folder / "others.jsonl", pairs[::-1][:-1])
    (folder / "lines.txt").write_text("\n".join(texts[:12]) + "\n", encoding="utf-8")
    (folder / "few.txt").write_text("\n".join(texts[5:9]) + "\n", encoding="utf-8")
    return folder


def values(place: Path) -> dict[str, list[str]]:
    """Values of options whose types do not suggest them."""
    lines, others = str(place / "lines.txt"), str(place / "others.jsonl")
    return {
        "dataset": [others], "columns": ["score_column=label"], "metric": ["cosine_pearson"], "calibration": [lines],
        "limits": ["cosine_spearman=1,2"], "task": ["pair-correlation", "fill-mask"], "resamples": ["500"],
        "static_shape": ["2x32"], "stages": [f"exported={place / 'encoder-onnx' / 'model.onnx'}"],
        "exclude": ["op:MatMul"], "max_length": ["4"], "label_mapping": ["0=1,1=0"], "truncate_dim": ["4"],
        "tokens": ["20"], "worst": ["1"], "opset": ["20"], "batch_size": ["2"], "batch_tokens": ["16"],
    }  # fmt: skip


def lines(place: Path) -> dict[str, list[str]]:
    def of(name: str) -> str:
        return str(place / name)

    pairs, texts, classes = of("pairs.jsonl"), of("lines.txt"), "pair-classification"
    few = ["--calibration-samples", "3"]
    measured = ["--dataset", pairs, "--samples", "6", "--no-store"]
    return {
        "torch-encoder": ["eval", of("encoder"), *measured],
        "onnx-encoder": ["eval", of("encoder-onnx"), *measured],
        "torch-scorer": ["eval", of("scorer"), "--task", classes, "--dataset", pairs, "--no-store"],
        "onnx-scorer": ["eval", of("scorer-onnx"), "--task", classes, "--dataset", pairs, "--no-store"],
        "torch-mlm": ["eval", of("mlm"), "--task", "fill-mask", "--dataset", texts, "--samples", "3", "--no-store"],
        "onnx-mlm": ["eval", of("mlm-onnx"), "--task", "fill-mask", "--dataset", texts, "--samples", "3", "--no-store"],
        "compare": ["compare", of("encoder"), of("other"), *measured],
        "diagnose": ["diagnose", of("encoder"), "--corpus", texts, "--layers", "geometry", "--no-store"],
        "trust": ["trust", of("encoder-onnx"), "--corpus", texts, "--no-cache", "old dog"],
        "build": ["build", of("encoder"), "--precision", "fp32", "-o", NEW],
        "calibrated": ["build", of("encoder"), "--precision", "w8a8", "--calibration", of("few.txt"), *few, "-o", NEW],
        "attribute": ["attribute", of("encoder"), "--precision", "w8a8", *measured, "--budget", "4", "--work", NEW],
    }


QUICK = ("torch-encoder", "onnx-encoder", "onnx-mlm")
SLOW = ("torch-scorer", "onnx-scorer", "torch-mlm", "compare", "diagnose", "trust", "build", "calibrated", "attribute")


@pytest.mark.parametrize("name", [*QUICK, *(pytest.param(name, marks=pytest.mark.slow) for name in SLOW)])
def test_a_flag_changes_the_record_or_is_refused(
    name: str, place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(place)
    monkeypatch.setenv("CALIPERS_STORE", str(place / "default-store"))
    assert Walker(place, values(place), capsys.readouterr).ignored(lines(place)[name]) == []
