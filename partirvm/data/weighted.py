"""A source with class weights (``class_weight``): each row weight is multiplied by the weight of the class of the row.

Only the row weights change, so class weights have exactly the effect of equal sample weights.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from partirvm.data.labels import plain_label
from partirvm.data.source import Fingerprint, Float, Int, Source, Tile
from partirvm.data.tiled import TiledRows, as_rows
from partirvm.errors import DataError, UsageError
from partirvm.quoting import listed_values, quoted


class ClassWeighted(TiledRows):
    """A source whose row weights are multiplied by ``weights[code]``.

    ``moments`` is None until a pass computes the moments, because the moments of ``source`` ignore the class weights.
    The pickled object is small if the pickled ``source`` is small.

    Parameters
    ----------
    source : Source
        A source with class codes in the first column of its targets.
    weights : (K,) array
        Weight of each class, zero or positive. The rows of a class of weight zero count as absent.

    Examples
    --------
    >>> from partirvm.data.arrays import ArraySource
    >>> source = ArraySource(np.zeros((3, 1)), np.array([0.0, 1.0, 1.0]), np.array([1.0, 1.0, 4.0]))
    >>> ClassWeighted(source, np.array([3.0, 0.5])).tile(0).weights.tolist()
    [3.0, 0.5, 2.0]
    """

    def __init__(self, source: Source, weights: Float) -> None:
        self._source, self._class_weights = source, np.asarray(weights, dtype=np.float64)
        self.n_rows, self.n_features, self.n_targets = source.n_rows, source.n_features, source.n_targets
        self.tile_rows, self.shuffled, self.columns = source.tile_rows, source.shuffled, source.columns
        self.seed = getattr(source, "seed", None)
        self.weighted, self.moments = True, None
        self._fingerprint: Fingerprint | None = None

    def tile(self, number: int) -> Tile:
        """Return one tile of the source; its row weights include the class weights."""
        tile = self._source.tile(number)
        weights = self._class_weights[tile.t[:, 0].astype(np.int64)]
        return replace(tile, weights=as_rows(weights if tile.weights is None else weights * tile.weights))

    def gather(self, rows: Sequence[int] | Int) -> Float:
        """Return the inputs of the rows with the given numbers, shape (len(rows), d)."""
        return self._source.gather(rows)

    def part(self, tiles: Sequence[int]) -> ClassWeighted:
        """Return a part of the source with the same class weights."""
        part = ClassWeighted(self._source.part(tiles), self._class_weights)
        part._fingerprint = self.fingerprint()
        return part

    def fingerprint(self) -> Fingerprint:
        """Return the shape and the hashes of the first tiles, including class weights. The fingerprint is computed
        once.
        """
        if self._fingerprint is None:
            self._fingerprint = super().fingerprint()
        return self._fingerprint

    def __str__(self) -> str:
        return str(self._source)


def class_weights(class_weight: Any, classes: Sequence[Any], counts: Float | None = None) -> Float:
    """Return the weight of each of the K classes, shape (K,).

    "balanced" gives n / (K·count), as in scikit-learn: ``counts`` (K,) is the number of rows of each class or the sum
    of their weights, and n is the sum of ``counts``. A mapping gives the weight of a label, or of a label written as
    text. Classes without an entry in the mapping have the weight 1.

    Raises ``UsageError`` for unknown labels, negative weights and other types, and if fewer than two classes have a
    positive weight. Raises ``DataError`` for "balanced" if a class has no rows.

    >>> class_weights({"yes": 3}, ("no", "yes")).tolist()
    [1.0, 3.0]
    >>> class_weights("balanced", (0, 1), np.array([30.0, 10.0])).round(3).tolist()
    [0.667, 2.0]
    """
    if isinstance(class_weight, str) and class_weight == "balanced":
        assert counts is not None
        if not (counts > 0).all():
            empty = classes[int(np.argmin(counts))]
            raise DataError(f"class_weight='balanced', but no row of the class {quoted(empty)} has a positive weight")
        balanced: Float = counts.sum() / (len(classes) * counts)
        return balanced
    if not isinstance(class_weight, Mapping):
        raise UsageError(
            f"class_weight is {class_weight!r}: it must be None, 'balanced' or a dict of labels and weights"
        )
    places = {text_of_label(label): code for code, label in enumerate(classes)}
    weights = np.ones(len(classes))
    for label, weight in class_weight.items():
        if text_of_label(label) not in places:
            known = listed_values(classes)
            raise UsageError(f"class_weight names {quoted(label)}, but the classes of the data are {known}")
        weights[places[text_of_label(label)]] = _weight(label, weight)
    if (weights > 0).sum() < 2:
        raise UsageError("class_weight leaves fewer than two classes with positive weight: two classes are needed")
    return weights


def text_of_label(label: Any) -> str:
    """Convert a label to a JSON key; 1, 1.0 and "1" give equal keys.

    >>> text_of_label(1.0), text_of_label(True), text_of_label("a")
    ('1', 'True', 'a')
    """
    return str(plain_label(label))


def _weight(label: Any, weight: Any) -> float:
    try:
        value = float(weight)
    except (TypeError, ValueError):
        value = np.nan
    if not (np.isfinite(value) and value >= 0):
        raise UsageError(f"class_weight of {quoted(label)} is {weight!r}: it must be a number ≥ 0")
    return value
