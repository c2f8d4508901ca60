"""The adaptation scorecard: the layers of a model before and after training, read by what the training was for.

After MLM on domain text (domain adaptation) the language and the space should get better: pseudo-perplexity, coherence
of entities, the effect of fragmentation, anisotropy, alignment. Search need not. After contrastive training (task
adaptation) search should: nDCG and recall; what the model knew before must not be lost: STS or mteb's tasks, and the
queries of the tail, which a training on frequent queries can cost.

A demand to change is met where the paired interval of the delta lies on the good side of 0; a demand to keep is
judged by the metric's own thresholds, as `compare` does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from calipers.comparison import verdict, wording
from calipers.comparison.records import Comparison, Label
from calipers.comparison.wording import Effect
from calipers.core import Columns, Floats, Metric, RequestError, Result, Statistic
from calipers.diagnosis.records import Adaptation, Reading, Scorecard, ScoreLine, Wanted
from calipers.metrics.means import mean_statistic

_HEAD, _TAIL = 2 / 3, 1 / 3  # quantiles of the queries' frequencies
_LARGE = 100.0


@dataclass(frozen=True)
class Frequency:
    """How frequent each query is, by its id, and how that is known, as a sentence."""

    of: Mapping[str, float]
    how: str


@dataclass(frozen=True)
class _Want:
    """`metric` may end in "@": the first of its kind, at whatever depth. "*" are all metrics of the part."""

    part: str
    metric: str
    how: Literal["improve", "keep", "free"]
    decides: bool = False


_WANTS: dict[Adaptation, tuple[_Want, ...]] = {
    "mlm": (
        _Want("fill-mask", "pseudo_perplexity", "improve", decides=True),
        _Want("knowledge", "entity_coherence_relative", "improve"),
        _Want("knowledge", "fragmentation_effect", "improve"),
        _Want("geometry", "anisotropy", "improve"),
        _Want("geometry", "alignment", "improve"),
        _Want("retrieval", "ndcg@", "free"),
        _Want("retrieval", "recall@", "free"),
        _Want("sentence-similarity", "cosine_spearman", "free"),
    ),
    "contrastive": (
        _Want("retrieval", "ndcg@", "improve", decides=True),
        _Want("retrieval", "recall@", "improve"),
        _Want("retrieval", "recall@100", "improve"),
        _Want("sentence-similarity", "cosine_spearman", "keep"),
        _Want("mteb", "*", "keep"),
        _Want("retrieval", "ndcg@/head", "free"),
        _Want("retrieval", "ndcg@/tail", "keep"),
        _Want("geometry", "alignment", "free"),
        _Want("geometry", "anisotropy", "free"),
        _Want("knowledge", "entity_coherence_relative", "free"),
        _Want("fill-mask", "pseudo_perplexity", "free"),
    ),
}


def read(
    adaptation: Adaptation,
    baseline: Mapping[str, Result],
    candidate: Mapping[str, Result],
    measures: Mapping[str, Sequence[Metric]],
    *,
    frequency: Frequency | None = None,
    reasons: Mapping[str, str] | None = None,
    terms: verdict.Terms | None = None,
) -> Scorecard:
    """The scorecard of two sets of results, by the names of layers and tasks; a part that one lacks is unknown.

    `reasons` are why a part is missing.
    """
    if adaptation not in _WANTS:
        raise RequestError(f"`adaptation` must be one of {', '.join(_WANTS)}, found {adaptation!r}")
    terms = terms or verdict.Terms(thresholds={}, deciding=(), worst=0)
    lines: list[ScoreLine] = []
    for want in _WANTS[adaptation]:
        if want.part in baseline and want.part in candidate:
            sides = baseline[want.part], candidate[want.part]
            lines += _lines(want, *sides, measures[want.part], frequency, terms)
        elif want.how != "free" and want.metric != "*":
            why = (reasons or {}).get(want.part, f"there is no result of {want.part} for both models")
            lines.append(_unknown(want, want.metric.rstrip("@"), why))
    return Scorecard(
        adaptation=adaptation,
        baseline=_name(baseline),
        candidate=_name(candidate),
        lines=tuple(lines),
        label=label(lines),
        reads_as=looks_like(lines),
        paragraph=paragraph(adaptation, lines),
        notes=(frequency.how,) if frequency and any("/" in line.metric for line in lines) else (),
    )


def _name(results: Mapping[str, Result]) -> str:
    return next((result.model.model_id for result in results.values()), "unknown")


# --- lines -------------------------------------------------------------------------------------------------------


def _lines(
    want: _Want,
    before: Result,
    after: Result,
    measures: Sequence[Metric],
    frequency: Frequency | None,
    terms: verdict.Terms,
) -> list[ScoreLine]:
    shared = [m for m in measures if m.name in before.metrics and m.name in after.metrics]
    chosen, why = _metrics(want, shared, before, after, frequency)
    if not chosen:
        return [] if want.how == "free" else [_unknown(want, want.metric.replace("@", ""), why)]
    compared = verdict.compare(before, after, chosen, terms)
    return [_line(want, metric, c) for metric, c in zip(chosen, compared.comparisons, strict=True)]


def _metrics(
    want: _Want, shared: list[Metric], before: Result, after: Result, frequency: Frequency | None
) -> tuple[list[Metric], str]:
    """The metrics of a demand among those that both results have, or why there is none."""
    if want.metric == "*":
        return shared, "there is no score"
    plain, _, slice = want.metric.partition("/")
    named = [m for m in shared if m.name == plain or (plain.endswith("@") and m.name.startswith(plain))][:1]
    if plain == "pseudo_perplexity":
        return _comparable(shared, before, after)
    if not named:
        return [], f"one of the models has no {plain.rstrip('@')}"
    return _sliced(named[0], slice, before, frequency) if slice else (named, "")


def _comparable(metrics: Sequence[Metric], before: Result, after: Result) -> tuple[list[Metric], str]:
    """Pseudo-perplexity per token, or per word where the tokenizers differ."""
    if not any(metric.name == "pseudo_perplexity" for metric in metrics):
        return [], "one of the models has no pseudo_perplexity"
    for name, unit in (("pseudo_perplexity", "tokens"), ("word_pseudo_perplexity", "words")):
        columns = [result.outcomes.columns.get(unit) for result in (before, after)]
        metric = next((m for m in metrics if m.name == name), None)
        if metric and columns[0] is not None and np.array_equal(columns[0], columns[1]):  # type: ignore[arg-type]
            return [metric], ""
    return [], "the two tokenizers divide the texts differently, and perplexity per word was not measured"


def _sliced(metric: Metric, slice: str, result: Result, frequency: Frequency | None) -> tuple[list[Metric], str]:
    """The metric over the most or the least frequent third of the queries."""
    if frequency is None:
        return [], "the frequency of the queries is unknown"
    values = np.array([frequency.of.get(id.removesuffix("/query"), np.nan) for id in result.outcomes.ids])
    finite = values[np.isfinite(values)]
    if not len(finite) or finite.min() == finite.max():
        return [], "all queries are equally frequent"
    inside = _head(values, finite) if slice == "head" else _head(-values, -finite)

    def statistic(columns: Columns) -> Statistic:
        return mean_statistic(np.where(inside, columns[metric.name], np.nan))

    about = f"{metric.about}, {slice} queries"
    return [replace(metric, name=f"{metric.name}/{slice}", about=about, statistic=statistic)], ""


def _head(values: Floats, finite: Floats) -> NDArray[np.bool_]:
    """The queries with the highest values, about a third. Where many share the value at the cut, they all belong to it
    if there is none above, and are left out otherwise: the other end must not be empty either."""
    low, high = np.quantile(finite, [_TAIL, _HEAD])
    above = values > high
    return np.asarray(values >= high if low < high or not above.any() else above)


def _line(want: _Want, metric: Metric, comparison: Comparison) -> ScoreLine:
    good: Wanted = "rise" if metric.higher_is_better else "fall"
    bad = "fall" if metric.higher_is_better else "rise"
    effect = wording.effect(comparison)
    wanted: dict[str, Wanted] = {"improve": good, "keep": "kept", "free": "free"}
    expected = {"improve": f"should {good}", "keep": f"must not {bad}", "free": f"need not {good}"}
    large = max(abs(comparison.baseline or 0.0), abs(comparison.candidate or 0.0)) >= _LARGE
    shared = ("baseline", "candidate", "delta", "interval", "examples", "reason")
    return ScoreLine(
        part=want.part,
        metric=metric.name,
        wanted=wanted[want.how],
        expected=expected[want.how],
        change=_change(effect, comparison),
        effect=effect,
        reading=_reading(want, effect, comparison),
        higher_is_better=metric.higher_is_better,
        decides=want.decides,
        digits=min(1, metric.digits) if large else metric.digits,  # few behind the point of a perplexity of a thousand
        **{name: getattr(comparison, name) for name in shared},
    )


def _unknown(want: _Want, name: str, why: str) -> ScoreLine:
    return ScoreLine(
        part=want.part,
        metric=name,
        wanted="kept" if want.how == "keep" else "free",
        expected="must not fall" if want.how == "keep" else "should improve",
        baseline=None,
        candidate=None,
        delta=None,
        interval=None,
        change="unknown",
        effect="unknown",
        reading="UNKNOWN",
        examples=0,
        higher_is_better=True,
        decides=want.decides,
        reason=why,
    )


def _change(
    effect: Effect, comparison: Comparison
) -> Literal["rose", "fell", "unchanged", "no clear change", "unknown"]:
    if effect != "better" and effect != "worse":
        return effect
    return "rose" if (effect == "better") == comparison.higher_is_better else "fell"


_KEPT: dict[Label, Reading] = {
    "PASS": "AS_EXPECTED",
    "AT_RISK": "AT_RISK",
    "REGRESSION": "LOST",
    "INCONCLUSIVE": "NOT_SHOWN",
    "INVALID": "UNKNOWN",
}


def _reading(want: _Want, effect: Effect, comparison: Comparison) -> Reading:
    if effect == "unknown":
        return "UNKNOWN"
    if want.how == "free":
        return "NO_DEMAND"
    if want.how == "keep":
        return _KEPT[comparison.label]
    return {"better": "AS_EXPECTED", "worse": "CONTRARY"}.get(effect, "NOT_SHOWN")  # type: ignore[return-value]


# --- all lines together ------------------------------------------------------------------------------------------


def label(lines: Sequence[ScoreLine]) -> Label:
    """REGRESSION where something is lost or the main change went the wrong way; INCONCLUSIVE where the main change, or
    that something is kept, is not shown; AT_RISK where anything else went the wrong way or nearly; else PASS. A thing
    to keep that was not measured is not held against the model."""
    readings = {line.reading for line in lines}
    main = [line.reading for line in lines if line.decides]
    if "LOST" in readings or "CONTRARY" in main:
        return "REGRESSION"
    if not main or set(main) & {"NOT_SHOWN", "UNKNOWN"}:
        return "INCONCLUSIVE"
    if any(line.wanted == "kept" and line.reading == "NOT_SHOWN" for line in lines):
        return "INCONCLUSIVE"
    return "AT_RISK" if readings & {"CONTRARY", "AT_RISK"} else "PASS"


def looks_like(lines: Sequence[ScoreLine]) -> Literal["mlm", "contrastive", "both"] | None:
    """By what got better: the language (pseudo-perplexity), the search (nDCG, or recall where nDCG did not get worse),
    both or neither."""
    language = any(line.effect == "better" for line in lines if _is_language(line))
    search = [line for line in lines if _is_search(line)]
    worse = any(line.effect == "worse" for line in search if line.metric.startswith("ndcg@"))
    finds_more = not worse and any(line.effect == "better" for line in search)
    if language and finds_more:
        return "both"
    return "mlm" if language else "contrastive" if finds_more else None


def _is_language(line: ScoreLine) -> bool:
    return "pseudo_perplexity" in line.metric


def _is_search(line: ScoreLine) -> bool:
    return line.metric.startswith(("ndcg@", "recall@")) and "/" not in line.metric


_TRAINING = {"mlm": "MLM training on domain text", "contrastive": "contrastive training"}
_SUCH = {"mlm": "domain adaptation by MLM", "contrastive": "task adaptation by contrastive training", "both": "both"}


def paragraph(adaptation: Adaptation, lines: Sequence[ScoreLine]) -> str:
    """What happened, in a few sentences."""
    by = {reading: [line for line in lines if line.reading == reading] for reading in _SENTENCES}
    sentences = [
        sentence.format("; ".join(map(_in_words, by[reading])))
        for reading, sentence in _SENTENCES.items()
        if by[reading]
    ]
    sentences += [_tail(lines)] if _tail(lines) else []
    return f"After {_TRAINING[adaptation]}: " + " ".join([*sentences, f"{_looks(adaptation, lines)}."])


_SENTENCES: dict[Reading, str] = {
    "AS_EXPECTED": "As it should be: {}.",
    "CONTRARY": "Against expectation: {}.",
    "LOST": "Lost, and must not be: {}.",
    "AT_RISK": "At risk: {}.",
    "NOT_SHOWN": "Not shown by these data: {}.",
    "NO_DEMAND": "Without a demand: {}.",
    "UNKNOWN": "Not measured: {}.",
}


def _looks(adaptation: Adaptation, lines: Sequence[ScoreLine]) -> str:
    """What the changes look like by themselves; it contradicts no line."""
    if looks := looks_like(lines):
        other = looks != "both" and looks != adaptation
        aside = f", not like the named training ({_SUCH[adaptation]})" if other else ""
        return f"By what improved, this looks like {_SUCH[looks]}{aside}"
    if better := [line.metric for line in lines if line.effect == "better"]:
        return f"Better is {' and '.join(better)}, which by itself shows neither of the two trainings"
    measured = {
        name: any(of(line) and line.effect != "unknown" for line in lines)
        for name, of in (("language", _is_language), ("search", _is_search))
    }
    if all(measured.values()):
        return "Neither the language nor the search is shown to have improved"
    names = [
        f"the {name} {'is not shown to have improved' if seen else 'was not measured'}"
        for name, seen in measured.items()
    ]
    first, second = sorted(names, key=lambda words: words.endswith("measured"))
    return f"{first[:1].upper()}{first[1:]}, and {second}"


def _in_words(line: ScoreLine) -> str:
    if line.delta is None or line.baseline is None or line.candidate is None:
        return f"{line.metric} ({line.reason})"
    if line.effect == "unchanged":
        return f"{line.metric} is unchanged at {line.candidate:.{line.digits}f}"
    values = f"{line.metric} {line.baseline:.{line.digits}f} → {line.candidate:.{line.digits}f}"
    word = f", {line.effect}" if line.effect in ("better", "worse") and line.reading not in _SAYS_SO else ""
    if line.interval is None:
        return f"{values}{word}"
    low, high = line.interval
    return f"{values} ({line.delta:+.{line.digits}f}, {low:+.{line.digits}f} to {high:+.{line.digits}f}{word})"


_SAYS_SO: tuple[Reading, ...] = ("CONTRARY", "LOST")  # readings that are worse in themselves


def _tail(lines: Sequence[ScoreLine]) -> str:
    """Whether frequent queries gained what rare ones lost."""
    head = next((line for line in lines if line.metric.endswith("/head")), None)
    tail = next((line for line in lines if line.metric.endswith("/tail")), None)
    if head is None or tail is None or tail.reading not in ("LOST", "AT_RISK"):
        return ""
    return "Frequent queries gained at the cost of rare ones." if head.effect == "better" else "Rare queries lost."
