"""Ingest a table or arrays of any size into DATA (checked, shuffled tiles) in bounded memory;
append rows to DATA.

The *read* phase streams the source, codes labels, draws a shuffle key for every row and writes the
records to temporary files. The *write* phase reads the records in their final order, tile by tile.
The result depends only on the source and the seed. An append shuffles only the new rows, so the
DATA then count as unshuffled.
"""

import os
import shlex
from collections.abc import Mapping, Sequence
from inspect import signature
from typing import Any

import numpy as np

from partirvm.data.convert import as_source, open_table
from partirvm.data.encode import Encoder, Roles, assign_roles
from partirvm.data.problems import Finding, flags, refuse, remedied
from partirvm.data.source import check_row_count, tile_rows_for
from partirvm.data.tables import Reader
from partirvm.data.writer import ExternalSorter, Progress, publication, write_tiles
from partirvm.data.zarr_source import DataAttributes, ZarrSource
from partirvm.errors import DataError, MemoryLimitError, UsageError
from partirvm.options.constraints import Check, parse_bytes
from partirvm.process import return_freed_memory, settled_memory
from partirvm.quoting import listed
from partirvm.storage import Where, storing
from partirvm.storage.address import address
from partirvm.types import Columns, Float

ALLOWANCE = 28 << 20
"""Bytes reserved for libraries loaded on first use, uncollected objects and fragmentation."""

BATCHES = 6
"""Number of copies of a batch: raw, as records, ordered by spill file, masks, and the reader's
buffers."""

MORE = "raise memory_limit, or use fewer columns (`--features`)"
"""Advice for a memory limit that is too low."""

LEAST_BATCH, LEAST_SORT = 1 << 20, 4 << 20
"""Minimum size in bytes of a batch, and of the records that are sorted at once."""


def ingest(
    source: Any,
    data: Where,
    *,
    target: str | Sequence[str] | None = None,
    features: Sequence[str] | None = None,
    exclude: Sequence[str] = (),
    drop: Sequence[str] = (),
    categorical: str | Sequence[str] = "auto",
    weights: str | None = None,
    noise: str | None = None,
    classes: bool = False,
    missing: Sequence[str] = (),
    dates: Mapping[str, str] | None = None,
    drop_missing_targets: bool = False,
    auto: bool = False,
    shuffle: int | None = 0,
    like: Any = None,
    memory_limit: int | str | None = None,
    tile_rows: int | None = None,
    overwrite: bool = False,
    append: bool = False,
    again: bool = False,
    progress: Progress | None = None,
) -> ZarrSource:
    """Stream a table or arrays into DATA: shuffled rows in tiles. An error leaves no partial
    output.

    Parameters
    ----------
    source : str, path, data frame or tuple
        A CSV, Parquet or .npz file; a folder or glob of CSV or Parquet files; an fsspec URL; a
        pandas, polars or Dask data frame; or a tuple (X, y) or (X, y, weights) of NumPy, Zarr or
        Dask arrays, with y of shape (N,) or (N, T). Categorical columns of a data frame become
        categories. An .npz file contains the arrays ``X`` and ``y``, and may contain ``columns``
        (feature names) and ``weights``. With ``like``, y may be None or missing.
    data : str or path
        Folder or fsspec URL to write.
    target : str or sequence of str, optional
        Target column; required for tables unless ``like`` defines the target. Several targets are
        passed as a sequence, or as a comma-separated string that is not a column name; in a fit
        they share relevance vectors.
    features : sequence of str, optional
        Feature columns, in this order. The default is all columns except targets and weights.
    exclude, drop : sequence of str
        Columns to leave out; the two options are synonyms.
    categorical : "auto", "none" or sequence of str
        Features whose values are labels, stored as integer codes; a sequence may contain "auto",
        which means all text columns. Dates and times not listed here become days since 2000-01-01
        UTC, with the sine and cosine of the day, week and year cycles that they span. Missing
        feature values are stored as NaN.
    weights, noise : str, optional
        Column of precision weights, zero or positive; or, instead, of positive relative noise r.
        The noise variance of a row is then σ²·r², and its weight is 1/r².
    classes : bool
        True if the target is a class. Classes are stored as codes 0 … K−1, and their labels in the
        attributes.
    missing : sequence of str
        Strings that stand for a missing value, such as ``"?"``, in addition to empty cells, NA and
        NaN; ``"inf"`` matches all infinite values.
    dates : dict, optional
        Text columns with dates in a format other than ISO, and that format, such as ``{"day":
        "%d/%m/%Y"}``.
    drop_missing_targets : bool
        Leave out rows whose target is missing; otherwise such rows are an error.
    auto : bool
        Accept all proposals and read the source again: gaps, dates, codes as categories, text as
        classes, columns without information and rows without a target left out. ``notes`` of the
        result lists what was accepted.
    shuffle : int or None
        Shuffle seed; None keeps the order of the source. Appended rows keep their order if the rows
        of DATA did.
    like : DATA or path, optional
        Use the features, categories, target and classes of the DATA ``like``, for a test set or for
        rows to predict. A category missing from ``like`` gets the code after the last category; a
        class missing from ``like`` is an error. Without a target column, the new DATA can be used
        only for prediction.
    memory_limit : int or str, optional
        Maximum resident memory of this process in bytes, or a string such as ``"512MiB"``. The
        default is the larger of 512 MiB and the current memory of the process plus 256 MiB.
    tile_rows : int, optional
        Number of rows per tile. By default, it is computed from the shape of the data.
    overwrite, append, again : bool
        Replace existing DATA, or append the rows to existing DATA, which define features,
        categories, classes and tiles; ``again`` permits rows that have already been ingested or
        appended.
    progress : callable, optional
        A function called with (phase, rows done, total rows or None); the phases are "read" and
        "write".

    Raises
    ------
    DataError, MissingDataError
        Columns hold values that cannot be used, which the message lists with the options that fix
        them; there are no rows; files differ in their columns or cannot be read; or the columns of
        appended rows differ from those of DATA, or DATA already contains the rows.
    UsageError
        Options contradict each other, or a table has no target and ``like`` is None.
    MemoryLimitError, ExistsError, StorageError, LeaseError
        The limit is too low; the path exists; the store is full or read-only; or another process is
        writing the DATA.

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
    categorical = (categorical,) if isinstance(categorical, str) else tuple(map(str, categorical))
    asked = dict(locals(), exclude=(*exclude, *drop), drop=())
    new_columns = (
        features is not None
        or like is not None
        or categorical != ("auto",)
        or classes
        or asked["exclude"]
    )
    if append and (new_columns or dates or tile_rows or overwrite):
        raise UsageError(
            "append takes features, categories, classes and tile_rows from the dataset: leave "
            "them out"
        )
    Check("whole", least=0, optional=True)("shuffle", shuffle)
    Check("whole", least=1, optional=True)("tile_rows", tile_rows)
    url = address(data)
    settled = list[Finding]()
    options: dict[str, Any] = asked
    known = like if like is None or isinstance(like, Columns) else as_source(like).columns
    report = progress or (lambda phase, done, total: None)
    return_freed_memory()
    os.environ.setdefault(
        "ARROW_DEFAULT_MEMORY_POOL", "system"
    )  # Arrow's other allocators retain freed memory
    limit = None if memory_limit is None else parse_bytes(memory_limit, "memory_limit")
    room = None if limit is None else limit - settled_memory() - ALLOWANCE
    budget = None
    table = open_table(source, room)
    with publication(url, overwrite=overwrite, append=append) as place:
        if (old := place.before) is not None:
            known = old.columns
            tile_rows = old.tile_rows
            shuffle = None if old.seed is None else shuffle or 0
        for last in (False, False, False, True):
            roles = assign_roles(table, known, options)
            if old is not None:
                _require_same_roles(old, roles, url)
            encoder = Encoder(roles, table, known, stored=True)
            width = 2 + len(roles.wanted)
            tile_width = len(roles.features) + max(len(roles.targets) - 1, 0)
            tile = tile_rows or tile_rows_for(table.n_rows or 1 << 40, tile_width)
            budget = budget or Budget(limit)
            batch_bytes = budget.batch_bytes(table, width, tile, held=table.held(roles.wanted))
            with ExternalSorter(place.spill, width, high=None if shuffle is None else 1.0) as rows:
                for records in encoder.records(shuffle, batch_bytes):
                    with storing("the spill files beside the data"):
                        rows.add(records)
                    if (
                        settled_memory() > budget.limit
                    ):  # also frees memory: pages of many sizes leave gaps
                        raise MemoryLimitError(
                            f"{table.name}: reading exceeded memory_limit: {MORE}."
                        )
                    report("read", encoder.n_rows, table.n_rows)
                check_row_count(
                    encoder.n_rows, 2 if roles.targets and old is None else 1, table.name
                )
                findings = encoder.findings()
                proposed = [each for each in findings if each.remedy and auto and not last]
                options = remedied(options, proposed)
                settled = settled + proposed
                if proposed:
                    continue
                refuse(table.name, findings, _remedy(source, url, asked, findings))
                found = encoder.columns()
                cycles = len(found.features) - len(found.given)
                if old is None:
                    tile_rows = tile_rows or tile_rows_for(encoder.n_rows, tile_width + cycles)
                    seed = None if shuffle is None else int(shuffle)
                    weighted = roles.weights is not None
                    old = DataAttributes(
                        found, tile_rows, seed, weighted, labelled=bool(roles.targets)
                    )
                sort_bytes = budget.sort_bytes(width + cycles, tile) * width // (width + cycles)
                blocks = (encoder.finished(block, old.n_rows) for block in rows.blocks(sort_bytes))
                made = write_tiles(place, old, _last_rows(url, old), blocks, encoder.n_rows, report)
                break
        if made.batches[-1] in made.batches[:-1] and not again:
            found_again = f"these {encoder.n_rows:,} rows were ingested or appended already"
            raise DataError(
                f"{url}: {found_again}: to append them once more, pass again=True (`--again`)"
            )
        place.commit(made)
    stored = ZarrSource(data)
    stored.left_out = encoder.dropped
    stored.notes = encoder.described(made.moments.inputs.missing / made.moments.inputs.n, settled)
    return stored


def _remedy(source: Any, url: str, asked: Mapping[str, Any], findings: Sequence[Finding]) -> str:
    """Return the command that ingests a file with the given options and the remedies for fatal
    findings, or ""."""
    fatal = [each for each in findings if each.fatal]
    if not (isinstance(source, str | os.PathLike) and all(each.remedy for each in fatal)):
        return ""
    defaults = {name: each.default for name, each in signature(ingest).parameters.items()}
    given = {
        name: value
        for name, value in asked.items()
        if name not in ("source", "data", "auto", "progress")
    }
    given = {
        name: value
        for name, value in given.items()
        if value not in (defaults[name], (defaults[name],))
    }
    given = remedied(given, fatal)
    return " ".join(
        ["partirvm ingest", shlex.quote(os.fspath(source)), shlex.quote(url), *flags(given)]
    )


def _require_same_roles(old: DataAttributes, new: Roles, place: str) -> None:
    """Raise ``DataError`` if the new rows differ from DATA in their targets or in whether they have
    weights."""
    targets = (old.columns.targets or (old.columns.target,)) if old.labelled else ()
    if (targets, old.weighted) != (new.targets, new.weights is not None):
        weights = "with" if old.weighted else "without"
        found = f"the dataset has the targets [{listed(targets)}] {weights} weights"
        unlike = f"unlike the new rows (targets [{listed(new.targets)}])"
        raise DataError(
            f"{place}: {found}, {unlike}: append only rows with the same columns in the same order"
        )


def _last_rows(url: str, old: DataAttributes) -> Float:
    """Return the records of the last tile of DATA if it is not full, otherwise none."""
    last, rest = divmod(old.n_rows, old.tile_rows)
    if not rest:
        return np.empty((0, 2 + old.n_features + old.n_targets + old.weighted))
    source = ZarrSource(url)
    tile = source.tile(last)
    numbers = source.original_rows(last)
    return np.column_stack(
        [numbers, numbers, tile.X, tile.t, *([] if tile.weights is None else [tile.weights])]
    )


class Budget:
    """The memory limit of a process, as given or by default, and the bytes already in use
    (``base``)."""

    def __init__(self, limit: int | None) -> None:
        import zarr.codecs  # noqa: F401 - so that it is counted

        self.base = settled_memory()
        self.limit = max(512 << 20, self.base + (256 << 20)) if limit is None else limit

    def batch_bytes(self, table: Reader, width: int, tile_rows: int, held: int) -> int:
        """Return the bytes per batch for records of ``width`` values. Raises ``MemoryLimitError``
        if too few."""
        least = max(LEAST_BATCH, 64 * 8 * width)
        needs = ALLOWANCE + max(
            held + BATCHES * least, tile_bytes(width, tile_rows) + 2 * LEAST_SORT
        )
        if self.base + needs > self.limit:
            total = (
                f"{-(-(self.base + needs) >> 20):,} MiB ({self.base >> 20:,} MiB of it are already "
                "in use)"
            )
            limit = f"the memory limit is {self.limit >> 20:,} MiB: {MORE}"
            raise MemoryLimitError(
                f"{table.name}: ingesting {width - 2} columns needs {total}, but {limit}."
            )
        return min(
            (self.limit - self.base - ALLOWANCE - held) // BATCHES, max(table.most_batch, least)
        )

    def sort_bytes(self, width: int, tile_rows: int) -> int:
        """Return how many bytes of records to sort at a time, once all rows have been read."""
        return max(
            (self.limit - settled_memory() - ALLOWANCE - tile_bytes(width, tile_rows)) // 2,
            LEAST_SORT,
        )


def tile_bytes(width: int, tile_rows: int) -> int:
    """Return the bytes taken up by tiles being written, for records of ``width`` values."""
    # copies of a tile: 4 being filled or queued, 3 for hashing rows, and 6 in each of the two
    # writer threads
    return 20 * 8 * tile_rows * width
