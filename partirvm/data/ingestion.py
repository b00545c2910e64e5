"""Ingest: conversion of a table or arrays of any size to DATA, in bounded memory. Rows are checked, shuffled and
divided into tiles.

There are two phases. The phase *read* streams the source, codes labels, draws the shuffle key of every row and writes
records to temporary files. The phase *write* reads the records in their final order, tile by tile, and computes moments
and hashes. The result depends only on the source and the seed.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import numpy as np

from partirvm.data.checks import check_row_count
from partirvm.data.convert import open_reader
from partirvm.data.encode import Encoder, Roles, assign_roles
from partirvm.data.external_sort import ExternalSorter, RowHashes
from partirvm.data.layout import DataAttributes
from partirvm.data.publish import Publication, publication, storing
from partirvm.data.source import Columns, tile_rows_for
from partirvm.data.tables import Reader
from partirvm.data.writer import Extended, Progress, TileWriter, tile_width
from partirvm.data.zarr_source import ZarrSource
from partirvm.errors import DataError, DataWarning, MemoryLimitError, UsageError
from partirvm.quoting import listed, quoted

UNKNOWN_ROWS = 1 << 40
"""The number of rows assumed for the tile size if the number is unknown before reading."""


ALLOWANCE = 28 << 20
"""Bytes that the formula does not contain: libraries loaded at first use, uncollected Python objects, fragmentation."""

BATCHES = 6
"""Number of copies of a batch: raw, as records, records ordered by spill file, masks, and buffers of the reader."""

LEAST_BATCH = 1 << 20
LEAST_ROWS = 64
LEAST_SORT = 4 << 20

TILES = 20
"""Number of copies of a tile: 4 being filled or queued, 3 for hashing rows, and 6 in each of two writer threads."""

HASHES = 8 << 20
"""Number of bytes of the hashes of rows that find duplicates."""

USUAL_LIMIT = 512 << 20
USUAL_ROOM = 256 << 20
"""The default limit is the larger of 512 MiB and the current memory of the process plus 256 MiB."""


def ingest(
    source: Any,
    data: str | os.PathLike[str],
    *,
    target: str | Sequence[str] | None = None,
    features: Sequence[str] | None = None,
    categorical: Sequence[str] = (),
    weights: str | None = None,
    noise: str | None = None,
    classes: bool = False,
    shuffle: int | None = 0,
    like: Any = None,
    memory_limit: int | None = None,
    tile_rows: int | None = None,
    overwrite: bool = False,
    progress: Progress | None = None,
    resident: Callable[[], int] = lambda: 0,
) -> ZarrSource:
    """Convert a table or arrays to DATA, a Zarr group of shuffled rows in tiles. The source is streamed. An error
    leaves no partial output.

    Parameters
    ----------
    source : str, path, data frame or tuple
        A CSV, Parquet or .npz file; a folder or glob of CSV or Parquet files; an fsspec URL; a pandas, polars or Dask
        data frame; or a tuple (X, y) or (X, y, weights) of arrays of NumPy, Zarr or Dask, with y of shape (N,) or (N,
        T) for T targets. Categorical columns of a data frame become categories, except the target. An .npz file
        contains the arrays ``X`` and ``y``, and may contain ``columns`` (names of features) and ``weights``. With
        ``like``, y may be None or missing in the .npz file. Columns of y without names are called ``y0``, ``y1``, …
    data : str or path
        Folder or fsspec URL to write.
    target : str or sequence of str, optional
        Target column; required for tables, unless ``like`` defines the target. Several targets are a sequence, or a
        string with commas that is not a column name. Several targets share relevance vectors in a fit.
    features : sequence of str, optional
        Feature columns, in this order; default: all columns except targets and weights.
    categorical : sequence of str
        Features whose values are labels. Values are stored as integer codes, and the labels are stored in the
        attributes.
    weights : str, optional
        Column of precision weights, zero or positive.
    noise : str, optional
        Column of positive relative noise, instead of weights. The noise variance of a row is σ²·noise², and its weight
        is 1/noise².
    classes : bool
        True if the target is a class. Classes are stored as codes 0 … K−1, and the labels are stored in the attributes.
    shuffle : int or None
        Seed of the shuffle; None keeps the order of the source.
    like : DATA, path or Columns, optional
        Use the features, categories, target and classes of the DATA ``like``, for a test set or for rows to predict. A
        category missing in ``like`` gets the code after the last category; a class missing in ``like`` is an error. If
        ``source`` has no target column and ``target`` is None, the new DATA are unlabelled. Unlabelled DATA can be used
        only for prediction and may have a single row.
    memory_limit : int, optional
        Maximum resident memory of this process in bytes. Default: the larger of 512 MiB and the current memory of the
        process plus 256 MiB.
    tile_rows : int, optional
        Number of rows per tile; default: computed from the shape of the data.
    overwrite : bool
        If True, existing DATA are replaced.
    progress : callable, optional
        A function that is called with (phase, rows done, total rows or None); phases are "read" and "write".
    resident : callable, optional
        A function that releases freed memory and returns the resident bytes of this process. By default the limit
        applies to the memory of the ingest alone.

    Returns
    -------
    ZarrSource
        The opened data.

    Raises
    ------
    DataError, MissingDataError
        There are missing values, text columns, no rows, or a single row with a target; or files have different columns
        or cannot be read.
    UsageError
        Options contradict each other, or a table has no target and ``like`` is None.
    MemoryLimitError
        The ingest needs more memory than the limit. After an error before reading, nothing was written.
    ExistsError, StorageError
        The output path exists; or the store is full or read-only.

    Examples
    --------
    >>> import tempfile
    >>> folder = tempfile.mkdtemp()
    >>> X = np.random.default_rng(1).normal(size=(100, 3))
    >>> data = ingest((X, X.sum(axis=1)), f"{folder}/data.zarr", shuffle=7)
    >>> data.n_rows, data.n_features, data.columns.features, data.seed
    (100, 3, ('x0', 'x1', 'x2'), 7)
    >>> bool((data.tile(0).X == X[data.original_rows(0)]).all())
    True
    """
    if shuffle is not None and (isinstance(shuffle, bool) or not isinstance(shuffle, (int, np.integer)) or shuffle < 0):
        raise UsageError(f"shuffle is {shuffle!r}: it must be a seed, an integer ≥ 0, or None to keep the order.")
    if tile_rows is not None and (isinstance(tile_rows, bool) or not isinstance(tile_rows, int) or tile_rows < 1):
        raise UsageError(
            f"tile_rows is {tile_rows!r}: it must be an integer ≥ 1, or None to choose it by the size of a row."
        )
    columns = {"target": target, "features": features, "categorical": categorical, "weights": weights, "noise": noise}
    made, hashes = written(
        source,
        os.fspath(data),
        publication(os.fspath(data), overwrite=overwrite),
        roles={**columns, "classes": classes, "like": _known_columns(like)},
        seed=None if shuffle is None else int(shuffle),
        memory_limit=memory_limit,
        tile_rows=tile_rows,
        progress=progress,
        resident=resident,
    )
    for message in _remarks(made, hashes):
        warnings.warn(f"{data}: {message}", DataWarning, stacklevel=2)
    return ZarrSource(data)


def written(
    source: Any,
    where: str,
    place: AbstractContextManager[Publication],
    *,
    roles: dict[str, Any],
    seed: int | None,
    memory_limit: int | None,
    tile_rows: int | None,
    progress: Progress | None,
    resident: Callable[[], int],
    extended: Extended | None = None,
) -> tuple[DataAttributes, RowHashes]:
    """Write DATA as ``ingest`` does, or the group of an append. Returns the attributes and the hashes of the new rows.

    ``roles`` are the arguments of ``data.encode.assign_roles``. Raises the errors of ``ingest``; warns of nothing.
    """
    import zarr.codecs  # noqa: F401  (imported here, so that the budget counts the memory of this import)

    reader = open_reader(source, None if memory_limit is None else memory_limit - resident() - ALLOWANCE)
    assigned = assign_roles(reader, **roles)
    if extended is not None:
        _require_same_roles(extended.attributes, assigned, where)
    encoder = Encoder(assigned, reader, roles["like"])
    width = 2 + len(assigned.wanted)
    tile = tile_rows or tile_rows_for(reader.n_rows or UNKNOWN_ROWS, tile_width(assigned))
    budget = Budget.of(memory_limit, resident)
    held, most = reader.held(assigned.wanted), reader.most_batch
    batch_bytes = budget.batch_bytes(reader.name, width, tile, held=held, most=most, advice=reader.memory_advice)
    report = progress or (lambda phase, done, total: None)
    least = 2 if assigned.targets and extended is None else 1
    with place as publication:
        with ExternalSorter(publication.spill, width, high=None if seed is None else 1.0) as rows:
            _read(reader, encoder, rows, seed, batch_bytes, resident, report)
            check_row_count(encoder.n_rows, least, reader.name)
            encoder.check()
            sort_bytes = budget.sort_bytes(width, tile)
            writer = TileWriter(publication, where, encoder, seed, tile_rows, report, extended)
            attributes = writer.write(rows.blocks(sort_bytes))
        publication.commit(attributes.to_json())
    return attributes, writer.hashes


def _known_columns(like: Any) -> Columns | None:
    if like is None or isinstance(like, Columns):
        return like
    found = ZarrSource(like).columns if isinstance(like, (str, os.PathLike)) else getattr(like, "columns", None)
    if not isinstance(found, Columns):
        raise UsageError(f"like is of type {type(like).__name__}: it must be DATA that ingest made, or their path.")
    return found


def _require_same_roles(old: DataAttributes, new: Roles, place: str) -> None:
    """Raise ``DataError`` if DATA and the new rows differ in having a target or weights, or in their targets."""
    for name, before, now in (
        ("the target", old.labelled, bool(new.targets)),
        ("weights", old.weighted, new.weights is not None),
    ):
        if before != now:
            has, lacks = ("DATA have", "the new rows do not") if before else ("the new rows have", "DATA do not")
            raise DataError(f"{place}: {has} {name}, but {lacks}: append only rows with the same columns")
    if old.labelled and (old.columns.targets or (old.columns.target,)) != new.targets:
        raise DataError(
            f"{place}: the target of DATA is {quoted(old.columns.target)}, but the target of the new rows is "
            f"{quoted(', '.join(new.targets))}: append only rows with the same columns, and several targets in the "
            "same order"
        )


def _read(
    reader: Reader,
    encoder: Encoder,
    rows: ExternalSorter,
    seed: int | None,
    batch_bytes: int,
    resident: Callable[[], int],
    report: Progress,
) -> None:
    """Stream the source into records: shuffle key, row number, features, targets, weights."""
    rng = None if seed is None else np.random.default_rng(seed)
    roles = encoder.roles
    space = np.empty((0, 2 + len(roles.wanted)))
    for batch in reader.batches(roles.wanted, roles.levels, batch_bytes):
        start, n = encoder.n_rows, len(batch[roles.features[0]])
        space = space if len(space) >= n else np.empty((n, space.shape[1]))
        records = space[:n]
        encoder.encode(batch, into=records[:, 2:])
        records[:, 1] = np.arange(start, start + n)
        records[:, 0] = records[:, 1] if rng is None else rng.random(n)
        if encoder.bad == 0:
            with storing("the spill files beside the data"):
                rows.add(records)
        del batch  # free the memory before the next batch is read
        resident()  # pages of many sizes leave gaps of about half their total size
        report("read", encoder.n_rows, reader.n_rows)


def _remarks(attributes: DataAttributes, hashes: RowHashes) -> Iterator[str]:
    """Yield warnings about the ingested data: constant columns, duplicate rows."""
    if not attributes.labelled:
        return
    inputs, columns = attributes.moments.inputs, attributes.columns
    constant = [name for name, same in zip(columns.features, inputs.constant, strict=True) if same]
    if constant:
        yield f"{len(constant)} constant feature(s), which have no effect: {listed(constant)}."
    targets, names = attributes.moments.targets, columns.target_names(attributes.n_targets)
    for name, value, same in zip(names, targets.minimum, targets.constant, strict=True):
        if not same:
            continue
        if columns.targets:
            refused = "a fit of several targets does not accept a constant target; omit this target"
            yield f"the target {quoted(name)} is constant ({value:g}): {refused}."
        elif columns.classes is None:
            yield f"the target {quoted(name)} is constant ({value:g}): every prediction will be this value."
        else:
            label = columns.classes[int(value)]
            yield (
                f"all rows with positive weight have the class {quoted(label)}: these data can be used to evaluate a "
                "model, but not to fit one."
            )
    found = hashes.duplicates()
    if found:
        about = "" if hashes.exact else "about "
        total = f"{attributes.n_rows:,}"
        yield f"{about}{found:,} of {total} rows are duplicates of another row (equal inputs, target and weight)."


@dataclass(frozen=True)
class Budget:
    """The memory limit of a process, the bytes that the process already uses (``base``), and a function that returns
    the current number of resident bytes.
    """

    limit: int
    base: int
    resident: Callable[[], int]

    @classmethod
    def of(cls, limit: int | None, resident: Callable[[], int]) -> Budget:
        """Return the budget for the given limit, or for the default limit if ``limit`` is None. Call this method after
        the libraries are imported.

        >>> Budget.of(None, lambda: 100 << 20).limit >> 20, Budget.of(None, lambda: 900 << 20).limit >> 20
        (512, 1156)
        """
        base = resident()
        return cls(max(USUAL_LIMIT, base + USUAL_ROOM) if limit is None else limit, base, resident)

    def batch_bytes(self, source: str, width: int, tile_rows: int, held: int, most: int, advice: str) -> int:
        """Return the bytes of float64 per batch for records of ``width`` values; ``most`` if there is enough memory.

        Raises ``MemoryLimitError`` if the limit is too small for reading or writing. The error states the bytes needed,
        the bytes available and ``advice``.

        >>> budget = Budget.of(192 << 20, lambda: 110 << 20)
        >>> budget.batch_bytes("t.parquet", 17, 8192, held=40 << 20, most=4 << 20, advice="")  # (82 − 28 − 40) / 6 MiB
        2446677
        """
        least = max(LEAST_BATCH, LEAST_ROWS * 8 * width)
        reading = ALLOWANCE + held + BATCHES * least
        writing = ALLOWANCE + tile_bytes(width, tile_rows) + 2 * LEAST_SORT
        need = self.base + max(reading, writing)
        if need > self.limit:
            needs, base, limit = (f"{-(-number >> 20):,} MiB" for number in (need, self.base, self.limit))
            raise MemoryLimitError(
                f"{source}: ingesting {width - 2} columns needs {needs} ({base} of it are used by the process "
                f"already), but the memory limit is {limit}: raise memory_limit{advice}."
            )
        return min((self.limit - self.base - ALLOWANCE - held) // BATCHES, max(most, least))

    def sort_bytes(self, width: int, tile_rows: int) -> int:
        """Return the number of bytes of records to sort at a time; call this method after all rows are read."""
        return max((self.limit - self.resident() - ALLOWANCE - tile_bytes(width, tile_rows)) // 2, LEAST_SORT)


def tile_bytes(width: int, tile_rows: int) -> int:
    """Return the bytes of the tiles being written, for records of ``width`` values.

    >>> tile_bytes(18, 8192) >> 20
    30
    """
    return HASHES + TILES * 8 * tile_rows * width
