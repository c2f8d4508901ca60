"""`calipers tasks`, `doctor` and `demo`: what there is, and how it works on data and a model that are here already."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import click

from calipers.cli import options


@click.command(short_help="What can be measured, with which columns and metrics.")
@click.argument("task", required=False)
def tasks(task: str | None) -> None:
    """What can be measured: the tasks, or the columns, default data, metrics and thresholds of one TASK."""
    from calipers import tasks as known
    from calipers.rendering import text

    out, _ = options.consoles()
    if task is None:
        text.show_tasks(out, known.TASKS)
    else:
        text.show_task(out, known.find(task))


@click.command(short_help="Versions, providers, cores, store and caches; what is damaged.")
@click.option("--store", "place", metavar="DIR", type=options.HomePath(), help="Where runs are kept.")
@click.option("--repair", is_flag=True, help="Remove what no run needs: files of no run, damaged vectors, odd rows.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON and nothing else: for a report of a fault.")
def doctor(place: Path | None, repair: bool, as_json: bool) -> None:
    """What this machine offers: versions, execution providers, cores, kernels of matrix products, where the store and
    the caches are, and what is damaged there."""
    import os

    from calipers.core.errors import install
    from calipers.metrics.kernels import load_faiss, loaded_kernels
    from calipers.models import onnx_session
    from calipers.rendering import tables
    from calipers.runs import record, store
    from calipers.runs import repair as integrity

    if as_json:
        _doctor_json(place, repair=repair)
        return
    out, _ = options.consoles()
    environment = record.describe_environment()
    extras = {"torch": "torch", "transformers": "torch", "sentence-transformers": "torch", "datasets": "hub"}
    versions = {"python": environment["python"], **environment["versions"]}
    for name, extra in extras.items():
        versions.setdefault(name, f"not installed: {install(extra)}")
    tables.show_facts(out, "Packages", versions.items())
    machine = [(name.capitalize(), str(environment[name])) for name in ("system", "processor", "cores")]
    providers = ", ".join(onnx_session.available_providers())
    tables.show_facts(out, "Machine", [*machine, ("Providers", providers)])
    load_faiss()
    kernels = [(kernel.owner, kernel.description) for kernel in loaded_kernels()]
    tables.show_facts(out, "Kernels of matrix products", kernels or [("numpy", "does not name its kernel")])
    hub = os.environ.get("HF_HOME") or str(Path.home() / ".cache" / "huggingface")
    runs = store.Store(place)
    tables.show_facts(out, "Places", [("Store", f"{runs.folder} ({runs.count()} runs)"), ("Hub cache", hub)])
    mended = integrity.repair(runs) if repair else []
    left = integrity.inspect(runs)
    facts = [(f"removed {damage.what}", damage.why) for damage in mended] + [(d.what, d.why) for d in left]
    advice = [("repair", "calipers doctor --repair")] if any(damage.repair for damage in left) else []
    tables.show_facts(out, "Damage", [*facts, *advice] or [("Store", "none")])


def _doctor_json(place: Path | None, *, repair: bool) -> None:
    from calipers.metrics.kernels import load_faiss, loaded_kernels
    from calipers.models import onnx_session
    from calipers.rendering.document import to_json
    from calipers.runs import record, store
    from calipers.runs import repair as integrity

    load_faiss()
    runs = store.Store(place)
    mended = [damage.what for damage in (integrity.repair(runs) if repair else [])]
    document = {
        **record.describe_environment(),
        "providers": onnx_session.available_providers(),
        "kernels": {kernel.owner: kernel.description for kernel in loaded_kernels()},
        "store": {"path": str(runs.folder), "runs": runs.count()},
        "removed": mended,
        "damage": [{"what": damage.what, "why": damage.why} for damage in integrity.inspect(runs)],
    }
    options.echo_json(to_json(document))


@click.command(short_help="The main jobs on the bundled sample, with a real model.")
@click.option("--no-store", is_flag=True, help="Keep nothing.")
def demo(no_store: bool) -> None:
    """Show Calipers at work on the sample data that it carries, with the real all-MiniLM-L6-v2.

    Two evaluations on pairs of sentences, and a diagnosis of search in a made-up shop of 1,500 products, whose report
    is kept as an HTML file. Its runs have a store of their own, beside the usual one.
    """
    from calipers.cli import demo_steps
    from calipers.runs.store import default_folder

    place = default_folder()
    demo_steps.show(options.open_store(None if no_store else place.with_name(f"{place.name}-demo"), no_store))


@click.command(short_help="The JSON Schema of a document or a registry.")
@click.argument("what", type=click.Choice(["eval", "compare", "diagnose", "attribute", "trust", "parity", "sweep"]))
def schema(what: str) -> None:
    """Print a JSON Schema: of the document that a command prints with --json, or of the registry that `sweep` reads.

    \b
    Examples:
      calipers schema compare > compare.schema.json
      calipers schema sweep > registry.schema.json
    """
    from calipers.rendering.document import to_json

    if what == "sweep":
        from calipers.sweeps.schema import registry_schema as make
    else:
        from calipers.rendering.schema import document_schema

        make = partial(document_schema, what)
    options.echo_json(to_json(make()))
