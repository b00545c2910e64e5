"""Bits are equal with every kind of kernel that OpenBLAS has for this processor.

``OPENBLAS_CORETYPE`` is read when the library is loaded, so that each kind is a process, which runs
the tests marked ``bits``: by default those of test_tails.py, with ``-m slow`` all of them.
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

TYPES = ("Prescott", "Nehalem", "Sandybridge", "Haswell", "Zen", "SkylakeX", "Cooperlake")
TYPES += ("Sapphirerapids",)

KIND = """
import numpy, scipy.linalg, threadpoolctl
numpy.ones((300, 300)) @ numpy.ones((300, 300))
print(*sorted({library["architecture"] for library in threadpoolctl.threadpool_info() if "architecture" in library}))
"""


def environment(core_type):
    """Return the environment of a process with these kernels; "" means those of this process."""
    return {**os.environ, "OPENBLAS_CORETYPE": core_type} if core_type else dict(os.environ)


@cache
def kernels_of(core_type):
    """Return the kernels that OpenBLAS loads for a type; empty if there are none."""
    output = subprocess.run(
        [sys.executable, "-c", KIND], env=environment(core_type), capture_output=True, text=True
    )
    return output.stdout.strip() if output.returncode == 0 else ""


def run_with(core_type, *arguments):
    """Run marked tests in a process with these kernels; skip if this process has the same."""
    kernels = kernels_of(core_type)
    if not kernels:
        pytest.skip(f"this machine cannot run OpenBLAS's kernels for {core_type}")
    first = next(other for other in TYPES if kernels_of(other) == kernels)
    if first != core_type:
        pytest.skip(
            f"OpenBLAS takes the kernels for {core_type} from those for {first} ({kernels})"
        )
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-x", *arguments]
    done = subprocess.run(
        command, cwd=TESTS.parent, env=environment(core_type), capture_output=True, text=True
    )
    assert done.returncode == 0, (
        f"with the kernels for {core_type} ({kernels}):\n{done.stdout[-6000:]}"
    )


@pytest.mark.usefixtures("processes")
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    ("core_type", "tests"),
    some(
        product(TYPES, ["bits/test_tails.py", "."]),
        {(kind, "bits/test_tails.py") for kind in ("Haswell", "SkylakeX")},
    ),
)
def test_bits_are_equal_with_every_kind_of_kernel(core_type, tests):
    """Run the tests of tails; with ``-m slow`` also kills, clusters, kernel stores, row orders."""
    if tests != "." and kernels_of(core_type) == kernels_of(""):
        pytest.skip(f"the other tests run with the kernels for {core_type}")
    run_with(core_type, "-m", "bits and not slow", str(TESTS / tests))
