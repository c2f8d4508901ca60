"""Measure text encoders before they ship.

Every command that does work has a function here: `evaluate` (the command `eval`), `compare`, `build`, `attribute`,
`diagnose`, `trust`, `parity`, `sweep` and `report`. Options, results and errors are importable from here too.

>>> import calipers
>>> result = calipers.evaluate("./model", dataset="pairs.csv")
>>> result.metrics["cosine_spearman"], result.intervals["cosine_spearman"]
(68.2, (54.7, 78.6))
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from calipers.artifacts.api import build as build
    from calipers.artifacts.recipe import Recipe as Recipe
    from calipers.artifacts.records import BuildOptions as BuildOptions, Manifest as Manifest
    from calipers.attribution.api import attribute as attribute
    from calipers.attribution.records import Attribution as Attribution, AttributionOptions as AttributionOptions
    from calipers.comparison.api import compare as compare
    from calipers.comparison.records import Comparison as Comparison, Verdict as Verdict
    from calipers.core import (
        CalipersError as CalipersError,
        DataError as DataError,
        Dataset as Dataset,
        Encoder as Encoder,
        InferenceError as InferenceError,
        InvalidOutput as InvalidOutput,
        MaskedLM as MaskedLM,
        Metric as Metric,
        Model as Model,
        ModelError as ModelError,
        ModelInfo as ModelInfo,
        Outcomes as Outcomes,
        PairScorer as PairScorer,
        Progress as Progress,
        RequestError as RequestError,
        Result as Result,
        Task as Task,
        Thresholds as Thresholds,
    )
    from calipers.data import DataOptions as DataOptions, load_dataset as load_dataset
    from calipers.diagnosis.api import diagnose as diagnose
    from calipers.diagnosis.options import DiagnosisOptions as DiagnosisOptions
    from calipers.diagnosis.records import Diagnosis as Diagnosis, Finding as Finding
    from calipers.fidelity.api import parity as parity
    from calipers.fidelity.records import Parity as Parity, ParityOptions as ParityOptions
    from calipers.models import ModelOptions as ModelOptions, load_model as load_model
    from calipers.reliability.api import TrustOptions as TrustOptions, trust as trust
    from calipers.reliability.answer import TrustAnswer as TrustAnswer
    from calipers.reliability.trust import Trust as Trust
    from calipers.reliability.traffic import Drift as Drift, DriftOptions as DriftOptions, drift as drift
    from calipers.service.api import serve as serve
    from calipers.service.options import ServeOptions as ServeOptions
    from calipers.runs.api import evaluate as evaluate
    from calipers.runs.protocol import Protocol as Protocol
    from calipers.runs.embedding import CorpusInputs as CorpusInputs
    from calipers.runs.report import report as report
    from calipers.runs.store import Store as Store
    from calipers.runs.vector_cache import VectorCache as VectorCache
    from calipers.sweeps.api import Sweep as Sweep, sweep as sweep
    from calipers.sweeps.records import Registry as Registry, SweepOptions as SweepOptions, SweepStatus as SweepStatus

__version__ = "0.1.0"

# Module → the public names that live there. `import calipers` alone imports none of them.
_HOMES = {
    "runs.api": ("evaluate",),
    "runs.embedding": ("CorpusInputs",),
    "runs.protocol": ("Protocol",),
    "runs.report": ("report",),
    "runs.store": ("Store",),
    "runs.vector_cache": ("VectorCache",),
    "comparison.api": ("compare",),
    "comparison.records": ("Comparison", "Verdict"),
    "artifacts.api": ("build",),
    "artifacts.recipe": ("Recipe",),
    "artifacts.records": ("BuildOptions", "Manifest"),
    "attribution.api": ("attribute",),
    "attribution.records": ("Attribution", "AttributionOptions"),
    "diagnosis.api": ("diagnose",),
    "diagnosis.options": ("DiagnosisOptions",),
    "diagnosis.records": ("Diagnosis", "Finding"),
    "fidelity.api": ("parity",),
    "fidelity.records": ("Parity", "ParityOptions"),
    "reliability.api": ("trust", "TrustOptions"),
    "reliability.answer": ("TrustAnswer",),
    "reliability.trust": ("Trust",),
    "reliability.traffic": ("drift", "Drift", "DriftOptions"),
    "service.api": ("serve",),
    "service.options": ("ServeOptions",),
    "sweeps.api": ("sweep", "Sweep"),
    "sweeps.records": ("Registry", "SweepOptions", "SweepStatus"),
    "models": ("ModelOptions", "load_model"),
    "data": ("DataOptions", "load_dataset"),
    "core": (
        *("CalipersError", "RequestError", "DataError", "ModelError", "InferenceError", "InvalidOutput"),
        *("Dataset", "Metric", "Model", "ModelInfo", "Encoder", "PairScorer", "MaskedLM"),
        *("Outcomes", "Progress", "Result", "Task", "Thresholds"),
    ),
}
_MODULES = {name: module for module, names in _HOMES.items() for name in names}

__all__ = sorted(_MODULES)


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'calipers' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"calipers.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
