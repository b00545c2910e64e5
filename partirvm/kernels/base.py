"""The interface of a kernel k(x, z): its values, the gradient with respect to its parameters, and its spec.

A kernel is a small frozen object. Its inputs are the model's coordinates (standardised if the fit standardises). A
kernel does not depend on data, weights or files. ``spec`` and ``kernel_from_spec`` are inverse functions. A spec is
plain JSON, so that a model file contains no code.

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
"""Number of columns that are computed together. For 2,048 rows the columns take 0.25 MiB."""

PIECE_ROWS = 128
"""Number of rows of one matrix product, a divisor of ``PANEL_ROWS``. Larger products are not faster."""


class PreparedKernel(Protocol):
    """A kernel prepared for m centres."""

    def __call__(self, points: Float, out: Float, /) -> None:
        """Write k(points, centres) of points (n, d) into ``out`` (n, m), which may be columns of a wider array.

        The call is fastest if ``out`` is stored column by column.
        """
        ...

    def gradient(self, points: Float, values: Float, weights: Float, /) -> Float:
        """Return Σ_nm weights[n, m] ∂k(x_n, z_m)/∂ log parameter_p, shape (p,).

        ``values`` (n, m) is the output of a call for the same points. The arrays given are not changed.
        """
        ...


class PreparedSmooth(PreparedKernel, Protocol):
    """A prepared kernel with a derivative in its inputs: of radial and categorical kernels and their combinations."""

    def input_gradient(self, points: Float, values: Float, weights: Float, /) -> Float:
        """Return Σ_m weights[n, m] ∂k(x_n, z_m)/∂x_n, shape (n, d), with ``values`` as in ``gradient``."""
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
        """True if the kernel decreases with the distance from its centre."""
        ...

    def prepare(self, centres: Float, /, origin: Float | None = None) -> PreparedKernel:
        """Prepare the kernel for the centres (m, d), once for many blocks of points.

        ``origin`` (d,) is a point near the centres from which coordinates may be measured. If ``origin`` is given, the
        bits of a column must not depend on the other centres. Raises ``UsageError`` if the kernel has parameters for
        another number of features than d.
        """
        ...

    def diagonal(self, points: Float, /) -> Float:
        """Return k(x, x) of each point (n, d), shape (n,)."""
        ...

    def spec(self) -> dict[str, Any]:
        """Return name and parameters as plain JSON. Raises ``UsageError`` if the kernel exists only in this process."""
        ...

    def key(self) -> dict[str, Any]:
        """Return the spec, or a substitute valid only in this process. Different kernels have different keys."""
        ...

    @classmethod
    def from_spec(cls, spec: dict[str, Any], /) -> Self:
        """Return the kernel of a spec. Raises ``UsageError`` for invalid parameters."""
        ...

    @property
    def parameters(self) -> tuple[str, ...]:
        """Names of the p learnable parameters, which are all ≥ 0; empty if there are none."""
        ...

    @property
    def logs(self) -> Float:
        """Natural logarithms of the learnable parameters, (p,). A parameter of 0 has −∞ and stays 0."""
        ...

    def with_logs(self, logs: Float, /) -> Self:
        """Return the kernel whose learnable parameters have the given logarithms (p,)."""
        ...

    def relevances(self, n_features: int, /) -> Float | None:
        """Return the gamma of each feature (n_features,) as its relevance, or None for a kernel without gamma."""
        ...

    def per_feature(self, n_features: int, /) -> Self:
        """Return the kernel with one gamma per feature instead of one gamma for all features."""
        ...

    def rescaled(self, factor: float, /) -> Self:
        """Return the kernel with every gamma multiplied by a factor."""
        ...


class Described:
    """Base of kernels that are frozen dataclasses: derives ``spec``, ``key`` and ``from_spec`` from name and fields."""

    name: ClassVar[str]

    def spec(self) -> dict[str, Any]:
        """Return plain JSON: ``{"name": ..., field: value, ...}``."""
        return self._described(lambda kernel: kernel.spec())

    def key(self) -> dict[str, Any]:
        """Return the spec, in which the component kernels are given by their keys."""
        return self._described(lambda kernel: kernel.key())

    def _described(self, of: Callable[[Kernel], dict[str, Any]]) -> dict[str, Any]:
        values = {field.name: getattr(self, field.name) for field in fields(self)}  # type: ignore[arg-type]
        return {"name": self.name, **{name: _plain(value, of) for name, value in values.items()}}

    @classmethod
    def from_spec(cls, spec: dict[str, Any]) -> Self:
        """Return the kernel of a spec. Raises ``UsageError`` for invalid fields or values."""
        known = fields(cls)  # type: ignore[arg-type]
        values = {name: value for name, value in spec.items() if name != "name"}
        needed = [field.name for field in known if field.default is MISSING]
        for name in (*values, *needed):
            if name not in values or name not in {field.name for field in known}:
                what = "lacks" if name not in values else "has"
                names = ", ".join(field.name for field in known) or "only the name"
                raise UsageError(f"the spec of the {cls.name} kernel {what} {name!r}; its fields: {names}")
        return cls(**values)

    def per_feature(self, n_features: int) -> Self:
        """Return the kernel unchanged, since it has no gamma."""
        return self

    def rescaled(self, factor: float) -> Self:
        """Return the kernel unchanged, since it has no gamma."""
        return self


def _plain(value: Any, of: Callable[[Kernel], dict[str, Any]]) -> Any:
    if isinstance(value, float):  # a check against a protocol takes long, and there is a gamma for each feature
        return value
    if isinstance(value, tuple):
        return [_plain(each, of) for each in value]
    return of(value) if isinstance(value, Kernel) else value


class Fixed:
    """Base of kernels without learnable parameters."""

    @property
    def parameters(self) -> tuple[str, ...]:
        """Empty: no parameter can be learned."""
        return ()

    @property
    def logs(self) -> Float:
        """Empty array, shape (0,)."""
        return np.zeros(0)

    def with_logs(self, logs: Float) -> Self:
        """Return the kernel unchanged, since no parameter can be learned."""
        return self

    def relevances(self, n_features: int) -> Float | None:
        """Return None, since there is no gamma."""
        return None


class FixedGradient:
    """Base of prepared kernels without learnable parameters: their gradient is empty."""

    def gradient(self, points: Float, values: Float, weights: Float) -> Float:
        """Return an empty array, shape (0,)."""
        return np.zeros(0)


@dataclass(frozen=True)
class Products:
    """Matrix products of points with m centres, computed for groups of columns and blocks of ``PIECE_ROWS`` rows.

    Smaller products are padded with zeros, so that all products have one even shape. Then the bits of an element depend
    only on its point and its centre. The last bits would depend on the shape for two reasons. BLAS selects its
    algorithm by the shape of the whole product, and the AVX-512 kernels of BLAS round the last rows of an odd number of
    rows differently.
    """

    right: Float

    @property
    def size(self) -> int:
        """Number of columns of a group."""
        return int(self.right.shape[1])

    @classmethod
    def of(cls, rows: Float, group: int = GROUP) -> Products:
        """Return the products with the centres ``rows`` (m, k)."""
        m, k = rows.shape
        right = np.zeros((-(-m // group), group, k))
        right.reshape(-1, k)[:m] = rows
        return cls(right)

    def fill(self, left: Float, out: Float, finish: Callable[[Float], Any]) -> None:
        """Write ``left`` (n, k) times the centres into ``out`` (n, m), and apply ``finish`` to each group (g, n)."""

        def write(some: slice, work: Float) -> None:
            if len(work) == self.size:
                self._multiply(left, some, work)
            else:
                work[...] = self.block(left, some)
            finish(work)

        by_groups(out, write, self.size)

    def block(self, left: Float, some: slice) -> Float:
        """Return ``left`` (n, k) times a group of centres, (g, n)."""
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
    """Pad the points (n, d) to a multiple of rows by repeating the last point.

    A function given by the user may contain matrix products, whose last bits depend on the number of rows.

    >>> padded(np.array([[1.0], [2.0]]), 3).ravel().tolist()
    [1.0, 2.0, 2.0]
    """
    n = len(points)
    return points if n % multiple == 0 else points[np.minimum(np.arange(n + -n % multiple), n - 1)]


def by_groups(out: Float, write: Callable[[slice, Float], Any], size: int = GROUP) -> None:
    """Call ``write(which, place)`` for each group of columns of ``out`` (n, m); each row of place (g, n) is a column.

    If ``out`` is stored column by column, the place is a view of ``out``. Otherwise the place is a new array that is
    copied into ``out``. So the bits do not depend on the layout.
    """
    columns = out.T
    direct = columns.strides[1] == columns.itemsize
    for some in runs(len(columns), size):
        place = columns[some] if direct else np.empty(columns[some].shape)
        write(some, place)
        if not direct:
            columns[some] = place


def runs(m: int, size: int = GROUP) -> list[slice]:
    """Return slices that cut m columns into groups of ``size`` columns."""
    return [slice(start, min(start + size, m)) for start in range(0, m, size)]
