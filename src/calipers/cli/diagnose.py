"""`calipers diagnose`: why does search with it fail?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from calipers.cli import options

if TYPE_CHECKING:
    from calipers.diagnosis.records import Diagnosis

_LAYER_OPTIONS = ("k", "exact", "words", "permutations", "texts", "grades", "relevant_from", "alpha", "t", "codec")


@click.command(cls=options.GroupedCommand, short_help="Why does search with it fail? Four layers say.")
@click.argument("model")
@options.option(
    "Data",
    "--dataset",
    metavar="D",
    help="A BEIR folder or hub id, or a table of query–product pairs with ESCI labels.",
)
@options.option("Data", "--corpus", metavar="FILE", help="Documents: jsonl, csv, tsv, parquet, or one text per line.")
@options.option("Data", "--queries", metavar="FILE", help="Queries, in the same formats. Optional.")
@options.option("Data", "--qrels", metavar="FILE", help="Judgements, TREC or BEIR or ESCI labels. Optional.")
@options.option(
    "Data",
    "--pairs",
    metavar="FILE",
    help="Texts that belong together (sentence1, sentence2), for alignment; alone, they are the corpus as well.",
)
@options.option(
    "Data",
    "--pairs-above",
    type=float,
    metavar="SCORE",
    help="Where pairs have a score: from here on they belong together. Default: 0.8 of the highest.",
)
@options.option("Data", "--terms", metavar="FILE", help="Domain terms, one per line, for the look at the tokenizer.")
@options.option(
    "Data",
    "--paraphrases",
    metavar="FILE",
    help="Queries that mean the same: a group per line with tabs between, or rows with `texts`.",
)
@options.option("Data", "--split", metavar="S", help="Which judgements of the dataset. Default: test.")
@options.option(
    "Data", "--dataset-name", metavar="CONFIG", help="What stands before corpus, queries and qrels on the hub."
)
@options.option("Data", "--revision", metavar="R", help="The hub dataset's revision.")
@options.option(
    "Data", "--samples", type=int, metavar="N", help="How many queries. Default: all. The corpus stays whole."
)
@options.option(
    "Data", "--seed", type=int, default=42, show_default=True, help="Of samples, shuffles, edits, resamples."
)
@options.option(
    "Diagnosis",
    "--baseline",
    metavar="MODEL",
    help="Compare with this model: every figure with delta, interval and label, and how many results stay.",
)
@options.option(
    "Diagnosis", "--layers", metavar="NAMES", help="geometry,retrieval,certainty,… Default: all that the data allow."
)
@options.option("Diagnosis", "--k", type=int, metavar="K", help="How many results a user sees. Default: 10.")
@options.option(
    "Diagnosis",
    "--codec",
    choices="CODECS",
    help="How vectors are stored, for certainty. Default: int8.",
)
@options.option("Diagnosis", "--exact", is_flag=True, default=None, help="Never work a figure out on a sample.")
@options.option(
    "Diagnosis",
    "--grades",
    choices="GRADES",
    help="esci: grades 3 2 1 0 are exact, substitute, complement, irrelevant. Default: plain, or what the labels say.",
)
@options.option(
    "Diagnosis", "--relevant-from", type=float, metavar="GRADE", help="Grades that are relevant. Default: 1."
)
@options.option(
    "Diagnosis",
    "--words",
    choices="WORDS",
    help="What a word is, for word order: phrases for Japanese and Chinese. Default: by the text.",
)
@options.option(
    "Diagnosis", "--permutations", type=int, metavar="N", help="Shuffles of a text, for word order. Default: 3."
)
@options.option("Diagnosis", "--texts", type=int, metavar="N", help="Texts to shuffle, queries to edit. Default: 500.")
@options.option(
    "Diagnosis",
    "--mteb",
    "mteb_names",
    metavar="NAMES",
    help="General language: tasks or benchmarks of mteb, commas between. A drop against the baseline is reported.",
)
@options.option("Data", "--entities", metavar="FILE", help="Entities for the layer knowledge. Default: mined.")
@options.option(
    "Data",
    "--out-of-domain",
    metavar="FILE",
    help="For certainty: queries that the corpus has no answer to. Default: bundled ones.",
)
@options.option(
    "Data",
    "--attributes",
    multiple=True,
    metavar="FILE",
    help="YAML with colours, brands, units, columns for the layer attributes, beside the built-in ones; repeatable.",
)
@options.option("Data", "--sts", metavar="FILE", help="With --adaptation: scored pairs that show what was forgotten.")
@options.flags("diagnosis.options:DiagnosisOptions")
@options.option(
    "Diagnosis",
    "--fail-on",
    type=click.Choice(["regression", "inconclusive", "at-risk", "never"]),
    default="regression",
    show_default=True,
    help="With --baseline: from which label on the exit code is 1.",
)
@options.MODEL_FLAGS
@options.RUN_FLAGS
@options.option(
    "Output", "--html", metavar="FILE", type=click.Path(path_type=Path), help="Write the report as one HTML file."
)
@options.option("Output", "--examples", type=int, default=5, show_default=True, help="Named examples shown per figure.")
@options.CACHE_FLAGS
@options.OUTPUT_FLAGS
@click.pass_context
def diagnose(context: click.Context, /, model: str, **flags: Any) -> None:
    """Why does search with a model fail? nDCG says that it does; the layers say why.

    \b
    geometry      anisotropy, dimension, hubs, word order, the tokenizer
    retrieval     what is found and in which order; precision, index, typing
    attributes    whether results have the colour, brand, size that is asked for
    semantic_gap  whether texts are near for their words or for their meaning
    knowledge     whether it knows the domain's entities or only their letters
    certainty     whether a query's own numbers tell that its results are good

    Every figure has its interval, which way is good, where it warns, and what it means; examples are named. Texts are
    embedded once: layers, runs and the baseline share the vectors, which are kept in the store's folder.

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
      calipers diagnose ./model --pairs sts.jsonl --pairs-above 4
      calipers diagnose ./bert --dataset ./shop --layers knowledge \\
          --entities brands.txt --mlm-head google-bert/bert-base-uncased
      calipers diagnose ./tuned --baseline ./base --dataset ./shop \\
          --adaptation contrastive --sts stsb.jsonl --mteb "JMTEB-lite(v1)"
    """
    for path in (flags["output"], flags["html"]):
        options.check_output(path, flags["force"])
    diagnosis = _diagnose(model, flags)
    _show(diagnosis, flags)
    context.exit(_exit_code(diagnosis, flags["fail_on"]))


def _diagnose(model: str, flags: dict[str, Any]) -> Diagnosis:
    from calipers.core import DataSource
    from calipers.diagnosis import api
    from calipers.diagnosis.options import DiagnosisOptions
    from calipers.rendering import text
    from calipers.runs.embedding import CorpusInputs

    store = options.open_store(flags["store"], flags["no_store"])
    inputs = CorpusInputs(
        **{name: flags[name] for name in _INPUTS},
        source=DataSource(
            path="",
            name=flags["dataset_name"],
            split=flags["split"],
            revision=flags["revision"],
            requested=flags["samples"],
            seed=flags["seed"],
        ),
    )
    chosen = options.make(
        DiagnosisOptions,
        flags,
        layers=_names(flags["layers"], "--layers"),
        layer_options={"seed": flags["seed"], **{name: flags.get(name) for name in _LAYER_OPTIONS}},
        mteb=_names(flags["mteb_names"], "--mteb"),
    )
    _, err = options.consoles()
    with text.bar(err) as progress:
        return api.diagnose(
            model,
            inputs,
            baseline=flags["baseline"],
            options=chosen,
            model_options=options.model_options(flags),
            store=store,
            vectors=options.vector_cache(store, flags),
            progress=progress,
        )


_INPUTS = (
    "attributes",
    "dataset",
    "corpus",
    "queries",
    "qrels",
    "pairs",
    "pairs_above",
    "terms",
    "paraphrases",
    "entities",
    "out_of_domain",
    "sts",
)


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


def _show(diagnosis: Diagnosis, flags: dict[str, Any]) -> None:
    from calipers.diagnosis import json as diagnosis_json
    from calipers.diagnosis import text as diagnosis_text
    from calipers.rendering import document

    content = document.to_json(diagnosis_json.document(diagnosis))
    if flags["output"]:
        options.write_output(flags["output"], content)
    if flags["html"]:
        from calipers.diagnosis import html as diagnosis_html

        options.write_output(flags["html"], diagnosis_html.page(diagnosis))
    if flags["as_json"]:
        click.echo(content)
        return
    out, _ = options.consoles()
    diagnosis_text.show_diagnosis(out, diagnosis, examples=flags["examples"])


def _exit_code(diagnosis: Diagnosis, fail_on: str) -> int:
    """By the verdicts of the layers that make one; without a baseline there is none."""
    from calipers.comparison.records import GateOptions

    labels = [finding.verdict.label for finding in diagnosis.findings if finding.verdict and finding.decides]
    if diagnosis.scorecard:  # it reads the layers by what the training was for, and so speaks for them
        labels = [diagnosis.scorecard.label]
    return 0 if fail_on == "never" else GateOptions(fail_on).exit_code(labels)
