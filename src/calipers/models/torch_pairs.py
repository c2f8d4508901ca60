"""Cross-encoders in PyTorch: transformers' sequence classifiers, and folders of sentence-transformers' CrossEncoder.

Both texts of a pair are one row of tokens. The activation on top of the logits is the one that the model's files ask
for; its name is looked up in a table of ours and nothing that a file names is imported.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from calipers.core import SILENT, InferenceError, ModelError, ModelInfo, Progress, RequestError
from calipers.models import batching
from calipers.models.heads import Pair, Scores, find_activation, general_settings, read_head, told_settings
from calipers.models.layout import EncoderSettings, Layout, read_layout, settle
from calipers.models.options import ModelOptions
from calipers.models.source import Source
from calipers.models.tokenizer import USUAL_LIMIT, Tokenizer, first_line, pad_id, read_json, transformers_backend
from calipers.models.torch_weights import fetch_folder, load_weights, model_info, single_threaded, torch_threads, work

_ROWS = 32  # pairs a batch where sentence-transformers runs the model


def load(source: Source, options: ModelOptions) -> TorchScorer | ModulesScorer:
    used = ("model_id", "revision", "prompt", "prompt_name", "max_length", "dtype", "device")
    options.refuse_others(
        "a cross-encoder in PyTorch", *used, "batch_tokens", "batch_size", "allow_pickle", "trust_remote_code"
    )
    folder = fetch_folder(source, options)
    layout = read_layout(folder)
    _refuse_embeddings(folder, layout)
    settings = settle(layout, options)
    settings = replace(settings, max_length=settings.max_length or USUAL_LIMIT)
    info = model_info(source, folder, options)
    tokenizer, backend = transformers_backend(layout.transformer, trust_remote_code=options.trust_remote_code)
    why = _why_not_ours(folder, layout, tokenizer)
    if why:
        return ModulesScorer(folder, layout, settings, options, info, why)
    return TorchScorer(folder, layout, settings, options, info, (tokenizer, backend))


class TorchScorer:
    """transformers' AutoModelForSequenceClassification, with batches and an activation of our own."""

    def __init__(
        self,
        folder: Path,
        layout: Layout,
        settings: EncoderSettings,
        options: ModelOptions,
        info: ModelInfo,
        tokenizer: tuple[Any, Any],
    ) -> None:
        self._settings = settings
        self._work = work(options)
        self._model = load_weights("AutoModelForSequenceClassification", layout.transformer, options)
        _refuse_random(self._model, layout.transformer, only="pooler")
        self._head = read_head(folder, layout, labels=int(self._model.config.num_labels))
        self._type_ids = "token_type_ids" in tokenizer[0].model_input_names and takes(self._model, "token_type_ids")
        self._tokenizer = Tokenizer(
            tokenizer[1],
            max_length=settings.max_length,
            pad_id=pad_id(layout.transformer, tokenizer[1]),
            lower_case=settings.lower_case,
            pairs=True,
        )
        told = {"through": "transformers", **told_settings(self._head, settings), "batching": str(self._work.batching)}
        self.info = replace(info, settings={**info.settings, **told})

    def score(self, pairs: Sequence[Pair], *, progress: Progress = SILENT) -> Scores:
        """float32[n], or float32[n, labels]; no pairs give no rows."""
        if not pairs:
            return self._head.none()
        with single_threaded(self._work):
            logits = batching.score(
                [(self._settings.prompt + a, b) for a, b in pairs],
                tokenizer=self._tokenizer,
                forward=self._forward,
                batching=self._work.batching,
                workers=self._work.workers,
                progress=progress,
            )
        return self._head.finish(logits)

    def _forward(self, batch: batching.Batch) -> Scores:
        import torch

        inputs = {"input_ids": batch.ids, "attention_mask": batch.mask}
        if self._type_ids:
            inputs["token_type_ids"] = batch.type_ids
        try:
            with torch.inference_mode():
                tensors = {name: torch.from_numpy(a).to(self._work.device) for name, a in inputs.items()}
                logits = self._model(**tensors).logits
        except Exception as error:
            raise InferenceError(f"the model failed on a batch of {batch.ids.shape}: {first_line(error)}") from error
        return np.asarray(logits.float().cpu().numpy())


class ModulesScorer:
    """A model that needs more than a sequence classifier: sentence-transformers' CrossEncoder runs it."""

    def __init__(
        self,
        folder: Path,
        layout: Layout,
        settings: EncoderSettings,
        options: ModelOptions,
        info: ModelInfo,
        why: str,
    ) -> None:
        if options.batch_tokens:
            raise RequestError(f"--batch-tokens does not apply to {folder} ({why}): give --batch-size")
        work(options)  # refuses a device that is not here
        self._prompt = settings.prompt
        self._rows = options.batch_size or _ROWS
        self._threads = options.workers
        self._model = _load_cross_encoder(folder, settings, options)
        self._head = read_head(folder, layout, labels=int(self._model.num_labels))
        told = {
            "through": f"sentence-transformers ({why})",
            **told_settings(self._head, settings),
            "batching": f"{self._rows} rows a batch",
        }
        self.info = replace(info, settings={**info.settings, **told})

    def score(self, pairs: Sequence[Pair], *, progress: Progress = SILENT) -> Scores:
        """float32[n], or float32[n, labels]; no pairs give no rows."""
        if not pairs:
            return self._head.none()
        distinct = sorted(dict.fromkeys((a, b) for a, b in pairs), key=lambda pair: -len(pair[0]) - len(pair[1]))
        position = {pair: i for i, pair in enumerate(distinct)}
        with torch_threads(self._threads):
            logits = np.concatenate(list(self._batches(distinct, progress)))
        return self._head.finish(logits)[[position[a, b] for a, b in pairs]]

    def _batches(self, distinct: list[Pair], progress: Progress) -> Iterator[Scores]:
        progress.start("Scoring", len(distinct))
        for start in range(0, len(distinct), self._rows):
            rows = distinct[start : start + self._rows]
            try:
                # "" is no prompt, where None would be the model's default
                found = self._model.predict(rows, batch_size=len(rows), prompt=self._prompt, show_progress_bar=False)
            except Exception as error:
                message = f"sentence-transformers failed on {len(rows)} pairs: {first_line(error)}"
                raise InferenceError(message) from error
            yield np.asarray(found, dtype=np.float32).reshape(len(rows), -1)
            progress.advance(len(rows))


def _load_cross_encoder(folder: Path, settings: EncoderSettings, options: ModelOptions) -> Any:
    """The model without its activation, which is ours to apply."""
    import torch

    _refuse_named_code(folder, options)
    try:
        from sentence_transformers import CrossEncoder
    except ImportError as error:
        raise ModelError(f"{folder} needs it: pip install sentence-transformers") from error
    arguments = {"dtype": getattr(torch, options.dtype), "use_safetensors": None if options.allow_pickle else True}
    try:
        model = CrossEncoder(
            str(folder),
            device=options.device,
            max_length=settings.max_length,
            activation_fn=torch.nn.Identity(),
            trust_remote_code=options.trust_remote_code,
            local_files_only=True,
            model_kwargs=arguments,
        ).to(arguments["dtype"])
    except Exception as error:
        raise ModelError(f"sentence-transformers cannot load {folder}: {first_line(error)}") from error
    if type(model.model).__name__.endswith("ForSequenceClassification"):
        _refuse_random(model.model, read_layout(folder).transformer)
    return model.eval()


# --- which models are ours to run, and which are refused -------------------------------------------------------


def _why_not_ours(folder: Path, layout: Layout, tokenizer: Any) -> str:
    """What about a model only sentence-transformers knows how to run; "" where that is nothing."""
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
        "modules kept in float32": bool(general_settings(folder).get("keep_in_fp32_modules")),
    }
    return "; ".join(reason for reason, holds in reasons.items() if holds)


def _refuse_embeddings(folder: Path, layout: Layout) -> None:
    pools = layout.pooling is not None or layout.normalize or any("Pooling" in name for name in layout.further)
    if pools and general_settings(folder).get("model_type") != "CrossEncoder":
        raise ModelError(
            f"{folder} cannot score pairs: its modules.json pools token embeddings, so this is an embedding model; "
            "expected a sequence classifier or a CrossEncoder"
        )


def _refuse_random(model: Any, folder: Path, *, only: str = "") -> None:
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
    """Names of the tensors in a folder's weights: from the headers, or from what --allow-pickle let us open."""
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
            raise ModelError(f"{path} names {kind}, code of its own: read it, then pass --trust-remote-code")
        place = folder / str(module.get("path")) / "config.json"
        if module.get("path") and "activation_function" in (config := read_json(place)):
            find_activation(config["activation_function"], place)


def takes(model: Any, name: str) -> bool:
    return name in inspect.signature(model.forward).parameters


# --- labels and activation: what a CrossEncoder folder says of its head -----------------------------------------
