"""What was made of the columns of a table, in words."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from partirvm.data.column_facts import ColumnFacts, TableFacts
from partirvm.data.column_findings import ColumnFindings
from partirvm.data.date_grammar import ORDER_NAMES
from partirvm.data.dates import ORIGIN
from partirvm.data.labels import Levels
from partirvm.data.problems import Finding
from partirvm.quoting import counted
from partirvm.types import Columns, Float


@dataclass(frozen=True)
class ColumnRemarks:
    """Remarks on the columns of a table.

    Attributes:
        facts: what was collected about the table
    """

    facts: TableFacts

    def described(self, missing: Float, accepted: Sequence[Finding]) -> dict[str, str]:
        """Return remarks on the columns and the file, by name.

        ``missing`` (d,) is the fraction of rows without a value for each feature, and ``accepted``
        contains the proposals with which the table was read.
        """
        table = self.facts.table
        columns = self.facts.stored_columns()
        remarks = defaultdict[str, list[str]](list)
        for finding in accepted:
            remarks[finding.column].append(_remark_on_accepted(finding))
        for column in self.facts.columns.values():
            remarks[column.name] += self._remarks_on_reading(column)
        for finding in ColumnFindings(self.facts).all():
            perhaps = "" if finding.asks else "perhaps "
            remarks[finding.column].append(f"{finding.found}: {perhaps}`{finding.options}`")
        for column in self.facts.columns.values():
            if column.levels is not None and self.facts.is_left_out(column):
                remarks[column.name].append(_remark_on_left_out(column.name, column.levels))
        for name, share in zip(columns.features, missing.tolist(), strict=True):
            if self.facts.like is None:
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
        for name in self.facts.roles.features:
            column = self.facts.columns[name]
            if column.has_text:
                remarks = list(self._remarks_on_reading(column))
                made[name] = ", ".join(remarks or [self._kind_of(column)])
        return made

    def _kind_of(self, column: ColumnFacts) -> str:
        """Return what a column contains."""
        if column.levels is not None:
            return f"a category of {counted(len(column.levels.found), 'level')}"
        if column.dates is not None:
            return "dates" if column.dates.unit.endswith(ORIGIN) else "times of day"
        return "numbers"

    def _remarks_on_reading(self, column: ColumnFacts) -> Iterator[str]:
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
        is_new_target = column.name in self.facts.roles.targets and self.facts.like is None
        if is_new_target and column.values is not None and column.values.are_binary:
            yield "only 0 and 1, fitted as a number: for classes pass `--classes`"

    def _remarks_on_rows(self, columns: Columns) -> Iterator[tuple[str, str]]:
        """Yield the target or the weights, and how many rows were left out because of them."""
        if self.facts.dropped:
            yield columns.target, f"{counted(self.facts.dropped, 'row')} without it left out"
        if self.facts.weightless and self.facts.roles.weights is not None:
            yield (
                self.facts.roles.weights,
                f"{counted(self.facts.weightless, 'row')} of weight 0 left out",
            )

    def _remarks_on_values(self, name: str, columns: Columns) -> Iterator[str]:
        """Yield remarks on the levels of a category, and on the unit and cycles of dates."""
        if name in columns.categories:
            yield f"{counted(len(columns.categories[name]), 'level')} of a category"
        column = self.facts.columns.get(name)
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
