"""Effects of features and of pairs of features on the predictions of a model with an ANOVA kernel,
and their shares of the variance.

The features are taken as independent, each with the distribution of its values in a sample of the
training rows, of which the model stores quantiles (``FittedModel.marginals``). All effects, their
posterior standard deviations and their shares (Sobol indices) are then exact
(``kernels.feature_products``).
They describe the vectors and basis functions: the mean of a regression in the target's units or,
for a warped target, in the units of its map, and the linear predictors of classes. Local residuals
are not functions of single features.
"""

from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np

from partirvm.data.frame_rows import checked_rows
from partirvm.errors import UsageError
from partirvm.kernels.anova import Anova
from partirvm.kernels.anova_values import PreparedAnova
from partirvm.kernels.base import NoKernel
from partirvm.kernels.design import Design
from partirvm.kernels.feature_products import Factors
from partirvm.process import one_blas_thread
from partirvm.quoting import quoted
from partirvm.scaling.maps import unfolded_inputs
from partirvm.types import Float, Int

QUANTILES = 128
"""Number of quantiles of each feature that a model stores: 1 KiB per feature. Shares of smooth
functions of one feature differ from those of all sampled rows by less than 1 %."""

POINTS = 61
"""Number of points at which the effect of a feature is computed."""

PAIR_POINTS = 25
"""Number of points of each feature at which the effect of a pair is computed."""

MOST_LEVELS = 12
"""Maximum number of levels of a categorical feature, and of distinct numbers that are all shown."""

INTERACTIONS = 3
"""Number of the strongest pairs."""

LEAST_SHARE = 5e-3
"""Smallest share of the variance of a pair that is shown."""


@dataclass(frozen=True)
class Positions:
    """Values of a feature at which an effect is computed.

    Attributes:
        feature: the feature's name.
        values: (g,), in its units; codes of levels.
        levels: names of the levels, (g,); empty for a numeric feature.
        deciles: (9,), of its values in the training rows; empty for a categorical feature.
    """

    feature: str
    values: list[float]
    levels: list[str]
    deciles: list[float]


@dataclass(frozen=True)
class MainEffect:
    """The effect of a feature on its own: the mean prediction given its value, minus the overall
    mean.

    Attributes:
        at: the values, (g,).
        mean: (g,), posterior mean.
        std: (g,), posterior standard deviation.
        share: the effect's share of the variance (first-order Sobol index).
        total: the feature's share of the variance, alone or with others (total Sobol index).
    """

    at: Positions
    mean: list[float]
    std: list[float]
    share: float
    total: float


@dataclass(frozen=True)
class Interaction:
    """The effect of a pair: the mean prediction given both values, minus both main effects and the
    overall mean.

    Attributes:
        first: the values of the first feature, (g,).
        second: the values of the second feature, (h,).
        mean: (g, h), posterior mean.
        std: (g, h), posterior standard deviation.
        share: its share of the variance (second-order Sobol index).
    """

    first: Positions
    second: Positions
    mean: list[list[float]]
    std: list[list[float]]
    share: float


@dataclass(frozen=True)
class Effects:
    """The effects of one output.

    Attributes:
        output: its name.
        unit: what the effects change, such as the target or its logarithm.
        variance: the variance of the output, squared units.
        main: the effects of the features that the model uses, those with the largest totals first.
        interactions: the strongest pairs, the strongest first.
    """

    output: str
    unit: str
    variance: float
    main: list[MainEffect]
    interactions: list[Interaction]

    def to_json(self) -> dict[str, Any]:
        """Return all values as plain JSON."""
        return asdict(self)

    @classmethod
    def from_json(cls, stored: dict[str, Any]) -> "Effects":
        """Return the effects from the values of ``to_json``."""
        main = [MainEffect(**(one | {"at": Positions(**one["at"])})) for one in stored["main"]]
        interactions = []
        for one in stored["interactions"]:
            pair = {name: Positions(**one[name]) for name in ("first", "second")}
            interactions.append(Interaction(**(one | pair)))
        return cls(**(stored | {"main": main, "interactions": interactions}))


class Shares(NamedTuple):
    """Shares of the variance of C linear predictors, without those of constant ones.

    Attributes:
        main: V_j/V, (d, C).
        total: V_Tj/V, (d, C).
        variance: V, (C,).
    """

    main: Float
    total: Float
    variance: Float


def marginals_of(model: Any, X: Float) -> Float | None:
    """Return quantiles (q, d) of the features' present values in training rows X (n, d); None if
    the model has no exact effects.

    With up to ``QUANTILES`` rows, they are the sorted values. A feature without any is 0.
    """
    if not len(X) or _obstacle(model.design):
        return None
    X = unfolded_inputs(X, model.design.scaling)
    count = min(len(X), QUANTILES)
    positions = (np.arange(count) + 0.5) / count
    marginals = np.zeros((count, X.shape[1]))
    for j, values in enumerate(X.T):
        present = np.sort(values[~np.isnan(values)])
        if len(present):
            marginals[:, j] = present[(positions * len(present)).astype(np.int64)]
    return marginals


def _obstacle(design: Design) -> str:
    """Return why effects of the design's columns are not products over features; empty if they
    are."""
    kernels = design.kernels
    if not kernels or not all(isinstance(kernel, Anova) for kernel in kernels):
        name = design.kernel.name if kernels else NoKernel.name
        return (
            "the effects of single features need an ANOVA kernel, and the model's is "
            f'{quoted(name)}: fit with kernel="anova"'
        )
    if len({kernel.order for kernel in kernels if isinstance(kernel, Anova)}) > 1:
        return "the effects of single features need ANOVA kernels of the same order"
    if (design.single_features < 0).any():
        return (
            "basis functions of several features have no effects of single features: leave basis "
            'out, or set basis="linear"'
        )
    features = design.scaling.features
    if features is not None and any(table[:, :, 1:].any() for _, table in features.effects):
        return (
            "the effects of some levels depend on numeric features, so that the latter have no "
            "effects of their own: one-hot encode the categories"
        )
    return ""


class Decomposition:
    """The factors of a model's columns at quantiles of its features (``kernels.feature_products``).

    ``features`` (p,) are the positions of the features on which columns depend.

    Args:
        model: a model with exact effects.
        marginals: quantiles (q, d) of its features.
    """

    def __init__(self, model: Any, marginals: Float) -> None:
        self.design: Design = model.design
        self.marginals = marginals
        self.weights = model.mean.reshape(self.design.n_columns, -1)
        centres = self.design.scaling.inputs(self.design.centres)
        kernels: Any = self.design.kernels
        which = self.design.which
        self.prepared = [
            PreparedAnova(kernel, centres[which == number], None)
            for number, kernel in enumerate(kernels)
        ]
        sources = self.design.scaling.sources
        used = self.design.effective
        self.features: Int = np.unique(sources[used])
        order = kernels[0].order
        n_inputs = int(used.sum())
        self.size = 1 if order is None else min(order, max(n_inputs, 1)) + 1

    @cached_property
    def factors(self) -> Factors:
        """The factors at the quantiles of all used features."""
        samples = [self.at(j, self.marginals[:, j]) for j in self.features.tolist()]
        return Factors(samples, self.weights)

    def at(self, j: int, values: Float) -> Float:
        """Return the factors G_j (K, g, M) of all columns at values (g,) of feature j, raw."""
        design = self.design
        rows = np.repeat(self.marginals[[len(self.marginals) // 2]], len(values), axis=0)
        rows[:, j] = values
        inputs = design.scaling.inputs(rows)
        factors = np.zeros((self.size, len(values), design.n_columns))
        factors[0] = 1.0
        of_feature = np.flatnonzero(design.single_features == j)
        if len(of_feature):
            leading = np.empty((len(values), design.n_leading))
            design.lead(rows, leading)
            factors[0][:, int(design.bias) + of_feature] = leading[:, int(design.bias) + of_feature]
        places = np.flatnonzero(design.scaling.sources == j)
        for number, prepared in enumerate(self.prepared):
            columns = design.n_leading + np.flatnonzero(design.which == number)
            coordinates = prepared.features.coordinates(inputs, prepared.origin)
            for place in np.flatnonzero(np.isin(prepared.features.places, places)).tolist():
                terms = prepared.terms(place, coordinates[place], slice(None))
                factors[:, :, columns] = self._with(factors[:, :, columns], terms)
        return factors

    @cached_property
    def scales(self) -> Float:
        """The factor of each column (M,): 1/S for the columns of a kernel whose peak is S."""
        scales = np.ones(self.design.n_columns)
        for number, prepared in enumerate(self.prepared):
            columns = self.design.n_leading + np.flatnonzero(self.design.which == number)
            scales[columns] /= prepared.features.total
        return scales

    def shares(self) -> Shares:
        """Return the shares of the variance of each used feature."""
        scaled = Factors(self.factors.samples, self.scales[:, None] * self.weights)
        total, variance = scaled.variances()
        divisors = np.where(variance > 0.0, variance, 1.0)
        return Shares(scaled.main_variances() / divisors, total / divisors, variance)

    def _with(self, factors: Float, terms: Float) -> Float:
        """Return polynomials (K, g, m) multiplied by 1 + terms z, or by 1 + terms without an
        order."""
        if self.size == 1:
            return factors * (1.0 + terms)
        extended = factors.copy()
        extended[1:] += factors[:-1] * terms
        return extended


@one_blas_thread()
def shares_of(model: Any) -> Float | None:
    """Return each feature's exact share (d,) of the variance, alone or with others; None if the
    model has no exact effects.

    It is the mean over targets; for classes, variances are summed over the linear predictors.
    """
    if model.marginals is None or _obstacle(model.design):
        return None
    decomposition = Decomposition(model, model.marginals)
    shares = decomposition.shares()
    varies = shares.variance > 0.0
    of_features = np.zeros(model.design.centres.shape[1])
    if varies.any():
        weights = shares.variance if model.one_unit else varies.astype(np.float64)
        of_features[decomposition.features] = shares.total @ (weights / weights.sum())
    return of_features


@one_blas_thread()
def effects_of(model: Any, output: int | str = 0, X: Any = None) -> Effects:
    """Return the main effects and the strongest interactions of one output of a model.

    Raises ``UsageError`` if the model has no exact effects, or no such output, and ``DataError`` if
    the features of X differ from those of the fit.

    Args:
        model: a fitted model.
        output: number or name of a target, or of a class.
        X: rows (n, d) as in ``predict``, which give the distribution of each feature; None for the
            training rows.
    """
    if hasattr(model, "models"):
        raise UsageError(
            "targets that were fitted in groups have no common effects: take an estimator from "
            "estimators_"
        )
    if obstacle := _obstacle(model.design):
        raise UsageError(obstacle)
    marginals = model.marginals
    if X is not None:
        marginals = marginals_of(model, checked_rows(X, model.columns))
    if marginals is None:
        raise UsageError("the model stores no values of its features: pass X")
    return _Drawn(model, marginals, _number(model, output)).effects()


def effects_json(model: Any, most_outputs: int = 4) -> list[dict[str, Any]]:
    """Return the effects of the first outputs as plain JSON; empty if the model has none."""
    if model.marginals is None or _obstacle(model.design):
        return []
    count = min(model.mean.reshape(len(model.mean), -1).shape[1], most_outputs)
    return [effects_of(model, number).to_json() for number in range(count)]


def _number(model: Any, output: int | str) -> int:
    """Return the number of an output among the linear predictors."""
    names = list(map(str, model.output_names))
    count = int(np.size(model.mean) // len(model.mean))
    if isinstance(output, str) and output in names:
        return min(names.index(output), count - 1)
    if not isinstance(output, str) and 0 <= output < len(names):
        return min(int(output), count - 1)
    raise UsageError(
        f"output is {output!r}: it must be a number below {len(names)}, or one of "
        f"{', '.join(names)}"
    )


class _Drawn:
    """The effects of one output on the points at which they are drawn.

    Args:
        model: a model with exact effects.
        marginals: quantiles (q, d) of its features.
        number: the number of the output.
    """

    def __init__(self, model: Any, marginals: Float, number: int) -> None:
        self.model = model
        self.decomposition = Decomposition(model, marginals)
        names = list(map(str, model.output_names))
        has_targets = not model.one_unit
        self.scale = float(model.design.scaling.t_scale[number]) if has_targets else 1.0
        is_second = self.decomposition.weights.shape[1] < len(names)  # of two classes
        name = names[1 if is_second else number]
        target = model.design.scaling.target
        self.output = name
        self.unit = target.name(name) if has_targets else f"predictor of {name}"
        roots = model.predictive.root
        roots = roots[None] if roots.ndim == 2 else roots
        scales = self.decomposition.scales
        self.root = scales[:, None] * roots[min(number, len(roots) - 1)]
        weights = scales * self.decomposition.weights[:, number]
        self.factors = Factors(self.decomposition.factors.samples, weights[:, None])

    def effects(self) -> Effects:
        """Return the effects."""
        total, whole = self.factors.variances()
        variance = float(whole[0])
        main = self.factors.main_variances()[:, 0] / (variance or 1.0)
        shares = total[:, 0] / (variance or 1.0)
        strongest = np.argsort(-shares, kind="stable").tolist()
        return Effects(
            output=self.output,
            unit=self.unit,
            variance=self.scale**2 * variance,
            main=[self._main(j, float(main[j]), float(shares[j])) for j in strongest],
            interactions=[
                self._interaction(j, k, share)
                for share, j, k in self._strongest_pairs(shares - main, variance)
            ],
        )

    def _strongest_pairs(self, bounds: Float, variance: float) -> list[tuple[float, int, int]]:
        """Return the shares of the strongest pairs with their positions.

        Args:
            bounds: (p,), each feature's share with others, which no pair exceeds.
            variance: V, by which shares are divided.
        """
        order = np.argsort(-bounds, kind="stable").tolist()
        pairs = sorted(combinations(order, 2), key=lambda pair: -bounds[pair[1]])
        strongest: list[tuple[float, int, int]] = []
        for j, k in pairs:
            least = strongest[-1][0] if len(strongest) == INTERACTIONS else LEAST_SHARE
            if bounds[k] <= least:
                break
            share = float(self.factors.pair_variance(j, k)[0]) / variance
            if share > least:
                strongest.append((share, min(j, k), max(j, k)))
                strongest = sorted(strongest, reverse=True)[:INTERACTIONS]
        return strongest

    def _main(self, j: int, share: float, total: float) -> MainEffect:
        """Return the effect of the used feature at position j."""
        at = self._positions(j, POINTS)
        feature = int(self.decomposition.features[j])
        columns = self.factors.columns(j, self.decomposition.at(feature, np.array(at.values)))
        mean, std = self._moments(columns)
        return MainEffect(at, mean.tolist(), std.tolist(), share, total)

    def _interaction(self, j: int, k: int, share: float) -> Interaction:
        """Return the effect of the used features at positions j and k."""
        pair = [self._positions(one, PAIR_POINTS) for one in (j, k)]
        features = self.decomposition.features[[j, k]].tolist()
        factors = [
            self.decomposition.at(feature, np.array(at.values))
            for feature, at in zip(features, pair, strict=True)
        ]
        columns = self.factors.pair_columns(j, k, *factors)
        mean, std = self._moments(columns)
        first, second = pair
        return Interaction(first, second, mean.tolist(), std.tolist(), share)

    def _moments(self, columns: Float) -> tuple[Float, Float]:
        """Return the posterior mean and standard deviation (…) of columns (…, M) times weights."""
        mean = columns @ self.factors.weights[:, 0]
        std = np.linalg.norm(columns @ self.root, axis=-1)
        return self.scale * mean, self.scale * std

    def _positions(self, j: int, count: int) -> Positions:
        """Return at most ``count`` values of the used feature at position j: the most frequent
        levels, all distinct numbers if there are few, or evenly spaced numbers."""
        feature = int(self.decomposition.features[j])
        name = self.model.columns.features[feature]
        values = self.decomposition.marginals[:, feature]
        distinct, frequencies = np.unique(values, return_counts=True)
        labels = self.model.columns.categories.get(name)
        if labels is not None:
            frequent = np.sort(np.argsort(-frequencies, kind="stable")[:MOST_LEVELS])
            codes = distinct[frequent].astype(np.int64).tolist()
            levels = [str(labels[code]) if code < len(labels) else "other" for code in codes]
            return Positions(name, distinct[frequent].tolist(), levels, [])
        if len(distinct) > MOST_LEVELS:
            distinct = np.linspace(distinct[0], distinct[-1], count)
        deciles = np.quantile(values, np.arange(1, 10) / 10, method="inverted_cdf")
        return Positions(name, distinct.tolist(), [], deciles.tolist())
