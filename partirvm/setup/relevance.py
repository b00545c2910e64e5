"""What a fit's model tells people: how much single features count, its basis functions, the noise of its targets."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from partirvm.core.moments import Moments
from partirvm.kernels import Kernel, Several
from partirvm.model import AnyModel, Model, bases_of
from partirvm.setup.categories import kinds, variance_of
from partirvm.types import Columns, Scaling

Float = NDArray[np.float64]


def input_variance(columns: Columns, moments: Moments, scaling: Scaling) -> Float:
    """Variance (d,) of the inputs as the kernel sees them: 1 where they are standardised, 0 for a constant one.

    That of categories is of their levels (``setup.categories``).
    """
    variance: Float = moments.inputs.variance_over(scaling.x_scale)
    for j in kinds(columns)[1]:
        variance[j] = variance_of(columns, j)
    return variance


def relevances(kernel: Kernel | Several, variance: Float) -> Float | None:
    """gamma_j·var_j of each feature (d,), as a fraction of the largest; None for a kernel that tells of none.

    ``variance`` (d,) is that of the inputs as the kernel sees them. All are 0 where no feature that counts varies.
    """
    found = kernel.relevances(len(variance))
    if found is None:
        return None
    found = found * variance
    largest = found.max()
    return found / largest if largest > 0 else found


def told_targets(model: AnyModel) -> dict[str, Any]:
    """``targets``: of each of several, by its name, ``noise_sd``, in its own unit. Plain JSON; empty for one target."""
    if not isinstance(model, Model) or model.n_targets == 1:
        return {}
    names, noise = model.columns.target_names(model.n_targets), model.noise_deviation
    return {"targets": {name: {"noise_sd": sd} for name, sd in zip(names, noise.tolist(), strict=True)}}


def told_bases(model: AnyModel) -> list[dict[str, Any]]:
    """``name``, ``weights`` (one for each linear predictor) and ``relevance`` of the bias and each basis function.

    Plain JSON; empty for a model without basis functions of its own. Relevance is that of
    ``model.basis_functions.Bases``, nats.
    """
    if model.design.functions is None:
        return []
    found = bases_of(model)
    weights = found.weights.reshape(len(found.names), -1).tolist()
    told = zip(found.names, weights, found.relevance.tolist(), strict=True)
    return [{"name": name, "weights": each, "relevance": relevance} for name, each, relevance in told]
