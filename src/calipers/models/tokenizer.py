"""Texts to token ids, by the model's own tokenizer with our truncation."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from calipers.core import InferenceError, RequestError
from calipers.models.tokenizer_files import Config, Prepared, read_json

if TYPE_CHECKING:
    from tokenizers import Encoding
    from tokenizers import Tokenizer as Backend

# What transformers writes for "no limit" is 1e30; anything above this is not a limit.
NO_LIMIT = 1_000_000
USUAL_LIMIT = 512  # where neither the model's files nor the user say anything
# Values of model_type beside RoBERTa's whose positions begin behind the padding id.
_BEHIND_PADDING = (
    *("camembert", "mpnet", "longformer", "xmod", "luke", "mluke", "data2vec-text", "esm", "lilt", "ibert", "markuplm"),
    *("layoutlmv3", "bridgetower_text_model"),
)
_SECONDS, _CHARACTERS = 6.0, 20_000  # for any texts, and the least that a sound tokenizer reads a second
Frame = tuple[tuple[int, ...], tuple[int, ...]]  # ids of the special tokens before and behind a text
_AT_ONCE = 2048  # pairs: what the library returns for each holds some 64 bytes a token until it is copied


@dataclass(frozen=True)
class Tokens:
    """One row: a text, or a pair of texts."""

    ids: NDArray[np.int32]
    type_ids: NDArray[np.int32]
    cut: bool = False  # whether more did not fit


class Tokenizer:
    """A prepared tokenizer with our truncation and no padding. It changes the backend that it is given."""

    def __init__(
        self,
        prepared: Prepared,
        *,
        max_length: int | None,
        pad_id: int,
        first_position: int = 0,
        lower_case: bool = False,
        special_tokens: bool = True,
        pairs: bool = False,
    ) -> None:
        backend = prepared.backend
        # A tokenizer.json may demand padding (all-MiniLM-L6-v2's says 128 tokens, always) or its own truncation.
        if max_length is None:
            max_length = (backend.truncation or {}).get("max_length", USUAL_LIMIT)
        least = (backend.num_special_tokens_to_add(pairs) if special_tokens else 0) + (2 if pairs else 1)
        if max_length < least:  # the library would silently not truncate at all
            raise RequestError(f"`max_length` must be at least {least} for this tokenizer, found {max_length}")
        backend.no_padding()
        backend.enable_truncation(max_length, direction=prepared.truncation_side)
        if lower_case:
            _lower(backend)
        self._backend = backend
        self._special_tokens = special_tokens
        self._type_ids = prepared.type_ids
        self.pad_id = pad_id
        self.first_position = first_position
        self.max_length: int = max_length
        self.vocab_size: int = backend.get_vocab_size(with_added_tokens=True)

    @property
    def last_id(self) -> int:
        """The largest id of a token, -1 where there is none."""
        return max(self._backend.get_vocab(with_added_tokens=True).values(), default=-1)

    def encode(self, texts: Sequence[str]) -> list[Tokens]:
        encode, special = self._backend.encode_batch_fast, self._special_tokens
        encodings = _in_time(lambda: encode(list(texts), add_special_tokens=special), sum(map(len, texts)))
        return [self._tokens(encoding) for encoding in encodings]

    def _tokens(self, encoding: Encoding) -> Tokens:
        ids = np.array(encoding.ids, np.int32)
        type_ids = np.array(encoding.type_ids, np.int32) if self._type_ids else np.zeros_like(ids)
        return Tokens(ids, type_ids, len(ids) >= self.max_length and bool(encoding.overflowing))

    def pieces(self, words: Sequence[str]) -> list[list[str | None]]:
        """The sub-words of each word behind another word, where some tokenizers write it differently from the head of
        a text; None for a sub-word that is not in the vocabulary. Nothing is truncated."""
        import tokenizers

        backend = tokenizers.Tokenizer.from_str(self._backend.to_str())
        backend.no_truncation()
        unknown = unknown_id(backend)
        pieces: list[list[str | None]] = []
        for start in range(0, len(words), _AT_ONCE):
            window = words[start : start + _AT_ONCE]
            twice = backend.encode_batch([f"{word} {word}" for word in window], add_special_tokens=False)
            pieces += [_second(encoding, len(word), unknown) for encoding, word in zip(twice, window, strict=True)]
        return pieces

    def prompt_length(self, prompt: str) -> int:
        """Tokens that a prompt takes at the head of a text, the special ones before it included."""
        encoding = self._backend.encode(prompt, add_special_tokens=self._special_tokens)
        special: list[int] = encoding.special_tokens_mask
        return len(special) - sum(special[-1:])  # less the one that would end the text

    def sample(self, lengths: Sequence[int], *, pairs: bool = False) -> list[Tokens]:
        """Rows of random tokens between the special ones; see `sample_rows`."""
        frame = self._backend.encode("a", "a" if pairs else None, add_special_tokens=self._special_tokens)
        rows = sample_rows(self._backend, frame, lengths)
        return rows if self._type_ids else [Tokens(row.ids, np.zeros_like(row.ids)) for row in rows]

    @property
    def frame(self) -> Frame:
        encoding = self._backend.encode("a", add_special_tokens=self._special_tokens)
        ids, special = encoding.ids, encoding.special_tokens_mask
        first = special.index(0) if 0 in special else len(ids)
        behind = special[::-1].index(0) if 0 in special else 0
        return tuple(ids[:first]), tuple(ids[len(ids) - behind :])

    @property
    def lowers_case(self) -> bool:
        return self._backend.encode("A").ids == self._backend.encode("a").ids

    def id_of(self, token: str) -> int | None:
        return self._backend.token_to_id(token)

    def token_of(self, id: int) -> str:
        return self._backend.id_to_token(id) or str(id)

    def varied(
        self,
        *,
        frame: Frame | None = None,
        max_length: int | None = None,
        side: str | None = None,
        keep_case: bool = False,
    ) -> Tokenizer:
        """A copy with other special tokens around a text, another length or side to cut at, or the case kept."""
        import tokenizers
        from tokenizers.processors import TemplateProcessing

        content = json.loads(self._backend.to_str())
        if keep_case:
            content["normalizer"] = _without_lowering(content.get("normalizer"))
        backend = tokenizers.Tokenizer.from_str(json.dumps(content))
        other = copy(self)
        if frame is not None:
            names = [[self.token_of(id) for id in ids] for ids in frame]
            special = {self.token_of(id): id for ids in frame for id in ids}
            backend.post_processor = TemplateProcessing(
                single=[*names[0], "$A", *names[1]], special_tokens=list(special.items())
            )
            other._special_tokens = True
        other.max_length = max_length or self.max_length
        direction = side or (self._backend.truncation or {}).get("direction", "right")
        backend.enable_truncation(other.max_length, direction=direction.lower())
        other._backend = backend
        return other

    def encode_pairs(self, pairs: Sequence[tuple[str, str]]) -> list[Tokens]:
        """Two texts as one row. Where it is too long, the text that is longer at the time loses a token
        (`longest_first`)."""
        encode, special = self._backend.encode_batch_fast, self._special_tokens
        chunks = ([(a, b) for a, b in pairs[i : i + _AT_ONCE]] for i in range(0, len(pairs), _AT_ONCE))
        rows: list[Tokens] = []
        for chunk in chunks:
            work = partial(encode, chunk, add_special_tokens=special)
            rows += map(self._tokens, _in_time(work, sum(len(a) + len(b) for a, b in chunk)))
        return rows


def _in_time(work: Callable[[], list[Encoding]], characters: int) -> list[Encoding]:
    """Tokens of so many characters; a pattern of a tokenizer may take for ever, or panic."""
    from calipers.models.deadline import in_time

    return in_time(work, _SECONDS + characters / _CHARACTERS, InferenceError, "the tokenizer")


def _lower(backend: Backend) -> None:
    """Lower case before any other normalisation, as sentence-transformers does it: added tokens keep their case."""
    from tokenizers import normalizers

    before = [] if backend.normalizer is None else [backend.normalizer]
    backend.normalizer = normalizers.Sequence([normalizers.Lowercase(), *before])


def _without_lowering(normalizer: Config | None) -> Config | None:
    """A normalizer as tokenizer.json states it, which keeps the case of letters."""
    if normalizer is None or normalizer.get("type") == "Lowercase":
        return None
    if normalizer.get("type") == "Sequence":
        kept = [part for part in map(_without_lowering, normalizer["normalizers"]) if part]
        return {**normalizer, "normalizers": kept}
    return {**normalizer, "lowercase": False} if "lowercase" in normalizer else normalizer


def sample_rows(backend: Backend, frame: Encoding, lengths: Sequence[int]) -> list[Tokens]:
    """Rows of so many tokens, random ones of the vocabulary in the place of those that `frame` has between its special
    tokens. A row has at least one random token for each text of the frame."""
    rng = np.random.default_rng(0)
    special = [id for id, token in backend.get_added_tokens_decoder().items() if token.special]
    draws = rng.integers(0, backend.get_vocab_size(with_added_tokens=False), 4096)
    ordinary = np.array([id for id in dict.fromkeys(draws.tolist()) if id not in special and backend.id_to_token(id)])
    ids, types = np.array(frame.ids, np.int32), np.array(frame.type_ids, np.int32)
    own = np.array([side is not None for side in frame.sequence_ids], bool)
    if not own.any():  # a tokenizer that knows no "a"
        ids, types, own = (np.append(array, last) for array, last in ((ids, 0), (types, 0), (own, True)))
    first = np.flatnonzero(own & ~np.concatenate([[False], own[:-1]]))  # where the tokens of a text begin
    rows = []
    for length in lengths:
        spare = max(length - int((~own).sum()), len(first))  # tokens for the texts
        repeats = np.where(own, 0, 1)
        repeats[first] = np.diff(np.linspace(0, spare, len(first) + 1).astype(int))
        row = np.repeat(ids, repeats)
        at = np.repeat(own, repeats)
        row[at] = rng.choice(ordinary, int(at.sum())) if len(ordinary) else row[at]
        rows.append(Tokens(row, np.repeat(types, repeats)))
    return rows


def _second(encoding: Encoding, length: int, unknown: int | None) -> list[str | None]:
    """The tokens of the second of two words, which starts behind `length` characters."""
    tokens = zip(encoding.tokens, encoding.ids, encoding.offsets, strict=True)
    return [None if id == unknown else token for token, id, (start, end) in tokens if start >= length and end > length]


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
    model = backend.model
    if not hasattr(model, "unk_token"):  # the library does not show it for a Unigram model
        id = json.loads(backend.to_str())["model"].get("unk_id")
    else:
        id = backend.token_to_id(model.unk_token) if model.unk_token is not None else None
    return id if isinstance(id, int) else None


def longest_input(config: Config, model_max_length: object = None) -> int | None:
    """The most tokens a model takes, special tokens included, or None where its files do not say.

    >>> longest_input({"n_positions": 1024}), longest_input({"max_position_embeddings": 514, "model_type": "roberta"})
    (1024, 512)
    """
    limits = [model_max_length, positions(config)]
    usable = [int(limit) for limit in limits if isinstance(limit, (int, float)) and 0 < limit < NO_LIMIT]
    return min(usable, default=None)


def positions(config: Config) -> int | None:
    """How many tokens the model has positions for, where its config says so."""
    names = ("max_position_embeddings", "n_positions")
    # T5's positions are relative: its n_positions is the length it was trained with.
    entries = [config.get(name) for name in (names[:1] if "t5" in str(config.get("model_type")) else names)]
    count = next((entry for entry in entries if isinstance(entry, int) and entry > 0), None)
    return None if count is None else count - first_position(config)


def first_position(config: Config) -> int:
    """The position of a text's first token: RoBERTa's family counts from the id behind the padding id.

    >>> first_position({"model_type": "xlm-roberta", "pad_token_id": 1}), first_position({"model_type": "bert"})
    (2, 0)
    """
    family = str(config.get("model_type", ""))
    if "roberta" in family or family in _BEHIND_PADDING:
        return int(config.get("pad_token_id", 1) or 0) + 1
    return 0
