"""The role of every column of a table that is ingested, and the conversion of columns to rows of float64.

Numeric values are unchanged; categories and classes become codes.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from partirvm.data.labels import plain_label
from partirvm.data.tables import Batch, Reader, numbers, text_column
from partirvm.errors import DataError, UsageError
from partirvm.quoting import listed, named, quoted
from partirvm.types import Columns, Float, label_bytes

UNLABELLED = "To predict rows without a target, pass the training DATA: like=… (`--like`)."

LABELS, MOST_CLASSES = 16 << 20, np.iinfo(np.int16).max
"""Maximum numbers of bytes of all labels, which every process reads, and of classes: fits keep two bytes."""

INTEGER, FRACTION = re.compile(r"-?(0|[1-9]\d{0,17})(\.0+)?"), re.compile(r"-?(0|[1-9]\d{0,6})\.\d{1,8}")
"""Texts that are numbers: different ones are different integers or floats."""


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
    where, weights = table.name, weights or table.weights
    if isinstance(target, str):
        target = [target] if target in table.columns else [name.strip() for name in target.split(",")]
    targets = tuple(map(str, target or ()))
    if like is not None:
        features = like.features if features is None else features
        categorical, classes = tuple(like.categories), like.classes is not None
        learned = like.targets or (like.target,)
        targets = targets or (learned if set(learned) <= set(table.columns) else ())
    targets = targets or table.targets
    classes = classes and bool(targets)
    if noise is not None and (weights is not None or classes):
        raise UsageError(
            f"{where}: the column {quoted(noise)} cannot be the noise (`--noise`): noise is for regression without "
            "weights, and gives the weights 1/noise²."
        )
    if classes and len(targets) > 1:
        raise UsageError(f"{where}: a classification has one target, but {listed(targets)} are {len(targets)}.")
    if not targets and like is None:
        raise UsageError(
            f"{where}: no target is named: pass y or target=… (`--target`). "
            f"Its columns: {listed(table.columns)}. {UNLABELLED}"
        )
    own = weights or noise
    if features is None:
        features = [name for name in table.columns if name not in (*targets, own)]
    features = tuple(map(str, features))
    found = [name for name in table.categorical if name in features and like is None]
    coded = tuple(dict.fromkeys([*map(str, categorical), *found]))
    roles = Roles(features, targets, own, coded, classes, noise is not None)
    _check_roles(roles, table)
    return roles


def _check_roles(roles: Roles, table: Reader) -> None:
    """Raise ``DataError`` for unknown or ambiguous names, and ``UsageError`` for names with two roles."""
    where = table.name
    for name in roles.wanted:
        found = table.columns.count(name)
        if found != 1:
            has, hint = "several columns" if found else "no column", f" {UNLABELLED}" * (name in roles.targets)
            raise DataError(f"{where} has {has} {quoted(name)}. Its columns: {listed(table.columns)}.{hint}")
    if not roles.features:
        raise DataError(f"{where}: there is no feature column besides {listed(roles.wanted)}.")
    several = [name for name, count in Counter(roles.wanted).items() if count > 1]
    if several:
        raise UsageError(
            f"{where}: the column {quoted(several[0])} can be only one of target, feature, weights and noise, once."
        )
    for name in set(roles.categorical) - set(roles.features):
        raise DataError(
            f"{where} has no feature {quoted(name)} (categorical): {listed(roles.features)}. For a class target pass "
            "--classes."
        )


class Levels:
    """The labels of a column, with provisional codes in the order of occurrence and sorted codes at the end.

    ``known`` labels keep their codes from the start. Any other label has the code ``len(known)``, or is refused if the
    labels are ``classes``. Labels of an ``untyped`` source (CSV) are converted to numbers if every label is a number.
    """

    def __init__(self, where: str, known: Sequence[Any] | None, untyped: bool, classes: bool) -> None:
        self._where, self._known, self._untyped, self._classes = where, known, untyped, classes
        self.found: dict[Any, int] = {level: code for code, level in enumerate(known or ())}
        self._numeric = known is not None and not any(isinstance(level, str) for level in known)
        self.nbytes = 0

    def codes(self, values: Any) -> Float:
        """Return the codes of an Arrow array, float64; NaN for missing values."""
        try:
            plain = values.dictionary_decode() if hasattr(values, "dictionary") else values
            coded = plain.dictionary_encode()  # only labels that occur
            labels = coded.dictionary.to_pylist()
            places = numbers(coded.indices.fill_null(len(labels)))
            table = list(map(self._code, labels))
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
            return self.found.setdefault(label, len(self.found))
        if label not in self.found and self._numeric and isinstance(label, str):
            label = _number(label)
        if label not in self.found and self._classes:
            raise DataError(
                f"{self._where} holds the class {quoted(label)}, which the DATA of `--like` or `--append` do not have: "
                "leave such rows out, or ingest all rows as new DATA"
            )
        return self.found.get(label, len(self._known))

    def final(self) -> tuple[tuple[Any, ...], Float]:
        """Return the labels in sorted order, and the final code of every provisional code and of unknown labels."""
        labels = list(self.found)
        if self._known is not None:
            return tuple(labels), np.arange(len(labels) + 1.0)
        if self._untyped:
            found = list(map(_number, labels))
            whole = not any(isinstance(label, str) for label in found) and len(set(found)) == len(found)
            labels = found if whole else labels
        order = sorted(range(len(labels)), key=lambda code: (isinstance(labels[code], str), labels[code]))
        remap = np.empty(len(labels))
        remap[order] = np.arange(len(labels))
        return tuple(labels[code] for code in order), remap


def _number(text: str) -> Any:
    """Convert a label of CSV to a number; other text, and digits that float64 does not hold, are returned unchanged.

    >>> _number("1.50"), _number("7.0"), _number("0.12345678901234567890"), _number("red")
    (1.5, 7, '0.12345678901234567890', 'red')
    """
    if INTEGER.fullmatch(text):
        return int(text.partition(".")[0])
    return float(text) if FRACTION.fullmatch(text) else text


class Encoder:
    """An encoder of batches as records of float64: features in order, then targets, then weights if there are any."""

    def __init__(self, roles: Roles, table: Reader, like: Columns | None = None) -> None:
        self.roles, self._name, self._like, self.n_rows = roles, table.name, like, 0
        known: dict[str, Any] = {} if like is None else dict(like.categories)
        if like is not None and roles.classes:
            known[roles.targets[0]] = like.classes
        self.levels = {
            column: Levels(self._column(column), known.get(column), table.untyped, column in roles.targets)
            for column in (*roles.categorical, *(roles.targets if roles.classes else ()))
        }

    def _column(self, name: str | None) -> str:
        return f"{self._name}: the column {quoted(name)}"

    def records(self, table: Reader, seed: int | None, batch_bytes: int) -> Iterator[Float]:
        """Yield the rows of a table as records: shuffle key, row number, features, targets, weights.

        The records of a batch stand in the memory of the records before them.
        """
        rng = None if seed is None else np.random.default_rng(seed)
        space = np.empty((0, 2 + len(self.roles.wanted)))
        for batch in table.batches(self.roles.wanted, frozenset(self.levels), batch_bytes):
            start, n = self.n_rows, len(batch[self.roles.features[0]])
            space = space if len(space) >= n else np.empty((n, space.shape[1]))
            records = space[:n]
            self._encode(batch, records[:, 2:])
            self.n_rows += n
            del batch  # free the memory before the next batch is read
            records[:, 1] = np.arange(start, start + n)
            records[:, 0] = records[:, 1] if rng is None else rng.random(n)
            yield records

    def _encode(self, batch: Batch, into: Float) -> None:
        """Encode a batch into the array ``into`` (rows, features + targets + weights)."""
        for place, column in enumerate(self.roles.wanted):
            coded = column in self.levels
            into[:, place] = self._labels(column, batch) if coded else self._numbers(column, batch[column])
        if self.roles.noisy:
            with np.errstate(all="ignore"):
                into[:, -1] = np.copysign(1.0 / into[:, -1] ** 2, into[:, -1])
        wrong = ~np.isfinite(into)
        if self.roles.weights is not None:
            wrong[:, -1] |= into[:, -1] < 0
        if wrong.any():
            row, place = np.argwhere(wrong)[0].tolist()
            rule = ", weights are at least 0, and noise is above 0" if self.roles.weights is not None else ""
            raise DataError(
                f"{self._column(self.roles.wanted[place])} has missing values or others that cannot be used, the first "
                f"in row {self.n_rows + row:,} (counted from 0): values are finite numbers{rule}. Remove these rows or "
                "impute the values first."
            )

    def _labels(self, column: str, batch: Batch) -> Float:
        codes, n = self.levels[column].codes(batch[column]), len(self.levels[column].found)
        many = column in self.roles.targets and n > MOST_CLASSES
        if many or sum(each.nbytes for each in self.levels.values()) > LABELS:
            raise DataError(
                f"{self._column(column)} has {n:,} labels so far, more than every process can read: omit the column, "
                "replace its texts by short codes, or ingest a numeric target without --classes."
            )
        return codes

    def _numbers(self, column: str, values: Any) -> Float:
        import pyarrow as pa

        if isinstance(values, pa.DictionaryArray):
            values = values.dictionary_decode()
        kind = pa.types
        numeric = (kind.is_integer, kind.is_floating, kind.is_boolean, kind.is_null, kind.is_decimal)
        if not any(is_kind(values.type) for is_kind in numeric):
            first = next((value for value in values.slice(0, 100).to_pylist() if value is not None), None)
            raise text_column(self._name, column, f"{quoted(first)} of the type {named(values.type)}")
        return numbers(values if kind.is_float64(values.type) else values.cast(pa.float64(), safe=False))

    @cached_property
    def final(self) -> dict[str, tuple[tuple[Any, ...], Float]]:
        """The labels of each column and their final codes (``Levels.final``), after the last batch."""
        return {column: levels.final() for column, levels in self.levels.items()}

    def finished(self, records: Float, first: int) -> Float:
        """Replace provisional codes by final codes, and add ``first`` to the numbers of the rows, in place."""
        for place, column in enumerate(self.roles.wanted, 2):
            if column in self.final:
                records[:, place] = self.final[column][1][records[:, place].astype(np.int64)]
        records[:, 1] += first
        return records

    def columns(self) -> Columns:
        """Return names, categories and classes; without a target, the target and classes of ``like``."""
        final = {column: labels for column, (labels, _) in self.final.items()}
        if not self.roles.targets:
            assert self._like is not None
            return replace(self._like, features=self.roles.features, categories=final)
        name, targets = ", ".join(self.roles.targets), self.roles.targets
        classes = final.pop(name) if self.roles.classes else None
        return Columns(self.roles.features, name, final, classes, targets if targets[1:] else ())
