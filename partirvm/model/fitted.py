"""A fitted regression model as a value: what prediction needs, and some facts for reports.

Predictions are of a new noisy target, N(μᵀφ(x), σ² + φᵀΣφ) (Tipping 2001, eqs. 20–22), in the target's own units.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from partirvm.core.left_out import Spread
from partirvm.core.rowwise import products, quadratic_forms
from partirvm.core.uncertainty import quantile, widened
from partirvm.core.updates import HyperState
from partirvm.errors import UsageError
from partirvm.kernels.design import Design
from partirvm.model.rows import check_predictions, checked_rows, digest, nearness, panels
from partirvm.types import Columns

Float = NDArray[np.float64]

KINDS = ("prediction", "credible")
"""Quantities of an interval: a new noisy target, or the mean."""


@dataclass(frozen=True)
class Model:
    """A regression RVM of M columns.

    ``mean`` (M,) and ``alpha`` (M,) refer to the scaled problem, ``root`` (M, M) is R with Σ = RRᵀ; ``noise_variance``
    (in the square of ``Scaling.t_unit``, the target's own unit except for extreme values) and ``log_evidence`` (nats)
    refer to the target's own units; ``n_rows`` is the number of training rows. For T targets that share columns and α,
    ``mean`` is (M, T), ``root`` (T, M, M), ``noise_variance`` (T,), and predictions (n, T); the evidence is that of all
    targets together. ``spread`` contains quantiles of the standardised leave-one-out errors, None if there were too few
    rows (``core.left_out``); for an ``overconfident`` fit ``noise_variance`` is estimated from these errors.
    ``known_noise`` is true if the noise was given, ``known_alpha`` are the positions of given α, and ``evidence_noise``
    is the noise of maximum evidence, to which ``mean`` and ``root`` belong, if that differs from ``noise_variance``.
    """

    design: Design
    mean: Float
    root: Float
    alpha: Float
    noise_variance: float | Float
    log_evidence: float
    n_rows: int
    columns: Columns
    spread: Spread | None = None
    overconfident: bool = False
    known_noise: bool = False
    evidence_noise: float | None = None
    known_alpha: tuple[int, ...] = ()

    @classmethod
    def from_fit(cls, design: Design, fit: HyperState, columns: Columns) -> Model:
        """The model of a dense fit."""
        scales, n = design.scaling.t_scale, fit.statistics.n
        variance = design.scaling.t_variance * fit.noise_variance
        return cls(
            design=design,
            mean=fit.posterior.mean,
            root=fit.posterior.root(),
            alpha=fit.alpha,
            noise_variance=variance if len(scales) > 1 else float(variance[0]),
            log_evidence=float(fit.log_evidence - n * np.log(scales).sum()),
            n_rows=n,
            columns=columns,
            spread=fit.spread,
            overconfident=fit.overconfident,
            known_noise=fit.fixed_noise,
            evidence_noise=float(design.scaling.t_variance[0] / fit.beta) if fit.overconfident else None,
            known_alpha=tuple(np.flatnonzero(fit.prior.held(fit.labels)).tolist()),
        )

    def digest(self) -> str:
        """Hash of everything that predictions depend on: models of equal digest predict the same bits."""
        noise = np.asarray(self.noise_variance).tolist()
        facts = [self.design.kernel.spec(), self.design.bias, noise, asdict(self.columns)]
        return digest(facts, self.design, (self.mean, self.root))

    @property
    def n_vectors(self) -> int:
        """Relevance vectors; the bias and basis functions are not counted."""
        return len(self.design.centres)

    @property
    def n_features(self) -> int:
        """d."""
        return len(self.design.scaling.x_shift)

    @property
    def n_targets(self) -> int:
        """T."""
        return len(self.design.scaling.t_scale)

    @property
    def intercept(self) -> float | Float:
        """The training mean plus the bias, in the target's unit: the mean without basis functions and kernels.

        (T,) for T targets.
        """
        scaling = self.design.scaling
        bias = self.mean[0] if self.design.bias else 0.0
        found: Float = scaling.t_shift + scaling.t_scale * bias
        return found if self.n_targets > 1 else float(found[0])

    def predict(self, X: Any, return_std: bool = False) -> Any:
        """Mean (n,) of the target at raw inputs X (n, d); with ``return_std`` also the sd of a new noisy target, (n,).

        X is an array, nested lists or a data frame; results are in the target's units. Raises ``DataError`` if X has
        other features than the model, or non-finite values.
        """
        mean, variance, _ = self.moments(checked_rows(X, self.columns), variance=return_std)
        if variance is None:
            return mean
        return mean, self.deviation(variance)

    def deviation(self, variance: Any) -> Any:
        """Standard deviations in the target's unit, given variances from ``moments``, (n,) or (n, T)."""
        unit = self.design.scaling.t_unit
        return np.sqrt(variance) * (unit if self.n_targets > 1 else float(unit[0]))

    @property
    def noise_deviation(self) -> Float:
        """σ of each target, in its unit, (T,)."""
        found: Float = np.atleast_1d(self.deviation(self.noise_variance))
        return found

    def value_names(self, *, interval: bool = False) -> tuple[str, ...]:
        """Names of ``values``, ``mean`` and ``std``, with an ``interval`` after these ``lower`` and ``upper``.

        Of several targets ``mean_<target>`` for each and then ``std_<target>``, by number where they have no names.
        """
        names = self.columns.targets or range(self.n_targets)
        targets = [f"_{name}" for name in names] if self.n_targets > 1 else [""]
        ends = ("lower", "upper") if interval else ()
        return (*(f"mean{target}" for target in targets), *(f"std{target}" for target in targets), *ends)

    def values(self, X: Float) -> tuple[Float, Float]:
        """What is predicted of raw inputs X (n, d), (n, V) by ``value_names``, and nearness (n,)."""
        mean, variance, near = self.moments(X)
        assert variance is not None
        return np.column_stack([mean, self.deviation(variance)]), near

    def band(self, level: float) -> Interval:
        """The interval of this level that stands beside ``values``."""
        return self.interval(level)

    @property
    def far_prediction(self) -> str:
        """What is known of rows that are far from every relevance vector."""
        return (
            "prediction is little more than the mean of the target, and the standard deviation does not grow there, "
            "as it would with `augment`"
        )

    def interval(self, level: float, kind: str = "prediction", *, hyperparameters: bool = True) -> Interval:
        """The central interval at this level: a model with its standard deviation, and a multiple of that.

        ``kind`` is ``"prediction"``, of a new noisy target, or ``"credible"``, of the mean. With ``hyperparameters``
        the weights' covariance includes the uncertainty of α and β (``core.uncertainty``), and the multiple is the
        quantile of the leave-one-out errors; for the mean, or without such errors, it is a quantile of Student's t.
        Raises ``UsageError`` for another level or kind.
        """
        if kind not in KINDS:
            raise UsageError(f"kind is {kind!r}: an interval is {' or '.join(map(repr, KINDS))}")
        _require_one_target(self, "intervals")
        noise = float(self.noise_variance) if kind == "prediction" else 0.0
        if not hyperparameters:
            return Interval(replace(self, noise_variance=noise), quantile(level))
        root, freedom = widened(
            self.alpha, self.mean, self.root, self.n_rows, known_noise=self.known_noise, known=self.known_alpha
        )
        if self.overconfident:
            freedom = float(self.n_rows)  # number of errors that the noise was estimated from
        spread = self.spread if kind == "prediction" else None
        multiple = quantile(level, freedom) if spread is None else spread.at(level, freedom)
        return Interval(replace(self, root=root, noise_variance=noise), multiple)

    def samples(self, n: int, rng: Any) -> Samples:
        """n functions from the posterior, by weights from N(μ, Σ); ``rng`` has NumPy's ``standard_normal``."""
        _require_one_target(self, "samples")
        return Samples(self.design, self.mean[:, None] + self.root @ rng.standard_normal((len(self.mean), n)))

    @np.errstate(over="ignore", invalid="ignore")
    def moments(self, X: Float, *, variance: bool = True) -> tuple[Float, Float | None, Float]:
        """Mean, optionally variance, and nearness at raw inputs X (n, d), (n,) each; for T targets (n, T).

        Mean and variance are of a new noisy target, in its units, the variance in the square of ``Scaling.t_unit``
        (``deviation`` takes the root). Nearness is the largest kernel value of a row as a fraction of the kernel's
        peak: below ``FAR`` a row is far from all relevance vectors; 1 without vectors.
        Raises ``DataError`` if X has another number of features than the model.
        """
        design, heights = self.design, self.design.peaks()
        shift, scale, square = design.scaling.t_shift, design.scaling.t_scale, design.scaling.t_variance
        if self.n_targets == 1:
            shift, scale, square = shift[0], scale[0], square[0]
        shape, near = (len(X), *self.mean.shape[1:]), np.empty(len(X))
        mean, spread = np.empty(shape), np.empty(shape) if variance else None
        roots = self.root.reshape(self.n_targets, *self.root.shape[-2:])
        for rows, block in panels(design, X):
            mean[rows] = products(block, self.mean)
            if spread is not None:
                for target, root in enumerate(roots):
                    spread.reshape(len(X), -1)[rows, target] = quadratic_forms(block, root)
            near[rows] = nearness(design, block, heights)
        mean *= scale
        mean += shift
        if spread is not None:
            spread *= square
            spread += self.noise_variance
        check_predictions(X, self.columns, mean, spread)
        return mean, spread, near


def _require_one_target(model: Model, what: str) -> None:
    if model.n_targets > 1:
        raise UsageError(
            f"{what} need a model with one target: fit each target separately, with multi_output='independent', or "
            "ingest it as DATA with one target"
        )


@dataclass(frozen=True)
class Interval:
    """Central intervals: the mean of ``model`` ± ``quantile`` × its standard deviation."""

    model: Model
    quantile: float

    def __call__(self, X: Float) -> tuple[Float, Float]:
        """Lower and upper ends (n, 2), and nearness (n,), at raw inputs X (n, d)."""
        mean, variance, near = self.model.moments(X)
        assert variance is not None
        half = self.quantile * self.model.deviation(variance)
        return np.column_stack([mean - half, mean + half]), near


@dataclass(frozen=True)
class Samples:
    """Functions Φ(x)w for S columns w of ``weights`` (M, S)."""

    design: Design
    weights: Float

    def __call__(self, X: Float) -> tuple[Float, Float]:
        """Function values (n, S), without noise, in the target's units, and nearness (n,), at raw inputs X (n, d)."""
        scaling, heights = self.design.scaling, self.design.peaks()
        found, near = np.empty((len(X), self.weights.shape[1])), np.empty(len(X))
        for rows, block in panels(self.design, X):
            found[rows] = products(block, self.weights)
            near[rows] = nearness(self.design, block, heights)
        found *= float(scaling.t_scale[0])
        found += float(scaling.t_shift[0])
        return found, near
