"""The sentences of `parity`."""

from __future__ import annotations

import re
from collections.abc import Sequence

from calipers.fidelity.changes import SettingChange
from calipers.fidelity.records import Cosines, Deviation, Tried


def show_cosine(value: float | None) -> str:
    """
    >>> show_cosine(0.99999999), show_cosine(0.99993), show_cosine(None)
    ('1.0000', '0.9999', 'unknown')
    """
    return "unknown" if value is None else f"{value:.4f}"


def changed(who: str, change: SettingChange, restored: float | None) -> list[Deviation]:
    """The differences that one change stands for, each with its sentence; `who` begins it: "The endpoint"."""
    if change.setting == "special_tokens":
        first, _, last = change.reference.partition(" and ")
        parts = [SettingChange("bos", first, f"no {first}"), SettingChange("eos", last, f"no {last}")]
        return [difference for part in parts for difference in changed(who, part, restored)]
    sentence = f"{_words(who, change)} the cosine is {show_cosine(restored)}."
    return [Deviation(change.setting, change.reference, change.other, restored, sentence)]


def _words(who: str, change: SettingChange) -> str:
    own, other = change.reference, change.other
    if change.setting == "prompt":
        return _prompt_words(who, own, other)
    if change.setting in ("bos", "eos"):
        place = "before a text (BOS)" if change.setting == "bos" else "behind a text (EOS)"
        if other.startswith("no "):
            return f"{who} does not add {own} {place}, the reference does; without it"
        return f"{who} adds {own.removeprefix('no further ')} {place}, the reference does not; with it"
    return {
        "pooling": f"{who} pools by {other}, the reference by {own}; with {other} pooling",
        "lower_case": f"{who} {other}, the reference {own}; as the other one does",
        "unicode": f"{who} {other}, the reference {own}; as the other one does",
        "whitespace": f"{who} {other}, the reference {own}; as the other one does",
        "max_length": f"{who} cuts texts at {other} tokens, the reference at {own}; cut at {other}",
        "truncation_side": f"{who} {other} of a long text, the reference {own}; so",
    }[change.setting]


def _prompt_words(who: str, own: str, other: str) -> str:
    if other == "no prompt":
        return f"{who} does not add the {own}; with it"
    if other == f"{own} twice":
        return f"{who} adds the {own} twice, the reference once; with it twice"
    if own == "no prompt":
        return f"{who} adds the {other}, the reference none; with it"
    return f"{who} adds the {other}, the reference the {own}; with the same one"


def shortened(who: str, size: int, whole: int, restored: float, *, rescaled: bool) -> Deviation:
    again = " and scaled to length 1 again" if rescaled else ""
    sentence = (
        f"{who} gives the first {size} of the reference's {whole} numbers{again}; cut to {size}, the cosine is "
        f"{show_cosine(restored)}."
    )
    return Deviation("truncate_dim", str(whole), f"{size}{again}", restored, sentence)


def lengthened(who: str, size: int, whole: int, restored: float) -> Deviation:
    sentence = (
        f"The reference gives the first {size} of {whole} numbers that {who[0].lower()}{who[1:]} gives; cut to {size}, "
        f"the cosine is {show_cosine(restored)}."
    )
    return Deviation("truncate_dim", str(size), str(whole), restored, sentence)


def scaled(who: str, own: str, other: str, restored: float | None) -> Deviation:
    tail = "and no setting of it gives these lengths."
    if restored is not None:
        tail = f"and once both are scaled alike the cosine is {show_cosine(restored)}."
    sentence = f"{who} gives vectors of {other}, the reference of {own}, {tail}"
    return Deviation("normalize", own, other, restored, sentence)


def rounded(who: str, name: str, restored: float, before: float, *, is_measured: bool) -> Deviation:
    how = "computes in" if is_measured else "differs as much as computing in"
    tail = "" if is_measured else " does"
    sentence = (
        f"{who} {how} {name}{tail}, the reference is in float32: 1 - cosine is up to {1 - before:.1e}, and "
        f"{max(1 - restored, 0.0):.1e} beside the reference in {name}."
    )
    return Deviation("dtype", "float32", name, restored, sentence)


def shuffled(who: str, size: int, restored: float) -> Deviation:
    sentence = (
        f"{who} answers the texts of one request in another order: in requests of {size}, vectors belong to other "
        f"texts; one text a request, the cosine is {show_cosine(restored)}."
    )
    return Deviation("order", "the order of the texts", "another order", restored, sentence)


def batched(who: str, size: int, shared: Cosines, restored: float) -> Deviation:
    sentence = (
        f"{who}'s answer depends on what else is in the request: in requests of {size} the smallest cosine to its own "
        f"answer to the text alone is {show_cosine(shared.smallest)}; one text a request, the cosine to the reference "
        f"is {show_cosine(restored)}."
    )
    return Deviation("batch", "the same in any batch", f"other vectors in requests of {size}", restored, sentence)


def unsteady(who: str, gap: float) -> Deviation:
    sentence = f"{who} gives other vectors when the same text is sent again (they move by {gap:.1e} of their length)."
    return Deviation("repeat", "the same each time", "another each time", None, sentence)


def other_model(who: str, nearest: Tried | None, sizes: tuple[int, int]) -> Deviation:
    best = f" (the nearest, {_settings(nearest)}, has a median cosine of {nearest.median:.4f})" if nearest else ""
    numbers = f" Its vectors have {sizes[1]} numbers, the reference's {sizes[0]}." if sizes[0] != sizes[1] else ""
    sentence = f"{who} is another model, or has other weights: no setting of the reference comes near{best}.{numbers}"
    return Deviation("model", "the reference", "another model", None, sentence)


def unexplained(nearest: Tried | None) -> str:
    best = f"; the nearest is {_settings(nearest)}, with a median cosine of {nearest.median:.4f}" if nearest else ""
    return (
        f"no single setting explains it, nor do two or three of those that were tried{best}. Other weights "
        "(fine-tuned, quantised), or settings that were not tried, remain"
    )


def small_gaps(largest: float, tolerance: float) -> str:
    return (
        f"the gaps, up to {largest:.1e} of a vector's length, are above the tolerance of {tolerance:g}, and neither a "
        "setting nor a number type explains them: quantised weights or vectors would"
    )


def headline(differences: Sequence[Deviation], cosine: Cosines, *, same: bool, rest: str) -> str:
    if same:
        return f"The same: the smallest cosine of {cosine.texts} texts is {show_cosine(cosine.smallest)}."
    sentences = [difference.sentence for difference in differences]
    return f"Different: {' '.join([*sentences, *([_capital(rest) + '.'] if rest else [])])}"


def _settings(tried: Tried) -> str:
    return ", ".join(f"{name} {value}" for name, value in tried.settings.items()) or "the reference as it is"


def _capital(sentence: str) -> str:
    return re.sub("^.", lambda match: match[0].upper(), sentence)
