"""The settings in which a candidate differs from the baseline, in words: those that can change a number. The JSON
document has them all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from calipers.comparison.records import Verdict
from calipers.core import Result
from calipers.rendering.numbers import shorten

# How a model is run, or where something comes from: the answers are the same.
_HARMLESS = {
    *("backend", "device", "provider", "shape", "batching", "through", "short_cut", "revision", "output"),
    *("pooling_assumed", "by", "vectors", "protocol", "mlm_head", "version of calipers"),
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
    sides = [(verdicts[0].baseline_name, verdicts[0].baseline)]
    sides += [(verdict.candidate_name, verdict.candidate) for verdict in verdicts if verdict.candidate]
    by_words: dict[str, list[str]] = {}
    for name, result in sides:
        if words := _assumed(result):
            by_words.setdefault(words, []).append(name)
    return [
        f"{words} of {' and '.join(names)} {'are' if ' and ' in words else 'is'} assumed: "
        f"{'its files name' if len(names) == 1 else 'their files name'} none (--pooling, --normalize)"
        for words, names in by_words.items()
    ]


def _assumed(result: Result) -> str:
    settings = result.model.settings
    if not settings.get("pooling_assumed"):
        return ""
    chosen = result.request.get("given", {}).get("model_options", {})
    pooling = f"the pooling ({settings.get('pooling')})"
    if chosen.get("normalize") is not None:
        return pooling
    return f"{pooling} and the normalisation ({'to length 1' if settings.get('normalize') else 'none'})"
