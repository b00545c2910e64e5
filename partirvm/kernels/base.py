"""The kernel interface: k(x, z), the gradient in its parameters, and its spec.

A kernel is a small frozen value. Its inputs are the model's coordinates (standardised if the fit standardises); it is
independent of data, weights and files. ``spec`` and ``kernel_from_spec`` are inverse, and a spec is plain JSON, so that
a model file contains no code.

Blocks are computed for a group of columns at a time, so that temporary arrays stay in the cache.
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
"""Columns that are computed together: a quarter of a MiB for 2,048 rows."""

PIECE_ROWS = 128
"""Rows of one matrix product; divides ``PANEL_ROWS``. Larger products are not faster."""


class PreparedKernel(Protocol):
    """A kernel prepared for m centres."""

    def __call__(self, points: Float, out: Float, /) -> None:
        """Write k(points, centres) of points (n, d) into ``out`` (n, m), which may be columns of a wider array.

        Fastest if ``out`` is stored column by column.
        """
        ...

    def gradient(self, points: Float, values: Float, weights: Float, /) -> Float:
        """Σ_nm weights[n, m] ∂k(x_n, z_m)/∂ log parameter_p, shape (p,).

        ``values`` (n, m) are the output of a call for the same points; neither they nor ``weights`` (n, m) are changed.
        """
        ...


@runtime_checkable
class Kernel(Protocol):
    """A kernel function k(x, z) with parameters.

    A ``local`` kernel has its maximum at its centre and decreases with the distance, so that a point may be far from
    all centres.
    """

    name: ClassVar[str]

    @property
    def local(self) -> bool:
        """True for a kernel that decreases with the distance."""
        ...

    def prepare(self, centres: Float, /, origin: Float | None = None) -> PreparedKernel:
        """Prepare for the centres (m, d), once for many blocks of points.

        ``origin`` (d,) is a point near the centres from which coordinates may be measured; if it is given, the bits of
        a column must not depend on the other centres. Raises ``UsageError`` for another number of features than d.
        """
        ...

    def diagonal(self, points: Float, /) -> Float:
        """k(x, x) of each point (n, d), shape (n,)."""
        ...

    def spec(self) -> dict[str, Any]:
        """Name and parameters as plain JSON. Raises ``UsageError`` for a kernel that exists only in this process."""
        ...

    def key(self) -> dict[str, Any]:
        """The spec, or a substitute for it within this process: different kernels have different keys."""
        ...

    @classmethod
    def from_spec(cls, spec: dict[str, Any], /) -> Self:
        """The kernel of this spec. Raises ``UsageError`` for invalid parameters."""
        ...

    @property
    def parameters(self) -> tuple[str, ...]:
        """Names of the p parameters that can be learned, all ≥ 0; empty if there are none."""
        ...

    @property
    def logs(self) -> Float:
        """Natural logarithms of the parameters, (p,); −∞ for a parameter that is 0, which stays 0."""
        ...

    def with_logs(self, logs: Float, /) -> Self:
        """The kernel whose parameters have these logarithms (p,)."""
        ...

    def relevances(self, n_features: int, /) -> Float | None:
        """Relevance of each feature (n_features,): its gamma; None for a kernel without gamma."""
        ...

    def per_feature(self, n_features: int, /) -> Self:
        """The same kernel with one gamma per feature instead of one for all."""
        ...

    def rescaled(self, factor: float, /) -> Self:
        """The kernel with every gamma multiplied by a factor."""
        ...


class Described:
    """``spec``, ``key`` and ``from_spec`` of a frozen dataclass, from its name and its fields."""

    name: ClassVar[str]

    def spec(self) -> dict[str, Any]:
        """Plain JSON: ``{"name": ..., field: value, ...}``."""
        return self._described(lambda kernel: kernel.spec())

    def key(self) -> dict[str, Any]:
        """The spec, with keys instead of specs for parts that have no spec."""
        return self._described(lambda kernel: kernel.key())

    def _described(self, of: Callable[[Kernel], dict[str, Any]]) -> dict[str, Any]:
        values = {field.name: getattr(self, field.name) for field in fields(self)}  # type: ignore[arg-type]
        return {"name": self.name, **{name: _plain(value, of) for name, value in values.items()}}

    @classmethod
    def from_spec(cls, spec: dict[str, Any]) -> Self:
        """The kernel of this spec. Raises ``UsageError`` for invalid fields or values."""
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
        """The kernel itself, since it has no gamma."""
        return self

    def rescaled(self, factor: float) -> Self:
        """The kernel itself, since it has no gamma."""
        return self


def _plain(value: Any, of: Callable[[Kernel], dict[str, Any]]) -> Any:
    if isinstance(value, tuple):
        return [_plain(each, of) for each in value]
    return of(value) if isinstance(value, Kernel) else value


class Fixed:
    """A kernel without learnable parameters."""

    @property
    def parameters(self) -> tuple[str, ...]:
        """None."""
        return ()

    @property
    def logs(self) -> Float:
        """Empty, shape (0,)."""
        return np.zeros(0)

    def with_logs(self, logs: Float) -> Self:
        """The kernel itself."""
        return self

    def relevances(self, n_features: int) -> Float | None:
        """None: there is no gamma."""
        return None


class FixedGradient:
    """The gradient of a prepared kernel without learnable parameters."""

    def gradient(self, points: Float, values: Float, weights: Float) -> Float:
        """Shape (0,)."""
        return np.zeros(0)


@dataclass(frozen=True)
class Products:
    """Products of points with m centres, in groups of columns and pieces of rows.

    Every product has the same shape, padded with zeros: BLAS selects its algorithm, and with it the last bits, by the
    shape of the whole product, and its AVX-512 kernels round the last rows of an odd number of rows differently. In
    products of one even shape the bits of an element depend only on its point and its centre.
    """

    right: Float

    @property
    def size(self) -> int:
        """Columns of a group."""
        return int(self.right.shape[1])

    @classmethod
    def of(cls, rows: Float, group: int = GROUP) -> Products:
        """Products with these centres (m, k)."""
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
    """The points (n, d) padded to a multiple of rows by repeating the last: a user's function may be a product, too.

    >>> padded(np.array([[1.0], [2.0]]), 3).ravel().tolist()
    [1.0, 2.0, 2.0]
    """
    n = len(points)
    return points if n % multiple == 0 else points[np.minimum(np.arange(n + -n % multiple), n - 1)]


def by_groups(out: Float, write: Callable[[slice, Float], Any], size: int = GROUP) -> None:
    """Call ``write(which, place)`` for each group of columns of ``out`` (n, m); place (g, n) takes columns as rows.

    The place is a view of ``out`` if that is stored column by column; otherwise it is copied into ``out``, so that bits
    do not depend on the layout.
    """
    columns = out.T
    direct = columns.strides[1] == columns.itemsize
    for some in runs(len(columns), size):
        place = columns[some] if direct else np.empty(columns[some].shape)
        write(some, place)
        if not direct:
            columns[some] = place


def runs(m: int, size: int = GROUP) -> list[slice]:
    """Slices of m columns in groups."""
    return [slice(start, min(start + size, m)) for start in range(0, m, size)]
