"""Verdicts made by hand, for the tests of what shows them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from calipers.comparison import verdict
from calipers.comparison.records import Chances, Comparison, Example, Label, Verdict
from calipers.core import DataSource, ModelInfo, Outcomes, Result, Thresholds

POINTS, SHARES = Thresholds(2.0, 4.0, relative=False), Thresholds(0.05, 0.10)
NASTY = "a|b <script>alert(1)</script> `code` [link](http://x.y) \x1b[31m\x00\ufffe @you\n# not a heading\n</details>"


def label_of(baseline: float, candidate: float, thresholds: Thresholds, *, higher_is_better: bool) -> Label:
    """The label of two plain numbers."""
    values = np.array([baseline]), np.array([candidate])
    losses = verdict.loss(*values, higher_is_better=higher_is_better, relative=thresholds.relative)
    return verdict.BY_LOSS[int(verdict.labels(losses, thresholds)[0])]


def result(name: str = "all-MiniLM-L6-v2", **changes: Any) -> Result:
    known: dict[str, Any] = {
        "run_id": "20261001-120000-abc123",
        "created": "2026-10-01T10:00:00.000+00:00",
        "task": "sentence-similarity",
        "options": {},
        "model": ModelInfo(
            "onnx", name, f"/models/{name}", "cpu", "sha256:00", {"pooling": "mean", "dtype": "float32"}
        ),
        "dataset": DataSource("mteb/stsbenchmark-sts", split="test"),
        "fingerprint": "sha256:0123456789abcdef",
        "request": {"given": {}, "defaulted": {}},
        "metrics": {"cosine_spearman": 82.05, "cosine_pearson": 81.7, "dot_spearman": 82.05},
        "intervals": {"cosine_spearman": (80.1, 83.9), "cosine_pearson": (79.9, 83.5), "dot_spearman": None},
        "bootstrap": {"unit": "pair", "confidence": 0.95, "resamples": 10_000, "seed": 42},
        "warnings": (),
        "timing": {"total_seconds": 12.5},
        "environment": {"versions": {"calipers": "0.1.0"}},
        "outcomes": Outcomes(ids=("a", "b", "c"), columns={"gold": np.array([1.0, 2.0, 3.0])}),
    }
    return Result(**{**known, **changes})


def outcomes(size: int) -> Outcomes:
    """Outcomes of so many examples."""
    return Outcomes(ids=tuple(map(str, range(size))), columns={"gold": np.arange(float(size))})


def scored(right: Any, **changes: Any) -> Result:
    """A run of the task `toy`, whose examples are right (1) or not (0)."""
    right = np.asarray(right, dtype=np.float64)
    outcomes = Outcomes(
        ids=tuple(f"r{i}" for i in range(len(right))),
        columns={"right": right},
        texts={"text": tuple(f"text {i}" for i in range(len(right)))},
    )
    made = Result(
        run_id="run",
        created="",
        task="toy",
        options={},
        model=ModelInfo("torch", "m", None, "cpu", "f", settings={"dtype": "float32"}),
        dataset=DataSource("data"),
        fingerprint="same",
        request={},
        metrics={"accuracy": float(right.mean())},
        intervals={},
        bootstrap={"unit": "text"},
        warnings=(),
        timing={},
        environment={},
        outcomes=outcomes,
    )
    return replace(made, **changes)


def comparison(metric: str = "cosine_spearman", label: Label = "PASS", **changes: Any) -> Comparison:
    known: dict[str, Any] = {
        "metric": metric,
        "higher_is_better": True,
        "baseline": 82.0512,
        "candidate": 81.9131,
        "delta": -0.1381,
        "relative": -0.1381 / 82.0512,
        "interval": (-0.3512, 0.0689),
        "label": label,
        "estimate": label,
        "confidence": 0.99962,
        "p_value": 0.0314,
        "adjusted_p": 0.0942,
        "examples": 1379,
        "settled_by": None,
        "thresholds": POINTS,
        "decides": metric == "cosine_spearman",
        "digits": 2,
        "reason": None,
        "chances": Chances(0.99962, 0.0003, 0.00008),
    }
    return Comparison(**{**known, **changes})


def example(id: str = "sts-42", texts: Mapping[str, str] | None = None) -> Example:
    return Example(
        id=id,
        texts=texts or {"text_1": "A man is playing a flute.", "text_2": "A man is playing a bamboo flute."},
        baseline={"gold": 3.8, "cosine": 0.81, "dot": 0.82},
        candidate={"gold": 3.8, "cosine": 0.324, "dot": 0.33},
        share=-0.0312,
    )


def passing(name: str = "model_quint8", **changes: Any) -> Verdict:
    known: dict[str, Any] = {
        "baseline": result(),
        "candidate": result(name, run_id="20261001-120100-def456"),
        "candidate_name": name,
        "label": "PASS",
        "comparisons": (
            comparison(),
            comparison("cosine_pearson", thresholds=SHARES),
            comparison("dot_spearman", "AT_RISK", thresholds=SHARES),
        ),
        "worst": (example(), example("sts-7", {"text_1": "犬が走る。" * 40, "text_2": NASTY})),
        "differences": {"dtype": ("float32", "uint8"), "batching": ("2048 tokens", "row by row")},
        "bootstrap": {"unit": "pair", "confidence": 0.95, "resamples": 10_000, "seed": 42, "permutations": 10_000},
    }
    return Verdict(**{**known, **changes})


def regression(name: str = "int4") -> Verdict:
    bad = comparison(label="REGRESSION", candidate=70.3, delta=-11.7512, relative=-0.1432, interval=(-13.2, -10.1))
    bad = replace(bad, chances=Chances(0.0, 0.0004, 0.9996))
    return passing(name, label="REGRESSION", comparisons=(bad,))


def inconclusive(settled_by: int | None = 412) -> Verdict:
    open_ = comparison(label="INCONCLUSIVE", estimate="PASS", confidence=0.7123, settled_by=settled_by, examples=30)
    open_ = replace(open_, chances=Chances(0.7123, 0.2, 0.0877))
    return passing(label="INCONCLUSIVE", comparisons=(open_,), worst=())


REASON = "the model gives NaN or infinite numbers for 7 of 1379 pairs (rows sts-1, sts-2 and 5 more)"


def invalid() -> Verdict:
    dead = {"candidate": None, "delta": None, "relative": None, "interval": None, "confidence": None, "chances": None}
    dead |= {"p_value": None, "adjusted_p": None, "reason": REASON}
    rows = tuple(comparison(name, "INVALID", **dead) for name in ("cosine_spearman", "cosine_pearson"))
    return passing("broken", label="INVALID", candidate=None, comparisons=rows, worst=(), differences={}, reason=REASON)


def perplexity(label: Label = "AT_RISK") -> Verdict:
    """Lower is better, four digits, a long name, numbers of another size."""
    row = comparison(
        "word_pseudo_perplexity",
        label,
        higher_is_better=False,
        baseline=3339.6635,
        candidate=3577.1015,
        delta=237.438,
        relative=0.0711,
        interval=(120.1234, 354.5678),
        thresholds=SHARES,
        digits=4,
        decides=True,
    )
    return replace(
        passing("distilbert-int8"), label=label, comparisons=(row, replace(row, metric="nll", decides=False))
    )
