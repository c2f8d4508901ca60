"""A model folder's tokenizer, prepared in one way for every backend: as transformers would make it of the files.

tokenizer_config.json may change what tokenizer.json says: case, accents, added tokens, the side that is cut. Where it
certainly changes nothing, tokenizer.json alone is read, which needs no transformers.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from calipers.core import ModelError
from calipers.core.errors import boundary, install
from calipers.core.inputs import check_input, load_json

if TYPE_CHECKING:
    from tokenizers import Tokenizer as Backend

Config = dict[str, Any]  # the content of a JSON file

# Values of model_type for which transformers builds the class that tokenizer_config.json names.
_FAMILIES = (
    "",
    "bert",
    "roberta",
    "xlm-roberta",
    "distilbert",
    "electra",
    "albert",
    "mpnet",
    "camembert",
    "deberta-v2",
)
_GENERIC = ("PreTrainedTokenizer", "TokenizersBackend")  # tokenizer.json as it is, with added tokens
_BERT = ("BertTokenizer", "DistilBertTokenizer")
_SPECIAL = {name: f"[{name.upper()}]" for name in ("unk", "sep", "pad", "cls", "mask")}  # of BertTokenizer
_FLAGS = ("special", "normalized", "lstrip", "rstrip", "single_word")  # of an added token
_MOST_GROWTH = 1_000  # times that a normalizer may make a text as long
# Without these words, also in letters that are escaped, no normalizer needs a look: most files are large and have none.
_RISKY = (b"Replace", b"Precompiled", *(rf"\u00{digit}".encode() for digit in range(4, 8)))
_EXTRA = ("additional_special_tokens", "extra_special_tokens")


@dataclass(frozen=True)
class Prepared:
    """The fast tokenizer of a folder and the settings that the library keeps outside it."""

    backend: Backend
    truncation_side: str = "right"
    padding_side: str = "right"
    type_ids: bool = True  # whether the model is given the type ids of a pair's texts
    chat: bool = False  # whether it has a chat template

    def __post_init__(self) -> None:
        if self.truncation_side not in ("left", "right"):
            raise ModelError(f"a tokenizer cuts on the left or on the right, found {self.truncation_side!r}")


def prepare(folder: Path, *, arguments: Mapping[str, Any] | None = None, trust_remote_code: bool = False) -> Prepared:
    """The tokenizer of a folder. `arguments` are what sentence-transformers' files pass on to it."""
    settings = {**read_json(folder / "tokenizer_config.json"), **(arguments or {})}
    reader = _File(folder, settings) if (folder / "tokenizer.json").exists() else None
    missing = reader.missing() if reader else []
    whole = reader if not missing and not arguments else None
    if whole and (whole.is_complete or ("auto_map" in settings and not trust_remote_code)):  # its own code is not run
        return whole.prepared()
    try:
        return _by_transformers(folder, arguments or {}, trust_remote_code)
    except ImportError as error:
        if whole:
            return whole.prepared()
        why = f" for {', '.join(missing)}" if missing else ""
        raise ModelError(f"the tokenizer in {folder} needs transformers{why}: {install('torch')}") from error
    except ModelError:
        if whole:  # nothing says that its file is not all
            return whole.prepared()
        raise


def _by_transformers(folder: Path, arguments: Mapping[str, Any], trust_remote_code: bool) -> Prepared:
    from transformers import AutoTokenizer

    try:
        tokenizer = AutoTokenizer.from_pretrained(str(folder), trust_remote_code=trust_remote_code, **arguments)
    except Exception as error:
        raise ModelError(f"{folder} holds no tokenizer that transformers can load: {first_line(error)}") from error
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        raise ModelError(
            f"the tokenizer of {folder} ({type(tokenizer).__name__}) has no fast version: "
            "save one with tokenizer.json beside the model"
        )
    return Prepared(
        backend,
        truncation_side=str(getattr(tokenizer, "truncation_side", "right")),
        padding_side=str(getattr(tokenizer, "padding_side", "right")),
        type_ids="token_type_ids" in tokenizer.model_input_names,
        chat=bool(getattr(tokenizer, "chat_template", None)),
    )


class _File:
    """A folder's tokenizer.json beside the settings that transformers would apply to it."""

    def __init__(self, folder: Path, settings: Mapping[str, Any]) -> None:
        # As transformers has it: the older file counts, before the newer one, where that does not list added tokens.
        older = {} if "added_tokens_decoder" in settings else read_json(folder / "special_tokens_map.json")
        self._folder, self._settings, self._given = folder, {**settings, **older}, settings
        self.backend = load_backend(folder)
        self._kind = str(settings.get("tokenizer_class") or "").removesuffix("Fast")
        self._family = str(read_json(folder / "config.json").get("model_type") or "")

    @property
    def is_complete(self) -> bool:
        """Whether it is certain that transformers makes the same of it, once nothing is `missing`."""
        if self._kind in (*_BERT, *_GENERIC):
            return self._family in _FAMILIES
        return not self._kind and not self._family  # there is no other file

    def missing(self) -> list[str]:
        """Settings that tokenizer.json lacks or contradicts."""
        try:
            return self._missing()
        except (TypeError, ValueError, AttributeError) as error:
            place = self._folder / "tokenizer_config.json"
            raise ModelError(f"{place} does not hold the settings of a tokenizer: {first_line(error)}") from error

    def _missing(self) -> list[str]:
        settings = self._settings
        names = [name for name in ("add_bos_token", "add_eos_token", "split_special_tokens") if settings.get(name)]
        there = {token.content: token for token in self.backend.get_added_tokens_decoder().values()}
        for token in self._added():
            record = token if isinstance(token, dict) else {"content": token}
            own = there.get(str(record.get("content")))
            if own is None or any(record.get(flag, getattr(own, flag)) != getattr(own, flag) for flag in _FLAGS):
                names.append("added tokens")
                break
        return names + (self._contradictions() if self._kind in _BERT else [])

    def _added(self) -> list[Any]:
        """The tokens that transformers adds where they are not there, as texts or as records with flags."""
        settings = self._settings
        tokens = [
            *(settings.get("added_tokens_decoder") or {}).values(),
            *read_json(self._folder / "added_tokens.json"),
        ]
        for name in _EXTRA:
            for entries in (settings.get(name) or (), self._given.get(name) or ()):
                tokens += entries.values() if isinstance(entries, dict) else entries
        named = {f"{name}_token": token for name, token in _SPECIAL.items()} if self._kind in _BERT else {}
        named |= {name: token for name, token in settings.items() if name.endswith("_token")}
        return tokens + [token for token in named.values() if isinstance(token, str | dict)]

    def _contradictions(self) -> list[str]:
        """What BertTokenizer would build otherwise."""
        from tokenizers import normalizers, pre_tokenizers, processors

        settings, backend = self._settings, self.backend
        cls, sep, unknown = (_text(settings.get(f"{name}_token", _SPECIAL[name])) for name in ("cls", "sep", "unk"))
        ids = [(token, id) for token in (cls, sep) if (id := backend.token_to_id(token)) is not None]
        if len(ids) < 2:
            return ["cls_token and sep_token"]
        template = processors.TemplateProcessing(
            single=f"{cls}:0 $A:0 {sep}:0", pair=f"{cls}:0 $A:0 {sep}:0 $B:1 {sep}:1", special_tokens=ids
        )
        cased = settings.get("do_lower_case") is False
        normalizer = normalizers.BertNormalizer(
            clean_text=True,
            handle_chinese_chars=settings.get("tokenize_chinese_chars", True),
            strip_accents=settings.get("strip_accents"),
            lowercase=not cased,
        )
        parts = {
            "do_lower_case, strip_accents or tokenize_chinese_chars": (normalizer, backend.normalizer),
            "how words are split": (pre_tokenizers.BertPreTokenizer(), backend.pre_tokenizer),
            "the special tokens around a text": (template, backend.post_processor),
        }
        pieces = ("continuing_subword_prefix", "max_input_chars_per_word", "unk_token")
        own = [getattr(backend.model, name, None) for name in pieces]
        names = ["the pieces of words"] if own != ["##", 100, unknown] else []
        return names + [name for name, (expected, there) in parts.items() if _state(expected) != _state(there)]

    def prepared(self) -> Prepared:
        settings, truncation = self._settings, self.backend.truncation or {}
        inputs = settings.get("model_input_names")
        if inputs is None:  # transformers' own default, by class; without any settings the file itself says it
            inputs = ["token_type_ids"] if self._kind in ("BertTokenizer", "") else []
        templates = ("chat_template.jinja", "chat_template.json")
        return Prepared(
            self.backend,
            truncation_side=str(settings.get("truncation_side") or truncation.get("direction") or "right"),
            padding_side=str(settings.get("padding_side") or "right"),
            type_ids="token_type_ids" in inputs,
            chat=bool(settings.get("chat_template")) or any((self._folder / name).exists() for name in templates),
        )


def _text(token: Any) -> str:
    """A special token that settings give as a text or as a record."""
    return str(token.get("content") if isinstance(token, dict) else token)


def _state(part: Any) -> Any:
    """What a part of a tokenizer says of itself, as JSON."""
    return None if part is None else json.loads(part.__getstate__())


def load_backend(folder: Path) -> Backend:
    """The fast tokenizer of a folder that holds a tokenizer.json, as the file says."""
    import tokenizers

    path = folder / "tokenizer.json"
    check_input(path, ModelError, "settings")
    content = path.read_bytes()  # the library takes a name only where that is UTF-8
    if any(word in content for word in _RISKY):
        _check_normalizer(read_json(path).get("normalizer"), path)
    with boundary(ModelError, f"{path} is not a tokenizer"):  # the library raises a bare Exception, or panics
        return tokenizers.Tokenizer.from_buffer(content)


def _check_normalizer(normalizer: Any, path: Path) -> None:
    """Refuse what the library answers by ending the process: a text that grows beyond memory, a map that is cut off."""
    growth = 1.0
    for part in _steps(normalizer):
        if part.get("type") == "Replace":
            growth *= _growth(part.get("pattern"), str(part.get("content")))
        elif part.get("type") == "Precompiled" and not _is_whole(str(part.get("precompiled_charsmap") or "")):
            raise ModelError(f"{path}: the precompiled_charsmap of its normalizer is damaged")
    if growth > _MOST_GROWTH:
        raise ModelError(
            f"{path}: its normalizer can make a text {growth:.3g} times as long, expected at most {_MOST_GROWTH:,}"
        )


def _steps(normalizer: Any) -> Iterator[Config]:
    """The normalizers of a sequence, at any depth."""
    if isinstance(normalizer, dict):
        yield normalizer
        inner = normalizer.get("normalizers")
        for part in inner if isinstance(inner, list) else ():
            yield from _steps(part)


def _growth(pattern: Any, content: str) -> float:
    """How many times as long a text may become.

    >>> _growth({"String": "ab"}, "abcdef"), _growth({"Regex": "a+"}, "-"), _growth({"String": "  "}, " ")
    (3.0, 1.0, 1.0)
    """
    written = str(pattern.get("String") or "x") if isinstance(pattern, dict) else "x"
    return max(1.0, len(content) / len(written))


def _is_whole(charsmap: str) -> bool:
    """Whether a map has the table that its first four bytes announce.

    >>> _is_whole("BAAAAAAAAAAA"), _is_whole("////////")
    (True, False)
    """
    try:
        content = base64.b64decode(charsmap, validate=True)
    except ValueError:
        return False
    size = int.from_bytes(content[:4], "little")
    return len(content) >= 4 + size and size % 4 == 0


def read_json(path: Path) -> Config:
    """A JSON object, or an empty one where there is no such file."""
    if not path.exists():
        return {}
    content = load_json(path, ModelError)
    return content if isinstance(content, dict) else {}


def first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
