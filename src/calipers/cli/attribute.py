"""`calipers attribute`: which step broke it, which nodes, and a recipe that passes."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from calipers.cli import options
from calipers.cli.build import make_build_options, make_recipe, recipe_flags, samples_flag, stage_flag, target_flag
from calipers.cli.compare import THRESHOLD_FLAG, thresholds_of
from calipers.cli.grouped import GroupedCommand, name_flags

if TYPE_CHECKING:
    from calipers.attribution.records import Attribution


@click.command(cls=GroupedCommand, short_help="Which step broke it, which nodes, and how to fix it.")
@click.argument("model")
@options.option("What", "--task", help="What to measure. Default: sentence-similarity.")
@options.option("What", "--precision", choices="PRECISIONS", help="How the model is quantised.")
@options.flags("attribution.records:AttributionOptions", only=("fix", "budget"))
@stage_flag("Stages")
@options.flags("attribution.records:AttributionOptions", only=("built",))
@options.file_option(
    "Recipe", "--recipe", help="How to quantise, beyond the precision: the file that `calipers build --recipe` takes."
)
@target_flag()
@options.flags("artifacts.recipe:Recipe")
@options.flags(
    "artifacts.records:BuildOptions",
    only=("optimize", "opset", "static_shape", "calibration"),
    group="Stages",
    calibration="Real texts for ranges and checks. Default: other rows of the data that are measured.",
)
@samples_flag("Stages")
@options.flags("attribution.records:AttributionOptions", only=("work",))
@THRESHOLD_FLAG
@options.flags("attribution.records:AttributionOptions", only=("confidence", "resamples"))
@options.TASK_FLAGS
@options.DATA_FLAGS
@options.MODEL_FLAGS
@options.RUN_FLAGS
@options.flags("attribution.records:AttributionOptions", only=("recipe_out",))
@options.OUTPUT_FLAGS
@click.pass_context
def attribute(context: click.Context, /, model: str, **flags: Any) -> None:
    """Which step broke the model, which nodes of its graph, and what to do about it.

    PyTorch, exported, optimised and quantised are measured on the same examples, each against the first and against
    the one before. In the step that lost most the graph is searched: parts of it (layer 3 feed-forward, mask, …) are
    restored to float, largest suspicion first, until the metric returns, then fewer and fewer of their tensors.

    With --fix other settings (a scale for each channel, other ranges) and the nodes of the culprits are tried, the
    smallest change that passes is built and measured, and its recipe is written for `calipers build --recipe`.

    The graph that lost is handed over with --built DIR, a folder of `calipers build`, or --stage quantized=FILE; a
    folder as MODEL that holds the precision (model_w8a8.onnx, onnx/model_quantized.onnx, …) hands over its own.

    Exit codes: those of `compare` for the last stage, or for the fix; 2, 3 or 4 where a stage could not be made.

    \b
    Examples:
      calipers attribute ./model --task sentence-similarity --precision w8a8 --dataset pairs.csv
      calipers attribute ./bert --task fill-mask --precision w8a8 --dataset texts.txt --samples 100 --fix
      calipers attribute ./model --precision w8a8 --built ./built --dataset pairs.csv --fix
      calipers attribute ./model --precision w8a8 --stage quantized=theirs.onnx --dataset pairs.csv
    """
    from calipers.attribution.text import show_attribution

    options.check_outputs(flags, "output", "recipe_out")
    attribution = _attribute(model, flags, recipe_flags(context, flags))
    notes = tuple(name_flags(note, context.command.params) for note in attribution.notes)
    attribution = replace(attribution, notes=notes)
    code = attribution.exit_code
    options.emit(attribution.to_dict(), flags, lambda out: show_attribution(out, attribution), code=code)
    context.exit(code)


def _attribute(model: str, flags: dict[str, Any], settings: dict[str, Any]) -> Attribution:
    from calipers.attribution import api
    from calipers.attribution.records import AttributionOptions
    from calipers.data import DataOptions

    samples = flags["calibration_samples"]
    chosen = samples or flags["calibration"]
    protocol = options.protocol(flags)
    build = make_build_options(
        {**flags, "task": None},
        data_options=DataOptions(samples=samples, seed=flags["seed"] + 1) if chosen else DataOptions(),
    )
    limits = thresholds_of(flags["limits"])
    recipe = make_recipe(flags, settings)
    store = options.open_store(flags["store"], flags["no_store"])
    with options.progress_bar() as progress:
        return api.attribute(
            model,
            recipe=recipe,
            protocol=protocol,
            build=build,
            options=options.make(AttributionOptions, flags, thresholds=limits),
            store=store,
            progress=progress,
        )
