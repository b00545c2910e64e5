"""Threads, memory and package versions of the process.

BLAS uses one thread, because the last bits of its results depend on the number of threads. Instead,
work is split into pieces that depend only on its size and are computed by Python threads
(``in_threads``). NumPy's functions release the interpreter lock while they run; SciPy's BLAS
wrappers hold it (``unlocked``).
"""

import ctypes
import os
import platform
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from functools import cache
from importlib import metadata
from itertools import repeat
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from threadpoolctl import ThreadpoolController

from partirvm.errors import VersionWarning, warn

M_TRIM_THRESHOLD = -1  # option numbers from glibc's malloc.h
M_MMAP_THRESHOLD = -3
RETURNED = 4 << 20  # minimum bytes of blocks that are returned to the system when freed
KEPT = 32 << 20

_lock = threading.Lock()
_inside = 0
_before: list[int] = []
_pool: ContextVar[ThreadPoolExecutor | None] = ContextVar("_pool", default=None)


@cache
def _libraries() -> list[Any]:
    import scipy.linalg  # noqa: F401  (loads the BLAS that is to be limited)

    return list(ThreadpoolController().select(user_api="blas").lib_controllers)


def _set_threads(numbers: Iterable[int]) -> None:
    for library, number in zip(_libraries(), numbers, strict=False):
        # threadpoolctl >= 3.7 accepts limits only from the first Python thread that set a limit,
        # and silently ignores other threads. A fit in any thread needs one BLAS thread, and the
        # lock in this module prevents conflicts.
        getattr(library, "_real_set_num_threads", library.set_num_threads)(number)


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Limit BLAS in this process to one thread while any Python thread is inside the block."""
    global _inside
    with _lock:
        if _inside == 0:
            _before[:] = [library.num_threads for library in _libraries()]
            _set_threads(repeat(1))
        _inside += 1
    try:
        yield
    finally:
        with _lock:
            _inside -= 1
            if _inside == 0:
                _set_threads(_before)


@contextmanager
def on_threads(count: int) -> Iterator[None]:
    """Let ``in_threads``, called from this thread inside the block, use ``count`` threads."""
    with ThreadPoolExecutor(max(count, 1), thread_name_prefix="partirvm-pieces") as pool:
        token = _pool.set(pool if count > 1 else None)
        try:
            yield
        finally:
            _pool.reset(token)


def in_threads(
    function: Callable[..., Any], things: Sequence[Any], *others: Iterable[Any]
) -> list[Any]:
    """Return ``list(map(function, things, *others))``, computed by the threads set with
    ``on_threads``."""
    pool = _pool.get()
    return list((map if pool is None or len(things) < 2 else pool.map)(function, things, *others))


@cache
def _routine(name: str) -> Callable[..., None]:
    from scipy.linalg import cython_blas, cython_lapack

    capsule = {**cython_lapack.__pyx_capi__, **cython_blas.__pyx_capi__}[name]
    api = ctypes.pythonapi
    signature = ctypes.PYFUNCTYPE(ctypes.c_char_p, ctypes.py_object)(("PyCapsule_GetName", api))(
        capsule
    )
    pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
        ("PyCapsule_GetPointer", api)
    )
    return ctypes.CFUNCTYPE(None)(pointer(capsule, signature))


@cache
def _letter(value: str) -> bytes:
    return value.encode()


@cache
def _integer(value: int) -> Any:
    return ctypes.byref(ctypes.c_int(value))


def _passed(value: Any) -> Any:
    """Return an argument as Fortran takes it: by its address."""
    if isinstance(value, str):
        return _letter(value)
    if isinstance(value, int):
        return _integer(value)
    if isinstance(value, float):
        return ctypes.byref(ctypes.c_double(value))
    return ctypes.c_void_p(value.ctypes.data)


def unlocked(name: str, *values: Any) -> None:
    """Call a routine of SciPy's BLAS or LAPACK concurrently with other threads, unlike SciPy's
    wrappers.

    ``values`` are its arguments: letters, integers, floats, and arrays, passed by the address of
    their first element. The routine must not write to letters and numbers.
    """
    _routine(name)(*map(_passed, values))


def usable_cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def peak_memory() -> int:
    """Return the peak resident bytes of this process so far, or the current bytes if the system
    reports no peak."""
    with suppress(OSError):  # use VmHWM on Linux: getrusage includes the parent's peak
        lines = Path("/proc/self/status").read_text().splitlines()
        return next(int(line.split()[1]) << 10 for line in lines if line.startswith("VmHWM:"))
    return resident_memory()


def resident_memory() -> int:
    """Return this process's current resident bytes."""
    return int(psutil.Process().memory_info().rss)


BOOSTING = 120 << 20
"""Resident bytes of ``sklearn.ensemble`` and of the libraries that it loads."""


def unloaded_bytes() -> int:
    """Return the bytes that loading libraries for a comparison with boosted trees adds to this
    process."""
    return 0 if "sklearn.ensemble" in sys.modules else BOOSTING


def available_memory(proc: Path = Path("/proc"), cgroups: Path = Path("/sys/fs/cgroup")) -> int:
    """Return the bytes that this process may use: the smallest limit of its cgroup and the cgroup's
    parents, or all memory."""
    return min([int(psutil.virtual_memory().total), *_cgroup_limits(proc, cgroups)])


def _cgroup_limits(proc: Path, cgroups: Path) -> Iterator[int]:
    """Yield the memory limits of this process's control group and all its parents, for cgroup
    versions 1 and 2."""
    lines = ["0::/", "0:memory:/"]  # a container may see its limit as the root's limit
    with suppress(OSError):
        lines += (proc / "self" / "cgroup").read_text().splitlines()
    places = {"": (cgroups, "memory.max"), "memory": (cgroups / "memory", "memory.limit_in_bytes")}
    for line in lines:
        _, controllers, path = line.split(":", 2)
        for folder, name in (places[each] for each in controllers.split(",") if each in places):
            for part in ["", *(part for part in path.split("/") if part not in ("", ".."))]:
                folder /= part
                with suppress(OSError):
                    text = (folder / name).read_text().strip()
                    if text.isdigit():  # without a limit, version 1 reports a huge number
                        yield int(text)


def return_freed_memory(least: int = RETURNED) -> bool:
    """Make glibc return freed blocks of at least ``least`` bytes immediately from now on; return
    True if it can (glibc only).

    Otherwise, a fit, which frees many matrices of slowly growing size, occupies 1.5 times the
    memory that it uses. Smaller blocks are kept for reuse: allocating new pages for every block of
    a pass would take a third of its time.
    """
    return _glibc("mallopt", M_TRIM_THRESHOLD, 2 * least) and _glibc(
        "mallopt", M_MMAP_THRESHOLD, least
    )


def settled_memory() -> int:
    """Release all freed blocks held by glibc to the system, which is slow, and return the resident
    bytes."""
    _glibc("malloc_trim", 0)
    return resident_memory()


def _glibc(function: str, *values: int) -> bool:
    with suppress(OSError, AttributeError, TypeError):  # TypeError occurs on Windows
        return bool(ctypes.CDLL(None)[function](*values))
    return False


PACKAGES = ("numpy", "scipy", "zarr", "partirvm")
"""Packages that affect the bits of the results."""


def package_versions() -> dict[str, str]:
    """Return the versions of these packages, of NumPy's BLAS and of Python in this process."""
    packages = {name: metadata.version(name) for name in PACKAGES}
    build: Any = np.show_config(mode="dicts")
    blas = build.get("Build Dependencies", {}).get("blas", {})
    return {
        "python": platform.python_version(),
        **packages,
        "blas": f"{blas.get('name')} {blas.get('version')}",
    }


def differing_versions(then: dict[str, str], now: dict[str, str]) -> str:
    """Return the differing versions that affect bits, partirvm's first, as "then" and "now"; "" if
    none differ.

    >>> before = {"partirvm": "0.1.0", "numpy": "2.0.0"}
    >>> differing_versions(before, {"partirvm": "0.2.0", "numpy": "2.0.0"})
    'partirvm 0.1.0 then, 0.2.0 now'
    """
    names = [
        name
        for name in ("partirvm", *PACKAGES[:-1], "blas")
        if name in then and then[name] != now.get(name)
    ]
    return "; ".join(f"{name} {then[name]} then, {now.get(name, 'none')} now" for name in names)


def warn_of_versions(what: str, then: dict[str, str]) -> None:
    """Warn if ``what`` was made with package versions that differ from this process's versions."""
    if differ := differing_versions(then, package_versions()):
        warn(
            f"{what} was made with other package versions ({differ}): results are right, but "
            "their last bits may differ; install the same versions for equal bits",
            VersionWarning,
        )
