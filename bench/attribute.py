"""The search for a culprit against restoring every quantised node one at a time: evaluations and seconds.

    python -m bench.attribute [--faults 2] [--model DIR --dataset FILE --samples 1000 --peer 30]

Faults are planted in small encoders (tests/support/faults.py); a real model with --model, in w8a8 with `unsigned` and
`reduce_range`, has its own. Both ways measure the same metric on the same rows, restore by the same function, and begin
when the table of stages is there. One at a time is what one does without suspicion: put back every tensor that a node
touches, measure, next node. It finds single nodes only. With --peer N it gets N nodes, evenly spaced, and its seconds
are for all of them, by proportion.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tests.support.faults import FAULTS, Fault, Sound, attribute, make_sound

from calipers.artifacts import api as artifacts
from calipers.artifacts.graphs import load_graph
from calipers.artifacts.recipe import Recipe
from calipers.artifacts.records import BuildOptions
from calipers.attribution import api
from calipers.attribution.case import Case as Attempt
from calipers.attribution.divergence import look_at
from calipers.attribution.quantized import open_quantized
from calipers.attribution.records import Attribution, AttributionOptions
from calipers.core import SILENT
from calipers.data import DataOptions
from calipers.runs.protocol import Protocol
from calipers.runs.store import Store

FRAGILE = Recipe("w8a8", unsigned=True, reduce_range=True)


@dataclass(frozen=True)
class Case:
    """A quantised graph that lost something, and how to ask about it."""

    name: str
    model: str
    work: Path
    optimized: Path
    wrong: Path
    recipe: Recipe
    protocol: Protocol
    store: Store
    search: Callable[[int], Attribution]  # of a budget
    ours: bool = False  # quantised here: restored by quantising again


def planted(sound: Sound, fault: Fault, place: Path) -> Case:
    return Case(
        fault.name,
        str(sound.folder),
        sound.folder.parent / "work",
        sound.optimized,
        place / "wrong.onnx",
        sound.recipe,
        Protocol(task=sound.task, dataset=str(sound.data)),
        sound.store,
        lambda budget: attribute(sound, fault, place, fix=False, budget=budget),
    )


def real(model: str, dataset: str, samples: int, place: Path) -> Case:
    store, work = Store(place / "store"), place / "work"
    protocol = Protocol(task="sentence-similarity", dataset=dataset, data_options=DataOptions(samples=samples))
    return Case(
        Path(model).name,
        model,
        work,
        work / "optimized" / "model.onnx",
        work / "quantized-w8a8" / "model.onnx",
        FRAGILE,
        protocol,
        store,
        lambda budget: api.attribute(
            model,
            recipe=FRAGILE,
            protocol=protocol,
            options=AttributionOptions(work=work, budget=budget),
            store=store,
        ),
        ours=True,
    )


def one_at_a_time(case: Case, most: int) -> tuple[int, float, str]:
    """Evaluations, seconds, and the node that brought most back."""
    protocol = case.protocol
    options = BuildOptions(
        task=protocol.task,
        calibration=protocol.dataset,
        data_options=protocol.data_options,
        stages={} if case.ours else {"quantized": case.wrong},
    )
    plan = artifacts.plan(case.model, case.work, case.recipe, options)
    attempt = Attempt(protocol, AttributionOptions(resamples=10_000 if case.ours else 1_000), plan, case.store, SILENT)
    attempt.results["torch"] = attempt.evaluate(case.model, torch=True)
    start = time.perf_counter()
    recipe = attempt.recipe
    graph = open_quantized(
        case.wrong,
        case.optimized,
        look_at(plan.rows),
        output=plan.output,
        recipe=recipe,
        ranges=attempt.ranges(load_graph(case.optimized), recipe) if recipe else None,
    )
    values: list[tuple[float, str]] = []
    nodes = sorted(graph.view.owners_of(r.name for r in graph.view.rounded))
    tried = nodes[:: -(-len(nodes) // min(most, len(nodes)))]
    for node in tried:
        touched = frozenset(r.name for r in graph.view.rounded if node in r.owners)
        evaluation = attempt.try_out(node, partial(graph.put_back, touched))
        values.append((evaluation.value if evaluation.value is not None else float("-inf"), node))
    return len(nodes), (time.perf_counter() - start) * len(nodes) / len(tried), max(values)[1]


def compare(case: Case, most: int) -> tuple[float, float]:
    """Prints a line; returns the shares of evaluations and of seconds."""
    case.search(0)  # the table
    start = time.perf_counter()
    attribution = case.search(24)
    ours = time.perf_counter() - start
    count, theirs, best = one_at_a_time(case, most)
    name = attribution.culprits[0].name if attribution.culprits else "none"
    figures = f"{attribution.evaluations:>8}{count:>8}{ours:>9.1f}{theirs:>9.1f}"
    print(f"{case.name:<36}{figures}  {name}; one at a time: {best}", flush=True)
    return attribution.evaluations / count, ours / theirs


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--faults", type=int, default=2, help="how many of the faults in a quantised BERT")
    parser.add_argument("--model", help="the folder of a real sentence encoder as well")
    parser.add_argument("--dataset", help="pairs for it")
    parser.add_argument("--samples", type=int, default=1000)
    parser.add_argument("--peer", type=int, default=1000, help="nodes that are restored one at a time")
    arguments = parser.parse_args()
    chosen = [f for f in FAULTS if f.stage == "quantized" and f.family == "bert"][: arguments.faults]
    print(f"{'fault':<36}{'tries':>8}{'each':>8}{'s':>9}{'s each':>9}  found")
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        sound = make_sound("bert", place / "bert")
        cases = [planted(sound, fault, place / f"{i}") for i, fault in enumerate(chosen)]
        if arguments.model and arguments.dataset:
            cases.append(real(arguments.model, arguments.dataset, arguments.samples, place / "real"))
        shares = [compare(case, arguments.peer) for case in cases]
    tries, seconds = (sum(values) / len(values) for values in zip(*shares, strict=True))
    print(f"evaluations: {tries:.2f} of one at a time; seconds: {seconds:.2f}")


if __name__ == "__main__":
    main()
