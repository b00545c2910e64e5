"""Explicit basis functions: B columns φ_b(x) that do not depend on the rows, with or without kernel columns.

A basis is a small frozen object like a kernel. Its inputs are the model's coordinates (standardised if the fit
standardises). A basis does not depend on data or files. ``spec`` and ``basis_from_spec`` are inverse functions, and a
spec is plain JSON. Basis functions are *leading* columns of a design, like the bias. Function b has the label −2 − b
(``label_of``).

Each value must depend only on its own row, because the functions are called for arbitrary blocks of rows.
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
    """Interface of a set of B basis functions."""

    name: ClassVar[str]

    @property
    def size(self) -> int:
        """The number B of basis functions."""
        ...

    def __call__(self, points: Float, /) -> Float:
        """Return φ_b(x) of points (n, d), shape (n, B). Raises ``UsageError`` for invalid values."""
        ...

    def names(self, features: Sequence[str], /) -> tuple[str, ...]:
        """Return a name for each function, (B,), given the names of the features. Names need not be unique."""
        ...

    def spec(self) -> dict[str, Any]:
        """Return plain JSON. Raises ``UsageError`` if the basis exists only in this process."""
        ...

    def key(self) -> dict[str, Any]:
        """Return the spec, or a substitute that is valid only in this process. Different bases have different keys."""
        ...


@dataclass(frozen=True)
class LinearBasis:
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

    def key(self) -> dict[str, Any]:
        """Return the spec."""
        return self.spec()


@dataclass(frozen=True)
class NamedBasis:
    """The basis computed by ``"module:function"``, a function that maps points (n, d) to an array (n, B).

    The function is imported at first use. A model with this basis can predict only where the module is installed.
    Loading a model imports nothing.

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
        """The number B of basis functions."""
        return self.n_functions

    def __call__(self, points: Float) -> Float:
        """Return the values of the function at points (n, d), shape (n, B)."""
        return _sized(named_function(self.function, "basis"), self.size, self.function, points)

    def names(self, features: Sequence[str]) -> tuple[str, ...]:
        """Return the function's name with a position, such as ``sin[0]``, for each basis function."""
        return _numbered(self.function.rpartition(":")[2].rpartition(".")[2], self.size)

    def spec(self) -> dict[str, Any]:
        """Return the name of the basis, the name of the function and the number B."""
        return {"name": self.name, "function": self.function, "n_functions": self.n_functions}

    def key(self) -> dict[str, Any]:
        """Return the spec."""
        return self.spec()


@dataclass(frozen=True)
class LocalBasis:
    """The basis computed by any callable, for fits in this process only: jobs and files cannot store the callable.

    ``given`` holds the names of the B functions, or None if they have no names.
    """

    function: Callable[[Any], Any]
    n_functions: int
    given: tuple[str, ...] = ()
    name: ClassVar[str] = "callable"

    @property
    def size(self) -> int:
        """The number B of basis functions."""
        return self.n_functions

    def __call__(self, points: Float) -> Float:
        """Return the values of the function at points (n, d), shape (n, B)."""
        return _sized(self.function, self.size, title_of(self.function), points)

    def names(self, features: Sequence[str]) -> tuple[str, ...]:
        """Return the given names, or the callable's name with a position; a callable without a name is called ``f``."""
        own = str(getattr(self.function, "__name__", "f"))
        return self.given or _numbered(own if own.isidentifier() else "f", self.size)

    def spec(self) -> dict[str, Any]:
        """Raise ``UsageError``, since the callable exists only in this process."""
        raise UsageError(unportable(self.function))

    def key(self) -> dict[str, Any]:
        """Return the name of the basis, and the name and memory address of the callable."""
        return {"name": self.name, "function": f"{title_of(self.function)} at {id(self.function)}"}


@dataclass(frozen=True)
class JoinedBasis:
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


BASES: tuple[type[Basis], ...] = (LinearBasis, NamedBasis, JoinedBasis)
"""All bases that have a spec."""


def basis_from_spec(spec: dict[str, Any]) -> Basis:
    """Return the basis of a spec. Raises ``UsageError`` for an unknown name."""
    match spec:
        case {"name": LinearBasis.name, "n_features": count}:
            return LinearBasis(count)
        case {"name": NamedBasis.name, "function": function, "n_functions": count}:
            return NamedBasis(function, count)
        case {"name": JoinedBasis.name, "parts": parts}:
            return JoinedBasis(tuple(map(basis_from_spec, parts)))
    raise UsageError(f"unknown basis {spec!r}; known: {', '.join(kind.name for kind in BASES)}")


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


def evaluated(function: Callable[[Any], Any], title: str, points: Float) -> Float:
    """Return the values (n, B) of a function at points (n, d), after a check that they are finite."""
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
    """Return the values (n, B) of a function at points (n, d), with bits independent of the size of the block."""
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
    """Return the name of a callable for messages."""
    owner = getattr(function, "__self__", None)
    if owner is not None and hasattr(owner, "transform"):
        return type(owner).__name__
    return str(getattr(function, "__qualname__", repr(function)))


def unportable(function: Any) -> str:
    """Return a message why a callable or a transformer cannot be stored, with advice."""
    transformer = hasattr(getattr(function, "__self__", function), "transform")
    what = "transformer" if transformer else "function"
    how = "write a function that computes the same" if transformer else "put it"
    return (
        f"the basis is the {what} {title_of(function)!r} of this process, which a job, a cluster or a model "
        f"file cannot store: {how} into a module that can be imported everywhere, and name it as 'module:function'"
    )
