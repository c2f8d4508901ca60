"""Results for people, on a terminal or in a log."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from calipers.core import Measurement, Metric, Result, RunLine, Task
from calipers.rendering.numbers import (
    count,
    data_parts,
    interval,
    interval_name,
    megabytes,
    number,
    plural,
    search_time,
)
from calipers.rendering.slices import slice_table, slice_title
from calipers.rendering.tables import Cell, fits, is_bounded, make_table, say, show_facts, show_table, warn

if TYPE_CHECKING:
    from rich.console import Console


def _place(result: Result) -> str:
    """Backend and device, and the execution provider unless it is the CPU's: outputs depend on it."""
    provider = result.model.settings.get("provider") or ""
    beyond = "" if provider == "CPUExecutionProvider" else provider
    return ", ".join(filter(None, (result.model.backend, result.model.device, beyond)))


def show_result(console: Console, result: Result, task: Measurement[Any]) -> None:
    """A panel with what was measured and how, then a table of metrics."""
    facts = [
        ("Model", result.model.model_id),
        ("Runs on", _place(result)),
        ("Settings", _settings(result)),
        ("Data", data_line(result)),
        (plural(task.unit).capitalize(), _counts(result)),
    ]
    if clusters := result.bootstrap.get("clusters"):
        facts.append(("Drawn again", f"{clusters:,} clusters, by {result.bootstrap['cluster']}"))
    declared = result.model.settings.get("similarity_fn_name")
    if declared and result.options.get("similarity", declared) is None:
        facts.append(("Similarity", f"{declared} (from the model's files)"))
    for name, key in (("Batches", "batching"), ("Short cut", "short_cut")):
        if value := result.model.settings.get(key):
            facts.append((name, str(value)))
    if options := [f"{name}={value}" for name, value in result.options.items() if value]:
        facts.append(("Options", ", ".join(options)))
    if result.model.size:
        facts.append(("Size", megabytes(result.model.size)))
    if speed := result.speed:
        rate = f"{speed.inputs_per_second:,.0f} a second at once"
        facts.append(("Speed", f"p50 {speed.p50_ms:.1f} ms, p95 {speed.p95_ms:.1f} ms, one input at a time; {rate}"))
    facts.append(("Time", _times(result)))
    show_facts(console, f"{result.task}  ·  run {result.run_id}", facts)
    metrics = [metric for metric in task.measures(task.options(**result.options)) if metric.name in result.metrics]
    values = {m.name: number(result.metrics[m.name], m.digits) for m in metrics}
    whole = [m for m in metrics if "/" not in m.name]
    rows = [(m.name, values[m.name], interval(result.intervals[m.name], m.digits), m.about) for m in whole]
    header = ("metric", "value", interval_name(result.bootstrap["confidence"]), "what it is")
    show_table(console, header, rows, right=(1, 2), fold=(3,), strong=(0,))
    if metrics:
        _show_curve(console, result, metrics, task.unit)
    for slices in result.slices:
        digits = next(metric.digits for metric in metrics if metric.name == slices.metric)
        say(console, f"\n{slice_title(slices)}")
        show_table(console, *slice_table(slices, digits, task.unit, result.bootstrap["confidence"]), right=(1, 2, 3))
        for note in slices.notes:
            say(console, note, "dim")
    sizes = [f"/{size}" for size in result.options.get("dimensions") or ()]
    parts = {name: value for name, value in values.items() if "/" in name and not name.endswith(tuple(sizes))}
    _show_parts(console, parts)
    for warning in result.warnings:
        warn(console, warning)


def _show_curve(console: Console, result: Result, metrics: Sequence[Metric], unit: str) -> None:
    """The primary metric by the size of the vectors, a row for each size; the JSON document has all metrics."""
    digits = metrics[0].digits
    rows = [
        (
            "all" if row.dimensions is None else str(row.dimensions),
            f"{row.examples:,}",
            number(row.value, digits),
            interval(row.interval, digits),
            "" if row.delta is None else number(row.delta, digits),
            "" if row.delta is None else interval(row.delta_interval, digits),
        )
        for row in result.curve
        if row.metric == metrics[0].name
    ]
    if rows:
        ends = interval_name(result.bootstrap["confidence"])
        header = ("first numbers", plural(unit), metrics[0].name, ends, "less all", f"paired {ends}")
        show_table(console, header, rows, right=range(6))


def _show_parts(console: Console, values: Mapping[str, str]) -> None:
    """Metrics of parts of the data, METRIC/PART: a row for each part and a column for each metric."""
    names = [name.partition("/") for name in values]
    metrics, parts = dict.fromkeys(metric for metric, _, _ in names), dict.fromkeys(part for _, _, part in names)
    rows = [(part, *(values.get(f"{metric}/{part}", "none") for metric in metrics)) for part in parts]
    if rows:
        show_table(console, ("each part", *metrics), rows, right=range(1, len(metrics) + 1))


def show_tasks(console: Console, tasks: Sequence[Task[Any]]) -> None:
    rows = [(task.name, ", ".join(task.aliases), task.metrics[0].name, task.about) for task in tasks]
    show_table(console, ("task", "also called", "primary metric", "what it measures"), rows, fold=(1, 3))


def show_task(console: Console, task: Task[Any]) -> None:
    data = task.default_data
    default = f"{data.path}{f' ({data.name})' if data.name else ''}{f', split {data.split}' if data.split else ''}"
    facts = [
        ("Measures", task.about),
        ("Also called", ", ".join(task.aliases)),
        ("Default data", default),
        ("One example", f"a {task.unit}"),
    ]
    show_facts(console, task.name, facts)
    columns = [(f"{c.key}={c.default}", c.kind, c.about) for c in task.columns]
    columns.append(("id_column=id", "text", "the row's id; rows are numbered where there is none"))
    if task.data == "rows":
        show_table(console, ("--column", "kind", "what it is"), columns, fold=(2,))
    metrics = [(m.name, "higher" if m.higher_is_better else "lower", str(m.thresholds), m.about) for m in task.metrics]
    if parts := dict.fromkeys(m.name.partition("/")[2] for m in task.measures(task.options()) if "/" in m.name):
        metrics.append(("METRIC/PART", "as above", "as above", f"the same of one part of the data: {', '.join(parts)}"))
    show_table(console, ("metric", "good is", "pass / at risk", "what it is"), metrics, fold=(3,), strong=(0,))


_RUN_COLUMNS = ("run", "name", "when (UTC)", "task", "model", "files", "data", "n", "primary metric", "label", "tags")


def show_runs(console: Console, lines: Sequence[RunLine]) -> None:
    """A table; columns that are empty in all runs are left out. Where it is too wide, two lines a run, and names break
    their lines: none is cut."""
    rows = [_run_cells(line) for line in lines]
    used = [place for place in range(len(_RUN_COLUMNS)) if any(row[place] for row in rows)]
    header, table = [_RUN_COLUMNS[i] for i in used], [[row[i] for i in used] for row in rows]
    if not is_bounded(console) or fits(console, make_table(header, table)):
        show_table(console, header, table, right=(used.index(7),))
        return
    titles = ("run", "files"), ("model", "name [tags]"), ("data", "task"), ("value", "of"), ("n", "label")
    folded = [[Cell(above, below=below) for above, below in titles], *map(_folded_run, rows)]
    show_table(console, folded[0], folded[1:], right=(4,), fold=(1, 2))


def _run_cells(line: RunLine) -> tuple[str, ...]:
    when, data = line.created[:16].replace("T", " "), "/".join(line.dataset.rstrip("/").split("/")[-2:])
    digest, value = line.fingerprint.removeprefix("sha256:")[:8], f"{line.value:.6g} {line.metric}"
    cells = (line.run_id, line.name, when, line.task, line.artifact, digest, data, str(line.examples), value)
    return (*cells, line.label, ", ".join(line.tags))


def _folded_run(row: Sequence[str]) -> list[Cell]:
    """In two lines. When it was is in the id."""
    run, name, _, task, model, digest, data, many, value, label, tags = row
    named = " ".join(filter(None, (name, f"[{tags}]" if tags else "")))
    number, metric = value.split(" ", 1)
    cells = (run, digest), (model, named), (data, task), (number, metric), (many, label)
    return [Cell(above, below=below) for above, below in cells]


def _settings(result: Result) -> str:
    settings = result.model.settings
    parts = [f"{settings['pooling']} pooling"] if "pooling" in settings else []
    if settings.get("pooling_assumed"):
        parts[0] += " (assumed: the model's files do not say)"
    shape = settings.get("shape")
    lines = {
        "normalised": settings.get("normalize"),
        f"the first {settings.get('truncate_dim')} numbers of each vector": settings.get("truncate_dim"),
        f"at most {settings.get('max_length')} tokens": settings.get("max_length"),
        str(settings.get("dtype")): settings.get("dtype"),
        f"graph shape {shape}": shape and shape != "[any, any]",
        f"prompt {settings.get('prompt')!r}": settings.get("prompt"),
        f"k1 {settings.get('k1')}, b {settings.get('b')}, {settings.get('method')}": "k1" in settings,
        f"analyser {settings.get('analyser')}": settings.get("analyser"),
    }
    parts += [line for line, applies in lines.items() if applies]
    return ", ".join(parts) or "none"


def data_line(result: Result) -> str:
    """The data of a run in one line: path, configuration, split, the beginning of the fingerprint."""
    return ", ".join(data_parts(result.dataset)) + f"  ({result.fingerprint[:15]}…)"


# Texts that were cut, in a search by what they are.
_CUT = {"queries_truncated": "query", "documents_truncated": "document", "reranked_pairs_truncated": "reranked pair"}


def truncated_texts(result: Result) -> str:
    """How many texts or pairs the model cut, in a search by what they are; "" where it cut none."""
    counts = result.outcomes.counts
    parts = [count(noun, int(counts[name])) for name, noun in _CUT.items() if counts.get(name)]
    if not parts and counts.get("truncated"):
        parts = [f"{int(counts['truncated']):,}"]
    words = [f"{' and '.join(parts)} truncated"] if parts else []
    if result.model.settings.get("truncation"):
        words.append("truncated texts unknown: the endpoint does not report them")
    return ", ".join(words)


def _counts(result: Result) -> str:
    source = result.dataset
    how = f"random, seed {source.seed}" if source.shuffle else "the first ones"
    requested = f" of {source.requested:,} requested ({how})" if source.requested else ""
    blank = f", {source.rows_blank:,} blank left out" if source.rows_blank else ""
    counts = result.outcomes.counts
    more = f", {counts['tokens']:,} tokens" if "tokens" in counts else ""
    more += f", {counts['unknown']:,} unknown" if counts.get("unknown") else ""
    more += f", {cut}" if (cut := truncated_texts(result)) else ""
    return f"{len(result.outcomes):,} scored{requested}{blank}{more}"


def _times(result: Result) -> str:
    timing = result.timing
    if "total_seconds" not in timing:  # a run that was measured elsewhere
        return f"{timing['evaluation_seconds']:.1f} s, elsewhere" if "evaluation_seconds" in timing else "not recorded"
    if "reused_seconds" in timing:
        return f"{timing['total_seconds']:.1f} s: the outcomes of a stored run, found in {timing['reused_seconds']:.1f}"
    return (
        f"{timing['total_seconds']:.1f} s: loading {timing['load_seconds']:.1f}, "
        f"inference {timing['inference_seconds']:.1f}{search_time(timing)}, metrics {timing['metrics_seconds']:.1f}"
    )
