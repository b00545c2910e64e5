"""Equal bits with every kind of kernel that OpenBLAS has for this processor, not only with the one
that it takes.

``OPENBLAS_CORETYPE`` is read once, when the library is loaded: each kind is a process of its own,
which runs tests that are marked ``bits``. By default those of test_tails.py, with ``-m slow`` all
of them.
"""

import os
import subprocess
import sys
from functools import cache
from itertools import product
from pathlib import Path

import pytest
from by_default import some

TESTS = Path(__file__).parents[1]

TYPES = (
    "Prescott",
    "Nehalem",
    "Sandybridge",
    "Haswell",
    "Zen",
    "SkylakeX",
    "Cooperlake",
    "Sapphirerapids",
)

KIND = """
import numpy, scipy.linalg, threadpoolctl
numpy.ones((300, 300)) @ numpy.ones((300, 300))
print(*sorted({library["architecture"] for library in threadpoolctl.threadpool_info() if "architecture" in library}))
"""


def environment(core_type):
    """That of a process with these kernels; "" for those of this process."""
    return {**os.environ, "OPENBLAS_CORETYPE": core_type} if core_type else dict(os.environ)


@cache
def kernels_of(core_type):
    """What the libraries say that they took; empty where they are not OpenBLAS, or the processor
    cannot run them."""
    found = subprocess.run(
        [sys.executable, "-c", KIND], env=environment(core_type), capture_output=True, text=True
    )
    return found.stdout.strip() if found.returncode == 0 else ""


def run_with(core_type, *arguments):
    """Run marked tests in a process with these kernels; skip, and say why, where that would say
    nothing new."""
    kernels = kernels_of(core_type)
    if not kernels:
        pytest.skip(f"this machine cannot run OpenBLAS's kernels for {core_type}")
    same = next(other for other in TYPES if kernels_of(other) == kernels)
    if same != core_type:
        pytest.skip(f"OpenBLAS takes the kernels for {core_type} from those for {same} ({kernels})")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-x", *arguments]
    done = subprocess.run(
        command, cwd=TESTS.parent, env=environment(core_type), capture_output=True, text=True
    )
    assert done.returncode == 0, (
        f"with the kernels for {core_type} ({kernels}):\n{done.stdout[-6000:]}"
    )


@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    ("core_type", "tests"),
    some(
        product(TYPES, ["bits/test_tails.py", "."]),
        {(each, "bits/test_tails.py") for each in ("Haswell", "SkylakeX")},
    ),
)
def test_equal_bits_hold(core_type, tests):
    """The tests of tails beside this one; with ``-m slow`` all: kills, clusters, kernel stores,
    orders of rows."""
    if tests != "." and kernels_of(core_type) == kernels_of(""):
        pytest.skip(f"the tests beside this one run with the kernels for {core_type}")
    run_with(core_type, "-m", "bits and not slow", str(TESTS / tests))
