"""The processor at hand: which target it is, and what a quantised graph gains on it."""

from __future__ import annotations

import platform

from calipers.artifacts.recipe import Recipe
from calipers.artifacts.records import Stage
from calipers.core.machine import processor_fact
from calipers.rendering.numbers import times

_GAIN = 1.1  # times as fast as float: less is nothing to a user, and within what timing on a busy machine shows
_ARM = ("aarch64", "arm64")


def has_vnni() -> bool | None:
    """Whether this CPU multiplies 8-bit integers without saturation; None where the system does not say."""
    flags = processor_fact("flags", "Features")
    if not flags:
        return None
    return "vnni" in flags or "asimddp" in flags  # ARM has dot products that do not saturate


def this_target() -> str | None:
    """The entry of `recipe.TARGETS` that suits this processor; None where there is none."""
    machine = platform.machine().lower()
    if machine in _ARM:
        return "arm64"
    if machine not in ("x86_64", "amd64"):
        return None
    return "x86-vnni" if has_vnni() else "x86-avx2"


def gains_nothing(stage: Stage, speedup: float | None, recipe: Recipe) -> list[str]:
    """A remark on a quantised stage that is hardly faster than the float graph it was made of, or slower."""
    if stage.name != "quantized" or speedup is None or speedup >= _GAIN:
        return []
    how = "slower than" if speedup < 1 / _GAIN else "hardly faster than" if speedup > 1 else "no faster than"
    remark = f"{how} the float graph on this processor ({times(speedup)} as fast): it saves space only"
    target = this_target()
    if recipe.precision == "w8a8" and not recipe.unsigned and target in ("x86-vnni", "x86-avx2"):
        remark += f"; signed activations are slow on x86: `unsigned` ones, as the target {target} has, are faster"
    return [remark]
