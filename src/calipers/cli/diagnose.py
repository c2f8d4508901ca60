"""`calipers diagnose`: why does search with it fail?"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from calipers.cli import options
from calipers.cli.grouped import GroupedCommand, name_flags

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from calipers.core import Result
    from calipers.diagnosis.records import Diagnosis


@click.command(cls=GroupedCommand, short_help="Why does search with it fail? Four layers say.")
@click.argument("model", required=False)
@options.flags("runs.embedding:CorpusInputs")
@options.flags(
    "data:DataOptions",
    only=("name", "revision", "split", "samples", "seed"),
    name="What stands before corpus, queries and qrels on the hub.",
    split="Which judgements of the dataset. Default: test.",
    samples="How many queries. Default: all. The corpus stays whole.",
    seed="Of samples, shuffles, edits, resamples.",
)
@options.option(
    "Diagnosis",
    "--baseline",
    metavar="MODEL",
    help="Compare with this model or run:FILE: every figure with delta, interval and label, and how many results stay.",
)
@options.file_option(
    "Diagnosis",
    "--run",
    help="Instead of MODEL: the results of any engine, a TREC run or rows with query id, document id and score.",
)
@options.option(
    "Diagnosis",
    "--layers",
    metavar="NAMES",
    help="geometry,retrieval,behaviour,certainty, or single ones. Default: all that the data allow.",
)
@options.option(
    "Diagnosis",
    "--mteb",
    "mteb_names",
    metavar="NAMES",
    help="General language: tasks or benchmarks of mteb, commas between. A drop against the baseline is reported.",
)
@options.flags("diagnosis.options:DiagnosisOptions")
@options.option(
    "Diagnosis",
    "--fail-on",
    type=click.Choice(["regression", "inconclusive", "at-risk", "never"]),
    default="regression",
    show_default=True,
    help="With --baseline: from which label on the exit code is 1.",
)
@options.LAYER_FLAGS
@options.MODEL_FLAGS
@options.RUN_FLAGS
@options.file_option("Output", "--html", help="Write the report as one HTML file.")
@options.option("Output", "--examples", type=int, default=5, show_default=True, help="Named examples shown per figure.")
@options.CACHE_FLAGS
@options.OUTPUT_FLAGS
@click.pass_context
def diagnose(context: click.Context, /, model: str | None, run: Path | None, **flags: Any) -> None:
    """Why does search with a model fail? nDCG says that it does; the layers say why.

    \b
    geometry      anisotropy, dimension, hubs, word order, the tokenizer
    retrieval     what is found and in which order; precision, index, typing
    attributes    whether results have the colour, brand, size that is asked for
    semantic_gap  whether texts are near for their words or for their meaning
    knowledge     whether it knows the domain's entities or only their letters
    contrasts     whether it tells versions of your own titles apart
    certainty     whether a query's own numbers tell that its results are good
    remedies      what changes without new vectors would add to nDCG

    Every figure has its interval, which way is good, where it warns, and what it means; examples are named. Texts are
    embedded once: layers, runs and the baseline share the vectors, which are kept in the store's folder.

    MODEL may also be bm25, hybrid:MODEL+bm25 or, with --run, a file of results: retrieval and attributes need no
    vectors, and the other layers say that they do.

    With --adaptation, a scorecard reads the layers of both models by what the training was for.

    Exit codes: 0 done, or with --baseline PASS or AT_RISK; 1 REGRESSION of ndcg or of mteb, or of the scorecard
    (or --fail-on); 5 INCONCLUSIVE; 2, 3, 4 as in `eval`.

    \b
    Examples:
      calipers diagnose ./model --dataset ./scifact --layers geometry,certainty
      calipers diagnose ./model --dataset ./shop --baseline ./old --html r.html
      calipers diagnose ./model --corpus products.jsonl --queries queries.txt
      calipers diagnose ./model --dataset ./shop --grades esci \\
          --rerank ./cross-encoder --paraphrases same.txt
      calipers diagnose --run engine.trec --baseline bm25 --dataset ./shop \\
          --group-by language
      calipers diagnose ./model --pairs sts.jsonl --pairs-above 4
      calipers diagnose ./bert --dataset ./shop --layers knowledge \\
          --entities brands.txt --mlm-head google-bert/bert-base-uncased
      calipers diagnose ./tuned --baseline ./base --dataset ./shop \\
          --adaptation contrastive --sts stsb.jsonl --mteb "JMTEB-lite(v1)"
    """
    if (model is None) == (run is None):
        raise click.UsageError("name one model: calipers diagnose MODEL, or calipers diagnose --run FILE")
    options.check_outputs(flags, "output", "html")
    if options.is_given(context, "fail_on") and not flags["baseline"]:
        raise click.UsageError("--fail-on has no effect without --baseline")
    if options.is_given(context, "examples") and flags["as_json"]:
        raise click.UsageError("--examples is for the text: --json has all of them")
    from calipers.diagnosis import html as diagnosis_html
    from calipers.diagnosis.text import show_diagnosis

    diagnosis = _with_flags(_diagnose(model or f"run:{run}", flags), context)
    code, last = _exit(diagnosis, flags["fail_on"])
    show = partial(show_diagnosis, diagnosis=diagnosis, examples=flags["examples"])
    page = [lambda: options.write_output(flags["html"], diagnosis_html.page(diagnosis))] if flags["html"] else []
    options.emit(diagnosis.to_dict(), flags, show, *page, code=code, last=last)
    context.exit(code)


def _diagnose(model: str, flags: dict[str, Any]) -> Diagnosis:
    from calipers.core import DataSource
    from calipers.diagnosis import api
    from calipers.diagnosis.options import DiagnosisOptions
    from calipers.runs.embedding import CorpusInputs

    store = options.open_store(flags["store"], flags["no_store"])
    data = options.data_options(flags)
    source = DataSource(
        path="", name=data.name, split=data.split, revision=data.revision, requested=data.samples, seed=data.seed
    )
    chosen = options.make(
        DiagnosisOptions,
        flags,
        layers=_names(flags["layers"], "--layers"),
        layer_options={"seed": data.seed, **options.layer_options(flags)},
        mteb=_names(flags["mteb_names"], "--mteb"),
        question="AT_RISK" if flags["fail_on"] == "at-risk" else "REGRESSION",
    )
    with options.progress_bar() as progress:
        return api.diagnose(
            model,
            options.make(CorpusInputs, flags, source=source),
            baseline=flags["baseline"],
            options=chosen,
            model_options=options.model_options(flags),
            store=store,
            vectors=options.vector_cache(store, flags),
            progress=progress,
        )


def _with_flags(diagnosis: Diagnosis, context: click.Context) -> Diagnosis:
    """Reasons name flags, as errors do: of layers that were skipped, and of numbers that are unknown."""

    def name(words: str) -> str:
        return name_flags(words, context.command.params)

    def reasons(records: Iterable[Any]) -> tuple[Any, ...]:
        """With flags in what a record says: its reason, and the level of a figure."""
        return tuple(
            replace(
                record, **{key: name(words) for key in ("reason", "level") if (words := getattr(record, key, None))}
            )
            for record in records
        )

    findings, card = reasons(diagnosis.findings), diagnosis.scorecard
    if card:
        card = replace(card, lines=reasons(card.lines), paragraph=name(card.paragraph))
    findings = tuple(replace(f, result=f.result and _with_reasons(f.result, reasons)) for f in findings)
    return replace(diagnosis, findings=findings, scorecard=card)


def _with_reasons(result: Result, change: Callable[[Iterable[Any]], tuple[Any, ...]]) -> Result:
    """The result with the reasons of its figures changed; a result of mteb has none."""
    from calipers.core import figure_tables, read_figures, read_named

    outcomes = result.outcomes
    figures = change(read_figures(outcomes))
    tables = figure_tables(figures, read_named(outcomes)) if figures else {}
    return replace(result, outcomes=replace(outcomes, details={**outcomes.details, **tables}))


def _names(words: str | None, flag: str) -> tuple[str, ...]:
    """
    >>> _names("geometry, retrieval", "--layers"), _names(None, "--layers")
    (('geometry', 'retrieval'), ())
    """
    from calipers.core import RequestError

    names = tuple(name.strip() for name in (words or "").split(",") if name.strip())
    if words is not None and not names:
        raise RequestError(f"{flag} names nothing: give names with commas between, or leave it out")
    return names


def _exit(diagnosis: Diagnosis, fail_on: str) -> tuple[int, str | None]:
    """The code, and a sentence where the labels do not explain it: by the verdicts of the layers that make one; without
    a baseline there is none."""
    from calipers.comparison.records import GateOptions

    labels = [finding.verdict.label for finding in diagnosis.findings if finding.verdict and finding.decides]
    if diagnosis.scorecard:  # it reads the layers by what the training was for, and so speaks for them
        labels = [diagnosis.scorecard.label]
    if fail_on == "never":
        return 0, None
    gate = GateOptions(fail_on)
    return gate.exit_code(labels), gate.explain(labels)
