"""What a model folder says about itself: the files that sentence-transformers writes beside the weights."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from calipers.core import ModelError, RequestError
from calipers.core.choices import POOLINGS
from calipers.core.errors import quote
from calipers.core.inputs import below, load_json
from calipers.models.options import ModelOptions
from calipers.models.shortening import Shortening, shorten
from calipers.models.tokenizer import USUAL_LIMIT, Tokenizer, first_position, longest_input, pad_id
from calipers.models.tokenizer_files import Config, prepare, read_json

Entry = TypeVar("Entry", int, str, dict[str, Any])

# Names of pooling modes: in the older file format, in the newer one, and ours.
_OLD_POOLING = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
}
_OURS = {mode: mode for mode in POOLINGS} | {"lasttoken": "last"}


# The names of the file in which sentence-transformers keeps the settings of a Transformer: the first one counts.
_SENTENCE = [
    f"sentence_{family}_config.json"
    for family in ("bert", "roberta", "distilbert", "camembert", "albert", "xlm-roberta", "xlnet")
]
_PLAIN = ("Transformer", "Pooling", "Normalize")
_PLAIN_OUTPUTS = (None, "last_hidden_state", "logits")
# The classes that a model may name: of sentence-transformers, by the places of its versions 5 and 6.
_CLASSES = {
    *("Asym", "BoW", "CLIPModel", "CNN", "Dense", "Dropout", "LSTM", "LayerNorm", "LogitScore", "MLMTransformer"),
    *("Normalize", "Pooling", "Router", "SparseAutoEncoder", "SparseStaticEmbedding", "SpladePooling"),
    *("StaticEmbedding", "Transformer", "WeightedLayerPooling", "WordEmbeddings", "WordWeights"),
}
_CLASS = re.compile(
    r"sentence_transformers\.(?:models|(?:base|sentence_transformer|cross_encoder|sparse_encoder)\.(?:modules|models))"
    r"(?:\.(?P<file>[A-Za-z_]+))?\.(?P<name>[A-Za-z]+)"
)
_PLAIN_TASKS = ("feature-extraction", "sequence-classification")
# Arguments of from_pretrained that change no number here, or that options of ours replace.
_HARMLESS = {
    *("attn_implementation", "dtype", "torch_dtype", "add_pooling_layer", "use_safetensors", "device_map", "use_cache"),
    *("low_cpu_mem_usage", "file_name", "provider", "providers", "export", "trust_remote_code"),
}
# How a tokenizer is called: what is honoured here, and what changes no number.
_HONOURED = {"max_length", "add_special_tokens"}
_NEUTRAL = {"padding", "return_tensors", "return_attention_mask", "pad_to_multiple_of", "return_token_type_ids"}


@dataclass(frozen=True)
class Layout:
    """How a folder says its vectors are made. `further` is what only sentence-transformers runs."""

    transformer: Path
    config: Config = field(default_factory=dict)  # config.json with `config_arguments`
    pooling: str | None = None
    normalize: bool = False
    max_length: int | None = None
    longest: int | None = None  # the most tokens that the model takes
    lower_case: bool = False
    special_tokens: bool = True
    tokenizer_arguments: Mapping[str, Any] = field(default_factory=dict)
    config_arguments: Mapping[str, Any] = field(default_factory=dict)
    prompts: Mapping[str, str] = field(default_factory=dict)
    default_prompt_name: str | None = None
    include_prompt: bool = True  # False: the prompt's tokens are left out of the pooling
    truncate_dim: int | None = None  # how many numbers of a vector are kept
    similarity_fn_name: str | None = None  # how vectors are compared
    routes: tuple[str, ...] = ()  # of a Router: "query" and "document", or others
    task: str | None = None  # the transformer_task of sentence-transformers
    modalities: bool = False  # whether its files say which kinds of input are taken
    further: tuple[str, ...] = ()

    @property
    def first_position(self) -> int:
        return first_position(self.config)

    @property
    def own_code(self) -> list[str]:
        """The modules that are the model's own code: only their names have dots."""
        return [name for name in self.further if "." in name]


@dataclass(frozen=True)
class EncoderSettings:
    """The layout, overridden by the user's options, with defaults where neither says anything."""

    pooling: str
    pooling_assumed: bool
    normalize: bool
    max_length: int | None
    lower_case: bool
    prompt: str
    include_prompt: bool
    shortening: Shortening


def read_layout(folder: Path) -> Layout:
    modules = read_modules(folder)
    transformer = folder / next((m.path for m in modules if m.kind == "Transformer"), "")
    sentence = _read_sentence(transformer)
    described = folder / "config_sentence_transformers.json"
    general = read_json(described)
    prompts = {
        name: text for name, text in (_entry(general, "prompts", dict, described) or {}).items() if text is not None
    }
    for name in prompts:
        _entry(prompts, name, str, described)
    pooling, include_prompt, odd = _pooling(folder, modules)
    call = _call(sentence)
    config_arguments, tokenizer_arguments = _arguments(sentence, "config"), _arguments(sentence, "tokenizer")
    config = read_json(transformer / "config.json") | config_arguments
    declared = tokenizer_arguments.get("model_max_length") or sentence.get("max_seq_length")
    own = read_json(transformer / "tokenizer_config.json").get("model_max_length")
    longest = longest_input(config, own if declared is None else declared)
    lengths = [n for n in (call.get("max_length"), longest) if isinstance(n, int) and not isinstance(n, bool)]
    return Layout(
        transformer=transformer,
        config=config,
        pooling=pooling,
        normalize=any(m.kind == "Normalize" for m in modules),
        max_length=min(lengths, default=None),
        longest=longest_input(config, own) if declared is None else longest_input(config),
        lower_case=bool(sentence.get("do_lower_case")),
        special_tokens=call.get("add_special_tokens", True) is not False,
        tokenizer_arguments=tokenizer_arguments,
        config_arguments=config_arguments,
        prompts=prompts,
        default_prompt_name=_entry(general, "default_prompt_name", str, described),
        include_prompt=include_prompt,
        truncate_dim=_size(general.get("truncate_dim")),
        similarity_fn_name=_entry(general, "similarity_fn_name", str, described),
        routes=_routes(folder, modules),
        task=sentence.get("transformer_task"),
        modalities=bool(sentence.get("modality_config")),
        further=(*(m.kind for m in modules if m.kind not in _PLAIN), *odd, *_beyond(sentence, call)),
    )


def router_configs(folder: Path, modules: Sequence[Module]) -> dict[Path, Config]:
    """What the Routers of a model say of their routes, by the folder of each."""
    places = [folder / module.path for module in modules if module.kind == "Router"]
    return {place: read_json(place / "router_config.json") for place in places}


def _routes(folder: Path, modules: Sequence[Module]) -> tuple[str, ...]:
    structures = [config.get("structure") for config in router_configs(folder, modules).values()]
    return tuple(str(name) for structure in structures if isinstance(structure, dict) for name in structure)


def _read_sentence(transformer: Path) -> Config:
    """What sentence-transformers says about a Transformer: of the first of its files that says anything."""
    for file in (transformer / name for name in _SENTENCE):
        if content := read_json(file):
            _entry(content, "max_seq_length", int, file)
            return content
    return {}


def _entry(content: Config, name: str, kind: type[Entry], file: Path) -> Entry | None:
    """A value of a settings file; one of another type is a fault of the model."""
    value = content.get(name)
    if value is None or (isinstance(value, kind) and not isinstance(value, bool)):
        return value
    expected = {int: "a whole number", str: "a text", dict: "names with their texts"}[kind]
    raise ModelError(f"{file}: {name!r} is {quote(value)}, expected {expected}")


def _arguments(sentence: Config, kind: str) -> Config:
    """The arguments that sentence-transformers passes on: their older and newer names."""
    names = {"model": "model_kwargs", "tokenizer": "processor_kwargs", "config": "config_kwargs"}
    entries = sentence.get(f"{kind}_args", sentence.get(names[kind]))
    return {k: v for k, v in entries.items() if k not in _HARMLESS} if isinstance(entries, dict) else {}


def _call(sentence: Config) -> Config:
    """How the tokenizer is called for texts: what is common to all modalities wins."""
    processing = sentence.get("processing_kwargs")
    parts = [processing.get(name) for name in ("text", "common")] if isinstance(processing, dict) else []
    return {name: value for part in parts if isinstance(part, dict) for name, value in part.items()}


def _beyond(sentence: Config, call: Config) -> list[str]:
    """Settings of a Transformer that only sentence-transformers honours."""
    modalities = sentence.get("modality_config") or {}
    text = modalities.get("text") or {}
    plain = text.get("method", "forward") == "forward" and text.get("method_output_name") in _PLAIN_OUTPUTS
    task = sentence.get("transformer_task") or _PLAIN_TASKS[0]
    plain_call = call.get("truncation", True) in (True, "longest_first")
    names = sorted(set(call) - _HONOURED - _NEUTRAL - ({"truncation"} if plain_call else set()))
    reasons = {
        f"Transformer({', '.join(names)})": bool(names),
        f"Transformer({', '.join(sorted(_arguments(sentence, 'model')))})": bool(_arguments(sentence, "model")),
        f"Transformer({task})": task not in _PLAIN_TASKS,
        "Transformer(chat template)": "message" in modalities,
        "Transformer(its own method)": bool(modalities) and not plain,
        "Transformer(another tokenizer)": bool(sentence.get("tokenizer_name_or_path")),
    }
    return [reason for reason, holds in reasons.items() if holds]


def requested_length(layout: Layout, options: ModelOptions) -> int | None:
    """`max_length` where the model has that many positions; None where it is not set."""
    longest = layout.longest
    if options.max_length and longest and options.max_length > longest:
        raise RequestError(f"`max_length` must be at most {longest} for this model, found {options.max_length}")
    return options.max_length


def masked_length(layout: Layout, options: ModelOptions) -> int:
    """Of the texts that a masked language model reads."""
    return requested_length(layout, options) or layout.longest or USUAL_LIMIT


def settle(layout: Layout, options: ModelOptions) -> EncoderSettings:
    return EncoderSettings(
        pooling=options.pooling or layout.pooling or "mean",
        pooling_assumed=not (options.pooling or layout.pooling or layout.further),
        normalize=layout.normalize if options.normalize is None else options.normalize,
        max_length=requested_length(layout, options) or layout.max_length,
        lower_case=layout.lower_case,
        prompt=_prompt(layout, options),
        include_prompt=layout.include_prompt,
        shortening=shorten(options, layout.truncate_dim),
    )


def _size(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None


def prompt_settings(layout: Layout, settings: EncoderSettings, options: ModelOptions) -> dict[str, object]:
    """The prompt that an encoder puts before a text, and the named ones that a task may choose unless the user did."""
    chosen = options.prompt is not None or options.prompt_name is not None
    return {"prompt": settings.prompt} | ({"prompts": dict(layout.prompts)} if layout.prompts and not chosen else {})


def vector_settings(layout: Layout, settings: EncoderSettings) -> dict[str, object]:
    """How many numbers of a vector are kept and how vectors are compared, where the files or the user say."""
    named = layout.similarity_fn_name
    return {**settings.shortening.settings, **({"similarity_fn_name": named} if named else {})}


def _prompt(layout: Layout, options: ModelOptions) -> str:
    if options.prompt is not None:
        return options.prompt
    name = options.prompt_name or layout.default_prompt_name
    if name is None:
        return ""
    if name not in layout.prompts:
        names = ", ".join(sorted(layout.prompts)) or "none"
        if options.prompt_name is None:
            raise ModelError(f"the model's default prompt is {name!r}, which its files lack (they have: {names})")
        raise RequestError(f"the model has no prompt named {name!r} (it has: {names}); set the text itself as `prompt`")
    return layout.prompts[name]


@dataclass(frozen=True)
class Module:
    """A step of a sentence-transformers model: the folder of its files, and its class."""

    path: str
    kind: str  # the bare name of a class of sentence-transformers; of any other its full name


def read_modules(folder: Path) -> list[Module]:
    path = folder / "modules.json"
    if not path.exists():
        return []
    rows = load_json(path, ModelError)
    try:
        modules = [(row["path"], str(row["type"])) for row in rows]
    except (KeyError, TypeError) as error:
        raise ModelError(f"{path} is not the module list of a sentence-transformers model: {error!r}") from error
    for place, _ in modules:
        if not isinstance(place, str):
            raise ModelError(
                f"{path}: the path of a module is {quote(place)}, expected a folder within the model's own"
            )
        if place:
            below(folder, place, ModelError, path)
    # A class of the model's own is what its code says, whatever it is called.
    return [Module(place, known_class(kind) or kind) for place, kind in modules]


def known_class(kind: str) -> str | None:
    """The bare name of a class of sentence-transformers, or of an activation of torch, that may be imported: it stands
    in a list and is named by the place where these packages keep it. None for any other.

    >>> known_class("sentence_transformers.models.Pooling"), known_class("sentence_transformers.evil.Pooling")
    ('Pooling', None)
    """
    if (match := _CLASS.fullmatch(kind)) is None:
        return None
    file, name = match["file"], match["name"]
    in_own_file = file is None or file.replace("_", "").lower() == name.lower()
    return name if name in _CLASSES and in_own_file else None


def _pooling(folder: Path, modules: list[Module]) -> tuple[str | None, bool, tuple[str, ...]]:
    """Our name of the pooling, whether it includes the prompt, and what only sentence-transformers can run."""
    path = next((m.path for m in modules if m.kind == "Pooling"), None)
    if path is None:
        return None, True, ()
    config = read_json(folder / path / "config.json")
    mode = config.get("pooling_mode")
    if isinstance(mode, str | list):
        modes = [mode] if isinstance(mode, str) else list(map(str, mode))
    else:
        modes = [name for key, name in _OLD_POOLING.items() if config.get(key)]
    if len(modes) != 1 or modes[0] not in _OURS:
        return None, True, (f"Pooling({'+'.join(modes) or 'none'})",)
    return _OURS[modes[0]], config.get("include_prompt", True) is not False, ()


def open_tokenizer(
    layout: Layout, *, max_length: int | None, pairs: bool = False, trust_remote_code: bool = False
) -> Tokenizer:
    """The tokenizer of a layout's transformer, cut at `max_length`."""
    prepared = prepare(layout.transformer, arguments=layout.tokenizer_arguments, trust_remote_code=trust_remote_code)
    return Tokenizer(
        prepared,
        max_length=max_length,
        pad_id=pad_id(layout.transformer, prepared.backend),
        first_position=layout.first_position,
        lower_case=layout.lower_case,
        special_tokens=layout.special_tokens,
        pairs=pairs,
    )
