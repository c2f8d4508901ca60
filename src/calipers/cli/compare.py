"""`calipers compare`: did I break it?"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from calipers.cli import options, thresholds

if TYPE_CHECKING:
    from collections.abc import Sequence

    from calipers.comparison.records import Verdict


@click.command(cls=options.GroupedCommand, short_help="Did a change break it? A paired verdict, and an exit code.")
@click.argument("baseline")
@click.argument("candidates", nargs=-1, required=True, metavar="CANDIDATE…")
@options.option("Task", "--task", help="What to measure. Default: that of the stored run, else sentence-similarity.")
@options.flags("comparison.records:VerdictOptions", only=("metrics",))
@thresholds.FLAG
@options.flags("comparison.records:VerdictOptions", only=("confidence", "resamples"))
@options.flags("comparison.records:GateOptions")
@options.file_option(
    "Verdict",
    "--config",
    help="A YAML file whose section `compare` holds thresholds, metrics, confidence, fail_on, worst, resamples.",
)
@options.option(
    "Verdict",
    "--unlabelled",
    is_flag=True,
    help="Without gold labels: how far the candidate agrees with the baseline. The data need only texts, in a column "
    "`text`; for rankers, queries with documents.",
)
@options.TASK_FLAGS
@options.DATA_FLAGS
@options.MODEL_FLAGS
@options.RUN_FLAGS
@options.flags("comparison.records:VerdictOptions", only=("worst",))
@options.file_option("Output", "--junit", help="Write JUnit XML.")
@options.file_option(
    "Output",
    "--markdown",
    help="Append a summary. Default: the file that GITHUB_STEP_SUMMARY names, if it is set.",
)
@options.option("Output", "--fresh", is_flag=True, help="Run the models even if the same run is stored.")
@options.OUTPUT_FLAGS
@click.pass_context
def compare(context: click.Context, /, **flags: Any) -> None:
    """Did a change break the model? Both on the same examples: delta, interval, label, exit code.

    BASELINE and each CANDIDATE is a model, as in `calipers eval`, or a stored run: its id, or `latest`.

    \b
    Labels, by two thresholds (cosine_spearman: 2 and 4 points; cosine_drift and kl
    of --unlabelled: 0.01 and 0.05; all others: 5 % and 10 % of the baseline):
      PASS          worse by less than the first number, or better
      AT_RISK       worse by less than the second
      REGRESSION    worse by more than that
      INCONCLUSIVE  the examples do not settle which; about how many would is reported
      INVALID       the candidate's output is dead: NaN, constant, zero

    Exit codes: 0 PASS or AT_RISK, 1 REGRESSION or INVALID (or --fail-on), 5 INCONCLUSIVE; 2, 3, 4 as in `eval`.

    \b
    Examples:
      calipers compare ./float32 ./quantised.onnx --model-id ./float32
      calipers compare 20261116-043822-5f0a1c latest
      calipers compare ./bert ./bert-w8a8 --task fill-mask --samples 200 --threshold pseudo_perplexity=5%,10%
      calipers compare ./float32 ./quantised --unlabelled --dataset texts.txt
      calipers compare ./a ./b ./c --dataset pairs.csv --junit verdict.xml --fail-on at-risk
    """
    options.check_outputs(flags, "output", "junit")
    settings = _settings(context, flags)
    gate = settings.pop("gate")
    verdicts = _judge(flags, settings)
    _show(verdicts, flags, gate.failing)
    context.exit(gate.exit_code([verdict.label for verdict in verdicts]))


def _settings(context: click.Context, flags: dict[str, Any]) -> dict[str, Any]:
    """What the verdict depends on: from the flags, else from the config, else by default."""
    from calipers.comparison.records import GateOptions

    config = thresholds.read_config(flags["config"])
    settings: dict[str, Any] = {}
    for name in ("metrics", "confidence", "fail_on", "worst", "resamples"):
        flag = name if name in flags else "metric"
        chosen = context.get_parameter_source(flag) is ParameterSource.COMMANDLINE
        settings[name] = flags[flag] if chosen else config.get(name, flags[flag])
    settings["gate"] = GateOptions(settings.pop("fail_on"))
    for name, kind in (("confidence", float), ("worst", int), ("resamples", int)):
        if not isinstance(settings[name], (int, kind)) or isinstance(settings[name], bool):
            raise click.UsageError(f"{name} must be a number, found {settings[name]!r}")
    names = settings["metrics"]
    settings["metrics"] = (names,) if isinstance(names, str) else tuple(str(name) for name in names)
    settings["thresholds"] = {**config.get("thresholds", {}), **thresholds.from_flags(flags["limits"])}
    return settings


def _judge(flags: dict[str, Any], settings: dict[str, Any]) -> list[Verdict]:
    from calipers.comparison.api import compare

    protocol = options.protocol(flags)
    unlabelled = flags["unlabelled"]
    store = None if unlabelled else options.open_store(flags["store"], flags["no_store"])
    with options.progress_bar() as progress:
        return compare(
            flags["baseline"],
            flags["candidates"],
            protocol=protocol,
            **settings,
            unlabelled=unlabelled,
            store=store,
            fresh=flags["fresh"],
            progress=progress,
        )


def _show(verdicts: Sequence[Verdict], flags: dict[str, Any], failing: set[str]) -> None:
    from calipers.comparison import json as verdict_json
    from calipers.comparison import text as verdict_text

    if flags["junit"]:
        from calipers.comparison import junit

        options.write_output(flags["junit"], junit.to_junit(verdicts, failing=failing))
    if summary := flags["markdown"] or os.environ.get("GITHUB_STEP_SUMMARY"):
        from calipers.comparison.markdown import verdicts_markdown
        from calipers.rendering import markdown

        markdown.append(Path(summary), verdicts_markdown(verdicts))
    options.emit(verdict_json.document(verdicts), flags, lambda out: verdict_text.show_verdicts(out, verdicts))
