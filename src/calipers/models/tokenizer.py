"""Texts to token ids, by the model's own tokenizer.json, or by transformers where there is none."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from calipers.core import ModelError, RequestError

if TYPE_CHECKING:
    from tokenizers import Encoding
    from tokenizers import Tokenizer as Backend
    from transformers import PreTrainedTokenizerBase

Config = dict[str, Any]  # the content of a JSON file

# What transformers writes for "no limit" is 1e30; anything above this is not a limit.
_NO_LIMIT = 1_000_000
USUAL_LIMIT = 512  # where neither the model's files nor the user say anything
_AT_ONCE = 2048  # pairs: what the library returns for each holds some 64 bytes a token until it is copied


@dataclass(frozen=True)
class Tokens:
    """One row: a text, or a pair of texts."""

    ids: NDArray[np.int32]
    type_ids: NDArray[np.int32]


class Tokenizer:
    """A tokenizer of the `tokenizers` library, with our truncation and no padding."""

    def __init__(
        self,
        backend: Backend,
        *,
        max_length: int | None,
        pad_id: int,
        first_position: int = 0,
        lower_case: bool = False,
        pairs: bool = False,
    ) -> None:
        # A tokenizer.json may demand padding (all-MiniLM-L6-v2's says 128 tokens, always) or its own truncation.
        if max_length is None:
            max_length = (backend.truncation or {}).get("max_length", USUAL_LIMIT)
        least = backend.num_special_tokens_to_add(pairs) + (2 if pairs else 1)
        if max_length < least:  # the library would silently not truncate at all
            raise RequestError(f"`max_length` must be at least {least} for this tokenizer, found {max_length}")
        backend.no_padding()
        backend.enable_truncation(max_length)
        self._backend = backend
        self._lower_case = lower_case
        self.pad_id = pad_id
        self.first_position = first_position
        self.max_length: int = max_length
        self.vocab_size: int = backend.get_vocab_size(with_added_tokens=True)

    def encode(self, texts: Sequence[str], *, special_tokens: bool = True) -> list[Tokens]:
        encodings = self._backend.encode_batch_fast(self._cased(texts), add_special_tokens=special_tokens)
        return [_tokens(encoding) for encoding in encodings]

    def _cased(self, texts: Sequence[str]) -> list[str]:
        return [text.lower() for text in texts] if self._lower_case else list(texts)

    def pieces(self, words: Sequence[str]) -> list[list[str | None]]:
        """The sub-words of each word behind another word, where some tokenizers write it differently from the head of
        a text; None for a sub-word that is not in the vocabulary. Nothing is truncated."""
        import tokenizers

        content = self._backend.to_str()
        backend = tokenizers.Tokenizer.from_str(content)
        backend.no_truncation()
        unknown = unknown_id(backend)
        if unknown is None:  # the library does not show it for a Unigram model
            unknown = json.loads(content)["model"].get("unk_id")
        cased = self._cased(words)
        pieces: list[list[str | None]] = []
        for start in range(0, len(cased), _AT_ONCE):
            window = cased[start : start + _AT_ONCE]
            twice = backend.encode_batch([f"{word} {word}" for word in window], add_special_tokens=False)
            pieces += [_second(encoding, len(word), unknown) for encoding, word in zip(twice, window, strict=True)]
        return pieces

    def prompt_length(self, prompt: str) -> int:
        """Tokens that a prompt takes at the head of a text, the special ones before it included."""
        special: list[int] = self._backend.encode(self._cased([prompt])[0]).special_tokens_mask
        return len(special) - sum(special[-1:])  # less the one that would end the text

    def encode_pairs(self, pairs: Sequence[tuple[str, str]]) -> list[Tokens]:
        """Two texts as one row. Where it is too long, the text that is longer at the time loses its last token
        (`longest_first`)."""
        cased = [(a.lower(), b.lower()) for a, b in pairs] if self._lower_case else [(a, b) for a, b in pairs]
        chunks = (cased[i : i + _AT_ONCE] for i in range(0, len(cased), _AT_ONCE))
        return [_tokens(encoding) for chunk in chunks for encoding in self._backend.encode_batch_fast(chunk)]


def _tokens(encoding: Encoding) -> Tokens:
    return Tokens(np.array(encoding.ids, np.int32), np.array(encoding.type_ids, np.int32))


def _second(encoding: Encoding, length: int, unknown: int | None) -> list[str | None]:
    """The tokens of the second of two words, which starts behind `length` characters."""
    tokens = zip(encoding.tokens, encoding.ids, encoding.offsets, strict=True)
    return [None if id == unknown else token for token, id, (start, end) in tokens if start >= length and end > length]


def load_backend(folder: Path) -> Backend:
    """The fast tokenizer of a folder that holds a tokenizer.json."""
    import tokenizers

    path = folder / "tokenizer.json"
    try:
        return tokenizers.Tokenizer.from_file(str(path))
    except Exception as error:  # the library raises a bare Exception for any fault in the file
        raise ModelError(f"{path} is not a tokenizer: {error}") from error


def transformers_backend(folder: Path, *, trust_remote_code: bool = False) -> tuple[PreTrainedTokenizerBase, Backend]:
    """The tokenizer that transformers makes of a folder, and its fast backend."""
    from transformers import AutoTokenizer

    if (folder / "tokenizer.json").exists():
        load_backend(folder)  # a broken file is named by us; transformers would only say what is wrong in it
    try:
        tokenizer = AutoTokenizer.from_pretrained(str(folder), trust_remote_code=trust_remote_code)
    except Exception as error:
        raise ModelError(f"{folder} holds no tokenizer that transformers can load: {first_line(error)}") from error
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        raise ModelError(
            f"the tokenizer of {folder} ({type(tokenizer).__name__}) has no fast version: "
            "save one with tokenizer.json beside the model"
        )
    return tokenizer, backend


def open_tokenizer(
    folder: Path, *, max_length: int | None, lower_case: bool, pairs: bool = False, backend: Backend | None = None
) -> Tokenizer:
    """The folder's tokenizer, around `backend` where it is open already."""
    backend = backend or fast_backend(folder)
    return Tokenizer(
        backend,
        max_length=max_length,
        pad_id=pad_id(folder, backend),
        first_position=first_position(read_json(folder / "config.json")),
        lower_case=lower_case,
        pairs=pairs,
    )


def fast_backend(folder: Path) -> Backend:
    """The tokenizer of a folder, without transformers where tokenizer.json says it all."""
    settings = read_json(folder / "tokenizer_config.json")
    # Some tokenizer.json lack the begin or end token that tokenizer_config.json makes transformers add.
    incomplete = settings.get("add_eos_token") or settings.get("add_bos_token")
    if (folder / "tokenizer.json").exists() and not incomplete:
        return load_backend(folder)
    try:
        return transformers_backend(folder)[1]
    except ImportError as error:
        raise ModelError(f"the tokenizer in {folder} needs transformers: pip install 'calipers[torch]'") from error


def pad_id(folder: Path, backend: Backend) -> int:
    """The padding token's id. It is masked, so any valid id does; the model's own is preferred."""
    token = named_token(folder / "tokenizer_config.json", "pad_token")
    id = backend.token_to_id(token) if token is not None else None
    if id is None:
        id = read_json(folder / "config.json").get("pad_token_id")
    if id is None and backend.padding:
        id = backend.padding.get("pad_id")
    return id if isinstance(id, int) and id >= 0 else 0


def named_token(file: Path, kind: str) -> str | None:
    """A special token that a file of the tokenizer names, as text or as a record."""
    token = read_json(file).get(kind)
    token = token.get("content") if isinstance(token, dict) else token
    return token if isinstance(token, str) else None


def unknown_id(backend: Backend) -> int | None:
    """The id of the token that stands for what is not in the vocabulary, where there is one."""
    token = getattr(backend.model, "unk_token", None)
    id = backend.token_to_id(token) if isinstance(token, str) else getattr(backend.model, "unk_id", None)
    return id if isinstance(id, int) else None


def longest_input(folder: Path) -> int | None:
    """The most tokens a model takes, special tokens included, or None where its files do not say."""
    config = read_json(folder / "config.json")
    limits = [read_json(folder / "tokenizer_config.json").get("model_max_length")]
    positions = config.get("max_position_embeddings")
    if isinstance(positions, int) and positions > 0:
        limits.append(positions - first_position(config))
    usable = [int(limit) for limit in limits if isinstance(limit, (int, float)) and 0 < limit < _NO_LIMIT]
    return min(usable, default=None)


def first_position(config: Config) -> int:
    """The position of a text's first token: RoBERTa's family counts from the id behind the padding id.

    >>> first_position({"model_type": "xlm-roberta", "pad_token_id": 1}), first_position({"model_type": "bert"})
    (2, 0)
    """
    family = str(config.get("model_type", ""))
    if "roberta" in family or family in ("camembert", "mpnet", "longformer", "xmod", "luke"):
        return int(config.get("pad_token_id") or 0) + 1
    return 0


def read_json(path: Path) -> Config:
    """A JSON object, or an empty one where there is no such file."""
    if not path.exists():
        return {}
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ModelError(f"{path} is not valid JSON: {error}") from error
    return content if isinstance(content, dict) else {}


def first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
