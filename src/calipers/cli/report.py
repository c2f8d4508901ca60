"""`calipers report`: stored runs in the formats of others."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from calipers.cli import options

if TYPE_CHECKING:
    from collections.abc import Sequence

    from calipers.core import Result

_FORMATS = ("json", "markdown", "mteb", "model-index")


@click.command(cls=options.GroupedCommand, short_help="Stored runs as JSON, Markdown, MTEB results or a model card.")
@click.argument("runs", nargs=-1, required=True, metavar="RUN…")
@options.option(
    "Report",
    "--format",
    "kind",
    type=click.Choice(_FORMATS),
    default="markdown",
    show_default=True,
    help="json: the document of `eval`; mteb: result files that mteb reads; model-index: the top of a model card.",
)
@options.option(
    "Report",
    "--mteb-task",
    metavar="NAME",
    help="The task of MTEB that the data belong to, e.g. STSBenchmark. Default: told by the dataset's path.",
)
@options.option(
    "Output",
    "-o",
    "--output",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Write to a file instead of standard output. For mteb it may be a folder, which gets a file per task.",
)
@options.option("Output", "--force", is_flag=True, help="Overwrite that file.")
@options.option("Output", "--store", metavar="DIR", type=click.Path(path_type=Path), help="Where runs are kept.")
def report(**flags: Any) -> None:
    """Stored runs in the formats that others read. RUN is an id, its beginning, or `latest`.

    \b
    Examples:
      calipers report latest
      calipers report 20261116-043822-5f0a1c latest --format markdown -o results.md
      calipers report latest --format model-index
      calipers report latest --format mteb --mteb-task STSBenchmark -o STSBenchmark.json
    """
    kind, output = flags["kind"], flags["output"]
    if flags["mteb_task"] and kind not in ("mteb", "model-index"):
        raise click.UsageError(f"--mteb-task is for --format mteb and model-index, not for {kind}")
    is_folder = kind == "mteb" and output is not None and output.is_dir()
    if not is_folder:
        options.check_output(output, flags["force"])
    from calipers.runs.store import Store

    store = Store(flags["store"])
    results = [store.load(run_id) for run_id in dict.fromkeys(store.resolve(name) for name in flags["runs"])]
    if kind == "mteb":
        contents = _mteb(results, flags["mteb_task"])
        if is_folder:
            _write_folder(output, contents, flags["force"])
            return
        if len(contents) > 1:
            raise click.UsageError(
                f"these runs are of {len(contents)} tasks ({', '.join(contents)}), and mteb has a file for each: "
                "give an existing folder with -o"
            )
        content = next(iter(contents.values()))
    else:
        content = _render(kind, results, flags["mteb_task"])
    if output:
        options.write_output(output, content.rstrip("\n"))
    else:
        click.echo(content.rstrip("\n"))


def _render(kind: str, results: Sequence[Result], mteb_task: str | None) -> str:
    from calipers.comparison import markdown
    from calipers.rendering import document, model_card
    from calipers.runs import catalogue

    if kind == "markdown":
        return markdown.results_markdown([(result, catalogue.find(result.task)) for result in results])
    if kind == "model-index":
        return model_card.model_index(results, mteb_task=mteb_task)
    documents = [result.to_dict() for result in results]
    return document.to_json(documents[0] if len(documents) == 1 else documents)


def _mteb(results: Sequence[Result], mteb_task: str | None) -> dict[str, str]:
    """MTEB's task → its result file. The runs must be of one model, which the file does not name."""
    from calipers.rendering import document, mteb_json

    models = list(dict.fromkeys(result.model.model_id for result in results))
    if len(models) > 1:
        raise click.UsageError(
            f"these runs are of {len(models)} models ({', '.join(models)}), and mteb has a folder for each: "
            "report one at a time"
        )
    found: dict[str, list[dict[str, Any]]] = {}
    for result in results:
        task = mteb_json.find_task(result, mteb_task)
        found.setdefault(task.name, []).append(mteb_json.document(result, task))
        for warning in mteb_json.warnings(result):
            click.echo(f"calipers: {warning}", err=True)
    return {name: document.to_json(mteb_json.merge(parts)) for name, parts in found.items()}


def _write_folder(folder: Path, contents: dict[str, str], force: bool) -> None:
    for name in contents:
        options.check_output(folder / f"{name}.json", force)
    for name, content in contents.items():
        options.write_output(folder / f"{name}.json", content)
        click.echo(str(folder / f"{name}.json"))
