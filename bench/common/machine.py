"""The machine that benches run on, and the page that shows the last run of each kind of processor."""

from __future__ import annotations

import json
import os
import platform
import re
from pathlib import Path
from typing import Any

from bench.common.entries import Entry, as_table
from calipers.metrics.kernels import load_faiss, loaded_kernels
from calipers.metrics.threads import available_cores

OPENING = """# Benchmarks

Written by `make bench` from the runs in `bench/results`, the last of each kind of processor. `make bench-check` runs
the benches again and names what fell by more than 10 % since the last run of the same size on the same kind of
processor.

Every round runs each contestant once; *ours* is the median of the seconds, *ratio* the median over the rounds of the
peer's seconds over ours. The rate of sgemm, a float32 matrix product on all cores, is measured before and after each
contestant in every round; the higher one counts, since what else runs can only lower it. The *share of the limit* is
the median of what was reached of it. *Memory* is anonymous memory at the peak beyond what there was. The docstrings in
`bench/` say what each work is.
"""

LIMITS = Path(__file__).parent / "limits.md"  # profiles of what misses its goal

GROWTH = """## Growth

`python -m bench.growth --plot docs/images/growth.svg`: CPU seconds and peak of anonymous memory of whole commands, each
in a process of its own, with the static model and 1,000 queries.

![CPU seconds and memory over the number of examples](images/growth.svg)
"""


def processor() -> dict[str, str]:
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines() if os.path.exists("/proc/cpuinfo") else []
    facts = dict(re.split(r"\s*:\s*", line, maxsplit=1) for line in lines if ":" in line)
    wide = next((name for name in ("avx512f", "avx2", "asimd") if name in facts.get("flags", "").split()), "")
    name = facts.get("model name") or platform.processor() or platform.machine()
    return {"name": name, "family": facts.get("cpu family", ""), "model": facts.get("model", ""), "vectors": wide}


def kind() -> str:
    """A folder's name for processors that are alike: amd-epyc-26-2-avx512f-2-cores."""
    text = " ".join([*processor().values(), str(available_cores()), "cores"])
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")


def facts() -> dict[str, Any]:
    load_faiss()
    return {
        "processor": processor(),
        "cores": available_cores(),
        "system": f"{platform.system()} {platform.machine()}, Python {platform.python_version()}",
        "kernels": {kernel.owner: kernel.name for kernel in loaded_kernels()},
        "load": round(os.getloadavg()[0], 1),
    }


def page(keep: Path) -> str:
    """The last run of each kind of processor and size."""
    sections = [OPENING]
    for folder in sorted(path for path in keep.iterdir() if path.is_dir()):
        sections += [_section(run) for run in read_runs(folder).values()]
    sections.append(LIMITS.read_text(encoding="utf-8"))
    if (keep.parents[1] / "docs" / "images" / "growth.svg").exists():
        sections.append(GROWTH)
    return "\n".join(sections)


def read_runs(folder: Path) -> dict[str, dict[str, Any]]:
    """The last run of each size; lines of benches that it left out are those of earlier runs."""
    runs: dict[str, dict[str, Any]] = {}
    for file in sorted(folder.glob("*.json")):
        run = json.loads(file.read_text(encoding="utf-8"))
        before = runs.get(run["size"], {"first": run["date"], "lines": []})
        lines = {line["work"]: line for line in (*before["lines"], *run["lines"])}
        runs[run["size"]] = {**run, "first": before["first"], "lines": list(lines.values())}
    return runs


def _section(run: dict[str, Any]) -> str:
    machine = run["machine"]
    title = f"## {_named(machine['processor'])}, {machine['cores']} cores, size {run['size']}"
    kernels = "; ".join(f"{owner}: {kernel}" for owner, kernel in machine["kernels"].items())
    load = f"Load average at the end: {machine['load']} on {machine['cores']} cores."
    since = "" if run["first"] == run["date"] else f"{run['first']} to "
    said = f"{since}{run['date']}. {machine['system']}. Kernels: {kernels}. {load}"
    return f"{title}\n\n{said}\n\n{as_table([Entry(**line) for line in run['lines']])}\n"


def _named(processor: dict[str, str]) -> str:
    """Makers sell several kinds under one name: AMD EPYC (family 25, model 17)."""
    numbers = ", ".join(f"{key} {processor[key]}" for key in ("family", "model") if processor.get(key))
    return f"{processor['name']} ({numbers})" if numbers else processor["name"]
