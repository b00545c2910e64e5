"""The role of every column of a table that is ingested, and the conversion of columns to rows of float64.

Numeric values are unchanged; categories and classes become codes.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from decimal import Decimal, InvalidOperation
from typing import Any

import numpy as np

from partirvm.core.moments import LARGEST, require_exact
from partirvm.data.checks import unknown_column
from partirvm.data.labels import plain_label, weights_of_noise
from partirvm.data.source import Columns, Float
from partirvm.data.tables import Batch, Reader, numbers, require_distinct, text_column
from partirvm.errors import DataError, UsageError
from partirvm.quoting import listed, listed_values, named, quoted
from partirvm.types import label_bytes

UNLABELLED = "To predict rows without a target, pass the training DATA: like=… (`--like`)."

LONGEST_LABEL = 1000
"""Maximum number of characters of a label or of the name of a column."""


LABELS = 16 << 20
"""Maximum number of bytes of all labels, because every process that opens DATA reads all labels."""

MOST_CLASSES = np.iinfo(np.int16).max
"""Maximum number of classes of a target. Codes are stored in two bytes."""


@dataclass(frozen=True)
class Roles:
    """The role of every column.

    Rows for prediction have no ``targets``. ``classes`` is true for one class target, and false for no target or
    several targets. If ``noisy`` is true, the weights column contains relative noise r, and the weights are 1/r².
    """

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
    reader: Reader,
    *,
    target: str | Sequence[str] | None,
    features: Sequence[str] | None,
    categorical: Sequence[str],
    weights: str | None,
    noise: str | None,
    classes: bool,
    like: Columns | None,
) -> Roles:
    """Assign a role to every column. A target is required, except for data ``like`` others.

    Raises ``DataError`` for an unknown name, and ``UsageError`` for conflicting roles.
    """
    targets, categorical = _named(target, reader), tuple(map(str, categorical))
    features = None if features is None else tuple(map(str, features))
    weights, noise = (None if name is None else str(name) for name in (weights, noise))
    require_distinct(reader.columns, reader.name)
    if like is not None:
        features = like.features if features is None else features
        categorical = tuple(like.categories)
        learned = like.targets or (like.target,)
        targets = targets or (learned if set(learned) <= set(reader.columns) else ())
        classes = like.classes is not None
    targets, weights = targets or reader.targets, weights or reader.weights
    classes = classes and bool(targets)
    if noise is not None and (weights is not None or classes):
        beside = "the target is a class" if weights is None else f"the weights {quoted(weights)} are given"
        raise UsageError(
            f"{reader.name}: the column {quoted(noise)} cannot be the noise (`--noise`), because {beside}: noise "
            "applies to regression and gives the weights 1/noise²; combine noise and weights in one column of weights."
        )
    if classes and len(targets) > 1:
        raise UsageError(
            f"{reader.name}: a classification has one target, but {listed(targets)} are {len(targets)}: ingest each "
            "target separately, and leave the others out with --features."
        )
    if not targets and like is None:
        if reader.features is not None:
            raise DataError(f"{reader.name}: there is no array y: pass target=… (`--target`). {UNLABELLED}")
        raise UsageError(
            f"{reader.name}: no target is named: pass target=… (`--target`). "
            f"Its columns: {listed(reader.columns)}. {UNLABELLED}"
        )
    for role, name in [*(("target", name) for name in targets), ("weights", weights), ("noise", noise)]:
        if name is not None and name not in reader.columns:
            error = unknown_column(name, role, reader.columns, reader.name)
            raise DataError(f"{error} {UNLABELLED}") if role == "target" else error
    weights, noisy = weights or noise, noise is not None
    if features is None:
        features = [name for name in reader.features or reader.columns if name not in (*targets, weights)]
    if like is None:
        found = (name for name in reader.categorical if name in features and name not in categorical)
        categorical = (*categorical, *found)
    roles = Roles(tuple(features), targets, weights, tuple(categorical), classes, noisy)
    _check_roles(roles, reader)
    return roles


def _named(target: Any, reader: Reader) -> tuple[str, ...]:
    """Return the names of the targets. A string that is not a column name may list several names, separated by commas.

    Data frames whose column names are integers also accept integers.
    """
    if isinstance(target, str) and target:
        return (target,) if target in reader.columns else tuple(name.strip() for name in target.split(","))
    return tuple(map(str, target or ())) if np.iterable(target) or target is None else (str(target),)


def _check_roles(roles: Roles, reader: Reader) -> None:
    where, columns = reader.name, set(reader.columns)
    for name in roles.wanted:
        if len(name) > LONGEST_LABEL:
            raise DataError(
                f"{where}: a column name has {len(name):,} characters, but names have at most "
                f"{LONGEST_LABEL:,}: rename the column {quoted(name)}."
            )
    for name in roles.features:
        if name not in columns:
            raise unknown_column(name, "feature", reader.columns, where)
        if name in (*roles.targets, roles.weights):
            role = "target" if name in roles.targets else "weights"
            raise UsageError(f"{where}: the column {quoted(name)} cannot be both a feature and the {role}.")
    for role, names in (("feature", roles.features), ("target", roles.targets)):
        twice = next((name for place, name in enumerate(names) if name in names[:place]), None)
        if twice is not None:
            raise UsageError(f"the {role} {quoted(twice)} is named twice.")
    if roles.weights in roles.targets:
        raise UsageError(f"{where}: the column {quoted(roles.weights)} cannot be both the target and the weights.")
    if not roles.features:
        raise DataError(f"{where}: there is no feature column besides {listed(roles.wanted)}.")
    for name in roles.categorical:
        if name in roles.targets:
            raise UsageError(f"{where}: the target {quoted(name)} cannot be categorical: pass --classes for classes.")
        if name not in roles.features:
            raise unknown_column(name, "categorical", roles.features, f"{where} (features)")


class Levels:
    """The labels of a column, with provisional codes in the order of occurrence and sorted codes at the end.

    ``known`` labels keep their codes from the start, and any other label has the code ``len(known)``. Labels of an
    ``untyped`` source (CSV) are converted to numbers if every label is a number.

    >>> import pyarrow as pa
    >>> levels = Levels()
    >>> levels.codes(pa.array(["b"])).tolist(), levels.codes(pa.array(["a", "b", None])).tolist()
    ([0.0], [1.0, 0.0, nan])
    >>> levels.final()[0], levels.final()[1].tolist()
    (('a', 'b'), [1.0, 0.0])
    """

    def __init__(self, known: Sequence[Any] | None = None, *, untyped: bool = False) -> None:
        self._untyped = untyped
        self._codes: dict[Any, int] = {level: code for code, level in enumerate(known or ())}
        self._known = None if known is None else len(known)
        self._numeric = known is not None and not any(isinstance(level, str) for level in known)
        self.unseen: list[Any] = []
        self.nbytes = 0
        self.long: tuple[int, int] | None = None  # code and length of the first label that is too long

    def codes(self, values: Any) -> Float:
        """Return the codes of an Arrow array, float64; NaN for missing values."""
        coded = values if hasattr(values, "dictionary") else values.dictionary_encode()
        labels = coded.dictionary.to_pylist()
        places = numbers(coded.indices.fill_null(len(labels)))
        used = np.bincount(places, minlength=len(labels)) > 0
        table = [self._code(label) if used[place] else np.nan for place, label in enumerate(labels)]
        codes: Float = np.array([*table, np.nan], dtype=np.float64)[places]
        return codes

    def _code(self, label: Any) -> float:
        label = plain_label(label)
        if label is None or label != label:
            return np.nan
        if self._known is None:
            self.nbytes += 0 if label in self._codes else label_bytes(label)
            code = self._codes.setdefault(label, len(self._codes))
            if self.long is None and isinstance(label, str) and len(label) > LONGEST_LABEL:
                self.long = code, len(label)
            return code
        if label not in self._codes and self._numeric and isinstance(label, str):
            label = _number(label)
        if label not in self._codes and len(self.unseen) < 10 and label not in self.unseen:
            self.unseen.append(label)
        return self._codes.get(label, self._known)

    def __len__(self) -> int:
        return len(self._codes)

    def final(self) -> tuple[tuple[Any, ...], Float]:
        """Return the labels in sorted order, and the final code of every provisional code and of unknown labels."""
        labels = list(self._codes)
        if self._known is not None:
            return tuple(labels), np.arange(len(labels) + 1.0)
        if self._untyped:
            labels = _numbers_if_all(labels)
        order = sorted(range(len(labels)), key=lambda code: (isinstance(labels[code], str), labels[code]))
        remap = np.empty(len(labels))
        remap[order] = np.arange(len(labels))
        return tuple(labels[code] for code in order), remap


def _number(text: str) -> Any:
    """Convert a CSV label to a number. Text that is not a number, or not exact in float64, is returned unchanged.

    >>> _number("1.50"), _number("9007199254740993"), _number("0.12345678901234567890"), _number("red")
    (1.5, 9007199254740993, '0.12345678901234567890', 'red')
    """
    try:
        number = Decimal(text)
    except InvalidOperation:
        return text
    if not number.is_finite() or abs(number.adjusted()) > sys.float_info.max_10_exp:
        return text
    if number == number.to_integral_value():
        return int(number)
    return float(text) if Decimal(repr(float(text))) == number else text


def _numbers_if_all(labels: list[str]) -> list[Any]:
    """Convert the labels to numbers if every label is a plain number: CSV does not distinguish numbers and text."""
    if not all(re.fullmatch(r"-?(0|[1-9]\d*)(\.\d+)?", label) for label in labels):
        return labels
    found = [_number(label) for label in labels]
    return labels if any(isinstance(label, str) for label in found) or len(set(found)) < len(found) else found


class Encoder:
    """An encoder of batches as records of float64: features in order, then targets, then weights if there are any."""

    def __init__(self, roles: Roles, reader: Reader, like: Columns | None = None) -> None:
        self.roles, self._name, self._like = roles, reader.name, like
        self.n_rows = self.bad = 0
        self._has_weight = roles.weights is None
        self._first: tuple[int, str] | None = None
        known: dict[str, Any] = {} if like is None else dict(like.categories)
        if like is not None and roles.classes:
            known[roles.targets[0]] = like.classes
        coded = [column for column in roles.wanted if column in roles.levels]
        self.levels = {column: Levels(known.get(column), untyped=reader.untyped) for column in coded}
        self._classes = self.levels[roles.targets[0]] if roles.classes else None

    def encode(self, batch: Batch, into: Float) -> None:
        """Encode a batch into the array ``into`` (rows, features + targets + weights)."""
        for place, column in enumerate(self.roles.wanted):
            levels = self.levels.get(column)
            into[:, place] = self._numbers(column, batch[column]) if levels is None else self._labels(column, batch)
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
                    f"{self._name}: the weight in row {row:,} (column {quoted(self.roles.weights)}) is negative: "
                    "precision weights are zero or positive."
                )
        self.n_rows += len(into)

    def _labels(self, column: str, batch: Batch) -> Float:
        levels, where = self.levels[column], f"{self._name}: the column {quoted(column)}"
        try:
            codes = levels.codes(batch[column])
        except (TypeError, NotImplementedError) as error:  # Arrow raises NotImplementedError
            raise DataError(
                f"{where} holds values that cannot be labels, or values of several types ({error}): convert the values "
                "to text."
            ) from error
        if levels.long is not None:
            code, length = levels.long
            row = self.n_rows + int(np.argmax(codes == code))
            raise DataError(
                f"{where} has a label of {length:,} characters in row {row:,}, but labels have at most "
                f"{LONGEST_LABEL:,}: omit the column, or replace its texts by short codes."
            )
        if sum(each.nbytes for each in self.levels.values()) > LABELS:
            raise DataError(
                f"{where} has {len(levels):,} labels so far; the labels of all columns take more than "
                f"{LABELS >> 20} MiB: omit the column, or replace its texts by short codes or numbers."
            )
        if levels is self._classes and len(levels) > MOST_CLASSES:
            raise DataError(
                f"{where} has more than {MOST_CLASSES:,} classes: if the target is numeric, ingest the data without "
                "--classes."
            )
        return codes

    def _numbers(self, column: str, values: Any) -> Float:
        import pyarrow as pa

        kind, where = pa.types, f"{self._name}: the column {quoted(column)}"
        if isinstance(values, pa.DictionaryArray):
            values = values.dictionary_decode()
        if kind.is_float64(values.type):
            return numbers(values)
        if kind.is_null(values.type):
            return np.full(len(values), np.nan)
        if kind.is_temporal(values.type):
            raise DataError(f"{where} holds dates or times: convert dates and times to numbers first.")
        if kind.is_nested(values.type):
            raise DataError(
                f"{where} holds values of the type {named(values.type)}, not numbers: make a column of each part, or "
                "omit the column with `--features`."
            )
        exact = (kind.is_floating, kind.is_boolean)
        if not any(is_kind(values.type) for is_kind in (*exact, kind.is_integer, kind.is_decimal)):
            first = next((value for value in values.slice(0, 100).to_pylist() if value is not None), None)
            raise text_column(self._name, column, quoted(first))
        floats = numbers(values.cast(pa.float64(), safe=False))
        if not any(is_kind(values.type) for is_kind in exact):
            whole = numbers(values.fill_null(0)) if kind.is_integer(values.type) else np.zeros(len(floats), object)
            for row in np.flatnonzero(np.abs(floats) >= LARGEST) if whole.dtype == object else ():
                whole[row] = values[int(row)].as_py()
            require_exact(whole, self._name, self.n_rows, columns=[column], ingested=True)
        return floats

    def check(self) -> None:
        """Raise ``DataError`` for missing or non-finite values, with their number and the position of the first, for
        weights that are all zero, and for classes that a fit does not accept.
        """
        if self._first is not None:
            row, column = self._first
            raise DataError(
                f"{self._name}: {self.bad:,} values are missing or not finite, the first in row {row:,} (counted "
                f"from 0), column {quoted(column)}. Remove these rows or impute the values first."
            )
        if not self._has_weight:
            raise DataError(
                f"{self._name}: the weights (column {quoted(self.roles.weights)}) are all zero: at least one row needs "
                "a positive weight."
            )
        if self._classes is not None:
            self._check_classes(self._classes)
        self._remaps = {column: levels.final()[1] for column, levels in self.levels.items()}

    def _check_classes(self, levels: Levels) -> None:
        where, classes = f"{self._name}: the target {quoted(self.roles.targets[0])}", levels.final()[0]
        if levels.unseen:
            raise DataError(
                f"{where} holds classes that the DATA of `--like` or `--append` do not have: "
                f"{listed_values(levels.unseen)}. Leave these rows out, or ingest all rows together as new DATA and "
                "train a new model."
            )
        if len(classes) < 2:
            raise DataError(f"{where} has only one class, {quoted(classes[0])}: classification needs at least two.")
        continuous = all(isinstance(label, float) and not label.is_integer() for label in classes)
        if self._like is None and continuous and 2 * len(classes) > self.n_rows:
            raise DataError(
                f"{where} holds continuous values such as {classes[0]:g} ({len(classes):,} distinct values in "
                f"{self.n_rows:,} rows), not classes: ingest the data without --classes, or bin the target."
            )

    def finished(self, records: Float, first: int) -> Float:
        """Replace provisional codes by final codes, and add ``first`` to the numbers of the rows, in place."""
        for place, column in enumerate(self.roles.wanted):
            if column in self._remaps:
                records[:, 2 + place] = self._remaps[column][records[:, 2 + place].astype(np.int64)]
        records[:, 1] += first
        return records

    def columns(self) -> Columns:
        """Return names, categories and classes; call this method after all rows are read.

        Without a target, the target and classes of ``like`` are returned.
        """
        final = {column: levels.final()[0] for column, levels in self.levels.items()}
        if not self.roles.targets:
            assert self._like is not None
            return replace(self._like, features=self.roles.features, categories=final)
        name, targets = ", ".join(self.roles.targets), self.roles.targets
        classes = final.pop(name) if self.roles.classes else None
        return Columns(self.roles.features, name, final, classes, targets if targets[1:] else ())
