"""The design matrix Φ (N, M), defined by its centres and computed in blocks.

The *leading* columns come first: the constant 1 for the bias, and explicit basis functions
(``Basis``). Kernel column m is k(·, centre m). With K kernels, a row gets the labels ``row · K +
kernel``; with one, labels are row numbers.
"""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from partirvm.errors import UsageError
from partirvm.kernels.base import Kernel, NoKernel, PreparedKernel
from partirvm.kernels.composed import PreparedSeveral, Several, inside
from partirvm.kernels.functions import Basis, FunctionKernel, label_of
from partirvm.kernels.group_columns import GroupColumns
from partirvm.scaling.maps import Scaling
from partirvm.types import BIAS, Bool, DeclaredState, Float, Int

NONE = np.zeros(0, np.int64)
"""Empty integer array, used if there are no centres or no leading columns."""

TEMPER = 0.5
"""Weight of a row in a fit of the mean: its noise factor to the power −`TEMPER`. With 1, the
inverse variance, a sparse mean neglects rows with large errors: the RMSE rises by 1 %, with ½ by .3
%."""

MOST_CERTAIN = 0.75
"""Maximum fraction by which the noise variance is reduced where level effects are well known."""


@dataclass(frozen=True)
class LocalNoise(DeclaredState):
    """Noise factor exp(Σ_m w_m k(x, z_m) − shift) of points in kernel coordinates.

    The mean of the factor over the fit's rows is one. Far from all centres, it is exp(−shift),
    which is near one.

    Attributes:
        kernel: k
        centres: (m, d), in kernel coordinates
        weights: (m,)
        shift: the logarithm of the mean of exp(Σ_m w_m k(x, z_m)) over the rows
    """

    kernel: Kernel
    centres: Float
    weights: Float
    shift: float

    def factor(self, points: Float, product: Callable[[Float, Float], Float] = np.matmul) -> Float:
        """Return the noise factor (n,) at points (n, d); ``product`` multiplies kernel values (n,
        m) by weights."""
        return np.exp(product(self.kernel.values(points, self.centres), self.weights) - self.shift)


@dataclass(frozen=True)
class Design(DeclaredState):
    """Design of M columns: the leading columns (``bias`` and ``functions``), then one kernel column
    per centre.

    Attributes:
        kernel: one kernel, several, or none
        scaling: maps raw inputs to the kernel's coordinates
        centres: (m, d), rows in raw units
        labels: (m,), int64
        bias: True if the first column is the constant 1
        origin: (d',), in the kernel's coordinates; it makes the bits of a column independent of the
            other columns. Without it, rounding errors are smallest.
        functions: basis functions
        active: numbers of the basis functions that are columns, in increasing order
        noise: the noise factor of each row
    """

    kernel: Kernel
    scaling: Scaling
    centres: Float
    labels: Int
    bias: bool
    origin: Float | None = None
    functions: Basis | None = None
    active: Int = field(default_factory=lambda: NONE)
    noise: LocalNoise | None = None

    @property
    def n_columns(self) -> int:
        """The number M of columns, including the leading columns."""
        return self.n_leading + len(self.centres)

    @property
    def leading(self) -> Int:
        """Labels of the leading columns (L,): the bias, then the basis functions."""
        return np.concatenate(
            [np.full(int(self.bias), BIAS, dtype=np.int64), label_of(self.active)]
        )

    def columns_of(self, kind: type) -> Int:
        """Return the positions (k,) of the columns of basis functions of this kind, such as
        ``Jumps``."""
        if self.functions is None:
            return np.zeros(0, dtype=np.int64)
        is_kind = np.isin(self.active, self.functions.numbers_of(kind))
        return int(self.bias) + np.flatnonzero(is_kind)

    @property
    def all_labels(self) -> Int:
        """Labels of all columns (M,), the leading columns first."""
        return np.concatenate([self.leading, self.labels])

    @property
    def n_leading(self) -> int:
        return int(self.bias) + len(self.active)

    @property
    def kernels(self) -> tuple[Kernel, ...]:
        """The K kernels."""
        if isinstance(self.kernel, NoKernel):
            return ()
        return self.kernel.kernels if isinstance(self.kernel, Several) else (self.kernel,)

    @property
    def rows(self) -> Int:
        """Row number of each centre, (m,)."""
        return self.labels // len(self.kernels)

    @property
    def which(self) -> Int:
        """The kernel number of each kernel column, (m,)."""
        return self.labels % len(self.kernels)

    @cached_property
    def basis(self) -> str:
        """Hash of everything except centres (a callable's text includes its address): columns with
        equal hash and label are equal."""
        facts = (
            self.kernel,
            self.scaling.key,
            None if self.origin is None else self.origin.tolist(),
            self.functions,
        )
        return hashlib.blake2b(repr(facts).encode(), digest_size=8).hexdigest()

    @cached_property
    def _prepared(self) -> PreparedKernel:
        centres = self.scaling.inputs(self.centres)
        if isinstance(self.kernel, Several):
            return PreparedSeveral(self.kernel, centres, self.which, self.origin)
        return self.kernel.prepare(centres, self.origin)

    @property
    def effective(self) -> Bool:
        """The scaled inputs (d',) on which a column depends; a Python function may depend on all
        features."""
        d = self.centres.shape[1]
        is_effective = np.zeros(self.scaling.n_inputs, dtype=np.bool_)
        if len(self.active):
            assert self.functions is not None
            is_effective[:d] = self.functions.features(self.active, d)
        for number in np.unique(self.which).tolist() if len(self.centres) else ():
            is_effective |= self.kernels[number].effective(len(is_effective))
        return is_effective

    @property
    def single_features(self) -> Int:
        """The position of the only feature on which each active basis function depends, (k,); −1 if
        it may depend on several."""
        if self.functions is None or not len(self.active):
            return NONE
        return self.functions.single_features(self.active, self.centres.shape[1])

    def peaks(self) -> Float:
        """Return the peak value k(z, z) of each kernel column, (m,)."""
        centres = self.scaling.inputs(self.centres)
        peaks = np.array([kernel.diagonal(centres) for kernel in self.kernels or (self.kernel,)])
        return peaks[self.which, np.arange(len(centres))]

    def block(self, X: Float, out: Float | None = None) -> Float:
        """Return Φ at raw inputs X (n, d), in ``out`` or a new array (n, M) stored column by
        column."""
        block = np.empty((self.n_columns, len(X))).T if out is None else out
        self.lead(X, block)
        if len(self.centres):
            self._prepared(self.scaling.inputs(X), block[:, self.n_leading :])
        return block

    def lead(self, X: Float, out: Float) -> None:
        """Write the leading columns at raw inputs X (n, d) to the first columns of ``out`` (n,
        M)."""
        out[:, : int(self.bias)] = 1.0
        if len(self.active):
            assert self.functions is not None
            values = self.functions(self.features(X), X)
            out[:, int(self.bias) : self.n_leading] = values[:, self.active]

    @property
    def weighs_rows(self) -> bool:
        """True if the variance of a target depends on its inputs."""
        return self.noise is not None or self.scaling.doubtful

    def noise_factor(
        self, X: Float, product: Callable[[Float, Float], Float] = np.matmul, power: float = 1.0
    ) -> Float | float:
        """Return the noise variance (n,) at raw inputs X (n, d), as a multiple of the overall noise
        variance; 1 if constant.

        It includes the variance of level effects. ``product`` multiplies kernel values (n, m) by
        weights, and ``power`` is the exponent of the local noise factor.
        """
        factor: Float | float = 1.0
        if self.noise is not None:
            factor = self.noise.factor(self.scaling.inputs(X), product) ** power
        return factor * self.scaling.noise_factor(X) if self.scaling.doubtful else factor

    def row_weights(self, X: Float) -> Float | None:
        """Return the row weights (n,) at raw inputs X (n, d) for a fit of the mean; None if they
        are all one."""
        return np.asarray(self.noise_factor(X) ** -TEMPER) if self.weighs_rows else None

    def gradient(self, X: Float, block: Float, weights: Float) -> Float:
        """Return Σ_nm weights[n, m] ∂Φ_nm/∂ log parameter_p, (p,); ``block`` (n, M) is Φ at the raw
        inputs X (n, d)."""
        kernels = slice(self.n_leading, None)
        return self._prepared.gradient(
            self.scaling.inputs(X), block[:, kernels], weights[:, kernels]
        )

    def input_gradient(self, X: Float, block: Float, weights: Float) -> Float:
        """Return Σ_m w_m ∂Φ_nm/∂x_n in kernel coordinates, (n, d'), for raw X, weights (M,) or (n,
        M), Φ (n, M)."""
        points = self.scaling.inputs(X)
        kernels = slice(self.n_leading, None)
        weights = np.broadcast_to(weights, block.shape)[:, kernels]
        prepared = self._prepared if len(self.centres) else PreparedKernel()
        return prepared.input_gradient(points, block[:, kernels], weights)

    def raw_gradient(self, X: Float, block: Float, weights: Float) -> Float:
        """Return Σ_m weights[n, m] ∂Φ_nm/∂x_n, (n, d), in the units of raw inputs X (n, d) without
        gaps.

        Level codes that are coordinates have derivative 0. Raises ``UsageError`` for user
        functions.
        """
        features = self.single_features
        several = self.functions is not None and not self.functions.is_separable
        if several or any(
            inside(kernel, self.scaling.n_inputs, FunctionKernel) for kernel in self.kernels
        ):
            raise UsageError(
                "a kernel or basis that is a Python function has no gradient with respect to the "
                "inputs"
            )
        gradient = self.input_gradient(X, block, weights)
        for place, j in enumerate(features.tolist()):
            if self.functions is not None and not self.functions.is_flat(self.active)[place]:
                gradient[:, j] += weights[:, int(self.bias) + place]
        return self.scaling.raw_gradient(X, gradient)

    def noise_gradient(self, X: Float) -> Float:
        """Return the gradient (n, d) of the logarithm of the noise factor at raw inputs X (n, d)
        without gaps."""
        assert self.noise is not None
        points = self.scaling.inputs(X)
        centres = self.noise.centres
        values = self.noise.kernel.values(points, centres)
        weights = np.broadcast_to(self.noise.weights, values.shape)
        return self.scaling.raw_gradient(
            X, self.noise.kernel.prepare(centres).input_gradient(points, values, weights)
        )

    def take(self, centres: Int | slice, *, leading: Int | None = None) -> "Design":
        """Return the design with the centres at these positions and the leading columns with these
        labels, or all leading columns."""
        design = replace(self, centres=self.centres[centres], labels=self.labels[centres])
        if leading is None:
            return design
        return replace(
            design,
            bias=bool((leading == BIAS).any()),
            active=np.sort(label_of(leading[leading < BIAS])),
        )

    def join(self, other: "Design") -> "Design":
        """Return the design with the centres of this design, then of ``other``, and the leading
        columns of both."""
        active = np.union1d(self.active, other.active)
        bias = self.bias or other.bias
        centres = np.concatenate([self.centres, other.centres])
        labels = np.concatenate([self.labels, other.labels])
        return replace(self, bias=bias, active=active, centres=centres, labels=labels)

    @property
    def group_columns(self) -> GroupColumns | None:
        """The columns of groups, or None."""
        return None if self.functions is None else self.functions.groups

    def features(self, X: Float) -> Float:
        """Return the scaled features (n, d) at raw inputs X (n, d), on which basis functions
        depend."""
        return self.scaling.inputs(X)[:, : self.centres.shape[1]]

    @property
    def places_without_groups(self) -> Int:
        """The positions of the columns that are no columns of groups."""
        return np.delete(np.arange(self.n_columns), self.columns_of(GroupColumns))

    def without_groups(self) -> "Design":
        """Return the design of rows of new groups, without columns of groups."""
        if self.functions is None or self.functions.groups is None:
            return self
        functions = self.functions.without_groups()
        size = 0 if functions is None else functions.size
        return replace(self, functions=functions, active=self.active[self.active < size])

    def with_centres(self, points: Float, rows: Int) -> "Design":
        """Return a design without leading columns whose centres are rows with these points (k, d)
        and numbers (k,), each with K columns; further columns of the points are left out."""
        points = points[:, : self.centres.shape[1]]
        count = len(self.kernels)
        labels = (rows[:, None] * count + np.arange(count)).ravel()
        return replace(
            self, centres=np.repeat(points, count, axis=0), labels=labels, bias=False, active=NONE
        )
