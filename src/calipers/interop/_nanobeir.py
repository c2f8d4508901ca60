"""Sets of NanoBEIR's layout, from the hub or a folder: configs corpus, queries, qrels, bm25, and a split a set."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from calipers.core import name_some
from calipers.interop._reports import logger

SETS = {
    "climatefever": "ClimateFEVER",
    "dbpedia": "DBPedia",
    "fever": "FEVER",
    "fiqa2018": "FiQA2018",
    "hotpotqa": "HotpotQA",
    "msmarco": "MSMARCO",
    "nfcorpus": "NFCorpus",
    "nq": "NQ",
    "quoraretrieval": "QuoraRetrieval",
    "scidocs": "SCIDOCS",
    "arguana": "ArguAna",
    "scifact": "SciFact",
    "touche2020": "Touche2020",
}
# Both retrieve arguments, which is another task than that of the rest.
USUAL = [name for name in SETS if name not in ("arguana", "touche2020")]

_COLUMNS = {
    "corpus": ("_id", "text"),
    "queries": ("_id", "text"),
    "qrels": ("query-id", "corpus-id"),
    "bm25": ("query-id", "corpus-ids"),
}


def check_names(names: Sequence[str]) -> None:
    if not names:
        raise ValueError("dataset_names cannot be empty: leave it out (None) for the usual sets.")
    unknown = [name for name in names if name.lower() not in SETS]
    if unknown:
        raise ValueError(f"{', '.join(unknown)}: no NanoBEIR dataset; expected some of {', '.join(SETS)}.")


def samples(dataset_id: str, split: str, rerank_k: int, *, compat: bool) -> list[dict[str, Any]]:
    """One sample for each query that BM25 ranked: `query-id`, `query`, `positive` and the first `rerank_k` documents.

    Positives come in the order of the judgements; in compat mode in that of a Python set, which decides ties there.
    """
    tables = {config: _load(dataset_id, config, split) for config in _COLUMNS}
    corpus, queries = (
        dict(zip(tables[name]["_id"], tables[name]["text"], strict=True)) for name in ("corpus", "queries")
    )
    positives = _positives(tables["qrels"])
    ranked = list(zip(tables["bm25"]["query-id"], tables["bm25"]["corpus-ids"], strict=True))
    _check_ids(f"{dataset_id}, split {split}", ranked, (corpus, queries, positives), rerank_k)
    # iter: a set that grows as theirs does has the same order; one made of a dict is sized beforehand.
    order = (lambda ids: set(iter(ids))) if compat else list
    return [
        {
            "query-id": query,
            "query": queries[query],
            "positive": [corpus[id] for id in order(positives[query])],
            "documents": [corpus[id] for id in found[:rerank_k]],
        }
        for query, found in ranked
    ]


def _positives(qrels: Any) -> dict[str, dict[str, None]]:
    """Query id → document ids, each once, in order. A row names one document or a list of them."""
    found: dict[str, dict[str, None]] = {}
    for query, documents in zip(qrels["query-id"], qrels["corpus-id"], strict=True):
        found.setdefault(query, {}).update(dict.fromkeys(documents if isinstance(documents, list) else [documents]))
    return found


def _check_ids(
    place: str,
    ranked: Sequence[tuple[str, Sequence[str]]],
    known: tuple[Mapping[str, str], Mapping[str, str], Mapping[str, Mapping[str, None]]],
    rerank_k: int,
) -> None:
    corpus, queries, positives = known
    documents = dict.fromkeys(id for _, found in ranked for id in found[:rerank_k])
    documents.update(dict.fromkeys(id for query, _ in ranked for id in positives.get(query, ())))
    missing = {
        "queries of bm25 that are not in queries": [id for id, _ in ranked if id not in queries],
        "queries of bm25 without qrels": [id for id, _ in ranked if id not in positives],
        "documents of bm25 or qrels that are not in corpus": [id for id in documents if id not in corpus],
    }
    faults = [f"{what}: {name_some(ids)}" for what, ids in missing.items() if ids]
    if faults:
        raise ValueError(f"{place} has {'; '.join(faults)}")
    answered = {id for id, _ in ranked}
    forgotten = [id for id in positives if id not in answered]
    if forgotten:
        logger.warning(
            f"{place}: bm25 lacks {len(forgotten)} judged queries, which do not count: {name_some(forgotten)}"
        )


def _load(dataset_id: str, config: str, split: str) -> Any:
    try:
        from datasets import load_dataset
    except ImportError as error:
        raise ValueError("NanoBEIR needs the package datasets: pip install 'calipers[hub]'") from error
    try:
        table = load_dataset(dataset_id, config, split=split)
    except Exception as error:
        raise ValueError(f"Could not load subset '{config}' split '{split}' from dataset '{dataset_id}'.") from error
    missing = [name for name in _COLUMNS[config] if name not in table.column_names]
    if missing:
        raise ValueError(
            f"Subset '{config}' split '{split}' from dataset '{dataset_id}' is missing required columns: "
            f"{', '.join(missing)} (it has {', '.join(table.column_names)})."
        )
    return table
