"""Kernels defined by a Python function, and names "module:function" of functions.

``function(X, Z)`` takes points (n, d) and centres (m, d) in the model's coordinates. It returns the array k(x, z)
(n, m). Each element must depend only on its point and its centre, and the arguments must not be changed. The function
is called for ``GROUP`` centres at a time, and the last group is padded. So a column does not depend on the other
columns.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from partirvm.errors import UsageError
from partirvm.kernels.base import GROUP, PIECE_ROWS, Kernel, PreparedKernel, by_groups, padded, runs

Float = NDArray[np.float64]
Function = Callable[..., Any]

_PATH = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*")


@dataclass(frozen=True)
class FunctionKernel(Kernel):
    """Kernel computed by a function. It has no learnable parameters, since no gradient is known.

    Parameters
    ----------
    function : str or callable
        ``"module:function"``, which every process imports at first use, or any callable, for fits in this process only:
        a job or a model file cannot store it. A model with a named function can predict only where the module is
        installed. Loading a model imports nothing.

    Examples
    --------
    >>> FunctionKernel(lambda X, Z: X @ Z.T).diagonal(np.array([[3.0]]))
    array([9.])
    >>> out = np.empty((1, 1))
    >>> FunctionKernel("numpy:dot").prepare(np.ones((1, 1)))(np.full((1, 1), 3.0), out)
    Traceback (most recent call last):
    ...
    partirvm.errors.UsageError: kernel numpy:dot failed for points (128, 1) and centres (16, 1): ValueError: ...
    """

    function: str | Function
    name: ClassVar[str] = "function"

    def __post_init__(self) -> None:
        if not callable(self.function):
            require_path(self.function, "kernel", "sklearn.metrics.pairwise:laplacian_kernel")

    def prepare(self, centres: Float, origin: Float | None = None) -> PreparedFunction:
        """Prepare the kernel for the centres (m, d). Raises ``UsageError`` if the function cannot be imported."""
        return PreparedFunction(function_of(self.function, "kernel"), title_of(self.function), centres)

    def diagonal(self, points: Float) -> Float:
        function, found = function_of(self.function, "kernel"), np.empty(len(points))
        for some in runs(len(points)):
            block = evaluated(function, f"kernel {title_of(self.function)}", points[some], points[some])
            found[some] = np.diagonal(block)
        return found

    def spec(self, *, local: bool = False) -> dict[str, Any]:
        return {"name": self.name, "function": name_of(self.function, "kernel", local)}


@dataclass(frozen=True)
class PreparedFunction(PreparedKernel):
    """A kernel function prepared for centres (m, d)."""

    function: Function
    title: str
    centres: Float

    def __call__(self, points: Float, out: Float) -> None:
        """Write k(points, centres) into ``out`` (n, m). Raises ``UsageError`` for invalid kernel values."""
        pieces = padded(points, PIECE_ROWS)

        def write(some: slice, work: Float) -> None:
            centres = padded(self.centres[some], GROUP)
            found = evaluated(self.function, f"kernel {self.title}", pieces, centres)
            work[...] = found.T[: len(work), : len(points)]

        by_groups(out, write)


def evaluated(function: Function, what: str, points: Float, centres: Float | None = None) -> Float:
    """Return the values of a kernel (n, m), or of basis functions (n, B), after a check that they are finite."""
    shapes = f"points {points.shape}" + ("" if centres is None else f" and centres {centres.shape}")
    try:
        values = function(points) if centres is None else function(points, centres)
        values = values.toarray() if hasattr(values, "toarray") else values  # some transformers return sparse matrices
        found = np.asarray(values, dtype=np.float64)
    except Exception as error:
        raise UsageError(f"{what} failed for {shapes}: {type(error).__name__}: {error}") from error
    right = found.ndim == 2 and len(found) == len(points)
    if not right or (centres is not None and found.shape[1] != len(centres)):
        columns = "B), a column for each basis function" if centres is None else f"{len(centres)})"
        expected = f"({len(points)}, {columns}"
        raise UsageError(f"{what} returned the shape {found.shape} for {shapes}: it must return {expected}")
    bad = found.size - int(np.isfinite(found).sum())
    if bad:
        raise UsageError(f"{what} returned {bad:,} values of {found.size:,} that are NaN or infinite")
    return found


def function_of(given: str | Function, what: str) -> Function:
    """Return a callable itself, or import the function "module:function".

    Raises ``UsageError`` if the module or the function is missing.
    """
    if not isinstance(given, str):
        return given
    module, _, names = given.partition(":")
    try:
        found: Any = importlib.import_module(module)
    except Exception as error:
        raise UsageError(
            f"{what} {given}: the module {module!r} cannot be imported ({type(error).__name__}: {error}): "
            "it must be installed, or be on PYTHONPATH, here and on every worker"
        ) from error
    for name in names.split("."):
        if not hasattr(found, name):
            raise UsageError(f"{what} {given}: {module!r} has no {name!r}")
        found = getattr(found, name)
    if not callable(found):
        raise UsageError(f"{what} {given}: it is a {type(found).__name__}, which is not callable")
    function: Function = found
    return function


def require_path(path: Any, what: str, such_as: str) -> None:
    """Raise ``UsageError`` unless ``path`` has the form "module:function"; ``what`` is the role in messages."""
    if not isinstance(path, str) or not _PATH.fullmatch(path):
        raise UsageError(
            f"the {what} is the function {path!r}: it must be named as 'module:function', such as {such_as!r}"
        )


def title_of(function: Any) -> str:
    """Return the name of a function for messages."""
    owner = getattr(function, "__self__", None)
    if owner is not None and hasattr(owner, "transform"):
        return type(owner).__name__
    return function if isinstance(function, str) else str(getattr(function, "__qualname__", repr(function)))


def name_of(function: Any, what: str, local: bool = False) -> str:
    """Return the path of a function, or with ``local`` the name and address of a callable of this process.

    Raises ``UsageError`` without ``local`` for a callable or a transformer, because it cannot be stored.
    """
    if isinstance(function, str):
        return function
    if local:
        return f"{title_of(function)} at {id(function)}"
    transformer = hasattr(getattr(function, "__self__", function), "transform")
    kind = "transformer" if transformer else "function"
    how = "write a function that computes the same" if transformer else "put it"
    raise UsageError(
        f"the {what} is the {kind} {title_of(function)!r} of this process, which a job, a cluster or a model "
        f"file cannot store: {how} into a module that can be imported everywhere, and name it as 'module:function'"
    )


def functions_in(value: Any) -> Iterator[str]:
    """Yield the name "module:function" of each function that a kernel, a basis or a spec imports when it is evaluated.

    >>> list(functions_in({"name": "sum", "parts": [{"name": "function", "function": "mine:kernel"}], "weights": []}))
    ['mine:kernel']
    """
    if isinstance(value, str):
        yield from [value] if _PATH.fullmatch(value) else []
    elif isinstance(value, Mapping):
        for each in value.values():
            yield from functions_in(each)
    elif isinstance(value, tuple | list):
        for each in value:
            yield from functions_in(each)
    elif is_dataclass(value):
        for field in fields(value):
            yield from functions_in(getattr(value, field.name))


def require_no_code(value: Any, place: str) -> None:
    """Raise ``UsageError`` if a kernel, a basis or a spec would import a function."""
    found = ", ".join(dict.fromkeys(functions_in(value)))
    if found:
        raise UsageError(
            f"{place}: its kernel or basis is {found}, which would be imported from this machine and run. If you "
            "trust it, pass --allow-code, or allow_code=True"
        )
