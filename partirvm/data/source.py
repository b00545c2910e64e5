"""The data interface of a fit, and data checks: a source has numbered tiles, rows that can be read
by number, and an identity.

A *source* has N rows of d features, T targets and optional precision weights. Its *tiles* are runs
of ``tile_rows`` rows; the last may be shorter. Tile size depends on the data alone, so that sums
are bit-identical everywhere.
"""

import hashlib
import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress
from copy import copy
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np

from partirvm.core.moments import Moments, refuse_masked
from partirvm.errors import DataError
from partirvm.quoting import listed, quoted
from partirvm.storage.records import checksum
from partirvm.types import Columns, Float, Int

TILE_BYTES = 1 << 20
"""Approximate size in bytes of a tile's inputs, for data with many rows."""

FARTHEST = 1e60
"""Limit on values and standard deviations, beyond which powers exceed the float64 range."""

WEIGHT_GRAINS = 2.0**32
"""Number of values of a weight's mantissa between 0 and 1: a relative resolution of 2e-10."""

HEAVIEST = 1e100
"""Limit on the mean weight, beyond which powers exceed the float64 range."""


@dataclass(frozen=True)
class Tile:
    """A run of consecutive rows. The arrays are float64 and C-contiguous, and must not be modified.

    Attributes:
        number: number of the tile in its source
        start: row number of the first row
        X: inputs (rows, d)
        t: targets (rows, T)
        weights: precision weights (rows,), or None
        groups: codes of the rows' groups (rows,), or None
    """

    number: int
    start: int
    X: Float
    t: Float
    weights: Float | None = None
    groups: Int | None = None

    @property
    def present(self) -> Any:
        """An index of the rows with positive weight; a row with weight zero counts as absent and is
        never a candidate."""
        return slice(None) if self.weights is None else self.weights > 0

    @property
    def root_weights(self) -> Float:
        """The square roots of the row weights (rows,), or 1 without weights."""
        return np.ones(len(self.t)) if self.weights is None else np.sqrt(self.weights)

    def take(self, rows: Any, start: int) -> "Tile":
        """Return the rows selected by a slice or by positions as a tile that begins at row
        ``start``."""
        weights = None if self.weights is None else self.weights[rows]
        groups = None if self.groups is None else self.groups[rows]
        return Tile(self.number, start, self.X[rows], self.t[rows], weights, groups)


def concatenated(tiles: Sequence["Tile"]) -> "Tile":
    """Return the rows of several tiles of a source as one tile."""
    weights = [tile.weights for tile in tiles if tile.weights is not None]
    X = np.concatenate([tile.X for tile in tiles])
    t = np.concatenate([tile.t for tile in tiles])
    groups = [tile.groups for tile in tiles if tile.groups is not None]
    joined_groups = np.concatenate(groups) if groups else None
    return Tile(0, 0, X, t, np.concatenate(weights) if weights else None, joined_groups)


class Source:
    """A set of rows that is read tile by tile. Reading is thread-safe. On-disk sources are small
    when pickled.

    Attributes:
        n_rows: number of rows
        n_features: number of features
        n_targets: number of targets; 0 if the rows have none
        tile_rows: rows per tile; the last tile may be shorter
        columns: names and meaning of the columns
        shuffled: True if neighbouring rows are a random sample
        moments: moments of all rows, if known
        weighted: True if the rows have precision weights
        has_known_noise: True if the weights are 1/r² of a known relative noise r, so that their
            scale matters
        weight_unit: the divisor of the weights (``in_units``)
        grouped: True if the rows have groups (``core.groups``)
        class_weights: factors (K,) of the row weights by class, or None; the class codes are the
            first target column
    """

    n_rows: int
    n_features: int
    n_targets: int
    tile_rows: int
    columns: Columns
    shuffled: bool = False
    moments: Moments | None = None
    weighted: bool = False
    has_known_noise: bool = False
    weight_unit: float = 1.0
    grouped: bool = False
    class_weights: Float | None = None

    @property
    def has_target(self) -> bool:
        """True if the rows have a target; rows for prediction may have none."""
        return bool(self.n_targets)

    @property
    def n_tiles(self) -> int:
        """The number of tiles, ⌈n_rows / tile_rows⌉."""
        return -(-self.n_rows // self.tile_rows)

    def tile(self, number: int) -> "Tile":
        """Read one tile. Raises ``IndexError`` for an invalid number, and ``MissingDataError`` for
        a damaged chunk."""
        X = as_rows(self._read("X", number))
        t = np.empty((len(X), 0))
        if self.has_target:
            t = as_rows(self._read("y", number)).reshape(len(X), -1)
        weights = as_rows(self._read("weights", number)) if self.weighted else None
        if weights is not None and self.weight_unit != 1.0:
            weights = as_rows(in_units(weights, self.weight_unit))
        if self.class_weights is not None:
            of_classes = self.class_weights[t[:, 0].astype(np.int64)]
            weights = as_rows(of_classes if weights is None else of_classes * weights)
        return Tile(number, number * self.tile_rows, X, t, weights, self.groups_of_tile(number))

    def groups_of_tile(self, number: int) -> Int | None:
        """Read the codes of the groups of one tile's rows; None if the rows have no groups."""
        if not self.grouped:
            return None
        return np.ascontiguousarray(self._read("groups", number), dtype=np.int64)

    def with_class_weights(self, weights: Float) -> Self:
        """Return a copy with these ``class_weights`` and without moments, which would not take them
        into account."""
        weighted = copy(self)
        weighted.class_weights = weights
        weighted.moments = None
        return weighted

    def with_weight_unit(self, unit: float) -> Self:
        """Return a copy whose weights are divided by ``unit``, without moments, which would not
        take this into account."""
        if not self.weighted or unit == self.weight_unit:
            return self
        scaled = copy(self)
        scaled.weight_unit = unit
        scaled.moments = None
        return scaled

    def _read(self, name: str, number: int) -> Any:
        """Read one tile's rows of X, y, weights or groups."""
        raise NotImplementedError

    def original_rows(self, number: int) -> Int:
        """Return the row numbers that a tile's rows had before shuffling, (rows,) int64."""
        return np.arange(*self._span(number), dtype=np.int64)

    def part(self, tiles: Sequence[int]) -> "Source":
        """Return a picklable source from which another process can read only these tiles, with
        unchanged numbers."""
        return self

    def gather(self, rows: Sequence[int] | Int) -> "Tile":
        """Return the given rows, in this order, as one tile. Raises ``IndexError`` for numbers
        outside [0, n_rows)."""
        wanted = np.asarray(rows, dtype=np.int64)
        order = np.argsort(wanted, kind="stable")
        numbers, firsts = np.unique(wanted[order] // self.tile_rows, return_index=True)
        places = np.split(wanted[order] % self.tile_rows, firsts[1:])
        pieces = [
            self.tile(number).take(positions, 0)
            for number, positions in zip(numbers.tolist(), places, strict=False)
        ]
        if not pieces:
            pieces = [self.tile(0).take(slice(0), 0)]
        return concatenated(pieces).take(np.argsort(order), 0)

    def _span(self, number: int) -> tuple[int, int]:
        """Return the number of a tile's first row, and of the first row after the tile."""
        if not 0 <= number < self.n_tiles:
            raise IndexError(f"there is no tile {number}: {self} has tiles 0 to {self.n_tiles - 1}")
        return number * self.tile_rows, min((number + 1) * self.tile_rows, self.n_rows)

    def _take_shape_of(self, source: "Source") -> None:
        """Copy the shape, tiling, columns and order of another source."""
        self.n_rows = source.n_rows
        self.n_features = source.n_features
        self.n_targets = source.n_targets
        self.tile_rows = source.tile_rows
        self.columns = source.columns
        self.shuffled = source.shuffled
        self.weighted = source.weighted
        self.grouped = source.grouped

    def __str__(self) -> str:
        return f"{type(self).__name__} of {self.n_rows:,} rows × {self.n_features} features"


class Together(Source):
    """An on-disk source whose tiles each combine ``count`` tiles of another source."""

    def __init__(self, source: "Source", count: int) -> None:
        self._source = source
        self._count = count
        self._take_shape_of(source)
        self.tile_rows *= count

    def tile(self, number: int) -> "Tile":
        """Read neighbouring tiles of the source as one."""
        tile = concatenated([self._source.tile(part) for part in self._tiles(number)])
        return replace(tile, number=number, start=number * self.tile_rows)

    def groups_of_tile(self, number: int) -> Int | None:
        parts = [self._source.groups_of_tile(part) for part in self._tiles(number)]
        known = [groups for groups in parts if groups is not None]
        return np.concatenate(known) if known else None

    def original_rows(self, number: int) -> Int:
        return np.concatenate([self._source.original_rows(part) for part in self._tiles(number)])

    def _tiles(self, number: int) -> range:
        return range(number * self._count, min((number + 1) * self._count, self._source.n_tiles))


def in_units(weights: Float, unit: float) -> Float:
    """Return weights (n,) divided by ``unit``, with 32 significant bits.

    The result of a fit of many similar columns depends on the last bits: rounding removes those in
    which the quotients of weights with a common factor differ.
    """
    mantissas, exponents = np.frexp(weights / unit)
    rounded = np.rint(mantissas * WEIGHT_GRAINS) / WEIGHT_GRAINS
    return np.asarray(np.ldexp(rounded, exponents))


def tile_rows_for(n_rows: int, n_features: int) -> int:
    """Return the rows per tile, a power of two: at most ``TILE_BYTES`` of inputs, and small enough
    for 32 tiles of at least 2048 rows."""
    by_size = max(TILE_BYTES // (8 * max(n_features, 1)), 1)
    return 1 << (min(by_size, max(n_rows // 32, 2048), 16384).bit_length() - 1)


def hash_tile(tile: "Tile") -> str:
    """Return a hash of a tile's X, t, weights and groups, sixteen hexadecimal digits."""
    blocks = (tile.X, tile.t, tile.weights, tile.groups)
    return hash_of(checksum(block) for block in blocks if block is not None and block.size)


def hash_of(checksums: Iterable[str]) -> str:
    """Return the hash of a tile from the checksums of its X, t, weights and groups."""
    return hashlib.blake2b("".join(checksums).encode(), digest_size=8).hexdigest()


def as_rows(block: Any) -> Float:
    """Return a read-only, C-contiguous float64 view or copy of ``block``."""
    rows = np.ascontiguousarray(block, dtype=np.float64).view()
    rows.flags.writeable = False
    return rows


def default_names(n_features: int) -> tuple[str, ...]:
    """Return the feature names of an array, as in scikit-learn: ``x0``, ``x1``, …"""
    return tuple(f"x{j}" for j in range(n_features))


def check_shapes(X: Any, t: Any = None, weights: Any = None) -> None:
    """Raise ``DataError`` unless X is (N, d), t (N,) or (N, T), and weights (N,); weights in memory
    must be ≥ 0 and not all 0."""
    if len(X.shape) != 2:
        hint = "reshape X"
        if len(X.shape) == 1:
            hint = "X.reshape(-1, 1) gives one feature, X.reshape(1, -1) one row"
        raise DataError(
            f"X must have two dimensions (rows, features), found shape {X.shape}: {hint}."
        )
    n_rows, n_features = X.shape
    if n_features == 0:
        raise DataError(f"X has no features: its shape is {X.shape}.")
    check_row_count(n_rows, 2 if t is not None else 1)
    check_dtype("X", X.dtype)
    for name, values in (("y", t), ("the weights", weights)):
        if values is not None:
            check_dtype(name, values.dtype)
            check_beside(name, values, n_rows)
    if isinstance(weights, np.ndarray) and not (weights.any() and (weights >= 0).all()):
        raise DataError(
            "the weights are all zero, or some are negative: precision weights must be zero or "
            "positive."
        )


def check_beside(name: str, values: Any, n_rows: int) -> None:
    """Raise ``DataError`` unless y, of shape (N,) or (N, T), or the weights, (N,), match the
    ``n_rows`` rows of X."""
    shape = values.shape
    several = name == "y"
    if len(shape) not in range(1, 2 + several) or shape[0] != n_rows or 0 in shape[1:]:
        wanted = "(rows,) or (rows, targets)" if several else "(rows,)"
        raise DataError(
            f"X has {n_rows:,} rows, so {name} must have the shape {wanted} but has {tuple(shape)}."
        )


def check_row_count(n_rows: int, least: int, name: str = "the data") -> None:
    """Raise ``DataError`` for fewer than ``least`` rows: 2 to train a model, 1 to append to
    DATA."""
    if n_rows < least:
        rows = "there is only one row" if n_rows else "there are no rows"
        needed = f" At least {least} are needed." if least > 1 else ""
        raise DataError(f"{name}: {rows}.{needed}")


def require_target(source: "Source") -> None:
    """Raise ``DataError`` for data without a target."""
    if not source.has_target:
        target = quoted(source.columns.target)
        raise DataError(f"{source}: the data have no target: ingest a source that has {target}.")


def require_features_like(source: "Source", columns: Columns) -> None:
    """Raise ``DataError`` unless the data have the features of the training data's ``columns``."""
    for what in ("features", "categories", "dates"):
        _require_equal(source, what, getattr(source.columns, what), getattr(columns, what))


def require_like(source: "Source", columns: Columns, n_targets: int) -> None:
    """Raise ``DataError`` unless the data have the training data's features and targets.

    Args:
        source: the data.
        columns: the columns of the training data.
        n_targets: the number of targets of the training data.
    """
    require_features_like(source, columns)
    require_target(source)
    names = source.columns.targets
    if names and columns.targets:
        _require_equal(source, "targets", names, columns.targets)
    else:
        _require_equal(source, "targets", source.n_targets, n_targets)
    _require_equal(source, "classes", source.columns.classes, columns.classes)


def _require_equal(source: "Source", what: str, present: Any, wanted: Any) -> None:
    """Raise ``DataError`` unless a property of the data equals that of the training data.

    Args:
        source: the data.
        what: the name of the property.
        present: its value for the data.
        wanted: its value for the training data.
    """
    if present != wanted:
        raise DataError(
            f"{source}: the {what} of the data are {present!r:.200}, those of the training "
            f"data {wanted!r:.200}: ingest it again, with the training dataset as `like` "
            "(`--like`)"
        )


def check_dtype(name: str, dtype: Any) -> None:
    """Raise ``DataError`` for complex numbers, text, dates and objects; real numbers and booleans
    are accepted."""
    kind = getattr(dtype, "kind", "O")
    if kind not in "fiub":
        prefix = "Complex data not supported: " if kind == "c" else ""
        advice = (
            "convert the values, or ingest the table with its text columns named as categorical "
            "(`--categorical`)"
        )
        if name == "y":
            advice = "convert the values or, if they are labels, use RVMClassifier"
        raise DataError(
            f"{prefix}{name} holds complex numbers, text, dates or objects ({dtype}), but real "
            f"numbers are needed: {advice}."
        )


def check_values(where: str, moments: Moments, columns: Columns) -> None:
    """Raise ``DataError`` for features that have no values at all."""
    empty_places = np.flatnonzero(moments.inputs.missing == moments.inputs.n)
    empty = [columns.features[place] for place in empty_places]
    if moments.inputs.n and empty:
        raise DataError(
            f"{where}: no row has a value in [{listed(empty)}]: leave these columns out "
            "(`--exclude`)"
        )


def check_range(moments: Moments, columns: Columns) -> None:
    """Raise ``DataError`` for weights or columns whose values are too large or too small for
    float64 arithmetic."""
    weight = moments.targets.total[0] / moments.targets.n
    if not 1 / HEAVIEST <= weight <= HEAVIEST:
        raise DataError(
            f"the mean weight is {weight:.0e}: scale weights or relative noise by a power of ten"
        )
    targets = columns.target_names(len(moments.targets.mean))
    for names, block in ((columns.features, moments.inputs), (targets, moments.targets)):
        wrong = (block.largest > FARTHEST) | (~block.constant & (block.deviation < 1 / FARTHEST))
        if wrong.any():
            place = int(np.argmax(wrong))
            raise DataError(
                f"the column {quoted(names[place])} has values up to {block.largest[place]:.0e} "
                f"and the standard deviation {block.deviation[place]:.0e}: multiply it by a power "
                "of ten"
            )


def with_nan(values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return an array whose missing values of other libraries (``pandas.NA`` and the like) are NaN;
    ``values`` itself unless it holds objects."""
    pandas = sys.modules.get("pandas")
    if values.dtype.kind != "O" or pandas is None:
        return values
    return np.where(pandas.isna(values), np.nan, values)


def numeric_array(name: str, values: Any) -> np.ndarray[Any, Any]:
    """Convert ``values`` to a NumPy array of real numbers with unchanged dtype, or float64 for
    objects."""
    try:
        array = np.asarray(values)
    except ValueError as error:
        raise DataError(f"{name} is not a regular array: {error}.") from error
    if array.dtype.kind == "O" or np.ma.is_masked(values):
        refuse_masked(values, name)
        with suppress(TypeError, ValueError):
            array = with_nan(array).astype(np.float64)
    check_dtype(name, array.dtype)
    return array
