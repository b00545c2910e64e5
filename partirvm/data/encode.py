"""The role of every column of a table that is ingested, and the conversion of columns to rows of float64.

Numeric values are unchanged; categories and classes become codes.
"""

from __future__ import annotations

import difflib
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any

import numpy as np

from partirvm.core.moments import require_exact
from partirvm.data.labels import plain_label, weights_of_noise
from partirvm.data.source import Columns, Float
from partirvm.data.tables import Batch, Reader, numbers, text_column
from partirvm.errors import DataError, UsageError
from partirvm.quoting import listed, listed_values, named, quoted
from partirvm.types import label_bytes

UNLABELLED = "To predict rows without a target, pass the training DATA: like=… (`--like`)."

LONGEST_LABEL, LABELS = 1000, 16 << 20
"""Maximum numbers of characters of a label, and of bytes of all labels, which every process reads."""

MOST_CLASSES = np.iinfo(np.int16).max
"""Maximum number of classes: codes are stored in two bytes."""

NUMBER = re.compile(r"-?(0|[1-9]\d{0,300})(\.\d{1,300})?")


@dataclass(frozen=True)
class Roles:
    """The role of every column. If ``noisy``, the weights column holds relative noise r, and the weights are 1/r²."""

    features: tuple[str, ...]
    targets: tuple[str, ...]
    weights: str | None
    categorical: tuple[str, ...]
    classes: bool
    noisy: bool = False

    @property
    def wanted(self) -> tuple[str, ...]:
        """Return the names of all columns to read: features, targets, weights."""
        return (*self.features, *self.targets, *filter(None, [self.weights]))

    @property
    def levels(self) -> frozenset[str]:
        """Return the columns of labels: categorical features and a class target."""
        return frozenset([*self.categorical, *(self.targets if self.classes else ())])


def assign_roles(
    table: Reader,
    *,
    target: str | Sequence[str] | None,
    features: Sequence[str] | None,
    categorical: Sequence[str],
    weights: str | None,
    noise: str | None,
    classes: bool,
    like: Columns | None,
) -> Roles:
    """Assign a role to every column. A target is required, except for data ``like`` others."""
    where, targets, categorical = table.name, _named(target, table), tuple(map(str, categorical))
    features = None if features is None else tuple(map(str, features))
    weights, noise = (None if name is None else str(name) for name in (weights, noise))
    if like is not None:
        features = like.features if features is None else features
        categorical, classes = tuple(like.categories), like.classes is not None
        learned = like.targets or (like.target,)
        targets = targets or (learned if set(learned) <= set(table.columns) else ())
    targets, weights = targets or table.targets, weights or table.weights
    classes = classes and bool(targets)
    if noise is not None and (weights is not None or classes):
        beside = "the target is a class" if weights is None else f"the weights {quoted(weights)} are given"
        raise UsageError(
            f"{where}: the column {quoted(noise)} cannot be the noise (`--noise`), because {beside}: noise applies to "
            "regression and gives the weights 1/noise²."
        )
    if classes and len(targets) > 1:
        raise UsageError(f"{where}: a classification has one target, but {listed(targets)} are {len(targets)}.")
    if not targets and like is None:
        raise UsageError(
            f"{where}: no target is named: pass y or target=… (`--target`). "
            f"Its columns: {listed(table.columns)}. {UNLABELLED}"
        )
    own, noisy = weights or noise, noise is not None
    if features is None:
        features = [name for name in table.columns if name not in (*targets, own)]
    if like is None:
        found = (name for name in table.categorical if name in features and name not in categorical)
        categorical = (*categorical, *found)
    roles = Roles(tuple(features), targets, own, tuple(categorical), classes, noisy)
    _check_roles(roles, table)
    return roles


def _named(target: Any, table: Reader) -> tuple[str, ...]:
    """Return the names of the targets; a string that is no column name may list several names, separated by commas."""
    if isinstance(target, str) and target:
        return (target,) if target in table.columns else tuple(name.strip() for name in target.split(","))
    return tuple(map(str, target or ())) if np.iterable(target) or target is None else (str(target),)


def _check_roles(roles: Roles, table: Reader) -> None:
    """Raise ``DataError`` for unknown, long or ambiguous names, and ``UsageError`` for names with two roles."""
    where, twice = table.name, [name for name, count in Counter(table.columns).items() if count > 1]
    if twice:
        raise DataError(f"{where}: the column name {quoted(twice[0])} occurs twice: rename one column.")
    own = [roles.weights] if roles.weights else []
    given = {"target": roles.targets, "noise" if roles.noisy else "weights": own, "feature": roles.features}
    for role, name in [(role, name) for role, names in given.items() for name in names]:
        if name not in table.columns:
            near = difflib.get_close_matches(name, table.columns, n=1)
            guess = f"; did you mean {quoted(near[0])}?" if near else "."
            raise DataError(
                f"{where} has no column {quoted(name)} ({role}){guess} Its columns: {listed(table.columns)}."
                + f" {UNLABELLED}" * (role == "target")
            )
        if len(name) > LONGEST_LABEL:
            raise DataError(f"{where}: a column name has more than {LONGEST_LABEL:,} characters: {quoted(name)}.")
    if not roles.features:
        raise DataError(f"{where}: there is no feature column besides {listed(roles.wanted)}.")
    several = [name for name, count in Counter(roles.wanted).items() if count > 1]
    if several:
        held = " and ".join(f"a {role}" for role, names in given.items() for name in names if name == several[0])
        raise UsageError(f"{where}: the column {quoted(several[0])} cannot be {held} at once.")
    for name in roles.categorical:
        if name in roles.targets:
            raise UsageError(f"{where}: the target {quoted(name)} cannot be categorical: pass --classes for classes.")
        if name not in roles.features:
            raise DataError(f"{where} has no feature {quoted(name)} (categorical): {listed(roles.features)}.")


class Levels:
    """The labels of a column, with provisional codes in the order of occurrence and sorted codes at the end.

    ``known`` labels keep their codes from the start, and any other label has the code ``len(known)``. Labels of an
    ``untyped`` source (CSV) are converted to numbers if every label is a number.
    """

    def __init__(self, where: str, known: Sequence[Any] | None = None, *, untyped: bool = False) -> None:
        self._where, self._untyped = where, untyped
        self.found: dict[Any, int] = {level: code for code, level in enumerate(known or ())}
        self._known = None if known is None else len(known)
        self._numeric = known is not None and not any(isinstance(level, str) for level in known)
        self.unseen: list[Any] = []
        self.nbytes = 0

    def codes(self, values: Any) -> Float:
        """Return the codes of an Arrow array, float64; NaN for missing values."""
        try:
            coded = values if hasattr(values, "dictionary") else values.dictionary_encode()
            labels = coded.dictionary.to_pylist()
            places = numbers(coded.indices.fill_null(len(labels)))
            used = np.bincount(places, minlength=len(labels)) > 0
            table = [self._code(label) if used[place] else np.nan for place, label in enumerate(labels)]
        except (TypeError, NotImplementedError) as error:  # Arrow raises NotImplementedError
            raise DataError(f"{self._where} holds values that cannot be labels, make them text: {error}") from error
        codes: Float = np.array([*table, np.nan], dtype=np.float64)[places]
        return codes

    def _code(self, label: Any) -> float:
        label = plain_label(label)
        if label is None or label != label:
            return np.nan
        if self._known is None:
            if label not in self.found:
                self.nbytes += label_bytes(label)
            if isinstance(label, str) and len(label) > LONGEST_LABEL:
                raise DataError(
                    f"{self._where} has a label of {len(label):,} characters, at most {LONGEST_LABEL:,} are possible: "
                    "omit the column, or replace its texts by short codes."
                )
            return self.found.setdefault(label, len(self.found))
        if label not in self.found and self._numeric and isinstance(label, str):
            label = _number(label)
        if label not in self.found and len(self.unseen) < 10 and label not in self.unseen:
            self.unseen.append(label)
        return self.found.get(label, self._known)

    def final(self) -> tuple[tuple[Any, ...], Float]:
        """Return the labels in sorted order, and the final code of every provisional code and of unknown labels."""
        labels = list(self.found)
        if self._known is not None:
            return tuple(labels), np.arange(len(labels) + 1.0)
        if self._untyped and all(map(NUMBER.fullmatch, labels)):
            found = list(map(_number, labels))
            whole = not any(isinstance(label, str) for label in found) and len(set(found)) == len(found)
            labels = found if whole else labels
        order = sorted(range(len(labels)), key=lambda code: (isinstance(labels[code], str), labels[code]))
        remap = np.empty(len(labels))
        remap[order] = np.arange(len(labels))
        return tuple(labels[code] for code in order), remap


def _number(text: str) -> Any:
    """Convert a label of CSV to a number; other text, and digits that float64 does not hold, are returned unchanged.

    >>> _number("1.50"), _number("9007199254740993"), _number("0.12345678901234567890"), _number("red")
    (1.5, 9007199254740993, '0.12345678901234567890', 'red')
    """
    try:
        number = Decimal(text)
        value = int(number) if number == number.to_integral_value() else float(text)
        return value if Decimal(repr(value)) == number else text
    except (ArithmeticError, ValueError):  # no number, or an infinite one
        return text


class Encoder:
    """An encoder of batches as records of float64: features in order, then targets, then weights if there are any."""

    def __init__(self, roles: Roles, table: Reader, like: Columns | None = None) -> None:
        self.roles, self._name, self._like = roles, table.name, like
        self.n_rows = self.bad = 0
        self._has_weight = roles.weights is None
        self._first: tuple[int, str] | None = None
        known: dict[str, Any] = {} if like is None else dict(like.categories)
        if like is not None and roles.classes:
            known[roles.targets[0]] = like.classes
        self.levels = {
            column: Levels(self._column(column), known.get(column), untyped=table.untyped)
            for column in roles.wanted
            if column in roles.levels
        }
        self._classes = self.levels[roles.targets[0]] if roles.classes else None

    def _column(self, name: str | None) -> str:
        return f"{self._name}: the column {quoted(name)}"

    def encode(self, batch: Batch, into: Float) -> None:
        """Encode a batch into the array ``into`` (rows, features + targets + weights)."""
        for place, column in enumerate(self.roles.wanted):
            coded = column in self.levels
            into[:, place] = self._labels(column, batch) if coded else self._numbers(column, batch[column])
        if self.roles.noisy and np.isfinite(into[:, -1]).all():
            name = f"{self._name}: the noise (column {quoted(self.roles.weights)})"
            into[:, -1] = weights_of_noise(into[:, -1], self.n_rows, name)
        wrong = ~np.isfinite(into)
        if wrong.any():
            self.bad += int(wrong.sum())
            if self._first is None:
                row, place = np.argwhere(wrong)[0]
                self._first = (self.n_rows + int(row), self.roles.wanted[place])
        elif self.roles.weights is not None:
            self._has_weight = self._has_weight or bool((into[:, -1] > 0).any())
            if (into[:, -1] < 0).any():
                row = self.n_rows + int(np.argmax(into[:, -1] < 0))
                raise DataError(
                    f"{self._name}: the weight in row {row:,} (column {quoted(self.roles.weights)}) is negative."
                )
        self.n_rows += len(into)

    def _labels(self, column: str, batch: Batch) -> Float:
        levels = self.levels[column]
        codes = levels.codes(batch[column])
        n = len(levels.found)
        if sum(each.nbytes for each in self.levels.values()) > LABELS:
            raise DataError(
                f"{self._column(column)} has {n:,} labels so far; the labels of all columns take more than "
                f"{LABELS >> 20} MiB: omit the column, or replace its texts by short codes or numbers."
            )
        if levels is self._classes and n > MOST_CLASSES:
            raise DataError(f"{self._column(column)} has {n:,} classes: ingest a numeric target without --classes.")
        return codes

    def _numbers(self, column: str, values: Any) -> Float:
        import pyarrow as pa

        if isinstance(values, pa.DictionaryArray):
            values = values.dictionary_decode()
        kind = pa.types
        if kind.is_null(values.type):
            return np.full(len(values), np.nan)
        whole = kind.is_integer(values.type)
        if not (whole or kind.is_floating(values.type) or kind.is_boolean(values.type) or kind.is_decimal(values.type)):
            first = next((value for value in values.slice(0, 100).to_pylist() if value is not None), None)
            raise text_column(self._name, column, f"{quoted(first)} of the type {named(values.type)}")
        floats = numbers(values if kind.is_float64(values.type) else values.cast(pa.float64(), safe=False))
        if whole:
            require_exact(numbers(values.fill_null(0)), self._name, self.n_rows, columns=[column], ingested=True)
        elif kind.is_decimal(values.type):
            given = np.array(values.to_pylist(), dtype=object)
            require_exact(given, self._name, self.n_rows, columns=[column], ingested=True)
        return floats

    def check(self) -> None:
        """Raise ``DataError`` for missing values, weights that are all zero, and classes that a fit does not accept."""
        if self._first is not None:
            row, column = self._first
            raise DataError(
                f"{self._name}: {self.bad:,} values are missing or not finite, the first in row {row:,} (counted "
                f"from 0), column {quoted(column)}. Remove these rows or impute the values first."
            )
        if not self._has_weight:
            raise DataError(f"{self._name}: the weights (column {quoted(self.roles.weights)}) are all zero.")
        self._final = {column: levels.final() for column, levels in self.levels.items()}
        if self._classes is None:
            return
        where, classes = f"{self._name}: the target {quoted(self.roles.targets[0])}", self._classes.final()[0]
        if self._classes.unseen:
            raise DataError(
                f"{where} holds classes that the DATA of `--like` or `--append` do not have: "
                f"{listed_values(self._classes.unseen)}. Leave these rows out, or ingest all rows as new DATA."
            )
        if len(classes) < 2:
            raise DataError(f"{where} has only one class, {quoted(classes[0])}: classification needs at least two.")
        continuous = all(isinstance(label, float) and not label.is_integer() for label in classes)
        if self._like is None and continuous and 2 * len(classes) > self.n_rows:
            raise DataError(
                f"{where} holds continuous values such as {classes[0]:g}, not classes: ingest the data without "
                "--classes, or bin the target."
            )

    def finished(self, records: Float, first: int) -> Float:
        """Replace provisional codes by final codes, and add ``first`` to the numbers of the rows, in place."""
        for place, column in enumerate(self.roles.wanted, 2):
            if column in self._final:
                records[:, place] = self._final[column][1][records[:, place].astype(np.int64)]
        records[:, 1] += first
        return records

    def columns(self) -> Columns:
        """Return names, categories and classes; without a target, the target and classes of ``like``."""
        final = {column: labels for column, (labels, _) in self._final.items()}
        if not self.roles.targets:
            assert self._like is not None
            return replace(self._like, features=self.roles.features, categories=final)
        name, targets = ", ".join(self.roles.targets), self.roles.targets
        classes = final.pop(name) if self.roles.classes else None
        return Columns(self.roles.features, name, final, classes, targets if targets[1:] else ())
