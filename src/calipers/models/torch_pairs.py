"""Cross-encoders in PyTorch: transformers' sequence classifiers, and folders of sentence-transformers' CrossEncoder.

Both texts of a pair are one row of tokens. The activation on top of the logits is the one that the model's files name;
the name is looked up in a table of ours and nothing that a file names is imported.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from calipers.core import SILENT, ModelError, ModelInfo, Progress, RequestError
from calipers.models import heads
from calipers.models import torch_weights as weights
from calipers.models.batching import Batch, torch_threads
from calipers.models.heads import Head, HeadScorer, Pair, Scores
from calipers.models.options import ModelOptions
from calipers.models.source import Source
from calipers.models.tokenizer import open_tokenizer, read_json, transformers_backend
from calipers.models.torch_weights import TorchFolder

if TYPE_CHECKING:
    from sentence_transformers import CrossEncoder
    from tokenizers import Tokenizer as Backend
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


def load(source: Source, options: ModelOptions) -> TorchScorer | ModulesScorer:
    used = ("model_id", "revision", "prompt", "prompt_name", "max_length", "dtype", "device", "batch_tokens")
    options.refuse_others("a cross-encoder in PyTorch", *used, "batch_size", "allow_pickle", "trust_remote_code")
    opened = weights.open_folder(source, options)
    _refuse_embeddings(opened)
    tokenizer, backend = transformers_backend(opened.layout.transformer, trust_remote_code=options.trust_remote_code)
    why = _why_not_ours(opened, tokenizer)
    return _with_modules(opened, why) if why else _plain(opened, tokenizer, backend)


@dataclass(frozen=True, eq=False)
class TorchScorer(HeadScorer):
    """transformers' AutoModelForSequenceClassification, with batches and an activation of our own."""

    model: PreTrainedModel
    type_ids: bool  # whether the model reads them

    def logits(self, batch: Batch) -> Scores:
        return weights.compute_batch(self.model, batch, self.work.device, "logits", type_ids=self.type_ids)


def _plain(opened: TorchFolder, tokenizer: PreTrainedTokenizerBase, backend: Backend) -> TorchScorer:
    folder, settings = opened.layout.transformer, opened.settings
    plan = weights.work(opened.options)
    model = weights.load_weights("AutoModelForSequenceClassification", folder, opened.options)
    _refuse_random(model, folder, only="pooler")
    head = heads.read_head(opened.folder, opened.layout, labels=int(model.config.num_labels))
    takes_types = "token_type_ids" in inspect.signature(model.forward).parameters
    pairs = open_tokenizer(
        folder, max_length=settings.max_length, lower_case=settings.lower_case, pairs=True, backend=backend
    )
    info = _info(opened, head, "transformers", str(plan.batching))
    type_ids = "token_type_ids" in tokenizer.model_input_names and takes_types
    return TorchScorer(pairs, plan, info, head, settings.prompt, model, type_ids)


@dataclass(frozen=True, eq=False)
class ModulesScorer:
    """A model that needs more than a sequence classifier: sentence-transformers' CrossEncoder runs it."""

    model: CrossEncoder
    head: Head
    prompt: str
    rows: int  # a batch
    threads: int
    info: ModelInfo

    def score(self, pairs: Sequence[Pair], *, progress: Progress = SILENT) -> Scores:
        """float32[n], or float32[n, labels]; no pairs give no rows."""
        if not pairs:
            return self.head.none()
        items = [(a, b) for a, b in pairs]
        with torch_threads(self.threads):
            logits = weights.run_modules("Scoring", self.model.predict, items, self.rows, self.prompt, progress)
        return self.head.finish(logits)


def _with_modules(opened: TorchFolder, why: str) -> ModulesScorer:
    import torch

    options, settings, folder = opened.options, opened.settings, opened.folder
    if options.batch_tokens:
        raise RequestError(f"`batch_tokens` does not apply to {folder} ({why}): set `batch_size`")
    weights.work(options)  # refuses a device that is not here
    _refuse_named_code(folder, options)
    # Without the model's activation: ours is applied to the logits.
    model = weights.load_modules(
        "CrossEncoder", folder, options, max_length=settings.max_length, activation_fn=torch.nn.Identity()
    )
    if type(model.model).__name__.endswith("ForSequenceClassification"):
        _refuse_random(model.model, opened.layout.transformer)
    head = heads.read_head(folder, opened.layout, labels=int(model.num_labels))
    rows = weights.module_rows(options)
    info = _info(opened, head, f"sentence-transformers ({why})", f"{rows} rows a batch")
    return ModulesScorer(model, head, settings.prompt, rows, options.workers, info)


def _info(opened: TorchFolder, head: Head, through: str, batching: str) -> ModelInfo:
    settings = {"through": through, **heads.head_settings(head, opened.settings), "batching": batching}
    return weights.with_settings(opened.info, settings)


# --- which models are ours to run, and which are refused -------------------------------------------------------


def _why_not_ours(opened: TorchFolder, tokenizer: PreTrainedTokenizerBase) -> str:
    """What about a model only sentence-transformers can run; "" where that is nothing."""
    layout = opened.layout
    bert = read_json(layout.transformer / "sentence_bert_config.json")
    architectures = read_json(layout.transformer / "config.json").get("architectures") or [""]
    task = bert.get("transformer_task", "sequence-classification")
    modalities = bert.get("modality_config")
    chat = "message" in modalities if modalities else getattr(tokenizer, "chat_template", None)
    sides = {getattr(tokenizer, "padding_side", "right"), getattr(tokenizer, "truncation_side", "right")}
    reasons = {
        "its modules: " + ", ".join(layout.further): bool(layout.further),
        f"its task: {task}": task != "sequence-classification",
        "a causal language model": str(architectures[0]).endswith("ForCausalLM"),
        "a chat template": bool(chat),
        "its own processing": bool(bert.get("processing_kwargs")),
        "padding or truncation on the left": sides != {"right"},
        "modules kept in float32": bool(heads.general_settings(opened.folder).get("keep_in_fp32_modules")),
    }
    return "; ".join(reason for reason, holds in reasons.items() if holds)


def _refuse_embeddings(opened: TorchFolder) -> None:
    folder, layout = opened.folder, opened.layout
    pools = layout.pooling is not None or layout.normalize or any("Pooling" in name for name in layout.further)
    if pools and heads.general_settings(folder).get("model_type") != "CrossEncoder":
        raise ModelError(
            f"{folder} cannot score pairs: its modules.json pools token embeddings, so this is an embedding model; "
            "expected a sequence classifier or a CrossEncoder"
        )


def _refuse_random(model: PreTrainedModel, folder: Path, *, only: str = "") -> None:
    """Refuse a classifier whose head is not in the files: transformers would have made it up.

    `load_weights` reports every missing tensor but the pooler's, which encoders do not use and classifiers do.
    """
    prefix = f"{model.base_model_prefix}."
    head = [name for name in model.state_dict() if only in name and (not name.startswith(prefix) or "pooler" in name)]
    there = {name.removeprefix(prefix) for name in _weight_names(folder)} if head else set()
    missing = [name for name in head if name.removeprefix(prefix) not in there]
    if missing:
        raise ModelError(f"the weights in {folder} lack {len(missing)} tensors, {missing[0]!r} among them")


def _weight_names(folder: Path) -> Iterator[str]:
    """Names of the tensors in a folder's weights: from the headers, or from pickles that the user allows."""
    import torch
    from safetensors import safe_open

    files = sorted(folder.glob("*.safetensors"))
    for file in files:
        with safe_open(file, framework="np") as content:
            yield from content.keys()
    for file in () if files else sorted(folder.glob("pytorch_model*.bin")):
        yield from torch.load(file, map_location="meta", weights_only=True)


def _refuse_named_code(folder: Path, options: ModelOptions) -> None:
    """sentence-transformers imports the classes that a folder names: only its own may pass, unless all are trusted."""
    path = folder / "modules.json"
    if options.trust_remote_code or not path.exists():
        return
    for module in json.loads(path.read_text(encoding="utf-8")):
        kind = str(module.get("type"))
        if not kind.startswith("sentence_transformers."):
            raise ModelError(f"{path} names {kind}, code of its own: read it, then set `trust_remote_code`")
        place = folder / str(module.get("path")) / "config.json"
        if module.get("path") and "activation_function" in (config := read_json(place)):
            heads.find_activation(config["activation_function"], place)
