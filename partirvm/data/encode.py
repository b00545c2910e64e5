"""The conversion of the columns of an ingested table to float64 rows."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from partirvm.data import problems
from partirvm.data.date_grammar import ORDER_NAMES, day_of
from partirvm.data.dates import ORIGIN, Dates
from partirvm.data.grammar import PLAIN, plain_text
from partirvm.data.labels import Levels
from partirvm.data.problems import Finding, OddCells, Values
from partirvm.data.roles import Roles
from partirvm.data.shapes import shaped
from partirvm.data.tables import Batch, Reader, is_text, numbers
from partirvm.data.unseen import UnseenLevels
from partirvm.data.written import (
    Marks,
    Reading,
    WrittenColumn,
    are_unknown_numbers,
    is_written,
    recognise,
)
from partirvm.errors import DataError
from partirvm.quoting import counted, listed, quoted
from partirvm.types import Bool, Columns, Float, NumberGrammar, cyclic

MOST_LEVELS = 10_000
"""Maximum number of levels of a text column that is not named as categorical; in short tables, half
the number of rows (at least ``FEW_ROWS`` / 2)."""

FEW_ROWS = 40
"""Number of rows of a table so short that half of them are too few for a limit of levels."""

FIRST_ROWS = 10_000
"""Maximum number of rows from which the kind of a text column is recognised."""

FIRST_BYTES = 12 << 20
"""Size in bytes of the batch from which the kind of text columns is recognised."""


@dataclass
class _Column:
    """Facts collected about a column while the table is read.

    Attributes:
        name: name of the column
        named: True if the options or the data ``like`` say that it contains labels
        levels: labels and their codes, for a column of labels
        dates: range of the dates, for a column of dates
        written: how the texts of a column of numbers or dates are read
        values: distinct values, for a numeric column that may be constant or contain codes
        n_numbers: number of numeric values
        has_text: True if the kind of the column was recognised from its texts
        note: remark on how the column was read, if one is needed
        odd: unusable cells by kind: "text" or "type" that is not a number, text that counts as
            "gaps", "infinite" values, targets and weights "without" a value, and "weights" that are
            negative or infinite
    """

    name: str
    named: bool = False
    levels: Levels | None = None
    dates: Dates | None = None
    written: WrittenColumn = field(default_factory=lambda: WrittenColumn(Reading()))
    values: Values | None = None
    n_numbers: int = 0
    has_text: bool = False
    note: str = ""
    odd: dict[str, OddCells] = field(default_factory=lambda: defaultdict(OddCells))


class Encoder:
    """Encodes batches as float64 records: features in order, then targets, then weights and groups
    if there are any. Unusable values become NaN; ``findings`` reports them.

    Attributes:
        roles: roles of the columns
        n_rows: number of rows read, without dropped rows
        dropped: number of rows dropped because they have no target
        weightless: number of rows left out because their weight is 0
        unseen_rows: number of rows with a label that the data ``like`` do not have
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
        self.roles = roles
        self.n_rows = 0
        self.dropped = 0
        self.unseen_rows = 0
        self._table = table
        self._like = like
        self._chosen = chosen
        self._readings = dict(readings or {})
        self._takes_weightless = weightless
        self.weightless = 0
        self._row = 0  # first row of the batch in the table
        # True for columns in which some row has a value
        self._filled = np.zeros(len(roles.wanted), bool)
        named = (*roles.categorical, *(roles.targets if roles.classes else ()))
        # columns with labels first: categories are stored in this order
        self._columns = {
            name: _Column(name, named=name in named) for name in (*named, *roles.wanted)
        }
        for name in named:
            self._columns[name].levels = self._levels_of(name)
        for name in roles.formats if like is None else like.dates:
            if name in self._columns:
                self._read_as_dates(self._columns[name])
        grammars = {} if like is None else like.numbers
        for name, column in self._columns.items():
            column.written = WrittenColumn(Reading(grammar=grammars.get(name, self._plain(name))))
            if name in roles.targets and column.levels is None:
                column.values = Values()

    @property
    def name(self) -> str:
        """The name of the table in messages."""
        return self._table.name

    def _plain(self, name: str) -> NumberGrammar:
        """Return the grammar of a column's numbers before any text is read."""
        return NumberGrammar(gaps=name in self.roles.numeric)

    def _read_as_dates(self, column: _Column, order: str = "") -> None:
        """Prepare to read a column as dates, in this order of day, month and year unless an option
        sets the format."""
        cycles = None if self._like is None else self._like.dates[column.name]
        column.dates = Dates(cycles, self.roles.formats.get(column.name, order))

    def _levels_of(self, name: str) -> Levels:
        is_target = name in self.roles.targets
        if self._like is None:
            known = self._table.categorical.get(name)
        else:
            known = self._like.classes if is_target else self._like.categories.get(name)
        return Levels(
            f"{self._table.name}: the column {quoted(name)}",
            known,
            untyped=self._table.untyped,
            classes=is_target,
            most=np.inf if name in self.roles.categorical else MOST_LEVELS,
        )

    def records(self, seed: int | None, batch_bytes: int) -> Iterator[Float]:
        """Yield records (shuffle key, row number, features, targets, weights, group) in one buffer
        that all batches share."""
        rng = None if seed is None else np.random.default_rng(seed)
        wanted = self.roles.wanted
        groups = self.roles.groups
        space = np.empty((0, self.roles.record_width))
        for batch in self._table.batches(self.roles.read, batch_bytes):
            start = self.n_rows
            n_rows = len(batch[wanted[0]])
            self._row = self.n_rows + self.dropped + self.weightless
            if len(space) < n_rows:
                space = np.empty((n_rows, space.shape[1]))
            if not self._row and self._like is None:
                self._recognise(batch)
            for place, name in enumerate(wanted, 2):
                self._encode(self._columns[name], batch[name], space[:n_rows, place])
            if groups is not None:
                space[:n_rows, -1] = groups.codes([batch[name] for name in groups.columns])
            records = self._checked(space[:n_rows])
            self.n_rows += len(records)
            self.unseen_rows += int(self._are_unseen(records).sum())
            del batch  # free the memory before the next batch is read
            records[:, 1] = np.arange(start, self.n_rows)
            records[:, 0] = records[:, 1] if rng is None else rng.random(len(records))
            yield records

    def _are_unseen(self, records: Float) -> Bool:
        """Return a mask of the records (n, 2 + columns) with a label that the data ``like`` do not
        have."""
        are_unseen = np.zeros(len(records), dtype=np.bool_)
        for place, name in enumerate(self.roles.wanted, 2):
            levels = self._columns[name].levels
            if levels is not None and levels.unseen:
                are_unseen |= records[:, place] == levels.unseen_code
        return are_unseen

    @property
    def unseen(self) -> UnseenLevels:
        """The rows with labels that the data ``like`` do not have."""
        labels = dict[str, tuple[Any, ...]]()
        for name, column in self._columns.items():
            if column.levels is not None and column.levels.unseen:
                labels[name] = tuple(column.levels.unseen)
        return UnseenLevels(self.unseen_rows, labels)

    def _encode(self, column: _Column, values: Any, into: Float) -> None:
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
        if self._table.untyped:
            # not the first batch, whose size depends on the available memory
            batch = next(self._table.batches(self.roles.wanted, FIRST_BYTES))
        for name in self.roles.wanted:
            column = self._columns[name]
            if column.levels is not None or column.dates is not None:
                continue
            values = self._without_gaps(batch[name][:FIRST_ROWS], self._gaps_of(column))
            reading = self._reading_of(column, values)
            column.written = WrittenColumn(reading, complete=name in self._readings)
            if name not in self.roles.features:
                continue
            if reading.kind == "dates":
                self._read_as_dates(column, reading.order)
            elif reading.kind == "booleans":
                column.note = "true and false, as 1 and 0"
            elif reading.kind == "labels" and self.roles.auto:
                column.levels = self._levels_of(name)
            elif column.has_text or not self._chosen:
                column.values = Values()

    def _reading_of(self, column: _Column, values: Any) -> Reading:
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
        reading = recognise(values.drop_null().unique(), self._marks_of(column))
        plain = self._plain(column.name)
        if plain.gaps:
            return Reading(grammar=replace(reading.grammar, gaps=True))
        return reading

    @property
    def _marks(self) -> Marks:
        """The options that settle how numbers are written."""
        has_commas = self._table.commas or any(
            column.written.reading.grammar.decimal == "," for column in self._columns.values()
        )
        return Marks(self.roles.decimal, self.roles.thousands, points=not has_commas)

    def _marks_of(self, column: _Column) -> Marks:
        """Return the options that settle how a column's numbers are written. Ranges in a target are
        classes."""
        return replace(self._marks, ranges=column.name not in self.roles.targets)

    def readings(self) -> dict[str, Reading]:
        """Return how all texts of the table are to be read, by column, if this differs from how
        they were read; empty if nothing has to be read again."""
        if self._like is not None:
            return {}
        changed = dict[str, Reading]()
        readings = dict[str, Reading]()
        for name, column in self._columns.items():
            if column.named:
                continue
            reading = self._decided(column, self._marks_of(column))
            readings[name] = reading
            if reading != column.written.reading or column.written.incomplete:
                changed[name] = reading
        return {**readings, **changed} if changed else {}

    def _decided(self, column: _Column, marks: Marks) -> Reading:
        """Return how all texts of a column are to be read."""
        if column.levels is None:
            return column.written.decided(marks, self._order_of(column))
        import pyarrow as pa

        labels = [label for label in column.levels.found if isinstance(label, str)]
        return recognise(pa.array(labels, pa.string()), marks)

    def _order_of(self, column: _Column) -> str:
        """Return the order of day, month and year that an option sets, or ""."""
        form = self.roles.formats.get(column.name, "")
        return form if form in ORDER_NAMES else ""

    def _gaps_of(self, column: _Column) -> Sequence[str]:
        """Return the texts that are missing values of a column unless they are its labels: the
        classes of a new target are labels, whatever their names."""
        texts = self._table.ambiguous
        if column.levels is None:
            return texts
        if column.name in self.roles.targets and self._like is None:
            return [text for text in texts if not text]
        return [text for text in texts if text not in column.levels.found]

    def _without_gaps(self, values: Any, gaps: Iterable[str] = ()) -> Any:
        """Return plain values, with the strings that mark gaps replaced by missing values."""
        import pyarrow as pa
        import pyarrow.compute as pc

        if isinstance(values, pa.DictionaryArray):
            values = values.dictionary_decode()
        markers = [*self.roles.missing, *gaps]
        if not markers or not is_text(values.type):
            return values
        is_gap = pc.is_in(values, value_set=pa.array(markers, values.type))
        return pc.if_else(is_gap, None, values)

    def _numbers(self, column: _Column, values: Any) -> Float:
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

    def _from_texts(self, column: _Column, texts: Any) -> Float:
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

    def _record_text(self, column: _Column, texts: Any, rows: Bool) -> None:
        """Record texts that cannot be converted, unless they mark gaps.

        Args:
            column: column of the texts
            texts: Arrow array (n,)
            rows: True for texts that cannot be converted, (n,)
        """
        import pyarrow as pa
        import pyarrow.compute as pc

        odd = texts.filter(pa.array(rows))
        markers = [*self.roles.missing, *(() if self._like is None else problems.MARKERS)]
        is_gap = pc.is_in(pc.utf8_trim_whitespace(odd), value_set=pa.array(markers, odd.type))
        odd = odd.filter(pc.invert(is_gap))
        if not len(odd):
            return
        rows = rows.copy()
        rows[rows] = ~np.array(is_gap)
        kind = "gaps" if column.written.reading.grammar.gaps else "text"
        column.odd[kind].add(rows, self._row, odd.unique()[: problems.MOST_TEXTS].to_pylist())

    def _with_format(self, column: _Column, texts: Any) -> Any:
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
        roles = self.roles
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
        self._filled |= ~missing.all(axis=0)
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
        self.dropped += int((~used).sum())
        if roles.weights is not None and not self._takes_weightless:
            used = self._with_weight(values[:, -1], used)
        return records if used.all() else records[used]

    def _with_weight(self, weights: Float, used: Bool) -> Bool:
        """Return which of the used rows have a weight other than 0, and count the others."""
        has_weight: Bool = used & (weights != 0)
        self.weightless += int(used.sum() - has_weight.sum())
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
            name = self.roles.wanted[first + place]
            self._columns[name].odd[kind].add(cells[:, place] & used, self._row)

    def findings(self) -> list[Finding]:
        """Return the problems of the columns, and proposals for them, in column order."""
        findings = list[Finding]()
        for name in self.roles.wanted:
            column = self._columns[name]
            candidates = (
                self._text_finding(column),
                self._type_finding(column),
                self._value_finding(column),
                self._column_finding(column),
                self._undecided(column),
            )
            findings += [finding for finding in candidates if finding is not None]
        return findings

    def require_features(self) -> None:
        """Raise ``DataError`` if all features are text columns with too many values."""
        names = [name for name in self.roles.features if self._is_left_out(self._columns[name])]
        if len(names) == len(self.roles.features):
            raise DataError(
                f"{self._table.name}: no feature is left: nearly every row has another text in "
                f"{listed(names)}; to use one as a category nevertheless: `--categorical "
                f"{names[0]}`."
            )

    def _without_rows(self, column: _Column) -> dict[str, Any]:
        """Return the options that drop the rows in which a target is missing."""
        return {"drop_missing_targets": True} if column.name in self.roles.targets else {}

    def _without_column(self, column: _Column) -> dict[str, Any]:
        """Return the options that drop a feature; no options if other data define the features."""
        removable = self._like is None and column.name in self.roles.features
        return {"exclude": (column.name,)} if removable else {}

    def _asks(self, remedy: Mapping[str, Any]) -> bool:
        """Return True if a remedy leaves out a column with values that the user chose."""
        return self._chosen and "exclude" in remedy

    def _text_finding(self, column: _Column) -> Finding | None:
        """Return a finding if a column of numbers or dates contains text: a few distinct strings
        are proposed as gaps, many as labels."""
        if "text" not in column.odd:
            return None
        text = column.odd["text"]
        grammar = column.written.reading.grammar
        expected = "numbers"
        if column.dates is not None:
            order = ORDER_NAMES.get(column.dates.order)
            expected = f"dates ({order})" if order else "dates"
        elif not grammar.is_plain:
            expected = f"numbers with {grammar}"
        remedy = self._remedy_of_text(column, text)
        category = dict[str, Any]()
        if "categorical" in remedy and self._is_measured(column):
            category = remedy
            remedy = self._without_text(column, text)
        content = str(text)
        advice = "correct these rows"
        if _like_others(text):
            is_new = self._like is None
            advice = "write all rows alike" if is_new else "write them as in the training rows"
        elif self._like is not None:
            advice = "correct these cells, or leave them empty"
        elif column.name in self.roles.targets and not remedy:
            content = f"{text.described(5)}; too many different ones for classes"
            advice = "choose another target, or correct these rows"
        return Finding(
            column.name,
            f"text, not {expected}: {content}",
            remedy,
            advice,
            alternative=category,
            asks=_like_others(text) or bool(category) or self._asks(remedy),
        )

    def _is_measured(self, column: _Column) -> bool:
        """Return True for a column of dates, or of too many different numbers for labels."""
        values = column.values
        has_many = values is not None and len(values.known) > problems.FEW_LEVELS
        return column.dates is not None or has_many

    def _without_text(self, column: _Column, text: OddCells) -> dict[str, Any]:
        """Return the options by which the text in a column counts as missing values."""
        if len(text.texts) <= problems.FEW_TEXTS or column.dates is not None:
            return {"missing": tuple(text.texts)}
        return {"numeric": (column.name,)}

    def _remedy_of_text(self, column: _Column, text: OddCells) -> dict[str, Any]:
        """Return the options that resolve text in a column of numbers or dates."""
        roles = self.roles
        texts = tuple(text.texts)
        is_target = column.name in roles.targets
        are_gaps = problems.MARKERS.issuperset(texts)
        if _like_others(text) and not are_gaps:
            return {} if is_target else self._without_column(column)
        if not are_gaps and self._has_classes(column, text):
            return {"classes": True, **self._without_gaps_of(column, text)}
        if len(texts) <= problems.FEW_TEXTS and problems.few(texts, text.count, column.n_numbers):
            return {"missing": texts, **self._without_rows(column)}
        if self._like is not None:
            return {}
        if column.dates is None and text.count <= 0.05 * column.n_numbers:
            return {"numeric": (column.name,), **self._without_rows(column)}
        if is_target or column.name == roles.weights:
            return {}
        if len(texts) > self._most_levels:
            return self._without_column(column)
        return {"categorical": ("auto", column.name) if roles.auto else (column.name,)}

    def _has_classes(self, column: _Column, text: OddCells) -> bool:
        """Return True if the texts of a target are few enough for classes, and are not a few
        exceptions among numbers."""
        n_numbers = column.n_numbers
        few_numbers = column.values is not None and column.values.are_few_integers
        n_labels = len(text.texts) + (len(column.values.found) if column.values is not None else 0)
        return (
            self._like is None
            and len(self.roles.targets) == 1
            and column.name in self.roles.targets
            and (text.count > n_numbers / 10 or (few_numbers and n_numbers > 0))
            and n_labels <= max(problems.FEW_LEVELS, (text.count + n_numbers) / 2)
            and len(text.texts) < problems.MOST_TEXTS
        )

    def _without_gaps_of(self, column: _Column, text: OddCells) -> dict[str, Any]:
        """Return the options that drop the rows in which a target of classes has no label."""
        n_missing = column.odd["without"].count if "without" in column.odd else 0
        return self._without_rows(column) if n_missing > text.count else {}

    def _undecided(self, column: _Column) -> Finding | None:
        """Return a finding if the texts of a column can be read in two ways, or if only some of its
        dates have a time zone."""
        if self._like is not None or column.levels is not None:
            return None
        if column.dates is not None:
            return self._undecided_dates(column, column.dates)
        decision = self._marks_of(column).decision(column.written.numbers)
        if decision.alternative is None or decision.facts is None or "text" in column.odd:
            return None
        example = decision.facts
        values = [
            plain_text(example.text, grammar)
            for grammar in (decision.grammar, decision.alternative)
        ]
        return Finding(
            column.name,
            f"{quoted(example.text)} (row {example.row + 1:,}) may be {values[0]} or {values[1]}; "
            "no row shows which is right",
            decision.grammar.flags,
            alternative=decision.alternative.flags,
            readings=(f"reads {values[0]}", f"reads {values[1]}"),
            asks=True,
        )

    def _undecided_dates(self, column: _Column, dates: Dates) -> Finding | None:
        """Return a finding if the order of dates is undecided, or if only some have a zone."""
        if len(dates.zones) > 1:
            return Finding(
                column.name,
                "only some of the times have a time zone",
                self._without_column(column),
                "write the time zone in all rows",
                asks=True,
            )
        decision = column.written.dates.decision(self._order_of(column))
        if not decision.alternative:
            return None
        orders = (decision.order, decision.alternative)
        days = [day_of(decision.text, order) for order in orders]
        return Finding(
            column.name,
            f"{quoted(decision.text)} (row {decision.row + 1:,}) may be {days[0]} or {days[1]}; "
            "no row shows which is right",
            {"dates": {column.name: orders[0]}},
            alternative={"dates": {column.name: orders[1]}},
            readings=(f"reads {days[0]}", f"reads {days[1]}"),
            asks=True,
        )

    def _type_finding(self, column: _Column) -> Finding | None:
        """Return a finding if the type of a column is not numeric, text or date."""
        if "type" not in column.odd:
            return None
        expected = "numbers" if column.dates is None else "dates"
        types = " ".join(column.odd["type"].texts)
        remedy = self._without_column(column)
        return Finding(
            column.name,
            f"{types}, not {expected}",
            remedy,
            "convert this column",
            asks=self._asks(remedy),
        )

    def _value_finding(self, column: _Column) -> Finding | None:
        """Return a finding if a weight, an infinite value or a missing target cannot be used."""
        odd = column.odd
        if column.name == self.roles.weights and "weights" in odd:
            return Finding(column.name, f"no weight ≥ 0, or no noise > 0, in {odd['weights']}")
        without_rows = self._without_rows(column)
        if "infinite" in odd:
            remedy = {"missing": ("inf",), **without_rows}
            return Finding(
                column.name,
                f"infinite values in {odd['infinite']}",
                remedy,
                asks=self._chosen and not column.has_text,
            )
        if "without" in odd and not {"text", "type"} & odd.keys():
            return Finding(column.name, f"no value in {odd['without']}", without_rows)
        return None

    def _column_finding(self, column: _Column) -> Finding | None:
        """Return a finding for a column that has no values, too many labels, labels that mark gaps,
        constant values or possible codes."""
        name = column.name
        without_column = self._without_column(column)
        filled = self._filled[self.roles.wanted.index(name)]
        if without_column and not column.odd and not filled:
            return Finding(name, "no row has a value", without_column)
        levels = column.levels
        if levels is not None and not self._is_left_out(column) and self._has_many(levels, column):
            count = f"{len(levels.found):,} or more different labels, too many for a category"
            if self._chosen:
                texts = listed(levels.found, 3, quoted)
                count = f"free text or an ID: {len(levels.found):,} different texts, {texts}"
            advice = "merge rare labels"
            if name in self.roles.targets:
                advice = "fit a number, without `--classes`, or merge rare classes"
            category = {"categorical": ("auto", name)} if self._asks(without_column) else {}
            return Finding(
                name, count, without_column, advice, alternative=category, asks=bool(category)
            )
        if levels is not None and self._may_be_numbers(column, levels):
            return self._unknown_numbers(column, levels)
        if levels is not None and self._like is None and name not in self.roles.targets:
            gaps = tuple(label for label in levels.found if label in problems.MARKERS)
            if gaps:
                text = f"text, but {listed(gaps, show=quoted)}"
                return Finding(name, text, {"missing": gaps}, fatal=False)
        is_judged = name in self.roles.features and name not in self.roles.numeric
        if column.values is not None and not column.odd and is_judged:
            return column.values.finding(name)
        return None

    def _unknown_numbers(self, column: _Column, levels: Levels) -> Finding:
        """Return the finding for labels that begin with numbers in an unknown notation."""
        texts = [label for label in levels.found if isinstance(label, str)]
        return Finding(
            column.name,
            f"begins with numbers in an unknown notation: {listed(texts, 3, quoted)}",
            {"categorical": ("auto", column.name)},
            alternative=self._without_column(column),
            asks=True,
        )

    def _may_be_numbers(self, column: _Column, levels: Levels) -> bool:
        """Return True if the labels of a column that is not named as categorical may be numbers."""
        if column.named or self._like is not None or self._is_left_out(column):
            return False
        labels = [label for label in levels.found if isinstance(label, str)]
        return len(labels) == len(levels.found) and are_unknown_numbers(labels)

    def _has_many(self, levels: Levels, column: _Column) -> bool:
        """Return True if a column has too many labels."""
        return levels.full or (not column.named and len(levels.found) > self._most_levels)

    @property
    def _most_levels(self) -> float:
        """The maximum number of levels of a column that is not named as categorical."""
        return max(self.n_rows, FEW_ROWS) / 2

    def _is_left_out(self, column: _Column) -> bool:
        """Return True for a text column that is left out because it has too many labels."""
        levels = column.levels
        return (
            not self._chosen
            and not column.named
            and levels is not None
            and self._has_many(levels, column)
        )

    @cached_property
    def final(self) -> dict[str, tuple[tuple[Any, ...], Float]]:
        """The labels and final codes (``Levels.final``) of each column."""
        return {
            name: column.levels.final()
            for name, column in self._columns.items()
            if column.levels is not None and not self._is_left_out(column)
        }

    def finished(self, records: Float, first: int) -> Float:
        """Return the records with final codes and date cycles, and with ``first`` added to the row
        numbers."""
        records[:, 1] += first
        parts = [records[:, :2]]
        unchanged = True
        for place, name in enumerate(self.roles.wanted, 2):
            values = records[:, place]
            if name in self.final:
                _, codes = self.final[name]
                values[:] = codes[np.nan_to_num(values, nan=-1).astype(np.int64)]
            column = self._columns[name]
            if column.dates is not None:
                unchanged = False
                parts += column.dates.expanded(values)
            elif self._is_left_out(column):
                unchanged = False
            else:
                parts.append(values)
        if self.roles.groups is not None:
            parts.append(records[:, -1])
        return records if unchanged else np.column_stack(parts)

    def columns(self) -> Columns:
        """Return the names, categories, dates and classes of the columns; if there is no target
        column, target and classes come from ``like``."""
        roles = self.roles
        categories = {name: labels for name, (labels, _) in self.final.items()}
        features = list[str]()
        dates = dict[str, tuple[str, ...]]()
        formats = dict[str, str]()
        grammars = dict[str, NumberGrammar]()
        for name in roles.wanted:
            grammar = self._columns[name].written.reading.grammar
            if grammar != PLAIN and name not in categories:
                grammars[name] = grammar
        for name in roles.features:
            column = self._columns[name]
            if self._is_left_out(column):
                continue
            features.append(name)
            if column.dates is not None:
                dates[name] = column.dates.cycles
                features += cyclic(name, dates[name])
                form = column.dates.form or column.dates.order
                if form:
                    formats[name] = form
        if not roles.targets and self._like is not None:
            return replace(self._like, features=tuple(features), categories=categories, dates=dates)
        target = ", ".join(roles.targets) or "y"
        return Columns(
            tuple(features),
            target,
            classes=categories.pop(target) if roles.classes else None,
            categories=categories,
            targets=roles.targets if len(roles.targets) > 1 else (),
            dates=dates,
            formats=formats,
            missing=roles.missing,
            numbers=grammars,
        )

    def described(self, missing: Float, accepted: Sequence[Finding]) -> dict[str, str]:
        """Return remarks on the columns and the file, by name.

        ``missing`` (d,) is the fraction of rows without a value for each feature, and ``accepted``
        contains the proposals with which the table was read.
        """
        table = self._table
        columns = self.columns()
        remarks = defaultdict[str, list[str]](list)
        for finding in accepted:
            remarks[finding.column].append(_remark_on_accepted(finding))
        for column in self._columns.values():
            remarks[column.name] += self._remarks_on_reading(column)
        for finding in self.findings():
            perhaps = "" if finding.asks else "perhaps "
            remarks[finding.column].append(f"{finding.found}: {perhaps}`{finding.options}`")
        for column in self._columns.values():
            if column.levels is not None and self._is_left_out(column):
                remarks[column.name].append(_remark_on_left_out(column.name, column.levels))
        for name, share in zip(columns.features, missing.tolist(), strict=True):
            if self._like is None:
                remarks[name] += self._remarks_on_values(name, columns)
            if share and name in columns.given:
                remarks[name].append(f"{share:.1%} of the rows have no value")
        for name, remark in self._remarks_on_rows(columns):
            remarks[name].append(remark)
        remarks[table.name] += table.remarks()
        names = dict.fromkeys((table.name, *table.columns, columns.target))
        return {name: "; ".join(remarks[name]) for name in names if remarks[name]}

    def conversions(self) -> dict[str, str]:
        """Return what was made of each text column, by name."""
        made = dict[str, str]()
        for name in self.roles.features:
            column = self._columns[name]
            if column.has_text:
                remarks = list(self._remarks_on_reading(column))
                made[name] = ", ".join(remarks or [self._kind_of(column)])
        return made

    def guesses(self) -> bool:
        """Return True if some text column is not read as labels."""
        return any(column.has_text and column.levels is None for column in self._columns.values())

    def _kind_of(self, column: _Column) -> str:
        """Return what a column contains."""
        if column.levels is not None:
            return f"a category of {counted(len(column.levels.found), 'level')}"
        if column.dates is not None:
            return "dates" if column.dates.unit.endswith(ORIGIN) else "times of day"
        return "numbers"

    def _remarks_on_reading(self, column: _Column) -> Iterator[str]:
        """Yield remarks on how the texts of a column were read, and on a target that may be a
        class."""
        if column.note:
            yield column.note
        grammar = column.written.reading.grammar
        if column.levels is None and not grammar.is_plain:
            notation = column.written.numbers.described(grammar)
            yield from [f"numbers with {notation}"] * bool(notation)
        n_bounds = column.written.numbers.count_bounds()
        if n_bounds:
            yield f"{counted(n_bounds, 'bound')} such as >9, read as the number itself"
        if "gaps" in column.odd:
            yield f"text that counts as missing: {column.odd['gaps']}"
        if column.dates is not None:
            form = column.dates.form or ORDER_NAMES.get(column.dates.order)
            if form is not None:
                yield f"dates, {form}"
        is_new_target = column.name in self.roles.targets and self._like is None
        if is_new_target and column.values is not None and column.values.are_binary:
            yield "only 0 and 1, fitted as a number: for classes pass `--classes`"

    def _remarks_on_rows(self, columns: Columns) -> Iterator[tuple[str, str]]:
        """Yield the target or the weights, and how many rows were left out because of them."""
        if self.dropped:
            yield columns.target, f"{counted(self.dropped, 'row')} without it left out"
        if self.weightless and self.roles.weights is not None:
            yield self.roles.weights, f"{counted(self.weightless, 'row')} of weight 0 left out"

    def _remarks_on_values(self, name: str, columns: Columns) -> Iterator[str]:
        """Yield remarks on the levels of a category, and on the unit and cycles of dates."""
        if name in columns.categories:
            yield f"{counted(len(columns.categories[name]), 'level')} of a category"
        column = self._columns.get(name)
        if column is not None and column.dates is not None:
            waves = [f"sine and cosine of the {cycle}" for cycle in columns.dates[name]]
            features = f"{1 + 2 * len(waves)} features: " if waves else ""
            yield features + ", ".join([column.dates.unit, *waves])


def _remark_on_accepted(finding: Finding) -> str:
    """Return the remark on a proposal with which the table was read."""
    if "exclude" in finding.remedy:
        return f"left out (`{finding.options}`): {finding.found}"
    return f"{finding.found}: accepted `{finding.options}`"


def _remark_on_left_out(name: str, levels: Levels) -> str:
    """Return the remark on a text column that is left out."""
    more = " or more" if levels.full else ""
    count = f"text of {len(levels.found):,}{more} different values, left out"
    category = Finding(name, count, {"categorical": ("auto", name)})
    return f"{count}: `{category.options}` takes it"


def _like_others(text: OddCells) -> bool:
    """Return True if texts that cannot be read are numbers or dates of another grammar."""
    return any(map(is_written, text.texts))
