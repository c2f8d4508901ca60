"""`calipers trust`: can this one result be trusted?"""

from __future__ import annotations

from typing import Any

import click

from calipers.cli import options


@click.command(cls=options.GroupedCommand, short_help="Can this one result be trusted? A score per query.")
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
@options.FORCE_FLAG
@options.JSON_FLAG
@options.STORE_FLAG
@options.CACHE_FLAGS
def trust(model: str, query: tuple[str, ...], **flags: Any) -> None:
    """Can this one result be trusted? Score, parts, decision and neighbours for each QUERY.

    R_q is the harmonic mean of stability G_q (what a codec leaves of the query) and coherence I_q (how alike its first
    K results are). It is no probability until it is calibrated with judged queries. The decision is answer, hedge or
    fall back; the output says by which thresholds.

    \b
    Examples:
      calipers trust ./model --corpus ./scifact 'vitamin D and bone' 'asdf qwer'
      calipers trust ./model --corpus ./scifact \\
          --calibrate ./scifact/qrels/test.tsv --save scifact.trust
      calipers trust ./model --corpus ./scifact --load scifact.trust 'vitamin D'
      calipers trust ./model --corpus goods.txt --queries log.txt 'red wine'
    """
    if flags["save"] and flags["load"]:
        raise click.UsageError("--save and --load are mutually exclusive")
    if not query and not (flags["save"] or flags["calibrate"]):
        raise click.UsageError("there is nothing to do: give a QUERY, or --calibrate or --save")
    options.check_outputs(flags, "save")
    from calipers.metrics.threads import at_most
    from calipers.reliability import api, text

    model_options = options.model_options(flags)
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
    save = [lambda: answer.trust.save(flags["save"])] if flags["save"] else []
    options.emit(
        answer.to_dict(), flags, lambda out: text.show_answer(out, answer, fitted=flags["load"] is None), *save
    )
