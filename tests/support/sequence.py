"""Calls of the library one after another in one process, with what other code may do in between.

    python tests/support/sequence.py FOLDER STEP …

FOLDER has what `write_inputs` puts there. A step is a call or a disturbance. Standard output is a JSON list: what each
call gave, and which state of the process it left changed.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np


def write_inputs(folder: Path) -> None:
    """Tiny models, data in their words, and nothing else."""
    from tests.support.exporting import export
    from tests.support.masked_models import make_model
    from tests.support.samples import write_jsonl

    make_model("bert", folder / "encoder", head="", num_hidden_layers=1)
    make_model("bert", folder / "mlm", num_hidden_layers=1)
    export(folder / "encoder", folder / "onnx")
    nouns = ("dog", "cat", "house", "street", "garden", "park")
    texts = [f"the {a} near the old {b} ." for a in nouns for b in nouns]
    rows = [
        {"id": f"p{i}", "sentence1": text, "sentence2": texts[-i], "score": (i * 7) % 5} for i, text in enumerate(texts)
    ]
    write_jsonl(folder / "pairs.jsonl", rows)
    (folder / "lines.txt").write_text("\n".join(texts) + "\n", encoding="utf-8")


# --- calls --------------------------------------------------------------------------------------------------------


def _evaluate(folder: Path, model: str, **options: Any) -> Any:
    from calipers import evaluate

    result = evaluate(str(folder / model), dataset=str(folder / "pairs.jsonl"), **options)
    return [result.metrics, result.intervals, _digest(result.outcomes.columns)]


def _masked(folder: Path) -> Any:
    from calipers import DataOptions, evaluate

    data = DataOptions(samples=4)
    result = evaluate(str(folder / "mlm"), task="fill-mask", dataset=str(folder / "lines.txt"), data_options=data)
    return [result.metrics, _digest(result.outcomes.columns)]


def _compared(folder: Path) -> Any:
    from calipers import Protocol, compare

    protocol = Protocol(dataset=str(folder / "pairs.jsonl"))
    (verdict,) = compare(str(folder / "encoder"), [str(folder / "onnx")], protocol=protocol, resamples=500)
    return [(c.metric, c.label, c.delta, c.interval, c.p_value) for c in verdict.comparisons]


def _diagnosed(folder: Path) -> Any:
    from calipers import CorpusInputs, diagnose
    from calipers.diagnosis.options import DiagnosisOptions

    inputs = CorpusInputs(corpus=str(folder / "lines.txt"))
    diagnosis = diagnose(str(folder / "onnx"), inputs, options=DiagnosisOptions(layers=("geometry",)))
    return [finding.result.metrics if finding.result else finding.reason for finding in diagnosis.findings]


def _trusted(folder: Path) -> Any:
    from calipers import trust

    answer = trust(str(folder / "encoder"), str(folder / "lines.txt"), ["old dog", "street"])
    return [answer.cosines.tolist(), answer.scores.decision.tolist()]


def _searched(folder: Path) -> Any:
    from calipers.metrics.search import nearest

    vectors = np.random.default_rng(0).normal(size=(60, 8)).astype(np.float32)
    scores, rows = nearest(vectors[:9], vectors, 5)
    return [scores.tolist(), rows.tolist()]


def _stored(folder: Path) -> Any:
    """The same run twice in a row, from a store and a cache that may be warm."""
    from calipers import Store

    return _evaluate(folder, "onnx", store=Store(folder / "store"), reuse=True)


def _built(folder: Path) -> Any:
    import tempfile

    from calipers import Recipe, build

    with tempfile.TemporaryDirectory() as target:
        built = build(str(folder / "encoder"), target, recipe=Recipe("fp32"))
        return [(stage.name, stage.sha256) for stage in built.stages]


CALLS: dict[str, Callable[[Path], Any]] = {
    "torch": lambda folder: _evaluate(folder, "encoder"),
    "onnx": lambda folder: _evaluate(folder, "onnx"),
    "masked": _masked,
    "compared": _compared,
    "diagnosed": _diagnosed,
    "trusted": _trusted,
    "searched": _searched,
    "stored": _stored,
}
SLOW_CALLS: dict[str, Callable[[Path], Any]] = {"built": _built}


def _digest(columns: Any) -> dict[str, str]:
    return {name: hashlib.sha256(np.ascontiguousarray(values)).hexdigest()[:16] for name, values in columns.items()}


# --- what other code may do ----------------------------------------------------------------------------------------


def _default_dtype() -> None:
    import torch

    torch.set_default_dtype(torch.float64)


def _one_thread() -> None:
    import torch

    torch.set_num_threads(1)


def _seeds() -> None:
    import torch

    random.seed(5)
    np.random.seed(5)  # noqa: NPY002  # what other code may do
    torch.manual_seed(5)


def _no_gradients() -> None:
    import torch

    torch.set_grad_enabled(False)


def _strict_numbers() -> None:
    np.seterr(all="raise", under="ignore")


def _strict_warnings() -> None:
    warnings.simplefilter("error", RuntimeWarning)


DISTURBANCES: dict[str, Callable[[], None]] = {
    "default-dtype": _default_dtype,
    "one-thread": _one_thread,
    "seeds": _seeds,
    "no-gradients": _no_gradients,
    "strict-numbers": _strict_numbers,
    "strict-warnings": _strict_warnings,
}


def state() -> dict[str, str]:
    """What a call of a library must leave as it is."""
    import torch

    return {
        "default dtype of torch": str(torch.get_default_dtype()),
        "threads of torch": str(torch.get_num_threads()),
        "gradients": str(torch.is_grad_enabled()),
        "random numbers of torch": hashlib.sha256(torch.get_rng_state().numpy().tobytes()).hexdigest(),
        "random numbers of numpy": hashlib.sha256(repr(np.random.get_state()).encode()).hexdigest(),  # noqa: NPY002
        "random numbers of Python": hashlib.sha256(repr(random.getstate()).encode()).hexdigest(),
        "errors of numpy": str(np.geterr()),
        "environment": str(sorted(os.environ.items())),
        "folder": os.getcwd(),
    }


def main(folder: Path, steps: list[str]) -> list[Any]:
    given = []
    for step in steps:
        if step in DISTURBANCES:
            DISTURBANCES[step]()
            continue
        before = state()
        outcome = (CALLS | SLOW_CALLS)[step](folder)
        changed = [name for name, value in state().items() if value != before[name]]
        given.append([step, json.loads(json.dumps(outcome)), changed])
    return given


if __name__ == "__main__":
    print(json.dumps(main(Path(sys.argv[1]), sys.argv[2:])))
