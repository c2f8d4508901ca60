"""Small folders with the layout of NanoBEIR."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

CONFIGS = ("corpus", "queries", "qrels", "bm25")


def write_sets(
    folder: Path, names: tuple[str, ...], change: Callable[[str, Any], Any] = lambda config, rows: rows
) -> str:
    """Three queries and thirty documents a set; query q2 has a positive that BM25 did not find."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    lines = ["---", "configs:"]
    for config in CONFIGS:
        lines += [f"- config_name: {config}", "  data_files:"]
        (folder / config).mkdir(parents=True)
        for name in names:
            rng = np.random.default_rng(len(name))
            documents = [f"d{i}" for i in range(30)]
            orders = [rng.permutation(documents)[:20].tolist() for _ in range(3)]
            rows = {
                "corpus": [{"_id": d, "text": f"{name} document {d}"} for d in documents],
                "queries": [{"_id": f"q{i}", "text": f"{name} query {i}"} for i in range(3)],
                "qrels": [{"query-id": f"q{i}", "corpus-id": d} for i in range(3) for d in orders[i][i : 9 : i + 2]]
                + [{"query-id": "q2", "corpus-id": next(d for d in documents if d not in orders[2])}],
                "bm25": [{"query-id": f"q{i}", "corpus-ids": orders[i]} for i in range(3)],
            }[config]
            pq.write_table(pa.Table.from_pylist(change(config, rows)), folder / config / f"{name}.parquet")
            lines += [f"  - split: {name}", f"    path: {config}/{name}.parquet"]
    (folder / "README.md").write_text("\n".join([*lines, "---", ""]), encoding="utf-8")
    return str(folder)
