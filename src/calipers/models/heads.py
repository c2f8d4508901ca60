"""What a cross-encoder's files say of its head: labels, their names, and the activation on top of the logits.

An activation's name is looked up in a table of ours; nothing that a file names is imported.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calipers.core import InferenceError, ModelError
from calipers.models.layout import EncoderSettings, Layout
from calipers.models.tokenizer import read_json

Pair = tuple[str, str]
Scores = NDArray[np.float32]


@dataclass(frozen=True)
class Head:
    """What is done with the logits of a model, and what they are called."""

    labels: int
    names: tuple[str, ...]  # empty where the files have none
    activation: str  # a key of ACTIVATIONS
    why: str  # where the activation comes from

    def finish(self, logits: Scores) -> Scores:
        """[n, labels] logits to scores: float32[n] where there is one label."""
        if logits.shape[1] != self.labels:
            raise InferenceError(f"the model gave {logits.shape[1]} numbers for a pair: expected {self.labels}")
        found = ACTIVATIONS[self.activation](logits.astype(np.float64)).astype(np.float32)
        return found[:, 0] if self.labels == 1 else found

    def none(self) -> Scores:
        return np.empty((0,) if self.labels == 1 else (0, self.labels), np.float32)


def read_head(folder: Path, layout: Layout, *, labels: int) -> Head:
    config = read_json(layout.transformer / "config.json")
    name, why = _asked_activation(folder, layout)
    if name is None:
        name, why = ("Sigmoid", "one label") if labels == 1 else ("Identity", "several labels")
    return Head(labels, label_names(config, labels), name, why)


def told_settings(head: Head, settings: EncoderSettings) -> dict[str, Any]:
    """What a scorer says of its head; `label_names` is left out where the files have none."""
    names = {"label_names": list(head.names)} if head.names else {}
    return {
        "activation": f"{head.activation} ({head.why})",
        "labels": head.labels,
        **names,
        "prompt": settings.prompt,
        "max_length": settings.max_length,
    }


def label_names(config: dict[str, Any], labels: int) -> tuple[str, ...]:
    """The names in the order of the outputs, or none.

    >>> label_names({"id2label": {"1": "entailment", "0": "neutral"}}, 2)
    ('neutral', 'entailment')
    """
    found = config.get("id2label")
    if not isinstance(found, dict) or set(map(str, found)) != {str(i) for i in range(labels)}:
        return ()
    by_number = {str(key): str(name) for key, name in found.items()}
    return tuple(by_number[str(i)] for i in range(labels))


def _asked_activation(folder: Path, layout: Layout) -> tuple[str | None, str]:
    """In the order in which sentence-transformers looks: its own file, its entry in config.json, its entry of old."""
    general, file = general_settings(folder), layout.transformer / "config.json"
    if general.get("model_type") == "CrossEncoder" and general.get("activation_fn") is not None:
        place = folder / "config_sentence_transformers.json"
        return find_activation(general["activation_fn"], place), place.name
    config = read_json(file)
    own = config.get("sentence_transformers")
    if isinstance(own, dict) and "activation_fn" in own:
        asked = own["activation_fn"]
    else:
        asked = config.get("sbert_ce_default_activation_function")
    return (None, "") if asked is None else (find_activation(asked, file), file.name)


def general_settings(folder: Path) -> dict[str, Any]:
    return read_json(folder / "config_sentence_transformers.json")


_PLAIN = re.compile(r"torch\.nn\.(?:modules\.(?:activation|linear)\.)?(\w+)")


def find_activation(asked: object, place: Path) -> str:
    """The name of the activation that a file asks for, such as torch.nn.modules.activation.Sigmoid.

    >>> find_activation("torch.nn.modules.linear.Identity", Path("config.json"))
    'Identity'
    """
    found = _PLAIN.fullmatch(str(asked))
    if found is None or found[1] not in ACTIVATIONS:
        raise ModelError(
            f"{place} asks for the activation {str(asked)[:100]!r}, and nothing that a model names is imported: "
            f"expected one of torch.nn's {', '.join(ACTIVATIONS)}"
        )
    return found[1]


def _log_softmax(x: NDArray[np.float64]) -> NDArray[np.float64]:
    shifted = x - x.max(axis=1, keepdims=True)
    return np.asarray(shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True)))


# torch.nn's activations without parameters, over logits float64[n, labels]. logaddexp does not overflow.
ACTIVATIONS: dict[str, Callable[[NDArray[np.float64]], NDArray[np.float64]]] = {
    "Identity": lambda x: x,
    "Sigmoid": lambda x: np.exp(-np.logaddexp(0, -x)),
    "Softmax": lambda x: np.exp(_log_softmax(x)),
    "LogSoftmax": _log_softmax,
    "LogSigmoid": lambda x: -np.logaddexp(0, -x),
    "Softplus": lambda x: np.logaddexp(0, x),
    "Tanh": np.tanh,
    "ReLU": lambda x: np.maximum(x, 0),
}
