"""What backends make of a transformer's output: one vector per text by pooling, or scores of a pair by a head.

An activation's name is looked up in a table of ours; nothing that a file names is imported.
"""

from __future__ import annotations

import math
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calipers.core import SILENT, InferenceError, ModelError, Progress
from calipers.metrics.arrays import Vectors
from calipers.metrics.geometry import unit_like
from calipers.models.batching import Batch, BatchedModel
from calipers.models.layout import EncoderSettings, Layout
from calipers.models.probe import LEAST_LOGIT, BatchProbe, long_lengths, trial_lengths
from calipers.models.tokenizer_files import Config, read_json

Pair = tuple[str, str]
Scores = Vectors


@dataclass(frozen=True, eq=False)
class PooledEncoder(BatchedModel, ABC):
    """A transformer whose token embeddings are pooled. A backend says how a batch is computed."""

    settings: EncoderSettings

    @abstractmethod
    def embed(self, batch: Batch) -> Vectors:
        """Token embeddings float32[b, s, d], or pooled vectors float32[b, d]."""

    def encode(self, texts: Sequence[str], *, prompt: str | None = None, progress: Progress = SILENT) -> Vectors:
        prompt = self.settings.prompt if prompt is None else prompt
        forward = partial(self._vectors, skip=self.tokens_to_skip(prompt))
        return self.compute("Encoding", [prompt + text for text in texts], self.tokenizer.encode, forward, progress)

    def pieces(self, words: Sequence[str]) -> list[list[str | None]]:
        """The sub-words of each word, for a look at the tokenizer; see Tokenizer.pieces."""
        return self.tokenizer.pieces(words)

    def tokens_to_skip(self, prompt: str) -> int:
        """How many tokens at the head of a text pooling leaves out, the special token before the prompt included."""
        return 0 if self.settings.include_prompt or not prompt else self.tokenizer.prompt_length(prompt)

    def probe(self, dtype: Callable[[], str], long: int = 0) -> BatchProbe:
        """Rows to try at load, some of up to `long` tokens: do their vectors depend on the rows beside them?"""
        rows = self.tokenizer.sample(trial_lengths(self.tokenizer.max_length))
        long_rows = self.tokenizer.sample(long_lengths(long))
        return BatchProbe(rows, partial(self._vectors, skip=0), dtype, long_rows=long_rows)

    def _vectors(self, batch: Batch, skip: int) -> Vectors:
        vectors = self.embed(batch)
        if vectors.ndim == 3:
            vectors = pool(vectors, batch.mask, self.settings.pooling, skip=skip)
        elif not (real := np.asarray(batch.mask.any(axis=1))).all():
            vectors = np.where(real[:, None], vectors, np.float32(0))
        return self.settings.shortening.apply(unit_like(vectors) if self.settings.normalize else vectors)


def pool(tokens: Vectors, mask: NDArray[np.integer[Any]], mode: str, *, skip: int = 0) -> Vectors:
    """tokens float32[b, s, d], mask int[b, s] (1 for real tokens), to float32[b, d].

    `skip` tokens at the head of every row are left out: those of a prompt that a model was trained to leave out. A row
    without tokens is a zero vector, whatever the model makes of its padding.

    >>> pool(np.array([[[2.0], [4.0], [9.0]]], np.float32), np.array([[1, 1, 0]]), "mean")
    array([[3.]], dtype=float32)
    """
    real = np.asarray(mask.any(axis=1))
    if not real.all():  # attention over nothing may be NaN
        tokens = np.where(real[:, None, None], tokens, np.float32(0))
    places = np.cumsum(mask > 0, axis=1)  # of a token in its row, from 1
    if skip:
        mask = np.where(np.arange(mask.shape[1]) < skip, 0, mask)
    if mode == "cls":
        pooled = tokens[np.arange(len(tokens)), np.argmax(mask > 0, axis=1)]  # the first that is not left out
    elif mode == "last":
        # The last real token: right-padded rows end at their count, left-padded ones at the end.
        last = mask.shape[1] - 1 - np.argmax(mask[:, ::-1], axis=1)
        pooled = tokens[np.arange(len(tokens)), last] * mask.any(axis=1, keepdims=True)
    elif mode == "max":
        highest = np.where(mask[:, :, None] > 0, tokens, -np.inf).max(axis=1)
        pooled = np.where(mask.any(axis=1, keepdims=True), highest, 0.0)
    else:
        weights = (mask * places if mode == "weightedmean" else mask).astype(np.float32)
        total = np.maximum(weights.sum(axis=1, keepdims=True), 1.0)
        root = mode == "mean_sqrt_len_tokens"
        pooled = np.matmul(weights[:, None, :], tokens)[:, 0] / (np.sqrt(total) if root else total)
    return np.asarray(pooled, dtype=np.float32)


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
        scores = ACTIVATIONS[self.activation](logits.astype(np.float64)).astype(np.float32)
        return scores[:, 0] if self.labels == 1 else scores

    def none(self) -> Scores:
        """The scores of no pairs."""
        return np.empty((0,) if self.labels == 1 else (0, self.labels), np.float32)


@dataclass(frozen=True, eq=False)
class HeadScorer(BatchedModel, ABC):
    """A cross-encoder with batches and an activation of our own. A backend says how a batch is computed."""

    head: Head
    prompt: str

    @abstractmethod
    def logits(self, batch: Batch) -> Scores:
        """float32[b, labels]."""

    def probe(self, dtype: Callable[[], str], long: int = 0) -> BatchProbe:
        """Rows to try at load, some of up to `long` tokens: do their logits depend on the rows beside them?"""
        rows = self.tokenizer.sample(trial_lengths(self.tokenizer.max_length), pairs=True)
        long_rows = self.tokenizer.sample(long_lengths(long), pairs=True)
        return BatchProbe(rows, self.logits, dtype, LEAST_LOGIT, long_rows=long_rows)

    def score(self, pairs: Sequence[Pair], *, progress: Progress = SILENT) -> Scores:
        """float32[n], or float32[n, labels]; no pairs give no rows."""
        if not pairs:
            return self.head.none()
        items = [(self.prompt + a, b) for a, b in pairs]
        return self.head.finish(self.compute("Scoring", items, self.tokenizer.encode_pairs, self.logits, progress))


def read_head(folder: Path, layout: Layout, *, labels: int) -> Head:
    """The activation comes from the first place that names one, in the order of sentence-transformers: its own file,
    its entry in config.json, its older entry there. Without any of the files, the logits are the scores."""
    own, file = folder / "config_sentence_transformers.json", layout.transformer / "config.json"
    if not (own.exists() or file.exists()):
        return Head(labels, (), "Identity", "there is no config.json: the logits are given as they are")
    general, config = read_json(own), read_json(file)
    entry = config.get("sentence_transformers")
    name = general.get("activation_fn") if general.get("model_type") == "CrossEncoder" else None
    place = file if name is None else own
    if name is None and isinstance(entry, dict) and "activation_fn" in entry:
        name = entry["activation_fn"]
    elif name is None:
        name = config.get("sbert_ce_default_activation_function")
    if name is None:
        activation, why = ("Sigmoid", "one label") if labels == 1 else ("Identity", "several labels")
    else:
        activation, why = find_activation(name, place), place.name
    return Head(labels, label_names(config, labels), activation, why)


# What an architecture's name says that its weights were trained for.
_MADE_FOR = {
    "MaskedLM": "a masked language model",
    "LMHead": "a language model",
    "CausalLM": "a causal language model",
    "SequenceClassification": "a cross-encoder or classifier",
    "": "a model with a head of its own",
}
_HEAD = re.compile("For[A-Z]|LMHead|DoubleHeads")
# Tensors of heads, for a config.json that names no architecture.
_HEAD_TENSORS = re.compile(
    r"(?P<mlm>(cls|predictions|lm_head|mlm_head|vocab_transform|vocab_projector|generator_\w+|pred_layer)\.)"
    r"|(pre_classifier|classifier|score|qa_outputs|logits_proj|sequence_summary)\."
)


def describe_head(config: Config, tensors: Iterable[str] = ()) -> str:
    """The head that weights were trained with, "" for those of an encoder: by the architecture that config.json names,
    else by the names of their `tensors`.

    >>> describe_head({"architectures": ["BertForMaskedLM"]}), describe_head({"architectures": ["BertModel"]})
    ('BertForMaskedLM, a masked language model', '')
    >>> describe_head({}, ["encoder.layer.0.weight", "classifier.bias"])
    'a cross-encoder or classifier'
    """
    architectures = config.get("architectures")
    if isinstance(architectures, list) and architectures:
        made = str(architectures[0])
        return f"{made}, {next(kind for word, kind in _MADE_FOR.items() if word in made)}" if _HEAD.search(made) else ""
    match = next((match for name in tensors if (match := _HEAD_TENSORS.match(name))), None)
    return _MADE_FOR["MaskedLM" if match["mlm"] else "SequenceClassification"] if match else ""


def refuse_head(head: str, place: Path) -> None:
    """Refuse weights with a head as an encoder. Their token embeddings make vectors too, and a score of those means
    little: a requested pooling takes them."""
    if head:
        raise ModelError(
            f"{place} holds {head}, and no embedding model: pass `pooling` mean to take the mean of its token "
            "embeddings all the same"
        )


def note_head(head: str) -> tuple[str, ...]:
    """A warning where a requested pooling takes such weights."""
    return (f"the weights are those of {head}: an embedding model was expected",) if head else ()


def head_settings(head: Head, settings: EncoderSettings) -> dict[str, object]:
    """What a scorer reports of its head; `label_names` is left out where the files have none."""
    names = {"label_names": list(head.names)} if head.names else {}
    return {
        "activation": f"{head.activation} ({head.why})",
        "labels": head.labels,
        **names,
        "prompt": settings.prompt,
        "max_length": settings.max_length,
    }


def label_names(config: Config, labels: int) -> tuple[str, ...]:
    """The names in the order of the outputs, or none.

    >>> label_names({"id2label": {"1": "entailment", "0": "neutral"}}, 2)
    ('neutral', 'entailment')
    """
    names = config.get("id2label")
    by_number = {str(key): str(name) for key, name in names.items()} if isinstance(names, dict) else {}
    numbers = [str(i) for i in range(labels)]
    return tuple(by_number[i] for i in numbers) if set(by_number) == set(numbers) else ()


_PLAIN = re.compile(r"torch\.nn\.(?:modules\.(?:activation|linear)\.)?(\w+)")


def find_activation(name: object, place: Path) -> str:
    """The name in our table of an activation in a file, such as torch.nn.modules.activation.Sigmoid.

    >>> find_activation("torch.nn.modules.linear.Identity", Path("config.json"))
    'Identity'
    """
    match = _PLAIN.fullmatch(str(name))
    if match is None or match[1] not in ACTIVATIONS:
        raise ModelError(
            f"{place} names the activation {str(name)[:100]!r}, and nothing that a model names is imported: "
            f"expected one of torch.nn's {', '.join(ACTIVATIONS)}"
        )
    return match[1]


def log_softmax(logits: NDArray[np.floating]) -> NDArray[np.float64]:
    """
    >>> np.exp(log_softmax(np.log(np.array([[1, 3]], np.float32)))).round(4)
    array([[0.25, 0.75]])
    """
    shifted = logits - logits.max(axis=1, keepdims=True)
    return np.asarray(shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True, dtype=np.float64)))


_erf = np.vectorize(math.erf, otypes=[np.float64])
_SELU_SCALE, _SELU_ALPHA = 1.0507009873554805, 1.6732632423543772  # Klambauer et al. 2017


def _sigmoid(x: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.asarray(np.exp(-np.logaddexp(0, -x)))


def _leaky(x: NDArray[np.float64], slope: float) -> NDArray[np.float64]:
    return np.where(x >= 0, x, slope * x)


def _elu(x: NDArray[np.float64], alpha: float = 1.0) -> NDArray[np.float64]:
    return np.where(x > 0, x, alpha * np.expm1(np.minimum(x, 0)))


# Every activation of torch.nn that has no parameters and keeps the number of labels, with torch.nn's default
# arguments, over logits float64[n, labels]. logaddexp does not overflow.
ACTIVATIONS: dict[str, Callable[[NDArray[np.float64]], NDArray[np.float64]]] = {
    "Identity": lambda x: x,
    "Sigmoid": _sigmoid,
    "Softmax": lambda x: np.exp(log_softmax(x)),
    "Softmin": lambda x: np.exp(log_softmax(-x)),
    "LogSoftmax": log_softmax,
    "LogSigmoid": lambda x: -np.logaddexp(0, -x),
    "Softplus": lambda x: np.logaddexp(0, x),
    "Softsign": lambda x: x / (1 + np.abs(x)),
    "Softshrink": lambda x: np.sign(x) * np.maximum(np.abs(x) - 0.5, 0),
    "Tanh": np.tanh,
    "Tanhshrink": lambda x: x - np.tanh(x),
    "ReLU": lambda x: np.maximum(x, 0),
    "ReLU6": lambda x: np.clip(x, 0, 6),
    "RReLU": partial(_leaky, slope=(1 / 8 + 1 / 3) / 2),  # the mean of its range, as outside of training
    "LeakyReLU": partial(_leaky, slope=0.01),
    "ELU": _elu,
    "CELU": _elu,  # with alpha = 1 they are the same
    "SELU": lambda x: _SELU_SCALE * _elu(x, _SELU_ALPHA),
    "GELU": lambda x: x * (1 + _erf(x / math.sqrt(2))) / 2,
    "SiLU": lambda x: x * _sigmoid(x),
    "Mish": lambda x: x * np.tanh(np.logaddexp(0, x)),
    "Hardtanh": lambda x: np.clip(x, -1, 1),
    "Hardsigmoid": lambda x: np.clip(x / 6 + 0.5, 0, 1),
    "Hardswish": lambda x: x * np.clip(x / 6 + 0.5, 0, 1),
    "Hardshrink": lambda x: np.where(np.abs(x) > 0.5, x, 0.0),
}
