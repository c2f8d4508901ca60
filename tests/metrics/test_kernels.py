"""Which kernels multiply, and FAISS's in a process whose OpenBLAS would choose a generic one."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from calipers.metrics.kernels import Kernel, loaded_kernels

# numpy is imported first, and reads its kernel from the machine; FAISS's copy reads the variable when it is loaded.
SCRIPT = """
import os
os.environ.pop("OPENBLAS_CORETYPE", None)
import numpy
from calipers.metrics import kernels
from calipers.metrics.kernels import Kernel, load_faiss, loaded_kernels
if NUMPY:
    kernels.loaded_kernels = lambda: [Kernel("openblas", "numpy", NUMPY)]
before = {kernel.owner: kernel.architecture for kernel in loaded_kernels()}
if GIVEN:
    os.environ["OPENBLAS_CORETYPE"] = GIVEN
load_faiss()
after = {kernel.owner: kernel.architecture for kernel in loaded_kernels()}
print(before["numpy"], after.get("faiss_cpu", "none"), os.environ.get("OPENBLAS_CORETYPE", "unset"))
"""


def run(given: str = "", *, numpy: str = "") -> list[str]:
    """The kernels of numpy and FAISS, and the variable: set by the user, or with another kernel of numpy."""
    code = SCRIPT.replace("GIVEN", repr(given)).replace("NUMPY", repr(numpy))
    environment = {key: value for key, value in os.environ.items() if key != "OPENBLAS_CORETYPE"}
    return subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    ).stdout.split()


def test_the_kernel_of_numpy_has_a_name() -> None:
    kernels = [kernel for kernel in loaded_kernels() if kernel.owner == "numpy"]
    if not kernels:
        pytest.skip("this numpy has no OpenBLAS that names its kernel")
    assert kernels[0].library.startswith("openblas")


def test_generic_kernels() -> None:
    assert Kernel("openblas 0.3.15", "faiss_cpu", "Prescott").is_generic
    assert not Kernel("openblas 0.3.31", "numpy", "SkylakeX").is_generic


def test_a_generic_kernel_of_numpy_is_seen_under_the_name_that_openblas_gives_it() -> None:
    """Releases without the oldest kernels call Prescott's Katmai, the first name of those that share it."""
    code = "from calipers.metrics.kernels import *; import numpy; print(*(k.description for k in loaded_kernels()))"
    environment = {**os.environ, "OPENBLAS_CORETYPE": "PRESCOTT"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    if "Katmai" not in done.stdout and "Prescott" not in done.stdout:
        pytest.skip("this numpy has no OpenBLAS that follows OPENBLAS_CORETYPE to Prescott")
    assert "WARNING, a generic kernel" in done.stdout


def test_faiss_gets_the_kernel_of_numpy() -> None:
    _, faiss_kernel, setting = run(numpy="Nehalem")
    if faiss_kernel == "none":
        pytest.skip("this faiss has no OpenBLAS that names its kernel")
    assert (faiss_kernel, setting) == ("Nehalem", "unset")


def test_the_choice_of_the_user_stays() -> None:
    _, faiss_kernel, setting = run("PRESCOTT")
    assert setting == "PRESCOTT"
    assert faiss_kernel.lower() in {"prescott", "none"}


def test_faiss_has_the_kernel_of_numpy_that_is_not_loaded_yet() -> None:
    """A caller that has not used numpy got FAISS's own choice: Barcelona, of 2007, on an AMD Zen 5."""
    numpy, faiss, _ = run()
    code = SCRIPT.replace("import numpy\n", "").replace("GIVEN", "''").replace("NUMPY", "''")
    code = code.replace("before = ", "before = {'numpy': ''} or ")
    alone = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert alone[-2] == faiss, (numpy, alone)
