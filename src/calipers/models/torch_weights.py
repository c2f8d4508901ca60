"""PyTorch weights from a folder or the hub, loaded safely and run on batches."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from calipers.core import ModelError, ModelInfo, RequestError
from calipers.core.errors import install
from calipers.models import hub
from calipers.models.batching import Batching, Work
from calipers.models.layout import (
    EncoderSettings,
    Layout,
    open_tokenizer,
    read_layout,
    read_modules,
    settle,
)
from calipers.models.options import ModelOptions
from calipers.models.safety import check_folder, pickled
from calipers.models.source import Source
from calipers.models.tokenizer import USUAL_LIMIT, Tokenizer
from calipers.models.tokenizer_files import Config, first_line, read_json

if TYPE_CHECKING:
    from transformers import PreTrainedModel

_WEIGHTS = ("*.safetensors", "*.safetensors.index.json", "*/*.safetensors")
_PICKLED = ("*.bin", "*.bin.index.json", "*/*.bin")
USED = (  # options that every PyTorch model takes
    "model_id", "revision", "max_length", "dtype", "device", "batch_tokens", "batch_size", "allow_pickle",
    "trust_remote_code",
)  # fmt: skip
# Of 512 … 4096 for a 6 × 384 BERT on two cores: more pad more, fewer read a large head more often.
_CPU_TOKENS = 1_024  # bench/similarity.py, bench/fill_mask.py
_DEVICE_TOKENS = 2_048  # not measured
_KINDS = {
    "AutoModel": "an encoder",
    "AutoModelForMaskedLM": "a masked language model",
    "AutoModelForSequenceClassification": "a cross-encoder",
}


def fetch_folder(source: Source, options: ModelOptions) -> Path:
    """The model's folder, and PyTorch ready to load from it."""
    folder = find_folder(source, options)
    require_torch()
    return folder


def require_torch() -> None:
    """Import PyTorch and transformers, which takes seconds, and keep transformers quiet."""
    try:
        import torch  # noqa: F401
        import transformers
    except ImportError as error:
        raise ModelError(f"PyTorch models need {error.name}: {install('torch')}") from error
    transformers.utils.logging.disable_progress_bar()
    transformers.utils.logging.set_verbosity_error()


def find_folder(source: Source, options: ModelOptions) -> Path:
    """The model's folder on this machine, once it is clear that loading it runs no code without permission."""
    folder = source.path or hub.fetch(
        source.reference,
        revision=options.revision,
        patterns=[*hub.SETTINGS, *_WEIGHTS, "*.py", *(_PICKLED if options.allow_pickle else ())],
    )
    if not folder.is_dir():
        raise ModelError(f"a PyTorch model is a folder or a hub id, found the file {folder}")
    check_folder(source, folder, options)
    transformer, modules = read_layout(folder).transformer, read_modules(folder)
    if not modules or any(module.kind == "Transformer" for module in modules):
        _refuse_no_weights(transformer, options)
    return folder


@dataclass(frozen=True)
class TorchFolder:
    """A folder of PyTorch weights that makes vectors or scores, and how it is to be run."""

    folder: Path
    layout: Layout
    settings: EncoderSettings
    options: ModelOptions
    info: ModelInfo

    @property
    def general(self) -> Config:
        return read_json(self.folder / "config_sentence_transformers.json")

    @property
    def architecture(self) -> str:
        return str((read_json(self.layout.transformer / "config.json").get("architectures") or [""])[0])

    def tokenizer(self, *, pairs: bool = False) -> Tokenizer:
        trust, length = self.options.trust_remote_code, self.settings.max_length
        return open_tokenizer(self.layout, max_length=length, pairs=pairs, trust_remote_code=trust)


def open_folder(source: Source, options: ModelOptions) -> TorchFolder:
    folder = fetch_folder(source, options)
    layout = read_layout(folder)
    settings = settle(layout, options)
    settings = replace(settings, max_length=settings.max_length or USUAL_LIMIT)
    return TorchFolder(folder, layout, settings, options, model_info(source, folder, options))


# Families of encoder–decoders whose encoder alone makes the vectors, as in sentence-transformers: the module below
# `transformers` and the class in it.
_ENCODERS_ALONE = {
    "t5": ("", "T5EncoderModel"),
    "mt5": ("", "MT5EncoderModel"),
    "umt5": ("", "UMT5EncoderModel"),
    "longt5": ("", "LongT5EncoderModel"),
    "t5gemma": ("", "T5GemmaEncoderModel"),
    "switch_transformers": ("", "SwitchTransformersEncoderModel"),
    "prophetnet": ("", "ProphetNetEncoder"),
    "blenderbot": (".models.blenderbot.modeling_blenderbot", "BlenderbotEncoder"),
    "blenderbot-small": (".models.blenderbot_small.modeling_blenderbot_small", "BlenderbotSmallEncoder"),
    "m2m_100": (".models.m2m_100.modeling_m2m_100", "M2M100Encoder"),
    "pegasus": (".models.pegasus.modeling_pegasus", "PegasusEncoder"),
    "pegasus_x": (".models.pegasus_x.modeling_pegasus_x", "PegasusXEncoder"),
    "marian": (".models.marian.modeling_marian", "MarianEncoder"),
}


def load_encoder(
    folder: Path, options: ModelOptions, config_arguments: Mapping[str, object] | None = None
) -> PreTrainedModel:
    """What makes vectors of tokens: transformers' AutoModel, or the encoder of an encoder–decoder."""
    family = str(read_json(folder / "config.json").get("model_type"))
    module, kind = _ENCODERS_ALONE.get(family, ("", "AutoModel"))
    alone = {"is_encoder_decoder": False} if family == "t5gemma" else {}
    return load_weights(kind, folder, options, {**(config_arguments or {}), **alone}, module=module)


def load_weights(
    kind: str,
    folder: Path,
    options: ModelOptions,
    config_arguments: Mapping[str, object] | None = None,
    *,
    module: str = "",
) -> PreTrainedModel:
    """A model of the transformers class `kind`, in the dtype of the options, its config changed by the arguments."""
    import torch

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model, report = getattr(importlib.import_module(f"transformers{module}"), kind).from_pretrained(
                str(folder),
                dtype=getattr(torch, options.dtype),
                use_safetensors=None if options.allow_pickle else True,
                trust_remote_code=options.trust_remote_code,
                output_loading_info=True,
                **_changed_config(folder, config_arguments or {}, options),
            )
    except Exception as error:
        raise ModelError(f"PyTorch cannot load {folder}: {first_line(error)}") from error
    # A pooler is used nowhere here; anything else that the weights lack would be random numbers.
    missing = [key for key in report["missing_keys"] if "pooler" not in key]
    if missing:
        raise ModelError(
            f"the weights in {folder} do not make {_KINDS.get(kind, 'an encoder')}: they lack {len(missing)} tensors, "
            f"{missing[0]!r} among them"
        )
    return model.to(options.device).eval()


def weight_names(folder: Path) -> Iterator[str]:
    """Names of the tensors in a folder's weights: from the headers, or from pickles that the user allows."""
    import torch
    from safetensors import safe_open

    files = sorted(folder.glob("*.safetensors"))
    for file in files:
        with safe_open(file, framework="np") as content:
            yield from content.keys()
    for file in () if files else sorted(folder.glob("pytorch_model*.bin")):
        yield from torch.load(file, map_location="meta", weights_only=True)


def _changed_config(folder: Path, arguments: Mapping[str, object], options: ModelOptions) -> dict[str, object]:
    """The argument `config` of from_pretrained, where the model's files change it."""
    from transformers import AutoConfig

    trust = options.trust_remote_code
    return {"config": AutoConfig.from_pretrained(folder, trust_remote_code=trust, **arguments)} if arguments else {}


def work(options: ModelOptions) -> Work:
    """How the model's work is spread, once it is clear that the device can be used."""
    import torch

    try:
        torch.empty(1, device=options.device)
    except Exception as error:
        raise RequestError(f"PyTorch cannot use the device {options.device!r} here: {first_line(error)}") from error
    return Work(choose_batching(options), options.workers if options.device == "cpu" else 1, options.device)


def choose_batching(options: ModelOptions) -> Batching:
    if options.batch_size or options.batch_tokens:
        return Batching(options.batch_tokens, options.batch_size, "as requested", forced=True)
    return Batching(_CPU_TOKENS if options.device == "cpu" else _DEVICE_TOKENS, None, "")


def model_info(source: Source, folder: Path, options: ModelOptions) -> ModelInfo:
    """What every PyTorch model reports but its fingerprint; `with_settings` adds the settings of its kind."""
    model_id = options.model_id or (folder.name if source.path else source.reference)
    settings = {"dtype": options.dtype, "revision": options.revision}
    return ModelInfo("torch", model_id, str(folder), options.device, "", settings)


def with_settings(info: ModelInfo, settings: Mapping[str, object]) -> ModelInfo:
    return replace(info, settings={**info.settings, **settings})


def _refuse_no_weights(folder: Path, options: ModelOptions) -> None:
    if options.allow_pickle or any(folder.glob("*.safetensors")):
        return
    if names := [p.name for pattern in ("*.bin", "*.pt", "*.pth") for p in folder.glob(pattern)]:
        raise pickled(folder, names[0])
    raise ModelError(f"there are no weights in {folder}: expected model.safetensors")
