"""`calipers parity`: is what is served the model that it should be?"""

from __future__ import annotations

from typing import Any

import click

from calipers.cli import options
from calipers.cli.grouped import GroupedCommand


@click.command(cls=GroupedCommand, short_help="Is a server, or a file, the model that it should be?")
@click.argument("reference")
@click.argument("other")
@options.option(
    "Data",
    "--dataset",
    metavar="D",
    help="Texts of your own: a file with a text in each row or line, or a folder with corpus.jsonl. Default: bundled "
    "sentences in eight languages.",
)
@options.flags("fidelity.records:ParityOptions")
@options.MODEL_FLAGS
@options.flags(
    "models:ModelOptions",
    only=("device", "provider", "batch_size", "threads", "timeout", "sandbox"),
    batch_size="The most texts that share a request, to see whether that changes them. Default: 32.",
)
@options.MARKDOWN_FLAG
@options.file_option("Output", "-o", "--output", help="Write the JSON document to a file.")
@options.FORCE_FLAG
@options.JSON_FLAG
@click.pass_context
def parity(context: click.Context, /, reference: str, other: str, **flags: Any) -> None:
    """Does OTHER (an endpoint, an ONNX file, a folder) give the vectors of REFERENCE? If not, which setting differs?

    Both read the same texts: eight languages, short and long, odd characters, prompts, texts that are cut, and several
    in one request. Where they differ, settings are tried on the reference, which must be on this machine: pooling,
    normalisation, prompts, BOS and EOS, length, lower case, dimensions, number type; one, then two and three at once.
    The model's flags are the reference's.

    Exit codes: 0 the same, 1 different; 2, 3, 4 as in `eval`.

    \b
    Examples:
      calipers parity ./e5-small http://localhost:8080
      calipers parity ./e5-small http://localhost:8080/v1 --model-id e5 --prompt-name query
      calipers parity ./model ./model/onnx/model_fp16.onnx --tolerance 0.02
      calipers parity ./model http://localhost:8080/embed --dataset texts.txt --json
    """
    options.check_outputs(flags, "output")
    options.check_outputs({**flags, "force": True}, "markdown")  # it is added to, not overwritten
    from calipers.fidelity import api, text
    from calipers.fidelity.records import ParityOptions

    with options.progress_bar() as progress:
        answer = api.parity(
            reference,
            other,
            dataset=flags["dataset"],
            options=options.make(ParityOptions, flags),
            model_options=options.model_options(flags),
            progress=progress,
        )
    code = 0 if answer.same else 1
    options.emit(
        answer.to_dict(),
        flags,
        lambda out: text.show_parity(out, answer),
        lambda: options.summarise(text.parity_markdown(answer), flags["markdown"]),
        code=code,
    )
    context.exit(code)
