"""mteb, the Massive Text Embedding Benchmark: our models in its tasks, its scores in our runs.

>>> import mteb                                                                          # doctest: +SKIP
>>> from calipers.interop.mteb import as_mteb, measure
>>> mteb.evaluate(as_mteb("onnx:./model_int8"), mteb.get_tasks(["JSTS"]))                # doctest: +SKIP
>>> measure("onnx:./model_int8", "JMTEB-lite(v1)").metrics["mean_main_score"]            # doctest: +SKIP

`as_mteb` makes an mteb model of any backend, `run` gives main scores and `measure` a Result of the task `mteb`;
`import_results` reads mteb's own result files, which takes no mteb, and `drops` says what was forgotten.
"""

from __future__ import annotations

from calipers.interop._mteb_files import Scores, import_results, read
from calipers.interop._mteb_model import MtebCrossEncoder, MtebEncoder, as_mteb
from calipers.interop._mteb_results import Drop, TaskScore, drops, to_result
from calipers.interop._mteb_run import find_tasks, measure, run

__all__ = [
    "Drop",
    "MtebCrossEncoder",
    "MtebEncoder",
    "Scores",
    "TaskScore",
    "as_mteb",
    "drops",
    "find_tasks",
    "import_results",
    "measure",
    "read",
    "run",
    "to_result",
]
