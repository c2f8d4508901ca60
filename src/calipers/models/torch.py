"""PyTorch encoders: a hub id or a folder, run by plain transformers where that is enough."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from calipers.core import SILENT, ModelInfo, Progress, RequestError
from calipers.metrics.arrays import Vectors
from calipers.models import torch_weights as weights
from calipers.models.batching import Batch
from calipers.models.layout import Layout, prompt_settings
from calipers.models.options import ModelOptions
from calipers.models.pooling import PooledEncoder
from calipers.models.source import Source
from calipers.models.tokenizer import open_tokenizer, read_json, transformers_backend
from calipers.models.torch_weights import TorchFolder

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer
    from transformers import PreTrainedModel


def load(source: Source, options: ModelOptions) -> TorchEncoder | ModulesEncoder:
    used = ("model_id", "revision", "pooling", "normalize", "prompt", "prompt_name", "max_length", "dtype", "device")
    options.refuse_others("PyTorch", *used, "batch_tokens", "batch_size", "allow_pickle", "trust_remote_code")
    opened = weights.open_folder(source, options)
    return _with_modules(opened) if opened.layout.further else _plain(opened)


@dataclass(frozen=True, eq=False)
class TorchEncoder(PooledEncoder):
    """transformers' AutoModel, with pooling and normalisation of our own."""

    model: PreTrainedModel

    def embed(self, batch: Batch) -> Vectors:
        has_types = bool(getattr(self.model.config, "type_vocab_size", 0))
        type_ids = has_types and bool(batch.type_ids.any())
        return weights.compute_batch(self.model, batch, self.work.device, "last_hidden_state", type_ids=type_ids)


def _plain(opened: TorchFolder) -> TorchEncoder:
    folder, settings, options = opened.layout.transformer, opened.settings, opened.options
    plan = weights.work(options)
    model = weights.load_weights("AutoModel", folder, options)
    _, backend = transformers_backend(folder, trust_remote_code=options.trust_remote_code)
    tokenizer = open_tokenizer(folder, max_length=settings.max_length, lower_case=settings.lower_case, backend=backend)
    info = _info(opened, "transformers", settings.pooling, str(plan.batching))
    return TorchEncoder(tokenizer, plan, info, settings, model)


@dataclass(frozen=True, eq=False)
class ModulesEncoder:
    """A model with modules beyond transformer, pooling and normalisation: sentence-transformers runs it."""

    model: SentenceTransformer
    prompt: str
    rows: int  # a batch
    info: ModelInfo

    def encode(self, texts: Sequence[str], *, prompt: str | None = None, progress: Progress = SILENT) -> Vectors:
        prompt = self.prompt if prompt is None else prompt
        return weights.run_modules("Encoding", self.model.encode, texts, self.rows, prompt, progress)


def _with_modules(opened: TorchFolder) -> ModulesEncoder:
    options, further = opened.options, opened.layout.further
    if options.pooling or options.normalize is not None:
        raise RequestError(
            f"`pooling` and `normalize` do not apply to {opened.folder}: it brings its own modules {list(further)}"
        )
    model = weights.load_modules("SentenceTransformer", opened.folder, options)
    model.max_seq_length = opened.settings.max_length
    rows = weights.module_rows(options)
    info = _info(opened, "sentence-transformers", "+".join(further), f"{rows} rows a batch")
    return ModulesEncoder(model, opened.settings.prompt, rows, info)


def _info(opened: TorchFolder, through: str, pooling: str, batching: str) -> ModelInfo:
    settings = {
        "through": through,
        "pooling": pooling,
        "pooling_assumed": opened.settings.pooling_assumed,
        "normalize": opened.settings.normalize,
        **prompt_settings(opened.layout, opened.settings, opened.options),
        "max_length": opened.settings.max_length,
        "batching": batching,
    }
    return weights.with_settings(opened.info, settings, _doubts(opened.layout))


def _doubts(layout: Layout) -> tuple[str, ...]:
    """A model that was trained for something else gives vectors too, and a score that means little."""
    made = str((read_json(layout.transformer / "config.json").get("architectures") or [""])[0])
    if layout.pooling is None and made.endswith(("ForMaskedLM", "ForSequenceClassification")):
        return (f"the weights are those of a {made}: an embedding model was expected",)
    return ()
