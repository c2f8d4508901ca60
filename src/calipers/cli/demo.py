"""`calipers demo`: the main jobs, on data and a model that are here already."""

from __future__ import annotations

import click

from calipers.cli import options


@click.command(short_help="The main jobs on the bundled sample, with a real model.")
@options.apply(click.option("--no-store", is_flag=True, help="Keep nothing."))
def demo(no_store: bool) -> None:
    """Show Calipers at work on the sample data that it carries, with the real all-MiniLM-L6-v2.

    Two evaluations on pairs of sentences, and a diagnosis of search in a made-up shop of 1,500 products, whose report
    is kept as an HTML file.
    """
    from calipers.cli import demo_steps

    demo_steps.show(options.open_store(None, no_store))
