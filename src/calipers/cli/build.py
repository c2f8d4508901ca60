"""`calipers build`: the artifacts, each checked against the stage before it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from calipers.cli import options
from calipers.cli.grouped import GroupedCommand, name_flags

if TYPE_CHECKING:
    from calipers.artifacts.recipe import Recipe
    from calipers.artifacts.records import BuildOptions


def stage_flag(group: str) -> options.Decorator:
    return options.option(
        group,
        "--stage",
        "stages",
        multiple=True,
        metavar="NAME=FILE",
        help="A graph made elsewhere in the place of a stage: exported, optimized or quantized.",
    )


def samples_flag(group: str) -> options.Decorator:
    return options.option(
        group, "--calibration-samples", type=int, metavar="N", help="How many rows of it. Default: 64."
    )


def target_flag() -> options.Decorator:
    return options.option(
        "Recipe",
        "--target",
        choices="TARGETS",
        help="Settings that suit a processor: per channel, results of products in float; x86: unsigned; avx2: 7 bits.",
    )


@click.command(cls=GroupedCommand, short_help="Export, optimise and quantise a model, every stage checked.")
@click.argument("model")
@options.option("What", "--precision", choices="PRECISIONS", help="Of the result. fp32: no quantisation.")
@options.file_option(
    "What",
    "-o",
    "--output",
    required=True,
    metavar="DIR",
    help="Where the graph goes, named after its precision, with tokenizer and settings. It may hold other precisions.",
)
@options.flags("artifacts.records:BuildOptions", without=("calibration",))
@stage_flag("What")
@options.file_option(
    "Recipe",
    "--recipe",
    help="YAML or JSON with precision, calibration, exclude, ranges, …; flags override its settings.",
)
@target_flag()
@options.flags("artifacts.recipe:Recipe")
@options.flags("artifacts.records:BuildOptions", only=("calibration",))
@samples_flag("Calibration")
@options.flags("data:DataOptions", only=("name", "revision", "split", "seed"), group="Calibration", seed="Which rows.")
@options.option(
    "Calibration", "--column", "columns", multiple=True, metavar="KEY=NAME …", help="Which column is which."
)
@options.MODEL_FLAGS
@options.flags(
    "models:ModelOptions", only=("provider",), provider="ONNX Runtime execution provider that must run the stages."
)
@options.JSON_FLAG
@click.pass_context
def build(context: click.Context, /, model: str, **flags: Any) -> None:
    """Export, optimise and quantise a model. Every stage is checked against the one before it before it is kept.

    The check compares outputs at batch sizes 1, 2 and 7 and several lengths, padded and not. The result is
    DIR/model.onnx (fp32), model_fp16.onnx, model_quantized.onnx (int8-dynamic), model_q4.onnx (int4), model_w8a8.onnx
    or model_w8a16.onnx, with tokenizer and settings beside it: `calipers eval DIR` measures it, with --file-name where
    there are several. DIR/manifest.json says how each was made, how large and fast it is and how far from the model.

    \b
    Examples:
      calipers build sentence-transformers/all-MiniLM-L6-v2 --precision int8-dynamic -o ./minilm-int8
      calipers build ./model --precision w8a8 --calibration texts.txt --calibration-method percentile -o ./w8a8
      calipers build ./model --precision w8a8 --calibration texts.txt --exclude op:Softmax --exclude 'node_add_*' -o ./k
      calipers build ./reranker --precision w8a16 --calibration pairs.jsonl --static-shape 1x512 -o ./npu
      calipers build ./model --precision fp32 --stage exported=theirs.onnx -o ./checked
      calipers build ./model --recipe recipe.yaml -o ./fixed
    """
    from calipers.artifacts import api, manifest
    from calipers.artifacts.records import show_build

    recipe = make_recipe(flags, recipe_flags(context, flags))
    build_options = make_build_options(
        flags,
        columns=options.column_mapping(flags["columns"]),
        data_options=options.data_options({**flags, "samples": flags["calibration_samples"]}),
        model_options=options.model_options(flags),
    )
    with options.progress_bar() as progress:
        built = api.build(model, flags["output"], recipe=recipe, options=build_options, progress=progress)
    if flags["as_json"]:
        options.echo_json(manifest.to_json(built))
    else:
        show_build(options.consoles()[0], built, lambda note: name_flags(note, context.command.params))


def recipe_flags(context: click.Context, flags: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of the recipe that the command line sets."""
    from calipers.artifacts.recipe import Recipe
    from calipers.core.options import flag_names

    names, typed = flag_names(Recipe), click.core.ParameterSource.COMMANDLINE
    return {name: flags[key] for name, key in names.items() if context.get_parameter_source(key) is typed}


def make_recipe(flags: Mapping[str, Any], settings: Mapping[str, Any]) -> Recipe:
    """The recipe of the file with the precision and these settings over it; excluded nodes are those of both."""
    from calipers.artifacts import recipe
    from calipers.core.choices import PRECISIONS

    if flags["recipe"] is None and flags["precision"] is None:
        raise click.UsageError(f"--precision is missing: one of {', '.join(PRECISIONS)}; or give --recipe FILE")
    values = recipe.read_recipe(flags["recipe"]).to_dict() if flags["recipe"] else {}
    exclude = [*values.get("exclude", ()), *settings.get("exclude", ())]
    precision = {"precision": flags["precision"]} if flags["precision"] else {}
    implied = recipe.for_target(flags["precision"] or values["precision"], flags["target"])
    made = recipe.make_recipe({**values, **precision, **implied, **settings, "exclude": exclude}, "the command line")
    recipe.refuse_ineffective(made, settings)
    return made


def make_build_options(flags: Mapping[str, Any], **others: Any) -> BuildOptions:
    from calipers.artifacts.records import BuildOptions, parse_shape, parse_stages

    shape = parse_shape(flags["static_shape"])
    stages = parse_stages(flags["stages"])
    return options.make(BuildOptions, {**flags, "static_shape": shape}, stages=stages, **others)
