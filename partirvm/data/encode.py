"""The conversion of the columns of an ingested table to float64 rows."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np

from partirvm.data import problems
from partirvm.data.column_facts import ColumnFacts, TableFacts
from partirvm.data.column_findings import ColumnFindings
from partirvm.data.column_remarks import ColumnRemarks
from partirvm.data.problems import Values
from partirvm.data.roles import Roles
from partirvm.data.shapes import shaped
from partirvm.data.tables import Batch, Reader, is_text, numbers
from partirvm.data.written import (
    Marks,
    Reading,
    WrittenColumn,
    recognise,
)
from partirvm.types import Bool, Columns, Float

FIRST_ROWS = 10_000
"""Maximum number of rows from which the kind of a text column is recognised."""

FIRST_BYTES = 12 << 20
"""Size in bytes of the batch from which the kind of text columns is recognised."""


class Encoder:
    """Encodes batches as float64 records: features in order, then targets, then weights and groups
    if there are any. Unusable values become NaN; ``findings`` reports them.

    Attributes:
        facts: what was collected about the table
    """

    def __init__(
        self,
        roles: Roles,
        table: Reader,
        like: Columns | None,
        readings: Mapping[str, Reading] | None = None,
        *,
        chosen: bool = False,
        weightless: bool = True,
    ) -> None:
        """Prepare to read a table.

        Args:
            roles: roles of the columns
            table: table to read
            like: columns of other data, whose labels, date cycles and grammars apply, or None
            readings: how the text columns are read, by name, if all rows were read before; by
                default recognised from the first rows
            chosen: True if the user chose the features: numbers are kept as they are, and text
                with too many labels is an error
            weightless: False to leave out rows of weight 0
        """
        self.facts = TableFacts.of(roles, table, like, chosen=chosen)
        self._readings = dict(readings or {})
        self._takes_weightless = weightless
        self._row = 0  # first row of the batch in the table

    @property
    def name(self) -> str:
        """The name of the table in messages."""
        return self.facts.table.name

    def records(self, seed: int | None, batch_bytes: int) -> Iterator[Float]:
        """Yield records (shuffle key, row number, features, targets, weights, group) in one buffer
        that all batches share."""
        rng = None if seed is None else np.random.default_rng(seed)
        facts = self.facts
        wanted = facts.roles.wanted
        groups = facts.roles.groups
        space = np.empty((0, facts.roles.record_width))
        for batch in facts.table.batches(facts.roles.read, batch_bytes):
            start = facts.n_rows
            n_rows = len(batch[wanted[0]])
            self._row = facts.n_rows + facts.dropped + facts.weightless
            if len(space) < n_rows:
                space = np.empty((n_rows, space.shape[1]))
            if not self._row and facts.like is None:
                self._recognise(batch)
            for place, name in enumerate(wanted, 2):
                self._encode(facts.columns[name], batch[name], space[:n_rows, place])
            if groups is not None:
                space[:n_rows, -1] = groups.codes([batch[name] for name in groups.columns])
            records = self._checked(space[:n_rows])
            facts.n_rows += len(records)
            facts.unseen_rows += int(self._are_unseen(records).sum())
            del batch  # free the memory before the next batch is read
            records[:, 1] = np.arange(start, facts.n_rows)
            records[:, 0] = records[:, 1] if rng is None else rng.random(len(records))
            yield records

    def _are_unseen(self, records: Float) -> Bool:
        """Return a mask of the records (n, 2 + columns) with a label that the data ``like`` do not
        have."""
        are_unseen = np.zeros(len(records), dtype=np.bool_)
        for place, name in enumerate(self.facts.roles.wanted, 2):
            levels = self.facts.columns[name].levels
            if levels is not None and levels.unseen:
                are_unseen |= records[:, place] == levels.unseen_code
        return are_unseen

    def _encode(self, column: ColumnFacts, values: Any, into: Float) -> None:
        """Write the codes or numbers of a batch of a column's values to ``into`` (n,)."""
        values = self._without_gaps(values, self._gaps_of(column))
        if column.levels is None:
            into[:] = self._numbers(column, values)
            column.n_numbers += len(into) - int(np.isnan(into).sum())
        else:
            into[:] = column.levels.codes(values)
        if column.values is not None:
            column.values.add(into)

    def _recognise(self, batch: Batch) -> None:
        """Decide from the first rows which columns contain dates (possibly as text) or, with
        ``auto``, categories."""
        if self.facts.table.untyped:
            # not the first batch, whose size depends on the available memory
            batch = next(self.facts.table.batches(self.facts.roles.wanted, FIRST_BYTES))
        for name in self.facts.roles.wanted:
            column = self.facts.columns[name]
            if column.levels is not None or column.dates is not None:
                continue
            values = self._without_gaps(batch[name][:FIRST_ROWS], self._gaps_of(column))
            reading = self._reading_of(column, values)
            column.written = WrittenColumn(reading, complete=name in self._readings)
            if name not in self.facts.roles.features:
                continue
            if reading.kind == "dates":
                self.facts.read_as_dates(column, reading.order)
            elif reading.kind == "booleans":
                column.note = "true and false, as 1 and 0"
            elif reading.kind == "labels" and self.facts.roles.auto:
                column.levels = self.facts.levels_of(name)
            elif column.has_text or not self.facts.chosen:
                column.values = Values()

    def _reading_of(self, column: ColumnFacts, values: Any) -> Reading:
        """Return how a column is read, from an earlier reading of all rows or from its first
        values."""
        import pyarrow as pa

        if pa.types.is_temporal(values.type):
            return Reading("dates")
        if not is_text(values.type):
            return Reading("booleans" if pa.types.is_boolean(values.type) else "numbers")
        column.has_text = True
        if column.name in self._readings:
            return self._readings[column.name]
        reading = recognise(values.drop_null().unique(), self.facts.marks_of(column))
        plain = self.facts.plain_grammar(column.name)
        if plain.gaps:
            return Reading(grammar=replace(reading.grammar, gaps=True))
        return reading

    def readings(self) -> dict[str, Reading]:
        """Return how all texts of the table are to be read, by column, if this differs from how
        they were read; empty if nothing has to be read again."""
        if self.facts.like is not None:
            return {}
        changed = dict[str, Reading]()
        readings = dict[str, Reading]()
        for name, column in self.facts.columns.items():
            if column.named:
                continue
            reading = self._decided(column, self.facts.marks_of(column))
            readings[name] = reading
            if reading != column.written.reading or column.written.incomplete:
                changed[name] = reading
        return {**readings, **changed} if changed else {}

    def _decided(self, column: ColumnFacts, marks: Marks) -> Reading:
        """Return how all texts of a column are to be read."""
        if column.levels is None:
            return column.written.decided(marks, self.facts.order_of(column))
        import pyarrow as pa

        labels = [label for label in column.levels.found if isinstance(label, str)]
        return recognise(pa.array(labels, pa.string()), marks)

    def _gaps_of(self, column: ColumnFacts) -> Sequence[str]:
        """Return the texts that are missing values of a column unless they are its labels: the
        classes of a new target are labels, whatever their names."""
        texts = self.facts.table.ambiguous
        if column.levels is None:
            return texts
        if column.name in self.facts.roles.targets and self.facts.like is None:
            return [text for text in texts if not text]
        return [text for text in texts if text not in column.levels.found]

    def _without_gaps(self, values: Any, gaps: Iterable[str] = ()) -> Any:
        """Return plain values, with the strings that mark gaps replaced by missing values."""
        import pyarrow as pa
        import pyarrow.compute as pc

        if isinstance(values, pa.DictionaryArray):
            values = values.dictionary_decode()
        markers = [*self.facts.roles.missing, *gaps]
        if not markers or not is_text(values.type):
            return values
        is_gap = pc.is_in(values, value_set=pa.array(markers, values.type))
        return pc.if_else(is_gap, None, values)

    def _numbers(self, column: ColumnFacts, values: Any) -> Float:
        """Return the numbers or days in an Arrow array. Unusable values become NaN and are
        recorded."""
        import pyarrow as pa

        if is_text(values.type) and (column.dates is None or column.dates.form is None):
            return self._from_texts(column, values)
        for clean in (False, True):
            with suppress(pa.ArrowInvalid, pa.ArrowNotImplementedError):
                if clean:
                    values = self._with_format(column, values)
                if column.dates is not None:
                    return column.dates.days(values)
                if not pa.types.is_temporal(values.type):
                    return numbers(values.cast(pa.float64(), safe=False))
        column.odd["type"].add(np.ones(len(values), bool), self._row, [str(values.type)])
        return np.full(len(values), np.nan)

    def _from_texts(self, column: ColumnFacts, texts: Any) -> Float:
        """Return the numbers or days in an Arrow array of strings (n,)."""
        if column.dates is not None:
            plain = column.written.plain_days(texts, column.dates)
            if plain is not None:
                return plain
            shapes = shaped(texts)
            column.written.dates.add(shapes, self._row)
            values, usable = column.dates.days_in(shapes)
        else:
            plain = column.written.plain_numbers(texts, self._row)
            if plain is not None:
                return plain
            values, usable = column.written.written_numbers(shaped(texts), self._row)
        if not usable.all():
            self._record_text(column, texts, ~usable)
        return values

    def _record_text(self, column: ColumnFacts, texts: Any, rows: Bool) -> None:
        """Record texts that cannot be converted, unless they mark gaps.

        Args:
            column: column of the texts
            texts: Arrow array (n,)
            rows: True for texts that cannot be converted, (n,)
        """
        import pyarrow as pa
        import pyarrow.compute as pc

        odd = texts.filter(pa.array(rows))
        markers = [
            *self.facts.roles.missing,
            *(() if self.facts.like is None else problems.MARKERS),
        ]
        is_gap = pc.is_in(pc.utf8_trim_whitespace(odd), value_set=pa.array(markers, odd.type))
        odd = odd.filter(pc.invert(is_gap))
        if not len(odd):
            return
        rows = rows.copy()
        rows[rows] = ~np.array(is_gap)
        kind = "gaps" if column.written.reading.grammar.gaps else "text"
        column.odd[kind].add(rows, self._row, odd.unique()[: problems.MOST_TEXTS].to_pylist())

    def _with_format(self, column: ColumnFacts, texts: Any) -> Any:
        """Return the strings that have the column's date format; others become missing, and are
        recorded unless they mark gaps."""
        import pyarrow.compute as pc

        if column.dates is None or column.dates.form is None or not is_text(texts.type):
            return texts
        texts = pc.utf8_trim_whitespace(texts)
        days = pc.strptime(texts, format=column.dates.form, unit="us", error_is_null=True)
        odd = pc.and_not(pc.is_valid(texts), pc.is_valid(days))
        if pc.any(odd).as_py():
            self._record_text(column, texts, np.array(odd))
        return pc.if_else(pc.is_valid(days), texts, None)

    def _checked(self, records: Float) -> Float:
        """Return records with noise converted to weights and dropped rows removed. Unusable values
        are recorded."""
        roles = self.facts.roles
        values = records[:, 2 : 2 + len(roles.wanted)]
        n_features = len(roles.features)
        if "inf" in roles.missing:
            values[np.isinf(values)] = np.nan
        if roles.noisy:
            noise = values[:, -1]
            with np.errstate(all="ignore"):
                values[:, -1] = np.copysign(1.0 / noise**2, noise)
        missing = np.isnan(values)
        values[missing] = np.nan  # equal bits give equal hashes of rows
        self.facts.filled |= ~missing.all(axis=0)
        used = np.ones(len(values), bool)
        if roles.drop_missing_targets:
            targets = slice(n_features, n_features + len(roles.targets))
            used &= ~missing[:, targets].any(axis=1)
        self._record("infinite", np.isinf(values), used)
        self._record("without", missing[:, n_features:], used, n_features)
        if roles.weights is not None:
            weights = values[:, -1:]
            usable = (weights >= 0) & np.isfinite(weights)
            self._record("weights", ~usable, used, len(roles.wanted) - 1)
        self.facts.dropped += int((~used).sum())
        if roles.weights is not None and not self._takes_weightless:
            used = self._with_weight(values[:, -1], used)
        return records if used.all() else records[used]

    def _with_weight(self, weights: Float, used: Bool) -> Bool:
        """Return which of the used rows have a weight other than 0, and count the others."""
        has_weight: Bool = used & (weights != 0)
        self.facts.weightless += int(used.sum() - has_weight.sum())
        return has_weight

    def _record(self, kind: str, cells: Bool, used: Bool, first: int = 0) -> None:
        """Record odd cells of a batch.

        Args:
            kind: kind of the odd cells, such as "infinite"
            cells: True for odd cells, (rows, columns)
            used: True for rows that are not dropped, (rows,)
            first: position of the first column of ``cells`` among all columns
        """
        for place in np.flatnonzero(cells[used].any(axis=0)).tolist():
            name = self.facts.roles.wanted[first + place]
            self.facts.columns[name].odd[kind].add(cells[:, place] & used, self._row)

    def finished(self, records: Float, first: int) -> Float:
        """Return the records with final codes and date cycles, and with ``first`` added to the row
        numbers."""
        records[:, 1] += first
        parts = [records[:, :2]]
        unchanged = True
        for place, name in enumerate(self.facts.roles.wanted, 2):
            values = records[:, place]
            if name in self.facts.final:
                _, codes = self.facts.final[name]
                values[:] = codes[np.nan_to_num(values, nan=-1).astype(np.int64)]
            column = self.facts.columns[name]
            if column.dates is not None:
                unchanged = False
                parts += column.dates.expanded(values)
            elif self.facts.is_left_out(column):
                unchanged = False
            else:
                parts.append(values)
        if self.facts.roles.groups is not None:
            parts.append(records[:, -1])
        return records if unchanged else np.column_stack(parts)

    @property
    def findings(self) -> ColumnFindings:
        """Problems of the columns, and proposals for them."""
        return ColumnFindings(self.facts)

    @property
    def remarks(self) -> ColumnRemarks:
        """Remarks on the columns."""
        return ColumnRemarks(self.facts)
