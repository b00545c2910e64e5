"""The base of kernels k(x, z): values, the gradient with respect to parameters, specs; and the evaluation of blocks.

A kernel is a small frozen dataclass. Its inputs are the model's coordinates (standardised if the fit standardises). A
kernel does not depend on data, weights or files. ``spec`` and ``kernel_from_spec`` are inverse functions. A spec is
plain JSON, so that a model file contains no code.

Blocks are computed for a group of columns at a time, so that temporary arrays stay in the cache.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import MISSING, Field, dataclass, fields, replace
from typing import Any, ClassVar, Self, cast

import numpy as np
from numpy.typing import NDArray

from partirvm.errors import UsageError
from partirvm.options.constraints import near

Float = NDArray[np.float64]

GROUP = 16
"""Number of columns that are computed together. For 2,048 rows the columns take 0.25 MiB."""

PIECE_ROWS = 128
"""Number of rows of one matrix product, a divisor of ``PANEL_ROWS``. Larger products are not faster."""

KERNELS: dict[str, type[Kernel]] = {}
"""Dictionary of all kernels that have a spec, by name. The package ``partirvm.kernels`` fills it on import."""

ALIASES = {"rbf": "gaussian"}
"""Alternative names of kernels, as in scikit-learn."""


class PreparedKernel:
    """Base of a kernel prepared for m centres."""

    def __call__(self, points: Float, out: Float) -> None:
        """Write k(points, centres) of points (n, d) into ``out`` (n, m), which may be columns of a wider array.

        The call is fastest if ``out`` is stored column by column.
        """
        raise NotImplementedError

    def gradient(self, points: Float, values: Float, weights: Float) -> Float:
        """Return Σ_nm weights[n, m] ∂k(x_n, z_m)/∂ log parameter_p, shape (p,).

        ``values`` (n, m) is the output of a call for the same points. The arrays given are not changed.
        """
        return np.zeros(0)

    def input_gradient(self, points: Float, values: Float, weights: Float) -> Float:
        """Return Σ_m weights[n, m] ∂k(x_n, z_m)/∂x_n, shape (n, d), with ``values`` as in ``gradient``.

        Radial and categorical kernels and their combinations have it.
        """
        raise NotImplementedError


class Kernel:
    """Base of kernel functions k(x, z), which are frozen dataclasses.

    Parameters of a fit are the positive numbers in the fields named by ``learned``, and those of the component kernels,
    which are in the field named by ``inside``. A ``local`` kernel has its maximum at its centre and decreases with the
    distance, so that a point may be far from all centres.
    """

    name: ClassVar[str]
    learned: ClassVar[tuple[str, ...]] = ()
    inside: ClassVar[str] = ""
    decreasing: ClassVar[bool] = False

    @property
    def components(self) -> tuple[Kernel, ...]:
        """The component kernels; empty for a simple kernel."""
        found = getattr(self, self.inside, ())
        return found if isinstance(found, tuple) else (found,)

    @property
    def local(self) -> bool:
        """True if the kernel, or each of its components, decreases with the distance from its centre."""
        return all(part.local for part in self.components) if self.inside else self.decreasing

    def prepare(self, centres: Float, origin: Float | None = None) -> PreparedKernel:
        """Prepare the kernel for the centres (m, d), once for many blocks of points.

        ``origin`` (d,) is a point near the centres from which coordinates may be measured, by default their mean. If
        ``origin`` is given, the bits of a column must not depend on the other centres. Raises ``UsageError`` if the
        kernel has parameters for another number of features than d.
        """
        raise NotImplementedError

    def diagonal(self, points: Float) -> Float:
        """Return k(x, x) of each point (n, d), shape (n,)."""
        raise NotImplementedError

    def spec(self, *, local: bool = False) -> dict[str, Any]:
        """Return name and fields as plain JSON, which differs for different kernels.

        A callable exists only in this process: with ``local`` it is given by its address, otherwise ``UsageError``.
        """
        return {"name": self.name, **{each.name: _plain(getattr(self, each.name), local) for each in _fields(self)}}

    @classmethod
    def from_spec(cls, spec: dict[str, Any]) -> Self:
        """Return the kernel of a spec. Raises ``UsageError`` for invalid fields or values."""
        values = {name: value for name, value in spec.items() if name != "name"}
        known = {each.name: each.default is MISSING or bool(each.metadata) for each in _fields(cls)}
        for name in (*values, *(name for name, needed in known.items() if needed)):
            if name not in values or name not in known:
                what = "lacks" if name not in values else "has"
                names = ", ".join(known) or "only the name"
                raise UsageError(f"the spec of the {cls.name} kernel {what} {name!r}; its fields: {names}")
        return cls(**values)

    @property
    def parameters(self) -> tuple[str, ...]:
        """Names of the p learnable parameters, which are all ≥ 0; empty if there are none."""
        own = (name for field in self.learned for name in _names(field, getattr(self, field)))
        return (*own, *self._of_components())

    def _of_components(self) -> Iterator[str]:
        several = isinstance(getattr(self, self.inside, None), tuple)
        for i, part in enumerate(self.components):
            place = f"{self.inside}[{i}]." if several else ""
            yield from (f"{place}{name}" for name in part.parameters)

    @property
    def logs(self) -> Float:
        """Natural logarithms of the learnable parameters, (p,). A parameter of 0 has −∞ and stays 0."""
        own = [logs_of(np.atleast_1d(getattr(self, field))) for field in self.learned]
        return np.concatenate([np.zeros(0), *own, *(part.logs for part in self.components)])

    def with_logs(self, logs: Float) -> Self:
        """Return the kernel whose learnable parameters have the given logarithms (p,)."""
        counts = [np.size(getattr(self, field)) for field in self.learned]
        counts += [len(part.logs) for part in self.components]
        if len(logs) != sum(counts):
            raise UsageError(f"{len(logs)} logarithms for {sum(counts)} parameters of a kernel")
        shares = np.split(logs, np.cumsum(counts)[:-1]) if counts else []
        own: dict[str, Any] = {}
        for field, share in zip(self.learned, shares, strict=False):
            values = tuple(np.exp(share).tolist())
            own[field] = values if isinstance(getattr(self, field), tuple) else values[0]
        parts = zip(self.components, shares[len(self.learned) :], strict=True)
        return self._with(own, [part.with_logs(share) for part, share in parts])

    def _with(self, own: dict[str, Any], components: list[Any]) -> Self:
        """Return the kernel with other values of its own parameters, and other components."""
        if self.inside:
            several = isinstance(getattr(self, self.inside), tuple)
            own = {**own, self.inside: tuple(components) if several else components[0]}
        return replace(cast(Any, self), **own) if own else self

    def relevances(self, n_features: int) -> Float | None:
        """Return the gamma of each feature (n_features,) as its relevance, or None for a kernel without gamma."""
        return None

    def per_feature(self, n_features: int) -> Self:
        """Return the kernel with one gamma per feature instead of one gamma for all features."""
        return self._with({}, [part.per_feature(self._seen(n_features)) for part in self.components])

    def _seen(self, n_features: int) -> int:
        """Return the number of features that the components see."""
        return n_features

    def rescaled(self, factor: float) -> Self:
        """Return the kernel with every gamma multiplied by a factor."""
        return self._with({}, [part.rescaled(factor) for part in self.components])


@dataclass(frozen=True)
class NoKernel(Kernel):
    """Placeholder for fits without a kernel: there are no candidates, and the design has only its leading columns.

    Examples
    --------
    >>> NoKernel().spec()
    {'name': 'none'}
    """

    name = "none"

    def prepare(self, centres: Float, origin: Float | None = None) -> PreparedKernel:
        """Raise ``UsageError``, because there are no centres."""
        raise UsageError("there is no kernel, so it cannot be evaluated at centres")

    def diagonal(self, points: Float) -> Float:
        return np.zeros(len(points))


def kernel_from_spec(spec: dict[str, Any]) -> Kernel:
    """Return the kernel of a spec (``{"name": ..., parameters}``). Raises ``UsageError`` for an unknown name."""
    name = ALIASES.get(spec.get("name", ""), spec.get("name"))
    if name not in KERNELS:
        raise UsageError(f"unknown kernel {name!r}; known: {', '.join(sorted(KERNELS))}{near(name, KERNELS)}")
    return KERNELS[name].from_spec(spec)


def logs_of(values: Any) -> Float:
    """Return natural logarithms, with −∞ for 0."""
    found = np.asarray(values, dtype=float)
    logs: Float = np.log(found, out=np.full(len(found), -np.inf), where=found > 0)
    return logs


def _fields(kernel: Any) -> list[Field[Any]]:
    """Return the fields of a kernel without those that are options of an estimator, other than gamma."""
    return [each for each in fields(kernel) if each.metadata.get("option", "gamma") == "gamma"]


def _names(field: str, values: Any) -> tuple[str, ...]:
    if not isinstance(values, tuple) or (field == "gamma" and len(values) == 1):
        return (field,)
    return tuple(f"{field}[{j}]" for j in range(len(values)))


def _plain(value: Any, local: bool) -> Any:
    if isinstance(value, tuple):
        return [_plain(each, local) for each in value]
    return value.spec(local=local) if isinstance(value, Kernel) else value


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
