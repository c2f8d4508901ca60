"""`calipers tasks` and `calipers doctor`: what there is."""

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

    from calipers.models import onnx_session
    from calipers.rendering import tables
    from calipers.runs import record, store

    out, _ = options.consoles()
    environment = record.describe_environment()
    extras = {"torch": "torch", "transformers": "torch", "sentence-transformers": "torch", "datasets": "hub"}
    versions = [(name, version) for name, version in environment["versions"].items()]
    versions += [
        (name, f"not installed: pip install 'calipers[{extra}]'")
        for name, extra in extras.items()
        if name not in environment["versions"]
    ]
    tables.show_facts(out, "Packages", [("python", environment["python"]), *versions])
    hub = os.environ.get("HF_HOME") or str(Path.home() / ".cache" / "huggingface")
    tables.show_facts(
        out,
        "Machine",
        [
            ("System", environment["system"]),
            ("Processor", environment["processor"]),
            ("Cores", str(environment["cores"])),
            ("Providers", ", ".join(onnx_session.available_providers())),
        ],
    )
    folder = store.default_folder()
    kept = len(store.Store(folder).list())
    tables.show_facts(out, "Places", [("Store", f"{folder} ({kept} runs)"), ("Hub cache", hub)])
