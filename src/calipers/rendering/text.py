"""Results for people, on a terminal or in a log."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from calipers.core import SILENT, Measurement, Progress, Result, RunLine, Task, printable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import Console, RenderableType


def show_result(console: Console, result: Result, task: Measurement) -> None:
    """A panel with what was measured and how, then a table of metrics."""
    facts = [
        ("Model", f"{result.model.model_id}"),
        ("Runs on", f"{result.model.backend}, {result.model.device}"),
        ("Settings", _settings(result)),
        ("Data", _data(result)),
        (_plural(task.unit).capitalize(), _counts(result)),
    ]
    for name, key in (("Batches", "batching"), ("Short cut", "short_cut")):
        if told := result.model.settings.get(key):
            facts.append((name, str(told)))
    if said := [f"{k}={v}" for k, v in result.options.items() if v]:
        facts.append(("Options", ", ".join(said)))
    facts.append(("Time", _times(result)))
    _facts(console, f"{result.task}  ·  run {result.run_id}", facts)
    confidence = f"{result.bootstrap['confidence']:.0%} interval"
    metrics = [metric for metric in task.measures(task.options(**result.options)) if metric.name in result.metrics]
    rows = [
        (
            metric.name,
            _number(result.metrics[metric.name], metric.digits),
            _interval(result.intervals[metric.name], metric.digits),
            metric.about,
        )
        for metric in metrics
        if "/" not in metric.name
    ]
    _table(console, ("metric", "value", confidence, "what it is"), rows, strong_first=True, right=(1, 2))
    _show_parts(console, {m.name: _number(result.metrics[m.name], m.digits) for m in metrics if "/" in m.name})
    for warning in result.warnings:
        console.print(f"warning: {printable(warning)}", style="yellow", markup=False, highlight=False, soft_wrap=True)


def _show_parts(console: Console, values: Mapping[str, str]) -> None:
    """Metrics of parts of the data, METRIC/PART: a row for each part and a column for each metric."""
    names = [name.partition("/") for name in values]
    kinds, parts = dict.fromkeys(kind for kind, _, _ in names), dict.fromkeys(part for _, _, part in names)
    rows = [(part, *(values.get(f"{kind}/{part}", "none") for kind in kinds)) for part in parts]
    if rows:
        _table(console, ("each part", *kinds), rows, right=range(1, len(kinds) + 1))


def show_tasks(console: Console, tasks: Sequence[Task]) -> None:
    rows = [(task.name, ", ".join(task.aliases), task.metrics[0].name, task.about) for task in tasks]
    _table(console, ("task", "also called", "primary metric", "what it measures"), rows)


def show_task(console: Console, task: Task) -> None:
    data = task.default_data
    default = f"{data.path}{f' ({data.name})' if data.name else ''}{f', split {data.split}' if data.split else ''}"
    _facts(
        console,
        task.name,
        [
            ("Measures", task.about),
            ("Also called", ", ".join(task.aliases)),
            ("Default data", default),
            ("One example", f"a {task.unit}"),
        ],
    )
    columns = [(f"{c.key}={c.default}", c.kind, c.about) for c in task.columns]
    columns.append(("id_column=id", "text", "the row's id; rows are numbered where there is none"))
    if task.data == "rows":
        _table(console, ("--column", "kind", "what it is"), columns)
    metrics = [(m.name, "higher" if m.higher_is_better else "lower", str(m.thresholds), m.about) for m in task.metrics]
    if parts := dict.fromkeys(m.name.partition("/")[2] for m in task.measures(task.options()) if "/" in m.name):
        metrics.append(("METRIC/PART", "as above", "as above", f"the same of one part of the data: {', '.join(parts)}"))
    _table(console, ("metric", "good is", "pass / at risk", "what it is"), metrics, strong_first=True)


def show_runs(console: Console, lines: Sequence[RunLine]) -> None:
    rows = [
        (
            x.run_id,
            x.created[:16].replace("T", " "),
            x.task,
            x.model_id,
            x.dataset.rsplit("/", 1)[-1],
            str(x.examples),
            f"{x.metric} {x.value:.6g}",
        )
        for x in lines
    ]
    _table(console, ("run", "when (UTC)", "task", "model", "data", "n", "primary metric"), rows, right=(5,), cut=True)


def show_examples(console: Console, examples: Sequence[Mapping[str, Any]]) -> None:
    header = tuple(examples[0]) if examples else ()
    rows = [tuple(f"{v:.3f}" if isinstance(v, float) else str(v) for v in example.values()) for example in examples]
    numbers = [i for i, value in enumerate(examples[0].values()) if isinstance(value, float)] if examples else []
    _table(console, header, rows, right=numbers)


def show_facts(console: Console, title: str, facts: Iterable[tuple[str, str]]) -> None:
    _facts(console, title, list(facts))


class Bar:
    """A progress bar on a terminal."""

    def __init__(self, console: Console) -> None:
        from rich import progress

        columns = (
            progress.TextColumn("{task.description}"),
            progress.BarColumn(),
            progress.MofNCompleteColumn(),
            progress.TimeRemainingColumn(),
        )
        self._progress = progress.Progress(*columns, console=console, transient=True)
        self._task: Any = None

    def start(self, label: str, total: int) -> None:
        if self._task is not None:
            self._progress.remove_task(self._task)
        self._task = self._progress.add_task(label, total=total or None)

    def advance(self, count: int) -> None:
        self._progress.advance(self._task, count)


@contextmanager
def bar(console: Console) -> Iterator[Progress]:
    """Silent where there is no terminal, without the time that it takes to import one."""
    if not console.is_terminal:
        yield SILENT
        return
    shown = Bar(console)
    with shown._progress:
        yield shown


def _settings(result: Result) -> str:
    settings = result.model.settings
    parts = [f"{settings['pooling']} pooling"] if "pooling" in settings else []
    if settings.get("pooling_assumed"):
        parts[0] += " (assumed: the model's files do not say)"
    if settings.get("normalize"):
        parts.append("normalised")
    if settings.get("max_length"):
        parts.append(f"at most {settings['max_length']} tokens")
    if settings.get("dtype"):
        parts.append(str(settings["dtype"]))
    if settings.get("shape") and settings["shape"] != "[any, any]":
        parts.append(f"graph shape {settings['shape']}")
    if settings.get("prompt"):
        parts.append(f"prompt {settings['prompt']!r}")
    return ", ".join(parts) or "none"


def _data(result: Result) -> str:
    source = result.dataset
    parts = [source.path]
    parts += [f"configuration {source.name}"] if source.name else []
    parts += [f"split {source.split}"] if source.split else []
    return ", ".join(parts) + f"  ({result.fingerprint[:15]}…)"


def _counts(result: Result) -> str:
    source = result.dataset
    how = f"random, seed {source.seed}" if source.shuffle else "the first ones"
    asked = f" of {source.requested:,} asked for ({how})" if source.requested else ""
    blank = f", {source.rows_blank:,} blank left out" if source.rows_blank else ""
    counts = result.outcomes.counts
    more = f", {counts['tokens']:,} tokens" if "tokens" in counts else ""
    for what in ("unknown", "truncated"):
        more += f", {counts[what]:,} {what}" if counts.get(what) else ""
    return f"{len(result.outcomes):,} scored{asked}{blank}{more}"


def _times(result: Result) -> str:
    timing = result.timing
    if "total_seconds" not in timing:  # a run that was measured elsewhere
        return f"{timing['evaluation_seconds']:.1f} s, elsewhere" if "evaluation_seconds" in timing else "not recorded"
    if "reused_seconds" in timing:
        return f"{timing['total_seconds']:.1f} s: the outcomes of a stored run, found in {timing['reused_seconds']:.1f}"
    return (
        f"{timing['total_seconds']:.1f} s: loading {timing['load_seconds']:.1f}, "
        f"inference {timing['inference_seconds']:.1f}, metrics {timing['metrics_seconds']:.1f}"
    )


def _plural(unit: str) -> str:
    return f"{unit[:-1]}ies" if unit.endswith("y") else f"{unit}s"


def _number(value: float, digits: int) -> str:
    return f"{value:.{digits}f}" if abs(value) < 1e6 else f"{value:.3e}"


def _interval(ends: tuple[float, float] | None, digits: int) -> str:
    return f"{_number(ends[0], digits)} – {_number(ends[1], digits)}" if ends else "none"


def _facts(console: Console, title: str, facts: Sequence[tuple[str, str]]) -> None:
    from rich.panel import Panel
    from rich.table import Table
    from rich.text import Text

    facts = [(name, printable(value)) for name, value in facts]
    width = max(len(name) for name, _ in facts)
    if not console.is_terminal:
        console.print(Text(title), soft_wrap=True)
        for name, value in facts:
            console.print(Text(f"  {name:<{width}}  {value}"), soft_wrap=True)
        return
    grid = Table.grid(padding=(0, 2))
    for name, value in facts:
        grid.add_row(Text(name, style="dim"), Text(value, overflow="fold"))
    console.print(Panel(grid, title=Text(title), title_align="left", border_style="cyan", expand=False))


def _table(
    console: Console,
    header: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    strong_first: bool = False,
    right: Sequence[int] = (),
    cut: bool = False,
) -> None:
    """On a terminal a table that fits its width, cells folded or cut; elsewhere aligned columns, one line a row."""
    rows = [[printable(cell) for cell in row] for row in rows]
    if not console.is_terminal:
        _plain_table(console, header, rows, right)
        return
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for i, name in enumerate(header):
        last = i == len(header) - 1
        table.add_column(
            name,
            justify="right" if i in right else "left",
            overflow="ellipsis" if cut else "fold",
            no_wrap=cut or (i == 0 and not last),
        )
    for number, row in enumerate(rows):
        cells: list[RenderableType] = [Text(cell) for cell in row]
        table.add_row(*cells, style="bold" if strong_first and number == 0 else None)
    console.print(table)


def _plain_table(console: Console, header: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[int]) -> None:
    from rich.text import Text

    lines = [header, *rows]
    widths = [max(len(line[i]) for line in lines) for i in range(len(header))]
    for line in lines:
        cells = [c.rjust(w) if i in right else c.ljust(w) for i, (c, w) in enumerate(zip(line, widths, strict=True))]
        console.print(Text("  ".join(cells).rstrip()), soft_wrap=True)
