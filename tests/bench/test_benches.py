"""Every bench runs to its end on a tiny input, so that none can rot. What it prints here is no measurement."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from calipers.shop import sample
from tests.support.processes import Request, Starter, start_fresh
from tests.support.samples import PAIRS, write_jsonl

ROOT = Path(__file__).parents[2]
BENCHES = sorted(path.stem for path in (ROOT / "bench").glob("*.py") if not path.stem.startswith("_"))

Run = Callable[..., str]


@pytest.fixture
def bench(tmp_path: Path, start_forked: Starter) -> Run:
    """bench("trust", "--queries", "9"): what it prints; CALIPERS_DATA is the test's own folder."""

    def run(name: str, *arguments: str | Path, start: Starter = start_forked) -> str:
        words = ["python", "-m", f"bench.{name}", *map(str, arguments)]
        variables = {"CALIPERS_DATA": str(tmp_path), "CALIPERS_STORE": str(tmp_path / "store")}
        environment = {**os.environ, **variables, "PYTHONWARNINGS": "ignore"}
        out, err = tmp_path / "out", tmp_path / "err"
        code = start(Request(words, str(ROOT), environment, str(out), str(err)))
        assert code == 0, err.read_text(encoding="utf-8")[-2000:]
        return out.read_text(encoding="utf-8")

    return run


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from tests.support.served import make_encoder

    return make_encoder(tmp_path_factory.mktemp("encoder"))


def write_shop(folder: Path, documents: int, queries: int) -> Path:
    """A part of the sample shop, as a BEIR folder whose products have the columns of icecat's."""
    sample.write(folder)
    products = [json.loads(line) for line in (folder / "corpus.jsonl").read_text(encoding="utf-8").splitlines()]
    write_jsonl(folder / "corpus.jsonl", [{**product, "attributes": {}} for product in products[:documents]])
    asked = (folder / "queries.jsonl").read_text(encoding="utf-8").splitlines()[:queries]
    (folder / "queries.jsonl").write_text("\n".join(asked) + "\n", encoding="utf-8")
    ids = {f"p{number:04}" for number in range(documents)} | {json.loads(line)["_id"] for line in asked}
    lines = (folder / "qrels" / "test.tsv").read_text(encoding="utf-8").splitlines()
    kept = [line for line in lines[1:] if {*line.split("\t")[:2]} <= ids]
    (folder / "qrels" / "test.tsv").write_text("\n".join([lines[0], *kept]) + "\n", encoding="utf-8")
    return folder


def test_every_bench_has_its_test_here() -> None:
    here = Path(__file__).read_text(encoding="utf-8")
    assert [name for name in BENCHES if f'bench("{name}"' not in here] == []


def test_coverage(bench: Run, tmp_path: Path) -> None:
    state = tmp_path / "state.json"
    flags = ("--experiments", "3", "--resamples", "100", "--examples", "20", "--metric", "mean", "--state", state)
    first = bench("coverage", *flags)
    assert first.count("| mean |") == 4
    cells = json.loads(state.read_text(encoding="utf-8"))
    marked = {key: {**cell, "exit_0": 0.123} for key, cell in cells.items()}
    state.write_text(json.dumps(marked), encoding="utf-8")
    assert bench("coverage", *flags).count("| 12.3 |") == 4  # what is finished is not done again


def test_attribute(bench: Run) -> None:
    assert "evaluations" in bench("attribute", "--faults", "1", "--peer", "2")


def test_attributes(bench: Run, tmp_path: Path) -> None:
    write_shop(tmp_path / "icecat", documents=80, queries=20)
    assert "derived queries" in bench("attributes", "--model", "bm25", "--pairs", "3")


def test_compare(bench: Run) -> None:
    tiny = ("--examples", "100", "--resamples", "100", "--peer", "20", "--rounds", "1")
    printed = bench("compare", *tiny)
    assert "paired bootstrap of spearman" in printed
    assert "calipers compare RUN RUN" in printed


def test_growth(bench: Run, tmp_path: Path, model: Callable[[str], Path]) -> None:
    static = f"static:{model('potion-base-4m-int8')}"
    printed = bench("growth", "--largest", "1000", "--only", "trust", "--model", static, "--plot", tmp_path / "g.svg")
    assert "| trust, 1,000 (CPU s) |" in printed
    assert (tmp_path / "g.svg").read_text(encoding="utf-8").startswith("<svg")


def test_fill_mask(bench: Run, tmp_path: Path) -> None:
    (tmp_path / "wiki.txt").write_text("The bakery opens at seven.\nTulips bloom.\n", encoding="utf-8")
    tiny = ("--texts", "2", "--loop", "2", "--rounds", "1", "--models", "1x48")
    assert "calipers, onnx" in bench("fill_mask", "--data", tmp_path / "wiki.txt", *tiny)


def test_geometry(bench: Run) -> None:
    tiny = ("--documents", "1200", "--dimensions", "16", "--queries", "20", "--no-others")
    assert "anisotropy" in bench("geometry", *tiny)


def test_ranking(bench: Run, tmp_path: Path, minilm: Path) -> None:
    from tests.support.cross_encoders import tiny

    documents = [{"id": str(i), "text": f"text number {i}", "relevance": i % 4} for i in range(4)]
    rows = write_jsonl(tmp_path / "rows.jsonl", [{"query": f"query {i}", "documents": documents} for i in range(3)])
    model = tiny(tmp_path / "model", minilm, labels=1)
    metrics = ("--metric-queries", "30", "--documents", "5", "--metric-rounds", "1", "--sklearn-queries", "9")
    assert "calipers, from arrays" in bench("ranking", "--data", rows, "--model", model, *metrics)


def test_retrieval_memory(bench: Run) -> None:
    printed = bench("retrieval_memory", "--documents", "3000", "--dimensions", "16", "--queries", "10", "--top-k", "10")
    assert "100.00% of the results at the same rank" in printed


def test_similarity(bench: Run, tmp_path: Path, encoder: Path) -> None:
    rows = write_jsonl(tmp_path / "pairs.jsonl", PAIRS)
    assert "calipers, onnx" in bench("similarity", "--data", rows, "--model", encoder, "--rounds", "1")


def test_trust(bench: Run) -> None:
    assert "calibrated" in bench("trust", "--queries", "60", "--rounds", "1")


@pytest.mark.slow
def test_serve(bench: Run) -> None:
    printed = bench("serve", "--seconds", "0.4")
    assert "| one of scores | 64 |" in printed
    assert printed.count("/healthz meanwhile: [200]") == 3
    assert "after kill -9 it is ready again" in printed


def test_trust_quality(bench: Run, tmp_path: Path, encoder: Path) -> None:
    write_shop(tmp_path / "one", documents=80, queries=60)
    write_shop(tmp_path / "two", documents=60, queries=50)
    printed = bench("trust_quality", "--model", f"tiny={encoder}", "--data", "one", "--data", "two")
    assert "on judged results" in printed
    assert "### tiny on two" in printed


def test_sweep(bench: Run) -> None:
    assert bench("sweep", "--tiny").count("2 cells (1 PASS, 1 without a label), exit code 0") == 2


@pytest.mark.slow
def test_sweep_of_a_model_in_pytorch(bench: Run) -> None:
    assert bench("sweep", "--tiny", "torch").count("2 cells (1 PASS, 1 without a label), exit code 0") == 2


def test_scale(bench: Run, tmp_path: Path, encoder: Path) -> None:
    for name in ("test", "dev"):
        write_jsonl(
            tmp_path / f"{name}.jsonl", [{**row, "sentence1": f"{name} {i}"} for i, row in enumerate(PAIRS * 9)]
        )
    small = ("--model", encoder, "--data", tmp_path, "--small", "2,4")
    # In an interpreter of its own: it settles the threads of libraries before they are imported.
    assert "16 ×" in bench("scale", *small, start=start_fresh)
