"""What a model folder says about itself: the files that sentence-transformers writes beside the weights."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from calipers.core import ModelError, RequestError
from calipers.models.options import ModelOptions
from calipers.models.tokenizer import longest_input, read_json

# Names of pooling modes: in the older file format, in the newer one, and ours.
_OLD_POOLING = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
}
_OURS = {"cls": "cls", "max": "max", "mean": "mean", "lasttoken": "last"}


@dataclass(frozen=True)
class Layout:
    """How a folder says its vectors are made. `further` are modules that only sentence-transformers runs."""

    transformer: Path
    pooling: str | None = None
    normalize: bool = False
    max_length: int | None = None
    lower_case: bool = False
    prompts: Mapping[str, str] = field(default_factory=dict)
    default_prompt_name: str | None = None
    include_prompt: bool = True  # False: the prompt's tokens are left out of the pooling
    further: tuple[str, ...] = ()


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


def read_layout(folder: Path) -> Layout:
    modules = _modules(folder)
    transformer = folder / next((m["path"] for m in modules if m["kind"] == "Transformer"), "")
    bert = read_json(transformer / "sentence_bert_config.json")
    general = read_json(folder / "config_sentence_transformers.json")
    pooling, include_prompt, odd = _pooling(folder, modules)
    plain = ("Transformer", "Pooling", "Normalize")
    return Layout(
        transformer=transformer,
        pooling=pooling,
        normalize=any(m["kind"] == "Normalize" for m in modules),
        max_length=bert.get("max_seq_length") or longest_input(transformer),
        lower_case=bool(bert.get("do_lower_case")),
        prompts={k: v for k, v in (general.get("prompts") or {}).items() if isinstance(v, str)},
        default_prompt_name=general.get("default_prompt_name"),
        include_prompt=include_prompt,
        further=(*(m["kind"] for m in modules if m["kind"] not in plain), *odd),
    )


def settle(layout: Layout, options: ModelOptions) -> EncoderSettings:
    longest = longest_input(layout.transformer)
    if options.max_length and longest and options.max_length > longest:
        raise RequestError(f"`max_length` must be at most {longest} for this model, found {options.max_length}")
    return EncoderSettings(
        pooling=options.pooling or layout.pooling or "mean",
        pooling_assumed=not (options.pooling or layout.pooling or layout.further),
        normalize=layout.normalize if options.normalize is None else options.normalize,
        max_length=options.max_length or layout.max_length,
        lower_case=layout.lower_case,
        prompt=_prompt(layout, options),
        include_prompt=layout.include_prompt,
    )


def prompt_settings(layout: Layout, settings: EncoderSettings, options: ModelOptions) -> dict[str, object]:
    """The prompt that an encoder puts before a text, and the named ones that a task may choose unless the user did."""
    chosen = options.prompt is not None or options.prompt_name is not None
    return {"prompt": settings.prompt} | ({"prompts": dict(layout.prompts)} if layout.prompts and not chosen else {})


def _prompt(layout: Layout, options: ModelOptions) -> str:
    if options.prompt is not None:
        return options.prompt
    name = options.prompt_name or layout.default_prompt_name
    if name is None:
        return ""
    if name not in layout.prompts:
        names = ", ".join(sorted(layout.prompts)) or "none"
        raise RequestError(f"the model has no prompt named {name!r} (it has: {names}); set the text itself as `prompt`")
    return layout.prompts[name]


def _modules(folder: Path) -> list[dict[str, str]]:
    path = folder / "modules.json"
    if not path.exists():
        return []
    try:
        rows = json.loads(path.read_text(encoding="utf-8"))
        return [{"path": str(row["path"]), "kind": str(row["type"]).rsplit(".", 1)[-1]} for row in rows]
    except (ValueError, KeyError, TypeError) as error:
        raise ModelError(f"{path} is not the module list of a sentence-transformers model: {error!r}") from error


def _pooling(folder: Path, modules: list[dict[str, str]]) -> tuple[str | None, bool, tuple[str, ...]]:
    """Our name of the pooling, whether it includes the prompt, and what only sentence-transformers can run."""
    path = next((m["path"] for m in modules if m["kind"] == "Pooling"), None)
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
