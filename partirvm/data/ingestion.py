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
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np

from partirvm.core.moments import ColumnMoments, Moments
from partirvm.core.reduction import TreeSum
from partirvm.data.budget import ALONE, Budget, IngestProcess
from partirvm.data.checks import check_row_count
from partirvm.data.duplicates import DuplicateCounter
from partirvm.data.encode import Encoder, Roles, assign_roles
from partirvm.data.external_sort import ExternalSorter
from partirvm.data.layout import DataAttributes, create_arrays, require_small
from partirvm.data.open_table import open_reader
from partirvm.data.publish import Publication, publication, storing
from partirvm.data.readers import Batch, Reader
from partirvm.data.source import Columns, Float, Tile, tile_rows_for
from partirvm.data.zarr_source import ZarrSource
from partirvm.errors import DataWarning, UsageError
from partirvm.quoting import listed, quoted
from partirvm.storage.chunks import checksum

Progress = Callable[[str, int, int | None], None]

UNKNOWN_ROWS = 1 << 40
"""The number of rows assumed for the tile size if the number is unknown before reading."""


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
    process: IngestProcess = ALONE,
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
    process : data.budget.IngestProcess
        An object that measures the memory of this process. By default the limit applies to the memory of the ingest
        alone.

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
    columns = {"target": target, "features": features, "categorical": categorical, "weights": weights, "noise": noise}
    made, duplicates = written(
        source,
        data,
        roles={**columns, "classes": classes, "like": _known_columns(like)},
        seed=None if shuffle is None else int(shuffle),
        memory_limit=memory_limit,
        tile_rows=tile_rows,
        overwrite=overwrite,
        progress=progress,
        process=process,
    )
    for message in _remarks(made, duplicates):
        warnings.warn(f"{data}: {message}", DataWarning, stacklevel=2)
    return ZarrSource(data)


def written(
    source: Any,
    data: str | os.PathLike[str],
    *,
    roles: dict[str, Any],
    seed: int | None,
    memory_limit: int | None = None,
    tile_rows: int | None = None,
    overwrite: bool = False,
    progress: Progress | None = None,
    process: IngestProcess = ALONE,
    least: int = 2,
) -> tuple[DataAttributes, DuplicateCounter]:
    """Write DATA as ``ingest`` does, with at least ``least`` rows. Returns the attributes and the duplicate counter.

    ``roles`` are the arguments of ``data.encode.assign_roles``. Raises the errors of ``ingest``, and issues no
    warnings.
    """
    reader = open_reader(source)
    assigned = assign_roles(reader, **roles)
    encoder = Encoder(assigned, reader, roles["like"])
    width = 2 + len(assigned.wanted)
    tile = tile_rows or tile_rows_for(reader.n_rows or UNKNOWN_ROWS, _tile_width(assigned))
    import zarr.codecs  # noqa: F401  (imported here, so that the budget counts the memory of this import)

    budget = Budget.of(memory_limit, process)
    held, most = reader.held(assigned.wanted), reader.most_batch
    batch_bytes = budget.batch_bytes(reader.name, width, tile, held=held, most=most, advice=reader.memory_advice)
    report = progress or (lambda phase, done, total: None)
    with publication(os.fspath(data), overwrite=overwrite) as place:
        with ExternalSorter(place.spill, width, high=None if seed is None else 1.0) as rows:
            _read(reader, encoder, rows, seed, batch_bytes, process, report, least if assigned.targets else 1)
            sort_bytes = budget.sort_bytes(width, tile)
            process.reuse()
            writer = _Writer(place, encoder, rows.n_records, seed, tile_rows, report, os.fspath(data))
            attributes = writer.write(rows.blocks(sort_bytes))
        place.commit(attributes.to_json())
    return attributes, writer.duplicates


def _known_columns(like: Any) -> Columns | None:
    if like is None or isinstance(like, Columns):
        return like
    found = ZarrSource(like).columns if isinstance(like, (str, os.PathLike)) else getattr(like, "columns", None)
    if not isinstance(found, Columns):
        raise UsageError(f"like is of type {type(like).__name__}: it must be DATA that ingest made, or their path.")
    return found


def _tile_width(roles: Roles) -> int:
    return len(roles.features) + max(len(roles.targets) - 1, 0)


def _read(
    reader: Reader,
    encoder: Encoder,
    rows: ExternalSorter,
    seed: int | None,
    batch_bytes: int,
    process: IngestProcess,
    report: Progress,
    least: int,
) -> None:
    """Stream the source into records (key, row number, features, targets, weights). Raises ``DataError`` for missing
    values.
    """
    rng = None if seed is None else np.random.default_rng(seed)
    roles = encoder.roles
    space = np.empty((0, 2 + len(roles.wanted)))
    for batch in reader.batches(roles.wanted, roles.levels, batch_bytes):
        n = len(batch[roles.features[0]])
        space = space if len(space) >= n else np.empty((n, space.shape[1]))
        records = space[:n]
        _fill(records, batch, encoder, rng)
        if encoder.bad == 0:
            with storing("the spill files beside the data"):
                rows.add(records)
        del batch  # free the memory before the next batch is read
        process.resident()  # pages of many sizes leave gaps of about half their total size
        report("read", encoder.n_rows, reader.n_rows)
    check_row_count(encoder.n_rows, least, reader.name)
    encoder.check()


def _fill(records: Float, batch: Batch, encoder: Encoder, rng: np.random.Generator | None) -> None:
    """Fill the records with the key, the row number and the encoded values of a batch."""
    start, n = encoder.n_rows, len(records)
    encoder.encode(batch, into=records[:, 2:])
    records[:, 1] = np.arange(start, start + n)
    records[:, 0] = records[:, 1] if rng is None else rng.random(n)


class _Writer:
    """A writer that divides the records, in their final order, into tiles, and writes the tiles with moments and
    hashes.
    """

    def __init__(
        self,
        place: Publication,
        encoder: Encoder,
        n_rows: int,
        seed: int | None,
        tile_rows: int | None,
        report: Progress,
        where: str,
    ) -> None:
        roles = encoder.roles
        self._d, self._n, self._seed, self._report = len(roles.features), n_rows, seed, report
        self._weighted, self._n_targets = roles.weights is not None, len(roles.targets)
        self._tile_rows = tile_rows or tile_rows_for(n_rows, _tile_width(roles))
        self._columns, self._remaps = encoder.columns(), encoder.remaps()
        with storing("the data"):
            self._arrays = create_arrays(
                place.group,
                n_rows,
                self._d,
                self._tile_rows,
                n_targets=self._n_targets,
                weighted=self._weighted,
                ordered=seed is not None,
            )
        n_tiles = -(-n_rows // self._tile_rows)
        require_small(self._columns, n_tiles, len(self._arrays), where)
        self._moments: TreeSum[Moments] = TreeSum(n_tiles)
        self._hashes: list[dict[str, str]] = [{}] * n_tiles
        self.duplicates, self._segment = DuplicateCounter(), place.segment

    def write(self, blocks: Iterator[Float]) -> DataAttributes:
        """Write all tiles, two at a time. Returns the attributes of the DATA group."""
        pending: list[Future[tuple[int, Moments, dict[str, str]]]] = []
        with ThreadPoolExecutor(2) as pool:
            for number, records in enumerate(runs_of(blocks, self._tile_rows)):
                if len(pending) == 3:
                    self._settle(pending.pop(0))
                for place, remap in self._remaps.items():
                    records[:, 2 + place] = remap[records[:, 2 + place].astype(np.int64)]
                pending.append(pool.submit(self._write_tile, number, records))
                self.duplicates.add(records[:, 2:])
            for future in pending:
                self._settle(future)
        return DataAttributes(
            n_rows=self._n,
            n_features=self._d,
            tile_rows=self._tile_rows,
            columns=self._columns,
            seed=self._seed,
            weighted=self._weighted,
            moments=self._moments.result(),
            hashes={name: tuple(each[name] for each in self._hashes) for name in self._arrays},
            batches=((self._n, self.duplicates.checksum),),
            segments=((0, self._segment),),
            labelled=self._n_targets > 0,
        )

    def _settle(self, future: Future[tuple[int, Moments, dict[str, str]]]) -> None:
        number, moments, self._hashes[number] = future.result()
        self._moments.add(number, moments)
        self._report("write", min((number + 1) * self._tile_rows, self._n), self._n)

    def _write_tile(self, number: int, records: Float) -> tuple[int, Moments, dict[str, str]]:
        start = number * self._tile_rows
        X = np.ascontiguousarray(records[:, 2 : 2 + self._d])
        t = np.ascontiguousarray(records[:, 2 + self._d : 2 + self._d + self._n_targets])
        weights = np.ascontiguousarray(records[:, -1]) if self._weighted else None
        y = t if self._n_targets > 1 else t.reshape(-1)
        parts: dict[str, Any] = {"X": X, "y": y, "weights": weights, "row": records[:, 1].astype(np.int64)}
        with storing("the data"):
            for name, array in self._arrays.items():
                array[start : start + len(X)] = parts[name]
        tile = Tile(number, start, X, t, weights)
        return number, _moments(tile), {name: checksum(parts[name]) for name in self._arrays}


def _moments(tile: Tile) -> Moments:
    """Return the moments of a tile of finite values. Without a target the target moments have no columns."""
    if tile.t.shape[1]:
        return Moments.of(tile.X, tile.t, tile.weights, tile.start)
    inputs, none = ColumnMoments.of(tile.X, tile.weights), np.empty(0)
    return Moments(inputs, ColumnMoments(inputs.n, inputs.total, none, none, none, none))


def runs_of(blocks: Iterator[Float], rows: int) -> Iterator[Float]:
    """Divide blocks of any length into separate arrays of ``rows`` rows; the last array may be shorter.

    >>> [len(run) for run in runs_of(iter([np.zeros((5, 1)), np.zeros((2, 1))]), 3)]
    [3, 3, 1]
    """
    held: list[Float] = []
    count = 0
    for block in blocks:
        start = 0
        while count + len(block) - start >= rows:
            stop = start + rows - count
            yield np.concatenate([*held, block[start:stop]])
            held, count, start = [], 0, stop
        if start < len(block):
            held.append(block[start:].copy())
            count += len(block) - start
        del block  # free the memory before the next block is read
    if held:
        yield np.concatenate(held)


def _remarks(attributes: DataAttributes, duplicates: DuplicateCounter) -> Iterator[str]:
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
    found = duplicates.estimate()
    if found:
        about = "" if duplicates.exact else "about "
        total = f"{attributes.n_rows:,}"
        yield f"{about}{found:,} of {total} rows are duplicates of another row (equal inputs, target and weight)."
