"""The search in a quantised graph: from suspicion to the parts whose restoration brings the metric back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from calipers.attribution.groups import Group
from calipers.attribution.records import Culprit
from calipers.attribution.scene import Scene
from calipers.attribution.search import Ledger, Measured, OutOfBudget, drop_needless, smallest_prefix

_ALONE = 4  # culprits that are measured by themselves
_NAMED = 6  # suspects told where nothing brings the metric back
Shares = Callable[[Measured], tuple[float | None, tuple[float, float] | None]]


@dataclass(frozen=True)
class Found:
    """`tensors` is the smallest set seen to pass; None where no restoration within the budget did."""

    culprits: tuple[Culprit, ...]
    tensors: frozenset[str] | None
    notes: tuple[str, ...] = ()
    others: tuple[Group, ...] = ()  # the parts that were not needed, the largest suspect first


def find(scene: Scene, ledger: Ledger, share: Shares) -> Found:
    """Restore the largest suspects until the metric returns, drop those that are not needed, and refine inside them."""
    hurts = scene.damages([part.tensors for part in scene.parts])
    order = sorted(range(len(hurts)), key=lambda i: -hurts[i])
    parts, damage = [scene.parts[i] for i in order], [hurts[i] for i in order]
    sets = [frozenset(part.tensors) for part in parts]
    count = smallest_prefix(sets, ledger, lambda n: f"Restoring {_told(parts[:n])}")
    if count is None:
        notes = () if ledger.ran_out else ("putting every part back to float did not bring the metric back",)
        culprits = [_culprit(scene, part, hurt) for part, hurt in zip(parts[:_NAMED], damage, strict=False)]
        return Found(tuple(_measured_alone(scene, culprits, ledger, share)), None, notes)
    needed = drop_needless(sets[:count], ledger, lambda i: f"Without {parts[i].name}") if count > 1 else [0]
    chosen = [_culprit(scene, parts[i], damage[i]) for i in needed]
    tensors = _refine(scene, chosen, ledger)
    chosen = _measured_alone(scene, chosen, ledger, share)
    others = [part for i, part in enumerate(parts) if i not in needed]
    return Found(tuple(_narrowed(scene, chosen, tensors)), tensors, others=tuple(others))


def make_sure(found: Found, ledger: Ledger) -> frozenset[str] | None:
    """What else to restore so that the verdict is PASS and not only the point estimate: all of the culprits, then the
    next suspects. Where no such set is found, what was found."""
    known = ledger.seen(found.tensors) if found.tensors is not None else None
    if found.tensors is None or (known is not None and known.label == "PASS"):
        return found.tensors
    sets = [found.tensors, *(frozenset(part.tensors) for part in found.others)]

    def measure(tensors: frozenset[str], what: str) -> Measured:
        measured = ledger(tensors, what)
        return replace(measured, passes=measured.label == "PASS")

    count = smallest_prefix(sets, measure, lambda n: f"Restoring the culprits and {n - 1} more parts")
    return found.tensors if count is None else frozenset().union(*sets[:count])


def _told(parts: Sequence[Group]) -> str:
    return parts[0].name if len(parts) == 1 else f"{parts[0].name} and {len(parts) - 1} more parts"


def _culprit(scene: Scene, part: Group, damage: float) -> Culprit:
    return Culprit(part.name, part.layer, part.role, part.nodes, part.tensors, damage)


def _refine(scene: Scene, chosen: Sequence[Culprit], ledger: Ledger) -> frozenset[str]:
    """The fewest tensors of the culprits that still bring the metric back, those that hurt most first."""
    tensors = list(dict.fromkeys(name for culprit in chosen for name in culprit.tensors))
    hurts = scene.damages([[name] for name in tensors])
    order = [tensors[i] for i in sorted(range(len(tensors)), key=lambda i: -hurts[i])]
    everything = frozenset(tensors)
    whole = ledger.seen(everything)
    if whole is None:
        return everything
    sure = whole.label == "PASS"  # then so must be what is left of it

    def measure(found: frozenset[str], what: str) -> Measured:
        measured = ledger(found, what)
        return replace(measured, passes=measured.label == "PASS") if sure else measured

    count = smallest_prefix(
        [frozenset({name}) for name in order],
        measure,
        lambda n: f"Restoring {order[0]}" if n == 1 else f"Restoring {order[0]} and {n - 1} more tensors",
    )
    return everything if count is None else frozenset(order[:count])


def _measured_alone(scene: Scene, chosen: Sequence[Culprit], ledger: Ledger, share: Shares) -> list[Culprit]:
    """What each brings back by itself, as far as the budget goes; the largest share first."""
    found = list(chosen)
    try:
        for i, culprit in enumerate(found[:_ALONE]):
            measured = ledger(frozenset(culprit.tensors), f"Restoring {culprit.name} alone")
            part, interval = share(measured)
            found[i] = replace(culprit, value=measured.value, share=part, interval=interval)
    except OutOfBudget:
        pass
    return sorted(found, key=lambda c: -(c.share if c.share is not None else float("-inf")))


def _narrowed(scene: Scene, chosen: Sequence[Culprit], tensors: frozenset[str]) -> list[Culprit]:
    """Each culprit with what of it is needed, and the reasons that can be seen. One that is not needed keeps all."""
    found = []
    for culprit in chosen:
        kept = tuple(name for name in culprit.tensors if name in tensors) or culprit.tensors
        nodes = tuple(sorted(scene.graph.owners_of(kept)))
        found.append(replace(culprit, tensors=kept, nodes=nodes, reasons=tuple(scene.reasons_for(kept))))
    return found
