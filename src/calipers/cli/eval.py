"""`calipers eval`: how good is it?"""

from __future__ import annotations

from typing import Any

import click

from calipers.cli import options
from calipers.cli.grouped import GroupedCommand


@click.command("eval", cls=GroupedCommand, short_help="How good is a model? Metrics with intervals.")
@click.argument("model", required=False)
@options.option(
    "Model",
    "-m",
    "--model",
    "model_flag",
    metavar="MODEL",
    help="The model, instead of the argument: a folder, .onnx file, hub id, .npy or .parquet of vectors, or http "
    "address. A prefix torch:, onnx:, static: or vectors: selects the backend. For retrieval also bm25, "
    "hybrid:MODEL+bm25, or run:FILE, the TREC run of another system.",
)
@options.option(
    "Task",
    "--task",
    default="sentence-similarity",
    show_default=True,
    help="What to measure; `calipers tasks` lists them.",
)
@options.TASK_FLAGS
@options.option("Task", "--rerank", metavar="MODEL", help="retrieval: a cross-encoder for a second stage.")
@options.file_option("Task", "--run-out", help="retrieval: write the TREC run file.")
@options.DATA_FLAGS
@options.MODEL_FLAGS
@options.RUN_FLAGS
@options.flags("runs.record:Resampling", only=("confidence", "resamples"), group="Output")
@options.option("Output", "--name", metavar="NAME", default="", help="What the run is called: RUN of other commands.")
@options.option("Output", "--tag", "tags", multiple=True, metavar="TAG", help="A tag on the run; may be repeated.")
@options.GROUP_FLAG
@options.OUTPUT_FLAGS
def eval_(model: str | None, model_flag: str | None, **flags: Any) -> None:
    """How good is a model? Metrics with confidence intervals, and what came out of each example.

    \b
    Examples:
      calipers eval sentence-transformers/all-MiniLM-L6-v2
      calipers eval ./model.onnx --model-id intfloat/e5-small-v2 --prompt 'query: '
      calipers eval ./quantised --dataset pairs.csv --column input_column_1=a input_column_2=b score_column=label
      calipers eval google-bert/bert-base-uncased --task fill-mask --samples 100
      calipers eval ./reranker --task reranking --dataset queries.jsonl --relevant-from 2
      calipers eval ./reranker --task nanobeir --sets msmarco,nq,scifact
      calipers eval ./encoder --task retrieval --dataset ./scifact --rerank ./reranker
      calipers eval ./encoder --task retrieval --dataset ./shop --group-by language --group-by category
      calipers eval run:results.trec --task retrieval --dataset ./scifact --ties trec_eval
      calipers eval http://localhost:8080/embed --dataset pairs.jsonl --samples 500 --json
    """
    if (model is None) == (model_flag is None):
        raise click.UsageError("name one model: calipers eval MODEL, or calipers eval -m MODEL")
    options.check_outputs(flags, "output", "run_out")
    from calipers import tasks
    from calipers.rendering import text
    from calipers.runs import api
    from calipers.runs.store import refuse_name

    store, tags = options.open_store(flags["store"], flags["no_store"]), flags["tags"]
    if store is None and (flags["name"] or tags):
        raise click.UsageError("--name and --tag are for the store: they have no effect with --no-store")
    for tag in tags:
        refuse_name(tag, "tags")
    protocol = options.protocol(flags)
    with options.progress_bar() as progress:
        result = api.evaluate(
            model or str(model_flag),
            **vars(protocol),
            resamples=flags["resamples"],
            confidence=flags["confidence"],
            store=store,
            progress=progress,
            rerank=flags["rerank"],
            run_out=flags["run_out"],
            name=flags["name"],
            group_by=flags["group_by"],
        )
    if store and tags:
        store.tag(result.run_id, tags)
    options.emit(result.to_dict(), flags, lambda out: text.show_result(out, result, tasks.find(result.task)))
