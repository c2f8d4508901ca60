"""Plain references for metrics: sets of bigrams, and correlations of residuals."""

from __future__ import annotations

import unicodedata

import numpy as np


def plain_set(text: str) -> set[str]:
    text = " ".join(unicodedata.normalize("NFKC", text).casefold().split())
    return {text[i : i + 2] for i in range(len(text) - 1)}


def plain_jaccard(a: str, b: str) -> float:
    one, other = plain_set(a), plain_set(b)
    return len(one & other) / len(one | other) if one | other else float("nan")


def by_residuals(x: np.ndarray, y: np.ndarray, *others: np.ndarray) -> float:
    """scipy's ranks, least squares, and the correlation of what is left."""
    from scipy.stats import pearsonr, rankdata

    design = np.column_stack([np.ones(len(x)), *map(rankdata, others)])

    def left(values: np.ndarray) -> np.ndarray:
        ranks = rankdata(values)
        return ranks - design @ np.linalg.lstsq(design, ranks, rcond=None)[0]

    return float(pearsonr(left(x), left(y)).statistic)
