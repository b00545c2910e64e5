"""Kernels as values: k(x, z), the gradient in its parameters, and its spec.

A kernel is a small frozen value. It sees coordinates as the model does (standardised if the fit standardises) and knows
nothing of data, weights or files. ``spec`` and ``kernel_from_spec`` are inverse, and a spec is plain JSON, so that a
model file holds no code.

Blocks are worked on a group of columns at a time, so that what a kernel needs beside its output stays in the cache.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, dataclass, fields
from typing import Any, ClassVar, Protocol, Self, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from partirvm.errors import UsageError

Float = NDArray[np.float64]

GROUP = 16
"""Columns that are worked on together: over 2,048 rows, a quarter of a MiB."""

PIECE_ROWS = 128
"""Rows of one matrix product; divides ``PANEL_ROWS``. Products of as many rows as there are would cost as much."""


class PreparedKernel(Protocol):
    """A kernel with its m centres worked in."""

    def __call__(self, points: Float, out: Float, /) -> None:
        """Write k(points, centres) of points (n, d) into ``out`` (n, m), a run of columns of a wider array perhaps.

        Fastest where ``out`` is stored column by column.
        """
        ...

    def gradient(self, points: Float, values: Float, weights: Float, /) -> Float:
        """Σ_nm weights[n, m] ∂k(x_n, z_m)/∂ log parameter_p, shape (p,).

        ``values`` (n, m) are what a call for the same points wrote; neither they nor ``weights`` (n, m) are changed.
        """
        ...


@runtime_checkable
class Kernel(Protocol):
    """A kernel function k(x, z) with parameters.

    A ``local`` kernel is largest at its centre and falls off with the distance from it, so that a point may be far from
    all centres.
    """

    name: ClassVar[str]

    @property
    def local(self) -> bool:
        """Whether that is so."""
        ...

    def prepare(self, centres: Float, /, origin: Float | None = None) -> PreparedKernel:
        """Work in the centres (m, d) once, for many blocks of points.

        ``origin`` (d,) is a point near them, from which coordinates may be taken; where it is given the bits of a
        column must not depend on the centres beside it. Raises ``UsageError`` for another number of features than d.
        """
        ...

    def diagonal(self, points: Float, /) -> Float:
        """k(x, x) of each point (n, d), shape (n,)."""
        ...

    def spec(self) -> dict[str, Any]:
        """Name and parameters as plain JSON. Raises ``UsageError`` for a kernel that only this process has."""
        ...

    def key(self) -> dict[str, Any]:
        """The spec, or what stands for it in this process: JSON that differs where kernels do."""
        ...

    @classmethod
    def from_spec(cls, spec: dict[str, Any], /) -> Self:
        """The kernel that has this spec. Raises ``UsageError`` for parameters that cannot be."""
        ...

    @property
    def parameters(self) -> tuple[str, ...]:
        """Names of the p parameters that can be learned, all ≥ 0; none if the kernel cannot be learned."""
        ...

    @property
    def logs(self) -> Float:
        """Their natural logarithms, (p,); −∞ for one that is 0, and stays it."""
        ...

    def with_logs(self, logs: Float, /) -> Self:
        """The kernel whose parameters have these logarithms (p,)."""
        ...

    def relevances(self, n_features: int, /) -> Float | None:
        """How fast k falls with each feature (n_features,): its gamma; None for a kernel without."""
        ...

    def per_feature(self, n_features: int, /) -> Self:
        """The same function with a gamma for each feature that it sees, where it has one for all."""
        ...

    def rescaled(self, factor: float, /) -> Self:
        """The kernel with every gamma times a factor."""
        ...


class Described:
    """``spec``, ``key`` and ``from_spec`` of a frozen dataclass: its name and its fields."""

    name: ClassVar[str]

    def spec(self) -> dict[str, Any]:
        """Plain JSON: ``{"name": ..., field: value, ...}``."""
        return self._described(lambda kernel: kernel.spec())

    def key(self) -> dict[str, Any]:
        """The spec, with the keys of parts that have none."""
        return self._described(lambda kernel: kernel.key())

    def _described(self, of: Callable[[Kernel], dict[str, Any]]) -> dict[str, Any]:
        values = {field.name: getattr(self, field.name) for field in fields(self)}  # type: ignore[arg-type]
        return {"name": self.name, **{name: _plain(value, of) for name, value in values.items()}}

    @classmethod
    def from_spec(cls, spec: dict[str, Any]) -> Self:
        """The kernel that has this spec. Raises ``UsageError`` for fields or values that cannot be."""
        known = fields(cls)  # type: ignore[arg-type]
        values = {name: value for name, value in spec.items() if name != "name"}
        needed = [field.name for field in known if field.default is MISSING]
        for name in (*values, *needed):
            if name not in values or name not in {field.name for field in known}:
                what = "lacks" if name not in values else "has"
                names = ", ".join(field.name for field in known) or "nothing but its name"
                raise UsageError(f"the spec of the {cls.name} kernel {what} {name!r}; it takes {names}")
        return cls(**values)

    def per_feature(self, n_features: int) -> Self:
        """The kernel itself, as it has no gamma."""
        return self

    def rescaled(self, factor: float) -> Self:
        """The kernel itself, as it has no gamma."""
        return self


def _plain(value: Any, of: Callable[[Kernel], dict[str, Any]]) -> Any:
    if isinstance(value, tuple):
        return [_plain(each, of) for each in value]
    return of(value) if isinstance(value, Kernel) else value


class Fixed:
    """A kernel without parameters that could be learned."""

    @property
    def parameters(self) -> tuple[str, ...]:
        """None."""
        return ()

    @property
    def logs(self) -> Float:
        """None, shape (0,)."""
        return np.zeros(0)

    def with_logs(self, logs: Float) -> Self:
        """The kernel itself."""
        return self

    def relevances(self, n_features: int) -> Float | None:
        """There is no gamma: None."""
        return None


class FixedGradient:
    """The gradient of a prepared kernel without parameters that could be learned."""

    def gradient(self, points: Float, values: Float, weights: Float) -> Float:
        """Shape (0,)."""
        return np.zeros(0)


@dataclass(frozen=True)
class Products:
    """Products of points with m centres, in groups of columns and pieces of rows.

    Every product has the same shape, with zeros where there are no more centres or points: BLAS chooses its way, and
    with it the last bits, by the shape of the whole product, and its kernels for AVX-512 round the last rows of an odd
    number of rows in another way. In products of one even shape the bits of an element depend on its point and its
    centre alone.
    """

    right: Float

    @property
    def size(self) -> int:
        """Columns of a group."""
        return int(self.right.shape[1])

    @classmethod
    def of(cls, rows: Float, group: int = GROUP) -> Products:
        """With these centres (m, k)."""
        m, k = rows.shape
        right = np.zeros((-(-m // group), group, k))
        right.reshape(-1, k)[:m] = rows
        return cls(right)

    def fill(self, left: Float, out: Float, finish: Callable[[Float], Any]) -> None:
        """Write ``left`` (n, k) times the centres into ``out`` (n, m); ``finish`` changes each group (g, n)."""

        def write(some: slice, work: Float) -> None:
            if len(work) == self.size:
                self._multiply(left, some, work)
            else:
                work[...] = self.block(left, some)
            finish(work)

        by_groups(out, write, self.size)

    def block(self, left: Float, some: slice) -> Float:
        """``left`` (n, k) times a group of centres, (g, n)."""
        product = np.empty((self.size, len(left)))
        self._multiply(left, some, product)
        return product[: some.stop - some.start]

    def _multiply(self, left: Float, some: slice, out: Float) -> None:
        """Write ``left`` (n, k) times a whole group of centres to ``out`` (g, n), stored row by row."""
        centres = self.right[some.start // self.size]
        n, k = left.shape
        count, whole = n // PIECE_ROWS, n - n % PIECE_ROWS
        pieces = left[:whole].reshape(count, PIECE_ROWS, k)
        places = out[:, :whole].reshape(self.size, count, PIECE_ROWS)
        np.matmul(centres, pieces.transpose(0, 2, 1), out=places.transpose(1, 0, 2))
        if whole < n:
            last = np.zeros((PIECE_ROWS, k))
            last[: n - whole] = left[whole:]
            out[:, whole:] = np.matmul(centres, last.T)[:, : n - whole]


def padded(points: Float, multiple: int) -> Float:
    """The points (n, d) with the last one repeated up to a multiple of rows: a user's function may be a product, too.

    >>> padded(np.array([[1.0], [2.0]]), 3).ravel().tolist()
    [1.0, 2.0, 2.0]
    """
    n = len(points)
    return points if n % multiple == 0 else points[np.minimum(np.arange(n + -n % multiple), n - 1)]


def by_groups(out: Float, write: Callable[[slice, Float], Any], size: int = GROUP) -> None:
    """``write(which, place)`` for each group of columns of ``out`` (n, m): the place (g, n) takes them row by row.

    The place is ``out`` itself where that is stored column by column; else it is copied there, so that bits do not
    depend on the layout.
    """
    columns = out.T
    direct = columns.strides[1] == columns.itemsize
    for some in runs(len(columns), size):
        place = columns[some] if direct else np.empty(columns[some].shape)
        write(some, place)
        if not direct:
            columns[some] = place


def runs(m: int, size: int = GROUP) -> list[slice]:
    """Groups of m columns."""
    return [slice(start, min(start + size, m)) for start in range(0, m, size)]
