"""The search for a culprit against restoring every quantised node one at a time: evaluations and seconds.

    python -m bench.attribute [--faults 2]

Faults are planted in small encoders (tests/faults.py); both ways measure the same metric on the same rows, restore by
the same function and begin with the same stages in the store. One at a time is what one does without suspicion: put
back every tensor that a node touches, measure, next node. It finds single nodes only.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

from tests.faults import FAULTS, Fault, Sound, attribute, make_sound

from calipers import building, comparing
from calipers.attribute.divergence import look_at
from calipers.attribute.scene import open_scene
from calipers.attributing import Request
from calipers.attributing.bench import Bench
from calipers.core import SILENT


def one_at_a_time(sound: Sound, wrong: Path) -> tuple[int, float, str]:
    """Evaluations, seconds, and the node that brought most back."""
    protocol = comparing.Protocol(task=sound.task, dataset=str(sound.data))
    request = Request(recipe=sound.recipe, protocol=protocol, resamples=1_000)
    wishes = building.Wishes(task=sound.task, calibration=str(sound.data), given={"quantized": wrong})
    wanted = building.build_request(str(sound.folder), sound.folder.parent / "work", sound.recipe, wishes)
    bench = Bench(request, wanted, sound.store, SILENT)
    bench.results["torch"] = bench.evaluate(str(sound.folder), torch=True)
    start = time.perf_counter()
    scene = open_scene(
        wrong, sound.optimized, look_at(wanted.rows), output=wanted.source.output(False), recipe=None, ranges=None
    )
    put_back = scene.put_back
    assert put_back is not None
    found: list[tuple[float, str]] = []
    for node in sorted(scene.graph.owners_of(r.name for r in scene.graph.rounded)):
        touched = frozenset(r.name for r in scene.graph.rounded if node in r.owners)
        measured = bench.try_out(node, lambda target, touched=touched: put_back(touched, target))  # type: ignore[misc]
        found.append((measured.value if measured.value is not None else float("-inf"), node))
    return len(found), time.perf_counter() - start, max(found)[1]


def compare(sound: Sound, fault: Fault, place: Path) -> tuple[float, float]:
    """Prints a line; returns the shares of evaluations and of seconds."""
    attribute(sound, None, place / "warm")  # the sound stages are measured before the clock starts
    start = time.perf_counter()
    found = attribute(sound, fault, place, fix=False)
    ours = time.perf_counter() - start
    count, theirs, best = one_at_a_time(sound, place / "wrong.onnx")
    name = found.culprits[0].name if found.culprits else "none"
    print(
        f"{fault.name:<36}{len(sound.graph.nodes):>6}{found.evaluations:>8}{count:>8}{ours:>9.1f}{theirs:>9.1f}  "
        f"{name}; one at a time: {best}"
    )
    return found.evaluations / count, ours / theirs


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--faults", type=int, default=2, help="how many of the faults in a quantised BERT")
    asked = parser.parse_args()
    chosen = [f for f in FAULTS if f.stage == "quantized" and f.family == "bert"][: asked.faults]
    print(f"{'fault':<36}{'nodes':>6}{'tries':>8}{'each':>8}{'s':>9}{'s each':>9}  found")
    with tempfile.TemporaryDirectory() as folder:
        sound = make_sound("bert", Path(folder) / "bert")
        shares = [compare(sound, fault, Path(folder) / f"{i}") for i, fault in enumerate(chosen)]
    tries, seconds = (sum(values) / len(values) for values in zip(*shares, strict=True))
    print(f"evaluations: {tries:.2f} of one at a time; seconds: {seconds:.2f} (stages and suspicion included)")


if __name__ == "__main__":
    main()
