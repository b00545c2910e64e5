"""Base classes of kernels k(x, z), small frozen dataclasses in the model's coordinates, and of
families, which gamma specifies.

Once prepared for its centres, a kernel computes blocks of values, one group of columns at a time.
``spec`` and ``kernel_from_spec`` are inverse functions; a spec is plain JSON, so a model file
contains no code.
"""

import numbers
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self, cast

import numpy as np

from partirvm.errors import UsageError
from partirvm.options.constraints import Check, near
from partirvm.options.values import Value, held
from partirvm.types import Bool, DeclaredState, Float

KERNELS: dict[str, type["Kernel"]] = {}
"""Dictionary of all kernels that have a spec, by name. Each kernel class is registered when it is
defined."""

NEGLIGIBLE = 1e-30
"""A gamma up to this value has no effect on kernel values for inputs up to 1e6; a learned gamma can
still rise again."""

GROUP = 16
"""Number of columns that are computed together, so that temporary arrays stay in the cache."""

PIECE_ROWS = 128
"""Number of rows of one matrix product, a divisor of `PANEL_ROWS`. Larger products are not
faster."""


class Kernel(DeclaredState):
    """Base class of kernel functions k(x, z), which are frozen dataclasses.

    ``learned`` names the field with the parameters, a tuple of positive numbers, and ``inside`` the
    field with components. A ``decreasing`` kernel decreases from 1 at its centre. Class definitions
    set these and the ``name``.
    """

    name: ClassVar[str]
    learned: ClassVar[str] = ""
    inside: ClassVar[str] = ""
    decreasing: ClassVar[bool] = False
    form: ClassVar[Callable[..., "PreparedKernel"]]
    """Prepares a kernel, given its centres and the origin."""

    def __init_subclass__(cls, name: str = "", **facts: Any) -> None:
        super().__init_subclass__()
        for fact, value in facts.items():
            setattr(cls, fact, value)
        if name:
            cls.name = name
            namesake = KERNELS.setdefault(name, cls)
            places = {(kernel.__module__, kernel.__qualname__) for kernel in (namesake, cls)}
            if len(places) > 1:
                raise UsageError(f"two kernels are named {name!r}: {namesake!r} and {cls!r}")
            KERNELS[name] = cls

    @property
    def components(self) -> tuple["Kernel", ...]:
        """The component kernels; empty for a simple kernel."""
        parts = getattr(self, self.inside, ())
        return parts if isinstance(parts, tuple) else (parts,)

    @property
    def local(self) -> bool:
        """True if the kernel, or each of its components, decreases: a point may then be far from
        all centres."""
        return all(part.local for part in self.components) if self.inside else self.decreasing

    def prepare(self, centres: Float, origin: Float | None = None) -> "PreparedKernel":
        """Prepare the kernel for the centres (m, d), once for many blocks of points.

        Coordinates are measured from ``origin`` (d,), by default the mean of the centres; if it is
        given, a column's bits must not depend on the other centres. Raises ``UsageError`` if the
        number of features differs.
        """
        return self.form(self, centres, origin)

    def diagonal(self, points: Float) -> Float:
        """Return k(x, x) for each point (n, d), shape (n,)."""
        peaks = np.ones(len(points))
        if not self.local:
            for group in runs(len(points)):
                peaks[group] = np.diagonal(self.values(points[group], points[group]))
        return peaks

    def values(self, points: Float, centres: Float, origin: Float | None = None) -> Float:
        """Return k(x, z), (n, m), for points (n, d) and centres (m, d), stored column by column."""
        out = np.empty((len(centres), len(points))).T
        self.prepare(centres, origin)(points, out)
        return out

    def exported(self, x: Any, Z: Float) -> Any:
        """Return k(x, z) for the M centres Z (M, d) as ``operations`` on the quantity x (n, d).

        Only operations defined by the kernel's own class are used: a derived class may have other
        values. Raises ``UsageError`` if there are none.
        """
        cls = type(self)
        if "operations" not in vars(cls):
            raise UsageError(
                f"the kernel {self.name!r} cannot be exported: the class {cls.__name__} does not "
                "define `operations`, its formula in the operations of exports "
                "(partirvm.export.graph); add that method, or use a kernel of partirvm.kernels"
            )
        return self.operations(x, Z)

    def operations(self, x: Any, Z: Float) -> Any:
        """Return k(x, z) for the M centres Z (M, d), using operators and NumPy functions on the
        quantity x (n, d).

        Quantities and their operations are defined in ``export.graph``. Each exportable class
        defines its own ``operations``.
        """
        raise NotImplementedError

    def spec(self) -> dict[str, Any]:
        """Return the name and fields as JSON. Raises ``UsageError`` for a callable that is local to
        this process."""
        facts = {"name": self.name}
        for name, value in vars(self).items():
            if name not in ("multiples", "metric"):  # options of an estimator
                facts[name] = _plain(value)
        return facts

    def with_numbers(self) -> Self:
        """Return the kernel itself. Raises ``UsageError`` for a family that is only an option of an
        estimator."""
        return self

    def learnable(self) -> dict[str, float]:
        """Return the natural logarithms of the p learnable parameters, all of which are ≥ 0, by
        name; −∞ for 0."""
        field = self.learned
        parameters = dict[str, float]()
        if field:
            with np.errstate(divide="ignore"):
                logs = np.log(getattr(self, field)).tolist()
            single = field == "gamma" and len(logs) == 1
            parameters = {field if single else f"{field}[{j}]": log for j, log in enumerate(logs)}
        several = isinstance(getattr(self, self.inside, None), tuple)
        for i, part in enumerate(self.components):
            place = f"{self.inside}[{i}]." if several else ""
            parameters |= {place + name: log for name, log in part.learnable().items()}
        return parameters

    @property
    def parameters(self) -> tuple[str, ...]:
        """Names of the p learnable parameters; empty if there are none."""
        return tuple(self.learnable())

    @property
    def logs(self) -> Float:
        """Natural logarithms of the learnable parameters, (p,). A parameter that is 0 has −∞ and
        remains 0."""
        return np.array(list(self.learnable().values()), dtype=float)

    def with_logs(self, logs: Float) -> Self:
        """Return the kernel whose learnable parameters have the given logarithms (p,)."""
        counts = [
            len(getattr(self, self.learned, ())),
            *(len(part.learnable()) for part in self.components),
        ]
        if len(logs) != sum(counts):
            raise UsageError(f"{len(logs)} logarithms for {sum(counts)} parameters of a kernel")
        own_logs, *part_logs = np.split(logs, np.cumsum(counts)[:-1])
        parts = [
            part.with_logs(part_log)
            for part, part_log in zip(self.components, part_logs, strict=True)
        ]
        return self._with(
            {self.learned: tuple(np.exp(own_logs).tolist())} if self.learned else {}, parts
        )

    def _with(self, own: dict[str, Any], components: list[Any]) -> Self:
        """Return the kernel with new values of its own parameters and new components."""
        if self.inside:
            several = isinstance(getattr(self, self.inside), tuple)
            own = {**own, self.inside: tuple(components) if several else components[0]}
        return replace(cast(Any, self), **own) if own else self

    def relevances(self, n_features: int) -> Float | None:
        """Return the gamma of each feature (n_features,), the weighted sum over any components;
        None without gamma."""
        relevances = [part.relevances(n_features) for part in self.components]
        known = [widths for widths in relevances if widths is not None]
        if not known or len(known) < len(relevances):
            return None
        weights = getattr(self, "weights", (1.0,) * len(known))
        weighted = [weight * widths for weight, widths in zip(weights, known, strict=True)]
        return np.asarray(np.sum(weighted, axis=0))

    def axes_of_distance(self, n_features: int) -> Float | None:
        """Return the axes A (r, n_features) if the values depend only on the distance between A x
        and A z; None if the kernel measures no distance or has components."""
        return None

    def level_widths(self, n_features: int) -> Float:
        """Return what different codes of each feature add to the squared distance,
        (n_features,): 0 for features that are numbers."""
        return np.zeros(n_features)

    def effective(self, n_features: int) -> Bool:
        """Return the features (n_features,) on which the values depend: features with a gamma, or
        all features if there are no gammas."""
        widths = None if self.components else self.relevances(n_features)
        if widths is not None:
            return widths > NEGLIGIBLE
        parts = [part.effective(n_features) for part in self.components]
        return np.any(parts, axis=0) if parts else np.ones(n_features, dtype=np.bool_)

    def per_feature(self, n_features: int) -> Self:
        """Return the kernel with one gamma per feature instead of one gamma for all features."""
        return self._with({}, [part.per_feature(n_features) for part in self.components])

    def rescaled(self, factor: float) -> Self:
        """Return the kernel with every gamma multiplied by ``factor``."""
        return self._with({}, [part.rescaled(factor) for part in self.components])


@dataclass(frozen=True)
class NoKernel(Kernel, name="none"):
    """Placeholder for fits without a kernel: there are no candidates, and the design has only its
    leading columns."""


class PreparedKernel:
    """Base class of kernels prepared for m centres."""

    def __call__(self, points: Float, out: Float) -> None:
        """Write k(points, centres) for points (n, d) into ``out`` (n, m), which may be columns of a
        wider array."""
        raise NotImplementedError

    def gradient(self, points: Float, values: Float, weights: Float) -> Float:
        """Return Σ_nm weights[n, m] ∂k(x_n, z_m)/∂ log parameter_p, (p,); ``values`` (n, m) are k
        at these points."""
        return np.zeros(0)

    def input_gradient(self, points: Float, values: Float, weights: Float) -> Float:
        """Return Σ_m weights[n, m] ∂k(x_n, z_m)/∂x_n, (n, d): 0 for categories, user functions, and
        at a kink."""
        return np.zeros(points.shape)


@dataclass(frozen=True, repr=False)
class Family(Kernel, Value):
    """Base class of families. With a numeric gamma, a family is a kernel; with a word, it is only
    an option of a fit.

    ``value`` and ``slope`` compute its function and derivative, which may have further parameters,
    ``numbers``.
    """

    gamma: Any = held("gamma")
    multiples: Any = held("gamma_multiples", kw_only=True)
    metric: str = held("metric", kw_only=True)
    of: ClassVar[str] = "kernel"
    learned: ClassVar[str] = "gamma"
    decreasing: ClassVar[bool] = True
    numbers: ClassVar[dict[str, Check]] = {}
    value: ClassVar[Callable[..., None]]
    """Replace −r² or the inner product, (g, n), by k."""
    slope: ClassVar[Callable[..., None]]
    """Replace −r² (g, n) by ∂k/∂r², given the values k (g, n)."""

    def __post_init__(self) -> None:
        for name, check in self.numbers.items():
            object.__setattr__(
                self, name, check(f"{name} of the {self.name} kernel", getattr(self, name))
            )
        if not isinstance(self.gamma, str):
            object.__setattr__(self, "gamma", _checked(self.name, self.gamma))

    def with_numbers(self) -> Self:
        """Return the kernel itself. Raises ``UsageError`` if gamma is a word, or if estimator
        options are set."""
        if isinstance(self.gamma, str):
            raise UsageError(
                f"gamma of {self!r} must be numbers in a list, a sum or a product of kernels"
            )
        if (self.multiples, self.metric) != ((1.0,), "auto"):
            raise UsageError(
                f"{self!r} must not set multiples or metric here: only estimators accept them"
            )
        return self

    def flat(self, given_for: str) -> dict[str, Any]:
        """Return the options that the value represents: the kernel itself if gamma is numeric,
        otherwise its name."""
        options = super().flat(given_for)
        if not isinstance(self.gamma, str):
            del options["gamma"]
            return {**options, given_for: replace(self, multiples=(1.0,), metric="auto")}
        if self.spec() != type(self)(self.gamma).spec():
            raise UsageError(
                f"{self!r} needs a numeric gamma, from which an estimator's gamma='learn-shared' "
                "starts"
            )
        return options

    def widths(self, n_features: int) -> Float:
        """Return the gamma of each feature, (n_features,). Raises ``UsageError`` if their number
        does not match."""
        gamma = self.with_numbers().gamma
        if len(gamma) not in (1, n_features):
            raise UsageError(
                f"gamma has {len(gamma)} values but the data have {n_features} features"
            )
        return np.broadcast_to(np.asarray(gamma, dtype=float), (n_features,))

    def relevances(self, n_features: int) -> Float | None:
        return self.widths(n_features).copy()

    def per_feature(self, n_features: int) -> Self:
        return replace(self, gamma=tuple(self.widths(n_features).tolist()))

    def rescaled(self, factor: float) -> Self:
        return replace(self, gamma=tuple(factor * gamma for gamma in self.gamma))

    def used(self, x: Any, Z: Float) -> tuple[Any, Float, Float]:
        """Return the quantity x (n, d), the centres Z (M, d) and gamma (d,) without the features
        whose gamma is 0."""
        widths = self.widths(Z.shape[1])
        columns = np.flatnonzero(widths)
        return x.take(columns), Z[:, columns], widths[columns]

    def squares(self, x: Any, Z: Float) -> Any:
        """Return r² = Σ_j gamma_j (x_j − z_j)² (n, M) for the quantity x (n, d) and the centres Z
        (M, d)."""
        x, Z, widths = self.used(x, Z)
        root = np.sqrt(widths)
        return x.graph("Squares", x * root, (Z * root).T)

    def shared(self, gradient: Float) -> Float:
        """Return the gradient with respect to a shared log gamma from the gradients of all features
        (d,)."""
        return gradient if len(self.gamma) > 1 else np.array([gradient.sum()])


@dataclass(frozen=True)
class Products:
    """Matrix products of points with m centres, for groups of ``size`` columns and blocks of
    ``PIECE_ROWS`` rows.

    Smaller products are padded to this shape, so that the bits of an element depend only on its
    point and its centre: BLAS selects its algorithm by the shape of the whole product.
    """

    right: Float
    size: int

    @classmethod
    def of(cls, rows: Float, group: int = GROUP) -> Self:
        """Return the products with the centres ``rows`` (m, k)."""
        m, k = rows.shape
        right = np.zeros((-(-m // group), group, k))
        right.reshape(-1, k)[:m] = rows
        return cls(right, group)

    def fill(self, left: Float, out: Float, finish: Callable[[Float], Any]) -> None:
        """Write ``left`` (n, k) times the centres into ``out`` (n, m), and apply ``finish`` to each
        group (g, n)."""
        n = len(left)
        left = padded(left, PIECE_ROWS)
        for group in runs(out.shape[1], self.size):
            block = self.block(left, group)[:, :n]
            finish(block)
            out.T[group] = block

    def block(self, left: Float, some: slice) -> Float:
        """Return ``left`` (n, k) times a group of centres, (g, n)."""
        points = padded(left, PIECE_ROWS)
        pieces = points.reshape(-1, PIECE_ROWS, points.shape[1])
        product = np.empty((self.size, len(points)))
        places = product.reshape(self.size, -1, PIECE_ROWS).transpose(1, 0, 2)
        np.matmul(self.right[some.start // self.size], pieces.transpose(0, 2, 1), out=places)
        return product[: some.stop - some.start, : len(left)]


def padded(points: Float, multiple: int) -> Float:
    """Pad the points (n, d) to a fixed multiple of rows by repeating the last row: the row count
    affects the bits of products."""
    n = len(points)
    return points if n % multiple == 0 else points[np.minimum(np.arange(n + -n % multiple), n - 1)]


def by_groups(out: Float, write: Callable[[slice, Float], Any], size: int = GROUP) -> None:
    """Call ``write(group, values)`` for each group of columns of ``out`` (n, m), which are the rows
    of ``values`` (g, n)."""
    columns = out.T
    for group in runs(len(columns), size):
        # the bits do not depend on the layout of out
        values = np.empty((group.stop - group.start, columns.shape[1]))
        write(group, values)
        columns[group] = values


def runs(m: int, size: int = GROUP) -> list[slice]:
    """Return slices that divide m columns into groups of ``size`` columns."""
    return [slice(start, min(start + size, m)) for start in range(0, m, size)]


def origin_of(centres: Float, origin: Float | None) -> Float:
    """Return the point (d,) from which coordinates are measured: the given one, or the mean of the
    centres (m, d)."""
    if origin is None:
        return np.asarray(centres.mean(axis=0)) if len(centres) else np.zeros(centres.shape[1])
    return origin


def kernel_from_spec(spec: dict[str, Any]) -> Kernel:
    """Return the kernel of a spec, ``{"name": ..., parameters}``. Raises ``UsageError`` for an
    invalid spec."""
    name = spec.get("name")
    if name not in KERNELS:
        raise UsageError(
            f"unknown kernel {name!r}; known: {', '.join(sorted(KERNELS))}{near(name, KERNELS)}"
        )
    try:
        return KERNELS[name](
            **{field: value for field, value in spec.items() if field != "name"}
        ).with_numbers()
    except TypeError as error:
        raise UsageError(f"the spec of the {name} kernel has wrong fields: {error}") from error


def part_of(given: Any) -> Kernel:
    """Return a component kernel that is passed as a kernel or as a spec. Raises ``UsageError`` for
    anything else."""
    kernel = kernel_from_spec(given) if isinstance(given, dict) else given
    if not isinstance(kernel, Kernel) or kernel.inside == "kernels":
        raise UsageError(
            f"{given!r} is not a kernel: pass kernels, such as partirvm.kernels.Gaussian(0.5)"
        )
    return kernel.with_numbers()


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    return value.spec() if isinstance(value, Kernel) else value


def _checked(name: str, gamma: Any) -> tuple[float, ...]:
    """Return gamma as numbers; a tuple of floats is returned unchanged, as scikit-learn's clone
    requires."""
    values = as_numbers([gamma] if isinstance(gamma, numbers.Real) else gamma)
    if values.ndim != 1 or not (values <= 1e150).all() or (values < 0).any() or not values.any():
        expected = (
            "it must be a positive number, or one number from 0 to 1e150 per feature, not all 0"
        )
        raise UsageError(f"gamma of the {name} kernel is {gamma!r}: {expected}")
    same = type(gamma) is tuple and all(type(width) is float for width in gamma)
    return gamma if same else tuple(values.tolist())


def as_numbers(given: Any) -> Float:
    """Return an array of floats; an empty one if the values are not numbers."""
    try:
        return np.array(given, dtype=float)
    except (TypeError, ValueError):
        return np.zeros(0)
