"""A reader of .npz archives, compressed or not. X and y are streamed row by row."""

from __future__ import annotations

import math
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from typing import Any

import numpy as np
from numpy.lib import format as npy

from partirvm.data.checks import check_shapes
from partirvm.data.readers import Batch, by_column, rows_per_batch, target_columns
from partirvm.data.source import default_names
from partirvm.data.tables import open_binary, reading_file
from partirvm.errors import DataError
from partirvm.quoting import listed

MOST_NAMES = 1 << 26
"""Maximum number of bytes of the names of the columns."""


class NpzReader:
    """A reader of an archive with ``X`` (N, d), ``y`` (N,), and optional ``weights`` (N,) and feature names ``columns``
    (d,).

    An archive without ``y`` can be ingested for prediction. The columns of ``y`` (N, T) are called ``y0``, ``y1``, …
    Other one-dimensional numeric arrays of length N are columns too, and may be named as target or weights.

    Other one-dimensional numeric arrays of length N are columns too; they can be named as target or weights.
    """

    untyped = False
    memory_advice = ", or convert arrays in Fortran order, which are read whole, with np.ascontiguousarray"
    most_batch = 4 << 20

    def __init__(self, filesystem: Any, path: str) -> None:
        self.name, self._filesystem = path, filesystem
        with reading_file(path), open_binary(filesystem, path) as file, zipfile.ZipFile(file) as archive:
            heads = {name.removesuffix(".npy"): _head(archive, name) for name in archive.namelist()}
            names = self._names(archive, heads["columns"]) if "columns" in heads else None
        self._heads = heads
        if "X" not in heads:
            raise DataError(f"{path}: there is no array X in the archive. Its arrays: {listed(sorted(heads))}.")
        X = heads["X"]
        check_shapes(X)
        self.n_rows: int | None = X.shape[0]
        self.features: tuple[str, ...] | None = names or default_names(X.shape[1])
        if len(self.features) != X.shape[1]:
            raise DataError(f"{path}: X has {X.shape[1]} columns, but `columns` has {len(self.features)} names.")
        for name in ("y", "weights"):
            if name in heads:
                self._check_length(name, heads[name])
        self.targets = target_columns(heads["y"].shape) if "y" in heads else ()
        others = [
            name for name, head in heads.items() if name not in ("X", "y", "columns") and head.shape == X.shape[:1]
        ]
        self.columns = (*self.features, *self.targets, *others)
        self.weights = "weights" if "weights" in others else None

    def _names(self, archive: zipfile.ZipFile, head: _Head) -> tuple[str, ...]:
        if head.nbytes > MOST_NAMES:
            raise DataError(f"{self.name}: `columns` has {head.nbytes:,} bytes, names have at most {MOST_NAMES:,}.")
        with archive.open("columns.npy") as file:
            try:
                names = npy.read_array(file, allow_pickle=False)
            except ValueError as error:
                raise DataError(f"{self.name}: `columns` must be an array of strings ({error}).") from error
        return tuple(str(name) for name in names.reshape(-1))

    def _check_length(self, name: str, head: _Head) -> None:
        n_rows = self._heads["X"].shape[0]
        if head.shape == (n_rows, 1):
            head.shape = (n_rows,)
        if head.shape[:1] != (n_rows,) or len(head.shape) > 1 + (name == "y") or 0 in head.shape:
            raise DataError(
                f"{self.name}: X has {n_rows:,} rows, but {name} has shape {head.shape}: the lengths must be equal."
            )

    def held(self, wanted: Sequence[str]) -> int:
        """Return the bytes for arrays in Fortran order, which are read whole, in pieces that are then joined."""
        return 2 * sum(self._heads[name].nbytes for name in self._read(wanted) if self._heads[name].fortran)

    def _read(self, wanted: Sequence[str]) -> list[str]:
        """Return the names of X and of the other arrays that contain the given columns."""
        assert self.features is not None
        targets = [name for name in wanted if name in self.targets]
        return ["X", *["y"] * bool(targets), *(name for name in wanted if name not in (*self.features, *targets))]

    def batches(self, wanted: Sequence[str], levels: frozenset[str], batch_bytes: int) -> Iterator[Batch]:
        """Yield rows of X together with the same rows of the other arrays."""
        assert self.features is not None
        assert self.n_rows is not None
        _, *others = self._read(wanted)
        step = rows_per_batch(batch_bytes, len(self.features) + len(self.targets) + len(others))
        with ExitStack() as stack:
            stack.enter_context(reading_file(self.name))
            file = stack.enter_context(open_binary(self._filesystem, self.name))
            archive = stack.enter_context(zipfile.ZipFile(file))
            streams = {name: _stream(stack, archive, name, self._heads[name]) for name in ("X", *others)}
            for start in range(0, self.n_rows, step):
                rows = min(step, self.n_rows - start)
                X = streams["X"](rows)
                batch = by_column(self.features, X) | {name: streams[name](rows) for name in others}
                yield batch | (by_column(self.targets, batch["y"]) if "y" in others else {})


class _Head:
    """The shape, memory order and dtype of an array in the archive."""

    def __init__(self, shape: tuple[int, ...], fortran: bool, dtype: np.dtype[Any]) -> None:
        self.shape, self.fortran, self.dtype = shape, fortran and len(shape) > 1, dtype

    @property
    def nbytes(self) -> int:
        return self.dtype.itemsize * math.prod(self.shape)


def _head(archive: zipfile.ZipFile, name: str) -> _Head:
    with archive.open(name) as file:
        head = _Head(*_read_head(file))
    if head.nbytes > archive.getinfo(name).file_size:
        raise EOFError(f"the array {name.removesuffix('.npy')} ends too early")
    return head


def _read_head(file: Any) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    version = npy.read_magic(file)
    return npy.read_array_header_1_0(file) if version == (1, 0) else npy.read_array_header_2_0(file)


def _stream(stack: ExitStack, archive: zipfile.ZipFile, name: str, head: _Head) -> Any:
    """Return a function that reads the next n rows of an array of the archive."""
    file = stack.enter_context(archive.open(f"{name}.npy"))
    _read_head(file)
    if head.fortran:
        return _whole_array(file, head)
    row_bytes = head.dtype.itemsize * math.prod(head.shape[1:])

    def next_rows(n: int) -> np.ndarray[Any, Any]:
        content = file.read(n * row_bytes)
        if len(content) < n * row_bytes:
            raise EOFError(f"the array {name} ends too early")
        return np.frombuffer(content, dtype=head.dtype).reshape(n, *head.shape[1:])

    return next_rows


def _whole_array(file: Any, head: _Head) -> Any:
    """Return such a function for an array in Fortran order, which is read whole."""
    whole = np.frombuffer(file.read(), dtype=head.dtype).reshape(head.shape, order="F")
    position = 0

    def next_rows(n: int) -> np.ndarray[Any, Any]:
        nonlocal position
        position += n
        return whole[position - n : position]

    return next_rows
