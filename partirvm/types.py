"""Small frozen values used throughout the package."""

import itertools
from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Float = NDArray[np.float64]
Int = NDArray[np.int64]
Bool = NDArray[np.bool_]
Each: TypeAlias = float | Float
"""A number for one target, or numbers (T,) for several."""

LEARNING_ROWS = 8000  # maximum number of rows for kernel learning: more hardly change the kernel
# with more features, a kernel is relearned from fewer rows: features × rows is constant
LEARNING_FEATURES = 50
LEFT_OUT_ROWS = 50_000  # maximum number of rows left out of a fit to estimate its uncertainty
# maximum number of centres of an input-dependent noise variance, each with four or more rows
NOISE_CENTRES = 64
# number of rows whose design block is in memory at once; changing it changes a pass's rounding
PANEL_ROWS = 2048
RESIDUAL_ROWS = 400  # minimum number of rows for which local residuals are tried by default
# minimum and maximum number of rows for comparing a learned fit with boosted trees
COMPARED_ROWS = 1000, 20_000
# minimum memory of a fit that is compared with boosted trees: scikit-learn takes 170 MiB
COMPARED_MEMORY = 1 << 30
# minimum and maximum number of rows for evaluating a model without vectors
JUDGED_ROWS = 50, 2000
TREES = 40  # number of trees in a comparison, and in total for three or more classes
TREES_OF_CLASSES = 120
RESIDUAL_TEACHERS = 4096  # maximum number of rows from which local residuals are learned
RESIDUAL_NEIGHBOURS = 40  # number of neighbours of a local residual
RESIDUAL_TRIAL = 1000, 20  # maximum numbers of rows and neighbours in a trial of local residuals
RESIDUAL_COLUMNS = 3  # values of a local residual row in addition to its point and errors
# maximum number of targets for trying local residuals: each takes as long as a single one
RESIDUAL_TARGETS = 4
# number of test rows whose extra basis functions are evaluated together; a multiple of 24
EXTRA_COLUMNS = 120

BIAS = -1
"""Label of the bias column. Negative labels mark *leading* columns, which do not come from rows and
are candidates in every fit."""


def squeezed(values: Float, axis: int = 0) -> Any:
    """Return the values of T targets; for one target, without the target axis.

    A value with no other axis becomes a float.
    """
    if values.shape[axis] != 1:
        return values
    single = values.squeeze(axis)
    return single if single.ndim else single.item()


class DeclaredState:
    """Base class of dataclasses whose restored state contains only their fields.

    A pickle or a skops file may contain further attributes. Attributes that this package adds are
    recomputed; others could replace methods.
    """

    def __setstate__(self, state: Any) -> None:
        for field_ in fields(self):  # type: ignore[arg-type]
            if field_.name in state:
                object.__setattr__(self, field_.name, state[field_.name])


def label_bytes(label: Any) -> int:
    """Return the bytes that a name or label takes in DATA's attributes and in memory."""
    return 100 + (len(label.encode(errors="replace")) if isinstance(label, str) else 0)


def cyclic(column: str, cycles: Iterable[str]) -> list[str]:
    """Return the names of the features that are cycles of a date column."""
    return [f"{column} ({wave} of the {cycle})" for cycle in cycles for wave in ("sine", "cosine")]


@dataclass(frozen=True)
class NumberGrammar(DeclaredState):
    """How the strings of a column write numbers; the default is the notation of computers.

    Attributes:
        decimal: decimal mark
        thousands: thousands separator; "" for none
        unit: unit or currency, in lower case and in the singular; "" for none
        gaps: True if strings that are not numbers are missing values
    """

    decimal: str = "."
    thousands: str = ""
    unit: str = ""
    gaps: bool = False

    @property
    def is_plain(self) -> bool:
        """True if all numbers are written as computers write them."""
        return (self.decimal, self.thousands, self.unit) == (".", "", "")

    @property
    def flags(self) -> dict[str, str]:
        """The ``ingest`` options that choose these marks.

        >>> NumberGrammar(".", ",").flags, NumberGrammar(",").flags
        ({'thousands': ','}, {'decimal': ','})
        """
        return {"thousands": self.thousands} if self.thousands else {"decimal": self.decimal}

    def __str__(self) -> str:
        return self.described()

    def described(self, *, separated: bool = True, power: str = "²/³") -> str:
        """Describe the notation.

        Args:
            separated: False if no number contains a mark, so that the marks say nothing
            power: the power of the unit, of which the grammar knows only that there is one

        >>> NumberGrammar(".", ",", "m9").described(separated=False, power="²")
        'unit m²'
        """
        marks = f"decimal mark {self.decimal!r}"
        if self.thousands:
            marks += f", thousands separator {self.thousands!r}"
        if self.unit == "range":
            return f"{marks}, ranges that are read as their middle"
        if self.unit == "fraction":
            return f"{marks}, fractions"
        # digits of a unit are not stored: m9 is m² or m³
        unit = self.unit.replace("9", power)
        stated = [marks] if separated else []
        return ", ".join([*stated, f"unit {unit}"] if unit else stated)


@dataclass(frozen=True)
class Columns(DeclaredState):
    """Names and meanings of the columns.

    ``categories`` maps a categorical feature to its levels; ``classes`` contains the labels of the
    target's codes, or is None for a numeric target. ``targets`` contains the names of several
    targets and is empty for one; ``target`` names all of them together. ``dates`` maps a date
    column, a feature in days, to its cycles, whose sines and cosines are the features that follow
    it. ``formats`` are the formats of non-ISO date strings: a strptime format, or the order of day,
    month and year ("dmy", "mdy" or "ymd"). ``numbers`` says how the strings of numeric columns are
    written, unless in plain notation. The strings in ``missing`` denote missing values. ``reading``
    contains the options with which the user read the files, by name.
    """

    features: tuple[str, ...]
    target: str = "y"
    categories: dict[str, tuple[Any, ...]] = field(default_factory=dict)
    classes: tuple[Any, ...] | None = None
    targets: tuple[str, ...] = ()
    dates: dict[str, tuple[str, ...]] = field(default_factory=dict)
    formats: dict[str, str] = field(default_factory=dict)
    missing: tuple[str, ...] = ()
    reading: dict[str, Any] = field(default_factory=dict)
    numbers: dict[str, NumberGrammar] = field(default_factory=dict)

    @property
    def given(self) -> tuple[str, ...]:
        """Names of the table columns from which the features come.

        >>> Columns(("day", *cyclic("day", ["week"]), "x"), dates={"day": ("week",)}).given
        ('day', 'x')
        """
        made = {name for column, cycles in self.dates.items() for name in cyclic(column, cycles)}
        return tuple(name for name in self.features if name not in made)

    @property
    def nbytes(self) -> int:
        """Approximate bytes of the names, categories and classes in memory."""
        levels = itertools.chain(self.classes or (), *self.categories.values())
        return sum(map(label_bytes, itertools.chain(self.features, self.targets, levels)))

    def target_labels(self, n_targets: int) -> tuple[str, ...]:
        """Return the labels of several targets: their names or, without names, numbers; empty for
        one."""
        if n_targets == 1:
            return ()
        if self.targets:
            return self.targets
        return tuple(map(str, range(n_targets)))

    def target_names(self, n_targets: int) -> tuple[str, ...]:
        """Return this many target names, numbered if the targets have no names.

        >>> Columns(("x0",), "fare").target_names(1), Columns(("x0",), "y").target_names(2)
        (('fare',), ('y0', 'y1'))
        """
        if self.targets:
            return self.targets
        numbers = self.target_labels(n_targets)
        return tuple(f"{self.target}{number}" for number in numbers) or (self.target,)
