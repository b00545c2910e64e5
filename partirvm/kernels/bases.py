"""Explicit basis functions: B columns φ_b(x) that do not depend on the rows, with or without kernel columns.

A basis is a small frozen object like a kernel. Its inputs are the model's coordinates (standardised if the fit
standardises). A basis does not depend on data or files. ``spec`` and ``basis_from_spec`` are inverse functions, and a
spec is plain JSON. Basis functions are *leading* columns of a design, like the bias. Function b has the label −2 − b
(``label_of``).

Each value must depend only on its own row, because the functions are called for arbitrary blocks of rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from partirvm.errors import UsageError
from partirvm.kernels.base import PIECE_ROWS, padded
from partirvm.kernels.functions import Function, evaluated, function_of, key_of, require_path, title_of, unportable
from partirvm.types import BIAS

Float = NDArray[np.float64]
Int = NDArray[np.int64]

BIAS_NAME = "bias"


class Basis:
    """Base of a set of basis functions; ``size`` is their number B."""

    name: ClassVar[str]

    @property
    def size(self) -> int:
        """The number B of basis functions."""
        raise NotImplementedError

    def __call__(self, points: Float) -> Float:
        """Return φ_b(x) of points (n, d), shape (n, B). Raises ``UsageError`` for invalid values."""
        raise NotImplementedError

    def names(self, features: Sequence[str]) -> tuple[str, ...]:
        """Return a name for each function, (B,), given the names of the features. Names need not be unique."""
        raise NotImplementedError

    def spec(self) -> dict[str, Any]:
        """Return plain JSON. Raises ``UsageError`` if the basis exists only in this process."""
        raise NotImplementedError

    def key(self) -> dict[str, Any]:
        """Return the spec, or a substitute that is valid only in this process. Different bases have different keys."""
        return self.spec()


@dataclass(frozen=True)
class LinearBasis(Basis):
    """The basis whose functions are the d features.

    Examples
    --------
    >>> LinearBasis(2)(np.array([[3.0, 4.0]])).tolist()
    [[3.0, 4.0]]
    """

    n_features: int
    name: ClassVar[str] = "linear"

    @property
    def size(self) -> int:
        """The number d of features."""
        return self.n_features

    def __call__(self, points: Float) -> Float:
        """Return the points (n, d) unchanged."""
        return points

    def names(self, features: Sequence[str]) -> tuple[str, ...]:
        """Return the names of the features."""
        return tuple(features)

    def spec(self) -> dict[str, Any]:
        """Return the name of the basis and the number d of features."""
        return {"name": self.name, "n_features": self.n_features}


@dataclass(frozen=True)
class FunctionBasis(Basis):
    """The basis computed by a function that maps points (n, d) to an array (n, B).

    ``function`` is a path "module:function", which is imported at first use, or a callable, for fits in this process
    only. A model with this basis can predict only where the module is installed. Loading a model imports nothing.
    ``given`` holds the names of the functions, or nothing if they have none.

    Examples
    --------
    >>> FunctionBasis("numpy:sin", 1).names(["x0"])
    ('sin[0]',)
    """

    function: str | Function
    n_functions: int
    given: tuple[str, ...] = ()
    name: ClassVar[str] = "function"

    def __post_init__(self) -> None:
        if not callable(self.function):
            require_path(self.function, "basis", "mypackage.physics:harmonics")

    @property
    def size(self) -> int:
        """The number B of basis functions."""
        return self.n_functions

    def __call__(self, points: Float) -> Float:
        """Return the values at points (n, d), shape (n, B), with bits independent of the size of the block."""
        what = f"basis {title_of(self.function)}"
        found = evaluated(function_of(self.function, "basis"), what, padded(points, PIECE_ROWS))[: len(points)]
        if found.shape[1] != self.size:
            raise UsageError(
                f"{what} returned {found.shape[1]} columns, but {self.size} in the first call: their number must "
                "not depend on the rows"
            )
        return found

    def names(self, features: Sequence[str]) -> tuple[str, ...]:
        """Return the given names, or the function's name with a position; a function without a name is called ``f``."""
        path = self.function if isinstance(self.function, str) else str(getattr(self.function, "__name__", "f"))
        own = path.rpartition(":")[2].rpartition(".")[2]
        return self.given or tuple(f"{own if own.isidentifier() else 'f'}[{b}]" for b in range(self.size))

    def spec(self) -> dict[str, Any]:
        """Return the names of basis and function and the number B. Raises ``UsageError`` for a callable."""
        if not isinstance(self.function, str):
            raise UsageError(unportable(self.function, "basis"))
        return self.key()

    def key(self) -> dict[str, Any]:
        """Return the spec, with the name and memory address of a callable."""
        return {"name": self.name, "function": key_of(self.function), "n_functions": self.n_functions}


@dataclass(frozen=True)
class JoinedBasis(Basis):
    """The basis that joins the functions of several bases, in order."""

    parts: tuple[Basis, ...]
    name: ClassVar[str] = "together"

    @property
    def size(self) -> int:
        """The number B of basis functions, summed over the parts."""
        return sum(part.size for part in self.parts)

    def __call__(self, points: Float) -> Float:
        """Return the values of all parts (n, B)."""
        return np.hstack([part(points) for part in self.parts])

    def names(self, features: Sequence[str]) -> tuple[str, ...]:
        """Return the names of the functions of all parts."""
        return tuple(name for part in self.parts for name in part.names(features))

    def spec(self) -> dict[str, Any]:
        """Return the name of the basis and the specs of the parts."""
        return {"name": self.name, "parts": [part.spec() for part in self.parts]}

    def key(self) -> dict[str, Any]:
        """Return the name of the basis and the keys of the parts."""
        return {"name": self.name, "parts": [part.key() for part in self.parts]}


def basis_from_spec(spec: dict[str, Any]) -> Basis:
    """Return the basis of a spec. Raises ``UsageError`` for an unknown name."""
    match spec:
        case {"name": LinearBasis.name, "n_features": count}:
            return LinearBasis(count)
        case {"name": FunctionBasis.name, "function": str(function), "n_functions": count}:
            return FunctionBasis(function, count)
        case {"name": JoinedBasis.name, "parts": parts}:
            return JoinedBasis(tuple(map(basis_from_spec, parts)))
    known = ", ".join(kind.name for kind in (LinearBasis, FunctionBasis, JoinedBasis))
    raise UsageError(f"unknown basis {spec!r}; known: {known}")


def label_of(function: Int) -> Int:
    """Return the labels −2 − b of the columns of basis functions b. Applied to labels, the formula returns b.

    >>> label_of(np.array([0, 5])).tolist(), label_of(np.array([-2, -7])).tolist()
    ([-2, -7], [0, 5])
    """
    return BIAS - 1 - function


def labels_by_name(basis: Basis | None, features: Sequence[str]) -> dict[str, int]:
    """Return a dict from name to label of the leading columns: ``bias``, then the functions; repeats get a number.

    >>> labels_by_name(JoinedBasis((LinearBasis(2), LinearBasis(2))), ["age", "bias"])
    {'bias': -1, 'age': -2, 'bias (2)': -3, 'age (2)': -4, 'bias (3)': -5}
    """
    found = {BIAS_NAME: BIAS}
    for b, name in enumerate(() if basis is None else basis.names(features)):
        own, count = name, 1
        while own in found:
            count += 1
            own = f"{name} ({count})"
        found[own] = BIAS - 1 - b
    return found
