"""Flags that several commands share, in groups, and the records they fill.

Nothing heavy is imported up here: `calipers --help` must stay quick.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from rich.console import Console

    from calipers.data import DataOptions
    from calipers.models import ModelOptions
    from calipers.runs.store import Store
    from calipers.runs.vector_cache import VectorCache

Decorator = Callable[[Any], Any]


class GroupedOption(click.Option):
    def __init__(self, *args: Any, group: str = "Options", **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.group = group


class GroupedCommand(click.Command):
    """A command whose help lists its flags under headings."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        groups: dict[str, list[tuple[str, str]]] = {}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record and not isinstance(parameter, click.Argument):  # the usage line names those
                groups.setdefault(getattr(parameter, "group", "Other"), []).append(record)
        for name, records in groups.items():
            with formatter.section(name):
                formatter.write_dl(records)


def option(group: str, *names: str, **settings: Any) -> Decorator:
    return click.option(*names, cls=GroupedOption, group=group, **settings)


def apply(*decorators: Decorator) -> Decorator:
    def decorate(function: Any) -> Any:
        for decorator in reversed(decorators):
            function = decorator(function)
        return function

    return decorate


DATA_FLAGS = apply(
    option(
        "Data",
        "--dataset",
        metavar="D",
        help="A file (jsonl, json, csv, tsv, parquet, txt), a folder of them, or a hub id. Default: the task's own.",
    ),
    option("Data", "--dataset-name", metavar="CONFIG", help="The hub dataset's configuration."),
    option("Data", "--revision", metavar="R", help="The hub dataset's revision."),
    option("Data", "--split", metavar="S", help="Which split. Default: test."),
    option(
        "Data",
        "--samples",
        type=int,
        metavar="N",
        help="How many rows to score. Default: all. Blank rows do not count.",
    ),
    option("Data", "--seed", type=int, default=42, show_default=True, help="Which rows, and which resamples."),
    option("Data", "--shuffle/--no-shuffle", default=True, help="Random rows, or the first ones."),
    option("Data", "--streaming", is_flag=True, help="Read hub rows as they come; the same rows are chosen."),
    option(
        "Data",
        "--column",
        "columns",
        multiple=True,
        metavar="KEY=NAME …",
        help="Which column is which, e.g. input_column_1=premise score_column=label.",
    ),
)

TASK_FLAGS = apply(
    option("Task", "--tokens", type=int, metavar="N", help="fill-mask: score about N tokens instead of N texts."),
    option("Task", "--window", is_flag=True, default=None, help="fill-mask: long texts in overlapping windows."),
    option("Task", "--word-level", is_flag=True, default=None, help="fill-mask: also per word, for other tokenizers."),
    option(
        "Task",
        "--pll",
        type=click.Choice(["original", "word-l2r"]),
        help="fill-mask: mask one token, or also the later sub-words of its word.",
    ),
)

RANKING_FLAGS = apply(
    option("Task", "--at-k", type=int, metavar="K", help="reranking, nanobeir: cut-off of MRR and nDCG. Default: 10."),
    option(
        "Task",
        "--always-rerank-positives/--no-always-rerank-positives",
        default=None,
        help="reranking, nanobeir: also rank positive texts that the first stage did not find. Default: yes.",
    ),
    option(
        "Task",
        "--relevant-from",
        type=float,
        metavar="GRADE",
        help="reranking: grades from here on are relevant, all alike. Default: grades as they are.",
    ),
    option(
        "Task",
        "--qrels",
        metavar="FILE",
        help="reranking: judgements of all documents by id (TREC or BEIR), instead of what the rows say; "
        "those that were not found count in the ideal.",
    ),
    option(
        "Task",
        "--sets",
        metavar="NAMES",
        help="nanobeir: msmarco,nq,… or all (thirteen). Default: the eleven without arguana and touche2020, "
        "as in sentence-transformers. --samples is then for each set.",
    ),
    option("Task", "--top-k", type=int, metavar="K", help="retrieval: how many results a query gets. Default: 100."),
    option("Task", "--query-prompt", metavar="TEXT", help="retrieval: put before every query."),
    option("Task", "--passage-prompt", metavar="TEXT", help="retrieval: put before every passage."),
    option(
        "Task",
        "--similarity",
        type=click.Choice(["cosine", "dot"]),
        help="retrieval: of vectors. Default: cosine.",
    ),
    option("Task", "--rerank", metavar="MODEL", help="retrieval: a cross-encoder for a second stage."),
    option(
        "Task",
        "--rerank-k",
        type=int,
        metavar="K",
        help="retrieval, nanobeir: how many results it reads. Default: 100.",
    ),
    option(
        "Task", "--run-out", metavar="FILE", type=click.Path(path_type=Path), help="retrieval: write the TREC run file."
    ),
    option("Task", "--label-mapping", metavar="LABEL=N,…", help="pair-classification: the model's class numbers."),
    option(
        "Task",
        "--compat",
        type=click.Choice(["sentence-transformers"]),
        help="reranking, nanobeir: the figures of that package, faults included.",
    ),
)
_TASK_OPTIONS = (
    *("tokens", "window", "word_level", "pll"),
    *("at_k", "always_rerank_positives", "relevant_from", "label_mapping", "compat", "qrels", "sets"),
    *("top_k", "query_prompt", "passage_prompt", "similarity", "rerank_k"),
)

MODEL_FLAGS = apply(
    option(
        "Model",
        "--model-id",
        metavar="HF_ID",
        help="Where an ONNX file's tokenizer and settings are (hub id or folder), "
        "or the name an endpoint knows the model by.",
    ),
    option("Model", "--model-revision", metavar="COMMIT", help="The hub model's revision."),
    option(
        "Model",
        "--pooling",
        type=click.Choice(["mean", "cls", "max", "last"]),
        help="Default: what the model's files say, else mean.",
    ),
    option(
        "Model",
        "--normalize/--no-normalize",
        default=None,
        help="Scale vectors to length 1. Default: what the model's files say.",
    ),
    option("Model", "--prompt", metavar="TEXT", help="Put before every text, e.g. 'query: '."),
    option("Model", "--prompt-name", metavar="NAME", help="The same, by its name in the model's files."),
    option(
        "Model",
        "--max-length",
        type=int,
        metavar="N",
        help="Cut texts at this many tokens. Default: what the model takes.",
    ),
    option(
        "Model",
        "--dtype",
        default="float32",
        show_default=True,
        type=click.Choice(["float32", "float16", "bfloat16"]),
        help="Number type of PyTorch weights.",
    ),
    option(
        "Model",
        "--graph-output",
        metavar="NAME",
        help="The ONNX output to read, where its shape does not tell.",
    ),
    option("Model", "--allow-pickle", is_flag=True, help="Accept pickled weights, which can run code."),
    option(
        "Model",
        "--trust-remote-code",
        is_flag=True,
        help="Run the Python code that a model brings; needs a pinned revision.",
    ),
)

RUN_FLAGS = apply(
    option("Running", "--device", default="cpu", show_default=True, metavar="NAME", help="cpu, cuda, npu, …"),
    option(
        "Running",
        "--ep",
        metavar="PROVIDER",
        help="ONNX Runtime execution provider: cpu, cuda, qnn, openvino, dml, … or its full name.",
    ),
    option(
        "Running",
        "--batch-tokens",
        type=int,
        metavar="N",
        help="Tokens in a batch. Default: what is fastest.",
    ),
    option("Running", "--batch-size", type=int, metavar="N", help="Rows in a batch, instead of a token budget."),
    option("Running", "--threads", type=int, metavar="N", help="Cores to use. Default: all."),
    option(
        "Running",
        "--timeout",
        type=float,
        default=60.0,
        show_default=True,
        metavar="SECONDS",
        help="How long an endpoint may take for one request.",
    ),
)

OUTPUT_FLAGS = apply(
    option(
        "Output",
        "-o",
        "--output",
        metavar="FILE",
        type=click.Path(path_type=Path),
        help="Write the JSON document to a file.",
    ),
    option("Output", "--force", is_flag=True, help="Overwrite that file."),
    option("Output", "--json", "as_json", is_flag=True, help="Print the JSON document and nothing else."),
    option(
        "Output",
        "--store",
        metavar="DIR",
        type=click.Path(path_type=Path),
        help="Where runs are kept. Default: CALIPERS_STORE, or the user's data folder.",
    ),
    option("Output", "--no-store", is_flag=True, help="Keep nothing."),
)

CACHE_FLAGS = apply(
    option("Output", "--no-cache", is_flag=True, help="Keep no vectors, and use none that were kept."),
    option(
        "Output", "--cache-size", type=float, default=10.0, show_default=True, metavar="GB", help="Of all kept vectors."
    ),
)


def model_options(flags: Mapping[str, Any]) -> ModelOptions:
    from calipers.models import ModelOptions

    return ModelOptions(
        model_id=flags["model_id"],
        revision=flags["model_revision"],
        pooling=flags["pooling"],
        normalize=flags["normalize"],
        prompt=flags["prompt"],
        prompt_name=flags["prompt_name"],
        max_length=flags["max_length"],
        dtype=flags["dtype"],
        device=flags["device"],
        provider=flags["ep"],
        output=flags["graph_output"],
        batch_tokens=flags["batch_tokens"],
        batch_size=flags["batch_size"],
        threads=flags["threads"],
        allow_pickle=flags["allow_pickle"],
        trust_remote_code=flags["trust_remote_code"],
        timeout=flags["timeout"],
    )


def task_options(flags: Mapping[str, Any]) -> dict[str, Any]:
    """What was asked of the task; the task knows which of it is its own."""
    return {name: flags[name] for name in _TASK_OPTIONS}


def data_options(flags: Mapping[str, Any]) -> DataOptions:
    from calipers.data import DataOptions

    return DataOptions(
        name=flags["dataset_name"],
        split=flags["split"],
        revision=flags["revision"],
        samples=flags["samples"],
        seed=flags["seed"],
        shuffle=flags["shuffle"],
        streaming=flags["streaming"],
    )


def column_mapping(pairs: Sequence[str]) -> dict[str, str]:
    named: dict[str, str] = {}
    for pair in pairs:
        key, equals, name = pair.partition("=")
        if not equals or not key:
            raise click.UsageError(f"--column wants KEY=NAME, found {pair!r}")
        if key in named:
            raise click.UsageError(f"--column {key}=… is given twice")
        named[key] = name
    return named


def open_store(folder: Path | None, no_store: bool) -> Store | None:
    from calipers.runs.store import Store

    if no_store and folder:
        raise click.UsageError("--store and --no-store exclude each other: give one of them")
    return None if no_store else Store(folder)


def vector_cache(store: Store | None, flags: Mapping[str, Any]) -> VectorCache | None:
    """Vectors are kept beside the runs; None where nothing is to be kept."""
    from calipers.runs.vector_cache import VectorCache

    if store is None or flags["no_cache"]:
        return None
    return VectorCache(store.folder / "vectors", int(flags["cache_size"] * 1e9))


def check_output(path: Path | None, force: bool) -> None:
    """Before any work: will the result have a place to go?"""
    if path is None:
        return
    if path.is_dir() or not path.absolute().parent.is_dir():
        raise click.UsageError(
            f"{path} cannot be written: {'it is a folder' if path.is_dir() else 'there is no such folder'}"
        )
    if path.exists() and not force:
        raise click.UsageError(f"{path} exists already: pass --force to overwrite it")


def write_output(path: Path, content: str) -> None:
    """All of it or nothing: written beside its place and moved there."""
    part = path.with_name(f".{path.name}.part")
    try:
        part.write_text(content + "\n", encoding="utf-8")
        part.replace(path)
    except OSError as error:
        part.unlink(missing_ok=True)
        raise click.UsageError(f"{path} cannot be written: {error.strerror}") from error


def consoles() -> tuple[Console, Console]:
    """Standard output and standard error."""
    from rich.console import Console

    return Console(highlight=False), Console(stderr=True, highlight=False)
