"""What the tests of diagnose share: a small part of scifact, its vectors, and the command in this process."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calipers import cli
from calipers.core import SILENT, Dataset, ModelInfo
from calipers.data import DataOptions, beir
from calipers.runs.space import Space, Texts
from tests.support.samples import write_jsonl

DOCUMENTS, QUERIES = 500, 120


@dataclass(frozen=True)
class Part:
    """A BEIR folder of judged queries and some documents, with the vectors that a model gives them."""

    folder: Path
    dataset: Dataset
    documents: NDArray[np.float32]
    queries: NDArray[np.float32]

    def texts(self) -> tuple[list[str], list[str]]:
        return list(self.dataset.tables["corpus"].columns["text"]), list(self.dataset.columns["query"])


def space_of(dataset: Dataset, corpus_vectors: NDArray[Any], query_vectors: NDArray[Any]) -> Space:
    """A BEIR dataset and its vectors."""
    corpus = dataset.tables["corpus"]
    return Space(
        Texts(corpus.ids, corpus.columns["text"], corpus_vectors),
        Texts(dataset.ids, dataset.columns["query"], query_vectors),
        dataset.columns["qrels"],
    )


class Letters:
    """An encoder for tests: how often each letter occurs, cased or not."""

    info = ModelInfo("test", "letters", None, "cpu", "none")

    def encode(self, texts: Any, *, prompt: str | None = None, progress: Any = SILENT) -> Any:
        counts = np.zeros((len(texts), 128), np.float32)
        for row, text in enumerate(texts):
            for character in text.replace(" ", ""):
                if ord(character) < 128:
                    counts[row, ord(character)] += 1
        return counts


def cut(source: Path, folder: Path) -> Path:
    """The first judged queries of a dataset, the documents judged for them, and others to make up the number."""
    whole = beir.load(str(source), DataOptions(samples=QUERIES, shuffle=False))
    corpus = whole.tables["corpus"]
    wanted = {id for grades in whole.columns["qrels"] for id in grades}
    ids = [id for id in corpus.ids if id in wanted]
    ids += [id for id in corpus.ids if id not in wanted][: DOCUMENTS - len(ids)]
    rows = dict(zip(corpus.ids, corpus.columns["text"], strict=True))
    write(folder, {id: rows[id] for id in ids}, whole)
    return folder


def write(folder: Path, documents: dict[str, str], queries: Dataset) -> Path:
    (folder / "qrels").mkdir(parents=True, exist_ok=True)
    write_jsonl(folder / "corpus.jsonl", [{"_id": id, "text": text} for id, text in documents.items()])
    texts = zip(queries.ids, queries.columns["query"], strict=True)
    write_jsonl(folder / "queries.jsonl", [{"_id": id, "text": text} for id, text in texts])
    graded = [
        f"{query}\t{id}\t{grade:g}"
        for query, grades in zip(queries.ids, queries.columns["qrels"], strict=True)
        for id, grade in grades.items()
    ]
    (folder / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\n" + "\n".join(graded) + "\n")
    return folder


def keep(file: Path, texts: list[str], vectors: NDArray[Any]) -> Path:
    """Vectors as a model that needs none: FILE.npy with FILE.txt beside it; each text once."""
    place = {text: row for row, text in reversed(list(enumerate(texts)))}
    np.save(file, np.asarray(vectors, np.float32)[list(place.values())])
    file.with_suffix(".txt").write_text("\n".join(place) + "\n", encoding="utf-8")
    return file


def ask(capsys: Any, *line: str | Path) -> tuple[int, dict[str, Any]]:
    """The command with --json, its exit code and what it printed."""
    code = cli.run(["diagnose", *map(str, line), "--json"])
    return code, json.loads(capsys.readouterr().out)


def warned(document: dict[str, Any]) -> set[str]:
    """The figures that warn, of all layers."""
    return {f["name"] for layer in document["layers"].values() for f in layer["figures"] if f["warning"]}
