"""Tasks of MTEB that the place of the data identifies, and what mteb's own rules for them are."""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class MtebTaskFacts:
    """What mteb knows of a task: enough to measure it as mteb does and to write a result that it reads."""

    name: str
    path: str  # of its dataset on the hub
    main_score: str
    languages: tuple[str, ...] = ("eng-Latn",)
    split: str = "test"
    ignores_identical_ids: bool = False  # a document with the id of its query is no result


_STS = {
    "STSBenchmark": "stsbenchmark-sts",
    **{f"STS{year}": f"sts{year}-sts" for year in range(12, 17)},
    "SICK-R": "sickr-sts",
    "BIOSSES": "biosses-sts",
}
_RETRIEVAL = (
    *("ArguAna", "ClimateFEVER", "DBPedia", "FEVER", "FiQA2018", "HotpotQA", "MSMARCO", "NFCorpus", "NQ"),
    *("QuoraRetrieval", "SCIDOCS", "SciFact", "Touche2020", "TRECCOVID"),
)
_IDENTICAL = {"ArguAna", "FEVER", "FiQA2018", "MSMARCO", "QuoraRetrieval"}
# Their data on the hub have the name in small letters, but for these.
_PATHS = {"ClimateFEVER": "climate-fever", "FiQA2018": "fiqa", "QuoraRetrieval": "quora", "TRECCOVID": "trec-covid"}
_RERANKING = ("AskUbuntuDupQuestions", "SciDocsRR", "StackOverflowDupQuestions")


def _retrieval(name: str) -> MtebTaskFacts:
    path, split = _PATHS.get(name, name.lower()), "dev" if name == "MSMARCO" else "test"
    return MtebTaskFacts(name, f"mteb/{path}", "ndcg_at_10", split=split, ignores_identical_ids=name in _IDENTICAL)


TASKS: tuple[MtebTaskFacts, ...] = (
    *(MtebTaskFacts(name, f"mteb/{path}", "cosine_spearman") for name, path in _STS.items()),
    MtebTaskFacts("JSTS", "mteb/JSTS", "cosine_spearman", ("jpn-Jpan",), "validation"),
    *(_retrieval(name) for name in _RETRIEVAL),
    *(MtebTaskFacts(name, f"mteb/{name}", "map_at_1000") for name in _RERANKING),
)


def ignores_identical_ids(path: str) -> bool:
    """Whether mteb leaves out a document with the id of its query in these data: by their hub id or their folder.

    >>> [ignores_identical_ids(path) for path in ("mteb/arguana", "./data/FiQA2018/", "mteb/nq")]
    [True, True, False]
    """
    last = re.split(r"[/\\]", path.removeprefix("hub:").rstrip("/\\"))[-1].lower()
    return any(
        task.ignores_identical_ids and last in (task.name.lower(), task.path.rpartition("/")[2]) for task in TASKS
    )
