"""Keep kernel blocks during a fit, and remove their folders afterwards."""

from __future__ import annotations

import os
import shutil
import tempfile
import uuid
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from partirvm.errors import PartirvmWarning
from partirvm.execution import Executor
from partirvm.execution.base import Blocks
from partirvm.execution.block_store import Keeping
from partirvm.planning.plan import Plan
from partirvm.storage.process_identity import started

PREFIX = "partirvm-kernel-"
"""Prefix of the names of temporary folders. The process id and random letters follow the prefix."""


@contextmanager
def keeping_blocks(plan: Plan, executor: Executor, beside: Path | None = None) -> Iterator[Blocks | None]:
    """Keep kernel blocks as planned until the end of the ``with`` statement.

    ``beside`` is the folder for blocks on disk, which is emptied first. A failed read or write of a block costs time
    but does not change the result; one warning reports all failures.
    """
    store = plan.kernel_store
    if beside is not None:
        shutil.rmtree(beside, ignore_errors=True)  # left by a killed process
    if store is None or store.where == "none":
        yield None
        return
    folder = _folder(beside) if store.where == "zarr" else None
    keeping = Keeping(uuid.uuid4().hex, store.where, 0, folder=None if folder is None else str(folder))

    def room(columns: int) -> int:
        """Return the bytes allowed for blocks: those of the plan in memory, twice the plan's bytes on disk.

        Chunks on disk are kept whole even if only a few of their columns are still needed.
        """
        return 2 * store.bytes if store.where == "zarr" else min(plan.room(columns), store.bytes)

    blocks = Blocks(keeping, room)
    try:
        yield blocks
    finally:
        executor.forget(keeping.token)
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)
    if blocks.fetched.failures:
        warnings.warn(
            f"kernel blocks could not be written or read {blocks.fetched.failures:,} times and were evaluated again: "
            "the result is the same, but the fit was slower; check that the disk has space and that all workers can "
            "access it",
            PartirvmWarning,
            stacklevel=3,
        )


def _folder(beside: Path | None) -> Path:
    """Return a new empty folder, and remove temporary folders left by processes that have ended."""
    if beside is not None:
        with suppress(OSError):
            beside.mkdir(parents=True)
            return beside
    for other in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        pid = other.name.removeprefix(PREFIX).partition("-")[0]
        if pid.isdigit() and started(int(pid)) is None:
            shutil.rmtree(other, ignore_errors=True)
    return Path(tempfile.mkdtemp(prefix=f"{PREFIX}{os.getpid()}-"))
