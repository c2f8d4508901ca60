"""PyTorch encoders and cross-encoders: a hub id or a folder, run by plain transformers where that is enough."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from calipers.core import SILENT, ModelError, ModelInfo, Progress, RequestError
from calipers.metrics.arrays import Vectors
from calipers.metrics.threads import torch_threads
from calipers.models import heads
from calipers.models import torch_modules as modules
from calipers.models import torch_weights as weights
from calipers.models.batching import Batch
from calipers.models.heads import Head, HeadScorer, Pair, PooledEncoder, Scores
from calipers.models.layout import prompt_settings, vector_settings
from calipers.models.options import ModelOptions
from calipers.models.probe import LEAST_LOGIT, TRIAL_TEXTS, long_trial
from calipers.models.shortening import Shortening
from calipers.models.source import Source
from calipers.models.tokenizer import USUAL_LIMIT
from calipers.models.tokenizer_files import Prepared, prepare
from calipers.models.torch_modules import ModulesRunner
from calipers.models.torch_network import Network
from calipers.models.torch_weights import TorchFolder

if TYPE_CHECKING:
    from transformers import PreTrainedModel


def load(source: Source, options: ModelOptions) -> TorchEncoder | ModulesEncoder:
    options.refuse_others("PyTorch", *weights.USED, "pooling", "normalize", "prompt", "prompt_name", "truncate_dim")
    opened = weights.open_folder(source, options)
    head = _trained_head(opened)
    if opened.layout.further and not (head and options.pooling):
        heads.refuse_head(head, opened.folder)
        return _with_modules(opened)
    if opened.settings.pooling_assumed:
        heads.refuse_head(head, opened.folder)
    folder, settings, plan = opened.layout.transformer, opened.settings, weights.work(options)
    network = Network(weights.load_encoder(folder, options, opened.layout.config_arguments), plan.device)
    info = _info(opened, "transformers", settings.pooling, str(plan.batching))
    info = replace(info, notes=(*info.notes, *heads.note_head(head)))
    encoder = TorchEncoder(opened.tokenizer(), plan, info, settings, network)
    long = long_trial(opened.layout.config, encoder.tokenizer.max_length)
    return replace(encoder.probe(lambda: options.dtype, long), alone=network.why_alone).settle(encoder)


def _trained_head(opened: TorchFolder) -> str:
    """The head that the weights were trained with (see `heads.describe_head`), "" for an embedding model."""
    layout = opened.layout
    if opened.general.get("model_type") == "CrossEncoder":
        return "a cross-encoder of sentence-transformers"
    pools = layout.pooling is not None or any("Pooling" in name for name in layout.further)
    if pools or not layout.config:
        return ""
    names = () if layout.config.get("architectures") else weights.weight_names(layout.transformer)
    return heads.describe_head(layout.config, names)


@dataclass(frozen=True, eq=False)
class TorchEncoder(PooledEncoder):
    """transformers' AutoModel, with pooling and normalisation of our own."""

    network: Network

    def embed(self, batch: Batch) -> Vectors:
        type_ids = bool(getattr(self.network.model.config, "type_vocab_size", 0)) and bool(batch.type_ids.any())
        return self.network.run(batch, "last_hidden_state", type_ids=type_ids)


@dataclass(frozen=True, eq=False)
class ModulesEncoder:
    """A model with modules beyond transformer, pooling and normalisation: sentence-transformers runs it."""

    runner: ModulesRunner[str]
    prompt: str
    shortening: Shortening
    info: ModelInfo
    routes: tuple[str, ...] = ()  # of its Router

    @property
    def truncated(self) -> int:
        """How many texts were cut so far."""
        return self.runner.tally.count

    def side(self, side: str) -> ModulesEncoder:
        return replace(self, runner=replace(self.runner, route=side)) if side in self.routes else self

    def encode(self, texts: Sequence[str], *, prompt: str | None = None, progress: Progress = SILENT) -> Vectors:
        prompt = self.prompt if prompt is None else prompt
        return self.shortening.apply(self.runner.run("Encoding", texts, prompt, progress))


def _with_modules(opened: TorchFolder) -> ModulesEncoder:
    options, further = opened.options, opened.layout.further
    if options.pooling or options.normalize is not None:
        raise RequestError(
            f"`pooling` and `normalize` do not apply to {opened.folder}: it brings its own modules {list(further)}"
        )
    if options.batch_tokens:
        raise RequestError(f"`batch_tokens` does not apply to {opened.folder} ({', '.join(further)}): set `batch_size`")
    has_transformer = bool(opened.layout.config)
    if options.max_length and not has_transformer and not opened.layout.routes:
        raise RequestError(f"`max_length` does not apply to {opened.folder}: it has no transformer whose texts are cut")
    model = modules.load_modules("SentenceTransformer", opened.folder, options)
    if has_transformer or options.max_length:
        model.max_seq_length = opened.settings.max_length
    elif opened.layout.routes:
        opened = replace(opened, settings=replace(opened.settings, max_length=model.max_seq_length))
    model.truncate_dim = None  # vectors are cut here
    prompt = opened.settings.prompt
    runner = ModulesRunner[str](Network(model, options.device), "encode", modules.choose_batching(options))
    choice, runner, notes = runner.settle([*TRIAL_TEXTS, *_long_texts(opened)], prompt, options.dtype)
    info = _info(opened, "sentence-transformers", "+".join(further), "")
    info = choice.report(info, runner.batching, notes)
    return ModulesEncoder(runner, prompt, opened.settings.shortening, info, opened.layout.routes)


_PAIRS = [("bread", "bread"), ("It rains.", "It falls."), ("It falls.", "It rains."), (TRIAL_TEXTS[-1], "bread")]


def _long_texts(opened: TorchFolder) -> list[str]:
    """Two texts that are about as long as a model must read to show all that it does; none where short ones do."""
    config = opened.layout.config
    words = long_trial(config, opened.settings.max_length or USUAL_LIMIT) if config else 0
    return ["bread " * (words * 3 // 4), "water " * words] if words else []


def _info(opened: TorchFolder, through: str, pooling: str, batching: str) -> ModelInfo:
    settings = {
        "through": through,
        "pooling": pooling,
        "pooling_assumed": opened.settings.pooling_assumed,
        "normalize": opened.settings.normalize,
        **vector_settings(opened.layout, opened.settings),
        **prompt_settings(opened.layout, opened.settings, opened.options),
        "max_length": opened.settings.max_length,
        "batching": batching,
    }
    return weights.with_settings(opened.info, settings)


# --- cross-encoders: transformers' sequence classifiers, and folders of sentence-transformers' CrossEncoder ------


def load_scorer(source: Source, options: ModelOptions) -> TorchScorer | ModulesScorer:
    options.refuse_others("a cross-encoder in PyTorch", *weights.USED, "prompt", "prompt_name")
    opened = weights.open_folder(source, options)
    _refuse_embeddings(opened)
    folder, prompt = opened.layout.transformer, opened.settings.prompt
    trust, arguments = options.trust_remote_code, opened.layout.tokenizer_arguments
    if why := _why_not_ours(opened, prepare(folder, arguments=arguments, trust_remote_code=trust)):
        return _scorer_with_modules(opened, why)
    plan = weights.work(options)
    kind, arguments = "AutoModelForSequenceClassification", opened.layout.config_arguments
    model = weights.load_weights(kind, folder, options, arguments)
    network = Network(model, plan.device)
    _refuse_random(model, folder, only="pooler")
    head = heads.read_head(opened.folder, opened.layout, labels=int(model.config.num_labels))
    info = _scorer_info(opened, head, "transformers", str(plan.batching))
    type_ids = "token_type_ids" in inspect.signature(model.forward).parameters
    scorer = TorchScorer(opened.tokenizer(pairs=True), plan, info, head, prompt, network, type_ids)
    long = long_trial(opened.layout.config, scorer.tokenizer.max_length)
    return replace(scorer.probe(lambda: options.dtype, long), alone=network.why_alone).settle(scorer)


@dataclass(frozen=True, eq=False)
class TorchScorer(HeadScorer):
    """transformers' AutoModelForSequenceClassification, with batches and an activation of our own."""

    network: Network
    type_ids: bool  # whether the model reads them

    def logits(self, batch: Batch) -> Scores:
        return self.network.run(batch, "logits", type_ids=self.type_ids)


@dataclass(frozen=True, eq=False)
class ModulesScorer:
    """A model that needs more than a sequence classifier: sentence-transformers' CrossEncoder runs it."""

    runner: ModulesRunner[Pair]
    head: Head
    prompt: str
    threads: int
    info: ModelInfo

    @property
    def truncated(self) -> int:
        """How many pairs were cut so far."""
        return self.runner.tally.count

    def score(self, pairs: Sequence[Pair], *, progress: Progress = SILENT) -> Scores:
        """float32[n], or float32[n, labels]; no pairs give no rows."""
        if not pairs:
            return self.head.none()
        with torch_threads(self.threads):
            logits = self.runner.run("Scoring", [(a, b) for a, b in pairs], self.prompt, progress)
        return self.head.finish(logits)


def _scorer_with_modules(opened: TorchFolder, why: str) -> ModulesScorer:
    import torch

    options, settings, folder = opened.options, opened.settings, opened.folder
    if options.batch_tokens:
        raise RequestError(f"`batch_tokens` does not apply to {folder} ({why}): set `batch_size`")
    weights.work(options)  # refuses a device that is not here
    # Without the model's activation: ours is applied to the logits.
    model = modules.load_modules(
        "CrossEncoder", folder, options, max_length=settings.max_length, activation_fn=torch.nn.Identity()
    )
    if type(model.model).__name__.endswith("ForSequenceClassification"):
        _refuse_random(model.model, opened.layout.transformer)
    head = heads.read_head(folder, opened.layout, labels=int(model.num_labels))
    runner = ModulesRunner[Pair](Network(model, options.device), "predict", modules.choose_batching(options))
    pairs = [*_PAIRS, *((text, "bread") for text in _long_texts(opened))]
    choice, runner, notes = runner.settle(pairs, settings.prompt, options.dtype, LEAST_LOGIT)
    info = _scorer_info(opened, head, f"sentence-transformers ({why})", "")
    info = choice.report(info, runner.batching, notes)
    return ModulesScorer(runner, head, settings.prompt, options.workers, info)


def _scorer_info(opened: TorchFolder, head: Head, through: str, batching: str) -> ModelInfo:
    settings = {"through": through, **heads.head_settings(head, opened.settings), "batching": batching}
    return weights.with_settings(opened.info, settings)


def _why_not_ours(opened: TorchFolder, tokenizer: Prepared) -> str:
    """What about a model only sentence-transformers can run; "" where that is nothing."""
    layout = opened.layout
    task = layout.task or "sequence-classification"
    reasons = {
        "its modules: " + ", ".join(layout.further): bool(layout.further),
        f"its task: {task}": task != "sequence-classification",
        "a causal language model": opened.architecture.endswith("ForCausalLM"),
        "a chat template": tokenizer.chat and not layout.modalities,
        "padding on the left": tokenizer.padding_side != "right",
        "modules kept in float32": bool(opened.general.get("keep_in_fp32_modules")),
    }
    return "; ".join(reason for reason, holds in reasons.items() if holds)


def _refuse_embeddings(opened: TorchFolder) -> None:
    layout = opened.layout
    pools = layout.pooling is not None or layout.normalize or any("Pooling" in name for name in layout.further)
    if pools and opened.general.get("model_type") != "CrossEncoder":
        raise ModelError(
            f"{opened.folder} cannot score pairs: its modules.json pools token embeddings, so this is an embedding "
            "model; expected a sequence classifier or a CrossEncoder"
        )


def _refuse_random(model: PreTrainedModel, folder: Path, *, only: str = "") -> None:
    """Refuse a classifier whose head is not in the files: transformers would have made it up. `load_weights` reports
    every missing tensor but the pooler's, which encoders do not use and classifiers do."""
    prefix = f"{model.base_model_prefix}."
    head = [name for name in model.state_dict() if only in name and (not name.startswith(prefix) or "pooler" in name)]
    there = {name.removeprefix(prefix) for name in weights.weight_names(folder)} if head else set()
    missing = [name for name in head if name.removeprefix(prefix) not in there]
    if missing:
        raise ModelError(f"the weights in {folder} lack {len(missing)} tensors, {missing[0]!r} among them")
