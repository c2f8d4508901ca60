"""Verdicts: what two results over the same examples say about a change."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any, Literal

from calipers.core.choices import FAIL_ON, MOST_RESAMPLES
from calipers.core.options import Options, option
from calipers.core.results import Result, Thresholds, html_table
from calipers.core.slices import shown_group
from calipers.rendering.numbers import NONE, chance, number, p_value, percent, signed, signed_interval

Label = Literal["PASS", "AT_RISK", "REGRESSION", "INCONCLUSIVE", "INVALID"]
# From good to bad: of several labels, the worst one stands for the whole.
SEVERITY: tuple[Label, ...] = ("PASS", "AT_RISK", "INCONCLUSIVE", "REGRESSION", "INVALID")


Question = Literal["REGRESSION", "AT_RISK"]  # what an exit code is about: this label or a worse one


def worst_label(labels: Iterable[Label], question: Question = "REGRESSION") -> Label:
    """INVALID, then REGRESSION, INCONCLUSIVE, AT_RISK, PASS; INCONCLUSIVE where there is none. Where AT_RISK fails,
    it is worse than INCONCLUSIVE.

    >>> worst_label(["AT_RISK", "INCONCLUSIVE"]), worst_label(["AT_RISK", "INCONCLUSIVE"], "AT_RISK")
    ('INCONCLUSIVE', 'AT_RISK')
    """
    order = {label: float(place) for place, label in enumerate(SEVERITY)}
    if question == "AT_RISK":
        order["AT_RISK"] = order["REGRESSION"] - 0.5
    return max(labels, key=order.__getitem__, default="INCONCLUSIVE")


@dataclass(frozen=True)
class VerdictOptions(Options):
    """How a verdict is found: everything in it can change without running a model again.

    >>> VerdictOptions(resamples=1)
    Traceback (most recent call last):
    calipers.core.errors.RequestError: `resamples` must be at least 100, found 1
    """

    metrics: tuple[str, ...] = option(
        (),
        "Compare this metric, and let the verdict depend on it. `all` shows all. Default: the primary one decides.",
        group="Verdict",
        flag="--metric",
        metavar="NAME",
    )
    confidence: float = option(
        0.95,
        "Exit 1 from this chance of a REGRESSION on, 0 below its complement, else 5; also of the intervals.",
        group="Verdict",
        metavar="SHARE",
        above=0.5,
        below=1,
    )
    # With fewer resamples, an interval is a few numbers.
    resamples: int | None = option(
        None,
        "Of the bootstrap. Default: 10,000; beyond 20,000 examples fewer, at least 1,000.",
        group="Verdict",
        metavar="N",
        at_least=100,
        at_most=MOST_RESAMPLES,
    )
    worst: int | None = option(
        None,
        "Name the examples that lost most. Default: 5 with one candidate, 0 with several.",
        group="Output",
        metavar="N",
        at_least=0,
    )
    thresholds: Mapping[str, Thresholds] = field(default_factory=dict)  # by metric, instead of the metric's own


@dataclass(frozen=True)
class GateOptions(Options):
    """Which labels fail a check."""

    fail_on: str = option(
        "regression",
        "at-risk: exit 1 is about AT_RISK or worse. inconclusive: INCONCLUSIVE is exit code 1, too. Default: neither.",
        group="Verdict",
        choices=FAIL_ON,
    )
    any: bool = option(
        False,
        "Exit 0 if at least one candidate passes, or is AT_RISK where that does not fail. Default: the worst decides.",
        group="Verdict",
    )

    @property
    def question(self) -> Question:
        return "AT_RISK" if self.fail_on == "at-risk" else "REGRESSION"

    @property
    def failing(self) -> set[str]:
        more = {"at-risk": {"AT_RISK"}, "inconclusive": {"INCONCLUSIVE"}}
        return {"REGRESSION", "INVALID"} | more.get(self.fail_on, set())

    def exit_code(self, labels: Collection[str]) -> int:
        """1 if a label fails, else 5 if one is INCONCLUSIVE, else 0, as where there is no label.

        >>> GateOptions().exit_code(["PASS", "AT_RISK"]), GateOptions("at-risk").exit_code(["AT_RISK"])
        (0, 1)
        >>> GateOptions().exit_code(["INCONCLUSIVE", "PASS"]), GateOptions().exit_code(["INCONCLUSIVE", "REGRESSION"])
        (5, 1)
        >>> GateOptions(any=True).exit_code(["REGRESSION", "PASS"]), GateOptions().exit_code([])
        (0, 0)
        """
        codes = {1 if label in self.failing else 5 if label == "INCONCLUSIVE" else 0 for label in labels}
        order = (0, 5, 1) if self.any else (1, 5, 0)
        return next((code for code in order if code in codes), 0)

    def explain(self, labels: Collection[str]) -> str | None:
        """One sentence on an exit code that the labels alone do not explain.

        >>> GateOptions("inconclusive").explain(["INCONCLUSIVE"])
        'Exit code 1: the verdict is INCONCLUSIVE, which fails here (`fail_on` inconclusive).'
        >>> GateOptions().explain(["REGRESSION"]) is None
        True
        """
        code, bad = self.exit_code(labels), {"REGRESSION", "INVALID"} & set(labels)
        if self.any and code == 0 and bad:
            return f"Exit code 0: one candidate does not fail (`any`), and another is {min(bad)}."
        if bad:
            return None
        if code == 1:
            label = "AT_RISK" if self.fail_on == "at-risk" else "INCONCLUSIVE"
            return f"Exit code 1: the verdict is {label}, which fails here (`fail_on` {self.fail_on})."
        return "Exit code 5: the verdict is INCONCLUSIVE, neither passed nor failed." if code else None


@dataclass(frozen=True)
class Chances:
    """How likely each label is, by the examples; together 1."""

    passes: float
    at_risk: float
    regression: float

    def __str__(self) -> str:
        """In percent, together 100 as shown. What an exit code is about is rounded towards a half, so that it does not
        look more certain than it is: the chance of a REGRESSION, and the one of AT_RISK or worse.

        >>> str(Chances(0.96, 0.0399, 0.0001)), str(Chances(0.3333, 0.3333, 0.3334))
        ('96 / 3.9 / 0.1 %', '33.4 / 33.2 / 33.4 %')
        """
        regression, worse = float(chance(self.regression)), float(chance(self.at_risk + self.regression))
        return f"{100 - worse:.4g} / {worse - regression:.4g} / {regression:.4g} %"

    def of(self, label: Label) -> float:
        return {"PASS": self.passes, "AT_RISK": self.at_risk, "REGRESSION": self.regression}[label]

    def at_least(self, question: Question) -> float:
        """Of this label or a worse one."""
        return self.regression if question == "REGRESSION" else self.regression + self.at_risk

    def to_dict(self) -> dict[str, float]:
        return {"pass": self.passes, "at_risk": self.at_risk, "regression": self.regression}


@dataclass(frozen=True)
class Comparison:
    """One metric of a candidate beside that of the baseline, on the same examples. Numbers are None where unknown.

    `delta` is candidate − baseline and `relative` the same as a share of the baseline; a fall of a metric that should
    rise is negative. `label` follows from `chances` (see `verdict.decide`), `estimate` is the label of the point
    estimate and `confidence` its chance.
    """

    metric: str
    higher_is_better: bool
    baseline: float | None
    candidate: float | None
    delta: float | None
    relative: float | None
    interval: tuple[float, float] | None  # of delta
    label: Label
    estimate: Label
    confidence: float | None
    p_value: float | None  # paired permutation test of "no difference"; never exactly 0
    adjusted_p: float | None  # by Holm over everything compared at once
    examples: int
    settled_by: int | None  # about how many examples would settle it, where it is INCONCLUSIVE
    thresholds: Thresholds
    decides: bool  # whether the verdict depends on it
    digits: int = 2
    reason: str | None = None  # why a number is missing, or what a reader must know of it
    chances: Chances | None = None

    def __repr__(self) -> str:
        values = f"{number(self.baseline, self.digits)} → {number(self.candidate, self.digits)}"
        return f"Comparison({self.metric}: {self.label}, {values} [{signed_interval(self.interval, self.digits)}])"

    def cells(self) -> tuple[str, ...]:
        """A row of a table: metric, baseline, candidate, delta, relative, interval, label, chances, p, examples."""
        return (
            self.metric,
            number(self.baseline, self.digits),
            number(self.candidate, self.digits),
            self.delta_text,
            self.relative_text,
            signed_interval(self.interval, self.digits),
            self.label,
            str(self.chances) if self.chances else NONE,
            p_value(self.p_value if self.adjusted_p is None else self.adjusted_p),
            f"{self.examples:,}",
        )

    @property
    def delta_text(self) -> str:
        """The difference, with the digits that show on which side of the thresholds it is."""
        return signed(self.delta, self.digits, () if self.thresholds.relative else self._limits)

    @property
    def relative_text(self) -> str:
        return percent(self.relative, self._limits if self.thresholds.relative else ())

    @property
    def _limits(self) -> tuple[float, ...]:
        return tuple(sign * limit for limit in (self.thresholds.passes, self.thresholds.at_risk) for sign in (-1, 1))

    def to_dict(self) -> dict[str, Any]:
        """Every field but `digits`, as JSON can hold it."""
        fields = {name: value for name, value in vars(self).items() if name != "digits"}
        limits = self.thresholds
        return {
            **fields,
            "interval": list(self.interval) if self.interval else None,
            "chances": self.chances.to_dict() if self.chances else None,
            "thresholds": {"pass": limits.passes, "at_risk": limits.at_risk, "relative": limits.relative},
        }


@dataclass(frozen=True)
class Example:
    """An example that lost: how much of the delta of the primary metric it accounts for."""

    id: str
    texts: Mapping[str, str]
    baseline: Mapping[str, Any]  # its outcome columns
    candidate: Mapping[str, Any]
    share: float  # in the metric's own unit; negative is a loss

    def to_dict(self) -> dict[str, Any]:
        return dict(plain(vars(self)))


@dataclass(frozen=True)
class Unread:
    """Ids of the examples with a text without a vector, by who has none: one of the models alone, or both."""

    baseline: tuple[str, ...] = ()
    candidate: tuple[str, ...] = ()
    both: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, list[str]]:
        return {name: list(ids) for name, ids in vars(self).items()}


@dataclass(frozen=True)
class SliceChange:
    """One metric of both runs on the examples of one group; `group` is None for those without a label."""

    group: str | None
    comparison: Comparison


_OF_SLICE = ("examples", "baseline", "candidate", "delta", "interval", "p_value", "adjusted_p", "reason")


@dataclass(frozen=True)
class SliceChanges:
    """One metric by the groups of one column. p-values are adjusted over the groups; nothing here decides."""

    by: str
    about: str  # where the labels come from
    metric: str
    changes: tuple[SliceChange, ...]
    notes: tuple[str, ...] = ()
    hurts_most: SliceChange | None = None  # the group that lost most

    def to_dict(self) -> dict[str, Any]:
        slices = []
        for change in self.changes:
            facts = change.comparison.to_dict()
            slices.append({"group": change.group, **{name: facts[name] for name in _OF_SLICE}})
        return {
            "by": self.by,
            "about": self.about,
            "metric": self.metric,
            "hurts_most": shown_group(self.hurts_most.group) if self.hurts_most else None,
            "slices": slices,
            "notes": list(self.notes),
        }


@dataclass(frozen=True)
class Verdict:
    """A candidate against the baseline. `candidate` is None where its output was dead; `reason` says how."""

    baseline: Result
    candidate: Result | None
    candidate_name: str
    label: Label
    comparisons: tuple[Comparison, ...]
    worst: tuple[Example, ...] = ()
    differences: Mapping[str, tuple[Any, Any]] = field(default_factory=dict)  # of the models' settings
    reason: str | None = None
    bootstrap: Mapping[str, Any] = field(default_factory=dict)
    unread: Unread = Unread()  # what one model alone cannot read counts against it
    baseline_name: str = ""
    slices: tuple[SliceChanges, ...] = ()  # by group, where that is requested

    def __repr__(self) -> str:
        metrics = ", ".join(f"{c.metric} {signed(c.delta, c.digits)}" for c in self.comparisons if c.decides)
        return f"Verdict({self.label}: {self._title()}{f', {metrics}' if metrics else ''})"

    def _repr_html_(self) -> str:
        header = ("metric", "baseline", "candidate", "delta", "interval", "label", "chances")
        rows = [[c.cells()[place] for place in (0, 1, 2, 3, 5, 6, 7)] for c in self.comparisons]
        return html_table(f"{self.label}: {self._title()}", header, rows, [self.reason] if self.reason else [])

    def _title(self) -> str:
        return f"{self.candidate_name} against {self.baseline_name or self.baseline.model.artifact}"

    def to_dict(self) -> dict[str, Any]:
        """The facts of the candidate's run (null where its output was dead), the label, and what explains it."""
        changed = self.differences.items()
        return {
            "name": self.candidate_name,
            **run_facts(self.candidate),
            "label": self.label,
            "reason": self.reason,
            "differences": {name: {"baseline": plain(old), "candidate": plain(new)} for name, (old, new) in changed},
            "without_vector": self.unread.to_dict(),
            "comparisons": [c.to_dict() for c in self.comparisons],
            "worst": [example.to_dict() for example in self.worst],
            "slices": [changes.to_dict() for changes in self.slices],
        }


_RUN_FACTS = {
    "model_id": "model.model_id",
    "model_path": "model.path",
    "run": "run_id",
    "created": "created",
    "device": "model.device",
    "backend": "model.backend",
    "fingerprint": "model.fingerprint",
    "size": "model.size",
    "settings": "model.settings",
}


def run_facts(result: Result | None) -> dict[str, Any]:
    """Which run this is; every value is None for a candidate whose output was dead, for it has none."""
    facts = {name: plain(attrgetter(place)(result)) if result else None for name, place in _RUN_FACTS.items()}
    speed = result.speed if result else None
    return facts | {"speed": None if speed is None else dict(vars(speed)), "truncated": _truncated(result)}


def _truncated(result: Result | None) -> dict[str, int] | None:
    """How many texts the model cut, in a search also by what they are; None where that is unknown."""
    if result is None or "truncation" in result.model.settings:
        return None
    counts = {name: count for name, count in result.outcomes.counts.items() if name.endswith("truncated")}
    return {"truncated": 0, **{name: int(count) for name, count in counts.items()}}


def plain(value: Any) -> Any:
    """Numbers of numpy as those of Python, which JSON can hold; what it cannot hold at all, as text."""
    if isinstance(value, Mapping):
        return {str(key): plain(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(inner) for inner in value]
    if hasattr(value, "tolist"):
        return value.tolist()
    return value if value is None or isinstance(value, (str, int, float)) else str(value)
