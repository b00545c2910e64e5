"""The conversion of the columns of an ingested table to float64 rows."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from partirvm.data import problems
from partirvm.data.dates import Dates
from partirvm.data.labels import Levels
from partirvm.data.problems import Finding, OddCells, Values
from partirvm.data.roles import Roles
from partirvm.data.tables import Batch, Reader, is_text, numbers
from partirvm.quoting import counted, listed, quoted
from partirvm.types import Bool, Columns, Float, cyclic

MOST_LEVELS = 10_000
"""Maximum number of levels of a text column that is not named as categorical; in short tables, half
the number of rows (at least 20)."""

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
        values: distinct values, for a numeric feature that may be constant or contain codes
        note: remark on how the column was read, if one is needed
        proposal: an uncertain guess of the date format
        odd: unusable cells by kind: "text" or "type" that is not a number, "infinite" values,
            targets and weights "without" a value, and "weights" that are negative or infinite
    """

    name: str
    named: bool = False
    levels: Levels | None = None
    dates: Dates | None = None
    values: Values | None = None
    note: str = ""
    proposal: Finding | None = None
    odd: dict[str, OddCells] = field(default_factory=lambda: defaultdict(OddCells))


class Encoder:
    """Encodes batches as float64 records: features in order, then targets, then weights and groups
    if there are any. Unusable values become NaN; ``findings`` reports them.

    Attributes:
        roles: roles of the columns
        n_rows: number of rows read, without dropped rows
        dropped: number of rows dropped because they have no target
    """

    def __init__(
        self, roles: Roles, table: Reader, like: Columns | None, *, stored: bool = False
    ) -> None:
        """Prepare to read a table.

        Args:
            roles: roles of the columns
            table: table to read
            like: columns of other data, whose labels and date cycles apply, or None
            stored: True to leave out text columns with too many labels
        """
        self.roles = roles
        self.n_rows = 0
        self.dropped = 0
        self._table = table
        self._like = like
        self._stored = stored
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
                cycles = None if like is None else like.dates[name]
                self._columns[name].dates = Dates(cycles, roles.formats.get(name))

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
            self._row = self.n_rows + self.dropped
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
            del batch  # free the memory before the next batch is read
            records[:, 1] = np.arange(start, self.n_rows)
            records[:, 0] = records[:, 1] if rng is None else rng.random(len(records))
            yield records

    def _encode(self, column: _Column, values: Any, into: Float) -> None:
        """Write the codes or numbers of a batch of a column's values to ``into`` (n,)."""
        values = self._without_gaps(values)
        if column.levels is None:
            into[:] = self._numbers(column, values)
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
        for name in self.roles.features:
            column = self._columns[name]
            if column.levels is not None or column.dates is not None:
                continue
            kind = self._kind_of(column, self._without_gaps(batch[name][:FIRST_ROWS]))
            if kind == "dates":
                column.dates = column.dates or Dates()
            elif kind == "booleans":
                column.note = "true and false, as 1 and 0"
            elif kind == "text" and self.roles.auto:
                column.levels = self._levels_of(name)
            elif self._stored:
                column.values = Values()

    def _kind_of(self, column: _Column, values: Any) -> str:
        """Return the kind of a column's first values: "numbers", "booleans", "dates" or "text"."""
        import pyarrow as pa

        if is_text(values.type):
            return self._kind_of_text(column, values)
        if pa.types.is_temporal(values.type):
            return "dates"
        return "booleans" if pa.types.is_boolean(values.type) else "numbers"

    def _kind_of_text(self, column: _Column, values: Any) -> str:
        """Return the kind of a column's first strings. A date format is recorded, or proposed if it
        is ambiguous."""
        texts = self._plain(values).unique().drop_null().to_pylist()
        kind, others = problems.recognised(texts)
        if others and not self._stored:
            return "text"
        if kind == "numbers" and texts and not others:
            has_points = any("." in text for text in texts)
            if not self._table.untyped and not self.roles.missing and not has_points:
                return "text"
        if kind == "dates":
            forms = problems.date_formats([text for text in texts if text not in others])
            if forms:
                column.dates = Dates(form=forms[0])
                column.note = f"dates like {forms[0]}"
            if forms[1:]:
                either = "dates, day or month first: the day is assumed"
                remedy = {"dates": {column.name: forms[0]}}
                column.proposal = Finding(column.name, either, remedy)
        return kind

    def _plain(self, texts: Any) -> Any:
        """Return the strings, stripped of surrounding spaces and with decimal commas replaced by
        points."""
        import pyarrow.compute as pc

        texts = pc.utf8_trim_whitespace(texts)
        if self._table.commas:
            texts = pc.replace_substring_regex(
                texts, r"^([+-]?\d*),(\d+)([eE][+-]?\d+)?$", r"\1.\2\3"
            )
        return texts

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

        for clean in (False, True):
            with suppress(pa.ArrowInvalid, pa.ArrowNotImplementedError):
                if clean:
                    values = self._usable(column, values)
                if column.dates is not None:
                    return column.dates.days(values)
                if not pa.types.is_temporal(values.type):
                    return numbers(values.cast(pa.float64(), safe=False))
        column.odd["type"].add(np.ones(len(values), bool), self._row, [str(values.type)])
        return np.full(len(values), np.nan)

    def _usable(self, column: _Column, texts: Any) -> Any:
        """Return the strings that can be converted; others become missing, and are recorded unless
        they mark gaps."""
        import pyarrow.compute as pc

        if not is_text(texts.type):
            return texts
        markers = () if self._like is None else problems.MARKERS
        texts = self._without_gaps(self._plain(texts), markers)
        dates = column.dates
        pattern = problems.ISO
        if dates is None:
            pattern = problems.NUMBER
            for boolean, number in (("true", "1"), ("false", "0")):
                texts = pc.replace_substring_regex(texts, f"^(?i:{boolean})$", number)
        if dates is not None and dates.form is not None:
            days = pc.strptime(texts, format=dates.form, unit="us", error_is_null=True)
            usable = pc.is_valid(days)
        else:
            usable = pc.fill_null(pc.match_substring_regex(texts, f"^({pattern})$"), False)
        odd = pc.and_not(pc.is_valid(texts), usable)
        if pc.any(odd).as_py():
            rows = odd.to_numpy(zero_copy_only=False)
            column.odd["text"].add(rows, self._row, texts.filter(odd).to_pylist())
        return pc.if_else(usable, texts, None)

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
        return records if used.all() else records[used]

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
                column.proposal,
            )
            findings += [finding for finding in candidates if finding is not None]
        return findings

    def _without_rows(self, column: _Column) -> dict[str, Any]:
        """Return the options that drop the rows in which a target is missing."""
        return {"drop_missing_targets": True} if column.name in self.roles.targets else {}

    def _without_column(self, column: _Column) -> dict[str, Any]:
        """Return the options that drop a feature; no options if other data define the features."""
        removable = self._like is None and column.name in self.roles.features
        return {"exclude": (column.name,)} if removable else {}

    def _text_finding(self, column: _Column) -> Finding | None:
        """Return a finding if a column of numbers or dates contains text: a few distinct strings
        are proposed as gaps, many as labels."""
        if "text" not in column.odd:
            return None
        text = column.odd["text"]
        expected = "numbers" if column.dates is None else "dates"
        return Finding(
            column.name, f"text, not {expected}: {text}", self._remedy_of_text(column, text)
        )

    def _remedy_of_text(self, column: _Column, text: OddCells) -> dict[str, Any]:
        """Return the options that resolve text in a column of numbers or dates."""
        roles = self.roles
        texts = tuple(text.texts)
        others = self.n_rows + self.dropped - text.count
        if len(texts) <= problems.FEW_TEXTS and problems.few(texts, text.count, others):
            return {"missing": texts, **self._without_rows(column)}
        if self._like is not None:
            return {}
        if column.name in roles.targets:
            if len(roles.targets) > 1:
                return {}
            n_missing = column.odd["without"].count if "without" in column.odd else 0
            without_rows = self._without_rows(column) if n_missing > text.count else {}
            return {"classes": True, **without_rows}
        if column.name == roles.weights or len(texts) == problems.MOST_TEXTS:
            return {}
        return {"categorical": ("auto", column.name) if roles.auto else (column.name,)}

    def _type_finding(self, column: _Column) -> Finding | None:
        """Return a finding if the type of a column is not numeric, text or date."""
        if "type" not in column.odd:
            return None
        expected = "numbers" if column.dates is None else "dates"
        types = " ".join(column.odd["type"].texts)
        remedy = self._without_column(column)
        return Finding(column.name, f"{types}, not {expected}", remedy, "convert this column")

    def _value_finding(self, column: _Column) -> Finding | None:
        """Return a finding if a weight, an infinite value or a missing target cannot be used."""
        odd = column.odd
        if column.name == self.roles.weights and "weights" in odd:
            return Finding(column.name, f"no weight ≥ 0, or no noise > 0, in {odd['weights']}")
        without_rows = self._without_rows(column)
        if "infinite" in odd:
            remedy = {"missing": ("inf",), **without_rows}
            return Finding(column.name, f"infinite values in {odd['infinite']}", remedy)
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
            return Finding(name, count, without_column, "take it as a number, without classes")
        if levels is not None and self._like is None:
            gaps = tuple(label for label in levels.found if label in problems.MARKERS)
            if gaps:
                remedy = {"missing": gaps, **self._without_rows(column)}
                text = f"text, but {listed(gaps, show=quoted)}"
                return Finding(name, text, remedy, fatal=False)
        if column.values is not None and not column.odd:
            return column.values.finding(name)
        return None

    def _has_many(self, levels: Levels, column: _Column) -> bool:
        """Return True if a column has too many labels."""
        most = max(self.n_rows / 2, problems.FEW_LEVELS)
        return levels.full or (not column.named and len(levels.found) > most)

    def _is_left_out(self, column: _Column) -> bool:
        """Return True for a text column that is left out because it has too many labels."""
        levels = column.levels
        return (
            self._stored
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
        for name in roles.features:
            column = self._columns[name]
            if self._is_left_out(column):
                continue
            features.append(name)
            if column.dates is not None:
                dates[name] = column.dates.cycles
                features += cyclic(name, dates[name])
                if column.dates.form is not None:
                    formats[name] = column.dates.form
        if not roles.targets:
            return replace(
                self._like or Columns(()),
                features=tuple(features),
                categories=categories,
                dates=dates,
            )
        target = ", ".join(roles.targets)
        return Columns(
            tuple(features),
            target,
            classes=categories.pop(target) if roles.classes else None,
            categories=categories,
            targets=roles.targets if len(roles.targets) > 1 else (),
            dates=dates,
            formats=formats,
            missing=roles.missing,
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
            remarks[finding.column].append(f"{finding.found} ({finding.options})")
        for column in self._columns.values():
            if column.note:
                remarks[column.name].append(column.note)
        for finding in self.findings():
            remarks[finding.column].append(f"{finding.found}: perhaps `{finding.options}`")
        for column in self._columns.values():
            if column.levels is not None and self._is_left_out(column):
                remarks[column.name].append(_remark_on_left_out(column.name, column.levels))
        for name, share in zip(columns.features, missing.tolist(), strict=True):
            if self._like is None:
                remarks[name] += self._remarks_on_values(name, columns)
            if share and name in columns.given:
                remarks[name].append(f"{share:.1%} of the rows have no value")
        if self.dropped and not remarks[columns.target]:
            remarks[columns.target].append(f"{counted(self.dropped, 'row')} without it left out")
        if table.note:
            remarks[table.name].append(table.note)
        names = dict.fromkeys((table.name, *table.columns, columns.target))
        return {name: "; ".join(remarks[name]) for name in names if remarks[name]}

    def _remarks_on_values(self, name: str, columns: Columns) -> Iterator[str]:
        """Yield remarks on the levels of a category, and on the unit and cycles of dates."""
        if name in columns.categories:
            yield f"{counted(len(columns.categories[name]), 'level')} of a category"
        column = self._columns.get(name)
        if column is not None and column.dates is not None:
            waves = [f"sine and cosine of the {cycle}" for cycle in columns.dates[name]]
            yield ", ".join([column.dates.unit, *waves])


def _remark_on_left_out(name: str, levels: Levels) -> str:
    """Return the remark on a text column that is left out."""
    more = " or more" if levels.full else ""
    count = f"text of {len(levels.found):,}{more} different values, left out"
    category = Finding(name, count, {"categorical": ("auto", name)})
    return f"{count}: `{category.options}` takes it"
