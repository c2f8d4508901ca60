"""Which of the stored runs are meant: by what was measured, by label and tag, by age."""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from datetime import UTC, datetime, timedelta

from calipers.core import RequestError, RunLine
from calipers.core.options import Options, option
from calipers.rendering import tables


@dataclass(frozen=True)
class RunFilter(Options):
    """All that is set must hold. Texts match a part of the run's, whatever the case; a label and a tag the whole."""

    task: str | None = option(None, "Runs of this task.", group="Which runs", metavar="NAME")
    model: str | None = option(
        None, "Part of the model's name, path or fingerprint.", group="Which runs", metavar="TEXT"
    )
    dataset: str | None = option(None, "Part of the path of the data.", group="Which runs", metavar="TEXT")
    label: str | None = option(
        None, "Runs whose newest verdict has this label, such as PASS.", group="Which runs", metavar="LABEL"
    )
    tag: tuple[str, ...] = option((), "Runs with this tag; may be repeated.", group="Which runs", metavar="TAG")

    def choose(self, lines: Iterable[RunLine]) -> Iterator[RunLine]:
        return filter(self._matches, lines)

    def _matches(self, line: RunLine) -> bool:
        model = f"{line.name} {line.model_id} {line.model_path or ''} {line.fingerprint}"
        return all(
            (
                self.task is None or line.task == self.task,
                self.model is None or self.model.lower() in model.lower(),
                self.dataset is None or self.dataset.lower() in line.dataset.lower(),
                self.label is None or line.label == self.label.upper().replace("-", "_"),
                set(self.tag) <= set(line.tags),
            )
        )


@dataclass(frozen=True)
class PruneOptions(Options):
    """Which runs go. Those with a name or a tag stay, unless `named`."""

    keep: int | None = option(
        None, "Remove all but the newest N of each model, task and data.", group="What goes", metavar="N", at_least=0
    )
    older_than: float | None = option(
        None, "Remove runs that are older.", group="What goes", metavar="DAYS", at_least=0
    )
    named: bool = option(False, "Runs with a name or a tag, too.", group="What goes")

    def choose(self, lines: Iterable[RunLine]) -> list[RunLine]:
        """The runs of a list, newest first, that all the limits let go."""
        if self.keep is None and self.older_than is None:
            raise RequestError("nothing says which runs go: set `keep` or `older_than`")
        seen: Counter[tuple[str, str, str]] = Counter()
        chosen = []
        for line in lines:
            kind = (line.fingerprint or line.model_id, line.task, line.dataset)
            seen[kind] += 1
            surplus = self.keep is None or seen[kind] > self.keep
            if surplus and self._is_old(line) and (self.named or not (line.name or line.tags)):
                chosen.append(line)
        return chosen

    def _is_old(self, line: RunLine) -> bool:
        if self.older_than is None:
            return True
        return datetime.fromisoformat(line.created) < datetime.now(UTC) - timedelta(days=self.older_than)


def to_csv(lines: Sequence[RunLine]) -> str:
    """A table with a header, one line a run; several tags are separated by spaces."""
    names = [field.name for field in fields(RunLine)]
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(names)
    for line in lines:
        values = vars(line) | {"tags": " ".join(line.tags)}
        writer.writerow(["" if values[name] is None else tables.csv_cell(values[name]) for name in names])
    return file.getvalue()
