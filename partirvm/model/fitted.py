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
    (the target's unit squared) and ``log_evidence`` (nats) to the target's own units; ``n_rows`` trained it. Of T
    targets that share columns and α, ``mean`` is (M, T), ``root`` (T, M, M), ``noise_variance`` (T,), and what is
    predicted (n, T); the evidence is that of all together.
    """

    design: Design
    mean: Float
    root: Float
    alpha: Float
    noise_variance: float | Float
    log_evidence: float
    n_rows: int
    columns: Columns

    @classmethod
    def from_fit(cls, design: Design, fit: HyperState, columns: Columns) -> Model:
        """The model of a dense fit."""
        scales, n = design.scaling.t_scale, fit.statistics.n
        variance = scales**2 / fit.beta
        return cls(
            design=design,
            mean=fit.posterior.mean,
            root=fit.posterior.root(),
            alpha=fit.alpha,
            noise_variance=variance if len(scales) > 1 else float(variance[0]),
            log_evidence=float(fit.posterior.log_evidence - n * np.log(scales).sum()),
            n_rows=n,
            columns=columns,
        )

    def digest(self) -> str:
        """A hash of all that predictions depend on: models of equal digest predict the same bits."""
        noise = np.asarray(self.noise_variance).tolist()
        facts = [self.design.kernel.spec(), self.design.bias, noise, asdict(self.columns)]
        return digest(facts, self.design, (self.mean, self.root))

    @property
    def n_vectors(self) -> int:
        """Relevance vectors, the bias not counted."""
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
        """Constant term of the mean in the target's unit, the training mean and the bias; of T targets (T,)."""
        scaling = self.design.scaling
        bias = self.mean[0] if self.design.bias else 0.0
        found: Float = scaling.t_shift + scaling.t_scale * bias
        return found if self.n_targets > 1 else float(found[0])

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
        """Mean, variance (if asked) and nearness of raw inputs X (n, d), (n,) each; of T targets the first two (n, T).

        Mean and variance are of a new noisy target, in its units. Nearness is the largest of the kernel columns, each
        as a fraction of its peak: below ``FAR`` a row is far from every relevance vector; 1 where the model has none.
        Raises ``DataError`` if X has another number of features than the model.
        """
        design, heights = self.design, self.design.peaks()
        shift, scale = design.scaling.t_shift, design.scaling.t_scale
        if self.n_targets == 1:
            shift, scale = shift[0], scale[0]
        shape, near = (len(X), *self.mean.shape[1:]), np.empty(len(X))
        mean, spread = np.empty(shape), np.empty(shape) if variance else None
        roots = self.root.reshape(self.n_targets, *self.root.shape[-2:])
        for rows, block in panels(design, X):
            mean[rows] = block @ self.mean
            if spread is not None:
                for target, root in enumerate(roots):
                    product = block @ root
                    spread.reshape(len(X), -1)[rows, target] = np.einsum("nm,nm->n", product, product)
            near[rows] = nearness(design, block, heights)
        mean *= scale
        mean += shift
        if spread is not None:
            spread *= scale**2
            spread += self.noise_variance
        return mean, spread, near
