"""Models that sentence-transformers runs, with all modules of their folder. The batches are made here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np

from calipers.core import InferenceError, ModelError, Progress
from calipers.metrics.arrays import Ints, Vectors, slices
from calipers.models.batching import Batching, Tally, once_each, plan
from calipers.models.options import ModelOptions
from calipers.models.probe import Choice, compare_items
from calipers.models.tokenizer_files import first_line
from calipers.models.torch_network import Network

Item = TypeVar("Item", str, tuple[str, str])

_ROWS = 32  # texts or pairs a batch
_WINDOW = 256  # of which the tokens are counted at a time


def load_modules(kind: str, folder: Path, options: ModelOptions, **arguments: object) -> Any:
    """A SentenceTransformer or CrossEncoder with all modules of the folder."""
    import torch

    try:
        import sentence_transformers
    except ImportError as error:
        raise ModelError(f"{folder} needs sentence-transformers: pip install sentence-transformers") from error
    dtype = getattr(torch, options.dtype)
    try:
        model = getattr(sentence_transformers, kind)(
            str(folder),
            device=options.device,
            trust_remote_code=options.trust_remote_code,
            model_kwargs={"dtype": dtype, "use_safetensors": None if options.allow_pickle else True},
            local_files_only=True,
            **arguments,
        ).to(dtype)
    except Exception as error:
        raise ModelError(f"sentence-transformers cannot load {folder}: {first_line(error)}") from error
    return model.eval()


def choose_batching(options: ModelOptions) -> Batching:
    return Batching(None, options.batch_size or _ROWS, "", forced=bool(options.batch_size))


@dataclass(frozen=True, eq=False)
class ModulesRunner(Generic[Item]):
    """A SentenceTransformer or CrossEncoder in batches. `method` is its "encode" or "predict"; `route` is the side that
    a Router takes, None for its default."""

    network: Network
    method: str
    batching: Batching
    route: str | None = None
    tally: Tally = field(default_factory=Tally)  # texts or pairs that were cut

    def run(self, label: str, items: Sequence[Item], prompt: str, progress: Progress) -> Vectors:
        """What the model gives for each text or pair, in order: float32[n, d]. Equal ones share one pass."""
        distinct, places = once_each(items)
        progress.start(label, len(distinct))
        tokens = self.count_tokens(distinct, prompt)
        if tokens is None:
            lengths, batching = np.array([sum(map(len, item)) for item in distinct]), self.batching
        else:
            lengths, batching = tokens.read, self.batching
            self.tally.count += int((tokens.whole > tokens.read).sum())
        table: Vectors | None = None
        for rows in plan(lengths, batching):
            values = self.compute([distinct[i] for i in rows], prompt)
            if table is None:
                table = np.empty((len(distinct), values.shape[1]), np.float32)
            table[rows] = values
            progress.advance(len(rows))
        if table is None:
            raise InferenceError("there is no text to encode")
        return table[places]

    def compute(self, items: Sequence[Item], prompt: str) -> Vectors:
        """One batch."""
        function = self.network.wrap(getattr(self.network.model, self.method))
        try:  # "" is no prompt, where None would be the model's default
            values = function(items, batch_size=len(items), prompt=prompt, show_progress_bar=False, **self._task)
        except Exception as error:
            raise InferenceError(f"sentence-transformers failed on {len(items)} rows: {first_line(error)}") from error
        return np.asarray(values, dtype=np.float32).reshape(len(items), -1)

    def count_tokens(self, items: Sequence[Item], prompt: str) -> TokenCounts | None:
        """Of each item; None where the first module does not say: it may count no tokens, or be a model's own code."""
        whole: dict[str, Any] = {"processing_kwargs": {"text": {"truncation": False}}}
        counts: tuple[list[Ints], list[Ints]] = ([], [])
        try:
            for window in slices(len(items), _WINDOW):
                for part, arguments in zip(counts, ({}, whole), strict=True):
                    features = self.network.model.preprocess(items[window], prompt=prompt, **arguments, **self._task)
                    part.append(np.asarray(features["attention_mask"].sum(dim=1).cpu().numpy(), dtype=np.int64))
        except Exception:  # what another library's modules raise is not ours to list
            return None
        read, untruncated = (np.concatenate(part) if part else np.empty(0, np.int64) for part in counts)
        return TokenCounts(read, untruncated) if len(read) == len(untruncated) == len(items) else None

    def settle(
        self, items: Sequence[Item], prompt: str, dtype: str, least: float = 0.0
    ) -> tuple[Choice, ModulesRunner[Item], tuple[str, ...]]:
        """The runner with batches that do not change its outputs, or notes where they must; `items` are tried."""
        tokens = self.count_tokens(items, prompt)
        lengths = None if tokens is None else tokens.read

        def compute(rows: Sequence[int]) -> Vectors:
            return self.compute([items[i] for i in rows], prompt)

        choice = compare_items(compute, len(items), lengths, self.network.why_alone, dtype, least)
        batching, notes = choice.apply(self.batching)
        return choice, replace(self, batching=batching), notes

    @property
    def _task(self) -> dict[str, str]:
        return {"task": self.route} if self.route else {}


@dataclass(frozen=True, eq=False)
class TokenCounts:
    """Tokens of texts or pairs, int64[n]: as the model reads them, and as they would be if none were cut."""

    read: Ints
    whole: Ints
