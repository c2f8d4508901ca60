"""The search in the guilty step: from suspicion to the parts whose restoration brings the metric back."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from calipers.artifacts.graphs import load_graph
from calipers.attribution.case import Case
from calipers.attribution.divergence import look_at
from calipers.attribution.parts import Part
from calipers.attribution.quantized import QuantizedGraph, open_quantized
from calipers.attribution.records import Culprit, Share
from calipers.attribution.trials import Evaluation, Ledger, OutOfBudget, drop_needless, smallest_prefix
from calipers.core import Metric, Result
from calipers.metrics import bootstrap

_ALONE = 4  # culprits that are evaluated by themselves
_NAMED = 6  # suspects reported where nothing brings the metric back
_SHARE_RESAMPLES = 2_000


@dataclass(frozen=True)
class CulpritSearch:
    """`tensors` is the smallest set seen to pass; None where no restoration within the budget did."""

    graph: QuantizedGraph
    culprits: tuple[Culprit, ...]
    tensors: frozenset[str] | None
    others: tuple[Part, ...] = ()  # the parts that were not needed, the largest suspect first


def open_guilty(case: Case) -> QuantizedGraph:
    """The quantised graph of the guilty step, with how it was quantised."""
    before, plan, recipe = Path(case.before.path), case.plan, case.recipe
    graph = open_quantized(
        Path(case.guilty.path),
        before,
        look_at(plan.rows, plan.shape),
        output=plan.output,
        recipe=recipe,
        ranges=case.ranges(load_graph(before), recipe) if recipe and recipe.needs_ranges else None,
    )
    if not graph.where.understood:
        case.notes.append("the graph shows no attention to count layers by: its parts are pieces of equal size")
    return graph


def search(case: Case, graph: QuantizedGraph) -> CulpritSearch:
    """Restore the largest suspects until the metric returns, drop those that are not needed, and refine inside them."""
    case.ledger.evaluate = lambda tensors, what: case.try_out(what, lambda path: graph.put_back(tensors, path))
    if case.recipe is not None:  # nodes are kept in float, and with them all the tensors that they own
        case.ledger.closure = lambda tensors: graph.view.restored_by(graph.view.owners_of(tensors))
    result = _search(case, graph)
    if not result.culprits:
        return result
    first, *rest = result.culprits
    first = replace(first, reasons=(*first.reasons, *graph.kernel_reasons()))
    return replace(result, culprits=(first, *rest))


def _search(case: Case, graph: QuantizedGraph) -> CulpritSearch:
    ledger = case.ledger
    parts, damages = graph.by_damage(graph.parts, [part.tensors for part in graph.parts])
    sets = [frozenset(part.tensors) for part in parts]
    count = smallest_prefix(sets, ledger, lambda n: f"Restoring {_first_and_more(parts[0].name, n, 'parts')}")
    if count is None:
        if not ledger.ran_out:
            case.notes.append("restoring every part to float did not bring the metric back")
        suspects = [_culprit(part, damage) for part, damage in zip(parts[:_NAMED], damages, strict=False)]
        return CulpritSearch(graph, tuple(_evaluate_alone(case, suspects)), None)
    needed = drop_needless(sets[:count], ledger, lambda i: f"Without {parts[i].name}") if count > 1 else [0]
    culprits = [_culprit(parts[i], damages[i]) for i in needed]
    tensors = _refine(graph, culprits, ledger)
    culprits = [_narrow(graph, culprit, tensors) for culprit in _evaluate_alone(case, culprits)]
    others = tuple(part for i, part in enumerate(parts) if i not in needed)
    return CulpritSearch(graph, tuple(culprits), tensors, others)


def make_sure(search: CulpritSearch, ledger: Ledger) -> frozenset[str] | None:
    """What to restore for the label PASS, not the point estimate alone: all culprits, then the next suspects; else what
    the search ended with."""
    if search.tensors is None or ledger.is_sure(search.tensors):
        return search.tensors
    sets = [search.tensors, *(frozenset(part.tensors) for part in search.others)]
    count = smallest_prefix(sets, ledger.surely, lambda n: f"Restoring the culprits and {n - 1} more parts")
    return search.tensors if count is None else frozenset().union(*sets[:count])


def _first_and_more(first: str, count: int, kind: str) -> str:
    return first if count == 1 else f"{first} and {count - 1} more {kind}"


def _culprit(part: Part, damage: float) -> Culprit:
    return Culprit(part.name, part.layer, part.role, part.nodes, part.tensors, damage)


def _refine(graph: QuantizedGraph, culprits: Sequence[Culprit], ledger: Ledger) -> frozenset[str]:
    """The fewest tensors of the culprits that still bring the metric back, those with the largest damage first."""
    tensors = list(dict.fromkeys(name for culprit in culprits for name in culprit.tensors))
    order, _ = graph.by_damage(tensors, [[name] for name in tensors])
    everything = frozenset(tensors)
    if ledger.seen(everything) is None:
        return everything
    count = smallest_prefix(
        [frozenset({name}) for name in order],
        ledger.surely if ledger.is_sure(everything) else ledger,  # where all of them are sure, so must be the fewest
        lambda n: f"Restoring {_first_and_more(order[0], n, 'tensors')}",
    )
    return everything if count is None else frozenset(order[:count])


def _evaluate_alone(case: Case, culprits: Sequence[Culprit]) -> list[Culprit]:
    """What each brings back by itself, as far as the budget goes; the largest share first."""
    evaluated = list(culprits)
    with suppress(OutOfBudget):
        for i, culprit in enumerate(evaluated[:_ALONE]):
            evaluation = case.ledger(frozenset(culprit.tensors), f"Restoring {culprit.name} alone")
            share, interval = _share(case, evaluation)
            evaluated[i] = replace(culprit, value=evaluation.value, share=share, interval=interval)
    return sorted(evaluated, key=lambda c: -(c.share if c.share is not None else float("-inf")))


def _narrow(graph: QuantizedGraph, culprit: Culprit, tensors: frozenset[str]) -> Culprit:
    """The culprit with those of its tensors that are needed, or all where none is, and the visible reasons."""
    kept = tuple(name for name in culprit.tensors if name in tensors) or culprit.tensors
    nodes = tuple(sorted(graph.view.owners_of(kept)))
    return replace(culprit, tensors=kept, nodes=nodes, reasons=tuple(graph.reasons_for(kept)))


def _share(case: Case, evaluation: Evaluation) -> Share:
    """Of the loss of the guilty step; unknown where it or the trial is invalid."""
    broken = case.results.get(case.guilty.stage)
    if broken is None or evaluation.result is None:
        return None, None
    names = list(case.results)
    before = case.results[names[names.index(case.guilty.stage) - 1]]
    confidence, seed = case.options.confidence, case.protocol.data_options.seed
    return share_of_loss(case.metric, before, broken, evaluation.result, confidence=confidence, seed=seed)


def share_of_loss(
    metric: Metric, baseline: Result, broken: Result, restored: Result, *, confidence: float, seed: int
) -> Share:
    """(restored − broken) / (baseline − broken), and its interval over paired resamples.

    Below 0 the restoration makes it worse. No share without a loss, no interval where too many resamples have none.
    """
    columns = [result.outcomes.columns for result in (baseline, broken, restored)]
    values = [metric.value(c) for c in columns]
    if not all(map(math.isfinite, values)) or values[0] == values[1]:
        return None, None
    statistics = [metric.statistic(c) for c in columns]
    drawn = bootstrap.distribution(statistics, len(baseline.outcomes), resamples=_SHARE_RESAMPLES, seed=seed)
    lost = drawn[0] - drawn[1]
    # A resample without a loss, or with a loss of another sign than most, has no share.
    sign = np.sign(np.nanmedian(lost)) or 1.0
    shares = (drawn[2] - drawn[1]) / np.where(lost * sign > 0, lost, np.nan)
    share = (values[2] - values[1]) / (values[0] - values[1])
    return share, bootstrap.percentile_interval(shares, confidence=confidence)
