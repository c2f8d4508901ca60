"""Which kernel each library multiplies matrices with, and FAISS with the right one.

OpenBLAS chooses a kernel when it is loaded, by a list of processors that ends at its own release. The copy in FAISS's
package is years older than numpy's: on later processors it falls back to a generic kernel, at a tenth of the rate.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any

from threadpoolctl import threadpool_info

# Katmai is what recent releases call Prescott's kernel.
_GENERIC = {"prescott", "katmai", "core2", "nehalem", "generic", "barcelona", "armv8"}
# Kernels of later releases, and the nearest one that FAISS's copy of OpenBLAS has.
_EARLIER = {"sapphirerapids": "SkylakeX", "cooperlake": "SkylakeX"}
_SETTING = "OPENBLAS_CORETYPE"


@dataclass(frozen=True)
class Kernel:
    """What a library in this process multiplies matrices with."""

    library: str  # such as openblas 0.3.31
    owner: str  # the package that brings it
    architecture: str
    by_user: bool = False  # whether the user's environment chose it

    @property
    def is_generic(self) -> bool:
        return self.architecture.lower() in _GENERIC

    @property
    def description(self) -> str:
        """
        >>> Kernel("openblas 0.3.15", "faiss_cpu", "Prescott").description
        'openblas 0.3.15, Prescott: WARNING, a generic kernel, up to ten times slower than the processor allows'
        """
        warning = ": WARNING, a generic kernel, up to ten times slower than the processor allows"
        return f"{self.name}{warning if self.is_generic else ''}"

    @property
    def name(self) -> str:
        """
        >>> Kernel("openblas 0.3.31", "numpy", "Haswell", by_user=True).name
        'openblas 0.3.31, Haswell (OPENBLAS_CORETYPE)'
        """
        return f"{self.library}, {self.architecture}{f' ({_SETTING})' if self.by_user else ''}"


def loaded_kernels() -> list[Kernel]:
    """Those of the libraries that are loaded and name their kernel."""
    return [
        Kernel(
            f"{info['internal_api']} {info['version']}",
            _owner(info["filepath"]),
            str(info["architecture"]),
            info["internal_api"] == "openblas" and bool(os.environ.get(_SETTING)),
        )
        for info in threadpool_info()
        if info["user_api"] == "blas" and info.get("architecture")
    ]


@cache
def load_faiss() -> Any:
    """FAISS, whose OpenBLAS is given numpy's kernel while it loads, unless the user chose one."""
    with _core_type():
        import faiss
    return faiss


@contextmanager
def faiss_threads(number: int) -> Iterator[Any]:
    """FAISS, on so many threads inside."""
    faiss = load_faiss()
    before = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(number)
    try:
        yield faiss
    finally:
        faiss.omp_set_num_threads(before)


@contextmanager
def _core_type() -> Iterator[None]:
    import numpy  # noqa: F401  (its kernel is the one to ask for: it must be loaded first)

    numpy_kernel = next((kernel for kernel in loaded_kernels() if kernel.owner == "numpy"), None)
    if _SETTING in os.environ or numpy_kernel is None:
        yield
        return
    os.environ[_SETTING] = _EARLIER.get(numpy_kernel.architecture.lower(), numpy_kernel.architecture)
    try:
        yield
    finally:
        del os.environ[_SETTING]


def _owner(path: str) -> str:
    """numpy of …/numpy.libs/libscipy_openblas64_.so, the package of a shared library."""
    folder = os.path.basename(os.path.dirname(path))
    return folder.removesuffix(".libs")
