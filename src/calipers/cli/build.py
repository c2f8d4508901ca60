"""`calipers build`: the artifacts, each checked against the stage before it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from calipers.cli import options

if TYPE_CHECKING:
    from calipers.artifacts import Manifest, Recipe, Stage
    from calipers.artifacts.api import Wishes
    from calipers.models import ModelOptions

_PRECISIONS = ("fp32", "fp16", "int8-dynamic", "w8a8", "w8a16", "int4")
_RECIPE_FLAGS = ("precision", "percentile", "per_channel", "symmetric", "unsigned", "reduce_range", "block_size")


@click.command(cls=options.GroupedCommand, short_help="Export, optimise and quantise a model, every stage checked.")
@click.argument("model")
@options.option("What", "--precision", type=click.Choice(_PRECISIONS), help="Of the result. fp32: no quantisation.")
@options.option(
    "What",
    "-o",
    "--output",
    required=True,
    metavar="DIR",
    type=click.Path(path_type=Path),
    help="Where the stages go. A stage that is there already and would come out the same is kept.",
)
@options.option("What", "--task", help="Which head: that of the task's models. Default: what config.json is made for.")
@options.option(
    "What", "--pooled", is_flag=True, help="Encoders: give sentence vectors, pooled as the model's files say."
)
@options.option("What", "--static-shape", metavar="1x512", help="Fix batch and length. Default: both are free.")
@options.option("What", "--opset", type=int, help="Of the exported graph. Default: 21.")
@options.option(
    "What", "--optimize/--no-optimize", default=True, help="Fuse operators before quantising. Default: yes."
)
@options.option(
    "What",
    "--stage",
    "stages",
    multiple=True,
    metavar="NAME=FILE",
    help="A graph made elsewhere in the place of a stage: exported, optimized or quantized.",
)
@options.option(
    "What",
    "--accept-differences",
    is_flag=True,
    help="Keep a float stage that differs from the one before it, and note it. Default: refuse it.",
)
@options.option(
    "Recipe",
    "--recipe",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="YAML or JSON with precision, calibration, exclude, ranges, …; flags here are put over it.",
)
@options.option(
    "Recipe",
    "--exclude",
    multiple=True,
    metavar="NODE",
    help="Keep a node in float: its name, a glob such as 'node_MatMul_*', or op:TYPE. Can be repeated.",
)
@options.option(
    "Recipe",
    "--calibration-method",
    type=click.Choice(["minmax", "entropy", "percentile"]),
    help="How a range is taken from what was seen, for w8a8 and w8a16. Default: minmax.",
)
@options.option("Recipe", "--percentile", type=float, metavar="P", help="Of the values a range keeps. Default: 99.999.")
@options.option("Recipe", "--per-channel/--per-tensor", default=None, help="Scales of weights. Default: per tensor.")
@options.option("Recipe", "--symmetric/--asymmetric", default=None, help="Ranges of activations. Default: asymmetric.")
@options.option("Recipe", "--unsigned/--signed", default=None, help="Activations as uint or int. Default: int.")
@options.option(
    "Recipe",
    "--reduce-range/--full-range",
    default=None,
    help="Weights in 7 bits: 8 can saturate on x86 without VNNI. Default: 8.",
)
@options.option("Recipe", "--block-size", type=int, metavar="N", help="int4: weights that share a scale. Default: 32.")
@options.option(
    "Calibration",
    "--calibration",
    metavar="D",
    help="Real texts: a file, a folder or a hub id, with a column text or the task's columns. Default: the task's own.",
)
@options.option("Calibration", "--calibration-samples", type=int, metavar="N", help="How many rows of it. Default: 64.")
@options.option("Calibration", "--seed", type=int, default=42, show_default=True, help="Which rows.")
@options.option("Calibration", "--dataset-name", metavar="CONFIG", help="The hub dataset's configuration.")
@options.option("Calibration", "--revision", metavar="R", help="The hub dataset's revision.")
@options.option("Calibration", "--split", metavar="S", help="Which split. Default: test.")
@options.option(
    "Calibration", "--column", "columns", multiple=True, metavar="KEY=NAME …", help="Which column is which."
)
@options.MODEL_FLAGS
@options.option("Running", "--ep", metavar="PROVIDER", help="ONNX Runtime execution provider that must run the stages.")
@options.option("Output", "--json", "as_json", is_flag=True, help="Print the manifest as JSON and nothing else.")
def build(model: str, **flags: Any) -> None:
    """Export, optimise and quantise a model. Every stage is checked against the one before it before it is kept.

    The check compares outputs at batch sizes 1, 2 and 7 and several lengths, padded and not. DIR/model.onnx is the
    result, with tokenizer and settings beside it: `calipers eval -m DIR` measures it. DIR/exported/model.onnx and so
    on are the stages, DIR/manifest.json says how they were made, how large and fast they are and how far apart.

    \b
    Examples:
      calipers build sentence-transformers/all-MiniLM-L6-v2 --precision int8-dynamic -o ./minilm-int8
      calipers build ./model --precision w8a8 --calibration texts.txt --calibration-method percentile -o ./w8a8
      calipers build ./model --precision w8a8 --calibration texts.txt --exclude op:Softmax --exclude 'node_add_*' -o ./k
      calipers build ./reranker --precision w8a16 --calibration pairs.jsonl --static-shape 1x512 -o ./npu
      calipers build ./model --precision fp32 --stage exported=theirs.onnx -o ./checked
      calipers build ./model --recipe recipe.yaml -o ./fixed
    """
    from calipers.artifacts import api as building
    from calipers.rendering import text

    recipe = _recipe(flags)
    wishes = _wishes(flags)
    out, err = options.consoles()
    with text.bar(err) as progress:
        found = building.build_artifacts(model, flags["output"], recipe, wishes, progress=progress)
    if flags["as_json"]:
        from calipers.artifacts import to_json

        click.echo(to_json(found))
        return
    text.show_facts(out, f"{found.model_id}  ·  {found.precision}", _facts(found))
    text.show_examples(out, [_line(stage) for stage in found.stages])


def _recipe(flags: Mapping[str, Any]) -> Recipe:
    """The file's recipe with the flags over it; nodes to exclude are those of both."""
    from calipers.artifacts import make_recipe, read_recipe

    values = {name: flags[name] for name in _RECIPE_FLAGS if flags[name] is not None}
    if flags["calibration_method"]:
        values["calibration"] = flags["calibration_method"]
    if flags["recipe"] is None and flags["precision"] is None:
        raise click.UsageError(f"--precision is missing: one of {', '.join(_PRECISIONS)}; or give --recipe FILE")
    told: dict[str, Any] = {}
    if flags["recipe"]:
        told = read_recipe(flags["recipe"]).told()
    told |= values
    told["exclude"] = [*told.get("exclude", ()), *flags["exclude"]]
    return make_recipe(told, "the command line")


def _wishes(flags: Mapping[str, Any]) -> Wishes:
    from calipers.artifacts import OPSET
    from calipers.artifacts.api import Wishes
    from calipers.data import DataOptions

    return Wishes(
        task=flags["task"],
        calibration=flags["calibration"],
        columns=options.column_mapping(flags["columns"]),
        data_options=DataOptions(
            name=flags["dataset_name"],
            split=flags["split"],
            revision=flags["revision"],
            samples=flags["calibration_samples"],
            seed=flags["seed"],
        ),
        model_options=_model_options(flags),
        given=_given(flags["stages"]),
        optimize=flags["optimize"],
        opset=OPSET if flags["opset"] is None else flags["opset"],
        shape=_shape(flags["static_shape"]),
        pooled=flags["pooled"],
        refuse=not flags["accept_differences"],
    )


def _model_options(flags: Mapping[str, Any]) -> ModelOptions:
    rest = {"device": "cpu", "batch_tokens": None, "batch_size": None, "threads": None, "timeout": 60.0}
    return options.model_options({**rest, **flags})


def _given(pairs: Sequence[str]) -> dict[str, Path]:
    named = {}
    for pair in pairs:
        name, equals, file = pair.partition("=")
        if not equals or not file:
            raise click.UsageError(f"--stage wants NAME=FILE, found {pair!r}")
        named[name] = Path(file).expanduser()
    return named


def _shape(text: str | None) -> tuple[int, int] | None:
    """
    >>> _shape("1x512")
    (1, 512)
    """
    if text is None:
        return None
    found = re.fullmatch(r"([1-9]\d*)[x,]([1-9]\d*)", text)
    if not found:
        raise click.UsageError(f"--static-shape wants ROWSxLENGTH such as 1x512, found {text!r}")
    return int(found[1]), int(found[2])


def _facts(found: Manifest) -> list[tuple[str, str]]:
    facts = [("Result", found.model)]
    if found.calibration:
        told = found.calibration
        facts.append(("Calibrated", f"{told['method']} over {told['rows']} texts of {told['dataset']}"))
    checked = found.checked_on
    facts.append(
        ("Checked", f"at batch sizes 1, 2 and 7, padded and not, on {checked['rows']} texts of {checked['dataset']}")
    )
    made = [stage.name for stage in found.stages if not stage.reused]
    facts.append(("Made now", ", ".join(made) or "nothing: every stage was there"))
    return facts


def _line(stage: Stage) -> dict[str, str]:
    difference = stage.difference
    return {
        "stage": stage.name,
        "size": f"{stage.size / 1e6:.1f} MB",
        "p50": f"{stage.latency.p50:.2f} ms",
        "p95": f"{stage.latency.p95:.2f} ms",
        "largest difference": str(difference) if difference else "none: the first",
        "relative": _share(difference.relative) if difference else "",
        "note": "; ".join(stage.notes),
    }


def _share(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.1%}" if value >= 0.001 else f"{value:.1e}"
