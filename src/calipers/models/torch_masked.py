"""Masked language models in PyTorch. The vocabulary projection runs at the masked position only.

A hook gathers that position before the head: behind the attention of the last layer, so that the last feed-forward
also runs at one position, or else behind the encoder. What differs from the full pass is not used. The same hook pools
the states of a text for its semantic halo.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from calipers.core import Halo, InferenceError, ModelError, ModelInfo, TokenizedText
from calipers.metrics.arrays import Array, Ints, Vectors
from calipers.models import masking
from calipers.models.batching import Batch, Work, answers, pad
from calipers.models.heads import log_softmax
from calipers.models.layout import Layout, masked_length, read_layout
from calipers.models.masking import Forward, Logits, MaskedModel, MaskTokenizer
from calipers.models.options import ModelOptions
from calipers.models.probe import long_trial
from calipers.models.source import Source
from calipers.models.tokenizer_files import prepare
from calipers.models.torch_network import Network
from calipers.models.torch_weights import (
    USED,
    fetch_folder,
    load_weights,
    model_info,
    with_settings,
    work,
)

if TYPE_CHECKING:
    from torch import Tensor
    from torch.nn import Module
    from transformers import PreTrainedModel

_MARKS = ("##", "▁", "Ġ")  # how vocabularies write that a piece goes on, or begins, a word


def load(source: Source, options: ModelOptions) -> TorchMaskedLM:
    options.refuse_others("a masked language model in PyTorch", *USED)
    folder = fetch_folder(source, options)
    model = load_weights("AutoModelForMaskedLM", folder, options)
    return _masked_lm(model, read_layout(folder), options, model_info(source, folder, options))


def graft(source: Source, head: Source, options: ModelOptions) -> TorchMaskedLM:
    """An encoder under the head of another model of its width and vocabulary, such as the one it was trained from."""
    used = ModelOptions(dtype=options.dtype, device=options.device, threads=options.threads)
    folder, other = fetch_folder(source, options), fetch_folder(head, used)
    layout = read_layout(folder)
    transformer = layout.transformer
    model, trunk = load_weights("AutoModelForMaskedLM", other, used), load_weights("AutoModel", transformer, options)
    widths = [m.config.hidden_size for m in (trunk, model)]
    if widths[0] != widths[1]:
        raise ModelError(
            f"the head of {head.reference} does not fit {source.reference}: it reads {widths[1]} numbers a token, "
            f"and the model gives {widths[0]}"
        )
    ours, theirs = (prepare(place).backend.get_vocab(with_added_tokens=True) for place in (transformer, other))
    if ours != theirs:
        raise ModelError(f"the head of {head.reference} does not fit {source.reference}: their vocabularies differ")
    setattr(model, model.base_model_prefix, trunk)
    info = with_settings(model_info(source, folder, options), {"mlm_head": head.reference})
    return _masked_lm(model, layout, options, info)


def _masked_lm(model: PreTrainedModel, layout: Layout, options: ModelOptions, info: ModelInfo) -> TorchMaskedLM:
    plan = work(options)
    network = _Hooked(Network(model, plan.device))
    length = masked_length(layout, options)
    tokenizer = MaskTokenizer(layout, max_length=length, trust_remote_code=options.trust_remote_code)
    vocabulary = network.run(tokenizer.masks(masking.SHORTEST)).shape[-1]
    if tokenizer.vocab_size > vocabulary:
        raise ModelError(
            f"the tokenizer of {layout.transformer} does not fit the model: it has {tokenizer.vocab_size} tokens "
            f"and the model gives {vocabulary} logits"
        )
    short, short_cut = network.find_short_cut(tokenizer, vocabulary, plan)
    kept = 1 if short else tokenizer.max_length
    plan = replace(plan, batching=masking.bound_memory(plan.batching, vocabulary, positions_kept=kept))
    settings = {"max_length": tokenizer.max_length, "short_cut": short_cut, "batching": str(plan.batching)}
    masked = TorchMaskedLM(short or network.full, tokenizer, plan, with_settings(info, settings), network)
    long = long_trial(layout.config, tokenizer.max_length)
    probe = masking.make_probe(masked, vocabulary, positions_kept=kept, dtype=lambda: options.dtype, long=long)
    return replace(probe, alone=network.network.why_alone).settle(masked)


@dataclass(frozen=True, eq=False)
class TorchMaskedLM(MaskedModel):
    network: _Hooked

    def top_tokens(self, texts: Sequence[str], k: int = 10) -> list[Halo]:
        """The semantic halo of each text, empty where it has no tokens of its own: the k tokens that the head puts
        first, among equals the earlier one, when it reads the mean of the hidden states at the text's own tokens.

        Special tokens are left out of the answer, not out of the probabilities.
        """
        if self.forward == self.network.full:
            raise InferenceError(f"the head of {self.info.model_id} mixes positions: it cannot read a pooled state")
        tokenized = self.tokenize(texts)
        scored = [i for i, text in enumerate(tokenized) if len(text.scored)]
        halos = [Halo((), (), ())] * len(texts)
        lengths = np.array([len(tokenized[i].ids) for i in scored], np.int64)
        pool = _Gather(self.network.model.base_model)

        def compute(rows: Ints) -> list[tuple[int, Halo]]:
            numbers = [scored[row] for row in rows]
            scores = self._read_means([tokenized[i] for i in numbers], pool)
            return [(i, self._best(tokenized[i], row, k)) for i, row in zip(numbers, scores, strict=True)]

        try:
            with self.work.one_core_each():
                for _, batch in answers(lengths, compute, self.work):
                    for i, halo in batch:
                        halos[i] = halo
        finally:
            pool.remove()
        return halos

    def _read_means(self, texts: Sequence[TokenizedText], pool: _Gather) -> Vectors:
        """Log-probabilities that the head gives at the mean of each text's states, -inf at special tokens."""
        batch = pad([masking.untyped(text.ids) for text in texts], self.tokenizer)
        weights = np.zeros(batch.ids.shape, np.float32)
        for i, text in enumerate(texts):
            weights[i, text.scored] = 1.0 / len(text.scored)
        logits = self.network.gathered(pool, batch, weights)
        scores = log_softmax(logits).astype(np.float32)[:, : self.tokenizer.vocab_size]
        special = np.array(self.tokenizer.special_ids, np.int64)
        scores[:, special[special < scores.shape[1]]] = -np.inf
        return scores

    def _best(self, text: TokenizedText, scores: Vectors, k: int) -> Halo:
        spell = self.tokenizer.spell
        top = np.argsort(-scores, kind="stable")[:k]
        top = top[np.isfinite(scores[top])]
        in_text = {plain(spell(int(id))) for id in text.ids[text.scored]}
        tokens = tuple(spell(int(id)) for id in top)
        return Halo(tokens, tuple(float(scores[id]) for id in top), tuple(plain(token) in in_text for token in tokens))


@dataclass(frozen=True, eq=False)
class _Hooked:
    """A network, with or without hooks."""

    network: Network

    @property
    def model(self) -> PreTrainedModel:
        return cast("PreTrainedModel", self.network.model)

    def run(self, batch: Batch) -> Logits:
        """Logits at all positions, or at those that a hook keeps: float32[b, s, vocabulary]."""
        return self.network.run(batch, "logits")

    def full(self, batch: Batch, positions: Ints) -> Logits:
        logits = self.run(batch)
        return np.asarray(logits[np.arange(len(logits)), positions])

    def gathered(self, gather: _Gather, batch: Batch, positions: Array) -> Logits:
        """Logits at one position [b] of each row, or at the mean of its states by weights [b, s]."""
        import torch

        gather.local.positions = torch.from_numpy(positions).to(self.network.device)
        try:
            logits = self.run(batch)
        finally:
            gather.local.positions = None
        if logits.shape[:2] != (len(batch.ids), 1):  # a head that pads, or cuts padding off, by the input's length
            raise InferenceError(f"one position was expected of each row, found logits {list(logits.shape)}")
        return np.asarray(logits[:, 0])

    def find_short_cut(self, tokenizer: MaskTokenizer, vocabulary: int, plan: Work) -> tuple[Forward | None, str]:
        """The model with a hook where it is exact and saves most, if any, and what the settings say of it."""
        worst = 0.0
        for name, module in _places(self.model, fixed=not self.network.changes_itself):
            gather = _Gather(module)
            short = partial(self.gathered, gather)
            try:
                worst = masking.difference(self.full, short, tokenizer, vocabulary, plan)
            except InferenceError:  # a layer, or the head, that needs all positions
                worst = float("inf")
            if worst <= masking.EXACT:
                return short, f"at the masked position from {name} on"
            gather.remove()
        why = f"the short cut differs by {worst:.1e}" if np.isfinite(worst) else "the model needs all positions"
        return None, f"none: the full pass is used ({why})"


class _Gather:
    """A forward hook that keeps one position per row, or a weighted mean of all. Each thread has its own positions."""

    def __init__(self, module: Module) -> None:
        self.local = threading.local()
        self.remove = module.register_forward_hook(self._hook).remove

    def _hook(self, module: Module, arguments: object, output: Any) -> Any:
        positions = getattr(self.local, "positions", None)
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


def _places(model: PreTrainedModel, *, fixed: bool) -> list[tuple[str, Module]]:
    """Where the hook may go, the most saving place first: the attention of the last layer, where layers are used once.
    Whether the residual is inside it, so that gathering there is exact, is for the comparison to show. A model whose
    layers are not `fixed` may do something else with a longer row than with those compared."""
    blocks = [module for name, module in model.named_modules() if name.endswith(".attention")]
    layers = getattr(model.config, "num_hidden_layers", 0)
    last = [("the last feed-forward", blocks[-1])] if fixed and blocks and len(blocks) == layers else []
    return [*last, ("the head", model.base_model)]


def plain(token: str) -> str:
    """A token without the marks of its vocabulary, case-folded: "##ing" and "Ing" are the same.

    >>> plain("##Ing"), plain("Ġdog"), plain("##")
    ('ing', 'dog', '##')
    """
    bare = token.removesuffix("</w>")
    for mark in _MARKS:
        bare = bare.removeprefix(mark)
    return (bare or token).casefold()
