"""Problems of the columns of a table, and the options that are proposed for them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from partirvm.data import problems
from partirvm.data.column_facts import ColumnFacts, TableFacts
from partirvm.data.date_grammar import ORDER_NAMES, day_of
from partirvm.data.dates import Dates
from partirvm.data.grammar import plain_text
from partirvm.data.labels import Levels
from partirvm.data.problems import Finding, OddCells
from partirvm.data.written import are_unknown_numbers, is_written
from partirvm.errors import DataError
from partirvm.quoting import listed, quoted


@dataclass(frozen=True)
class ColumnFindings:
    """The findings on the columns of a table.

    Attributes:
        facts: what was collected about the table
    """

    facts: TableFacts

    def all(self) -> list[Finding]:
        """Return the problems of the columns, and proposals for them, in column order."""
        findings = list[Finding]()
        for name in self.facts.roles.wanted:
            column = self.facts.columns[name]
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
        names = [
            name
            for name in self.facts.roles.features
            if self.facts.is_left_out(self.facts.columns[name])
        ]
        if len(names) == len(self.facts.roles.features):
            raise DataError(
                f"{self.facts.table.name}: no feature is left: nearly every row has another text "
                f"in {listed(names)}; to use one as a category nevertheless: `--categorical "
                f"{names[0]}`."
            )

    def _text_finding(self, column: ColumnFacts) -> Finding | None:
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
            is_new = self.facts.like is None
            advice = "write all rows alike" if is_new else "write them as in the training rows"
        elif self.facts.like is not None:
            advice = "correct these cells, or leave them empty"
        elif column.name in self.facts.roles.targets and not remedy:
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

    def _is_measured(self, column: ColumnFacts) -> bool:
        """Return True for a column of dates, or of too many different numbers for labels."""
        values = column.values
        has_many = values is not None and len(values.known) > problems.FEW_LEVELS
        return column.dates is not None or has_many

    def _without_text(self, column: ColumnFacts, text: OddCells) -> dict[str, Any]:
        """Return the options by which the text in a column counts as missing values."""
        if len(text.texts) <= problems.FEW_TEXTS or column.dates is not None:
            return {"missing": tuple(text.texts)}
        return {"numeric": (column.name,)}

    def _remedy_of_text(self, column: ColumnFacts, text: OddCells) -> dict[str, Any]:
        """Return the options that resolve text in a column of numbers or dates."""
        roles = self.facts.roles
        texts = tuple(text.texts)
        is_target = column.name in roles.targets
        are_gaps = problems.MARKERS.issuperset(texts)
        if _like_others(text) and not are_gaps:
            return {} if is_target else self._without_column(column)
        if not are_gaps and self._has_classes(column, text):
            return {"classes": True, **self._without_gaps_of(column, text)}
        if len(texts) <= problems.FEW_TEXTS and problems.few(texts, text.count, column.n_numbers):
            return {"missing": texts, **self._without_rows(column)}
        if self.facts.like is not None:
            return {}
        if column.dates is None and text.count <= 0.05 * column.n_numbers:
            return {"numeric": (column.name,), **self._without_rows(column)}
        if is_target or column.name == roles.weights:
            return {}
        if len(texts) > self.facts.most_levels:
            return self._without_column(column)
        return {"categorical": ("auto", column.name) if roles.auto else (column.name,)}

    def _has_classes(self, column: ColumnFacts, text: OddCells) -> bool:
        """Return True if the texts of a target are few enough for classes, and are not a few
        exceptions among numbers."""
        n_numbers = column.n_numbers
        few_numbers = column.values is not None and column.values.are_few_integers
        n_labels = len(text.texts) + (len(column.values.found) if column.values is not None else 0)
        return (
            self.facts.like is None
            and len(self.facts.roles.targets) == 1
            and column.name in self.facts.roles.targets
            and (text.count > n_numbers / 10 or (few_numbers and n_numbers > 0))
            and n_labels <= max(problems.FEW_LEVELS, (text.count + n_numbers) / 2)
            and len(text.texts) < problems.MOST_TEXTS
        )

    def _without_gaps_of(self, column: ColumnFacts, text: OddCells) -> dict[str, Any]:
        """Return the options that drop the rows in which a target of classes has no label."""
        n_missing = column.odd["without"].count if "without" in column.odd else 0
        return self._without_rows(column) if n_missing > text.count else {}

    def _type_finding(self, column: ColumnFacts) -> Finding | None:
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

    def _value_finding(self, column: ColumnFacts) -> Finding | None:
        """Return a finding if a weight, an infinite value or a missing target cannot be used."""
        odd = column.odd
        if column.name == self.facts.roles.weights and "weights" in odd:
            return Finding(column.name, f"no weight ≥ 0, or no noise > 0, in {odd['weights']}")
        without_rows = self._without_rows(column)
        if "infinite" in odd:
            remedy = {"missing": ("inf",), **without_rows}
            return Finding(
                column.name,
                f"infinite values in {odd['infinite']}",
                remedy,
                asks=self.facts.chosen and not column.has_text,
            )
        if "without" in odd and not {"text", "type"} & odd.keys():
            return Finding(column.name, f"no value in {odd['without']}", without_rows)
        return None

    def _column_finding(self, column: ColumnFacts) -> Finding | None:
        """Return a finding for a column that has no values, too many labels, labels that mark gaps,
        constant values or possible codes."""
        name = column.name
        without_column = self._without_column(column)
        filled = self.facts.filled[self.facts.roles.wanted.index(name)]
        if without_column and not column.odd and not filled:
            return Finding(name, "no row has a value", without_column)
        levels = column.levels
        if (
            levels is not None
            and not self.facts.is_left_out(column)
            and self.facts.has_many(levels, column)
        ):
            count = f"{len(levels.found):,} or more different labels, too many for a category"
            if self.facts.chosen:
                texts = listed(levels.found, 3, quoted)
                count = f"free text or an ID: {len(levels.found):,} different texts, {texts}"
            advice = "merge rare labels"
            if name in self.facts.roles.targets:
                advice = "fit a number, without `--classes`, or merge rare classes"
            category = {"categorical": ("auto", name)} if self._asks(without_column) else {}
            return Finding(
                name, count, without_column, advice, alternative=category, asks=bool(category)
            )
        if levels is not None and self._may_be_numbers(column, levels):
            return self._unknown_numbers(column, levels)
        if levels is not None and self.facts.like is None and name not in self.facts.roles.targets:
            gaps = tuple(label for label in levels.found if label in problems.MARKERS)
            if gaps:
                text = f"text, but {listed(gaps, show=quoted)}"
                return Finding(name, text, {"missing": gaps}, fatal=False)
        is_judged = name in self.facts.roles.features and name not in self.facts.roles.numeric
        if column.values is not None and not column.odd and is_judged:
            return column.values.finding(name)
        return None

    def _unknown_numbers(self, column: ColumnFacts, levels: Levels) -> Finding:
        """Return the finding for labels that begin with numbers in an unknown notation."""
        texts = [label for label in levels.found if isinstance(label, str)]
        return Finding(
            column.name,
            f"begins with numbers in an unknown notation: {listed(texts, 3, quoted)}",
            {"categorical": ("auto", column.name)},
            alternative=self._without_column(column),
            asks=True,
        )

    def _may_be_numbers(self, column: ColumnFacts, levels: Levels) -> bool:
        """Return True if the labels of a column that is not named as categorical may be numbers."""
        if column.named or self.facts.like is not None or self.facts.is_left_out(column):
            return False
        labels = [label for label in levels.found if isinstance(label, str)]
        return len(labels) == len(levels.found) and are_unknown_numbers(labels)

    def _undecided(self, column: ColumnFacts) -> Finding | None:
        """Return a finding if the texts of a column can be read in two ways, or if only some of its
        dates have a time zone."""
        if self.facts.like is not None or column.levels is not None:
            return None
        if column.dates is not None:
            return self._undecided_dates(column, column.dates)
        decision = self.facts.marks_of(column).decision(column.written.numbers)
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

    def _undecided_dates(self, column: ColumnFacts, dates: Dates) -> Finding | None:
        """Return a finding if the order of dates is undecided, or if only some have a zone."""
        if len(dates.zones) > 1:
            return Finding(
                column.name,
                "only some of the times have a time zone",
                self._without_column(column),
                "write the time zone in all rows",
                asks=True,
            )
        decision = column.written.dates.decision(self.facts.order_of(column))
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

    def _without_rows(self, column: ColumnFacts) -> dict[str, Any]:
        """Return the options that drop the rows in which a target is missing."""
        return {"drop_missing_targets": True} if column.name in self.facts.roles.targets else {}

    def _without_column(self, column: ColumnFacts) -> dict[str, Any]:
        """Return the options that drop a feature; no options if other data define the features."""
        removable = self.facts.like is None and column.name in self.facts.roles.features
        return {"exclude": (column.name,)} if removable else {}

    def _asks(self, remedy: Mapping[str, Any]) -> bool:
        """Return True if a remedy leaves out a column with values that the user chose."""
        return self.facts.chosen and "exclude" in remedy


def _like_others(text: OddCells) -> bool:
    """Return True if texts that cannot be read are numbers or dates of another grammar."""
    return any(map(is_written, text.texts))
