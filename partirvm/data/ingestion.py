"""Ingest a table or arrays of any size into DATA (checked, shuffled tiles) in bounded memory;
append rows to DATA.

The *read* phase streams the source, encodes labels, draws a shuffle key for every row and writes
the records to temporary files. The *write* phase reads the records in their final order, tile by
tile. The result depends only on the source and the seed. An append shuffles only the new rows, so
the DATA then count as unshuffled.
"""

import os
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from inspect import signature
from typing import Any

import numpy as np

from partirvm.data.convert import as_source, open_table
from partirvm.data.delimited import null_texts
from partirvm.data.encode import Encoder
from partirvm.data.ingest_budget import MORE, Budget, room_of
from partirvm.data.layout import FileOptions, spelled
from partirvm.data.problems import Finding, flags, refuse, remedied
from partirvm.data.roles import Roles, assign_roles, check_marks
from partirvm.data.row_groups import Groups
from partirvm.data.settling import REREADS, read_until_settled
from partirvm.data.source import check_row_count, tile_rows_for
from partirvm.data.tables import Reader
from partirvm.data.writer import ExternalSorter, Progress, Publication, publication, write_tiles
from partirvm.data.written import Reading
from partirvm.data.zarr_source import DataAttributes, ZarrSource
from partirvm.errors import DataError, MemoryLimitError, UsageError
from partirvm.options.constraints import Check
from partirvm.process import return_freed_memory
from partirvm.quoting import listed
from partirvm.storage import Where, storing
from partirvm.storage.address import address
from partirvm.types import Columns, Float

COLUMN_OPTIONS = ("classes", "exclude", "dates", "numeric", "decimal", "thousands")
"""Options that say how columns are read; appended rows are read like the rows before."""


def ingest(
    source: Any,
    data: Where,
    *,
    target: str | Sequence[str] | None = None,
    features: Sequence[str] | None = None,
    exclude: Sequence[str] = (),
    categorical: str | Sequence[str] = "auto",
    weights: str | None = None,
    noise: str | None = None,
    groups: str | Groups | None = None,
    classes: bool = False,
    missing: Sequence[str] = (),
    dates: Mapping[str, str] | None = None,
    numeric: Sequence[str] = (),
    decimal: str | None = None,
    thousands: str | None = None,
    drop_missing_targets: bool = False,
    skip_rows: int | str | Sequence[int] | None = None,
    header: bool | None = None,
    skip_bad_rows: bool = False,
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
        A text file (.csv, .tsv, .txt, .data, .dat; also packed as .gz, .bz2, .zst or .zip), a
        spreadsheet (.xlsx, .xls, .ods; extra ``spreadsheet``), a Parquet or .npz file; a folder or
        glob of such files, whose folders may be named as in ``year=2023``; an fsspec URL; a pandas,
        polars or Dask data frame; or a tuple (X, y) or (X, y, weights) of NumPy, Zarr or Dask
        arrays, with y of shape (N,) or (N, T). Categorical columns of a data frame become
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
    exclude : sequence of str
        Columns to leave out.
    categorical : "auto", "none" or sequence of str
        Features whose values are labels, stored as integer codes; a sequence may contain "auto",
        which means all text columns. Dates and times not listed here become days since 2000-01-01
        UTC, with the sine and cosine of the day, week and year cycles that they span. Missing
        feature values are stored as NaN.
    weights, noise : str, optional
        Column of precision weights, zero or positive; or, instead, of positive relative noise r.
        The noise variance of a row is σ² divided by its weight in units of the mean weight, so that
        a common factor of the weights has no effect; with noise r, it is σ²·r², and the scale of r
        matters. Rows of weight 0 are left out, except with ``like``.
    groups : str or Groups, optional
        Which rows belong together, and are left out together wherever a fit leaves out rows: the
        column of their labels, which then is no feature, or ``Groups``, such as
        ``Groups.by_time("when", "7d")``; as text ``"station"``, ``"when:7d"`` or ``"x,y:20"``.
    classes : bool
        True if the target is a class. Classes are stored as codes 0 … K−1, and their labels in the
        attributes.
    missing : sequence of str
        Strings that stand for a missing value, such as ``"?"``, in addition to empty cells, NA and
        NaN; ``"inf"`` matches all infinite values.
    dates : dict, optional
        Text columns with dates in a format other than ISO, and that format, such as ``{"day":
        "%d/%m/%Y"}``; or the order of day, month and year in all formats of the column: ``"dmy"``,
        ``"mdy"`` or ``"ymd"``. By default, the order is decided from all dates of the column.
    numeric : sequence of str
        Columns of numbers: other texts in them are missing values. Other columns are recognised as
        numbers if at least 95 % of their distinct texts are. Numbers may have a currency or a unit,
        thousands separators, a decimal comma, a percent sign, a suffix such as k or M, and
        parentheses for negative numbers; how they are written is decided from all rows of the
        column, and stored in DATA.
    decimal, thousands : str, optional
        Decimal mark and thousands separator of columns whose numbers can be read in two ways, such
        as 1,234 in all rows. Without these options, such columns are an error.
    drop_missing_targets : bool
        Leave out rows whose target is missing; otherwise such rows are an error.
    skip_rows : int or tuple of int, optional
        The number of lines before the header of each text file or sheet and, in a tuple, also of
        rows after the last one, such as totals. By default, both are found.
    header : bool, optional
        False if the first row holds values: the columns are then named x1, x2, …. True if it holds
        names. By default, this is found.
    skip_bad_rows : bool
        Leave out rows with the wrong number of fields; otherwise such rows are an error.
    auto : bool
        Accept all proposals (gaps, text as classes, and the removal of columns without information
        and of rows without a target) and read the source again. ``notes`` of the result lists what
        was accepted. What only you can decide, such as whether the day or the month comes first,
        remains an error.
    shuffle : int or None
        Shuffle seed; None keeps the order of the source. Appended rows keep their order if the rows
        of DATA did.
    like : DATA or path, optional
        Use the features, categories, target and classes of the DATA ``like``, for a test set or for
        rows to predict. A label that is no category of ``like`` counts as missing, with an
        ``UnseenLevelWarning``; a class missing from ``like`` is an error. Without a target column,
        the new DATA can be used only for prediction.
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
    exclude = tuple(exclude)
    Check("whole", least=0, optional=True)("shuffle", shuffle)
    Check("whole", least=1, optional=True)("tile_rows", tile_rows)
    options = {
        "target": target,
        "features": features,
        "exclude": exclude,
        "categorical": _names(categorical),
        "weights": weights,
        "noise": noise,
        "groups": groups,
        "classes": classes,
        "missing": missing,
        "dates": dates,
        "numeric": _names(numeric),
        "decimal": decimal,
        "thousands": thousands,
        "drop_missing_targets": drop_missing_targets,
        "skip_rows": None if skip_rows is None else spelled(skip_rows),
        "header": header,
        "skip_bad_rows": skip_bad_rows,
        "shuffle": shuffle,
        "like": like,
        "memory_limit": memory_limit,
        "tile_rows": tile_rows,
        "overwrite": overwrite,
        "append": append,
        "again": again,
    }
    _check_options(options)
    return _ingest(source, data, options, REREADS if auto else 0, progress)


def _names(columns: str | Sequence[str]) -> tuple[str, ...]:
    """Return the names of one or several columns."""
    return (columns,) if isinstance(columns, str) else tuple(map(str, columns))


def _check_options(options: Mapping[str, Any]) -> None:
    """Raise ``UsageError`` for options of columns beside ``append``, and for unknown marks of
    numbers."""
    defines_columns = (
        options["features"] is not None
        or options["like"] is not None
        or options["categorical"] != ("auto",)
        or any(map(options.__getitem__, COLUMN_OPTIONS))
    )
    if options["append"] and (defines_columns or options["tile_rows"] or options["overwrite"]):
        raise UsageError(
            "append takes features, categories, classes and tile_rows from the dataset: leave "
            "them out"
        )
    check_marks(options)


def _ingest(
    source: Any, data: Where, options: dict[str, Any], rereads: int, progress: Progress | None
) -> ZarrSource:
    """Write DATA, or append to them.

    Args:
        source: source of the rows
        data: DATA to write
        options: options of ``ingest`` by name; ``memory_limit`` may be a ``Budget``
        rereads: maximum number of times that the source is read again with the proposed options
        progress: function called with the phase, rows done and total rows
    """
    shuffle = options["shuffle"]
    tile_rows = options["tile_rows"]
    url = address(data)
    known = _columns_like(options["like"])
    return_freed_memory()
    # Arrow's other allocators retain freed memory
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
    limit = options["memory_limit"]
    room = room_of(limit)

    def open_with(options: Mapping[str, Any]) -> Reader:
        return open_table(source, room, file_options(options, known))

    table = open_with(options)
    with publication(url, overwrite=options["overwrite"], append=options["append"]) as place:
        before = place.before
        if before is not None:
            known = before.columns
            tile_rows = before.tile_rows
            shuffle = None if before.seed is None else shuffle or 0
            options = {**options, "groups": before.groups}
            table = open_with(options)
        if known is None:
            _require_target(table, source, url, options)
        task = _Ingest(
            table,
            open_with,
            url,
            place,
            known,
            shuffle,
            tile_rows,
            Budget.of(limit),
            report=progress or (lambda phase, done, total: None),
        )
        reading = task.read_until_settled(options, rereads)
        with reading.rows:
            _refuse_unusable(reading, source, url, {**options, "auto": rereads > 0})
            attributes = task.write(reading, options)
        if not options["again"]:
            _require_new_rows(attributes, url)
        place.commit(attributes)
    reading.encoder.facts.unseen.warn(table.name, reading.encoder.facts.n_rows)
    return reading.stored(data, attributes)


def _columns_like(like: Any) -> Columns | None:
    """Return the columns of DATA, which may be passed as columns, as DATA or as a path."""
    return like if like is None or isinstance(like, Columns) else as_source(like).columns


@dataclass(frozen=True)
class _Reading:
    """The result of reading a table.

    Attributes:
        table: table that was read
        encoder: encoder of the records, with its findings
        rows: records (n, 2 + columns read) in temporary files
        accepted: proposals that were accepted before the table was read
    """

    table: Reader
    encoder: Encoder
    rows: ExternalSorter
    accepted: list[Finding]

    def discard(self) -> None:
        """Remove the records."""
        self.rows.remove()

    def findings(self) -> list[Finding]:
        """Return the problems of the rows and columns, and proposals for them.

        Predictions are matched to rows by position, so that no row to predict is left out unless
        this is requested.
        """
        findings = self.table.findings()
        roles = self.encoder.facts.roles
        if not roles.targets:
            findings = [
                replace(finding, asks=True) if "skip_bad_rows" in finding.remedy else finding
                for finding in findings
            ]
        for target in roles.targets:
            copies = [name for name in roles.features if self.table.copies.get(name) == target]
            if copies:
                found = f"{len(copies) + 1} columns have this name, perhaps with the same values"
                findings.append(Finding(target, found, {"exclude": tuple(copies)}))
        return findings + self.encoder.findings.all()

    def stored(self, data: Where, attributes: DataAttributes) -> ZarrSource:
        """Return the DATA to which the table was written, with remarks on its rows and columns."""
        stored = ZarrSource(data)
        stored.left_out = self.encoder.facts.dropped
        stored.rows_left_out = self.table.rows_left_out()
        inputs = attributes.moments.inputs
        stored.notes = self.encoder.remarks.described(inputs.missing / inputs.n, self.accepted)
        return stored


@dataclass(frozen=True)
class _Ingest:
    """An ingest of a table into a new group of DATA.

    Attributes:
        table: table to read
        open_with: function that opens the table with options of ``ingest``
        url: address of the DATA
        place: group to write, and the attributes of the DATA to append to
        known: columns of other DATA that the table must match, or None
        shuffle: shuffle seed, or None to keep the order
        tile_rows: rows per tile, or None to compute them from the shape of the data
        budget: memory limit
        report: function called with the phase, rows done and total rows
    """

    table: Reader
    open_with: Callable[[Mapping[str, Any]], Reader]
    url: str
    place: Publication
    known: Columns | None
    shuffle: int | None
    tile_rows: int | None
    budget: Budget
    report: Progress

    def read_until_settled(self, options: Mapping[str, Any], rereads: int) -> _Reading:
        """Read the table, and reread it with the proposed options at most ``rereads`` times, or if
        all rows show that its texts are written in another way than the first rows."""

        def read(
            options: Mapping[str, Any],
            accepted: list[Finding],
            readings: Mapping[str, Reading],
        ) -> _Reading:
            task = replace(self, table=self.open_with(options)) if accepted else self
            return task._read(options, accepted, readings)

        return read_until_settled(read, options, rereads)

    def _read(
        self, options: Mapping[str, Any], accepted: list[Finding], readings: Mapping[str, Reading]
    ) -> _Reading:
        """Read the table and write its records to temporary files.

        Args:
            options: options of ``ingest`` by name
            accepted: proposals that were accepted before
            readings: how text columns are read, as far as all their rows have been read before
        """
        table = self.table
        before = self.place.before
        roles = assign_roles(table, self.known, options)
        if before is not None:
            _require_same_roles(before, roles, self.url)
        # rows to predict or to score stay, so that there is an output for each of them
        is_test = self.known is not None and before is None
        encoder = Encoder(roles, table, self.known, readings, weightless=is_test)
        width = roles.record_width
        held = table.held(roles.read)
        batch_bytes = self.budget.batch_bytes(table, width, self._expected_tile_rows(roles), held)
        rows = ExternalSorter(self.place.spill, width, high=None if self.shuffle is None else 1.0)
        for records in encoder.records(self.shuffle, batch_bytes):
            with storing("the spill files beside the data"):
                rows.add(records)
            # settled_memory also frees memory: pages of many sizes leave gaps
            if self.budget.used() > self.budget.limit:
                raise MemoryLimitError(f"{table.name}: reading exceeded memory_limit: {MORE}.")
            self.report("read", encoder.facts.n_rows, table.n_rows)
        if encoder.facts.weightless and not encoder.facts.n_rows:
            raise DataError(f"{table.name}: the weights are all zero: there is nothing to fit")
        least = 2 if roles.targets and before is None else 1
        if encoder.facts.n_rows < least:
            refuse(table.name, table.findings())
        check_row_count(encoder.facts.n_rows, least, table.name)
        return _Reading(table, encoder, rows, accepted)

    def write(self, reading: _Reading, options: Mapping[str, Any]) -> DataAttributes:
        """Write the records that were read as tiles, and return the attributes of all rows. The
        attributes include the ``options`` of the user for reading files."""
        encoder = reading.encoder
        facts = encoder.facts
        roles = facts.roles
        columns = replace(facts.stored_columns(), reading=reading_options(options, self.known))
        read_width = roles.record_width
        cycles = len(columns.features) - len(columns.given)
        width = read_width + cycles
        tile_rows = self._expected_tile_rows(roles)
        sort_bytes = self.budget.sort_bytes(width, tile_rows) * read_width // width
        attributes = self.place.before or DataAttributes(
            columns,
            tile_rows=self.tile_rows or tile_rows_for(facts.n_rows, roles.tile_width + cycles),
            seed=None if self.shuffle is None else int(self.shuffle),
            weighted=roles.weights is not None,
            labelled=bool(roles.targets),
            has_known_noise=roles.noisy,
            groups=None if roles.groups is None else str(roles.groups),
        )
        blocks = (
            encoder.finished(block, attributes.n_rows) for block in reading.rows.blocks(sort_bytes)
        )
        last_rows = _last_rows(self.url, attributes)
        attributes = replace(attributes, unseen=attributes.unseen + facts.unseen)
        return write_tiles(self.place, attributes, last_rows, blocks, facts.n_rows, self.report)

    def _expected_tile_rows(self, roles: Roles) -> int:
        """Return the rows per tile for which memory is reserved before the rows are counted."""
        return self.tile_rows or tile_rows_for(self.table.n_rows or 1 << 40, roles.tile_width)


READING = ("skip_rows", "header", "skip_bad_rows")
"""Options for the reading of files. They are stored in DATA, and apply to later files, too."""


def reading_options(options: Mapping[str, Any], known: Columns | None) -> dict[str, Any]:
    """Return the options of the user for the reading of files, or else those of the ``known``
    columns."""
    reading = {} if known is None else dict(known.reading)
    for name in READING:
        value = options.get(name)
        if value is not None and (value or name == "header"):
            reading[name] = value
    return reading


def file_options(options: Mapping[str, Any], known: Columns | None) -> FileOptions:
    """Return how files are read, with the names of columns in the options and of the ``known``
    columns."""
    names = set[str]()
    for name in ("target", "features", "exclude", "categorical", "weights", "noise", "dates"):
        value = options.get(name) or ()
        names.update([value, *value.split(",")] if isinstance(value, str) else map(str, value))
    labels = set[str]()
    if known is None and options.get("classes"):
        labels.update(text for text in null_texts() if text)
    if known is not None:
        names.update((*known.given, *known.target_names(max(len(known.targets), 1))))
        for levels in (known.classes or (), *known.categories.values()):
            labels.update(level for level in levels if isinstance(level, str))
    return FileOptions.of(reading_options(options, known), names - {"auto", "none"}, labels)


def _require_target(table: Reader, source: Any, url: str, options: Mapping[str, Any]) -> None:
    """Raise ``DataError`` if a table without a header has no column with the name of the target.

    Args:
        table: table to read
        source: source of the rows
        url: address of the DATA
        options: options of ``ingest`` by name
    """
    target = options["target"] or ()
    names = [target] if isinstance(target, str) else target
    if not table.numbered or (names and set(names) <= set(table.columns)):
        return
    last = {**options, "header": False, "target": table.columns[-1]}
    raise DataError(
        f"{table.name}: the first row looks like the rows after it, so that there are no names: "
        f"the columns are {listed(table.columns)}. If the last one is the target: "
        f"`{_command(source, url, last)}`; if the first row holds names, pass header=True "
        "(`--header`)"
    )


def _refuse_unusable(reading: _Reading, source: Any, url: str, options: Mapping[str, Any]) -> None:
    """Raise ``DataError`` if rows or columns cannot be used, or if no feature is left.

    Args:
        reading: the last reading of the table
        source: source of the rows
        url: address of the DATA
        options: options with which ``ingest`` was called, by name
    """
    findings = reading.findings()
    refuse(reading.table.name, findings, _closing(source, url, options, findings))
    reading.encoder.findings.require_features()


def _closing(
    source: Any, url: str, options: Mapping[str, Any], findings: Sequence[Finding]
) -> list[str]:
    """Return lines with the command that ingests a file with all fatal findings resolved, or no
    lines if there is no such command, as for rows that are read for a prediction.

    Args:
        source: source of the rows; a command exists only for a file
        url: address of the DATA
        options: options with which ``ingest`` was called, by name
        findings: findings of the last reading
    """
    fatal = [finding for finding in findings if finding.fatal]
    is_file = isinstance(source, str | os.PathLike) and not isinstance(options["like"], Columns)
    if not is_file or not all(finding.remedy for finding in fatal):
        return []
    command = _command(source, url, remedied(options, fatal))
    first = ", by the first remedy where there are two" * any(map(_has_choice, fatal))
    perhaps = any(not finding.fatal and not finding.asks for finding in findings)
    auto = " (add --auto to accept what is marked perhaps)" * perhaps
    noun = "this problem" if len(fatal) == 1 else "these problems"
    return ["", f"command that resolves {noun}{first}{auto}:", f"  {command}"]


def _has_choice(finding: Finding) -> bool:
    """Return True if a finding can be resolved in two ways."""
    return bool(finding.alternative)


def _command(source: Any, url: str, options: Mapping[str, Any]) -> str:
    """Return the command that ingests a file with options that differ from the defaults.

    Args:
        source: source of the rows
        url: address of the DATA
        options: options of ``ingest`` by name
    """
    parameters = signature(ingest).parameters
    changed = dict[str, Any]()
    for name, value in options.items():
        default = parameters[name].default
        if value not in (default, (default,)):
            changed[name] = value
    command = shlex.join(["partirvm", "ingest", os.fspath(source), url])
    return " ".join([command, *flags(changed)])


def _require_same_roles(before: DataAttributes, new: Roles, url: str) -> None:
    """Raise ``DataError`` if the new rows differ from DATA in their targets or in whether they have
    weights or known noise."""
    columns = before.columns
    targets = (columns.targets or (columns.target,)) if before.labelled else ()
    if (
        targets == new.targets
        and before.weighted == (new.weights is not None)
        and before.has_known_noise == new.noisy
    ):
        return
    kind = "known noise" if before.has_known_noise else "weights"
    weights = f"{'with' if before.weighted else 'without'} {kind}"
    raise DataError(
        f"{url}: the dataset has the targets [{listed(targets)}] {weights}, unlike the new "
        f"rows (targets [{listed(new.targets)}]): append only rows with the same columns in the "
        "same order"
    )


def _require_new_rows(attributes: DataAttributes, url: str) -> None:
    """Raise ``DataError`` if DATA already contain the last batch of rows."""
    n_rows = attributes.batches[-1][0]
    if attributes.batches[-1] in attributes.batches[:-1]:
        raise DataError(
            f"{url}: these {n_rows:,} rows were ingested or appended already: to append them once "
            "more, pass again=True (`--again`)"
        )


def _last_rows(url: str, before: DataAttributes) -> Float:
    """Return the records of the last tile of DATA if it is not full, otherwise none."""
    last, n_rows = divmod(before.n_rows, before.tile_rows)
    if not n_rows:
        grouped = before.groups is not None
        width = 2 + before.n_features + before.n_targets + before.weighted + grouped
        return np.empty((0, width))
    source = ZarrSource(url)
    tile = source.tile(last)
    numbers = source.original_rows(last)
    others = [values for values in (tile.weights, tile.groups) if values is not None]
    return np.column_stack([numbers, numbers, tile.X, tile.t, *others])
