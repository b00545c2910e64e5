"""Explicit basis functions: B columns φ_b(x) that do not depend on the rows, with or without kernel columns.

A basis is a small frozen value like a kernel: its inputs are the model's coordinates (standardised if the fit
standardises), and it is independent of data and files. ``spec`` and ``basis_from_spec`` are inverse, a spec is plain
JSON. Basis functions are *leading* columns of a design, like the bias: function b has the label −2 − b (``label_of``).

Each function must be a pure function of a single row: it is called for blocks of rows of any composition.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from partirvm.errors import UsageError
from partirvm.kernels.base import PIECE_ROWS, padded
from partirvm.kernels.functions import named_function, require_path
from partirvm.types import BIAS

Float = NDArray[np.float64]
Int = NDArray[np.int64]

BIAS_NAME = "bias"


@runtime_checkable
class Basis(Protocol):
    """B basis functions."""

    name: ClassVar[str]

    @property
    def size(self) -> int:
        """B."""
        ...

    def __call__(self, points: Float, /) -> Float:
        """φ_b(x) of points (n, d), shape (n, B). Raises ``UsageError`` for invalid values."""
        ...

    def names(self, features: Sequence[str], /) -> tuple[str, ...]:
        """A name for each function, (B,), given the names of the features; names need not be unique."""
        ...

    def spec(self) -> dict[str, Any]:
        """Plain JSON. Raises ``UsageError`` for a basis that exists only in this process."""
        ...

    def key(self) -> dict[str, Any]:
        """The spec, or a substitute for it within this process: different bases have different keys."""
        ...


@dataclass(frozen=True)
class LinearBasis:
    """The d features themselves as basis functions.

    Examples
    --------
    >>> LinearBasis(2)(np.array([[3.0, 4.0]])).tolist()
    [[3.0, 4.0]]
    """

    n_features: int
    name: ClassVar[str] = "linear"

    @property
    def size(self) -> int:
        """d."""
        return self.n_features

    def __call__(self, points: Float) -> Float:
        """The points (n, d)."""
        return points

    def names(self, features: Sequence[str]) -> tuple[str, ...]:
        """The names of the features."""
        return tuple(features)

    def spec(self) -> dict[str, Any]:
        """Its name and d."""
        return {"name": self.name, "n_features": self.n_features}

    def key(self) -> dict[str, Any]:
        """The spec."""
        return self.spec()


@dataclass(frozen=True)
class NamedBasis:
    """The B functions of ``"module:function"``, which takes points (n, d) and returns (n, B); imported at first use.

    A model with this basis needs the module to predict. Loading a model imports nothing.

    Examples
    --------
    >>> NamedBasis("numpy:sin", 1).names(["x0"])
    ('sin[0]',)
    """

    function: str
    n_functions: int
    name: ClassVar[str] = "function"

    def __post_init__(self) -> None:
        require_path(self.function, "basis", "mypackage.physics:harmonics")

    @property
    def size(self) -> int:
        """B."""
        return self.n_functions

    def __call__(self, points: Float) -> Float:
        """The values returned by the function, (n, B)."""
        return _sized(named_function(self.function, "basis"), self.size, self.function, points)

    def names(self, features: Sequence[str]) -> tuple[str, ...]:
        """The name of the function with the position."""
        return _numbered(self.function.rpartition(":")[2].rpartition(".")[2], self.size)

    def spec(self) -> dict[str, Any]:
        """Its name, the function's name and B."""
        return {"name": self.name, "function": self.function, "n_functions": self.n_functions}

    def key(self) -> dict[str, Any]:
        """The spec."""
        return self.spec()


@dataclass(frozen=True)
class LocalBasis:
    """The B functions of any callable, for fits in this process only: a job or a model file cannot store it.

    ``given`` are the names of the functions, (B,), if they have any.
    """

    function: Callable[[Any], Any]
    n_functions: int
    given: tuple[str, ...] = ()
    name: ClassVar[str] = "callable"

    @property
    def size(self) -> int:
        """B."""
        return self.n_functions

    def __call__(self, points: Float) -> Float:
        """The values returned by the function, (n, B)."""
        return _sized(self.function, self.size, title_of(self.function), points)

    def names(self, features: Sequence[str]) -> tuple[str, ...]:
        """The given names, or the function's name with the position; ``f`` for a callable without name."""
        own = str(getattr(self.function, "__name__", "f"))
        return self.given or _numbered(own if own.isidentifier() else "f", self.size)

    def spec(self) -> dict[str, Any]:
        """Raises ``UsageError``."""
        raise UsageError(unportable(self.function))

    def key(self) -> dict[str, Any]:
        """Its name and its address in memory."""
        return {"name": self.name, "function": f"{title_of(self.function)} at {id(self.function)}"}


@dataclass(frozen=True)
class Together:
    """The functions of several bases, side by side."""

    parts: tuple[Basis, ...]
    name: ClassVar[str] = "together"

    @property
    def size(self) -> int:
        """B, the sum over the parts."""
        return sum(part.size for part in self.parts)

    def __call__(self, points: Float) -> Float:
        """The values of all parts (n, B)."""
        return np.hstack([part(points) for part in self.parts])

    def names(self, features: Sequence[str]) -> tuple[str, ...]:
        """The names of all parts."""
        return tuple(name for part in self.parts for name in part.names(features))

    def spec(self) -> dict[str, Any]:
        """Its name, and the specs of the parts."""
        return {"name": self.name, "parts": [part.spec() for part in self.parts]}

    def key(self) -> dict[str, Any]:
        """Its name, and the keys of the parts."""
        return {"name": self.name, "parts": [part.key() for part in self.parts]}


BASES: tuple[type[Basis], ...] = (LinearBasis, NamedBasis, Together)
"""All bases that have a spec."""


def basis_from_spec(spec: dict[str, Any]) -> Basis:
    """The basis of this spec. Raises ``UsageError`` for an unknown one."""
    match spec:
        case {"name": LinearBasis.name, "n_features": count}:
            return LinearBasis(count)
        case {"name": NamedBasis.name, "function": function, "n_functions": count}:
            return NamedBasis(function, count)
        case {"name": Together.name, "parts": parts}:
            return Together(tuple(map(basis_from_spec, parts)))
    raise UsageError(f"unknown basis {spec!r}; known: {', '.join(kind.name for kind in BASES)}")


def label_of(function: Int) -> Int:
    """Labels −2 − b of the columns of basis functions b; its own inverse.

    >>> label_of(np.array([0, 5])).tolist(), label_of(np.array([-2, -7])).tolist()
    ([-2, -7], [0, 5])
    """
    return BIAS - 1 - function


def labels_by_name(basis: Basis | None, features: Sequence[str]) -> dict[str, int]:
    """Label of each leading column by name: ``bias``, then the functions; repeated names get a number.

    >>> labels_by_name(Together((LinearBasis(2), LinearBasis(2))), ["age", "bias"])
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


def evaluated(function: Callable[[Any], Any], title: str, points: Float) -> Float:
    """The values of a function at points (n, d), checked: finite numbers (n, B)."""
    try:
        values = function(points)
        values = values.toarray() if hasattr(values, "toarray") else values  # some transformers return sparse matrices
        found = np.asarray(values, dtype=np.float64)
    except Exception as error:
        raise UsageError(f"basis {title} failed for points {points.shape}: {type(error).__name__}: {error}") from error
    if found.ndim != 2 or len(found) != len(points):
        raise UsageError(
            f"basis {title} returned the shape {found.shape} for points {points.shape}: it must return "
            f"({len(points)}, B), a column for each basis function"
        )
    bad = found.size - int(np.isfinite(found).sum())
    if bad:
        raise UsageError(f"basis {title} returned {bad:,} values of {found.size:,} that are NaN or infinite")
    return found


def _sized(function: Callable[[Any], Any], size: int, title: str, points: Float) -> Float:
    """The (n, B) values of a function at points (n, d), independent of the other rows of the block."""
    found = evaluated(function, title, padded(points, PIECE_ROWS))[: len(points)]
    if found.shape[1] != size:
        raise UsageError(
            f"basis {title} returned {found.shape[1]} columns, but {size} in the first call: their number must "
            "not depend on the rows"
        )
    return found


def _numbered(name: str, size: int) -> tuple[str, ...]:
    return tuple(f"{name}[{b}]" for b in range(size))


def title_of(function: Any) -> str:
    """Name of a callable in messages."""
    owner = getattr(function, "__self__", None)
    if owner is not None and hasattr(owner, "transform"):
        return type(owner).__name__
    return str(getattr(function, "__qualname__", repr(function)))


def unportable(function: Any) -> str:
    """The reason why a callable or a transformer cannot leave this process, with advice."""
    transformer = hasattr(getattr(function, "__self__", function), "transform")
    what = "transformer" if transformer else "function"
    how = "write a function that computes the same" if transformer else "put it"
    return (
        f"the basis is the {what} {title_of(function)!r} of this process, which a job, a cluster or a model "
        f"file cannot store: {how} into a module that can be imported everywhere, and name it as 'module:function'"
    )
