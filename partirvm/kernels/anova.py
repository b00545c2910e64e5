"""ANOVA kernels, whose functions are sums of effects of single features and of their interactions.

With a kernel k_j of each feature and its share a_j ≥ 0,

    k(x, z) = S(t_1, …, t_d) / S(a_1, …, a_d),    t_j = a_j k_j(x_j, z_j),

where S is the sum of the products of all non-empty subsets of its arguments, Π_j (1 + t_j) − 1.
With an ``order`` q, only subsets of up to q features count: S = e_1 + … + e_q for the elementary
symmetric polynomials e_s (Duvenaud, Nickisch & Rasmussen 2011, "Additive Gaussian processes"). A
radial kernel of many features measures their joint distance: a sum of functions of one feature each
varies in every one of them, so that no two rows are near each other. This kernel has such sums
among its functions, at the cost of a product.

Both sums are built by adding one feature at a time: S ← S + t (1 + S), and e_s ← e_s + t e_(s−1).
All terms are positive, so that no digits are lost; blocks use the product where S(a) is at least
``interactions.LEAST_TOTAL``. The Newton–Girard formulas for the same polynomials are alternating
sums of power sums, which cancel.
"""

from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np

from partirvm.errors import UsageError
from partirvm.kernels.anova_values import PreparedAnova
from partirvm.kernels.base import (
    KERNELS,
    NEGLIGIBLE,
    Family,
    as_numbers,
)
from partirvm.kernels.feature_factors import (
    SIDED,
    FeatureKernel,
    GaussianFeature,
    LevelFeature,
    RadialFeature,
    SidedFeature,
)
from partirvm.kernels.interactions import slopes_of, total_of
from partirvm.kernels.nonradial import Laplacian
from partirvm.kernels.radial import Gaussian, RadialKernel
from partirvm.options.constraints import Check, near
from partirvm.types import Float, Int

LARGEST_SHARE = 1e6
"""Maximum share. Terms without a feature no longer matter when its share is that large; a search
that steps further stays here."""


@dataclass(frozen=True, repr=False)
class Anova(Family, name="anova", form=PreparedAnova):
    """Kernel of sums of effects: ``k(x, z) = (Π_j (1 + a_j k_j(x_j, z_j)) − 1)/(Π_j (1 + a_j) −
    1)``.

    Its functions are sums of effects of single features and of their interactions. The share a_j
    sets how much of feature j's effect interacts: with small shares, the function is a sum of
    functions of one feature each; with large shares, it is a joint function of all features. gamma
    is the inverse squared width of each k_j; "scale" is 1 divided by the feature's variance. See
    Duvenaud, Nickisch & Rasmussen (2011), "Additive Gaussian processes".

    Parameters
    ----------
    gamma, multiples, metric : optional
        As for ``Gaussian``.
    shares : float or sequence of float, default=()
        Shares a_j ≥ 0: one number for all features or one per feature; a feature with share 0 has
        no effect. Without any, each share is 1/d, and learning a width per feature also learns the
        shares.
    base : str, default="gaussian"
        The kernel of each feature: "gaussian", "matern52", "matern32", "laplacian", or the name of
        another radial kernel.
    order : int or None, default=None
        Maximum number of features that interact; 1 gives a sum of functions of one feature each.
    categorical : sequence of int, default=()
        Positions of features that hold codes of categories, whose kernel is ``exp(−gamma_j [x_j ≠
        z_j])``. Categorical columns of a dataset are added by the fit.

    Raises
    ------
    UsageError
        If a parameter has an impossible value, or if all shares are 0.

    Examples
    --------
    >>> from partirvm import Anova
    >>> kernel = Anova(gamma=2.0, shares=(0.5, 0.5), order=1)
    >>> float(kernel.values(np.zeros((1, 2)), np.array([[0.0, 9.0]]))[0, 0])
    0.5
    """

    shares: Any = ()
    base: str = "gaussian"
    order: int | None = None
    categorical: Any = ()
    numbers: ClassVar[dict[str, Check]] = {"order": Check("whole", least=1, optional=True)}

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "shares", _checked_shares(self.shares))
        object.__setattr__(self, "categorical", _checked_positions(self.categorical))
        known = [name for name, kind in KERNELS.items() if _is_base(kind)]
        if self.base not in known:
            raise UsageError(
                f"base of the anova kernel is {self.base!r}: it must be one of "
                f"{', '.join(known)}{near(self.base, known)}"
            )

    def factor(self, n_features: int, j: int) -> FeatureKernel:
        """Return the kernel of feature j. Raises ``UsageError`` if gamma has another number of
        features."""
        gamma = float(self.widths(n_features)[j])
        if j in self.categorical:
            return LevelFeature(gamma)
        if self.base == Gaussian.name:
            return GaussianFeature(gamma)
        kernel: Any = KERNELS[self.base]
        if self.base in SIDED:
            return SidedFeature(gamma, *SIDED[self.base])
        return RadialFeature(kernel(1.0), gamma)

    def shares_of(self, n_features: int) -> Float:
        """Return the share of each feature, (n_features,). Raises ``UsageError`` if their number
        does not match."""
        if len(self.shares) not in (0, 1, n_features):
            raise UsageError(
                f"shares has {len(self.shares)} values but the data have {n_features} features"
            )
        if max(self.categorical, default=0) >= n_features:
            raise UsageError(
                f"the categorical features of the anova kernel are {list(self.categorical)}, but "
                f"the data have {n_features} features, counted from 0"
            )
        shares = self.shares or (1.0 / n_features,)
        shares = np.broadcast_to(np.asarray(shares, dtype=float), (n_features,))
        with np.errstate(over="ignore"):
            total = total_of(shares[:, None], self.order)
        if not np.isfinite(total).all():
            raise UsageError(
                f"the product of {n_features} shares of the anova kernel exceeds the largest "
                "number: the shares must be smaller"
            )
        return shares

    def portions(self, n_features: int) -> Float:
        """Return a_j ∂S/∂t_j / S at x = z, (n_features,): the change of k per change of k_j.

        k(x, x) − k(x, z) is about Σ_j portion_j (1 − k_j) for rows near each other. For one
        feature, the portion is 1.
        """
        shares = self.shares_of(n_features)
        slopes = slopes_of(shares[:, None], self.order)[:, 0]
        return np.asarray(shares * slopes / total_of(shares[:, None], self.order))

    def of_shares(self, gradient: Float) -> Float:
        """Return the gradient with respect to the logarithms of ``shares`` from the gradients of
        all features (d,)."""
        if len(self.shares) > 1:
            return gradient
        return np.full(len(self.shares), gradient.sum())

    def learnable(self) -> dict[str, float]:
        parameters = super().learnable()
        with np.errstate(divide="ignore"):
            logs = np.log(self.shares).tolist()
        single = len(logs) == 1
        return parameters | {
            "shares" if single else f"shares[{j}]": log for j, log in enumerate(logs)
        }

    def with_logs(self, logs: Float) -> Self:
        count = len(self.gamma)
        if len(logs) != count + len(self.shares):
            raise UsageError(
                f"{len(logs)} logarithms for {count + len(self.shares)} parameters of a kernel"
            )
        gamma = np.exp(logs[:count]).tolist()
        shares = np.minimum(np.exp(logs[count:]), LARGEST_SHARE).tolist()
        return replace(self, gamma=tuple(gamma), shares=tuple(shares))

    def relevances(self, n_features: int) -> Float | None:
        """Return each feature's gamma times its portion: the gamma of a kernel of all features that
        has the same curvature at x = z."""
        return self.widths(n_features) * self.portions(n_features)

    def axes_of_distance(self, n_features: int) -> Float | None:
        """Return axes (r, n_features) of coordinates whose squared distance is k(x, x) − k(x, z)
        for rows near each other."""
        relevances = self.widths(n_features) * self.portions(n_features)
        axes = np.diag(relevances if self.base == Laplacian.name else np.sqrt(relevances))
        return axes[[j for j in range(n_features) if j not in self.categorical]]

    def level_widths(self, n_features: int) -> Float:
        portions = self.portions(n_features)
        is_coded = np.isin(np.arange(n_features), self.categorical)
        return np.where(is_coded, -portions * np.expm1(-self.widths(n_features)), 0.0)

    def per_feature(self, n_features: int) -> Self:
        shares = tuple(self.shares_of(n_features).tolist())
        return replace(super().per_feature(n_features), shares=shares)

    def on(self, places: Int, widths: Float, shares: Float) -> Self:
        """Return the kernel of some features alone.

        Args:
            places: positions of the features, (r,)
            widths: their gammas, (r,)
            shares: (r,)
        """
        coded = [place for place, j in enumerate(places.tolist()) if j in self.categorical]
        return replace(
            self,
            gamma=tuple(widths.tolist()),
            shares=tuple(shares.tolist()),
            categorical=tuple(coded),
        )

    def without_weak(self, least: float, value: float) -> Self:
        """Return the kernel without the features whose relevance is below the fraction ``least`` of
        the largest; their shares become ``value``."""
        n_features = max(len(self.gamma), len(self.shares))
        relevances = self.widths(n_features) * self.portions(n_features)
        shares = self.shares_of(n_features)
        is_weak = (relevances > 0.0) & (relevances < least * relevances.max())
        return replace(self, shares=tuple(np.where(is_weak, value, shares).tolist()))

    def operations(self, x: Any, Z: Float) -> Any:
        d = Z.shape[1]
        shares = self.shares_of(d)
        columns = np.flatnonzero(shares).tolist()
        terms = [float(shares[j]) * self._factor_operations(x, Z, j) for j in columns]
        sums = [terms[0]]
        for term in terms[1:]:
            if self.order is None:
                sums = [sums[0] + (sums[0] + 1.0) * term]
                continue
            longer = [product * term for product in sums[: self.order - 1]]
            sums[0] = sums[0] + term
            for s, products in enumerate(longer, start=1):
                sums[s:] = [sums[s] + products] if s < len(sums) else [products]
        total = float(total_of(shares[:, None], self.order)[0])
        return sum(sums[1:], start=sums[0]) / total

    def _factor_operations(self, x: Any, Z: Float, j: int) -> Any:
        """Return k_j (n, M) as operations."""
        gamma = float(self.widths(Z.shape[1])[j])
        column = x.take([j])
        if not gamma:
            return column * np.zeros(len(Z)) + 1.0
        name = "categorical" if j in self.categorical else self.base
        kind: Any = KERNELS[name]
        return kind(gamma).exported(column, Z[:, [j]])


def _is_base(kind: Any) -> bool:
    """Return True if a kernel of one feature may be of this class."""
    return kind is Laplacian or issubclass(kind, RadialKernel)


def _checked_shares(given: Any) -> tuple[float, ...]:
    """Return shares as numbers; a tuple of floats is returned unchanged, as scikit-learn's clone
    requires."""
    if isinstance(given, tuple | list) and not given:
        return ()
    shares = np.atleast_1d(as_numbers(None if isinstance(given, str) else given))
    largest = float(shares.max()) if shares.ndim == 1 and shares.size else 0.0
    if not (NEGLIGIBLE < largest <= LARGEST_SHARE and (shares >= 0.0).all()):
        raise UsageError(
            f"shares of the anova kernel is {given!r}: it must be a positive number, or one number "
            f"from 0 to {LARGEST_SHARE:,.0f} per feature, not all 0"
        )
    same = type(given) is tuple and all(type(share) is float for share in given)
    return given if same else tuple(shares.tolist())


def _checked_positions(given: Any) -> tuple[int, ...]:
    """Return the positions of features; a tuple of integers is returned unchanged."""
    positions = tuple(given) if isinstance(given, tuple | list | np.ndarray) else None
    is_valid = positions is not None and all(
        isinstance(j, int | np.integer) and not isinstance(j, bool) and j >= 0 for j in positions
    )
    if positions is None or not is_valid or len(set(positions)) < len(positions):
        raise UsageError(
            f"categorical of the anova kernel is {given!r}: it must be a tuple of distinct feature "
            "positions, from 0"
        )
    if type(given) is tuple and all(type(j) is int for j in positions):
        return given
    return tuple(int(j) for j in positions)
