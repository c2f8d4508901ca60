"""ONNX Runtime: any graph that takes token ids and gives embeddings, the scores of pairs, or logits over a vocabulary.

The output is chosen by its shape, from one run: what a graph declares may be wrong or missing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np

from calipers.core import InferenceError, ModelError, ModelInfo, RequestError
from calipers.core.errors import install
from calipers.metrics.arrays import Ints, Vectors
from calipers.models import masking
from calipers.models.batching import Batch, Batching, Work
from calipers.models.heads import (
    HeadScorer,
    PooledEncoder,
    Scores,
    describe_head,
    head_settings,
    note_head,
    read_head,
    refuse_head,
)
from calipers.models.layout import (
    EncoderSettings,
    Layout,
    masked_length,
    open_tokenizer,
    prompt_settings,
    read_layout,
    settle,
    vector_settings,
)
from calipers.models.masking import Logits, MaskedModel, MaskTokenizer
from calipers.models.onnx_files import folder_name, graph_file, quantises, quantises_dynamically, settings_folder
from calipers.models.onnx_outputs import EMBEDDINGS, SCORES, EncoderOutput, choose_output, float_shapes, list_shapes
from calipers.models.onnx_session import Arrays, Graph, choose_provider, open_graph
from calipers.models.options import ModelOptions
from calipers.models.probe import BatchProbe, Run, long_trial
from calipers.models.source import Source
from calipers.models.tokenizer import USUAL_LIMIT, Tokenizer
from calipers.models.tokenizer_files import Config, first_line

_BATCH_TOKENS = 512  # fastest of 256 … 2048 for a 6 × 384 BERT on two cores (bench/similarity.py)
_USED = (
    "model_id",
    "file_name",
    "revision",
    "max_length",
    "device",
    "provider",
    "output",
    "batch_tokens",
    "batch_size",
)


@dataclass(frozen=True)
class OnnxModel:
    """An open graph and what its files say, whatever it computes. `folder` holds its tokenizer and settings."""

    file: Path
    folder: Path
    layout: Layout
    provider: str
    graph: Graph
    work: Work

    def shortest(self, *lengths: int | None) -> int | None:
        """The least of the lengths that are set, the graph's among them."""
        return min((n for n in (*lengths, self.graph.length) if n), default=None)

    def settle(self, options: ModelOptions, *, pairs: bool = False) -> tuple[EncoderSettings, Tokenizer]:
        settings = settle(self.layout, options)
        settings = replace(settings, max_length=self.shortest(settings.max_length))
        return settings, open_tokenizer(self.layout, max_length=settings.max_length, pairs=pairs)

    def try_outputs(self, batch: Batch, options: ModelOptions) -> Arrays:
        """What one batch gives, by the name of the output: the requested one, or all."""
        if options.output and options.output not in self.graph.outputs:
            raise RequestError(f"the graph has no output {options.output!r}: it has {', '.join(self.graph.outputs)}")
        try:
            arrays = self.graph.run(batch, [options.output] if options.output else None)
        except InferenceError as error:
            raise ModelError(f"the graph cannot be run on a short text: {error}") from error
        return {name: np.asarray(value) for name, value in arrays.items()}

    def probe(self, probe: BatchProbe, unpadded: Callable[[], Run]) -> BatchProbe:
        """A probe that knows of the graph's mask, and how a row runs without the padding of a fixed length."""
        return replace(probe, masked=self.graph.takes_mask, unpadded=unpadded)

    def long_trial(self, longest: int) -> int:
        """The tokens of the longest row to try; see `probe.long_trial`."""
        return long_trial(self.layout.config, longest, quantised=quantises(self.file))

    def dtype(self) -> str:
        """The coarsest numbers that the graph computes with, its quantised integers left aside."""
        try:
            from calipers.models import onnx_rewrite
        except ImportError:
            return "float32"
        return onnx_rewrite.coarsest(self.file)

    def free_graph(self) -> Graph:
        """The graph without its fixed shape, if the rest of it lets go of it."""
        try:
            from calipers.models import onnx_rewrite

            content = onnx_rewrite.free_shape(self.file)
            return open_graph(content, provider=self.provider, weights=self.file.parent)
        except Exception as error:  # onnx is not installed, or the graph cannot be freed
            raise InferenceError(f"{self.file} cannot be run in another shape: {first_line(error)}") from error

    def info(self, source: Source, options: ModelOptions, settings: Mapping[str, object]) -> ModelInfo:
        """What every ONNX model reports but its fingerprint, and the `settings` of its kind."""
        model_id = options.model_id or (folder_name(self.file) if source.path else source.reference)
        shape = {"shape": self.graph.dimensions, "batching": str(self.work.batching)}
        settings = {"provider": self.provider, **settings, **shape}
        return ModelInfo("onnx", model_id, str(self.file), options.device, "", settings)


def _open(source: Source, options: ModelOptions) -> OnnxModel:
    provider = choose_provider(options)
    file = graph_file(source, options)
    folder = settings_folder(file, options)
    layout = read_layout(folder)
    graph = open_graph(file, provider=provider)
    _refuse_other_shape(graph, file, options)
    if graph.rows:
        batching = Batching(None, graph.rows, f"the graph's shape is {graph.dimensions}")
    else:
        batching = free_batching(file, options)
    batching = replace(batching, fixed_rows=graph.rows, fixed_length=graph.length)
    return OnnxModel(file, folder, layout, provider, graph, Work(batching, options.workers))


def _refuse_other_shape(graph: Graph, file: Path, options: ModelOptions) -> None:
    """A graph whose shape is fixed takes batches of that shape and no others."""
    shape = f"{file.name}, whose shape is {graph.dimensions}"
    if graph.rows and (options.batch_tokens or options.batch_size not in (None, graph.rows)):
        raise RequestError(f"`{'batch_tokens' if options.batch_tokens else 'batch_size'}` is not supported for {shape}")
    if graph.length and (options.max_length or 0) > graph.length:
        raise RequestError(f"`max_length` must be at most {graph.length} for {shape}, found {options.max_length}")


def free_batching(file: Path, options: ModelOptions) -> Batching:
    """The batches of a graph whose shape leaves them free."""
    if options.batch_size or options.batch_tokens:
        return Batching(options.batch_tokens, options.batch_size, "as requested", forced=True)
    if quantises_dynamically(file):
        return Batching(None, 1, "the graph quantises activations per batch")
    return Batching(_BATCH_TOKENS, None, "")


# --- encoders -----------------------------------------------------------------------------------------------------


def load(source: Source, options: ModelOptions) -> OnnxEncoder:
    options.refuse_others("an ONNX graph", *_USED, "pooling", "normalize", "prompt", "prompt_name", "truncate_dim")
    model = _open(source, options)
    settings, tokenizer = model.settle(options)
    batch = model.work.pad(tokenizer.encode(["The quick brown fox."]), tokenizer)
    arrays = model.try_outputs(batch, options)
    chosen = choose_output(arrays, batch.ids.shape, tokenizer.vocab_size, model.layout.config, options)
    head = _refuse_head(model, chosen, settings, options)
    if chosen.pooled and options.pooling:
        raise RequestError(
            f"`pooling` is not supported for {model.file.name}: its output {chosen.name!r} is already pooled"
        )
    if (code := model.layout.own_code) and not chosen.pooled and options.pooling is None:
        raise ModelError(
            f"{model.folder} names {', '.join(code)}, code of its own that is not in the graph: "
            "set `pooling` to take the graph's token embeddings without it"
        )
    if not chosen.name:
        model, chosen = _read_states(model, batch, list(arrays))
    info = model.info(source, options, _reported(model, chosen, settings, tokenizer, options))
    info = replace(info, notes=(*_further_notes(model, chosen), *note_head(head)))
    encoder = OnnxEncoder(tokenizer, model.work, info, settings, model.graph, chosen.name, chosen.pooled)

    def unpadded() -> Run:
        return replace(encoder, graph=model.free_graph()).probe(model.dtype).run

    long = model.long_trial(tokenizer.max_length)
    return model.probe(encoder.probe(model.dtype, long), unpadded).settle(encoder)


def _refuse_head(model: OnnxModel, chosen: EncoderOutput, settings: EncoderSettings, options: ModelOptions) -> str:
    """Refuse a graph that was made for something else than embeddings, unless a pooling is requested: then its head."""
    if chosen.pooled:
        return ""
    trained = chosen.head or ("" if model.layout.pooling else describe_head(model.layout.config))
    if (settings.pooling_assumed or not chosen.name) and not options.pooling:
        refuse_head(trained, model.file)
    return trained if options.pooling else ""


def _read_states(model: OnnxModel, batch: Batch, outputs: list[str]) -> tuple[OnnxModel, EncoderOutput]:
    """The graph cut off before its head, which gives the token embeddings."""
    try:
        from calipers.models import onnx_states
    except ImportError as error:
        raise ModelError(f"the token embeddings of {model.file} are inside the graph: {install('torch')}") from error

    def cut(names: list[str]) -> Graph:
        content = onnx_states.with_outputs(model.file, names)
        return open_graph(content, provider=model.provider, name=str(model.file), weights=model.file.parent)

    names = onnx_states.find_states(model.file, outputs)
    shapes = float_shapes(cut(names).run(batch)) if names else {}
    fitting = [n for n in names if len(s := shapes.get(n, ())) == 3 and s[:2] == batch.ids.shape and s[2] > 1]
    if not fitting:
        raise ModelError(f"{model.file} gives no embeddings, and no token embeddings can be located before its head")
    return replace(model, graph=cut(fitting[:1])), EncoderOutput(fitting[0], pooled=False)


def _reported(
    model: OnnxModel, chosen: EncoderOutput, settings: EncoderSettings, tokenizer: Tokenizer, options: ModelOptions
) -> dict[str, object]:
    return {
        "output": chosen.name,
        "pooling": "in the graph" if chosen.pooled else settings.pooling,
        "pooling_assumed": settings.pooling_assumed and not chosen.pooled,
        "normalize": settings.normalize,
        **vector_settings(model.layout, settings),
        **prompt_settings(model.layout, settings, options),
        "max_length": tokenizer.max_length,
    }


def _further_notes(model: OnnxModel, chosen: EncoderOutput) -> tuple[str, ...]:
    further = ", ".join(model.layout.further)
    if not further or chosen.pooled:
        return ()
    return (
        f"the model's files name {further}, which is not in the graph and is not run: "
        "these are not the vectors that sentence-transformers gives",
    )


@dataclass(frozen=True, eq=False)
class OnnxEncoder(PooledEncoder):
    graph: Graph
    output: str
    pooled: bool  # in the graph

    def embed(self, batch: Batch) -> Vectors:
        return self.graph.forward(self.output)(batch)

    def tokens_to_skip(self, prompt: str) -> int:
        skip = super().tokens_to_skip(prompt)
        if skip and self.pooled:
            raise RequestError(
                f"{self.info.model_id} was trained without its prompt in the pooling, and its graph pools all tokens: "
                "set `prompt` to '', or choose an output of token embeddings with `ModelOptions.output`"
            )
        return skip


# --- cross-encoders -----------------------------------------------------------------------------------------------


def load_scorer(source: Source, options: ModelOptions) -> OnnxScorer:
    options.refuse_others("a cross-encoder in ONNX", *_USED, "prompt", "prompt_name")
    model = _open(source, options)
    settings, tokenizer = model.settle(options, pairs=True)
    output, labels = _find_scores(model, tokenizer, options)
    _refuse_embeddings(model.file, model.layout.config, labels)
    head = read_head(model.folder, model.layout, labels=labels)
    settings = replace(settings, max_length=tokenizer.max_length)
    info = model.info(source, options, {"through": "onnxruntime", "output": output, **head_settings(head, settings)})
    scorer = OnnxScorer(tokenizer, model.work, info, head, settings.prompt, model.graph, output)

    def unpadded() -> Run:
        return replace(scorer, graph=model.free_graph()).logits

    long = model.long_trial(tokenizer.max_length)
    return model.probe(scorer.probe(model.dtype, long), unpadded).settle(scorer)


@dataclass(frozen=True, eq=False)
class OnnxScorer(HeadScorer):
    graph: Graph
    output: str

    def logits(self, batch: Batch) -> Scores:
        return self.graph.forward(self.output)(batch).reshape(len(batch.ids), -1)


def _find_scores(model: OnnxModel, tokenizer: Tokenizer, options: ModelOptions) -> tuple[str, int]:
    """The output [b], [b, 1] or [b, labels] and its labels, found by running one pair."""
    batch = model.work.pad(tokenizer.encode_pairs([("bread", "The bakery opens.")]), tokenizer)
    arrays = model.try_outputs(batch, options)
    shapes = float_shapes(arrays)
    flat = {n: (*s, 1)[1] for n, s in shapes.items() if 1 <= len(s) <= 2 and s[0] == len(batch.ids)}
    named = {n: labels for n, labels in flat.items() if any(word in n.lower() for word in SCORES)}
    plain = {n: labels for n, labels in flat.items() if not any(word in n.lower() for word in EMBEDDINGS)}
    embeds = any(len(s) == 3 for s in shapes.values()) or bool(flat and not plain)
    chosen = flat if options.output else named or ({} if embeds else plain)
    if chosen:
        return next(iter(chosen.items()))
    if embeds:
        raise ModelError(
            f"the graph cannot score pairs, it gives {list_shapes(arrays)}: "
            "this is an embedding model or a masked language model"
        )
    raise ModelError(
        "the graph gives no scores: expected an output [batch], [batch, 1] or [batch, labels], "
        f"found {list_shapes(arrays)}"
    )


def _refuse_embeddings(file: Path, config: Config, labels: int) -> None:
    """A pooled embedding [b, d] has the shape of d labels: the config knows how many there are.

    >>> _refuse_embeddings(Path("m.onnx"), {"hidden_size": 384}, labels=384)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    calipers.core.errors.ModelError: m.onnx cannot score pairs: it gives 384 numbers for one ...
    """
    named = config.get("id2label")
    expected = len(named) if isinstance(named, dict) else None
    if (expected and labels != expected) or (expected is None and labels == config.get("hidden_size")):
        raise ModelError(
            f"{file} cannot score pairs: it gives {labels} numbers for one and its config.json names "
            f"{expected or 'no'} labels, so this is an embedding model, or the config is another model's"
        )


# --- masked language models: the graph is rewritten to read one position where that is exact ---------------------

_POSITIONS = "calipers_positions"  # the input of a rewritten graph


def load_masked(source: Source, options: ModelOptions) -> MaskedModel:
    options.refuse_others("a masked language model in ONNX", *_USED)
    model = _open(source, options)
    longest = model.shortest(masked_length(model.layout, options))
    tokenizer = MaskTokenizer(model.layout, max_length=longest or USUAL_LIMIT)
    output, vocabulary = _find_logits(model, tokenizer, options)
    short, short_cut = _find_short_cut(model, output, tokenizer, vocabulary)
    kept = 1 if short else tokenizer.max_length
    batching = masking.bound_memory(model.work.batching, vocabulary, positions_kept=kept)
    model = replace(model, work=replace(model.work, batching=batching))
    settings = {"output": output, "max_length": tokenizer.max_length, "short_cut": short_cut}
    info = model.info(source, options, settings)
    masked = MaskedModel(short or partial(_full, model.graph, output), tokenizer, model.work, info)
    make = partial(masking.make_probe, vocabulary=vocabulary, positions_kept=kept, dtype=model.dtype)
    make = partial(make, long=model.long_trial(tokenizer.max_length))

    def unpadded() -> Run:
        return make(replace(masked, forward=partial(_full, model.free_graph(), output))).run

    return model.probe(make(masked), unpadded).settle(masked)


def _full(graph: Graph, output: str, batch: Batch, positions: Ints) -> Logits:
    """The graph as it is: logits at every position, one of them kept."""
    logits = graph.run(batch, [output])[output]
    return np.asarray(logits[np.arange(len(logits)), positions], dtype=np.float32)


def _short(graph: Graph, output: str, batch: Batch, positions: Ints) -> Logits:
    """The rewritten graph: logits at one position."""
    logits = graph.run(batch, [output], {_POSITIONS: positions.reshape(-1, 1, 1)})[output]
    return np.asarray(logits[:, 0], dtype=np.float32)


def _find_logits(model: OnnxModel, tokenizer: MaskTokenizer, options: ModelOptions) -> tuple[str, int]:
    """The output [b, s, v] that is at least as wide as the vocabulary, found by running one row."""
    batching = model.work.batching
    batch = tokenizer.masks(batching.fixed_length or masking.SHORTEST, rows=batching.fixed_rows or 1)
    arrays = model.try_outputs(batch, options)
    wide = {name: v.shape[2] for name, v in arrays.items() if v.ndim == 3 and v.shape[:2] == batch.ids.shape}
    fitting = {name: width for name, width in wide.items() if width >= tokenizer.vocab_size}
    if not fitting:
        raise ModelError(
            f"the graph gives no logits over the vocabulary of {tokenizer.vocab_size} tokens: found "
            f"{list_shapes(arrays)}; it is not a masked language model, or the tokenizer does not fit"
        )
    name = max(fitting, key=lambda n: fitting[n])
    return name, fitting[name]


def _find_short_cut(
    model: OnnxModel, output: str, tokenizer: MaskTokenizer, vocabulary: int
) -> tuple[masking.Forward | None, str]:
    """The rewritten graph that is exact and saves most, if any, and what the settings say of it."""
    try:
        from calipers.models import onnx_rewrite
    except ImportError:
        return None, "none: rewriting the graph needs onnx (pip install onnx)"
    worst = None
    full = partial(_full, model.graph, output)
    for name, content in onnx_rewrite.read_at_position(model.file, output, _POSITIONS):
        try:
            weights = model.file.parent
            graph = open_graph(content, provider=model.provider, weights=weights, extra=[_POSITIONS])
            short = partial(_short, graph, output)
            worst = masking.difference(full, short, tokenizer, vocabulary, model.work)
        except Exception:  # a rewritten graph that does not load or run is one that is not taken
            worst = float("inf")
            continue
        if worst <= masking.EXACT:
            return short, f"at the masked position from {name} on"
    why = "the graph has no plain vocabulary projection" if worst is None else f"the short cut differs by {worst:.1e}"
    return None, f"none: the full pass is used ({why})"
