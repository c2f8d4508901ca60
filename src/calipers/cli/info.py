"""`calipers tasks`, `doctor` and `demo`: what there is, and how it works on data and a model that are here already."""

from __future__ import annotations

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


@click.command(short_help="Versions, providers, cores, store and caches.")
def doctor() -> None:
    """What this machine offers: versions, execution providers, cores, where the store and the caches are."""
    import os
    from pathlib import Path

    from calipers.core.errors import install
    from calipers.models import onnx_session
    from calipers.rendering import tables
    from calipers.runs import record, store

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
    hub = os.environ.get("HF_HOME") or str(Path.home() / ".cache" / "huggingface")
    folder = store.default_folder()
    kept = len(store.Store(folder).list())
    tables.show_facts(out, "Places", [("Store", f"{folder} ({kept} runs)"), ("Hub cache", hub)])


@click.command(short_help="The main jobs on the bundled sample, with a real model.")
@click.option("--no-store", is_flag=True, help="Keep nothing.")
def demo(no_store: bool) -> None:
    """Show Calipers at work on the sample data that it carries, with the real all-MiniLM-L6-v2.

    Two evaluations on pairs of sentences, and a diagnosis of search in a made-up shop of 1,500 products, whose report
    is kept as an HTML file.
    """
    from calipers.cli import demo_steps

    demo_steps.show(options.open_store(None, no_store))
