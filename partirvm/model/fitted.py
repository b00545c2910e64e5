"""A fitted model as a value: what prediction needs, and a little to tell people.

Predictions are for a new noisy target, N(μᵀφ(x), σ² + φᵀΣφ) (Tipping 2001, eqs. 20–22), in the target's own units.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from partirvm.core.updates import HyperState
from partirvm.kernels.design import Design
from partirvm.model.rows import checked_rows, digest, nearness, panels
from partirvm.types import Columns

Float = NDArray[np.float64]


@dataclass(frozen=True)
class Model:
    """A regression RVM of M columns.

    ``mean`` (M,) and ``alpha`` (M,) refer to the scaled problem, ``root`` (M, M) is R with Σ = RRᵀ; ``noise_variance``
    (the target's unit squared) and ``log_evidence`` (nats) to the target's own units; ``n_rows`` trained it.
    """

    design: Design
    mean: Float
    root: Float
    alpha: Float
    noise_variance: float
    log_evidence: float
    n_rows: int
    columns: Columns

    @classmethod
    def from_fit(cls, design: Design, fit: HyperState, columns: Columns) -> Model:
        """The model of a dense fit."""
        scale = float(design.scaling.t_scale[0])
        n = fit.statistics.n
        return cls(
            design=design,
            mean=fit.posterior.mean,
            root=fit.posterior.root(),
            alpha=fit.alpha,
            noise_variance=scale**2 / fit.beta,
            log_evidence=float(fit.posterior.log_evidence - n * np.log(scale)),
            n_rows=n,
            columns=columns,
        )

    def digest(self) -> str:
        """A hash of all that predictions depend on: models of equal digest predict the same bits."""
        facts = [self.design.kernel.spec(), self.design.bias, self.noise_variance, asdict(self.columns)]
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
    def intercept(self) -> float:
        """The training mean and the bias, in the target's unit: the mean without basis functions and kernels."""
        scaling = self.design.scaling
        bias = float(self.mean[0]) if self.design.bias else 0.0
        return float(scaling.t_shift[0]) + float(scaling.t_scale[0]) * bias

    def predict(self, X: Any, return_std: bool = False) -> Any:
        """Mean (n,) of the target at raw inputs X (n, d); with ``return_std`` also the sd of a new noisy target, (n,).

        X is an array, nested lists or a data frame; results are in the target's units. Raises ``DataError`` if X has
        other features than the model, or values that are no finite numbers.
        """
        mean, variance, _ = self.moments(checked_rows(X, self.columns), variance=return_std)
        if variance is None:
            return mean
        return mean, np.sqrt(variance)

    def moments(self, X: Float, *, variance: bool = True) -> tuple[Float, Float | None, Float]:
        """Mean, variance (if asked) and nearness of raw inputs X (n, d), shape (n,) each.

        Mean and variance are of a new noisy target, in its units. Nearness is the largest of the kernel columns, each
        as a fraction of its peak: below ``FAR`` a row is far from every relevance vector; 1 where the model has none.
        Raises ``DataError`` if X has another number of features than the model.
        """
        design, heights = self.design, self.design.peaks()
        shift, scale = float(design.scaling.t_shift[0]), float(design.scaling.t_scale[0])
        mean, near = np.empty(len(X)), np.empty(len(X))
        spread = np.empty(len(X)) if variance else None
        for rows, block in panels(design, X):
            mean[rows] = block @ self.mean
            if spread is not None:
                product = block @ self.root
                spread[rows] = np.einsum("nm,nm->n", product, product)
            near[rows] = nearness(design, block, heights)
        mean *= scale
        mean += shift
        if spread is not None:
            spread *= scale**2
            spread += self.noise_variance
        return mean, spread, near
