"""`calipers eval`: how good is it?"""

from __future__ import annotations

from typing import Any

import click

from calipers.cli import options


@click.command("eval", cls=options.GroupedCommand, short_help="How good is a model? Metrics with intervals.")
@options.option(
    "Model",
    "-m",
    "--model",
    required=True,
    metavar="MODEL",
    help="A folder, .onnx file, hub id, .npy/.parquet of vectors, or http address. "
    "A prefix torch:, onnx:, static: or vectors: forces the backend.",
)
@options.option(
    "Task",
    "--task",
    default="sentence-similarity",
    show_default=True,
    help="What to measure; `calipers tasks` lists them.",
)
@options.TASK_FLAGS
@options.SECOND_STAGE_FLAGS
@options.DATA_FLAGS
@options.MODEL_FLAGS
@options.RUN_FLAGS
@options.option("Output", "--confidence", type=float, default=0.95, show_default=True, help="Of the intervals.")
@options.option("Output", "--resamples", type=int, default=10_000, show_default=True, help="Of the bootstrap.")
@options.OUTPUT_FLAGS
def eval_(**flags: Any) -> None:
    """How good is a model? Metrics with confidence intervals, and what came out of each example.

    \b
    Examples:
      calipers eval -m sentence-transformers/all-MiniLM-L6-v2
      calipers eval -m ./model.onnx --model-id intfloat/e5-small-v2 --prompt 'query: '
      calipers eval -m ./quantised --dataset pairs.csv --column input_column_1=a input_column_2=b score_column=label
      calipers eval -m google-bert/bert-base-uncased --task fill-mask --samples 100
      calipers eval -m ./reranker --task reranking --dataset queries.jsonl --relevant-from 2
      calipers eval -m ./reranker --task nanobeir --sets msmarco,nq,scifact
      calipers eval -m ./encoder --task retrieval --dataset ./scifact --rerank ./reranker
      calipers eval -m http://localhost:8080/embed --dataset pairs.jsonl --samples 500 --json
    """
    options.check_output(flags["output"], flags["force"])
    mapping = options.column_mapping(flags["columns"])
    from calipers import tasks
    from calipers.rendering import document, text
    from calipers.runs import api

    out, err = options.consoles()
    with text.bar(err) as progress:
        result = api.evaluate(
            flags["model"],
            task=flags["task"],
            task_options=options.task_options(flags),
            dataset=flags["dataset"],
            columns=mapping,
            model_options=options.model_options(flags),
            data_options=options.data_options(flags),
            resamples=flags["resamples"],
            confidence=flags["confidence"],
            store=options.open_store(flags["store"], flags["no_store"]),
            progress=progress,
            rerank=flags["rerank"],
            run_out=flags["run_out"],
        )
    content = document.to_json(document.document(result))
    if flags["output"]:
        options.write_output(flags["output"], content)
    if flags["as_json"]:
        click.echo(content)
    else:
        text.show_result(out, result, tasks.find(result.task))
