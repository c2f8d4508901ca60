"""Masked language models in PyTorch. The vocabulary projection runs at the masked position only.

A hook gathers that position from the hidden states before the head, whatever the head looks like: first it is tried
behind the attention of the last layer (so that the last feed-forward also runs at one position), then behind the
encoder. What differs from the full pass is not used.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calipers.core import SILENT, Halo, InferenceError, MaskedTokens, ModelError, ModelInfo, Progress, TokenizedText
from calipers.models import halo, masking
from calipers.models.batching import Batch
from calipers.models.layout import read_layout
from calipers.models.options import ModelOptions
from calipers.models.source import Source
from calipers.models.tokenizer import USUAL_LIMIT, fast_backend, first_line, longest_input, transformers_backend
from calipers.models.torch_weights import fetch_folder, load_weights, model_info, single_threaded, work


def load(source: Source, options: ModelOptions) -> TorchMaskedLM:
    used = ("model_id", "revision", "max_length", "dtype", "device", "batch_tokens", "batch_size")
    options.refuse_others("a masked language model in PyTorch", *used, "allow_pickle", "trust_remote_code")
    folder = fetch_folder(source, options)
    model = load_weights("AutoModelForMaskedLM", folder, options)
    return TorchMaskedLM(model, folder, options, model_info(source, folder, options))


def graft(source: Source, head: Source, options: ModelOptions) -> TorchMaskedLM:
    """An encoder without a head of its own under that of another model, such as the one that it was trained from.

    The two must have the same width and the same vocabulary.
    """
    used = ModelOptions(dtype=options.dtype, device=options.device, threads=options.threads)
    folder, other = fetch_folder(source, options), fetch_folder(head, used)
    transformer = read_layout(folder).transformer
    model, trunk = load_weights("AutoModelForMaskedLM", other, used), load_weights("AutoModel", transformer, options)
    widths = [m.config.hidden_size for m in (trunk, model)]
    if widths[0] != widths[1]:
        raise ModelError(
            f"the head of {head.reference} does not fit {source.reference}: it reads {widths[1]} numbers a token, "
            f"and the model gives {widths[0]}"
        )
    if _vocabulary(transformer) != _vocabulary(other):
        raise ModelError(f"the head of {head.reference} does not fit {source.reference}: their vocabularies differ")
    setattr(model, model.base_model_prefix, trunk)
    info = model_info(source, folder, options)
    return TorchMaskedLM(
        model, transformer, options, replace(info, settings={**info.settings, "mlm_head": head.reference})
    )


def _vocabulary(folder: Path) -> dict[str, int]:
    return dict(fast_backend(folder).get_vocab(with_added_tokens=True))


class TorchMaskedLM:
    def __init__(self, model: Any, folder: Path, options: ModelOptions, info: ModelInfo) -> None:
        self._model = model
        self._work = work(options)
        _, backend = transformers_backend(folder, trust_remote_code=options.trust_remote_code)
        longest = longest_input(folder) or USUAL_LIMIT
        self.max_length = min(options.max_length or longest, longest)
        self._tokenizer = masking.MaskTokenizer(backend, folder, max_length=self.max_length)
        self._gather = _Gather()
        self._vocabulary = self._full(*_one_row(self._tokenizer)).shape[-1]
        masking.refuse_misfit(self._tokenizer, self._vocabulary, folder)
        short_cut = self._find_short_cut()
        kept = 1 if short_cut.startswith("at the masked") else self.max_length
        self._batching = masking.bound_memory(self._work.batching, self._vocabulary, positions_kept=kept)
        settings = {"max_length": self.max_length, "short_cut": short_cut, "batching": str(self._batching)}
        self.info = replace(info, settings={**info.settings, **settings})

    def tokenize(self, texts: Sequence[str], *, truncate: bool = True) -> list[TokenizedText]:
        return self._tokenizer.encode(texts, truncate=truncate)

    def log_probs(
        self, questions: MaskedTokens, *, progress: Progress = SILENT
    ) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        with single_threaded(self._work):
            return masking.ask(
                questions,
                forward=self._full if self._gather.module is None else self._short,
                tokenizer=self._tokenizer,
                batching=self._batching,
                workers=self._work.workers,
                progress=progress,
            )

    def distributions(self, questions: MaskedTokens) -> NDArray[np.float32]:
        with single_threaded(self._work):
            return masking.distributions(
                questions,
                forward=self._full if self._gather.module is None else self._short,
                tokenizer=self._tokenizer,
                batching=self._batching,
                workers=self._work.workers,
            )

    def top_tokens(self, texts: Sequence[str], k: int = 10) -> list[Halo]:
        """The k tokens that the head puts first when it reads the mean of the hidden states at a text's own tokens.

        Special tokens are left out of the answer, not out of the probabilities.
        """
        if self._gather.module is None:
            raise InferenceError(f"the head of {self.info.model_id} mixes positions: it cannot read a pooled state")
        pool = _Gather()
        pool.attach(self._model.base_model)
        try:
            with single_threaded(self._work):
                return halo.ask(
                    self.tokenize(texts),
                    k,
                    forward=partial(self._pooled, pool),
                    tokenizer=self._tokenizer,
                    batching=self._batching,
                    workers=self._work.workers,
                )
        finally:
            pool.detach()

    def _pooled(self, pool: _Gather, batch: Batch, weights: NDArray[np.float32]) -> NDArray[np.float32]:
        with pool.at(weights, self._work.device):
            return np.asarray(self._run(batch)[:, 0])

    def _find_short_cut(self) -> str:
        """Hook the model where it is exact and saves most; say where."""
        worst = 0.0
        for name, module in _places(self._model):
            self._gather.attach(module)
            worst = masking.difference(self._full, self._short, self._tokenizer, self._vocabulary, self._work.batching)
            if worst <= masking.EXACT:
                return f"at the masked position from {name} on"
            self._gather.detach()
        return f"none: the full pass is used (the short cut differs by {worst:.1e})"

    def _full(self, batch: Batch, positions: NDArray[np.int64]) -> NDArray[np.float32]:
        logits = self._run(batch)
        return np.asarray(logits[np.arange(len(logits)), positions])

    def _short(self, batch: Batch, positions: NDArray[np.int64]) -> NDArray[np.float32]:
        with self._gather.at(positions, self._work.device):
            return np.asarray(self._run(batch)[:, 0])

    def _run(self, batch: Batch) -> NDArray[np.float32]:
        import torch

        try:
            with torch.inference_mode():
                ids, mask = (torch.from_numpy(a).to(self._work.device) for a in (batch.ids, batch.mask))
                logits = self._model(input_ids=ids, attention_mask=mask).logits
        except Exception as error:
            raise InferenceError(f"the model failed on a batch of {batch.ids.shape}: {first_line(error)}") from error
        return np.asarray(logits.float().cpu().numpy())


class _Gather:
    """A forward hook that keeps one position per row of what a module puts out, or a weighted mean of all. Each thread
    has its own positions."""

    def __init__(self) -> None:
        self.module: Any = None
        self._handle: Any = None
        self._local = threading.local()

    def attach(self, module: Any) -> None:
        self.module = module
        self._handle = module.register_forward_hook(self._hook)

    def detach(self) -> None:
        self._handle.remove()
        self.module = None

    def at(self, positions: NDArray[Any], device: str) -> _Positions:
        return _Positions(self._local, positions, device)

    def _hook(self, module: Any, arguments: Any, output: Any) -> Any:
        positions = getattr(self._local, "positions", None)
        if positions is None:
            return output
        if hasattr(output, "last_hidden_state"):
            output.last_hidden_state = _keep(output.last_hidden_state, positions)
            return output
        if isinstance(output, tuple):
            return (_keep(output[0], positions), *output[1:])
        return _keep(output, positions)


class _Positions:
    def __init__(self, local: threading.local, positions: NDArray[Any], device: str) -> None:
        self._local, self._positions, self._device = local, positions, device

    def __enter__(self) -> None:
        import torch

        self._local.positions = torch.from_numpy(self._positions).to(self._device)

    def __exit__(self, *_: object) -> None:
        self._local.positions = None


def _keep(hidden: Any, positions: Any) -> Any:
    """[b, s, d] to [b, 1, d]: at one position [b], or the mean by weights [b, s]."""
    import torch

    if positions.ndim == 2:
        return torch.einsum("bs,bsd->bd", positions.to(hidden.dtype), hidden)[:, None]
    return hidden[torch.arange(len(hidden), device=hidden.device), positions][:, None]


def _places(model: Any) -> list[tuple[str, Any]]:
    """Where the hook may go, the most saving place first.

    The attention block of the last layer is the last module called `attention` of a layer that is used once; whether
    the residual is inside it, so that gathering there is exact, the comparison will tell.
    """
    blocks = [module for name, module in model.named_modules() if name.endswith(".attention")]
    layers = getattr(model.config, "num_hidden_layers", 0)
    last = [("the last feed-forward", blocks[-1])] if blocks and len(blocks) == layers else []
    return [*last, ("the head", model.base_model)]


def _one_row(tokenizer: masking.MaskTokenizer) -> tuple[Batch, NDArray[np.int64]]:
    ids = np.full((1, 2), tokenizer.mask_id)
    return Batch(ids, np.zeros_like(ids), np.ones_like(ids), rows=1), np.zeros(1, np.int64)
