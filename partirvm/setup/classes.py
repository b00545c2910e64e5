"""The classes of a target: the number of rows of each class and the code of every row."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from partirvm.backends import Executor
from partirvm.data import Source
from partirvm.errors import DataError, DataWarning, UsageError
from partirvm.options import Request
from partirvm.quoting import listed, quoted

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
    """Class codes of all rows (N,), and the number of rows of positive weight of each class (K,).

    A code takes one byte for up to 127 classes and two bytes for more classes.
    """

    n_classes: int
    codes: NDArray[np.integer[Any]]
    counts: NDArray[np.int64]


@dataclass(frozen=True)
class TileCodes:
    """Task that reads one tile; its result is the class codes and the number of rows of positive weight per class."""

    n_classes: int

    def __call__(self, source: Source, number: int) -> tuple[NDArray[np.integer[Any]], NDArray[np.int64]]:
        """Read the tile; return its codes and its counts (K,)."""
        tile = source.tile(number)
        codes = tile.t[:, 0]
        there = codes if tile.weights is None else codes[tile.weights > 0]
        counts = np.bincount(there.astype(np.int64), minlength=self.n_classes)
        return codes.astype(np.int8 if self.n_classes <= np.iinfo(np.int8).max else np.int16), counts


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
    tiles = list(executor.map(TileCodes(len(labels)), source, range(source.n_tiles), None))
    counts = np.sum([counted for _, (_, counted) in tiles], axis=0)
    _check(source.columns.target, labels, counts)
    return Classes(len(labels), np.concatenate([codes for _, (codes, _) in tiles]), counts)


def _check(target: str, labels: tuple[Any, ...], counts: NDArray[np.int64]) -> None:
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
