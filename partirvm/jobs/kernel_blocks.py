"""Keeping kernel blocks for the length of a fit: what the first tile tells of the disk, and folders that go again."""

from __future__ import annotations

import os
import shutil
import tempfile
import uuid
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from partirvm.backends import Executor
from partirvm.backends.base import Blocks
from partirvm.backends.blocks import Keeping
from partirvm.errors import PartirvmWarning
from partirvm.planning.plan import Plan
from partirvm.storage.process_identity import started

PREFIX = "partirvm-kernel-"
"""Of folders in the system's temporary folder: then the number of the process, and letters."""


@contextmanager
def keeping_blocks(plan: Plan, executor: Executor, beside: Path | None = None) -> Iterator[Blocks | None]:
    """Keep blocks as planned until the end of the block; ``beside`` is the folder for Zarr, made anew.

    Whatever fails costs time alone; a warning says so once.
    """
    store = plan.kernel_store
    if beside is not None:
        shutil.rmtree(beside, ignore_errors=True)  # of a process that was killed
    if store is None or store.where == "none":
        yield None
        return
    folder = _folder(beside) if store.where == "zarr" else None
    keeping = Keeping(uuid.uuid4().hex, store.where, 0, folder=None if folder is None else str(folder))

    def room(columns: int) -> int:
        """In memory what the plan counts; on disk twice that: chunks with few wanted columns stay whole."""
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
            f"kernel blocks could not be written or read back {blocks.fetched.failures:,} times (is the disk full, or "
            "out of the workers' sight?): they were evaluated again, which took time and changed nothing",
            PartirvmWarning,
            stacklevel=3,
        )


def _folder(beside: Path | None) -> Path:
    """A fresh folder; those that dead processes left in the system's temporary folder are removed."""
    if beside is not None:
        with suppress(OSError):
            beside.mkdir(parents=True)
            return beside
    for other in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        pid = other.name.removeprefix(PREFIX).partition("-")[0]
        if pid.isdigit() and started(int(pid)) is None:
            shutil.rmtree(other, ignore_errors=True)
    return Path(tempfile.mkdtemp(prefix=f"{PREFIX}{os.getpid()}-"))
