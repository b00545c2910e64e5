"""Conversion of columns to rows of float64. Numeric values are unchanged; categories and classes become codes."""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from decimal import Decimal, InvalidOperation
from typing import Any

import numpy as np

from partirvm.core.exact import LARGEST, require_exact
from partirvm.data.checks import check_dtype, unknown_column
from partirvm.data.labels import plain_label
from partirvm.data.readers import Batch, Reader, numbers
from partirvm.data.source import Columns, Float
from partirvm.data.tables import require_distinct, text_column
from partirvm.data.weights import weights_of_noise
from partirvm.errors import DataError, UsageError
from partirvm.quoting import listed, listed_values, named, quoted
from partirvm.types import label_bytes

UNLABELLED = "To predict rows without a target, pass the training DATA: like=… (`--like`)."


@dataclass(frozen=True)
class Roles:
    """The role of every column. ``levels`` are the columns that contain labels: categorical features and a class
    target.

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
        return (*self.features, *self.targets, *([] if self.weights is None else [self.weights]))

    @property
    def levels(self) -> frozenset[str]:
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
    """Assign a role to every column. A target is required, except for data ``like`` others from a source without
    target.

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
    targets = targets or reader.targets
    weights = weights or reader.weights
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
        known = getattr(reader, "categorical", ())
        categorical = (*categorical, *(name for name in known if name in features and name not in categorical))
    roles = Roles(tuple(features), targets, weights, tuple(categorical), classes, noisy)
    _check_roles(roles, reader)
    return roles


def _named(target: Any, reader: Reader) -> tuple[str, ...]:
    """Return the names of the targets. A string that is not a column name may list several names, separated by commas.
    Data frames whose column names are integers also accept integers.

    Data frames whose column names are integers also accept integers.
    """
    if isinstance(target, str) and target:
        return (target,) if target in reader.columns else tuple(name.strip() for name in target.split(","))
    return tuple(map(str, target or ())) if np.iterable(target) or target is None else (str(target),)


def _check_roles(roles: Roles, reader: Reader) -> None:
    for name in roles.wanted:
        if len(name) > LONGEST_LABEL:
            raise DataError(
                f"{reader.name}: a column name has {len(name):,} characters, but names have at most "
                f"{LONGEST_LABEL:,}: rename the column {quoted(name)}."
            )
    columns, counts = set(reader.columns), Counter(roles.features)
    for name in roles.features:
        if name not in columns:
            raise unknown_column(name, "feature", reader.columns, reader.name)
        if name in (*roles.targets, roles.weights):
            role = "target" if name in roles.targets else "weights"
            raise UsageError(f"{reader.name}: the column {quoted(name)} cannot be both a feature and the {role}.")
        if counts[name] > 1:
            raise UsageError(f"the feature {quoted(name)} is named twice.")
    for name in roles.targets:
        if name == roles.weights:
            raise UsageError(f"{reader.name}: the column {quoted(name)} cannot be both the target and the weights.")
        if roles.targets.count(name) > 1:
            raise UsageError(f"the target {quoted(name)} is named twice.")
    if not roles.features:
        raise DataError(f"{reader.name}: there is no feature column besides {listed(roles.wanted)}.")
    for name in roles.categorical:
        if name in roles.targets:
            raise UsageError(
                f"the target {quoted(name)} cannot be a categorical feature; for a class target, pass --classes."
            )
        if name not in counts:
            raise unknown_column(name, "categorical", roles.features, reader.name)


LONGEST_LABEL = 1000
"""Maximum number of characters of a label or a column name. They are in the attributes of DATA, which every process
holds.
"""

LABELS = 16 << 20
"""Maximum number of bytes of all labels of a source, by ``label_bytes``: 15,000 labels of 1,000 characters."""


class Levels:
    """The labels of one column. Codes are assigned in order of appearance while reading, and in sorted order at the
    end.

    ``known`` labels keep their codes from the start, and any other label has the code ``len(known)``. Labels of an
    ``untyped`` source (CSV) are converted to numbers if every label is a number.

    >>> levels = Levels()
    >>> levels.codes(np.array(["b"])).tolist(), levels.codes(np.array(["a", "b"])).tolist()
    ([0.0], [1.0, 0.0])
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
        """Return the codes of a column, float64; NaN for missing values."""
        if hasattr(values, "null_count"):
            return self._arrow_codes(values)
        labels = np.asarray(values)
        missing = labels != labels if labels.dtype.kind in "fO" else np.zeros(len(labels), dtype=bool)
        if labels.dtype.kind == "O":
            missing |= np.array([label is None for label in labels], dtype=bool)
            labels = np.array([str(label) for label in labels]) if missing.any() else labels
        unique, inverse = np.unique(labels, return_inverse=True)
        codes = np.array([self._code(label) for label in unique.tolist()], dtype=np.float64)[inverse.reshape(-1)]
        return np.where(missing, np.nan, codes)

    def _arrow_codes(self, values: Any) -> Float:
        import pyarrow as pa

        coded = values if isinstance(values, pa.DictionaryArray) else values.dictionary_encode()
        labels = coded.dictionary.to_pylist()
        used = np.zeros(len(labels) + 1, dtype=bool)
        places = numbers(coded.indices.fill_null(len(labels)))
        used[places] = True
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


def _continuous(labels: tuple[Any, ...], rows: int) -> bool:
    """Return True if the labels are non-integer numbers and almost all differ, which indicates a continuous target."""
    return 2 * len(labels) > rows and all(isinstance(x, float) and not x.is_integer() for x in labels)


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
    """Convert the labels to numbers if every label is a plain number, because CSV does not distinguish numbers and
    text.
    """
    if not all(re.fullmatch(r"-?(0|[1-9]\d*)(\.\d+)?", label) for label in labels):
        return labels
    numbers = [_number(label) for label in labels]
    text = any(isinstance(number, str) for number in numbers)
    return labels if text or len(set(numbers)) < len(numbers) else numbers


MOST_CLASSES = np.iinfo(np.int16).max
"""Maximum number of classes of a target. Codes are stored in two bytes."""


class Encoder:
    """An encoder of batches as records of float64: features in order, then targets, then weights if there are any.

    The encoder counts missing and non-finite values and records the first position. ``check`` raises an error if there
    are any.
    """

    def __init__(self, roles: Roles, reader: Reader, like: Columns | None = None) -> None:
        self.roles, self._name, self._like = roles, reader.name, like
        self.n_rows = self.bad = 0
        self._weighs = roles.weights is None
        self._first: tuple[int, str] | None = None
        known: dict[str, Any] = {} if like is None else dict(like.categories)
        if like is not None and roles.classes:
            known[roles.targets[0]] = like.classes
        coded = [column for column in roles.wanted if column in roles.levels]
        self.levels = {column: Levels(known.get(column), untyped=reader.untyped) for column in coded}

    def encode(self, batch: Batch, into: Float) -> None:
        """Encode a batch into the array ``into`` (rows, features + targets + weights)."""
        for place, column in enumerate(self.roles.wanted):
            into[:, place] = self._encoded(column, batch[column])
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
            self._check_weights(into[:, -1])
        self.n_rows += len(into)
        self._check_classes()

    def _encoded(self, column: str, values: Any) -> Any:
        if column not in self.levels:
            return self._numbers(column, values)
        levels = self.levels[column]
        try:
            codes = levels.codes(values)
        except (TypeError, NotImplementedError) as error:  # Arrow raises NotImplementedError
            raise DataError(
                f"{self._name}: the column {quoted(column)} holds values that cannot be labels, or values of several "
                f"types ({error}): convert the values to text."
            ) from error
        if levels.long is not None:
            code, length = levels.long
            row = self.n_rows + int(np.argmax(codes == code))
            raise DataError(
                f"{self._name}: the column {quoted(column)} has a label of {length:,} characters in row {row:,}, but "
                f"labels have at most {LONGEST_LABEL:,}: omit the column, or replace its texts by short codes."
            )
        if sum(each.nbytes for each in self.levels.values()) > LABELS:
            raise DataError(
                f"{self._name}: the column {quoted(column)} has {len(levels):,} labels so far; the labels of all "
                f"columns take more than {LABELS >> 20} MiB: omit the column, or replace its texts by short codes or "
                "numbers."
            )
        return codes

    def _classes(self) -> tuple[str, Levels | None]:
        """Return the name of the target for messages, and its labels if the target is a class."""
        name = ", ".join(self.roles.targets)
        return name, self.levels[name] if self.roles.classes else None

    def _check_classes(self) -> None:
        name, target = self._classes()
        if target is not None and len(target) > MOST_CLASSES:
            raise DataError(
                f"{self._name}: the target {quoted(name)} has more than {MOST_CLASSES:,} classes: if the target "
                "is numeric, ingest the data without --classes."
            )

    def _check_weights(self, weights: Float) -> None:
        self._weighs = self._weighs or bool((weights > 0).any())
        if (weights < 0).any():
            row = self.n_rows + int(np.argmax(weights < 0))
            raise DataError(
                f"{self._name}: the weight in row {row:,} (column {quoted(self.roles.weights)}) is negative: precision "
                "weights are zero or positive."
            )

    def check(self) -> None:
        """Raise ``DataError`` for missing or non-finite values, with their number and the position of the first."""
        if self._first is not None:
            row, column = self._first
            raise DataError(
                f"{self._name}: {self.bad:,} values are missing or not finite, the first in row {row:,} (counted "
                f"from 0), column {quoted(column)}. Remove these rows or impute the values first."
            )
        if not self._weighs:
            raise DataError(
                f"{self._name}: the weights (column {quoted(self.roles.weights)}) are all zero: at least one row needs "
                "a positive weight."
            )
        name, target = self._classes()
        if target is not None and target.unseen:
            raise DataError(
                f"{self._name}: the target {quoted(name)} holds classes that the DATA of `--like` or `--append` do "
                f"not have: {listed_values(target.unseen)}. Leave these rows out, or ingest all rows "
                "together as new DATA and train a new model."
            )
        if target is not None and len(target.final()[0]) < 2:
            raise DataError(
                f"{self._name}: the target {quoted(name)} has only one class, {quoted(target.final()[0][0])}: "
                "classification needs at least two."
            )
        if target is not None and self._like is None and _continuous(target.final()[0], self.n_rows):
            raise DataError(
                f"{self._name}: the target {quoted(name)} holds continuous values such as "
                f"{target.final()[0][0]:g} ({len(target):,} distinct values in {self.n_rows:,} rows), not classes: "
                "ingest the data without --classes, or bin the target."
            )

    def remaps(self) -> dict[int, Float]:
        """Return the final code of each provisional code, for each coded column by its position in the record."""
        return {self.roles.wanted.index(column): levels.final()[1] for column, levels in self.levels.items()}

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

    def _numbers(self, column: str, values: Any) -> Any:
        if not hasattr(values, "null_count"):
            check_dtype(f"{self._name}: the column {quoted(column)}", values.dtype)
            require_exact(values, self._name, self.n_rows, columns=[column], ingested=True)
            return values
        import pyarrow as pa

        kind = pa.types
        if isinstance(values, pa.DictionaryArray):
            values = values.dictionary_decode()
        if kind.is_null(values.type):
            return np.full(len(values), np.nan)
        if kind.is_temporal(values.type):
            raise DataError(
                f"{self._name}: the column {quoted(column)} holds dates or times: convert dates and times "
                "to numbers first."
            )
        if not (
            kind.is_integer(values.type)
            or kind.is_floating(values.type)
            or kind.is_decimal(values.type)
            or kind.is_boolean(values.type)
        ):
            raise _no_numbers(self._name, column, values)
        if kind.is_float64(values.type):
            return numbers(values)
        floats = numbers(values.cast(pa.float64(), safe=False))
        require_exact(_whole_numbers(values, floats), self._name, self.n_rows, columns=[column], ingested=True)
        return floats


def _whole_numbers(values: Any, floats: Float) -> Any:
    """Return Arrow integers or decimals with 0 for missing values; of decimals only values that may be inexact in
    float64.

    >>> import pyarrow as pa
    >>> _whole_numbers(pa.array([2**53 + 1, None]), np.array([2.0**53, np.nan])).tolist()
    [9007199254740993, 0]
    """
    if np.issubdtype(values.type.to_pandas_dtype(), np.integer):
        return numbers(values.fill_null(0))
    found = np.zeros(len(floats), dtype=object)
    for row in np.flatnonzero(np.abs(floats) >= LARGEST):
        found[row] = values[int(row)].as_py()
    return found


def _no_numbers(where: str, column: str, values: Any) -> DataError:
    """Return the error for a column of text or of another non-numeric type."""
    import pyarrow as pa

    kind = pa.types
    if kind.is_nested(values.type):
        return DataError(
            f"{where}: the column {quoted(column)} holds values of the type {named(values.type)}, not numbers: make a "
            "column of each part, or omit the column with `--features`."
        )
    first = next((value for value in values.slice(0, 100).to_pylist() if value is not None), None)
    return text_column(where, column, quoted(first))
