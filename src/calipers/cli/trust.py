"""`calipers trust`: can this one result be trusted?"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from calipers.cli import options

if TYPE_CHECKING:
    from rich.console import Console

    from calipers.reliability.api import Answer, Wishes

SCHEMA = "calipers/trust/1"
_CODECS = ("fp16", "int8", "int4", "binary", "pq")
_SHOWN = 90  # characters of a neighbour's text
_ROWS = 8  # of the risk–coverage curve


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
@options.option(
    "Data",
    "--queries",
    metavar="Q",
    help="Real queries, a file or folder as above: what is usual for R_q. Default: queries.jsonl beside the corpus "
    "with --calibrate, else documents.",
)
@options.option(
    "Data",
    "--calibrate",
    metavar="QRELS",
    help="Judgements of these queries (BEIR or TREC): turns the score into the probability that a relevant result "
    "is among the first K.",
)
@options.option(
    "Data",
    "--out-of-domain",
    metavar="Q",
    help="Queries that the corpus has no answer to, for a detector of such queries. Default: bundled ones.",
)
@options.option("Score", "--codec", type=click.Choice(_CODECS), help="How vectors are stored. Default: int8.")
@options.option("Score", "--k", type=int, metavar="K", help="How many neighbours. Default: 10.")
@options.option(
    "Score", "--error", type=float, metavar="E", help="Failures that may be among what is answered. Default: 0.1."
)
@options.option(
    "Score",
    "--map",
    "method",
    type=click.Choice(["logistic", "isotonic"]),
    help="From the four features to a probability: a logistic map, or an isotonic one behind it. Default: logistic.",
)
@options.option("Score", "--seed", type=int, default=42, show_default=True, help="Of samples, folds and resamples.")
@options.option("Score", "--query-prompt", metavar="TEXT", help="Put before every query.")
@options.option("Score", "--passage-prompt", metavar="TEXT", help="Put before every document.")
@options.MODEL_FLAGS
@options.RUN_FLAGS
@options.option(
    "Output",
    "--save",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Keep the fitted score in one file (safetensors), for `--load` or calipers.reliability.Trust.load.",
)
@options.option("Output", "--load", metavar="FILE", type=click.Path(path_type=Path), help="Use a score that was kept.")
@options.option("Output", "--force", is_flag=True, help="Overwrite that file.")
@options.option("Output", "--json", "as_json", is_flag=True, help="Print JSON and nothing else.")
@options.option(
    "Output",
    "--store",
    metavar="DIR",
    type=click.Path(path_type=Path),
    help="Where the corpus's vectors are kept, as in diagnose. Default: CALIPERS_STORE, or the user's data folder.",
)
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
        raise click.UsageError("--save and --load exclude each other: give one of them")
    if not query and not (flags["save"] or flags["calibrate"]):
        raise click.UsageError("there is nothing to do: give a QUERY, or --calibrate or --save")
    options.check_output(flags["save"], flags["force"])
    from calipers.reliability import api as trusting
    from calipers.rendering import document, text

    out, err = options.consoles()
    with text.bar(err) as progress:
        found = trusting.ask(
            model,
            flags["corpus"],
            query,
            _wishes(flags),
            vectors=options.vector_cache(options.open_store(flags["store"], False), flags),
            progress=progress,
        )
    if flags["save"]:
        found.trust.save(flags["save"])
    if flags["as_json"]:
        click.echo(document.to_json(_document(found)))
    else:
        _show(out, found, fitted=flags["load"] is None)


def _wishes(flags: Mapping[str, Any]) -> Wishes:
    from calipers.reliability.api import Wishes

    names = ("load", "queries", "calibrate", "out_of_domain", "codec", "k", "error", "method")
    return Wishes(
        **{name: flags[name] for name in (*names, "query_prompt", "passage_prompt", "seed")},
        model_options=options.model_options(flags),
    )


# --- for programs ------------------------------------------------------------------------------------------------


def _document(found: Answer) -> dict[str, Any]:
    trust = found.trust
    return {
        "schema": SCHEMA,
        "model_id": found.model_id,
        "corpus": {
            "path": found.corpus.source.path,
            "documents": len(found.corpus),
            "fingerprint": found.corpus.fingerprint,
        },
        "codec": trust.codec.name,
        "k": trust.k,
        "calibrated": trust.calibrated,
        "map": trust.method if trust.calibrated else None,
        "thresholds": vars(trust.thresholds),
        **trust.report,
        "about": trust.about,
        "queries": [_query(found, row) for row in range(len(found.questions))],
        "warnings": found.notes,
    }


def _query(found: Answer, row: int) -> dict[str, Any]:
    scores = found.scores
    numbers = {name: float(values[row]) for name, values in vars(scores.parts).items()}
    return {
        "query": found.questions[row],
        "decision": str(scores.decision[row]),
        "reason": found.trust.reason(scores, row),
        "probability": float(scores.probability[row]),
        **numbers,
        "odd": {kind: bool(flags[row]) for kind, flags in scores.odd.items()},
        "neighbours": _neighbours(found, row),
    }


def _neighbours(found: Answer, row: int) -> list[dict[str, Any]]:
    texts = found.corpus.columns["text"]
    return [
        {
            "rank": rank,
            "id": found.corpus.ids[document],
            "cosine": float(found.cosines[row, rank - 1]),
            "text": texts[document],
        }
        for rank, document in enumerate(found.rows[row].tolist(), start=1)
        if document >= 0
    ]


# --- for people --------------------------------------------------------------------------------------------------


def _show(console: Console, found: Answer, *, fitted: bool) -> None:
    """What a calibration found is shown once, when it is fitted."""
    from calipers.core import printable
    from calipers.rendering import text

    trust = found.trust
    facts = [
        ("Model", found.model_id),
        ("Corpus", f"{found.corpus.source.path}, {len(found.corpus):,} documents"),
        ("Codec", f"{trust.codec.name}, K = {trust.k}"),
        ("Score", f"a probability by the {trust.method} map" if trust.calibrated else "R_q, which is no probability"),
        ("Decision", f"on the {trust.thresholds.on}: {trust.thresholds}"),
        ("", trust.thresholds.why),
    ]
    text.show_facts(console, "trust", [(name, printable(value)) for name, value in facts])
    if fitted:
        _show_calibration(console, trust.report.get("calibration") or {}, trust.method)
        _show_detectors(console, trust.report.get("detectors") or ())
    deciding = {kind for kind, detector in trust.detectors.items() if detector.acts}
    for row in range(len(found.questions)):
        _show_query(console, _query(found, row), deciding)
    for note in found.notes:
        console.print(f"warning: {printable(note)}", style="yellow", markup=False, highlight=False, soft_wrap=True)


def _show_calibration(console: Console, judged: Mapping[str, Any], method: str) -> None:
    from calipers.core import printable
    from calipers.rendering import text

    if rows := [_quality(told) for told in judged.get("scores", ())]:
        text.show_examples(console, rows)
    for sentence in judged.get("sentences", ()):
        console.print(printable(sentence), markup=False, highlight=False, soft_wrap=True)
    if curve := judged.get("reliability_curve", {}).get(method):
        text.show_examples(console, [_point(told) for told in curve])
    if risks := judged.get("risk_coverage", {}).get(method):
        text.show_examples(console, [_risk(told) for told in (risks[3::4] if len(risks) > _ROWS else risks)])


def _quality(told: Mapping[str, Any]) -> dict[str, str]:
    return {
        "score": told["about"],
        **{key: _with_interval(told[key]) for key in ("auroc", "brier", "ece")},
        "ece of chance alone": _with_interval({"value": told["honest_ece"], "interval": None}),
    }


def _point(told: Mapping[str, Any]) -> dict[str, str]:
    """One of the reliability curve."""
    return {
        "probability stated": f"{told['probability']:.3f}",
        "share that succeed": _with_interval({"value": told["share"], "interval": told["interval"]}),
        "queries": str(told["count"]),
    }


def _risk(told: Mapping[str, Any]) -> dict[str, str]:
    return {
        "queries answered": f"{told['coverage']:.0%}",
        "failures among them": f"{told['risk']:.1%}",
        "probability from": f"{told['threshold']:.3f}",
    }


def _show_detectors(console: Console, found: Sequence[Mapping[str, Any]]) -> None:
    from calipers.core import printable
    from calipers.rendering import text

    rows = [
        {
            "odd queries": d["kind"].replace("_", " "),
            "auroc": _with_interval(d["auroc"]),
            "by R_q alone": _with_interval(d["by_reliability"]),
            "by the top cosine alone": _with_interval(d["by_top_score"]),
            "found at 5 % false alarms": "none"
            if d["found"] is None or d["found"] != d["found"]
            else f"{d['found']:.0%}",
            "decides": "yes" if d["acts"] else "no",
        }
        for d in found
        if not d["reason"]
    ]
    if rows:
        text.show_examples(console, rows)
    for d in found:
        if d["reason"]:
            told = f"No detector of {d['kind'].replace('_', ' ')} queries: {d['reason'].replace('_', ' ')}."
            console.print(printable(told), markup=False, highlight=False, soft_wrap=True)


def _with_interval(told: Mapping[str, Any]) -> str:
    value, ends = told["value"], told["interval"]
    if value is None or value != value:
        return "none"
    return f"{value:.3f}" + (f" ({ends[0]:.3f} to {ends[1]:.3f})" if ends else "")


def _show_query(console: Console, told: Mapping[str, Any], deciding: Collection[str]) -> None:
    """`deciding`: the kinds of odd queries whose detector takes part in the decision."""
    from calipers.core import printable
    from calipers.rendering import text

    parts = ", ".join(f"{name} {_number(told[key])}" for key, name in _PARTS.items())
    facts = [
        ("Decision", f"{told['decision']}: {told['reason']}"),
        *([("Probability", f"{told['probability']:.3f}")] if told["probability"] == told["probability"] else []),
        ("Reliability", _number(told["reliability"])),
        ("Parts", parts),
    ]
    called = [kind for kind, yes in told["odd"].items() if yes]
    if said := [f"{kind.replace('_', ' ')}{'' if kind in deciding else ' (told only)'}" for kind in called]:
        facts.append(("Looks", ", ".join(said)))
    text.show_facts(console, printable(told["query"]), facts)
    shown = [  # none where the query's vector is zero
        {"": str(n["rank"]), "cosine": n["cosine"], "id": printable(n["id"]), "text": _cut(printable(n["text"]))}
        for n in told["neighbours"]
    ]
    if shown:
        text.show_examples(console, shown)


_PARTS = {"stability": "stability", "coherence": "coherence", "top_score": "top cosine", "margin": "margin"}


def _number(value: float) -> str:
    return f"{value:.3f}" if value == value else "none"


def _cut(words: str) -> str:
    return words if len(words) <= _SHOWN else words[: _SHOWN - 1] + "…"
