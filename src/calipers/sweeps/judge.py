"""Results of jobs to cells: values beside their baselines, labels, Pareto, and what broke since the last sweep."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from calipers import models, tasks
from calipers.comparison import api as comparison
from calipers.comparison import verdict
from calipers.comparison.records import Verdict
from calipers.core import CalipersError, RequestError, Result
from calipers.runs import catalogue
from calipers.sweeps.abilities import weight_size
from calipers.sweeps.driver import State, timing_of
from calipers.sweeps.plan import Plan, PlannedCell
from calipers.sweeps.records import CellKey, CellResult, Registry, SweepOptions

_BROKEN = ("REGRESSION", "INVALID")


def judge(plan: Plan, state: State, options: SweepOptions, before: Mapping[str, Any] | None = None) -> list[CellResult]:
    """Every cell with its value, and with a label where it has a baseline. `before` is the last sweep's document."""
    results = {cell.key: state.results[cell.job] for cell in plan.cells if cell.job in state.results}
    cells = {cell.key: _measured(cell, plan, state, results.get(cell.key)) for cell in plan.cells}
    verdicts: dict[CellKey, Verdict] = {}
    for cell in plan.cells:
        if cell.baseline is None:
            continue
        first, second = results.get(cell.baseline), results.get(cell.key)
        if first is None:
            cells[cell.key] = replace(cells[cell.key], reason=f"its baseline {cell.baseline} has no value")
        elif second is not None:
            outcome = _compare(first, second, plan.registry, options)
            if isinstance(outcome, str):
                cells[cell.key] = replace(cells[cell.key], reason=outcome)
            else:
                verdicts[cell.key] = outcome
        elif cell.job in state.invalid:
            cells[cell.key] = _invalid(cells[cell.key], cell.baseline, first)
    for key, judged in zip(verdicts, verdict.correct(list(verdicts.values())), strict=True):
        baseline = next(cell.baseline for cell in plan.cells if cell.key == key)
        cells[key] = _labelled(cells[key], judged, str(baseline))
    return _sorted(_newly_broken(_dominated(list(cells.values())), before))


def _measured(cell: PlannedCell, plan: Plan, state: State, result: Result | None) -> CellResult:
    failure = cell.failure or state.failures.get(cell.job)
    made = CellResult(cell.key, cell.model.group, failure=failure if result is None else None)
    if result is None:
        return made
    name, value = next(iter(result.metrics.items()))
    task = catalogue.find(result.task)
    metric = next(m for m in task.measures(task.options(**result.options)) if m.name == name)
    latency = timing_of(plan.jobs.get(cell.timing))
    return replace(
        made,
        metric=name,
        higher_is_better=metric.higher_is_better,
        digits=metric.digits,
        value=value,
        interval=result.intervals.get(name),
        size=_size(cell, plan),
        latency={**latency, "loaded": bool(latency.get("loaded", False))} if latency else None,
        run=result.run_id,
        reused=cell.job in state.reused,
        digest=digest(result),
    )


def _size(cell: PlannedCell, plan: Plan) -> int | None:
    try:
        return weight_size(models.find(plan.jobs[cell.job].spec["reference"]), cell.model.options)
    except CalipersError:
        return None


def digest(result: Result) -> str:
    """SHA-256 over what was measured, times and dates left out: two runs with the same one gave the same bits."""
    total = hashlib.sha256()
    facts = {"metrics": dict(result.metrics), "intervals": {k: v and list(v) for k, v in result.intervals.items()}}
    facts |= {"fingerprint": result.fingerprint, "counts": dict(result.outcomes.counts), "ids": result.outcomes.ids}
    total.update(json.dumps(facts, sort_keys=True).encode())
    tables = {"": result.outcomes.columns, **result.outcomes.details}
    for table in sorted(tables):
        for name in sorted(tables[table]):
            column = tables[table][name]
            content = json.dumps(column.tolist()).encode() if column.dtype == object else column.tobytes()
            total.update(f"{table}/{name}/{column.dtype}".encode() + content)
    return f"sha256:{total.hexdigest()}"


def _compare(first: Result, second: Result, registry: Registry, options: SweepOptions) -> Verdict | str:
    """The verdict, or a sentence that says why there is none (other tokenizers, other rows)."""
    limits = {n: t for n, t in registry.thresholds.items() if n in first.metrics or not tasks.has_metric(n)}
    try:
        return comparison.compare(
            first,
            [second],
            thresholds=limits,
            metrics=(next(iter(first.metrics)),),
            confidence=options.confidence,
            resamples=options.resamples,
            worst=0,
        )[0]
    except RequestError as error:
        return str(error)


def _labelled(cell: CellResult, judged: Verdict, baseline: str) -> CellResult:
    line = next((c for c in judged.comparisons if c.metric == cell.metric), None)
    if line is None:
        return replace(cell, label=judged.label, baseline_cell=baseline, reason=judged.reason)
    return replace(
        cell,
        baseline=line.baseline,
        baseline_cell=baseline,
        delta=line.delta,
        relative=line.relative,
        label=judged.label,
        p_value=line.p_value,
        adjusted_p=line.adjusted_p,
        reason=line.reason,
    )


def _invalid(cell: CellResult, baseline: CellKey, first: Result) -> CellResult:
    name, value = next(iter(first.metrics.items()))
    return replace(cell, metric=name, baseline=value, baseline_cell=str(baseline), label="INVALID")


def _dominated(cells: Sequence[CellResult]) -> list[CellResult]:
    """Mark a cell where another one of its task is at least as good in quality, latency and size, and better in one."""

    def point(cell: CellResult) -> tuple[float, float, float] | None:
        if cell.value is None or cell.size is None or cell.latency is None:
            return None
        return (-cell.value if cell.higher_is_better else cell.value), cell.latency["p50"], float(cell.size)

    marked = []
    for cell in cells:
        own = point(cell)
        others = [point(c) for c in cells if c.key.task == cell.key.task and c.metric == cell.metric and c is not cell]
        worse = own is not None and any(
            other is not None and all(a <= b for a, b in zip(other, own, strict=True)) and other != own
            for other in others
        )
        marked.append(replace(cell, dominated=worse))
    return marked


def _newly_broken(cells: Sequence[CellResult], before: Mapping[str, Any] | None) -> list[CellResult]:
    """Mark cells that are broken now and were not in the last sweep."""
    earlier = {f"{c['model']}/{c['task']}/{c['precision']}": c for c in (before or {}).get("cells", ())}

    def was_fine(cell: CellResult) -> bool:
        old = earlier.get(str(cell.key))
        return old is not None and old["value"] is not None and old["label"] not in _BROKEN

    return [replace(c, newly_broken=is_broken(c) and was_fine(c)) for c in cells]


def is_broken(cell: CellResult) -> bool:
    return cell.failure is not None or cell.label in _BROKEN


_ORDER = ("INVALID", "REGRESSION", "INCONCLUSIVE", "AT_RISK", "PASS", None)


def _sorted(cells: Sequence[CellResult]) -> list[CellResult]:
    """Worst first: failures and bad labels, then the largest loss."""

    def loss(cell: CellResult) -> float:
        change = cell.relative if cell.relative is not None else 0.0
        return change if cell.higher_is_better else -change

    return sorted(
        cells,
        key=lambda c: (
            0 if c.label == "INVALID" else 1 if c.label == "REGRESSION" else 2 if c.failure else 3,
            _ORDER.index(c.label) if c.label in _ORDER else len(_ORDER),
            loss(c),
            str(c.key),
        ),
    )
