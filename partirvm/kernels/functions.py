"""Kernels defined by a Python function: ``NamedFunction`` for files and clusters, ``LocalFunction`` for this process.

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
from partirvm.kernels.base import GROUP, PIECE_ROWS, Described, Fixed, FixedGradient, by_groups, padded, runs

Float = NDArray[np.float64]
Function = Callable[[Any, Any], Any]

_PATH = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*")


class _Computed(Fixed, Described):
    """Base of kernels defined by a function. Such a kernel has no learnable parameters, since no gradient is known."""

    local: ClassVar[bool] = False

    def callable(self) -> Function:
        """Return the function."""
        raise NotImplementedError

    def title(self) -> str:
        """Return the name of the function for messages."""
        raise NotImplementedError

    def prepare(self, centres: Float, origin: Float | None = None) -> PreparedFunction:
        """Prepare the kernel for the centres (m, d). Raises ``UsageError`` if the function cannot be imported."""
        return PreparedFunction(self.callable(), self.title(), centres)

    def diagonal(self, points: Float) -> Float:
        """Return k(x, x) of each point (n, d), shape (n,), from the diagonals of small square blocks."""
        function, found = self.callable(), np.empty(len(points))
        for some in runs(len(points)):
            found[some] = np.diagonal(_evaluated(function, self.title(), points[some], points[some]))
        return found


@dataclass(frozen=True)
class NamedFunction(_Computed):
    """Kernel computed by the function ``"module:function"``, which every process imports at first use.

    A model with this kernel can predict only where the module is installed. Loading a model imports nothing.

    Examples
    --------
    >>> out = np.empty((1, 1))
    >>> NamedFunction("numpy:dot").prepare(np.ones((1, 1)))(np.full((1, 1), 3.0), out)
    Traceback (most recent call last):
    ...
    partirvm.errors.UsageError: kernel numpy:dot failed for points (128, 1) and centres (16, 1): ValueError: ...
    """

    function: str
    name = "function"

    def __post_init__(self) -> None:
        require_path(self.function, "kernel", "sklearn.metrics.pairwise:laplacian_kernel")

    def callable(self) -> Function:
        """Import the function. Raises ``UsageError`` with the name of a missing module or function."""
        return named_function(self.function, "kernel")

    def title(self) -> str:
        """Return the name in the form "module:function"."""
        return self.function


@dataclass(frozen=True)
class LocalFunction(_Computed):
    """Kernel computed by any callable, for fits in this process only: a job or a model file cannot store the callable.

    Examples
    --------
    >>> kernel = LocalFunction(lambda X, Z: X @ Z.T)
    >>> kernel.diagonal(np.array([[3.0]]))
    array([9.])
    """

    function: Function
    name = "callable"

    def __post_init__(self) -> None:
        if not callable(self.function):
            raise UsageError(f"the kernel is {self.function!r}, which is not callable")

    def callable(self) -> Function:
        """Return the callable."""
        return self.function

    def title(self) -> str:
        """Return the callable's name."""
        return str(getattr(self.function, "__qualname__", repr(self.function)))

    def spec(self) -> dict[str, Any]:
        """Raise ``UsageError``, since the callable exists only in this process."""
        raise UsageError(
            f"the kernel is the function {self.title()!r} of this process, which a job, a cluster or a model "
            "file cannot store: put it into a module that can be imported everywhere, and name it as 'module:function'"
        )

    def key(self) -> dict[str, Any]:
        """Return the kernel's name, and the name and memory address of the callable."""
        return {"name": self.name, "function": f"{self.title()} at {id(self.function)}"}


def require_path(path: Any, what: str, such_as: str) -> None:
    """Raise ``UsageError`` unless ``path`` has the form "module:function"; ``what`` is the role in messages."""
    if not isinstance(path, str) or not _PATH.fullmatch(path):
        raise UsageError(
            f"the {what} is the function {path!r}: it must be named as 'module:function', such as {such_as!r}"
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


def named_function(path: str, what: str) -> Callable[..., Any]:
    """Import the function ``"module:function"``. Raises ``UsageError`` if the module or the function is missing."""
    module, _, names = path.partition(":")
    try:
        found: Any = importlib.import_module(module)
    except Exception as error:
        raise UsageError(
            f"{what} {path}: the module {module!r} cannot be imported ({type(error).__name__}: {error}): "
            "it must be installed, or be on PYTHONPATH, here and on every worker"
        ) from error
    for name in names.split("."):
        if not hasattr(found, name):
            raise UsageError(f"{what} {path}: {module!r} has no {name!r}")
        found = getattr(found, name)
    if not callable(found):
        raise UsageError(f"{what} {path}: it is a {type(found).__name__}, which is not callable")
    function: Callable[..., Any] = found
    return function


@dataclass(frozen=True)
class PreparedFunction(FixedGradient):
    """A kernel function prepared for centres (m, d)."""

    function: Function
    title: str
    centres: Float

    def __call__(self, points: Float, out: Float) -> None:
        """Write k(points, centres) into ``out`` (n, m). Raises ``UsageError`` for invalid kernel values."""

        pieces = padded(points, PIECE_ROWS)

        def write(some: slice, work: Float) -> None:
            centres = padded(self.centres[some], GROUP)
            work[...] = _evaluated(self.function, self.title, pieces, centres).T[: len(work), : len(points)]

        by_groups(out, write)


def _evaluated(function: Function, title: str, points: Float, centres: Float) -> Float:
    """Return the values of the function (n, m), after a check of their shape and that they are finite."""
    shapes = f"points {points.shape} and centres {centres.shape}"
    try:
        values = np.asarray(function(points, centres), dtype=np.float64)
    except Exception as error:
        raise UsageError(f"kernel {title} failed for {shapes}: {type(error).__name__}: {error}") from error
    expected = (len(points), len(centres))
    if values.shape != expected:
        raise UsageError(f"kernel {title} returned the shape {values.shape} for {shapes}: it must return {expected}")
    bad = values.size - int(np.isfinite(values).sum())
    if bad:
        raise UsageError(f"kernel {title} returned {bad:,} values of {values.size:,} that are NaN or infinite")
    return values
