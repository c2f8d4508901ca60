"""The same registry on a real Ray cluster of three nodes, on submitit's local executor and here: the same bytes."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from calipers.core import Dataset, DataSource, RequestError
from calipers.models import ModelOptions
from calipers.sweeps.division import Division, divide
from tests.support.kills import write_trial
from tests.support.sweeps import command, finish, run, write_registry

CLUSTER = """
import sys, time
from ray.cluster_utils import Cluster
settings = dict(node_ip_address="127.0.0.1", num_cpus=1, object_store_memory=80_000_000, include_dashboard=False)
cluster = Cluster()
nodes = [cluster.add_node(**settings) for _ in range(3)]
assert cluster.wait_for_nodes(60) is None
print(cluster.address, flush=True)
for line in sys.stdin:
    cluster.remove_node(nodes[int(line)], allow_graceful=False)
    print("killed", flush=True)
cluster.shutdown()
"""


class Cluster:
    """Three nodes in processes of their own, every one bound to 127.0.0.1."""

    def __init__(self, folder: Path) -> None:
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        with (folder / "cluster.log").open("wb") as log:
            self.process = subprocess.Popen([sys.executable, "-c", CLUSTER], stderr=log, text=True, **pipes)  # type: ignore[call-overload]
        self.address = self.process.stdout.readline().strip()
        assert self.address.startswith("127.0.0.1:"), (folder / "cluster.log").read_text()

    def kill_node(self, number: int) -> None:
        """Without a farewell: SIGKILL to its raylet."""
        print(number, file=self.process.stdin, flush=True)
        assert self.process.stdout.readline().strip() == "killed"

    def close(self) -> None:
        with self.process:
            self.process.stdin.close()
            self.process.wait(timeout=60)


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    # Ray's own switch: without it, 127.0.0.1 is replaced by the address that other machines see.
    monkeypatch.setenv("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")
    made = Cluster(tmp_path)
    yield made
    made.close()


def sweep_on(address: str, registry: Path, store: Path) -> str:
    """The digest of a sweep by the command, in a process of its own."""
    words = ("sweep", str(registry), "--store", str(store), "--no-latency", "--resamples", "200", "--json")
    code, out, err = finish(command(*words, "--on", f"ray:{address}"), 240)
    assert code == 1, err
    document = json.loads(out)
    assert not any(cell["failure"] for cell in document["cells"])
    return str(document["digest"])


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_three_nodes_give_the_same_bytes_and_so_do_two_after_one_died(tmp_path: Path, cluster: Cluster) -> None:
    registry = write_registry(tmp_path)
    here = run(registry, tmp_path / "here").digest
    assert sweep_on(cluster.address, registry, tmp_path / "there") == here

    def kill_one() -> None:
        while not list((tmp_path / "half" / "sweeps" / "logs").glob("*.log")):
            time.sleep(0.05)
        cluster.kill_node(2)

    killer = threading.Thread(target=kill_one)
    killer.start()
    assert sweep_on(cluster.address, registry, tmp_path / "half") == here
    killer.join()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_a_cluster_of_its_own_is_bound_to_this_machine(tmp_path: Path) -> None:
    registry = write_registry(tmp_path)
    words = ("sweep", str(registry), "--store", str(tmp_path / "there"), "--no-latency", "--resamples", "200", "--json")
    code, out, err = finish(command(*words, "--on", "ray", "--jobs", "2"), 240)
    assert code == 1, err
    assert json.loads(out)["digest"] == run(registry, tmp_path / "here").digest


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_submitit_gives_the_same_bytes(tmp_path: Path) -> None:
    registry = write_registry(tmp_path)
    there = run(registry, tmp_path / "there", on="slurm:local", jobs=2)
    assert there.digest == run(registry, tmp_path / "here").digest


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_the_shards_of_a_long_cell_are_spread_and_give_the_same_bytes(tmp_path: Path, minilm: Path) -> None:
    registry = write_trial(tmp_path, minilm)
    here = run(registry, tmp_path / "here")
    there = run(registry, tmp_path / "there", on="slurm:local", jobs=2)
    assert there.digest == here.digest
    with closing(sqlite3.connect(tmp_path / "there" / "calipers.db")) as database:
        parts = database.execute("SELECT state, COUNT(*) FROM jobs WHERE kind = 'part' GROUP BY state").fetchall()
    assert parts == [("done", 4)]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_a_search_is_divided_among_nodes_and_merged_to_the_same_bytes(
    tmp_path: Path, minilm: Path, cluster: Cluster
) -> None:
    """110,000 documents are three windows: three nodes embed and search one each, the measurement merges."""
    registry = write_trial(tmp_path, minilm, documents=110_000)
    registry.write_text("models: [{id: one, reference: one/m.onnx}]\ntasks: [{task: retrieval, dataset: corpus}]\n")
    here = run(registry, tmp_path / "here", jobs=1)
    words = ("sweep", str(registry), "--store", str(tmp_path / "there"), "--no-latency", "--resamples", "200", "--json")
    code, out, err = finish(command(*words, "--on", f"ray:{cluster.address}"), 600)
    assert code == 0, err
    assert json.loads(out)["digest"] == here.digest
    with closing(sqlite3.connect(tmp_path / "there" / "calipers.db")) as database:
        names = database.execute(
            "SELECT name FROM jobs WHERE kind = 'part' AND state = 'done' ORDER BY name"
        ).fetchall()
    assert [name for (name,) in names] == [f"one/retrieval/float32, part {n} of 3" for n in (1, 2, 3)]


@pytest.mark.parametrize(
    ("documents", "backend", "jobs", "expected"),
    [
        (110_000, "onnx", None, Division(3, ranges=True)),
        (110_000, "static", None, Division(3, ranges=True)),  # nothing to compute, but a search
        (110_000, "onnx", 2, Division(2, ranges=True)),
        (110_000, "bm25", None, Division()),
        (10_000, "onnx", None, Division(2)),
        (10_000, "static", None, Division()),
        (5_000, "onnx", None, Division()),
    ],
)
def test_a_long_cell_is_divided_as_its_data_and_model_allow(
    documents: int, backend: str, jobs: int | None, expected: Division
) -> None:
    source = DataSource("x")
    corpus = Dataset(tuple(map(str, range(documents))), {}, source, "")
    rows = Dataset(("q",), {}, source, "", tables={"corpus": corpus})
    assert divide(rows, backend, "retrieve", ModelOptions(), jobs) == expected
    assert not divide(rows, backend, "retrieve", ModelOptions(truncate_dim="32,64"), jobs).ranges


def test_an_executor_that_is_not_there_is_a_sentence(tmp_path: Path) -> None:
    registry = write_registry(tmp_path)
    with pytest.raises(RequestError, match="`on` must be one of local, ray, slurm, found 'kubernetes'"):
        run(registry, tmp_path / "store", on="kubernetes")
    with pytest.raises(RequestError, match="no SLURM on this machine"):
        run(registry, tmp_path / "store", on="slurm")
