"""The classes of a target: the number of rows of each class, the code of every row, and the weight of each class."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from partirvm.data import Source
from partirvm.data.labels import class_weights
from partirvm.errors import DataError, DataWarning, UsageError
from partirvm.execution import Executor
from partirvm.execution.tasks import Progress
from partirvm.options import Request
from partirvm.quoting import listed, quoted

Codes = NDArray[np.integer[Any]]
Float = NDArray[np.float64]
Int = NDArray[np.int64]

RARE = 5
"""A class with fewer rows gives a warning."""

MANY = 20
"""More classes than this need ``LEAST_ROWS`` rows per class on average: the target is probably a number or a key."""

LEAST_ROWS = 2.0
"""Minimum mean number of rows per class, if there are more than ``MANY`` classes."""

NAMED = 10
"""Maximum number of classes named in a warning."""


@dataclass(frozen=True)
class Classes:
    """Class codes of all rows (N,), the number of rows of positive weight of each class (K,), and their weights (K,).

    A code takes one byte for up to 127 classes and two bytes for more classes.
    """

    codes: Codes
    counts: Int
    totals: Float

    @property
    def n_classes(self) -> int:
        """K, the number of classes."""
        return len(self.counts)

    @classmethod
    def of(cls, source: Source, executor: Executor, progress: Progress | None = None) -> Classes:
        """Read all rows once. ``progress`` is called after each tile; an exception from it ends the reading."""
        assert source.columns.classes is not None
        count = CountTile(len(source.columns.classes))
        tiles = [found for _, found in executor.map(count, source, range(source.n_tiles), progress)]
        codes, counts, totals = zip(*tiles, strict=True)
        return cls(np.concatenate(codes), np.sum(counts, axis=0), np.sum(totals, axis=0))


@dataclass(frozen=True)
class CountTile:
    """Task that reads one tile; its result is the class codes, and rows of positive weight and weight of each class."""

    n_classes: int

    def __call__(self, source: Source, number: int) -> tuple[Codes, Int, Float]:
        """Read the tile; return its codes, counts (K,) and sums of weights (K,)."""
        tile = source.tile(number)
        codes = tile.t[:, 0].astype(np.int64)
        counts = np.bincount(codes if tile.weights is None else codes[tile.weights > 0], minlength=self.n_classes)
        totals = np.bincount(codes, tile.weights, minlength=self.n_classes).astype(np.float64)
        return codes.astype(np.int8 if self.n_classes <= np.iinfo(np.int8).max else np.int16), counts, totals


def find_classes(source: Source, parameters: Request, executor: Executor) -> Classes | None:
    """Read all rows and return the classes of the target; return None for a numeric target.

    Raises ``UsageError`` if the option ``classify`` contradicts the target, ``DataError`` for fewer than two classes.
    """
    labels = source.columns.classes
    if labels is None:
        if parameters.classify:
            raise UsageError(
                f"{source}: the target {quoted(source.columns.target)} is a number: to classify, ingest the data with "
                "classes=True (`--classes`)"
            )
        return None
    if parameters.classify is False:
        raise UsageError(
            f"{source}: the target {quoted(source.columns.target)} is a class ({len(labels)} of them): use "
            "RVMClassifier, or ingest the data without --classes if it is a number"
        )
    found = Classes.of(source, executor)
    _check(source.columns.target, labels, found.counts)
    return found


def codes_of(source: Source, request: Request, executor: Executor) -> Codes | None:
    """Return the class codes (N,) of all rows, or None for a numeric target. Raises the errors of ``find_classes``."""
    classes = find_classes(source, request, executor)
    return None if classes is None else classes.codes


def class_weights_of(
    source: Source, parameters: Request, executor: Executor, progress: Progress | None = None
) -> Float | None:
    """Return the weight of each class (K,), or None if ``class_weight`` is None.

    The value "balanced" reads all rows once to count the classes. ``progress`` is called after each tile, and an
    exception from ``progress`` ends the reading. Raises the errors of ``class_weights``, and ``UsageError`` if the
    target is numeric.
    """
    if parameters.class_weight is None:
        return None
    if source.columns.classes is None:
        raise UsageError(
            f"{source}: class_weight needs classes, but the target {quoted(source.columns.target)} is a number: "
            "ingest the data with classes=True (`--classes`), or with a column of row weights (`--weights`)"
        )
    balanced = parameters.class_weight == "balanced"
    counts = Classes.of(source, executor, progress).totals if balanced else None
    return class_weights(parameters.class_weight, source.columns.classes, counts)


def _check(target: str, labels: tuple[Any, ...], counts: Int) -> None:
    there = np.flatnonzero(counts)
    if len(there) < 2:
        found = "no class" if not len(there) else f"one class, {quoted(labels[there[0]])}"
        raise DataError(
            f"the target {quoted(target)} has {found} in all rows of positive weight: a classification needs two"
        )
    if len(there) > MANY and counts.sum() < LEAST_ROWS * len(there):
        raise DataError(
            f"the target {quoted(target)} has {len(there):,} classes in {counts.sum():,} rows of positive weight: with "
            f"more than {MANY} classes, {LEAST_ROWS:.0f} rows per class are needed on average; merge rare classes, or "
            "fit the target as a number, without classes"
        )
    missing = [str(labels[k]) for k in np.flatnonzero(counts == 0).tolist()]
    if missing:
        warnings.warn(
            f"classes without a row of positive weight: {_named(missing)}; the model cannot learn their probability",
            DataWarning,
            stacklevel=4,
        )
    rare = [f"{labels[k]} ({counts[k]})" for k in np.flatnonzero((counts > 0) & (counts < RARE))]
    if rare:
        warnings.warn(
            f"classes with fewer than {RARE} rows: {_named(rare)}; their rows take part in the fit, but "
            "their probability is uncertain",
            DataWarning,
            stacklevel=4,
        )


def _named(classes: list[str]) -> str:
    """List the first ``NAMED`` classes and the number of the others.

    >>> _named(["a", "b"]), _named([str(k) for k in range(100)])
    ('a, b', '0, 1, 2, 3, 4, 5, 6, 7, 8, 9 and 90 more')
    """
    rest = len(classes) - NAMED
    return listed(classes[:NAMED]) + (f" and {rest:,} more" if rest > 0 else "")
