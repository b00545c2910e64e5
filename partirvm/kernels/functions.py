"""User-defined Python functions: kernels, and explicit basis functions φ_b(x) as leading columns of
a design.

A function is a path "module:function", which every process imports on first use, or any callable,
for fits in this process only. A function from a file is called only with permission
(``permission``). Functions are called for arbitrary blocks of rows in the model's coordinates; they
must not change their arguments, and each value must depend only on its own row, or on its point and
its centre.
"""

import pkgutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain, count
from typing import Any, TypeAlias

import numpy as np

from partirvm.errors import UsageError
from partirvm.kernels.base import GROUP, PIECE_ROWS, Kernel, PreparedKernel, by_groups, padded
from partirvm.kernels.group_columns import NO_GROUP, GroupColumns
from partirvm.kernels.jumps import Jumps
from partirvm.kernels.permission import (
    PATH,
    Function,
    FunctionHolder,
    functions_of,
    register,
    require_permission,
)
from partirvm.kernels.permission import _allowed as allowed_names
from partirvm.scaling.maps import pulled_back
from partirvm.types import BIAS, Bool, DeclaredState, Float, Int

LINEAR = "linear"
"""Name of the basis functions that return the features themselves."""

TREES = "trees"
"""Name of the basis functions that are predictions of boosted trees."""

GROUPS = "groups"
"""Name of the basis functions that are columns of groups."""

JUMPS = "jumps"
"""Name of the basis functions that are jumps, which kernel learning adds."""

LEARNED = {Jumps: JUMPS, GroupColumns: GROUPS}
"""Names of basis functions that are learned, by their type."""

Part: TypeAlias = str | Function | Jumps | GroupColumns
"""Basis functions that are computed together."""


class PreparedFunction(PreparedKernel):
    """The ``function`` of a kernel, prepared for centres (m, d)."""

    def __init__(self, kernel: Any, centres: Float, origin: Float | None) -> None:
        self.kernel = kernel
        self.centres = centres
        self.own = not isinstance(kernel, FunctionKernel)
        # the class's function, whatever a restored object has under this name
        self.function = type(kernel).function if self.own else kernel.function
        self._check()
        function_of(self.function, "kernel")  # checks that the function can be imported

    def _check(self) -> None:
        """Raise ``UsageError`` if a user's function may not be called."""
        if not self.own:
            require_permission(self.kernel, self.function, "kernel")

    def __call__(self, points: Float, out: Float) -> None:
        self._check()
        pieces = padded(points, PIECE_ROWS)

        def write(some: slice, work: Float) -> None:
            columns = evaluated(self.function, "kernel", pieces, padded(self.centres[some], GROUP))
            work[...] = columns.T[: len(work), : len(points)]

        by_groups(out, write)

    def input_gradient(self, points: Float, values: Float, weights: Float) -> Float:
        known = partial(self.function, centres=self.centres)
        return pulled_back(known, points, weights) if self.own else np.zeros(points.shape)


@dataclass(frozen=True)
class FunctionKernel(FunctionHolder, Kernel, name="function", form=PreparedFunction):
    """Kernel computed by a function of points (n, d) and centres (m, d), which returns the values
    (n, m).

    It is called for ``GROUP`` centres at a time, padded, so that a column does not depend on the
    other columns.
    """

    function: str | Function

    def __post_init__(self) -> None:
        require_function(self.function, "kernel")
        register(self)

    def spec(self) -> dict[str, Any]:
        return {"name": self.name, "function": name_of(self.function, "kernel")}


@dataclass(frozen=True)
class Basis(FunctionHolder, DeclaredState):
    """The B basis functions of points (n, d), in order. Function b has the label −2 − b
    (``label_of``).

    Each part is a path, a callable, "linear" (the features themselves), jumps or
    columns of groups, with the number of its functions.
    """

    parts: tuple[tuple[Part, int], ...]

    def __post_init__(self) -> None:
        for function, _ in self.parts:
            if function != LINEAR and not isinstance(function, Jumps | GroupColumns):
                require_function(function, "basis")
        register(self)

    @property
    def size(self) -> int:
        """The number B of basis functions."""
        return sum(size for _, size in self.parts)

    @property
    def groups(self) -> GroupColumns | None:
        """The columns of groups among the functions, or None."""
        groups = [part for part, _ in self.parts if isinstance(part, GroupColumns)]
        return groups[0] if groups else None

    def without_groups(self) -> "Basis | None":
        """Return the basis without columns of groups, which are its last functions; None if there
        are no others."""
        parts = [part for part in self.parts if not isinstance(part[0], GroupColumns)]
        return Basis(tuple(parts)) if parts else None

    @property
    def jumps(self) -> Jumps | None:
        """The jumps among the functions, or None."""
        jumps = [part for part, _ in self.parts if isinstance(part, Jumps)]
        return jumps[0] if jumps else None

    def numbers_of(self, kind: type) -> Int:
        """Return the numbers (k,) of the functions of this kind, such as ``Jumps``."""
        is_kind = [np.full(size, isinstance(function, kind)) for function, size in self.parts]
        return np.flatnonzero(np.concatenate(is_kind))

    def single_features(self, active: Int, d: int) -> Int:
        """Return the position of the only feature on which each function with these numbers
        depends, (k,); −1 if it may depend on several of the d features."""
        positions = []
        for function, size in self.parts:
            if isinstance(function, Jumps):
                positions.append(function.positions)
            else:
                positions.append(np.arange(d) if function == LINEAR else np.full(size, -1))
        return np.concatenate(positions)[active]

    @property
    def is_separable(self) -> bool:
        """True if each function depends on a single feature, in a known way."""
        return all(function == LINEAR or isinstance(function, Jumps) for function, _ in self.parts)

    def is_flat(self, active: Int) -> Bool:
        """Return a mask (k,) of the functions with these numbers that are jumps, whose slope is 0
        but at the jump."""
        return np.isin(active, self.numbers_of(Jumps))

    def features(self, active: Int, d: int) -> Bool:
        """Return a mask (d,) of the features on which the functions with these numbers depend."""
        used = np.zeros(d, dtype=np.bool_)
        start = 0
        for function, size in self.parts:
            numbers = active[(active >= start) & (active < start + size)] - start
            start += size
            if isinstance(function, GroupColumns):
                continue
            if function == LINEAR:
                used[numbers] = True
            elif isinstance(function, Jumps):
                used[function.positions[numbers]] = True
            else:
                used |= len(numbers) > 0
        return used

    def __call__(self, points: Float, X: Float | None = None) -> Float:
        """Return φ_b(x) (n, B) for scaled points (n, d), with bits that do not depend on the block.
        Raises ``UsageError``.

        Args:
            points: scaled features (n, d)
            X: the same rows in raw units (n, d), for jumps; training rows are followed by the place
                of their group (``data.folds``)
        """
        raw = points if X is None else X
        n_features = points.shape[1]
        is_trained = raw.shape[1] > n_features
        columns = []
        for function, size in self.parts:
            values = points
            if isinstance(function, GroupColumns):
                places = raw[:, -1] if is_trained else np.full(len(raw), NO_GROUP)
                values = function(points, places)
            elif isinstance(function, Jumps):
                values = function(raw)
            elif function != LINEAR:
                require_permission(self, function, "basis")
                values = evaluated(function, "basis", padded(points, PIECE_ROWS))
            if values.shape[1] != size:
                what = (
                    f"basis {title_of(function)} returned {values.shape[1]} columns, but {size} in "
                    "the first call"
                )
                raise UsageError(f"{what}: their number must not depend on the rows")
            columns.append(values[: len(points)])
        return np.hstack(columns)

    def names(self, features: Sequence[str]) -> Iterator[str]:
        """Yield a name for each function: a feature, a feature and its threshold, or the function's
        name (``f`` if it has none) and a position."""
        for function, size in self.parts:
            if isinstance(function, GroupColumns):
                yield from [GROUPS] if size == 1 else (f"{GROUPS}[{b}]" for b in range(size))
                continue
            if isinstance(function, Jumps):
                jumps = zip(function.features, function.thresholds, strict=True)
                yield from (f"{features[j]} > {threshold:.6g}" for j, threshold in jumps)
                continue
            name = title_of(function).rpartition(":")[2].rpartition(".")[2]
            name = name if name.isidentifier() else "f"
            yield from features if function == LINEAR else (f"{name}[{b}]" for b in range(size))

    def spec(self) -> list[Any]:
        """Return plain JSON. Raises ``UsageError`` for a callable that is local to this process."""
        return [[name_of(function, "basis"), size] for function, size in self.parts]


def label_of(function: Int) -> Int:
    """Return the labels −2 − b of the columns of basis functions b. Applied to labels, this
    function returns b."""
    return BIAS - 1 - function


def labels_by_name(basis: Basis | None, features: Sequence[str]) -> dict[str, int]:
    """Return the labels of the leading columns by name: ``bias``, then the functions; repeats get a
    number.

    >>> labels_by_name(Basis((("linear", 2), ("linear", 2))), ["age", "bias"])
    {'bias': -1, 'age': -2, 'bias (2)': -3, 'age (2)': -4, 'bias (3)': -5}
    """
    labels = {"bias": BIAS}
    for b, name in enumerate(() if basis is None else basis.names(features)):
        repeats = (f"{name} ({k})" for k in count(2))
        labels[next(title for title in chain([name], repeats) if title not in labels)] = (
            BIAS - 1 - b
        )
    return labels


def evaluated(
    given: str | Function, what: str, points: Float, centres: Float | None = None
) -> Float:
    """Return the checked values of a kernel (n, m), or of basis functions (n, B).

    Args:
        given: the function, or its path
        what: the function's role in messages
        points: (n, d)
        centres: (m, d), for a kernel
    """
    function = function_of(given, what)
    what = f"{what} {title_of(given)}"
    shapes = f"points {points.shape}" + ("" if centres is None else f" and centres {centres.shape}")
    try:
        values = np.asarray(
            function(points) if centres is None else function(points, centres), dtype=np.float64
        )
    except Exception as error:
        raise UsageError(f"{what} failed for {shapes}: {type(error).__name__}: {error}") from error
    right = values.ndim == 2 and len(values) == len(points)
    if not right or (centres is not None and values.shape[1] != len(centres)):
        right_shape = f"({len(points)}, {'B' if centres is None else len(centres)})"
        raise UsageError(
            f"{what} returned the shape {values.shape} for {shapes}: it must return {right_shape}"
        )
    if bad := values.size - int(np.isfinite(values).sum()):
        raise UsageError(
            f"{what} returned {values.size:,} values, of which {bad:,} are NaN or infinite"
        )
    return values


def function_of(given: str | Function, what: str) -> Function:
    """Return a callable unchanged, or import "module:function". Raises ``UsageError`` if it is
    missing."""
    if not isinstance(given, str):
        return given
    try:
        function: Function = pkgutil.resolve_name(given)
    except Exception as error:
        raise UsageError(
            f"{what} {given} cannot be imported ({type(error).__name__}: {error}): its module "
            "must be installed, or be on PYTHONPATH, here and on every worker"
        ) from error
    if not callable(function):
        raise UsageError(
            f"{what} {given}: it is a {type(function).__name__}, which is not callable"
        )
    return function


def require_function(given: Any, what: str) -> None:
    """Raise ``UsageError`` unless ``given`` is a callable, or has the form "module:function"."""
    path = isinstance(given, str) and PATH.fullmatch(given)
    if isinstance(given, type) or not (path or callable(given)):
        raise UsageError(
            f"the {what} is {given!r}: it must be '{LINEAR}', '{TREES}', 'auto', a callable, "
            "or 'module:function'"
        )


def title_of(function: Any) -> str:
    """Return the name of a function for messages."""
    if isinstance(function, str):
        return function
    return str(getattr(function, "__qualname__", repr(function)))


def name_of(function: Any, what: str) -> str:
    """Return a function's import path, 'module:function', or the name of learned functions. Raises
    ``UsageError`` for a callable that is local to this process."""
    if isinstance(function, str):
        return function
    for kind, name in LEARNED.items():
        if isinstance(function, kind):
            return name
    raise UsageError(
        f"the {what} {title_of(function)!r} is local to this process: name it as 'module:function'"
    )


def require_no_code(value: Any, place: str) -> None:
    """Raise ``UsageError`` if a kernel, a basis or a spec would import a function that is not
    allowed."""
    names = dict.fromkeys(
        name for name in functions_of(value) if isinstance(name, str) and name not in allowed_names
    )
    if names:
        raise UsageError(
            f"{place}: its kernel or basis is {', '.join(names)}, which would be imported from "
            "this machine and run. If you trust it, pass --allow-code, or allow_code=True"
        )
