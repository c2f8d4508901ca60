"""Verdicts as JUnit XML, which every CI service can show: a suite per candidate, a test case per metric.

The file is red exactly when the exit code of `calipers compare` is not 0:

- REGRESSION and INVALID are failures; AT_RISK is one only if the caller says so (`failing`).
- INCONCLUSIVE is an error, JUnit's word for a test that came to no result, or a failure if the caller says so.
- A metric that does not decide cannot fail: with a bad label it is skipped, and the message says which label.
- With `any`, a candidate that fails beside one that passes is skipped.
- A comparison that ended without a verdict is an error (`to_failed_junit`), so that no older file stays green.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Sequence
from datetime import UTC, datetime
from xml.etree import ElementTree as xml

from calipers.comparison import settings, slices, wording
from calipers.comparison.records import Comparison, GateOptions, Verdict
from calipers.core import printable
from calipers.rendering import numbers

FAILING = ("REGRESSION", "INVALID")
# What XML 1.0 cannot hold, even escaped.
_ILLEGAL = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def to_junit(verdicts: Sequence[Verdict], *, gate: GateOptions | None = None) -> str:
    """The XML document. `gate` says which labels count as failures, and whether one candidate that passes is enough."""
    gate = gate or GateOptions()
    names, enough = _names(verdicts), gate.any and gate.exit_code([v.label for v in verdicts]) == 0
    suites = []
    for number, verdict in enumerate(verdicts):
        counts = not enough or gate.exit_code([verdict.label]) == 0
        suites.append(_suite(number, names[number], verdict, gate.failing, counts=counts))
    return _document(suites, sum(_seconds(verdict) for verdict in verdicts))


def to_failed_junit(message: str, candidates: Sequence[str], kind: str) -> str:
    """The XML document of a comparison that came to no verdict: an error for each candidate. `kind` is the error's."""
    suites = []
    for number, name in enumerate(candidates):
        suite = xml.Element("testsuite", id=str(number), name=_legal(f"compare: {name}"))
        _add_outcome(_add_case(suite, "verdict", f"compare.{_word(name)}"), kind, message, (), decides=True)
        _count(suite)
        suite.set("time", "0")
        suite.set("timestamp", datetime.now(UTC).replace(tzinfo=None, microsecond=0).isoformat())
        suites.append(suite)
    return _document(suites, 0.0)


def _document(suites: Sequence[xml.Element], seconds: float) -> str:
    root = xml.Element("testsuites", name="calipers compare")
    root.extend(suites)
    for name in ("tests", "failures", "errors", "skipped"):
        root.set(name, str(sum(int(suite.get(name, "0")) for suite in root)))
    root.set("time", f"{seconds:.3f}")
    xml.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + xml.tostring(root, encoding="unicode")


def _names(verdicts: Sequence[Verdict]) -> list[str]:
    """What each candidate is called in the file, no two alike: its name, where that is not enough with the folder
    above it, and where that is not enough with its number."""
    names = [verdict.candidate_name for verdict in verdicts]
    for longer in (_with_folder, lambda number, name, _: f"{name} {number + 1}"):
        words = Counter(map(_word, names))
        rows = enumerate(zip(names, verdicts, strict=True))
        names = [longer(number, name, v) if words[_word(name)] > 1 else name for number, (name, v) in rows]
    return names


def _with_folder(_: int, name: str, verdict: Verdict) -> str:
    parts = re.split(r"[/\\]+", (verdict.candidate and verdict.candidate.model.path) or name)
    return "/".join([part for part in parts if part][-2:])


def _word(name: str) -> str:
    """A name as part of a class name: letters of every script, digits, _ and -.

    >>> _word("モデル/v1.5")
    'モデル_v1_5'
    """
    return re.sub(r"[^\w-]+", "_", name)


def _suite(number: int, name: str, verdict: Verdict, failing: Collection[str], *, counts: bool) -> xml.Element:
    """Where the candidate does not count, because another one passes and one is enough, its failures are skipped."""
    suite = xml.Element("testsuite", id=str(number), name=_legal(f"{verdict.baseline.task}: {name}"))
    suite.append(_properties(verdict))
    place = f"{verdict.baseline.task}.{_word(name)}"
    for c in verdict.comparisons:
        case = _add_case(suite, c.metric, place)
        note = wording.note(c, verdict)
        message = f"{c.label}: {wording.change(c)}" + (f"; {note}" if note else "")
        _add_outcome(case, c.label, message, failing, decides=c.decides and counts)
        xml.SubElement(case, "system-out").text = _legal(_numbers(verdict, c))
    if not any(c.decides and c.label == verdict.label for c in verdict.comparisons):
        # The verdict must be seen even where no metric could be compared: a suite without cases would be green.
        case = _add_case(suite, "verdict", place)
        _add_outcome(case, verdict.label, f"{verdict.label}: {wording.sentence(verdict)}", failing, decides=counts)
    _count(suite)
    suite.set("time", f"{_seconds(verdict):.3f}")
    suite.set("timestamp", _timestamp(verdict))
    xml.SubElement(suite, "system-out").text = _legal(wording.sentence(verdict))
    return suite


def _count(suite: xml.Element) -> None:
    for name, tag in (("tests", "testcase"), ("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
        suite.set(name, str(sum(1 for _ in suite.iter(tag))))


def _properties(verdict: Verdict) -> xml.Element:
    facts = {
        "baseline": verdict.baseline.model.model_id,
        "baseline_run": verdict.baseline.run_id,
        "candidate": verdict.candidate_name,
        "candidate_run": verdict.candidate.run_id if verdict.candidate else "",
        "dataset": verdict.baseline.dataset.path,
        "fingerprint": verdict.baseline.fingerprint,
        "differences": settings.in_words(verdict.differences),
        "label": verdict.label,
        **_costs(verdict),
    }
    properties = xml.Element("properties")
    for name, value in (facts | _groups(verdict)).items():
        xml.SubElement(properties, "property", name=_legal(name), value=_legal(value))
    return properties


def _groups(verdict: Verdict) -> dict[str, str]:
    """What each group changed by, and where the change hurts most. They are no test cases: nothing depends on them."""
    facts: dict[str, str] = {}
    for changes in verdict.slices:
        place = f"{changes.metric} by {changes.by}"
        for group, examples, baseline, candidate, delta, ends, p, note in slices.rows(changes):
            values = f"{baseline} to {candidate}, delta {delta} ({ends}), p by Holm {p}"
            words = f"{values}, {numbers.count(wording.unit(verdict), int(examples.replace(',', '')))}"
            facts[f"{place}: {group}"] = f"{words}; {note}" if note else words
        facts[f"{place}, hurts most"] = slices.sentence(changes, wording.unit(verdict))
        facts |= {f"{place}, note": note for note in changes.notes}
    return facts


def _costs(verdict: Verdict) -> dict[str, str]:
    """Size and speed of the candidate, as far as they are known."""
    if verdict.candidate is None:
        return {}
    size, speed = verdict.candidate.model.size, verdict.candidate.speed
    facts = {"size": str(size)} if size else {}
    return facts | ({name: f"{value:g}" for name, value in vars(speed).items() if name != "timed_at"} if speed else {})


def _add_case(suite: xml.Element, name: str, place: str) -> xml.Element:
    return xml.SubElement(suite, "testcase", name=_legal(name), classname=_legal(f"calipers.{place}"), time="0")


def _add_outcome(case: xml.Element, label: str, message: str, failing: Collection[str], *, decides: bool) -> None:
    """What the label means for a test case: nothing for one that passes. What is no label is the kind of an error."""
    if label not in failing and label in ("PASS", "AT_RISK", *FAILING):
        return
    if not decides:
        xml.SubElement(case, "skipped", message=_legal(f"{message} (the verdict does not depend on it)"))
        return
    tag = "failure" if label in failing else "error"
    xml.SubElement(case, tag, message=_legal(message), type=label).text = _legal(message)


def _numbers(verdict: Verdict, comparison: Comparison) -> str:
    passes, at_risk = wording.limits(comparison.thresholds)
    _, baseline, candidate, delta, relative, ends, label, chances, *_ = comparison.cells()
    lines = {
        "label": label,
        "chances of PASS / AT_RISK / REGRESSION": chances,
        "baseline": baseline,
        "candidate": candidate,
        "delta": f"{delta} ({relative})",
        wording.interval_name(verdict): ends,
        "p": numbers.p_value(comparison.p_value),
        "p by Holm": numbers.p_value(comparison.adjusted_p),
        "examples": str(comparison.examples),
        "passes below": passes,
        "a regression from": at_risk,
    }
    return "\n".join(f"{name}: {value}" for name, value in lines.items())


def _seconds(verdict: Verdict) -> float:
    return float(verdict.candidate.timing.get("total_seconds", 0.0)) if verdict.candidate else 0.0


def _timestamp(verdict: Verdict) -> str:
    """Without a zone, as the schema has it; in UTC."""
    made = verdict.candidate or verdict.baseline
    return datetime.fromisoformat(made.created).replace(tzinfo=None, microsecond=0).isoformat()


def _legal(text: str) -> str:
    return _ILLEGAL.sub("�", printable(text) if "\n" not in text else text)
