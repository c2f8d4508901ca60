"""`calipers attribute`: which step broke it, which nodes, and a recipe that passes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from calipers.cli import options, thresholds
from calipers.cli.build import _PRECISIONS, _given, _shape

if TYPE_CHECKING:
    from calipers.artifacts import Recipe
    from calipers.attribution import Request
    from calipers.attribution.records import Attribution


@click.command(cls=options.GroupedCommand, short_help="Which step broke it, which nodes, and how to fix it.")
@click.argument("model")
@options.option("What", "--task", help="What to measure. Default: sentence-similarity.")
@options.option("What", "--precision", type=click.Choice(_PRECISIONS), help="How the model is quantised.")
@options.option("What", "--fix", is_flag=True, help="Find the smallest recipe that passes, build and measure it.")
@options.option(
    "What",
    "--budget",
    type=int,
    default=24,
    show_default=True,
    metavar="N",
    help="Evaluations that the search and the fix may take.",
)
@options.option(
    "Stages",
    "--stage",
    "stages",
    multiple=True,
    metavar="NAME=FILE",
    help="A graph made elsewhere in the place of a stage: exported, optimized or quantized.",
)
@options.option(
    "Stages",
    "--recipe",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="How to quantise, beyond the precision: the file that `calipers build --recipe` takes.",
)
@options.option("Stages", "--optimize/--no-optimize", default=True, help="Fuse operators before quantising.")
@options.option("Stages", "--opset", type=int, help="Of the exported graph. Default: 21.")
@options.option("Stages", "--static-shape", metavar="1x512", help="Fix batch and length. Default: both are free.")
@options.option(
    "Stages",
    "--calibration",
    metavar="D",
    help="Real texts for ranges and checks. Default: other rows of the data that are measured.",
)
@options.option("Stages", "--calibration-samples", type=int, metavar="N", help="How many rows of it. Default: 64.")
@options.option(
    "Stages",
    "--work",
    metavar="DIR",
    type=click.Path(path_type=Path),
    help="Where the stages go, to be found again by the next run. Default: beside the store.",
)
@options.option(
    "Verdict",
    "--threshold",
    "limits",
    multiple=True,
    metavar="METRIC=PASS,RISK",
    help="How much worse passes, and from where on it is a regression: 5%,10% of the baseline, or 2.0,4.0 points.",
)
@options.option(
    "Verdict",
    "--confidence",
    type=float,
    default=0.95,
    show_default=True,
    metavar="SHARE",
    help="A label that fewer resamples agree with is INCONCLUSIVE; also of the intervals.",
)
@options.option("Verdict", "--resamples", type=int, default=10_000, show_default=True, help="Of the bootstrap.")
@options.TASK_FLAGS
@options.DATA_FLAGS
@options.MODEL_FLAGS
@options.RUN_FLAGS
@options.option(
    "Output",
    "--recipe-out",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Where the recipe of the fix goes. Default: beside the fixed graph.",
)
@options.OUTPUT_FLAGS
@click.pass_context
def attribute(context: click.Context, /, model: str, **flags: Any) -> None:
    """Which step broke the model, which nodes of its graph, and what to do about it.

    PyTorch, exported, optimised and quantised are measured on the same examples, each against the first and against
    the one before. In the step that lost most the graph is searched: parts of it (layer 3 feed-forward, mask, …) are
    put back to float, largest suspicion first, until the metric returns, then fewer and fewer of their tensors.

    With --fix other settings (a scale for each channel, other ranges) and the nodes that were found are tried, the
    smallest change that passes is built and measured, and its recipe is written for `calipers build --recipe`.

    Exit codes: those of `compare` for the last stage, or for the fix; 2, 3 or 4 where a stage could not be made.

    \b
    Examples:
      calipers attribute ./model --task sentence-similarity --precision w8a8 --dataset pairs.csv
      calipers attribute ./bert --task fill-mask --precision w8a8 --dataset texts.txt --samples 100 --fix
      calipers attribute ./model --precision w8a8 --stage quantized=theirs.onnx --dataset pairs.csv
    """
    options.check_output(flags["output"], flags["force"])
    options.check_output(flags["recipe_out"], flags["force"])
    found = _run(model, flags)
    _show(found, flags)
    context.exit(found.exit_code)


def _run(model: str, flags: dict[str, Any]) -> Attribution:
    from calipers import attribution as attributing
    from calipers.rendering import text

    request = _request(flags)
    store = options.open_store(flags["store"], flags["no_store"])
    _, err = options.consoles()
    with text.bar(err) as progress:
        if request.folder is None and store is not None:
            from dataclasses import replace

            request = replace(request, folder=attributing.place(store, model, request))
        return attributing.attribute(model, request, store=store, progress=progress)


def _request(flags: dict[str, Any]) -> Request:
    from calipers import attribution as attributing
    from calipers.artifacts import OPSET
    from calipers.artifacts import api as building
    from calipers.comparison import api as comparing
    from calipers.data import DataOptions

    samples = flags["calibration_samples"]
    calibration = DataOptions(samples=samples, seed=flags["seed"] + 1) if samples or flags["calibration"] else None
    return attributing.Request(
        recipe=_recipe(flags),
        protocol=comparing.Protocol(
            task=flags["task"],
            task_options=options.task_options(flags),
            dataset=flags["dataset"],
            columns=options.column_mapping(flags["columns"]),
            model_options=options.model_options(flags),
            data_options=options.data_options(flags),
        ),
        build=building.Wishes(
            calibration=flags["calibration"],
            data_options=calibration or DataOptions(),
            given=_given(flags["stages"]),
            optimize=flags["optimize"],
            opset=OPSET if flags["opset"] is None else flags["opset"],
            shape=_shape(flags["static_shape"]),
        ),
        fix=flags["fix"],
        budget=flags["budget"],
        thresholds=thresholds.from_flags(flags["limits"]),
        confidence=flags["confidence"],
        resamples=flags["resamples"],
        folder=flags["work"],
        recipe_file=flags["recipe_out"],
    )


def _recipe(flags: dict[str, Any]) -> Recipe:
    from calipers.artifacts import make_recipe, read_recipe

    if flags["recipe"] is None and flags["precision"] is None:
        raise click.UsageError(f"--precision is missing: one of {', '.join(_PRECISIONS)}; or give --recipe FILE")
    told = read_recipe(flags["recipe"]).told() if flags["recipe"] else {}
    return make_recipe(told | ({"precision": flags["precision"]} if flags["precision"] else {}), "the command line")


def _show(found: Attribution, flags: dict[str, Any]) -> None:
    from calipers.attribution import json as attribution_json
    from calipers.attribution import text as attribution_text
    from calipers.rendering import document

    content = document.to_json(attribution_json.document(found))
    if flags["output"]:
        options.write_output(flags["output"], content)
    if flags["as_json"]:
        click.echo(content)
    else:
        out, _ = options.consoles()
        attribution_text.show_attribution(out, found)
