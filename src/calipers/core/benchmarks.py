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
    split: str = "test"  # the one that its figure is of
    examples: int = 0  # pairs or queries of that split; 0 where they are not known here
    ignores_identical_ids: bool = False  # a document with the id of its query is no result
    fingerprints: tuple[str, ...] = ()  # of copies of that split that have the size and the characters mteb states


# Name → path on the hub and pairs.
_STS = {
    "STSBenchmark": ("stsbenchmark-sts", 1379),
    **{f"STS{12 + i}": (f"sts{12 + i}-sts", pairs) for i, pairs in enumerate((3108, 1500, 3750, 3000, 1186))},
    "SICK-R": ("sickr-sts", 9927),
    "BIOSSES": ("biosses-sts", 100),
}
# Name → queries.
_RETRIEVAL = {
    "ArguAna": 1406,
    "ClimateFEVER": 1535,
    "DBPedia": 400,
    "FEVER": 6666,
    "FiQA2018": 648,
    "HotpotQA": 7405,
    "MSMARCO": 6980,
    "NFCorpus": 323,
    "NQ": 3452,
    "QuoraRetrieval": 10000,
    "SCIDOCS": 1000,
    "SciFact": 300,
    "Touche2020": 49,
    "TRECCOVID": 50,
}
_FINGERPRINTS = {
    "STSBenchmark": ("sha256:84b6ea1c1839b66048ce58f01596e60b96b6e4c7980b748d1e2449d3e181d3e5",),
    "JSTS": ("sha256:28fdee21c3a46df29bcbe07e266724e79d4596b2d81b9ba546f4905d3d035f8b",),
    "SciFact": ("sha256:f7b0902acfe3280e223f4db2e95ff420c5fb955cdb84418bfb3758f181437876",),
}
_IDENTICAL = {"ArguAna", "FEVER", "FiQA2018", "MSMARCO", "QuoraRetrieval"}
# Their data on the hub have the name in small letters, but for these.
_PATHS = {"ClimateFEVER": "climate-fever", "FiQA2018": "fiqa", "QuoraRetrieval": "quora", "TRECCOVID": "trec-covid"}
_RERANKING = ("AskUbuntuDupQuestions", "SciDocsRR", "StackOverflowDupQuestions")


def _sts(name: str, path: str, pairs: int, language: str = "eng-Latn", split: str = "test") -> MtebTaskFacts:
    return MtebTaskFacts(
        name, f"mteb/{path}", "cosine_spearman", (language,), split, pairs, fingerprints=_FINGERPRINTS.get(name, ())
    )


def _retrieval(name: str, queries: int) -> MtebTaskFacts:
    return MtebTaskFacts(
        name,
        f"mteb/{_PATHS.get(name, name.lower())}",
        "ndcg_at_10",
        split="dev" if name == "MSMARCO" else "test",
        examples=queries,
        ignores_identical_ids=name in _IDENTICAL,
        fingerprints=_FINGERPRINTS.get(name, ()),
    )


TASKS: tuple[MtebTaskFacts, ...] = (
    *(_sts(name, path, pairs) for name, (path, pairs) in _STS.items()),
    _sts("JSTS", "JSTS", 1457, "jpn-Jpan", "validation"),
    *(_retrieval(name, queries) for name, queries in _RETRIEVAL.items()),
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
