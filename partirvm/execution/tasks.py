"""Functions that run on a worker of a cluster: the local functions, with one BLAS thread per task.

All functions are pure, so the scheduler may run a task twice.
"""

from __future__ import annotations

import importlib.metadata
import platform
from collections.abc import Callable, Sequence
from typing import Any

from numpy.typing import NDArray

from partirvm.blas_threads import one_blas_thread
from partirvm.core.reduction import TreeSum
from partirvm.data.source import Source
from partirvm.execution.allocator import return_freed_memory
from partirvm.execution.base import Solution, solution
from partirvm.execution.block_store import Keeping
from partirvm.execution.tile_passes import SeveralStatistics, tile_statistics
from partirvm.likelihoods.base import DenseFit, Pass

PACKAGES = ("numpy", "scipy", "zarr", "partirvm")


def run_tiles(
    passes: Sequence[Pass],
    parts: Sequence[Source],
    tiles: Sequence[tuple[int, int]],
    keeping: Keeping | None = None,
) -> SeveralStatistics:
    """Return the node of an aligned run of tiles. Each tile is given by its number and the index of its part."""
    return_freed_memory()
    total: TreeSum[SeveralStatistics] = TreeSum(len(tiles))
    with one_blas_thread():
        for position, (number, part) in enumerate(tiles):
            total.add(position, tile_statistics(passes, parts[part], number, keeping))
    return total.result()


def add_nodes(left: SeveralStatistics, right: SeveralStatistics) -> SeveralStatistics:
    """Return the sum of two sibling nodes."""
    return left + right


def run_solve(solve: DenseFit) -> Solution:
    """Run a dense fit."""
    return_freed_memory()
    with one_blas_thread():
        return solution(solve)


def map_tile(function: Callable[[Source, int], Any], parts: Sequence[Source], number: int) -> Any:
    """Apply ``function`` to one tile; ``parts`` has one element."""
    return_freed_memory()
    with one_blas_thread():
        return function(parts[0], number)


def gather_rows(source: Source, rows: NDArray[Any]) -> NDArray[Any]:
    """Return the inputs of the rows with these numbers."""
    return source.gather(rows)


def package_versions() -> dict[str, str]:
    """Return the versions of the packages in this process that affect the bits of a result."""
    return {"python": platform.python_version(), **{name: importlib.metadata.version(name) for name in PACKAGES}}
