"""A fitted model as a value: what prediction needs, and a little to tell people.

Predictions are for a new noisy target, N(μᵀφ(x), σ² + φᵀΣφ) (Tipping 2001, eqs. 20–22), in the target's own units.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from partirvm.core.updates import HyperState
from partirvm.errors import DataError
from partirvm.kernels.design import Design
from partirvm.types import PANEL_ROWS, Columns

Float = NDArray[np.float64]

FAR = 1e-4
"""A row whose kernels are all below this fraction of their peak is far from every relevance vector."""


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

    @property
    def n_vectors(self) -> int:
        """Relevance vectors, the bias not counted."""
        return len(self.design.centres)

    @property
    def n_features(self) -> int:
        """d."""
        return len(self.design.scaling.x_shift)

    @property
    def intercept(self) -> float:
        """Constant term of the mean in the target's unit: the training mean and the bias."""
        scaling = self.design.scaling
        bias = float(self.mean[0]) if self.design.bias else 0.0
        return float(scaling.t_shift[0]) + float(scaling.t_scale[0]) * bias

    def predict(self, X: Float, *, variance: bool = True) -> tuple[Float, Float | None]:
        """Mean (n,) and, if asked, variance (n,) of a new noisy target at raw inputs X (n, d), in the target's units.

        Raises ``DataError`` if X has another number of features than the model.
        """
        if X.ndim != 2 or X.shape[1] != self.n_features:
            raise DataError(f"the model was trained on {self.n_features} features, the rows given have shape {X.shape}")
        shift, scale = float(self.design.scaling.t_shift[0]), float(self.design.scaling.t_scale[0])
        mean = np.empty(len(X))
        spread = np.empty(len(X)) if variance else None
        for start in range(0, len(X), PANEL_ROWS):
            rows = slice(start, start + PANEL_ROWS)
            block = self.design.block(X[rows])
            mean[rows] = block @ self.mean
            if spread is not None:
                product = block @ self.root
                spread[rows] = np.einsum("nm,nm->n", product, product)
        mean *= scale
        mean += shift
        if spread is not None:
            spread *= scale**2
            spread += self.noise_variance
        return mean, spread

    def far(self, X: Float) -> NDArray[np.bool_]:
        """Which raw inputs X (n, d) lie where every kernel column is below ``FAR`` of its peak, shape (n,)."""
        if not self.n_vectors:
            return np.zeros(len(X), dtype=bool)
        kernels = self.design.take(np.arange(self.n_vectors), bias=False)
        panels = (kernels.block(X[start : start + PANEL_ROWS]) for start in range(0, len(X), PANEL_ROWS))
        return np.concatenate([panel.max(axis=1) < FAR for panel in panels])
