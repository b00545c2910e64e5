"""Facts that are collected about the columns of a table while it is read.

``data.encode`` collects them, ``data.column_findings`` finds problems in them, and
``data.column_remarks`` says how the columns were read.
"""

from collections import defaultdict
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from partirvm.data.date_grammar import ORDER_NAMES
from partirvm.data.dates import Dates
from partirvm.data.grammar import PLAIN
from partirvm.data.labels import Levels
from partirvm.data.problems import OddCells, Values
from partirvm.data.roles import Roles
from partirvm.data.tables import Reader
from partirvm.data.unseen import UnseenLevels
from partirvm.data.written import Marks, Reading, WrittenColumn
from partirvm.quoting import quoted
from partirvm.types import Bool, Columns, Float, NumberGrammar, cyclic

MOST_LEVELS = 10_000
"""Maximum number of levels of a text column that is not named as categorical; in short tables, half
the number of rows (at least ``FEW_ROWS`` / 2)."""

FEW_ROWS = 40
"""Number of rows of a table so short that half of them are too few for a limit of levels."""


@dataclass
class ColumnFacts:
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


@dataclass
class TableFacts:
    """Facts collected about a table.

    Attributes:
        roles: roles of the columns
        table: the table
        like: columns of other data, whose labels, date cycles and grammars apply, or None
        chosen: True if the user chose the features
        columns: facts about each column; columns of labels come first
        n_rows: number of rows read, without dropped rows
        dropped: number of rows dropped because they have no target
        weightless: number of rows left out because their weight is 0
        unseen_rows: number of rows with a label that the data ``like`` do not have
        filled: True for columns (c,) in which some row has a value
    """

    roles: Roles
    table: Reader
    like: Columns | None
    chosen: bool
    columns: dict[str, ColumnFacts]
    n_rows: int = 0
    dropped: int = 0
    weightless: int = 0
    unseen_rows: int = 0
    filled: Bool = field(init=False)

    def __post_init__(self) -> None:
        self.filled = np.zeros(len(self.roles.wanted), dtype=np.bool_)

    @classmethod
    def of(cls, roles: Roles, table: Reader, like: Columns | None, *, chosen: bool) -> "TableFacts":
        """Prepare to collect the facts about a table.

        Args:
            roles: roles of the columns
            table: the table
            like: columns of other data, or None
            chosen: True if the user chose the features
        """
        named = (*roles.categorical, *(roles.targets if roles.classes else ()))
        # columns with labels first: categories are stored in this order
        columns = {name: ColumnFacts(name, named=name in named) for name in (*named, *roles.wanted)}
        facts = cls(roles, table, like, chosen, columns)
        for name in named:
            columns[name].levels = facts.levels_of(name)
        for name in roles.formats if like is None else like.dates:
            if name in columns:
                facts.read_as_dates(columns[name])
        grammars = {} if like is None else like.numbers
        for name, column in columns.items():
            grammar = grammars.get(name, facts.plain_grammar(name))
            column.written = WrittenColumn(Reading(grammar=grammar))
            if name in roles.targets and column.levels is None:
                column.values = Values()
        return facts

    def plain_grammar(self, name: str) -> NumberGrammar:
        """Return the grammar of a column's numbers before any text is read."""
        return NumberGrammar(gaps=name in self.roles.numeric)

    def read_as_dates(self, column: ColumnFacts, order: str = "") -> None:
        """Prepare to read a column as dates, in this order of day, month and year unless an option
        sets the format."""
        cycles = None if self.like is None else self.like.dates[column.name]
        column.dates = Dates(cycles, self.roles.formats.get(column.name, order))

    def levels_of(self, name: str) -> Levels:
        """Return the labels of a column, with those of the data ``like`` or of the table's type."""
        is_target = name in self.roles.targets
        if self.like is None:
            known = self.table.categorical.get(name)
        else:
            known = self.like.classes if is_target else self.like.categories.get(name)
        return Levels(
            f"{self.table.name}: the column {quoted(name)}",
            known,
            untyped=self.table.untyped,
            classes=is_target,
            most=np.inf if name in self.roles.categorical else MOST_LEVELS,
        )

    @property
    def marks(self) -> Marks:
        """The options that settle how numbers are written."""
        has_commas = self.table.commas or any(
            column.written.reading.grammar.decimal == "," for column in self.columns.values()
        )
        return Marks(self.roles.decimal, self.roles.thousands, points=not has_commas)

    def marks_of(self, column: ColumnFacts) -> Marks:
        """Return the options that settle how a column's numbers are written. Ranges in a target are
        classes."""
        return replace(self.marks, ranges=column.name not in self.roles.targets)

    def order_of(self, column: ColumnFacts) -> str:
        """Return the order of day, month and year that an option sets, or ""."""
        form = self.roles.formats.get(column.name, "")
        return form if form in ORDER_NAMES else ""

    def has_many(self, levels: Levels, column: ColumnFacts) -> bool:
        """Return True if a column has too many labels."""
        return levels.full or (not column.named and len(levels.found) > self.most_levels)

    @property
    def most_levels(self) -> float:
        """The maximum number of levels of a column that is not named as categorical."""
        return max(self.n_rows, FEW_ROWS) / 2

    def is_left_out(self, column: ColumnFacts) -> bool:
        """Return True for a text column that is left out because it has too many labels."""
        levels = column.levels
        return (
            not self.chosen
            and not column.named
            and levels is not None
            and self.has_many(levels, column)
        )

    @cached_property
    def final(self) -> dict[str, tuple[tuple[Any, ...], Float]]:
        """The labels and final codes (``Levels.final``) of each column."""
        return {
            name: column.levels.final()
            for name, column in self.columns.items()
            if column.levels is not None and not self.is_left_out(column)
        }

    @property
    def unseen(self) -> UnseenLevels:
        """The rows with labels that the data ``like`` do not have."""
        labels = dict[str, tuple[Any, ...]]()
        for name, column in self.columns.items():
            if column.levels is not None and column.levels.unseen:
                labels[name] = tuple(column.levels.unseen)
        return UnseenLevels(self.unseen_rows, labels)

    def stored_columns(self) -> Columns:
        """Return the names, categories, dates and classes of the columns; if there is no target
        column, target and classes come from ``like``."""
        roles = self.roles
        categories = {name: labels for name, (labels, _) in self.final.items()}
        features = list[str]()
        dates = dict[str, tuple[str, ...]]()
        formats = dict[str, str]()
        grammars = dict[str, NumberGrammar]()
        for name in roles.wanted:
            grammar = self.columns[name].written.reading.grammar
            if grammar != PLAIN and name not in categories:
                grammars[name] = grammar
        for name in roles.features:
            column = self.columns[name]
            if self.is_left_out(column):
                continue
            features.append(name)
            if column.dates is not None:
                dates[name] = column.dates.cycles
                features += cyclic(name, dates[name])
                form = column.dates.form or column.dates.order
                if form:
                    formats[name] = form
        if not roles.targets and self.like is not None:
            return replace(self.like, features=tuple(features), categories=categories, dates=dates)
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

    def guesses(self) -> bool:
        """Return True if some text column is not read as labels."""
        return any(column.has_text and column.levels is None for column in self.columns.values())
