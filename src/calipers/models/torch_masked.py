"""Masked language models in PyTorch. The vocabulary projection runs at the masked position only.

A hook gathers that position from the hidden states before the head, whatever the head looks like: first it is tried
behind the attention of the last layer (so that the last feed-forward also runs at one position), then behind the
encoder. What differs from the full pass is not used. The same hook pools the states of a text for its semantic halo.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from calipers.core import Halo, InferenceError, ModelError, ModelInfo, TokenizedText
from calipers.metrics.arrays import Array, Ints, Vectors
from calipers.models import masking
from calipers.models.batching import Batch, Work, answers, pad
from calipers.models.layout import read_layout
from calipers.models.masking import Logits, MaskedModel, MaskTokenizer
from calipers.models.options import ModelOptions
from calipers.models.source import Source
from calipers.models.tokenizer import USUAL_LIMIT, fast_backend, longest_input, transformers_backend
from calipers.models.torch_weights import compute_batch, fetch_folder, load_weights, model_info, with_settings, work

if TYPE_CHECKING:
    from torch import Tensor
    from torch.nn import Module
    from torch.utils.hooks import RemovableHandle
    from transformers import PreTrainedModel

Pooled = Callable[[Batch, Vectors], Vectors]  # a batch and weights [rows, length], to logits float32[rows, vocabulary]

_MARKS = ("##", "▁", "Ġ", "</w>")  # how vocabularies write that a piece goes on, or begins, a word


def load(source: Source, options: ModelOptions) -> TorchMaskedLM:
    used = ("model_id", "revision", "max_length", "dtype", "device", "batch_tokens", "batch_size")
    options.refuse_others("a masked language model in PyTorch", *used, "allow_pickle", "trust_remote_code")
    folder = fetch_folder(source, options)
    model = load_weights("AutoModelForMaskedLM", folder, options)
    return _masked_lm(model, folder, options, model_info(source, folder, options))


def graft(source: Source, head: Source, options: ModelOptions) -> TorchMaskedLM:
    """An encoder without a head under the head of another model, such as the one that it was trained from.

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
    info = with_settings(model_info(source, folder, options), {"mlm_head": head.reference})
    return _masked_lm(model, transformer, options, info)


def _vocabulary(folder: Path) -> dict[str, int]:
    return dict(fast_backend(folder).get_vocab(with_added_tokens=True))


def _masked_lm(model: PreTrainedModel, folder: Path, options: ModelOptions, info: ModelInfo) -> TorchMaskedLM:
    plan = work(options)
    network = _Network(model, plan.device)
    _, backend = transformers_backend(folder, trust_remote_code=options.trust_remote_code)
    longest = longest_input(folder) or USUAL_LIMIT
    tokenizer = MaskTokenizer(backend, folder, max_length=min(options.max_length or longest, longest))
    vocabulary = network.run(tokenizer.masks(2)).shape[-1]
    masking.refuse_misfit(tokenizer, vocabulary, folder)
    short_cut = network.find_short_cut(tokenizer, vocabulary, plan)
    kept = 1 if network.reads_one_position else tokenizer.max_length
    plan = replace(plan, batching=masking.bound_memory(plan.batching, vocabulary, positions_kept=kept))
    settings = {"max_length": tokenizer.max_length, "short_cut": short_cut, "batching": str(plan.batching)}
    forward = network.short if network.reads_one_position else network.full
    return TorchMaskedLM(forward, tokenizer, plan, with_settings(info, settings), network)


@dataclass(frozen=True, eq=False)
class TorchMaskedLM(MaskedModel):
    network: _Network

    def top_tokens(self, texts: Sequence[str], k: int = 10) -> list[Halo]:
        """The k tokens that the head puts first when it reads the mean of the hidden states at a text's own tokens.

        Special tokens are left out of the answer, not out of the probabilities.
        """
        if not self.network.reads_one_position:
            raise InferenceError(f"the head of {self.info.model_id} mixes positions: it cannot read a pooled state")
        with self.network.pooling() as forward:
            return _halos(self.tokenize(texts), k, forward=forward, tokenizer=self.tokenizer, work=self.work)


class _Network:
    """The model with its hook."""

    def __init__(self, model: PreTrainedModel, device: str) -> None:
        self.model = model
        self.device = device
        self.gather = _Gather()

    @property
    def reads_one_position(self) -> bool:
        return self.gather.module is not None

    def run(self, batch: Batch) -> Logits:
        """Logits at all positions, or at those that a hook keeps: float32[b, s, vocabulary]."""
        return compute_batch(self.model, batch, self.device, "logits")

    def full(self, batch: Batch, positions: Ints) -> Logits:
        logits = self.run(batch)
        return np.asarray(logits[np.arange(len(logits)), positions])

    def short(self, batch: Batch, positions: Ints) -> Logits:
        return self._gathered(self.gather, batch, positions)

    def _gathered(self, gather: _Gather, batch: Batch, positions: Array) -> Logits:
        with gather.at(positions, self.device):
            return np.asarray(self.run(batch)[:, 0])

    @contextmanager
    def pooling(self) -> Iterator[Pooled]:
        """A hook behind the encoder that pools its states."""
        pool = _Gather()
        pool.attach(self.model.base_model)
        try:
            yield partial(self._gathered, pool)
        finally:
            pool.detach()

    def find_short_cut(self, tokenizer: MaskTokenizer, vocabulary: int, plan: Work) -> str:
        """Hook the model where it is exact and saves most; say where."""
        worst = 0.0
        for name, module in _places(self.model):
            self.gather.attach(module)
            worst = masking.difference(self.full, self.short, tokenizer, vocabulary, plan)
            if worst <= masking.EXACT:
                return f"at the masked position from {name} on"
            self.gather.detach()
        return f"none: the full pass is used (the short cut differs by {worst:.1e})"


class _Gather:
    """A forward hook that keeps one position per row of a module's output, or a weighted mean of all positions. Each
    thread has its own positions."""

    def __init__(self) -> None:
        self.module: Module | None = None
        self._handle: RemovableHandle
        self._local = threading.local()

    def attach(self, module: Module) -> None:
        self.module = module
        self._handle = module.register_forward_hook(self._hook)

    def detach(self) -> None:
        self._handle.remove()
        self.module = None

    @contextmanager
    def at(self, positions: Array, device: str) -> Iterator[None]:
        """Positions int64[b], or weights float32[b, s], for calls of this thread."""
        import torch

        self._local.positions = torch.from_numpy(positions).to(device)
        try:
            yield
        finally:
            self._local.positions = None

    def _hook(self, module: Module, arguments: object, output: Any) -> Any:
        positions = getattr(self._local, "positions", None)
        if positions is None:
            return output
        if hasattr(output, "last_hidden_state"):
            output.last_hidden_state = _keep(output.last_hidden_state, positions)
            return output
        if isinstance(output, tuple):
            return (_keep(output[0], positions), *output[1:])
        return _keep(output, positions)


def _keep(hidden: Tensor, positions: Tensor) -> Tensor:
    """[b, s, d] to [b, 1, d]: at one position [b], or the mean by weights [b, s]."""
    import torch

    if positions.ndim == 2:
        return torch.einsum("bs,bsd->bd", positions.to(hidden.dtype), hidden)[:, None]
    return hidden[torch.arange(len(hidden), device=hidden.device), positions][:, None]


def _places(model: PreTrainedModel) -> list[tuple[str, Module]]:
    """Where the hook may go, the most saving place first.

    The attention block of the last layer is the last module called `attention` of a layer that is used once; whether
    the residual is inside it, so that gathering there is exact, is for the comparison to show.
    """
    blocks = [module for name, module in model.named_modules() if name.endswith(".attention")]
    layers = getattr(model.config, "num_hidden_layers", 0)
    last = [("the last feed-forward", blocks[-1])] if blocks and len(blocks) == layers else []
    return [*last, ("the head", model.base_model)]


# --- the semantic halo of a text: the tokens that the head reads from the mean of its states ---------------------


def _halos(
    texts: Sequence[TokenizedText], k: int, *, forward: Pooled, tokenizer: MaskTokenizer, work: Work
) -> list[Halo]:
    """One halo per text, in order; an empty one for a text without tokens of its own."""
    results = [Halo((), (), ()) for _ in texts]
    scored = np.flatnonzero([len(text.scored) > 0 for text in texts])
    silent = np.array(tokenizer.special_ids, np.int64)

    def compute(rows: Ints) -> Vectors:
        chosen = [texts[int(i)] for i in scored[rows]]
        batch = pad([masking.untyped(text.ids) for text in chosen], tokenizer)
        scores = masking.log_softmax(forward(batch, _weights(chosen, batch)))[:, : tokenizer.vocab_size]
        scores[:, silent[silent < scores.shape[1]]] = -np.inf
        return scores

    lengths = np.array([len(texts[int(i)].ids) for i in scored], np.int64)
    with work.one_core_each():
        for rows, scores in answers(lengths, compute, work):
            for row, values in zip(scored[rows], scores, strict=True):
                results[int(row)] = _best(texts[int(row)], values, k, tokenizer)
    return results


def _weights(texts: Sequence[TokenizedText], batch: Batch) -> Vectors:
    """Weights that make the mean over each text's own tokens, float32[rows, length]."""
    weights = np.zeros(batch.ids.shape, np.float32)
    for i, text in enumerate(texts):
        weights[i, text.scored] = 1.0 / len(text.scored)
    return weights


def _best(text: TokenizedText, scores: Vectors, k: int, tokenizer: MaskTokenizer) -> Halo:
    """The k highest, among equals the earlier token."""
    top = np.argsort(-scores, kind="stable")[:k]
    top = top[np.isfinite(scores[top])]
    in_text = {plain(tokenizer.spell(int(id))) for id in text.ids[text.scored]}
    tokens = tuple(tokenizer.spell(int(id)) for id in top)
    return Halo(tokens, tuple(float(scores[id]) for id in top), tuple(plain(token) in in_text for token in tokens))


def plain(token: str) -> str:
    """A token without the marks of its vocabulary, case-folded: "##ing" and "Ing" are the same.

    >>> plain("##Ing"), plain("Ġdog"), plain("##")
    ('ing', 'dog', '##')
    """
    bare = token
    for mark in _MARKS:
        bare = bare.removesuffix(mark) if mark == "</w>" else bare.removeprefix(mark)
    return (bare or token).casefold()
