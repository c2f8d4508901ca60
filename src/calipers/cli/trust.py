"""`calipers trust`: can this one result be trusted?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from calipers.cli import options
from calipers.cli.grouped import GroupedCommand

if TYPE_CHECKING:
    from rich.console import Console

    from calipers.reliability.answer import TrustAnswer


@click.command(cls=GroupedCommand, short_help="Can this one result be trusted? A score per query.")
@click.argument("model")
@click.argument("query", nargs=-1)
@options.option(
    "Data",
    "--corpus",
    required=True,
    metavar="C",
    help="What is searched: a folder with corpus.jsonl (BEIR), or a file with a text in each row or line.",
)
@options.flags("reliability.api:TrustOptions", without=("load",))
@options.MODEL_FLAGS
@options.RUN_FLAGS
@options.file_option(
    "Output",
    "--save",
    help="Keep the fitted score in one file (safetensors), for `--load` or calipers.reliability.Trust.load.",
)
@options.flags("reliability.api:TrustOptions", only=("load",))
@options.option(
    "Output",
    "--questions",
    metavar="FILE",
    help="Questions from a file, - for standard input: one a line, or jsonl. The answers are jsonl, one a line.",
)
@options.option(
    "Output",
    "--watch",
    metavar="LOG",
    help="Compare a log of `calipers serve` (or answers of --questions) with the queries of --load; exit code 1 on an "
    "alarm. The model is not loaded.",
)
@options.option("Output", "--details", is_flag=True, help="Parts, predictors, maps, calibration and detectors as well.")
@options.FORCE_FLAG
@options.JSON_FLAG
@options.STORE_FLAG
@options.CACHE_FLAGS
def trust(model: str, query: tuple[str, ...], **flags: Any) -> None:
    """Can this one result be trusted? A decision, its reason and the neighbours for each QUERY.

    R_q is the harmonic mean of stability G_q (what a codec leaves of the query) and coherence I_q (how alike its first
    K results are). It is no probability. With judged queries (--calibrate) a map of the best predictors is, and the
    threshold from which on a query is answered keeps a promise: with --confidence at most --error of the answered
    queries fail. Otherwise it says at which error that could be promised.

    \b
    Examples:
      calipers trust ./model --corpus ./scifact 'vitamin D and bone' 'asdf qwer'
      calipers trust ./model --corpus ./scifact \\
          --calibrate ./scifact/qrels/test.tsv --save scifact.trust
      calipers trust ./model --corpus ./scifact --load scifact.trust 'vitamin D'
      calipers trust ./model --corpus ./scifact --load scifact.trust \\
          --questions - < log.txt > answers.jsonl
    """
    if flags["save"] and flags["load"]:
        raise click.UsageError("--save and --load are mutually exclusive")
    if flags["watch"]:
        _watch(query, flags)
        return
    if flags["questions"] and query:
        raise click.UsageError("--questions and QUERY are mutually exclusive")
    if flags["questions"] and flags["as_json"]:
        raise click.UsageError("--questions and --json are mutually exclusive: the answers are jsonl")
    if flags["details"] and (flags["as_json"] or flags["questions"]):
        raise click.UsageError("--details has no effect on JSON, which has all of it")
    if not query and not (flags["save"] or flags["calibrate"] or flags["questions"]):
        raise click.UsageError("there is nothing to do: give a QUERY, or --questions, --calibrate or --save")
    options.check_outputs(flags, "save")
    from calipers.metrics.threads import at_most
    from calipers.reliability import api, text

    model_options = options.model_options(flags)
    ids: tuple[str, ...] = ()
    if flags["questions"]:
        ids, query = _read(flags["questions"])
    with options.progress_bar() as progress, at_most(model_options.threads):
        answer = api.trust(
            model,
            flags["corpus"],
            query,
            options=options.make(api.TrustOptions, flags),
            model_options=model_options,
            vectors=options.vector_cache(options.open_store(flags["store"], False), flags),
            progress=progress,
        )
    if flags["questions"]:
        _echo_lines(answer, ids)
        if flags["save"]:
            answer.trust.save(flags["save"])
        return
    save = [lambda: answer.trust.save(flags["save"])] if flags["save"] else []
    options.emit(answer.to_dict(), flags, lambda out: text.show_answer(out, answer, details=flags["details"]), *save)


def _watch(query: tuple[str, ...], flags: dict[str, Any]) -> None:
    from calipers.core import printable
    from calipers.core.inputs import expand
    from calipers.reliability import Trust
    from calipers.reliability.traffic import watch
    from calipers.rendering import tables

    if flags["load"] is None:
        raise click.UsageError("--watch needs --load: the score that the log is compared with")
    if query or flags["questions"] or flags["calibrate"] or flags["details"]:
        raise click.UsageError("--watch goes with --load alone: no QUERY, --questions, --calibrate or --details")
    result = watch(Trust.load(flags["load"]), expand(flags["watch"]), seed=flags["seed"])
    code = int(result.alarm is not None)

    def show(console: Console) -> None:
        tables.say(console, result.sentence)
        tables.show_records(console, [{"new query": printable(text), "p": f"{p:.4f}"} for text, p in result.new])

    options.emit(result.to_dict(), flags, show, code=code)
    click.get_current_context().exit(code)


def _read(place: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    import sys

    from calipers.core.inputs import expand
    from calipers.reliability.questions import parse_questions, read_questions

    if place != "-":
        questions = read_questions(expand(place))
    elif sys.stdin is None:
        raise click.UsageError("--questions -: standard input is closed")
    else:
        questions = parse_questions(sys.stdin.buffer, "standard input")
    return questions.ids, questions.texts


def _echo_lines(answer: TrustAnswer, ids: tuple[str, ...]) -> None:
    from calipers.reliability.questions import answer_lines

    for line in answer_lines(answer, ids):
        options.echo_json(line)
    for note in answer.notes:
        options.echo_lines(f"calipers: {note}", err=True)
