"""Codes for labels of any type, for in-memory classes and for columns read in batches; class
weights."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from partirvm.data.arrays import in_process
from partirvm.data.frames import pandas_column
from partirvm.data.shapes import filled
from partirvm.data.tables import numbers
from partirvm.data.unseen import REMEMBERED
from partirvm.errors import DataError, UsageError
from partirvm.options.constraints import Check
from partirvm.quoting import listed, quoted
from partirvm.types import Float, label_bytes

Labels = NDArray[Any]


def find_classes(y: Any) -> Labels:
    """Return the sorted distinct labels (K,) of y (N,), a NumPy, Zarr or Dask array; the labels
    have y's dtype.

    Raises ``DataError`` for missing labels, continuous values, labels of several types and fewer
    than two classes.
    """
    from sklearn.utils.multiclass import check_classification_targets

    labels = _checked(in_process("y", y))
    try:
        classes = np.unique(labels)
        # pass each value twice: scikit-learn warns if there are more classes than half the rows
        with np.errstate(invalid="ignore"):
            check_classification_targets(np.repeat(classes, 2) if labels.ndim == 1 else labels)
    except (TypeError, ValueError) as error:
        raise DataError(
            f"the labels in y are not classes, or mix several types: {error}"
        ) from error
    if len(classes) < 2:
        content = f"only one class, {quoted(classes.tolist()[0])}" if len(classes) else "no labels"
        raise DataError(f"y has {content}: classification needs at least two classes.")
    return classes


def label_values(y: Any) -> Labels:
    """Return labels in memory as an array; numbers and booleans of dtype object get a numeric or
    boolean dtype."""
    labels = np.asarray(pandas_column(y), dtype=object if isinstance(y, list | tuple) else None)
    plain = np.array(labels.tolist()) if labels.dtype.kind == "O" else labels
    return _checked(labels if plain.dtype.kind in "US" else plain)


def _checked(labels: Labels) -> Labels:
    """Return the labels. Raises ``DataError`` for missing labels (NaN, None, NA, NaT)."""
    if labels.dtype.kind == "O":
        import pandas as pd

        missing = pd.isna(labels)
    else:
        missing = labels != labels
    if missing.any():
        raise DataError(
            f"y has {int(missing.sum()):,} missing labels, the first in row "
            f"{int(np.argmax(missing)):,} (counted from 0): remove these rows, or put them into a "
            "class of their own."
        )
    return labels


def coded(y: Any, classes: Labels) -> Float:
    """Return the codes of labels as a float64 array of y's shape. Zarr and Dask arrays are read in
    full."""
    labels = in_process("y", y)
    known = listed(classes.tolist(), show=quoted)
    try:
        places = np.minimum(np.searchsorted(classes, labels), len(classes) - 1)
    except TypeError as error:
        raise DataError(
            f"the labels in y have a different type from the classes {known}"
        ) from error
    unknown = labels[classes[places] != labels].tolist()
    if unknown:
        raise DataError(
            f"the label {quoted(unknown[0])} in y is not among the classes of the training data: "
            f"{known}"
        )
    return places.astype(np.float64)


def plain_label(label: Any) -> Any:
    """Convert a label to a JSON value; 1.0 becomes 1."""
    if isinstance(label, np.generic):
        label = label.item()
    if isinstance(label, bytes):
        return label.decode(errors="backslashreplace")
    if isinstance(label, float) and label.is_integer():
        label = int(label)
    if isinstance(label, int) and abs(label) >= 1 << 63:  # beyond the range of stored integers
        return str(label)
    return label if label is None or isinstance(label, str | bool | int | float) else str(label)


def plain_labels(classes: Labels) -> tuple[Any, ...]:
    """Convert labels to ``Columns.classes`` values. Raises ``DataError`` if two labels have the
    same text."""
    plain = tuple(map(plain_label, classes.tolist()))
    if len(set(map(str, plain))) < len(plain):
        raise DataError(
            f"several labels in y have the same text: {listed(plain)}: rename these labels."
        )
    return plain


def label_array(labels: Sequence[Any]) -> np.ndarray[Any, Any]:
    """Return plain labels as an array (K,) of their common type (str, bool, int64 or float64), or
    as an array of objects.

    Integers mixed with floats become floats if the conversion is exact, since DATA store 1.0 as 1.

    >>> columns = ["a", "b"], [True, False], [1, 2], [0.5, 1], ["a", 1]
    >>> [label_array(labels).dtype.kind for labels in columns]
    ['U', 'b', 'i', 'f', 'O']
    """
    kinds = {type(label) for label in labels}
    if len(kinds) == 1 or kinds == {int, float}:
        array = np.array(labels)
        if array.dtype.kind in "Ubif" and array.tolist() == list(labels):
            return array
    return np.array(labels, dtype=object)


def class_weights(class_weight: Any, classes: Sequence[Any], counts: Float) -> Float:
    """Return the weight of each of the K classes, shape (K,).

    "balanced" gives n / (K·count), as in scikit-learn, where n is the sum of ``counts`` (K,), the
    summed row weights of each class. A mapping assigns weights to labels, which may be written as
    strings; other classes have weight 1.
    """
    texts = list(map(text_of_label, classes))
    if isinstance(class_weight, str) and class_weight == "balanced":
        with np.errstate(divide="ignore"):
            by_label = dict(zip(texts, counts.sum() / (len(classes) * counts), strict=True))
    elif isinstance(class_weight, Mapping):
        by_label = {text_of_label(label): weight for label, weight in class_weight.items()}
    else:
        raise UsageError(
            f"class_weight is {class_weight!r}: it must be None, 'balanced' or weights by label"
        )
    for label, weight in by_label.items():
        if label not in texts:
            raise UsageError(
                f"class_weight names {quoted(label)}, but the classes are "
                f"{listed(classes, show=quoted)}"
            )
        Check("real", least=0.0)(f"class_weight of {quoted(label)}", weight)
    weights = np.array([by_label.get(text, 1.0) for text in texts], dtype=np.float64)
    if (weights > 0).sum() < 2:
        raise UsageError(
            "class_weight leaves fewer than two classes with positive weight: at least two are "
            "needed"
        )
    return weights


def text_of_label(label: Any) -> str:
    """Convert a label to a JSON key; 1, 1.0 and "1" give the same key."""
    return str(plain_label(label))


LABELS = 16 << 20
"""Maximum size in bytes of a column's labels, which every process reads."""

MOST_CLASSES = np.iinfo(np.int16).max
"""Maximum number of classes: fits store two-byte codes."""

INTEGER = re.compile(r"-?(0|[1-9]\d{0,17})(\.0+)?")
"""Strings that are integers of at most 18 digits."""

FRACTION = re.compile(r"-?(0|[1-9]\d{0,6})\.\d{1,8}")
"""Strings that are fractions of at most 15 digits, which float64 can tell apart."""


class Levels:
    """The labels of a column, with provisional codes in order of occurrence and, finally, codes in
    sorted order."""

    def __init__(
        self, where: str, known: Sequence[Any] | None, untyped: bool, classes: bool, most: float
    ) -> None:
        """Prepare to collect labels.

        Args:
            where: name of the column in messages
            known: labels whose codes are their positions here; other labels count as missing, and
                have the provisional code ``len(known)``
            untyped: True for strings of a CSV file, which become numbers if all are numeric
            classes: True if the labels are classes, so that unknown labels are refused
            most: maximum number of labels
        """
        self._where = where
        self._known = known
        self._untyped = untyped
        self._classes = classes
        self._most = min(most, MOST_CLASSES if classes else most)
        self.found: dict[Any, int] = {level: code for code, level in enumerate(known or ())}
        self.unseen = dict[Any, None]()  # the first labels that are not known
        self._numeric = known is not None and not any(isinstance(level, str) for level in known)
        self._nbytes = 0

    @property
    def full(self) -> bool:
        """True if there are too many labels: further labels are not stored, and the codes are
        meaningless."""
        return len(self.found) > self._most or self._nbytes > LABELS

    def codes(self, values: Any) -> Float:
        """Return the codes of an Arrow array as float64; NaN for missing values."""
        try:
            plain = values.dictionary_decode() if hasattr(values, "dictionary") else values
            encoded = plain.dictionary_encode()  # only the labels that occur
            labels = encoded.dictionary.to_pylist()
            places = numbers(filled(encoded.indices, len(labels)))
            table = list(map(self._code, labels))
        except (TypeError, NotImplementedError) as error:  # Arrow raises NotImplementedError
            raise DataError(
                f"{self._where} holds values that cannot be labels: make them text: {error}"
            ) from error
        codes: Float = np.array([*table, np.nan], dtype=np.float64)[places]
        return codes

    def _code(self, label: Any) -> float:
        label = plain_label(label)
        if label is None or label != label or (isinstance(label, str) and not label.strip()):
            return np.nan
        if self._known is None:
            if label not in self.found:
                if self.full:
                    return 0.0
                self._nbytes += label_bytes(label)
            return self.found.setdefault(label, len(self.found))
        if label not in self.found and self._numeric and isinstance(label, str):
            label = _number(label)
        if label not in self.found and self._classes:
            raise DataError(
                f"{self._where} holds the class {quoted(label)}, which the dataset of `--like` or "
                "`--append` does not have: leave such rows out"
            )
        if label not in self.found:
            if len(self.unseen) < REMEMBERED:
                self.unseen[label] = None
            return self.unseen_code
        return self.found[label]

    @property
    def unseen_code(self) -> float:
        """The provisional code of labels that are not known."""
        return len(self._known or ())

    def final(self) -> tuple[tuple[Any, ...], Float]:
        """Return the sorted labels, and the final codes for the provisional codes, unknown labels
        (NaN) and NaN."""
        labels = list(self.found)
        if self._known is not None:
            return tuple(labels), np.append(np.arange(float(len(labels))), [np.nan, np.nan])
        if self._untyped:
            values = list(map(_number, labels))
            numeric = not any(isinstance(value, str) for value in values)
            if numeric and len(set(values)) == len(values):
                labels = values

        def rank(code: int) -> tuple[bool, Any]:
            return isinstance(labels[code], str), labels[code]

        order = sorted(range(len(labels)), key=rank)
        remap = np.full(len(labels) + 1, np.nan)
        remap[order] = np.arange(len(labels))
        return tuple(labels[code] for code in order), remap


def _number(text: str) -> Any:
    """Convert a CSV label to a number; other text, and digits beyond float64 precision, are
    returned unchanged.

    >>> _number("1.50"), _number("7.0"), _number("0.12345678901234567890"), _number("red")
    (1.5, 7, '0.12345678901234567890', 'red')
    """
    if INTEGER.fullmatch(text):
        return int(text.partition(".")[0])
    return float(text) if FRACTION.fullmatch(text) else text
