"""Write what is generated: docs/cli.md from the help texts, docs/images/eval.svg from a real run.

make docs
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import click

# The width of a help text follows the terminal's; the reference must not.
os.environ["COLUMNS"] = "100"
os.environ["TERMINAL_WIDTH"] = "100"

HERE = Path(__file__).parent
HEADER = "# The command line\n\nMade by `make docs` from the help texts; a test keeps it true.\n"

# rich's own template loads fonts from the network; ours uses what the reader has.
SVG = """<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {terminal_width} {terminal_height}" class="rich-terminal">
<style>
.{unique_id}-matrix {{ font-family: ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace;
  font-size: {char_height}px; line-height: {line_height}px; font-variant-east-asian: full-width; }}
{styles}
</style>
<defs><clipPath id="{unique_id}-clip-terminal">
<rect x="0" y="0" width="{terminal_width}" height="{terminal_height}"/></clipPath>
{lines}</defs>
<rect width="{terminal_width}" height="{terminal_height}" rx="8" fill="#292929"/>
<g transform="translate(9, 9)" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}
<g class="{unique_id}-matrix">
{matrix}
</g></g>
</svg>
"""


def commands(command: click.Command, context: click.Context) -> Iterator[tuple[str, str]]:
    """Every command with its help text, the groups before what is in them."""
    yield context.command_path, command.get_help(context)
    if isinstance(command, click.Group):
        for name in sorted(command.commands):
            inner = command.commands[name]
            yield from commands(inner, click.Context(inner, parent=context, info_name=name))


def cli_reference() -> str:
    from calipers.cli import app

    root = click.Context(app, info_name="calipers", terminal_width=100, help_option_names=["-h", "--help"])
    parts = [f"## {path}\n\n```\n{text.strip()}\n```\n" for path, text in commands(app, root)]
    return "\n".join([HEADER, *parts])


def picture() -> str:
    """What a terminal shows of a real evaluation of all-MiniLM-L6-v2 on the bundled English pairs."""
    from rich.console import Console

    from calipers import data, tasks
    from calipers.cli import demo_steps as demo
    from calipers.rendering import text
    from calipers.runs import api

    result = api.evaluate(demo.find_model(), dataset=str(data.sample("english")))
    # The reader's paths are not ours.
    named = result.__class__(
        **{
            **vars(result),
            "dataset": result.dataset.__class__(**{**vars(result.dataset), "path": "english.jsonl"}),
            "model": result.model.__class__(**{**vars(result.model), "model_id": "all-MiniLM-L6-v2"}),
        }
    )
    console = Console(record=True, force_terminal=True, width=92, highlight=False, file=io.StringIO())
    console.print("$ calipers eval all-MiniLM-L6-v2 --dataset english.jsonl", style="green", markup=False)
    text.show_result(console, named, tasks.find(result.task))
    return console.export_svg(title="calipers eval", code_format=SVG)


def main() -> None:
    (HERE / "cli.md").write_text(cli_reference(), encoding="utf-8")
    (HERE / "images").mkdir(exist_ok=True)
    (HERE / "images" / "eval.svg").write_text(picture(), encoding="utf-8")
    print("docs/cli.md, docs/images/eval.svg", file=sys.stderr)


if __name__ == "__main__":
    main()
