"""A fitted regression model as a value that contains everything needed for prediction.

Predictions refer to a new noisy target, N(μᵀφ(x), σ² + φᵀΣφ) (Tipping 2001, eqs. 20–22), in the
target's units. Reported variances differ (``Model.predictive``): Σ includes the uncertainty of α
and β, σ² is estimated from left-out rows, and a factor makes the Gaussian as wide as the 90 %
interval of their errors; local residuals have separate variances.

Far from all vectors, φ and therefore φᵀΣφ would be zero. So where the nearness k is below the
``reach`` r, the nearness of the training rows, a variance v of a new target or of its mean grows to
v + (1 − k²/r²) (s² + σ² − v). Here, s² is the prior variance of the function, i.e. the variance of
the targets minus the noise variance, and σ² is 0 for the mean. With boosted trees, v is the
variance of the mixture.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property, partial
from typing import Any, NamedTuple, Self

import numpy as np

from partirvm.core.left_out import GAUSSIAN_LEVEL, LEAST_LEVEL, Calibration
from partirvm.core.local_quantiles import QuantileCurves, multiples_at
from partirvm.core.posterior import marginal_root
from partirvm.core.predictive import products, quantile, widened
from partirvm.core.updates import HyperState
from partirvm.data.frame_rows import checked_rows
from partirvm.errors import UsageError
from partirvm.export.shapley import explain
from partirvm.kernels.design import MOST_CERTAIN, TEMPER, Design
from partirvm.kernels.trees import mixed
from partirvm.local.known_groups import KnownGroups
from partirvm.local.metric import Metric
from partirvm.local.residuals import LocalResiduals
from partirvm.local.tree_share import TreeShare
from partirvm.model.base import (
    FAR,
    FittedModel,
    OfRows,
    linear_values,
    nearness_to_others,
)
from partirvm.model.sensitivity import gradients
from partirvm.process import one_blas_thread
from partirvm.quoting import quoted
from partirvm.scaling.maps import AS_IT_IS
from partirvm.types import Bool, Columns, Each, Float, squeezed

BOTH = np.array([-1.0, 1.0])
"""Signs of the multiples at the two ends of an interval."""

OUTSIDE = 0.01
"""Maximum fraction of the training rows whose nearness may be below the reach, as outliers."""

LEAST_REACH = 1e-20
"""A smaller reach is set to 0: so many rows are then far from all vectors that nearness says
nothing about errors."""

WIDEST_EFFECT = 36.0
"""Maximum variance of noise and level effects, in variances of the target: the squared range of a
normal sample. The effects' variance is a multiple of the noise variance during kernel learning,
which may be orders of magnitude below the final one if the targets have no noise."""

FILLINGS = 16
"""Maximum number of relevance vectors whose values replace a missing one."""


class MomentsOfFit(NamedTuple):
    """What a fit predicts without boosted trees, (n,) each or, for T targets, (n, T).

    Attributes:
        mean: the mean
        variance: the variance, or None; with trees, it does not grow far from all vectors, since
            that of the mixture does
        nearness: the nearness (n,)
        deviations: standard deviations of local residuals, which determine the share of boosted
            trees, or None
    """

    mean: Float
    variance: Any
    nearness: Float
    deviations: Float | None


@dataclass(frozen=True, repr=False)
class Model(FittedModel):
    """A regression RVM of M columns.

    ``mean`` and ``alpha`` refer to the scaled problem; all other values, including ``moments`` and
    ``samples``, are in the target's units, or in the units of its map (``Scaling.target``). T
    targets share columns and α, and predictions are (n, T). With local noise (``design.noise``),
    noise variances are means over the training rows, and the noise variance at x is a multiple of
    them.

    Parameters
    ----------
    design : Design
        The M columns: bias, basis functions, and kernels at the relevance vectors.
    mean : ndarray of shape (M,) or (M, T)
        Posterior means of the weights.
    root : ndarray of shape (M, M) or (T, M, M)
        R with Σ = RRᵀ.
    alpha : ndarray of shape (M,)
        Prior precisions of the weights.
    log_evidence : float
        In nats; for T targets, of all targets together.
    n_rows : int
        The number of training rows.
    columns : Columns
        Names of the features and targets, categories and classes.
    noise_variance : float or ndarray of shape (T,)
        The noise variance of predictions, estimated from left-out rows if there are any; with local
        residuals or boosted trees, that of the relevance vectors alone.
    evidence_noise : float or ndarray of shape (T,)
        The noise variance of maximum evidence, to which ``mean`` and ``root`` belong. For an
        overconfident fit, it differs considerably from ``noise_variance``.
    calibration : Calibration or None
        The uncertainty estimated from left-out rows (``core.left_out``); None for given noise and
        for several targets.
    known_noise : bool
        True if the noise was fixed by the user.
    known_alpha : tuple of int
        Positions of fixed precisions.
    residuals : LocalResiduals or None
        Errors of the training rows, which correct the mean and determine variances and quantiles
        (``local.residuals``).
    prior_variance : float or ndarray of shape (T,)
        The variance of the function far from all vectors: the target's variance minus the noise
        variance.
    known : KnownGroups or None
        The groups of the training rows, and the uncertainty for further rows of these groups; all
        other uncertainties are then those of new groups.
    trees : TreeShare or None
        Boosted trees and their share in predictions.
    reach : float
        The minimum nearness of the training rows, except for outliers; 0 if variances do not depend
        on nearness.
    pruned : Pruned
        The number of vectors that ``prune`` deleted, and the cost.
    relevance : ndarray of shape (d,) or None
        Relevance of each feature (``model.sensitivity``); None if no rows were available.
    marginals : ndarray of shape (q, d) or None
        Quantiles of each feature's values in the training rows, for the effects of features
        (``model.feature_effects``); None without an ANOVA kernel.
    assessment : Assessment or None
        Errors on left-out rows and other facts of the fit, for ``summary``.
    """

    far_values = (
        "prediction is close to the target's mean, and its standard deviation to that of the target"
    )

    measures_error = True
    augmentable = True

    explain = explain

    noise_variance: float | Float
    evidence_noise: float | Float
    calibration: Calibration | None = None
    known_noise: bool = False
    known_alpha: tuple[int, ...] = ()
    residuals: LocalResiduals | None = None
    prior_variance: float | Float = 0.0
    reach: float = 0.0
    known: KnownGroups | None = None
    trees: TreeShare | None = None

    @classmethod
    def from_fit(cls, design: Design, fit: HyperState, columns: Columns) -> "Model":
        """Return the model of a dense fit for rows of new groups: without columns of groups."""
        scales = design.scaling.t_scale
        n = fit.statistics.n
        evidence = float(fit.log_evidence - n * np.log(scales).sum())
        places = design.places_without_groups
        weights = fit.posterior.mean[places], marginal_root(fit.posterior.root(), places)
        shared = design.without_groups(), *weights, fit.alpha[places], evidence, n, columns
        variance = scales**2 * fit.noise_variance
        evidence_noise = squeezed(scales**2 / fit.beta)
        prior = np.maximum(scales**2 * fit.target_variance - variance, 0.0)
        known = tuple(np.flatnonzero(fit.prior.held(fit.labels[places])).tolist())
        noise = squeezed(variance), evidence_noise, fit.calibration, fit.fixed_noise
        model = cls(*shared, *noise, known)
        return replace(model, prior_variance=squeezed(prior))

    def __getstate__(self) -> dict[str, Any]:
        """Return the fields; cached values are recomputed after unpickling."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def sparse(self) -> "Model":
        """Return the relevance vector machine alone, without local residuals and boosted trees; its
        uncertainty is calibrated separately."""
        known = None if self.known is None else replace(self.known, residuals=None)
        if self.residuals is None and known == self.known and self.trees is None:
            return self
        calibration = self.calibration
        if self.trees is not None:
            calibration = self.trees.calibration
            if known is not None and self.trees.known is not None:
                known = replace(known, calibration=self.trees.known.calibration)
        alone = replace(self, residuals=None, trees=None, known=known, assessment=None)
        return replace(alone, calibration=calibration)

    def of_known_groups(self) -> "Model":
        """Return the model for rows of the groups of the training rows, without the effects of
        these groups (``known_rows``); itself if it was fitted without groups."""
        if self.known is None:
            return self
        return replace(
            self,
            noise_variance=self.known.noise_variance,
            calibration=self.known.calibration,
            residuals=self.known.residuals,
            known=None,
            trees=None if self.trees is None else self.trees.of_known_groups(),
        )

    def prune(self, max_vectors: int = 50) -> Self:
        """Prune like ``FittedModel.prune``; the noise variance of predictions grows by the added
        mean squared error.

        ``evidence_noise``, local noise and interval quantiles are unchanged. The loss does not
        include the prior of α.
        """
        if self._stored_residuals:
            raise UsageError(
                "local residuals depend on all vectors: prune model_.sparse(), or set max_vectors"
            )
        pruned = super().prune(max_vectors)
        if self.known is not None and pruned.n_vectors < self.n_vectors:
            columns = np.flatnonzero(np.isin(self.design.all_labels, pruned.design.all_labels))
            change = -self.mean
            change[columns] += pruned.mean
            pruned = replace(pruned, known=self.known.pruned(columns, change))
        others = self.design.centres
        if pruned.n_vectors == self.n_vectors or not self.reach:
            return pruned
        # deleted vectors are training rows: they must not count as far from the others
        near = nearness_to_others(pruned.design, others)
        return replace(
            pruned, reach=usable_reach(min(self.reach, near.min())) if len(near) else 0.0
        )

    @one_blas_thread()
    def with_reach_of(self, X: Float) -> Self:
        near = nearness_to_others(self.design, X)
        return replace(self, reach=reach_of(near)) if len(near) else self

    def _with_error(self, growth: Float) -> Self:
        error = self.evidence_noise * growth / self.n_rows
        noise = squeezed(self.noise_variance + np.maximum(error, 0.0))
        squared_error = self.pruned.squared_error + squeezed(error)
        pruned = replace(self.pruned, squared_error=squared_error)
        return replace(self, pruned=pruned, noise_variance=noise)

    def explained_values(self, X: Float) -> Float:
        return self.moments(X, variance=False)[0].reshape(len(X), -1)

    def _used_inputs(self) -> Bool:
        used = super()._used_inputs()
        if self.residuals is not None:
            metric = self.residuals.metric
            used = used | (metric.axes != 0.0).any(axis=0)
            used[[feature for feature, *_ in metric.levels]] = True
        return used

    @property
    def _local_residuals(self) -> LocalResiduals:
        """The model's local residuals. Raises ``UsageError`` if it has none."""
        if self.residuals is not None:
            return self.residuals
        kernel = Metric.lacks(self.design)
        if kernel:
            raise UsageError(
                f"the model has no local residuals, because its kernel {quoted(kernel)} measures "
                "no distances: choose another kernel, such as 'gaussian'"
            )
        raise UsageError(
            "the model has no local residuals: they were switched off, gained nothing on "
            "left-out rows, or did not fit in memory; residual='local' keeps them in any "
            "case, or says why it cannot"
        )

    @property
    def _stored_residuals(self) -> list[LocalResiduals]:
        """The local residuals for rows of new and of known groups, which share their cells."""
        known = None if self.known is None else self.known.residuals
        return [residuals for residuals in (self.residuals, known) if residuals is not None]

    @property
    def cells_place(self) -> str:
        return next((residuals.cells.place for residuals in self._stored_residuals), "")

    def with_cells_at(self, place: str) -> "Model":
        if not self.cells_place:
            return self
        cells = replace(self._stored_residuals[0].cells, place=place)
        residuals = None if self.residuals is None else replace(self.residuals, cells=cells)
        known = self.known
        if known is not None and known.residuals is not None:
            known = replace(known, residuals=replace(known.residuals, cells=cells))
        return replace(self, residuals=residuals, known=known)

    def copy_cells(self, folder: str) -> None:
        if self.cells_place:
            self._stored_residuals[0].cells.copied(folder)

    @property
    def output_names(self) -> tuple[str, ...]:
        """The names of the targets."""
        return self.columns.target_names(self.n_targets)

    @property
    def n_targets(self) -> int:
        """The number T of targets."""
        return len(self.design.scaling.t_scale)

    @property
    def intercept(self) -> Each:
        """The mean without kernels or basis functions, in the target's units; (T,) for T
        targets."""
        scaling = self.design.scaling
        bias = self.mean[0] if self.design.bias else 0.0
        intercept: Each = squeezed(scaling.t_shift + scaling.t_scale * bias)
        return intercept

    @property
    def determinedness(self) -> Float:
        """γ_i = 1 − α_iΣ_ii (Tipping 2001, eq. 17), (M,) or (M, T): 1 if the data determine a
        weight, 0 if the prior does."""
        variance = np.einsum("...mk,...mk->m...", self.root, self.root)
        return np.asarray(np.clip(1.0 - (self.alpha * variance.T).T, 0.0, 1.0))

    def predict(self, X: Any, return_std: bool = False, return_gradient: bool = False) -> Any:
        """Return the mean (n,) of the target at X (n, d), an array, lists or a data frame, and
        optionally the standard deviation (sd) of a noisy target.

        Mean ± 1.645 sd contains 90 % of new targets (``predictive``); with local residuals, the sd
        maximises the log density of left-out rows, and ``interval`` uses other multiples. With
        ``return_gradient``, the gradients of these values follow, (n, d) each
        (``model.sensitivity``). Raises ``DataError`` if features differ.
        """
        function = self.predictions(std=return_std, gradient=return_gradient)
        X = checked_rows(X, self.columns)
        return self.parted(function(X)[0], std=return_std, gradient=return_gradient)

    def predictions(self, *, std: bool, gradient: bool) -> OfRows:
        """Return the function of raw inputs that returns the values of ``predict`` side by side."""
        if gradient:
            return partial(gradients, self, std=std)
        return self.predictive.values if std else self.means

    def parted(self, values: Float, *, std: bool, gradient: bool) -> Any:
        """Split values of ``predictions`` into an array or a tuple of arrays: (n,) and (n, d); for
        T targets, (n, T, …)."""
        n = len(values)
        T = self.n_targets
        count = 1 + std
        parts: list[Float] = np.split(values[:, : count * T], count, axis=1)
        if gradient:
            slopes = np.split(values[:, count * T :], count, axis=1)
            parts += [part.reshape(n, T, len(self.columns.features)) for part in slopes]
        squeezed_parts = tuple(squeezed(part, axis=1) for part in parts)
        return squeezed_parts if len(parts) > 1 else squeezed_parts[0]

    def value_names(self, *, interval: bool = False) -> tuple[str, ...]:
        """Return the column names of ``values``: ``mean`` and ``std``; with ``interval``, then
        ``lower`` and ``upper``.

        For several targets, the names are ``mean_<target>`` for each target, then ``std_<target>``
        and so on; unnamed targets are numbered.
        """
        kinds = ("mean", "std", "lower", "upper") if interval else ("mean", "std")
        targets = self.columns.target_labels(self.n_targets)
        return tuple(f"{kind}_{target}" for kind in kinds for target in targets) or kinds

    def values(self, X: Float, multiples: Any = None) -> tuple[Float, Float]:
        """Return the predictions (n, V) at raw inputs X (n, d), in the order of ``value_names``,
        and nearness (n,).

        ``multiples`` are those of an interval (``Model.multiples``), whose ends come last.
        """
        mean, variance, near = self.moments(X)
        target = self.design.scaling.target
        ends = list[Float]()
        if multiples is not None:
            deviation = np.sqrt(variance)
            at_ends = multiples_at(multiples, deviation.reshape(len(X), -1))
            ends = [target.back(mean + end.reshape(mean.shape) * deviation) for end in at_ends]
        mean, variance = target.moments(mean, variance)
        return np.column_stack([mean, np.sqrt(variance), *ends]), near

    def means(self, X: Float) -> tuple[Float, Float]:
        """Return the means (n, T) at raw inputs X (n, d), and nearness (n,)."""
        if self.design.scaling.target != AS_IT_IS:  # a warped mean depends on the variance
            values, near = self.predictive.values(X)
            return values[:, :1], near
        mean, _, near = self.moments(X, variance=False)
        return mean.reshape(len(X), -1), near

    @property
    def _is_calibrated(self) -> bool:
        """True if ``predictive`` widens the Gaussians, as it does for one target."""
        return self.n_targets == 1

    @cached_property
    def predictive(self) -> "Model":
        """The model whose ``moments`` are reported for new rows.

        Its ``root`` is a root of Σ with the uncertainty of α and β (``core.predictive``), and its
        Gaussians are as wide as the 90 % interval of left-out errors (``core.left_out``) or,
        without these, of Student's t. With local residuals, it is the model itself, whose variances
        maximise the log density of left-out rows.
        """
        return self._predictive()

    def _predictive(self) -> "Model":
        if self.residuals is not None or not self._is_calibrated:
            return self
        scale = self.calibrated_width
        return replace(
            self,
            root=scale * self._widened[0],
            noise_variance=scale**2 * float(self.noise_variance),
        )

    @property
    def calibrated_width(self) -> float:
        """Factor of the standard deviations in ``predictive``."""
        return self._multiple(GAUSSIAN_LEVEL) / quantile(GAUSSIAN_LEVEL)

    def of_panel(self, rows: slice) -> "Model":
        """Return the model for a part of the rows of which it is the model: itself for any rows."""
        return self

    def added(self, X: Float, rows: slice) -> Float | None:
        """Return what is added to Φ (m, M) in the variances φᵀΣφ, or None, given raw inputs (m, d)
        and which rows they are."""
        return None

    def effect_slopes(self, X: Float, weights: Float | None = None) -> Float | float:
        """Return the gradients (n, d) of effects of groups at raw inputs X (n, d) or, given
        ``weights`` 2Σφ (n, M), those of their contribution to the variances; 0 without effects."""
        return 0.0

    @cached_property
    def _widened(self) -> tuple[Float, float]:
        """A root of Σ with the uncertainty of α and β, and the degrees of freedom of the noise."""
        if not self.n_rows:  # a constant target
            return self.root, np.inf
        alpha = self.alpha
        mean = self.mean
        known = self.known_alpha
        with one_blas_thread():
            return widened(
                alpha, mean, self.root, self.n_rows, known_noise=self.known_noise, known=known
            )

    def _multiple(self, level: float) -> float:
        """Return the half width at this level of an interval that has the same multiples of all
        standard deviations, in standard deviations before scaling."""
        if self.calibration is not None:
            return self.calibration.multiple(level)
        return quantile(level, self._widened[1])

    def interval(
        self, level: float, kind: str = "prediction", *, hyperparameters: bool = True
    ) -> OfRows:
        """Return the central interval at this level as a function of X (n, d) that returns the
        ends (n, 2) and nearness (n,).

        For T targets, there are only prediction intervals, and only with local residuals; the ends
        are (n, 2T), all lower ends first.

        ``kind`` and ``hyperparameters`` are as in ``RVMRegressor.predict_interval``.
        """
        if kind not in ("prediction", "credible"):
            raise UsageError(f"kind is {kind!r}: it must be 'prediction' or 'credible'")
        if self.residuals is None or kind == "credible" or not hyperparameters:
            self.require_one_target(
                "intervals other than prediction intervals with local residuals"
            )
        if not hyperparameters:
            noise = float(self.evidence_noise) if kind == "prediction" else 0.0
            ends = QuantileCurves.constant(BOTH * quantile(level))
            return partial(replace(self.sparse(), noise_variance=noise, reach=0.0)._at, (ends,))
        if kind == "credible":
            root, freedom = self._widened
            ends = QuantileCurves.constant(BOTH * quantile(level, freedom))
            return partial(replace(self, root=root, noise_variance=0.0)._at, (ends,))
        return partial(self.predictive._at, self.multiples([level]))

    def quantiles(self, q: Sequence[float]) -> OfRows:
        """Return a function of X (n, d) that returns the quantiles q of a new target, (n, Q), as
        ends of prediction intervals."""
        self.require_one_target("quantiles")
        tails = 2 * np.asarray(q, dtype=np.float64) - 1
        return partial(self.predictive._at, self._curves(tails))

    def multiples(self, levels: Sequence[float]) -> tuple[QuantileCurves, ...]:
        """Return the multiples of the standard deviations of ``predictive`` at the L lower and then
        the L upper ends of prediction intervals at L levels, for each target."""
        return self._curves(np.multiply.outer(BOTH, levels).ravel())

    def _curves(self, tails: Float) -> tuple[QuantileCurves, ...]:
        """Return the multiples at the quantiles ½ + ½·``tails`` (Q,) of a new target, for each
        target."""
        scales = self.design.scaling.t_scale.tolist()
        if self.residuals is not None:
            calibrations = self.residuals.calibrations
            return tuple(
                calibration.curves(tails).rescaled(scale, 1.0)
                for calibration, scale in zip(calibrations, scales, strict=True)
            )
        signs = np.sign(tails)
        levels = np.maximum(np.abs(tails), LEAST_LEVEL).tolist()
        if not self._is_calibrated:
            normal = QuantileCurves.constant(signs * [quantile(level) for level in levels])
            return (normal,) * self.n_targets
        factor = self._multiple(GAUSSIAN_LEVEL) / quantile(GAUSSIAN_LEVEL)
        if self.calibration is not None:
            return (self.calibration.curves(tails).rescaled(scales[0], factor),)
        students = signs * [self._multiple(level) / factor for level in levels]
        return (QuantileCurves.constant(students),)

    def _at(self, multiples: Sequence[QuantileCurves], X: Float) -> tuple[Float, Float]:
        """Return the means plus ``multiples`` of the standard deviations at Q quantiles, (n, Q·T),
        and nearness (n,), at raw X (n, d)."""
        mean, variance, near = self.moments(X)
        mean, deviation = (values.reshape(len(X), -1) for values in (mean, np.sqrt(variance)))
        values = mean + multiples_at(multiples, deviation) * deviation
        ends = self.design.scaling.target.back(np.swapaxes(values, 0, 1))
        return ends.reshape(len(X), -1), near

    @one_blas_thread()
    def noise_deviations(self, X: Float) -> tuple[Float, Float]:
        """Return the standard deviations (n, 1) of the noise at raw inputs X (n, d), in the
        target's units, and ones (n,)."""
        deviations = np.broadcast_to(np.sqrt(self.noise_at(X)), len(X))
        if self.residuals is not None:
            noisy, mean = (self._corrections(X, noisy=noisy)[1] for noisy in (True, False))
            deviations = np.sqrt(noisy - mean)
        if self.trees is not None:
            scale = self.design.scaling.t_scale[0]
            local = None if self.residuals is None else np.sqrt(noisy) / scale
            share = self.trees.share.at(local)
            deviations = deviations * np.sqrt(self.trees.spreads[0] * (1.0 - share))
        return deviations[:, None], np.ones(len(X))

    def nearest_rows(self, X: Float, ignored: Float | None = None) -> dict[str, Any]:
        """Return the neighbours of raw inputs X (n, d) like ``LocalResiduals.explained``, with
        errors in the target's units; ``ignored`` (n,) contains the numbers of rows to ignore."""
        residuals = self._local_residuals
        factor = self.design.noise_factor(X, products)
        neighbours = residuals.explained(self.design.scaling.inputs(X), factor, ignored)
        return {**neighbours, "errors": self.design.scaling.t_scale * neighbours["errors"]}

    def _corrections(self, X: Float, *, noisy: bool) -> tuple[Float, Float]:
        """Return the mean and variance of the error at raw X (n, d), (n,) or (n, T) for T targets,
        in the target's units."""
        scale = self.design.scaling.t_scale
        factor = self.design.noise_factor(X, products)
        mean, variance = self._local_residuals.moments(
            self.design.scaling.inputs(X), factor, noisy=noisy
        )
        return scale * mean, scale**2 * variance

    def samples(self, n: int, rng: Any) -> OfRows:
        """Draw n functions with ``rng.standard_normal``; their weights are drawn from N(μ, Σ) with
        the Σ of ``predictive``.

        With local residuals, each function is the same number of standard deviations from the mean
        everywhere.
        """
        self.require_one_target("samples")
        if self.residuals is not None:
            return partial(self._shifted, rng.standard_normal(n))
        root = self.predictive.root
        with one_blas_thread():
            weights = self.mean[:, None] + root @ rng.standard_normal((len(self.mean), n))
        return partial(self._drawn, weights, rng.standard_normal(n))

    @one_blas_thread()
    def _drawn(self, weights: Float, shifts: Float, X: Float) -> tuple[Float, Float]:
        """Return the values (n, S) of functions with ``weights`` (M, S), without noise, in the
        fit's units, and nearness (n,).

        Far from all vectors, they are shifted by ``shifts`` (S,) standard deviations of the prior.
        """
        (values, _, near) = linear_values(self.design, weights, X)
        scaling = self.design.scaling
        values = scaling.t_shift[0] + scaling.t_scale[0] * values
        far = near < self.reach
        if self.trees is not None:
            alone = self.moments_of_fit(X, variance=False).mean
            factor = self.trees.spreads[0] * (1.0 - self.trees.share.constant)
            deviations = np.sqrt(factor) * (values - alone[:, None])
            values = self.moments(X, variance=False)[0][:, None] + deviations
        if far.any():
            model = replace(self.predictive, noise_variance=0.0)
            at_vectors, with_prior = (
                replace(model, reach=reach).moments(X[far])[1] for reach in (0.0, self.reach)
            )
            values[far] += np.sqrt(with_prior - at_vectors)[:, None] * shifts
        return values, near

    def _shifted(self, shifts: Float, X: Float) -> tuple[Float, Float]:
        """Return the values (n, S) of functions that are ``shifts`` (S,) standard deviations from
        the mean, and nearness (n,)."""
        mean, variance, near = replace(self, noise_variance=0.0).moments(X)
        return mean[:, None] + np.sqrt(variance)[:, None] * shifts, near

    def noise_at(self, X: Float) -> Float | float:
        """Return the noise variance at raw X (n, d), or one number; the factor is tempered if no
        rows were left out."""
        power = TEMPER if self.calibration is None else 1.0
        return self.noise_variance * self.noise_factor(X, power)

    def noise_factor(self, X: Float, power: float = 1.0) -> Float | float:
        """Return the variance of noise and level effects at raw X (n, d), (n,), as a multiple of
        the overall noise variance; 1 if constant. ``power`` is the exponent of the local noise
        factor."""
        factor = self.design.noise_factor(X, products, power)
        return np.minimum(factor, self.widest_factor) if self.design.scaling.doubtful else factor

    @property
    def widest_factor(self) -> float:
        """The maximum of ``noise_factor`` if levels have uncertain effects."""
        noise = float(self.noise_variance or self.evidence_noise)
        return WIDEST_EFFECT * (float(self.prior_variance) + noise) / noise

    def moments(self, X: Float, *, variance: bool = True) -> tuple[Float, Any, Float]:
        """Return the mean, the variance (or None) and the nearness at raw inputs X (n, d), (n,)
        each; for T targets (n, T).

        Mean and variance refer to a new target or, if ``noise_variance`` is 0, to its mean.
        Nearness and errors are as in ``linear_values``.
        """
        alone = self.moments_of_fit(X, variance=variance)
        if self.trees is None:
            return alone.mean, alone.variance, alone.nearness
        scaling = self.design.scaling
        scale = squeezed(scaling.t_scale)
        by_trees = squeezed(scaling.t_shift) + scale * self.trees.outputs(X)
        deviations = None if alone.deviations is None else alone.deviations / scale
        share = self.trees.share.at(deviations)
        mean = mixed(alone.mean, by_trees, share)
        spread = None
        if alone.variance is not None:
            spread = squeezed(self.trees.spreads) * (1.0 - share) * alone.variance
            # trees say as little of far rows as the fit
            spread = self.with_prior(spread, alone.nearness)
        return mean, spread, alone.nearness

    @one_blas_thread()
    @np.errstate(over="ignore", invalid="ignore")
    def moments_of_fit(self, X: Float, *, variance: bool = True) -> "MomentsOfFit":
        """Return the moments without boosted trees."""
        scaling = self.design.scaling
        square = squeezed(scaling.t_scale**2)
        root = self.root if variance else None
        mean, spread, near = linear_values(self.design, self.mean, X, root, self.added)
        mean = squeezed(scaling.t_shift) + squeezed(scaling.t_scale) * mean
        deviations = None
        if spread is not None:
            spread = square * spread + self.noise_at(X)
        if self.residuals is not None:
            is_noisy = bool(np.any(self.noise_variance))
            correction, local_variance = self._corrections(X, noisy=is_noisy)
            mean += correction
            spread = local_variance if variance else None
            if self.trees is not None:
                noisy = local_variance if is_noisy else self._corrections(X, noisy=True)[1]
                deviations = np.sqrt(noisy)
        if spread is not None:
            spread = spread + self._of_gaps(X) * square + self._of_levels(X)
            if self.trees is None:
                spread = self.with_prior(spread, near)
        self._require_finite(X, mean, spread)
        return MomentsOfFit(mean, spread, near, deviations)

    def stacked_values(self, X: Float) -> Float:
        """Return the means (n, T), in the model's units, that may be mixed with those of boosted
        trees, at raw inputs X (n, d)."""
        scaling = self.design.scaling
        mean = self.moments_of_fit(X, variance=False).mean.reshape(len(X), -1)
        return np.asarray((mean - scaling.t_shift) / scaling.t_scale)

    def prior_share(self, near: Float) -> Float:
        """Return the fraction (n,) of the variance that comes from the prior at this nearness (n,):
        0 at and above ``reach``, 1 at nearness 0.

        For a process with one datum at the nearest vector, it is 1 minus the squared nearness.
        """
        return np.asarray(1.0 - np.clip(near / self.reach, 0.0, 1.0) ** 2)

    def with_prior(self, variance: Float, near: Float) -> Float:
        """Return variances (n,) or (n, T) that grow to the prior variance far from all vectors, if
        it is larger."""
        if not self.reach:
            return variance
        share = self.prior_share(near).reshape(-1, *[1] * (variance.ndim - 1))
        missing = self.prior_variance + self.noise_variance - variance
        return np.asarray(variance + share * np.maximum(missing, 0.0))

    def _of_gaps(self, X: Float) -> Float:
        """Return the variance of the mean, (n,) or (n, T), when vectors' values replace missing
        values of features without gaps in training.

        The noise factor already contains the variance of a missing label's effect
        (``FeatureMap.noise_factor``).
        """
        variance = np.zeros((len(X), *self.mean.shape[1:]))
        missing = self.gaps_to_fill(X)
        rows = np.flatnonzero(missing.any(axis=1))
        if len(rows) and self.n_vectors:
            filled = (np.where(missing[rows], vector, X[rows]) for vector in self.filling_vectors)
            variance[rows] = np.var(
                [linear_values(self.design, self.mean, vector)[0] for vector in filled], axis=0
            )
        return variance

    @property
    def filling_vectors(self) -> Float:
        """The relevance vectors whose values replace a missing one, (k, d)."""
        step = -(-self.n_vectors // FILLINGS)
        return self.design.centres[::step] if step else self.design.centres

    def gaps_to_fill(self, X: Float) -> Bool:
        """Return a mask (n, d) of the missing values in rows X whose features had no gaps in
        training and whose labels have no coordinates."""
        features = self.design.scaling.features
        missing = np.isnan(X)
        missing[:, self.design.scaling.embedded] = False
        if features is not None:
            missing[:, features.gaps] = False
        return missing

    def _of_levels(self, X: Float) -> Float | float:
        """Return the variance (n, T) of level effects in excess of the noise variance, for several
        targets.

        For one target, the noise factor includes it.
        """
        features = self.design.scaling.features
        if features is None or not features.variances:
            return 0.0
        variances = self.design.scaling.t_scale**2 * features.level_variances(X)
        return np.asarray(np.maximum(variances, -MOST_CERTAIN * np.asarray(self.noise_variance)))

    def require_one_target(self, what: str) -> None:
        """Raise ``UsageError`` if the model has several targets."""
        if self.n_targets > 1:
            raise UsageError(
                f"{what} need a single-target model: fit one per target, as with "
                "MultiOutputRegressor"
            )


def reach_of(near: Float) -> float:
    """Return the reach of training rows with this nearness (n,), n > 0: the minimum, not counting
    outliers.

    Outliers are far from all vectors (``FAR``) and at most a fraction ``OUTSIDE`` of the rows. A
    larger reach would count rows as far where the function is flat and needs no vectors: with the
    quantile at ``OUTSIDE``, the NLPD of pol (2,000 rows) rises by 0.07.
    """
    return usable_reach(float(max(near.min(), min(np.quantile(near, OUTSIDE), FAR))))


def usable_reach(reach: float) -> float:
    """Return the reach, or 0 if it is too small."""
    return float(reach) if reach >= LEAST_REACH else 0.0
