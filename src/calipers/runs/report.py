"""report: stored runs in the formats that others read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from calipers.core import RequestError, Result
from calipers.core.choices import REPORT_FORMATS
from calipers.core.files import whole_file
from calipers.core.options import Options, option
from calipers.rendering import document, model_card, mteb_json
from calipers.rendering.eval_results import eval_results
from calipers.rendering.markdown import results_markdown
from calipers.rendering.variants import base_name, variant
from calipers.runs import catalogue
from calipers.runs.store import Store


@dataclass(frozen=True)
class ReportOptions(Options):
    """The format of a report."""

    format: str = option(
        "markdown",
        "json: the document of `eval`; mteb: result files that mteb reads; model-index: the top of a model card; "
        "eval-results: the files of .eval_results on the hub, one for each precision.",
        group="Report",
        choices=REPORT_FORMATS,
    )
    mteb_task: str | None = option(
        None,
        "The task of MTEB that the data belong to, e.g. STSBenchmark. Default: the one whose official data they are by "
        "fingerprint, or by hub id and size.",
        group="Report",
        metavar="NAME",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.mteb_task and self.format not in ("mteb", "model-index", "eval-results"):
            raise RequestError(
                f"`mteb_task` is for the formats mteb, model-index and eval-results, not for {self.format}"
            )


def report(
    runs: Sequence[str | Result], *, format: str = "markdown", mteb_task: str | None = None, store: Store | None = None
) -> str:
    """Runs as text: `json` is the document of `eval`, `mteb` a result file of mteb, `model-index` the top of a model
    card, `eval-results` a file of `.eval_results` on the hub.

    A run is a Result, or the id of one in `store` (by default the user's store). `mteb_task` is the task of MTEB that
    the data belong to, for the last three; by default the one whose official data they are, if any.

    >>> import calipers
    >>> print(calipers.report([calipers.evaluate("./model", dataset="pairs.csv")]))
    ## `model`: sentence-similarity
    ...
    """
    ReportOptions(format, mteb_task)  # refuses what does not go together
    results = load_runs(runs, store)
    if format == "markdown":
        return results_markdown([(result, catalogue.find(result.task)) for result in results])
    if format == "model-index":
        return model_card.model_index(results, mteb_task=mteb_task)
    if format == "eval-results":
        return _only_file(eval_results_files(results, mteb_task=mteb_task), "precision", "the hub")
    if format == "mteb":
        return _only_file(mteb_files(results, mteb_task=mteb_task), "task", "mteb")
    documents = [result.to_dict() for result in results]
    return document.to_json(documents[0] if len(documents) == 1 else documents)


def _only_file(files: dict[str, str], unit: str, reader: str) -> str:
    if len(files) > 1:
        raise RequestError(
            f"these runs are of {len(files)} {unit}s ({', '.join(files)}), and {reader} has a file for each: report "
            f"one {unit} at a time, or write the files to a folder (`output`)"
        )
    return next(iter(files.values()))


def load_runs(runs: Sequence[str | Result], store: Store | None = None) -> list[Result]:
    """Each run once; ids, their beginnings and `latest` are looked up in the store."""
    if not runs:
        raise RequestError("there is nothing to report: name at least one run")
    store, results = store or Store(), {}
    for run in runs:
        run_id = run.run_id if isinstance(run, Result) else store.resolve(run)
        if run_id not in results:
            results[run_id] = run if isinstance(run, Result) else store.load(run_id)
    return list(results.values())


def mteb_files(results: Sequence[Result], *, mteb_task: str | None = None) -> dict[str, str]:
    """MTEB's task → its result file. The runs must be of one model, which the file does not name."""
    mteb_json.one_model(results, "mteb has a folder for each model")
    parts: dict[str, list[dict[str, Any]]] = {}
    for result in results:
        task = mteb_json.find_task(result, mteb_task)
        parts.setdefault(task.name, []).append(mteb_json.document(result, task))
    return {name: document.to_json(mteb_json.merge(documents)) for name, documents in parts.items()}


def mteb_folder(results: Sequence[Result], *, mteb_task: str | None = None) -> dict[str, str]:
    """The same as files of a folder that mteb's `ResultCache` reads, by their path in it. The runs may be of several
    models and of their variants, which stand under `experiments` of the revision of the model's usual form."""
    by_model: dict[tuple[str, str], list[Result]] = {}
    for result in results:
        by_model.setdefault((result.model.model_id, result.model.fingerprint), []).append(result)
    models = [runs[0].model for runs in by_model.values()]
    usual = {base_name(info.model_id): info for info in models if not variant(info)}
    files: dict[str, str] = {}
    for runs in by_model.values():
        info = runs[0].model
        base = usual.get(base_name(info.model_id))
        revision = mteb_json.model_revision(base) if base else None
        place = f"results/{mteb_json.model_folder(info, revision)}"
        files |= {f"{place}/{name}.json": text for name, text in mteb_files(runs, mteb_task=mteb_task).items()}
        files[f"{place}/model_meta.json"] = document.to_json(mteb_json.model_meta(info, revision))
    return files


def eval_results_files(results: Sequence[Result], *, mteb_task: str | None = None) -> dict[str, str]:
    """The files of `.eval_results` in a model's repository on the hub, by their path in it: one for each precision."""
    return eval_results(results, mteb_task=mteb_task)


def mteb_warnings(results: Sequence[Result], *, mteb_task: str | None = None) -> list[str]:
    """What keeps the figures of a report for mteb from standing beside those of others."""
    return [line for one in results for line in mteb_json.warnings(one, mteb_json.find_task(one, mteb_task))]


# --- outcomes as a file ----------------------------------------------------------------------------------------------


def write_outcomes(result: Result, path: Path, *, details: str | None = None) -> None:
    """What came out of each example as a table, .csv or .parquet by the name of the file; with `details`, the table of
    that name (the tokens of fill-mask, the results of a search)."""
    import pyarrow.csv
    import pyarrow.parquet

    writers = {".csv": pyarrow.csv.write_csv, ".parquet": pyarrow.parquet.write_table}
    write = writers.get(path.suffix.lower())
    if write is None:
        raise RequestError(f"`outcomes` must name a file {' or '.join(writers)}, found {path.name}")
    table = result.outcomes.to_arrow(details)
    try:
        with whole_file(path) as part:
            write(table, str(part.absolute()))
    except OSError as error:
        raise RequestError(f"{path} cannot be written: {error.strerror or error}") from error
