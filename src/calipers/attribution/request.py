"""What to attribute, and where its stages are kept."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from calipers import artifacts as build
from calipers import models
from calipers.artifacts import api as building
from calipers.comparison import api as comparing
from calipers.core import RequestError, Thresholds
from calipers.runs import api
from calipers.runs.store import Store

BUDGET = 24


@dataclass(frozen=True)
class Request:
    """What to attribute. `build` says how the stages are made; its task is that of the protocol."""

    recipe: build.Recipe
    protocol: comparing.Protocol
    build: building.Wishes = field(default_factory=building.Wishes)
    fix: bool = False
    budget: int = BUDGET
    thresholds: Mapping[str, Thresholds] = field(default_factory=dict)
    confidence: float = api.CONFIDENCE
    resamples: int = api.RESAMPLES
    folder: Path | None = None  # where the stages go; None is a temporary place
    recipe_file: Path | None = None  # where the recipe of a fix goes; None is beside the fixed graph

    def __post_init__(self) -> None:
        if self.budget < 0:
            raise RequestError(f"--budget must not be negative, found {self.budget}")


def place(store: Store, model: str, request: Request) -> Path:
    """Where the stages of a request are kept beside a store: the same request finds them again."""
    wish = request.build
    key = build.manifest.key_of(
        str(models.find(model).path or model),
        request.protocol.task,
        request.recipe.told(),
        {name: str(path) for name, path in wish.given.items()},
        [wish.optimize, wish.opset, wish.shape, wish.calibration, request.protocol.dataset],
    )
    return store.folder / "attribute" / f"{Path(model).name}-{request.recipe.precision}-{key[:8]}"
