"""The settings in which a candidate differs from the baseline, in words: those that can change a number. The JSON
document has them all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from calipers.comparison.records import Verdict
from calipers.core import Result, printable
from calipers.rendering.numbers import shorten
from calipers.rendering.text import truncated_texts

# How a model is run, or where something comes from: the answers are the same.
_HARMLESS = {
    *("backend", "device", "shape", "batching", "through", "short_cut", "revision", "output"),
    *("pooling_assumed", "by", "vectors", "protocol", "mlm_head", "truncation", "version of calipers"),
}
_VERSION = "version of "


def in_words(differences: Mapping[str, tuple[Any, Any]]) -> str:
    """What the candidate does that the baseline does not.

    >>> in_words({"max_length": (256, 128), "normalize": (True, False), "device": ("cpu", "cuda")})
    'reads 128 tokens (the baseline 256), its vectors are not normalised (those of the baseline are)'
    """
    settings = {n: pair for n, pair in differences.items() if n not in _HARMLESS and not n.startswith(_VERSION)}
    versions = [name.removeprefix(_VERSION) for name, (a, b) in differences.items() if name.startswith(_VERSION)]
    packages = [name for name in versions if name != "calipers"]
    phrases = [phrase for name, (a, b) in settings.items() if (phrase := _phrase(name, a, b))]
    phrases += [f"was measured with other versions of {', '.join(packages)}"] if packages else []
    return ", ".join(phrases)


def _phrase(name: str, baseline: Any, candidate: Any) -> str:
    if candidate is None or (baseline is None and name not in ("truncate_dim", "prompts", "rerank")):
        return ""  # one backend alone has this setting, or does not report it
    if name == "max_length":
        return f"reads {candidate} tokens (the baseline {baseline})"
    if name == "normalize":
        words = ("are normalised", "are not") if candidate else ("are not normalised", "are")
        return f"its vectors {words[0]} (those of the baseline {words[1]})"
    if name == "batch_dependence":
        return f"a batch moves its outputs by {_value(candidate)}"
    return f"{name.replace('_', ' ')} {_value(candidate)} (the baseline {_value(baseline)})"


def _value(value: Any) -> str:
    return "none" if value in ("", None) else shorten(repr(value) if isinstance(value, str) else str(value), 200)


def assumptions(verdicts: Sequence[Verdict]) -> list[str]:
    """A sentence on the models whose files do not name their pooling and normalisation: the figures depend on them."""
    by_words: dict[str, list[str]] = {}
    for name, result in _sides(verdicts):
        if words := _assumed(result):
            by_words.setdefault(words, []).append(name)
    return [
        f"{words} of {' and '.join(names)} {'are' if ' and ' in words else 'is'} assumed: "
        f"{'its files name' if len(names) == 1 else 'their files name'} none (--pooling, --normalize)"
        for words, names in by_words.items()
    ]


def _sides(verdicts: Sequence[Verdict]) -> list[tuple[str, Result]]:
    """The baseline and the candidates that gave a result, with their names."""
    first = verdicts[0]
    sides = [(first.baseline_name or first.baseline.model.artifact, first.baseline)]
    return sides + [(verdict.candidate_name, verdict.candidate) for verdict in verdicts if verdict.candidate]


def truncation(verdicts: Sequence[Verdict]) -> str:
    """How many texts each model cut; "" where none cut any."""
    sides = [(name, truncated_texts(result)) for name, result in _sides(verdicts)]
    different = {words for _, words in sides}
    if len(different) == 1:
        (same,) = different
        return f"Texts longer than a model reads: {same} in every model" if same else ""
    parts = "; ".join(f"{printable(name)}: {words or 'none truncated'}" for name, words in sides)
    return f"Texts longer than a model reads: {parts}"


def _assumed(result: Result) -> str:
    settings = result.model.settings
    if not settings.get("pooling_assumed"):
        return ""
    chosen = result.request.get("given", {}).get("model_options", {})
    pooling = f"the pooling ({settings.get('pooling')})"
    if chosen.get("normalize") is not None:
        return pooling
    return f"{pooling} and the normalisation ({'to length 1' if settings.get('normalize') else 'none'})"
