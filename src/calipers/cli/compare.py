"""`calipers compare`: did I break it?"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from calipers.cli import options
from calipers.cli.grouped import GroupedCommand, name_flags

if TYPE_CHECKING:
    from calipers.comparison.records import GateOptions, Verdict
    from calipers.core import Thresholds

_KEYS = ("thresholds", "metrics", "confidence", "fail_on", "worst", "resamples")

THRESHOLD_FLAG = options.option(
    "Verdict",
    "--threshold",
    "limits",
    multiple=True,
    metavar="METRIC=PASS,RISK",
    help="How much worse passes, and from where on it is a regression: 5%,10% of the baseline, or 2.0,4.0 points.",
)


@click.command(cls=GroupedCommand, short_help="Did a change break it? A paired verdict, and an exit code.")
@click.argument("baseline")
@click.argument("candidates", nargs=-1, required=True, metavar="CANDIDATE…")
@options.option("Task", "--task", help="What to measure. Default: that of the stored run, else sentence-similarity.")
@options.flags("comparison.records:VerdictOptions", only=("metrics",))
@THRESHOLD_FLAG
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
@options.option(
    "Output",
    "--name",
    "names",
    multiple=True,
    metavar="NAME",
    help="What a side is called, and its run in the store: once for each, the baseline first. Default: its artefact.",
)
@options.file_option("Output", "--junit", help="Write JUnit XML.")
@options.MARKDOWN_FLAG
@options.option("Output", "--fresh", is_flag=True, help="Run the models even if the same run is stored.")
@options.GROUP_FLAG
@options.OUTPUT_FLAGS
@click.pass_context
def compare(context: click.Context, /, **flags: Any) -> None:
    """Did a change break the model? Both on the same examples: delta, interval, label, exit code.

    BASELINE and each CANDIDATE is a model, as in `calipers eval`, or a stored run: its id, name, or `latest`. Models
    that run here are timed by turns on the same inputs.

    \b
    Labels, by two thresholds (cosine_spearman: 2 and 4 points; cosine_drift and kl
    of --unlabelled: 0.01 and 0.05; all others: 5 % and 10 % of the baseline):
      PASS          worse by less than the first number, or better
      AT_RISK       worse by less than the second
      REGRESSION    worse by more than that, with a chance of at least --confidence
      INCONCLUSIVE  that chance is neither high nor low; how many examples would settle it
      INVALID       the candidate's output is dead: NaN, constant, zero

    Exit codes: 0 PASS or AT_RISK, 1 REGRESSION or INVALID (or --fail-on), 5 INCONCLUSIVE; 2, 3, 4 as in `eval`.

    \b
    Examples:
      calipers compare ./float32 ./quantised.onnx --model-id ./float32
      calipers compare 20261116-043822-5f0a1c latest
      calipers compare ./bert ./bert-w8a8 --task fill-mask --samples 200 --threshold pseudo_perplexity=5%,10%
      calipers compare ./float32 ./quantised --unlabelled --dataset texts.txt
      calipers compare ./a ./b ./c --dataset pairs.csv --junit verdict.xml --fail-on at-risk
      calipers compare ./float32 ./int8.onnx ./int4.onnx --dataset pairs.csv --any
    """
    from calipers.comparison.records import GateOptions

    options.check_outputs(flags, "output", "junit")
    options.check_outputs({**flags, "force": True}, "markdown")  # it is added to, not overwritten
    try:
        settings = _settings(context, flags)
        gate = GateOptions(settings["fail_on"], flags["any"])
        verdicts = _judge(flags, settings)
    except BaseException as error:
        _write_failure(flags, error, context)
        raise
    _note_other_tasks(verdicts[0], settings["shared"])
    code = gate.exit_code([verdict.label for verdict in verdicts])
    _show(verdicts, flags, settings, gate, code)
    context.exit(code)


def _settings(context: click.Context, flags: dict[str, Any]) -> dict[str, Any]:
    """What the verdict depends on: from the flags, else from the config, else by default."""
    config = read_config(flags["config"])
    settings: dict[str, Any] = {}
    for name in ("metrics", "confidence", "fail_on", "worst", "resamples"):
        flag = name if name in flags else "metric"
        chosen = context.get_parameter_source(flag) is ParameterSource.COMMANDLINE
        settings[name] = flags[flag] if chosen else config.get(name, flags[flag])
    for name, kind in (("confidence", float), ("worst", int), ("resamples", int)):
        if name != "confidence" and settings[name] is None:
            continue
        if not isinstance(settings[name], (int, kind)) or isinstance(settings[name], bool):
            raise click.UsageError(f"{name} must be a number, found {settings[name]!r}")
    names = settings["metrics"]
    settings["metrics"] = (names,) if isinstance(names, str) else tuple(names)
    requested = thresholds_of(flags["limits"])
    settings["thresholds"] = {**config.get("thresholds", {}), **requested}
    typed = {*requested, *flags["metric"]}
    settings["shared"] = {*settings["metrics"], *settings["thresholds"]} - typed
    return settings


def _write_failure(flags: Mapping[str, Any], error: BaseException, context: click.Context) -> None:
    """A JUnit file that says that there is no verdict, in the place of an older one, and a summary. They hide no
    error."""
    from calipers.comparison.junit import to_failed_junit
    from calipers.comparison.markdown import failure_markdown
    from calipers.core import RequestError

    message = name_flags(str(error) or type(error).__name__, context.command.params)
    if flags["junit"]:
        with suppress(click.UsageError):
            options.write_output(flags["junit"], to_failed_junit(message, flags["candidates"], type(error).__name__))
    with suppress(RequestError):
        options.summarise(failure_markdown(message, flags["baseline"], flags["candidates"]), flags["markdown"])


def _note_other_tasks(verdict: Verdict, shared: Collection[str]) -> None:
    """A config may serve several tasks: its metrics of another task are left out of this verdict."""
    others = sorted(name for name in shared if name != "all" and name not in verdict.baseline.metrics)
    if others:
        names = ", ".join(others)
        options.echo_lines(
            f"calipers: {names} of --config: not a metric of {verdict.baseline.task}, left out", err=True
        )


def _judge(flags: dict[str, Any], settings: dict[str, Any]) -> list[Verdict]:
    from calipers.comparison.api import compare

    protocol = options.protocol(flags)
    unlabelled = flags["unlabelled"]
    keeps = flags["store"] or not unlabelled  # without labels nothing is stored, so that naming a store is an error
    store = options.open_store(flags["store"], flags["no_store"]) if keeps else None
    with options.progress_bar() as progress:
        return compare(
            flags["baseline"],
            flags["candidates"],
            protocol=protocol,
            **settings,
            names=flags["names"],
            unlabelled=unlabelled,
            store=store,
            fresh=flags["fresh"],
            group_by=flags["group_by"],
            progress=progress,
        )


def _show(
    verdicts: Sequence[Verdict], flags: dict[str, Any], settings: Mapping[str, Any], gate: GateOptions, code: int
) -> None:
    from calipers.comparison import json as verdict_json
    from calipers.comparison import text as verdict_text
    from calipers.comparison.markdown import verdicts_markdown

    def write_junit() -> None:
        if flags["junit"]:
            from calipers.comparison.junit import to_junit

            options.write_output(flags["junit"], to_junit(verdicts, gate=gate))

    document = verdict_json.document(verdicts, gate)
    every = "all" in settings["metrics"]
    show = partial(verdict_text.show_verdicts, verdicts=verdicts, gate=gate, code=code, every_metric=every)
    summary = verdicts_markdown(verdicts, gate)
    options.emit(document, flags, show, write_junit, lambda: options.summarise(summary, flags["markdown"]), code=code)


# --- thresholds, from flags and from a YAML file ------------------------------------------------------------------


def thresholds_of(pairs: Sequence[str]) -> dict[str, Thresholds]:
    from calipers.core.results import parse_thresholds

    named = options.split_pairs("--threshold", "METRIC=PASS,RISK", pairs)
    return {name: parse_thresholds(numbers, f"--threshold {name}") for name, numbers in named}


def read_config(path: Path | None) -> dict[str, Any]:
    """The section `compare` of a YAML file, its thresholds parsed. Nothing in it is run."""
    if path is None:
        return {}
    from calipers.core import RequestError
    from calipers.core.errors import quote
    from calipers.core.inputs import load_yaml
    from calipers.core.results import parse_thresholds

    content = load_yaml(path, RequestError)
    section = content.get("compare") if isinstance(content, Mapping) else None
    if not isinstance(section, Mapping):
        raise click.UsageError(f"--config {path}: expected a section `compare:` with {', '.join(_KEYS)}")
    if unknown := [str(key) for key in section if key not in _KEYS]:
        raise click.UsageError(f"--config {path}: `compare` has no {', '.join(unknown)}; expected {', '.join(_KEYS)}")
    section = {key: value for key, value in section.items() if value is not None}
    names, thresholds = section.get("metrics", []), section.get("thresholds", {})
    if not isinstance(names, str) and not (isinstance(names, list) and all(isinstance(n, str) for n in names)):
        raise click.UsageError(f"--config {path}: `metrics` must be a list of names, found {quote(names)}")
    if not isinstance(thresholds, Mapping):
        raise click.UsageError(f"--config {path}: `thresholds` must hold lines METRIC: PASS,RISK")
    limits = {str(n): parse_thresholds(_as_text(text), f"--config {path}, {n}") for n, text in thresholds.items()}
    return {**section, "thresholds": limits}


def _as_text(value: Any) -> str:
    """`[2.0, 4.0]` and `[5%, 10%]` mean the same as `2.0,4.0` and `5%,10%`."""
    return ",".join(str(part) for part in value) if isinstance(value, list) else str(value)
