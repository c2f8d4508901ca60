"""What the evaluators for sentence-transformers say: log lines, CSV files, metrics on the model's card."""

from __future__ import annotations

import csv
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

logger = logging.getLogger("calipers.interop.sentence_transformers")


def after(epoch: float, steps: int) -> str:
    """Where in the training this is; -1 is nowhere.

    >>> after(1, 20), after(1, -1), after(-1, 20)
    (' in epoch 1 after 20 steps', ' after epoch 1', '')
    """
    if epoch == -1:
        return ""
    return f" after epoch {epoch}" if steps == -1 else f" in epoch {epoch} after {steps} steps"


def append_csv(folder: str | None, file: str, headers: Sequence[str], row: Sequence[Any], end: str = "\r\n") -> None:
    """One more row; the header only where the file is new. No folder: nothing."""
    if folder is None:
        return
    path = Path(folder) / file
    path.parent.mkdir(parents=True, exist_ok=True)
    new = not path.is_file()
    with path.open("a", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream, lineterminator=end)
        writer.writerows([headers, row] if new else [row])


def tell_ranking(metrics: Mapping[str, float], k: int) -> None:
    """Three log lines, of base → reranked where there is a base."""
    has_base = "base_map" in metrics
    gap = " " * len(str(k))
    if has_base:
        logger.info(f"{gap}       Base  -> Reranked")
    for label, key in ((f"MAP:{gap}  ", "map"), (f"MRR@{k}: ", f"mrr@{k}"), (f"NDCG@{k}:", f"ndcg@{k}")):
        before = f"{metrics[f'base_{key}'] * 100:.2f} -> " if has_base else ""
        logger.info(f"{label} {before}{metrics[key] * 100:.2f}")


def for_card(metrics: Mapping[str, float]) -> dict[str, Any]:
    """Metrics as the model card shows them: with the gain over the base, where there is one.

    >>> for_card({"map": 0.5, "base_map": 0.25})
    {'map': '0.5000 (+0.2500)'}
    """
    if not any(key.startswith("base_") for key in metrics):
        return dict(metrics)
    after_base = {key: metrics[f"base_{key}"] for key in metrics if f"base_{key}" in metrics}
    return {key: f"{metrics[key]:.4f} ({metrics[key] - before:+.4f})" for key, before in after_base.items()}


def tell_counts(queries: int, positives: Sequence[int], negatives: Sequence[int]) -> None:
    parts = [f"Queries: {queries}"]
    for label, counts in (("Positives", positives), ("Negatives", negatives)):
        if counts:
            mean = sum(counts) / len(counts)
            parts.append(f"{label}: Min {min(counts):.1f}, Mean {mean:.1f}, Max {max(counts):.1f}")
    logger.info("\t".join(parts))
