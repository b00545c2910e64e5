"""A fitted model as a value: what prediction needs, and a little to tell people.

Predictions are for a new noisy target, N(μᵀφ(x), σ² + φᵀΣφ) (Tipping 2001, eqs. 20–22), in the target's own units.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from partirvm.core.updates import HyperState
from partirvm.errors import DataError
from partirvm.kernels.design import Design
from partirvm.types import PANEL_ROWS, Columns

Float = NDArray[np.float64]

FAR = 1e-4
"""Nearness (the largest kernel as a fraction of its peak) below which a row is far from every relevance vector."""


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
        design, scaling = self.design, self.design.scaling
        facts = [design.kernel.spec(), design.bias, self.noise_variance, asdict(self.columns)]
        found = hashlib.blake2b(json.dumps(facts, sort_keys=True).encode(), digest_size=16)
        arrays = (scaling.x_shift, scaling.x_scale, scaling.t_shift, scaling.t_scale)
        for array in (*arrays, design.centres, self.mean, self.root):
            found.update(f"{array.shape} {array.dtype}".encode())
            found.update(np.ascontiguousarray(array))
        return found.hexdigest()

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

    def predict(self, X: Any, return_std: bool = False) -> Any:
        """Mean (n,) of the target at raw inputs X (n, d); with ``return_std`` also the sd of a new noisy target, (n,).

        X is an array, nested lists or a data frame; results are in the target's units. Raises ``DataError`` if X has
        other features than the model, or values that are no finite numbers.
        """
        mean, variance, _ = self.moments(self._checked(X), variance=return_std)
        if variance is None:
            return mean
        return mean, np.sqrt(variance)

    def _checked(self, X: Any) -> Float:
        wanted = self.columns.features
        found = tuple(str(name) for name in getattr(X, "columns", wanted))
        if found != wanted and wanted != tuple(f"x{column}" for column in range(len(wanted))):
            raise DataError(f"the model was trained on the features {list(wanted)}, the rows given have {list(found)}")
        try:
            rows = np.asarray(X, dtype=np.float64)
        except (TypeError, ValueError) as error:
            raise DataError(f"X cannot be used, it must be rows of numbers: {error}") from error
        if not np.isfinite(rows).all():
            raise DataError("X has values that are NaN or infinite: remove or fill them")
        return rows

    def moments(self, X: Float, *, variance: bool = True) -> tuple[Float, Float | None, Float]:
        """Mean, variance (if asked) and nearness of raw inputs X (n, d), shape (n,) each.

        Mean and variance are of a new noisy target, in its units. Nearness is the largest of the kernel columns, each
        as a fraction of its peak: below ``FAR`` a row is far from every relevance vector; 1 where the model has none.
        Raises ``DataError`` if X has another number of features than the model.
        """
        if X.ndim != 2 or X.shape[1] != self.n_features:
            raise DataError(f"the model was trained on {self.n_features} features, the rows given have shape {X.shape}")
        design, bias = self.design, int(self.design.bias)
        shift, scale = float(design.scaling.t_shift[0]), float(design.scaling.t_scale[0])
        peaks = design.kernel.diagonal(design.scaling.inputs(design.centres))
        mean, nearness = np.empty(len(X)), np.ones(len(X))
        spread = np.empty(len(X)) if variance else None
        for start in range(0, len(X), PANEL_ROWS):
            rows = slice(start, start + PANEL_ROWS)
            block = design.block(X[rows])
            mean[rows] = block @ self.mean
            if spread is not None:
                product = block @ self.root
                spread[rows] = np.einsum("nm,nm->n", product, product)
            if self.n_vectors:
                kernels = block[:, bias:]
                kernels /= peaks
                nearness[rows] = kernels.max(axis=1)
        mean *= scale
        mean += shift
        if spread is not None:
            spread *= scale**2
            spread += self.noise_variance
        return mean, spread, nearness
