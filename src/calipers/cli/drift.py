"""`calipers drift`: do two sets of texts differ, as a model sees them?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from calipers.cli import options
from calipers.cli.grouped import GroupedCommand

if TYPE_CHECKING:
    from rich.console import Console

    from calipers.reliability.traffic import Drift


@click.command(cls=GroupedCommand, short_help="Do two sets of texts differ, as a model sees them?")
@click.argument("model")
@options.flags("reliability.traffic:DriftOptions")
@options.MODEL_FLAGS
@options.RUN_FLAGS
@options.JSON_FLAG
@options.STORE_FLAG
@options.CACHE_FLAGS
@click.pass_context
def drift(context: click.Context, /, model: str, **flags: Any) -> None:
    """Do two sets of texts differ? A classifier on the model's vectors tries to tell them apart on held-out texts.

    The exit code is 1 on an alarm: the whole interval of its AUROC is above 0.5, which is chance.

    \b
    Examples:
      calipers drift ./model --reference june.txt --current july.txt
      calipers drift ./model --reference ./scifact --current log.jsonl --json
    """
    for name in ("reference", "current"):
        if not flags[name]:
            raise click.UsageError(f"--{name} is missing: give the texts to compare")
    from calipers.metrics.threads import at_most
    from calipers.reliability import traffic

    model_options = options.model_options(flags)
    with options.progress_bar() as progress, at_most(model_options.threads):
        result = traffic.drift(
            model,
            options=options.make(traffic.DriftOptions, flags),
            model_options=model_options,
            vectors=options.vector_cache(options.open_store(flags["store"], False), flags),
            progress=progress,
        )
    code = int(result.alarm)
    options.emit(result.to_dict(), flags, lambda out: _show(out, result), code=code)
    context.exit(code)


def _show(console: Console, result: Drift) -> None:
    from calipers.core import printable
    from calipers.rendering import tables

    tables.say(console, printable(result.sentence))
    if result.alarm:
        rows = [{"id": printable(id), "text": printable(text)[:90]} for id, text in result.new]
        tables.show_records(console, rows)
