"""Data frames as rows of a fit: read like the files of ``ingest(auto=True)``, with one warning that
lists what was converted."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from partirvm.data.convert import arrays_table
from partirvm.data.encode import Encoder
from partirvm.data.frames import is_frame, pandas_frame
from partirvm.data.problems import Finding, python_options, refuse, remedied
from partirvm.data.roles import Roles, check_roles, feature_roles
from partirvm.data.settling import REREADS, read_until_settled
from partirvm.data.source import default_names, numeric_array
from partirvm.data.tables import Reader
from partirvm.data.unseen import with_known_codes
from partirvm.data.written import Reading
from partirvm.errors import DataError, DataWarning, warn
from partirvm.options.values import ColumnOptions
from partirvm.quoting import listed, named, quoted
from partirvm.types import Columns, Float


def checked_rows(X: Any, columns: Columns) -> Float:
    """Return X, an array, nested lists or a data frame with labels, as a float64 array, or raise
    ``DataError``.

    Labels and codes that the training rows do not have become NaN, with a warning.
    """
    X = pandas_frame(X)
    rows = frame_rows(X, columns) if is_frame(X) else numeric_array("X", X).astype(np.float64)
    if np.isinf(rows).any():
        raise DataError("X has infinite values: remove or fill them")
    rows = np.ascontiguousarray(rows)
    has_features = rows.ndim == 2 and rows.shape[1] == len(columns.features)
    return with_known_codes(rows, columns) if has_features else rows


def frame_rows(X: Any, columns: Columns) -> Float:
    """Return a pandas frame's rows (n, d) as float64, read like the rows of the fit.

    Labels that the training rows do not have become NaN, with a warning. Raises ``DataError`` for
    unusable values.
    """
    X = in_order(X, columns)
    names = columns.given
    table = arrays_table(X.set_axis(list(names), axis=1))
    roles = Roles(
        names,
        categorical=tuple(columns.categories),
        missing=columns.missing,
        formats=columns.formats,
    )
    check_roles(roles, table)
    reading = _read(table, roles, columns)
    fatal = [finding for finding in reading.encoder.findings.all() if finding.fatal]
    refuse(table.name, [replace(finding, remedy={}) for finding in fatal])
    rows = reading.finished()
    reading.encoder.facts.unseen.warn(table.name, len(rows))
    return rows


@dataclass(frozen=True)
class FrameRows:
    """Rows of a data frame as numbers.

    Attributes:
        rows: rows (n, d)
        columns: names and meanings of the columns
    """

    rows: Float
    columns: Columns


def new_rows(X: Any, options: ColumnOptions | None = None) -> FrameRows:
    """Return a pandas frame's rows and columns, read like a file with ``auto``.

    A warning lists text columns that were not read as labels, and columns that were left out.
    Raises ``DataError`` for unusable values and for columns that can be read in two ways, and
    ``UsageError`` for unknown options.
    """
    table = arrays_table(X.set_axis(list(text_names(X)), axis=1))
    requested = (options or ColumnOptions()).settings()

    def read(
        settings: Mapping[str, Any], accepted: list[Finding], readings: Mapping[str, Reading]
    ) -> "_FrameReading":
        return _read(table, feature_roles(table, settings), None, readings, tuple(accepted))

    reading = read_until_settled(read, requested, REREADS)
    findings = reading.findings()
    fatal = [finding for finding in findings if finding.fatal]
    closing = []
    if all(finding.remedy for finding in fatal):
        defaults = ColumnOptions().settings()
        changed = {name: value for name, value in requested.items() if value != defaults[name]}
        option = python_options(remedied(changed, fatal))
        closing = ["", f"for example, pass to the estimator: columns=ColumnOptions({option})"]
    refuse(table.name, fatal, closing, python_options)
    reading.warn_of_conversions()
    return FrameRows(reading.finished(), reading.encoder.facts.stored_columns())


@dataclass(frozen=True)
class _FrameReading:
    """The result of reading a data frame.

    Attributes:
        encoder: encoder of the records, with its findings
        records: records (n, 2 + columns read)
        accepted: proposals that were accepted before the frame was read
    """

    encoder: Encoder
    records: Float
    accepted: tuple[Finding, ...]

    def findings(self) -> list[Finding]:
        """Return the problems of the columns, and proposals for them, unless these would leave no
        feature."""
        findings = self.encoder.findings.all()
        proposals = [finding for finding in findings if not finding.asks]
        excluded = remedied({}, proposals).get("exclude", ())
        if set(excluded) < set(self.encoder.facts.roles.features):
            return findings
        fatal = [finding for finding in findings if finding.fatal]
        return [finding if finding.asks else replace(finding, remedy={}) for finding in fatal]

    def discard(self) -> None:
        """Do nothing: the records are in memory."""

    def finished(self) -> Float:
        """Return the rows (n, d)."""
        return np.ascontiguousarray(self.encoder.finished(self.records, 0)[:, 2:])

    def warn_of_conversions(self) -> None:
        """Warn if text columns were not read as labels, or if columns were left out."""
        accepted = {finding.column: _accepted(finding) for finding in self.accepted}
        conversions = self.encoder.remarks.conversions()
        if not any(accepted.values()) and not self.encoder.facts.guesses():
            return
        remarks = list[str]()
        for name in dict.fromkeys((*conversions, *accepted)):
            parts = filter(None, (conversions.get(name), accepted.get(name)))
            remarks.append(f"{named(name)}: {', '.join(parts)}")
        warn(
            "the data frame was read like a file, and predict will read frames alike: "
            f"{'; '.join(remarks)}. To change this, pass columns=ColumnOptions(…) to the estimator",
            DataWarning,
        )


def _accepted(finding: Finding) -> str:
    """Return what was made of a column because of a finding, if its reading does not say it."""
    if "exclude" in finding.remedy:
        return f"left out: {finding.found}"
    if "missing" in finding.remedy:
        return f"missing where it has {listed(finding.remedy['missing'], show=quoted)}"
    return ""


def _read(
    table: Reader,
    roles: Roles,
    columns: Columns | None,
    readings: Mapping[str, Reading] | None = None,
    accepted: tuple[Finding, ...] = (),
) -> _FrameReading:
    """Read a data frame.

    Args:
        table: table to read
        roles: roles of its columns
        columns: columns of the fit, or None if the table defines them
        readings: how text columns are read, as far as all their rows have been read before
        accepted: proposals that were accepted before
    """
    encoder = Encoder(roles, table, columns, readings, chosen=True)
    empty = np.empty((0, 2 + len(roles.wanted)))
    blocks = [block.copy() for block in encoder.records(None, table.most_batch)]
    return _FrameReading(encoder, np.concatenate([empty, *blocks]), accepted)


def text_names(X: Any) -> tuple[str, ...]:
    """Return the names of a frame's columns, or default names if they are not all text."""
    if all(isinstance(name, str) for name in X.columns):
        return tuple(X.columns)
    return default_names(X.shape[1])


def in_order(X: Any, columns: Columns) -> Any:
    """Return a frame's columns in the model's order, or all columns if the model's have default
    names. Raises ``DataError`` if columns are missing."""
    wanted = columns.given
    names = list(map(str, X.columns))
    if not set(wanted) <= set(names) and set(wanted) <= set(text_names(X)):
        names = list(text_names(X))
    missing = [name for name in wanted if name not in names]
    if missing and wanted != default_names(len(names)):
        raise DataError(
            "the data frame lacks columns on which the model was trained: "
            f"{listed(missing)}. It has {listed(names)}"
        )
    if missing or tuple(names) == wanted:
        return X
    return X.iloc[:, [names.index(name) for name in wanted]]
