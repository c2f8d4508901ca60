"""A diagnosis in words, shared by the terminal, JSON and HTML: what a reader should know first; and as JSON, whose keys
are a contract (see docs/design.md)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from calipers.comparison import json as verdict_json
from calipers.comparison import slices as changes
from calipers.comparison import wording
from calipers.comparison.records import Comparison
from calipers.core import Figure, ModelInfo, Named, Result, read_figures, read_named
from calipers.core.rounding import digits_apart
from calipers.diagnosis.layer import read_file
from calipers.diagnosis.records import Diagnosis, Finding, Scorecard, ScoreLine
from calipers.rendering import numbers
from calipers.rendering.slices import slice_table, slice_title

SCHEMA = "calipers/diagnose/1"
Tone = Literal["bad", "warning", "good", "plain"]


@dataclass(frozen=True)
class Headline:
    """One sentence, where it comes from, and whether it is good news."""

    tone: Tone
    sentence: str
    layer: str


def label_of(diagnosis: Diagnosis) -> str | None:
    """The label that the exit code follows: the scorecard's, else the worst of the layers that make a verdict; None
    without a baseline."""
    if diagnosis.scorecard:
        return diagnosis.scorecard.label
    verdicts = [f.verdict for f in diagnosis.findings if f.verdict and f.decides]
    return wording.overall(verdicts) if verdicts else None


def figures_of(finding: Finding) -> tuple[Figure, ...]:
    return read_figures(finding.result.outcomes) if finding.result else ()


def examples_of(finding: Finding) -> dict[str, list[Named]]:
    """What figures point at, by figure, in the order of the layer."""
    grouped: dict[str, list[Named]] = {}
    for named in read_named(finding.result.outcomes) if finding.result else ():
        grouped.setdefault(named.figure, []).append(named)
    return grouped


def comparisons_of(finding: Finding) -> dict[str, Comparison]:
    return {c.metric: c for c in finding.verdict.comparisons} if finding.verdict else {}


def beside(finding: Finding, figure: Figure) -> tuple[float | None, float | None]:
    """The baseline's value of a figure and the difference; None where there is none."""
    if finding.verdict is None:
        return None, None
    if compared := comparisons_of(finding).get(figure.name):
        return compared.baseline, compared.delta
    before = {f.name: f.value for f in read_figures(finding.verdict.baseline.outcomes)}.get(figure.name)
    return before, None if before is None or figure.value is None else figure.value - before


@dataclass(frozen=True)
class SliceTable:
    """One figure by group, as text and HTML show it."""

    title: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    notes: Sequence[str]


def slice_tables(finding: Finding, result: Result) -> list[SliceTable]:
    """The figures by group; beside a baseline the changes, and where it hurts most."""
    if finding.verdict and finding.verdict.slices:
        unit = wording.unit(finding.verdict)
        return [
            SliceTable(changes.title(c), changes.HEADER, changes.rows(c), (changes.sentence(c, unit), *c.notes))
            for c in finding.verdict.slices
        ]
    kinds, unit = figures_of(finding), str(result.bootstrap["unit"])
    made = []
    for slices in result.slices:
        digits = next((kind.digits for kind in kinds if kind.name == slices.metric), 4)
        header, rows = slice_table(slices, digits, unit, result.bootstrap.get("confidence"))
        made.append(SliceTable(slice_title(slices), header, rows, slices.notes))
    return made


def headlines(diagnosis: Diagnosis) -> list[Headline]:
    """What a search team decides by first: how good the search is, and what the baseline changes; then what warns, one
    sentence a cause; then what else a reader wants to know."""
    lines = [*_facts(diagnosis, "first"), *_verdicts(diagnosis), *_facts(diagnosis, "baseline"), *_warnings(diagnosis)]
    if not any(line.tone in ("bad", "warning") for line in lines):
        warning = [f.layer for f in diagnosis.findings if f.result and not _is_own_score(f) and f.layer != "remedies"]
        *names, last = warning or ["any layer"]
        layers = f"{', '.join(names)} and {last}" if names else last
        lines.append(Headline("good", f"No figure of {layers} is past its warning level.", ""))
    return [*lines, *_remedies(diagnosis), *_facts(diagnosis, "others")]


def _remedies(diagnosis: Diagnosis) -> Iterator[Headline]:
    """What would surely help: changes whose interval is above 0."""
    for finding in diagnosis.findings:
        for figure in figures_of(finding) if finding.layer == "remedies" else ():
            if figure.interval and figure.interval[0] > 0 and finding.result:
                change, metric = figure.meaning.partition(":")[0], f"ndcg@{finding.result.options['k']}"
                gain = f"{value_of(figure)} ({interval_of(figure)}, {count_of(figure)})"
                yield Headline("plain", f"{change} would change {metric} by {gain}.", finding.layer)


def _verdicts(diagnosis: Diagnosis) -> Iterator[Headline]:
    """The scorecard speaks first where there is one; what a layer says by itself is then no verdict."""
    card = diagnosis.scorecard
    if card:
        yield Headline(_TONES.get(card.label, "warning"), f"{card.label}: {conclusion(card)}.", "scorecard")
    for finding in diagnosis.findings:
        if finding.verdict and finding.decides:
            label, sentence = finding.verdict.label, wording.sentence(finding.verdict)
            alone = f"The layer {finding.layer} by itself: {label}, {sentence}"
            tone = "plain" if card else _TONES.get(label, "warning")
            yield Headline(tone, alone if card else f"{label}: {sentence}", finding.layer)


_TONES: dict[str, Tone] = {"PASS": "good", "REGRESSION": "bad", "INVALID": "bad"}


def _is_own_score(finding: Finding) -> bool:
    """Whether the layer is about a score of ours, whose warnings say nothing about the model."""
    return bool(read_file().get(finding.layer, {}).get("own_score"))


def own_warnings(finding: Finding) -> list[str]:
    """The warnings of a layer about a score of ours, for its own section."""
    return [_in_words([f.warning]) for f in figures_of(finding) if f.warning] if _is_own_score(finding) else []


def _warnings(diagnosis: Diagnosis) -> Iterator[Headline]:
    """One for each cause, in the order in which the layers name them."""
    causes: dict[object, list[tuple[int, str, str]]] = {}
    first = read_file()["headlines"]["first"]
    for finding in diagnosis.findings:
        for figure in () if _is_own_score(finding) else figures_of(finding):
            if figure.warning and _sentence(figure, first) is None:  # that one stands above, and warns there
                cause, place = _cause(figure.name)
                causes.setdefault(cause, []).append((place, figure.warning, finding.layer))
    for warnings in causes.values():
        ordered = sorted(warnings, key=lambda entry: entry[0])
        yield Headline("warning", _in_words([warning for _, warning, _ in ordered]), ordered[0][2])


def _cause(name: str) -> tuple[object, int]:
    """What stands for the cause of a figure's warning, and the place of the figure among those that share it.

    >>> _cause("colour_global_failure_rate")[0] == _cause("colour_explicit_failure_rate")[0]
    True
    >>> _cause("brand_global_failure_rate")[0] == _cause("colour_explicit_failure_rate")[0]
    False
    """
    for pattern in read_file()["causes"]:
        if match := re.fullmatch(pattern, name):
            alternatives = pattern.split("|")
            return (pattern, match.groups()), alternatives.index(name) if name in alternatives else 0
    return name, 0


def _in_words(warnings: Sequence[str]) -> str:
    """What the first one means, then the numbers of all.

    >>> _in_words(["anisotropy is 0.82, above 0.7: all vectors share one direction"])
    'All vectors share one direction (anisotropy is 0.82, above 0.7).'
    >>> _in_words(["a is 1, above 0: it fails", "b is 2, above 1: it fails often"])
    'It fails (a is 1, above 0; b is 2, above 1).'
    >>> _in_words(["vectorised grep: the cosine follows the characters (0.9)", "b is 2, above 1: it fails"])
    'Vectorised grep: the cosine follows the characters (0.9) (b is 2, above 1).'
    """
    parts = [warning.partition(": ") for warning in warnings]
    numbers = [number if " is " in number else "" for number, *_ in parts]
    meaning = (parts[0][2] if parts[0][1] and numbers[0] else warnings[0]).rstrip(".")
    behind = "; ".join(number for number, part in zip(numbers, parts, strict=True) if number and part[1])
    return f"{meaning[:1].upper()}{meaning[1:]}{f' ({behind})' if behind else ''}."


def _facts(diagnosis: Diagnosis, group: str) -> Iterator[Headline]:
    """The sentences of a group of `headlines`. One of the group `first` warns where its figure does; in the others a
    figure that warns has a sentence of its own."""
    first, sentences = group == "first", read_file()["headlines"][group]
    for finding in diagnosis.findings:
        for figure in figures_of(finding):
            sentence = _sentence(figure, sentences)
            if sentence is None or (figure.warning and not first):
                continue
            if fact := _fact(figure, sentence):
                fact += _without_relevant(finding) if figure.name.startswith("ndcg@") else ""
                past = f" It warns {figure.level}." if figure.warning else ""
                yield Headline("warning" if figure.warning else "plain", f"{fact}{past}", finding.layer)
            elif first and figure.name.startswith("ndcg@"):
                yield Headline("plain", f"How good the search is, is unknown: {figure.reason}.", finding.layer)


def _without_relevant(finding: Finding) -> str:
    """What an nDCG says about the queries that cannot have one."""
    empty = finding.result.outcomes.counts.get("queries_without_relevant") if finding.result else 0
    return f" {numbers.count('query', int(empty))} without a relevant document count as 0." if empty else ""


def _sentence(figure: Figure, sentences: Mapping[str, str]) -> str | None:
    name, at, _ = figure.name.partition("@")
    return sentences.get(figure.name if "/" in figure.name else f"{name}{at}")


def _fact(figure: Figure, sentence: str) -> str | None:
    if figure.value is None:
        return None
    return str(sentence).format(
        figure=figure,
        depth=figure.name.partition("@")[2],
        share=_share(figure.value, figure.level),
        value=value_of(figure),
        interval=interval_of(figure),
        count=count_of(figure),
        of=f"{round(figure.value * figure.count):,} of {count_of(figure)} ({_share(figure.value, figure.level)})",
    )


def _share(value: float, level: str | None = None) -> str:
    """With the digits that tell it from none, from all and from the level that it warns at.

    >>> _share(0.3867), _share(0.004), _share(0.0), _share(1.0), _share(0.9968), _share(0.5004, "above 0.5")
    ('39 %', '0.4 %', '0 %', '100 %', '99.7 %', '50.04 %')
    """
    try:
        limits = [100 * float((level or "").rpartition(" ")[2])]
    except ValueError:  # a level in words
        limits = []
    return f"{100 * value:.{digits_apart(100 * value, (0.0, 100.0, *limits), 0)}f} %"


def direction(figure: Figure) -> str:
    if figure.higher_is_better is None:
        return "neither"
    return "higher" if figure.higher_is_better else "lower"


def value_of(figure: Figure) -> str:
    return (numbers.signed if figure.signed else numbers.number)(figure.value, figure.digits)


def interval_of(figure: Figure) -> str:
    return (numbers.signed_interval if figure.signed else numbers.interval)(figure.interval, figure.digits)


def count_of(figure: Figure) -> str:
    count = numbers.count(figure.unit, figure.count)
    return count if figure.exact else f"{count}, a sample"


def shown_label(figure: Figure, comparison: Comparison | None) -> str:
    """The label of a change: of a figure that decides, and of a loss that is past what passes. A figure with no good
    direction has none."""
    if comparison is None or figure.higher_is_better is None:
        return numbers.NONE
    return comparison.label if comparison.decides or comparison.label in _LOSSES else numbers.NONE


_LOSSES = ("AT_RISK", "REGRESSION", "INVALID")


def effect_of(figure: Figure, comparison: Comparison | None) -> str:
    """Better, worse, unchanged or not clear, whatever passes; one with no good direction rose or fell."""
    if comparison is None:
        return numbers.NONE
    effect: str = wording.effect(comparison)
    if figure.higher_is_better is None and effect in ("better", "worse"):
        return "rose" if (comparison.delta or 0) > 0 else "fell"
    return effect


def conclusion(card: Scorecard) -> str:
    """What the label says of the training, as a clause."""
    if card.forgetting:
        return "the model has forgotten general language"
    return {
        "PASS": "the training did what it is for",
        "AT_RISK": "the training did what it is for, with a side effect to look at",
        "INCONCLUSIVE": _doubt(card),
    }.get(card.label) or _loss(card)


def _doubt(card: Scorecard) -> str:
    """Why a scorecard is INCONCLUSIVE: the main change, or that something is kept, is not shown."""
    main = [line for line in card.lines if line.decides]
    if main and all(line.reading == "AS_EXPECTED" for line in main):
        kept = _subjects(line for line in card.lines if line.wanted == "kept" and line.reading == "NOT_SHOWN")
        return f"the training did what it is for, but {kept} not shown to be kept"
    if main and all(line.reading == "UNKNOWN" for line in main):
        return f"what the training is for was not measured: {main[0].metric} ({main[0].reason})"
    return "these data do not show whether the training did what it is for"


def _loss(card: Scorecard) -> str:
    """Why a scorecard is a REGRESSION."""
    if lost := [line for line in card.lines if line.reading == "LOST"]:
        return f"the training cost what it must not cost: {_subjects(lost)} lost"
    return "the training did the contrary of what it is for"


def _subjects(lines: Iterable[ScoreLine]) -> str:
    """What the lines are about, with its verb."""
    names = dict.fromkeys(
        "rare queries"
        if line.metric.endswith("/tail")
        else "general language"
        if line.part in ("sentence-similarity", "mteb")
        else line.metric
        for line in lines
    )
    plural = len(names) > 1 or "rare queries" in names
    return f"{' and '.join(names)} {'are' if plural else 'is'}"


# --- JSON ------------------------------------------------------------------------------------------------------------


def document(diagnosis: Diagnosis) -> dict[str, Any]:
    """`document.to_json` writes it without NaN."""
    source, baseline = diagnosis.dataset, diagnosis.baseline
    return {
        "schema": SCHEMA,
        "created": diagnosis.created,
        "label": label_of(diagnosis),
        "model_id": diagnosis.model.model_id,
        "model_path": diagnosis.model.path,
        "device": diagnosis.model.device,
        "model": _model(diagnosis.model),
        "similarity": diagnosis.similarity,
        "baseline": baseline and {"model_id": baseline.model_id, **_model(baseline)},
        "dataset": {
            **{key: getattr(source, key) for key in ("path", "name", "split", "requested", "shuffle", "seed")},
            "fingerprint": diagnosis.fingerprint,
            **diagnosis.counts,
        },
        "headlines": [vars(headline) for headline in headlines(diagnosis)],
        "layers": {finding.layer: _layer(finding) for finding in diagnosis.findings},
        "scorecard": _scorecard(diagnosis.scorecard) if diagnosis.scorecard else None,
        "notes": list(diagnosis.notes),
        "timing": dict(diagnosis.timing),
    }


def _model(info: ModelInfo) -> dict[str, Any]:
    return {"backend": info.backend, "fingerprint": info.fingerprint, **info.settings}


def _layer(finding: Finding) -> dict[str, Any]:
    result = finding.result
    figures = figures_of(finding)
    content: dict[str, Any] = {
        "about": finding.about,
        "run": result.run_id if result else None,
        "metrics": {f.name: f.value for f in figures} or (dict(result.metrics) if result else {}),
        "intervals": {f.name: f.interval for f in figures} or (dict(result.intervals) if result else {}),
        "warnings": [f.warning for f in figures if f.warning],
        "examples": [vars(example) for named in examples_of(finding).values() for example in named],
        "figures": [vars(f) for f in figures],
        "options": dict(result.options) if result else {},
        "scored": dict(result.outcomes.counts) if result else {},
        "timing": dict(result.timing) if result else {},
        "slices": [slices.to_dict() for slices in result.slices] if result else [],
        "reason": finding.reason,
    }
    if finding.verdict:
        whole = verdict_json.document([finding.verdict])
        content["label"] = whole["label"] if finding.decides else None
        content["comparisons"] = whole["comparisons"]
        content["slice_changes"] = whole["candidates"][0]["slices"]
    return content


def _scorecard(card: Scorecard) -> dict[str, Any]:
    return {**asdict(card), "forgetting": card.forgetting}
