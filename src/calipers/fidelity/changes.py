"""The settings that a reference is tried with."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from calipers.core import Encoder
from calipers.core.choices import POOLINGS
from calipers.fidelity.texts import usual_prompts
from calipers.metrics.arrays import Vectors
from calipers.models.tokenizer import Frame, Tokenizer
from calipers.models.variants import Variation, as_variable, vary

# What a server may do to a text before it is read.
_EDITS: Mapping[str, Callable[[str], str]] = {
    "lower": str.lower,
    "spaces": lambda text: " ".join(text.split()),
    "lines": lambda text: text.replace("\n", " "),
    "NFKC": lambda text: unicodedata.normalize("NFKC", text),
    "accents": lambda text: "".join(c for c in unicodedata.normalize("NFD", text) if unicodedata.category(c) != "Mn"),
}
_BEGIN, _END = ("[CLS]", "<s>", "<bos>"), ("[SEP]", "</s>", "<eos>", "<|endoftext|>", "<|im_end|>")


@dataclass(frozen=True)
class SettingChange:
    """One setting of the reference that is changed: in words, what it does and what it does in the trial."""

    setting: str
    reference: str
    other: str
    variation: Variation = field(default_factory=Variation)
    prompt: str | None = None
    edit: str = ""  # of texts: a key of _EDITS
    is_named: bool = True  # False for what follows from another change


Changes = tuple[SettingChange, ...]


class Reference:
    """A model that can be run with changed settings."""

    def __init__(self, model: Encoder) -> None:
        self.model = model
        self._variable = as_variable(model)
        self._varied: dict[Variation, Encoder] = {}
        self._vectors: dict[Changes, dict[str, Vectors]] = {}

    @property
    def tokenizer(self) -> Tokenizer | None:
        return self._variable.tokenizer if self._variable else None

    @property
    def prompt(self) -> str:
        return str(self.model.info.settings.get("prompt") or "")

    @property
    def prompts(self) -> dict[str, str]:
        """The prompts that its files name."""
        named = self.model.info.settings.get("prompts")
        return {str(k): str(v) for k, v in named.items()} if isinstance(named, Mapping) else {}

    @property
    def max_length(self) -> int | None:
        length = self.model.info.settings.get("max_length")
        return self.tokenizer.max_length if self.tokenizer else length if isinstance(length, int) else None

    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        """Of each text with the prompt; a third of its characters where the tokenizer is not in our hands."""
        whole = [self.prompt + text for text in texts]
        if self.tokenizer is None:
            return [len(text) // 3 for text in whole]
        return [len(row.ids) for row in self.tokenizer.encode(whole)]

    def prompt_name(self, prompt: str) -> str:
        """Its name with the text, as a sentence has it: "query prompt 'query: '"."""
        names = [name for name, text in {**usual_prompts(), **self.prompts}.items() if text == prompt]
        return f"{names[-1]} prompt {prompt!r}" if names else f"prompt {prompt!r}"

    def encode(self, texts: Sequence[str], changes: Changes = ()) -> Vectors:
        """float32[n, d]; what was computed once is kept."""
        rows = self._vectors.setdefault(changes, {})
        missing = [text for text in dict.fromkeys(texts) if text not in rows]
        if missing:
            rows.update(zip(missing, self._compute(missing, changes), strict=True))
        return np.stack([rows[text] for text in texts])

    def _compute(self, texts: Sequence[str], changes: Changes) -> Vectors:
        variation, prompt = Variation(), self.prompt or None  # None: vectors already computed refuse any other
        for change in changes:
            variation = variation.joined(change.variation)
            prompt = prompt if change.prompt is None else change.prompt
        for edit in {change.edit for change in changes if change.edit}:
            texts = [_EDITS[edit](text) for text in texts]
            prompt = prompt and prompt.lower() if edit == "lower" else prompt
        return self._encoder(variation).encode(texts, prompt=prompt)

    def _encoder(self, variation: Variation) -> Encoder:
        if variation == Variation() or self._variable is None:
            return self.model
        if variation not in self._varied:
            self._varied[variation] = vary(self._variable, variation)
        return self._varied[variation]

    def unscaled(self, texts: Sequence[str], changes: Changes) -> Vectors | None:
        """Vectors before a normalisation; None where it cannot be left out."""
        if self._variable is None:
            return None
        plain = SettingChange("normalize", "", "", Variation(normalize=False))
        return self.encode(texts, (*changes, plain))

    def candidates(self) -> list[SettingChange]:
        """Changes that concern every text, the likely ones first."""
        return [*self._prompt_changes(), *self._own_changes(), *self._text_changes()]

    def _prompt_changes(self) -> Iterator[SettingChange]:
        now = self.prompt
        words = self.prompt_name(now) if now else "no prompt"
        for prompt in dict.fromkeys(["", *self.prompts.values(), *usual_prompts().values()]):
            if prompt != now:
                other = self.prompt_name(prompt) if prompt else "no prompt"
                yield SettingChange("prompt", words, other, prompt=prompt)
        if now:
            yield SettingChange("prompt", words, f"{words} twice", prompt=now + now)

    def _own_changes(self) -> Iterator[SettingChange]:
        """Those of a model whose pooling and tokens are in our hands."""
        if self._variable is None or self.tokenizer is None:
            return
        now = self._variable.settings.pooling
        for pooling in POOLINGS:
            if pooling != now:
                yield SettingChange("pooling", now, pooling, Variation(pooling=pooling))
        yield from _frame_changes(self.tokenizer)
        if self.tokenizer.lowers_case:
            kept = Variation(lower_case=False)
            yield SettingChange("lower_case", "lower-cases texts", "keeps capitals", kept)

    def _text_changes(self) -> Iterator[SettingChange]:
        if self.tokenizer is None or not self.tokenizer.lowers_case:
            yield SettingChange("lower_case", "keeps capitals", "lower-cases texts", edit="lower")
        yield SettingChange("whitespace", "keeps spaces and new lines", "joins them to one space", edit="spaces")
        yield SettingChange("whitespace", "keeps new lines", "turns new lines into spaces", edit="lines")
        yield SettingChange("unicode", "keeps characters", "replaces characters by NFKC", edit="NFKC")
        yield SettingChange("unicode", "keeps accents", "removes accents", edit="accents")

    @staticmethod
    def is_odd(text: str) -> bool:
        """Whether an edit other than lower case changes it."""
        return any(edit(text) != text for name, edit in _EDITS.items() if name != "lower")

    def side_change(self) -> SettingChange:
        return SettingChange("truncation_side", "keeps the beginning", "keeps the end", Variation(side="left"))

    def length_change(self, length: int) -> SettingChange:
        now = str(self.max_length)
        return SettingChange("max_length", now, str(length), Variation(max_length=length))

    @property
    def can_cut(self) -> bool:
        return self._variable is not None


def _frame_changes(tokenizer: Tokenizer) -> Iterator[SettingChange]:
    """Special tokens left out or added: those before a text (BOS), those behind it (EOS), or both."""
    first, last = tokenizer.frame
    if first:
        yield _frame_change(tokenizer, "bos", first, ((), last))
    if last:
        yield _frame_change(tokenizer, "eos", last, (first, ()))
    if first and last:
        yield _frame_change(tokenizer, "special_tokens", first + last, ((), ()))
    for setting, tokens, own in (("bos", _BEGIN, first), ("eos", _END, last)):
        for id in (tokenizer.id_of(token) for token in tokens):
            if id is not None:
                frame: Frame = ((id, *first), last) if setting == "bos" else (first, (*last, id))
                doubled = "once more" if own else ""
                yield _frame_change(tokenizer, setting, (id,), frame, doubled or "added")


def _frame_change(
    tokenizer: Tokenizer, setting: str, tokens: Sequence[int], frame: Frame, added: str = ""
) -> SettingChange:
    names = " and ".join(map(tokenizer.token_of, tokens))
    now, then = (f"no further {names}", f"{names} {added}") if added else (names, f"no {names}")
    return SettingChange(setting, now, then, Variation(frame=frame))
