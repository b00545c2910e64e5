"""Facts about a fitted model for reports: relevance of features, directions, basis functions, noise of the targets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from partirvm.kernels import Directions, Kernel
from partirvm.kernels.composed import inside
from partirvm.model.base import FittedModel, bases_of
from partirvm.model.fitted import Model

Float = NDArray[np.float64]


def relevances(kernel: Kernel, variance: Float) -> Float | None:
    """Compute gamma_j·var_j (d,) as a fraction of the largest, from the variance (d,) of the scaled inputs; or None."""
    found = kernel.relevances(len(variance))
    if found is None:
        return None
    found = found * variance
    largest = found.max()
    return found / largest if largest > 0 else found


def directions_json(kernel: Kernel, variance: Float, features: Sequence[str]) -> list[dict[str, Any]]:
    """Return ``share`` and ``loadings`` by feature of each direction of the kernel, as plain JSON; empty without them.

    The share of a direction is gamma times its variance, as a fraction of the sum over all directions, for uncorrelated
    inputs of ``variance`` (d,). The squares of the loadings add up to 1.
    """
    found: list[tuple[float, dict[str, float]]] = []
    for part, columns in inside(kernel, len(features), Directions):
        matrix = part.matrix
        weights = part.kernel.widths(len(matrix)) * (matrix**2 @ variance[columns])
        names = [features[j] for j in columns.tolist()]
        for weight, axis in zip(weights.tolist(), matrix, strict=True):
            unit = axis / np.linalg.norm(axis)
            found.append((weight, dict(zip(names, unit.tolist(), strict=True))))
    total = sum(weight for weight, _ in found)
    return [{"share": weight / total if total else 0.0, "loadings": loadings} for weight, loadings in found]


def basis_functions_json(model: FittedModel) -> list[dict[str, Any]]:
    """Return ``name``, ``weights`` (one per output) and ``relevance`` (nats) of the bias and each basis function."""
    if model.design.functions is None:
        return []
    found = bases_of(model)
    weights = found.weights.reshape(len(found.names), -1).tolist()
    parts = zip(found.names, weights, found.relevance.tolist(), strict=True)
    return [{"name": name, "weights": each, "relevance": relevance} for name, each, relevance in parts]


def targets_json(model: FittedModel) -> dict[str, Any]:
    """Return ``noise_sd`` of each target by name, in its unit, under the key ``targets``; empty for one target."""
    if not isinstance(model, Model) or model.n_targets == 1:
        return {}
    names, noise = model.output_names, np.sqrt(model.noise_variance)
    return {"targets": {name: {"noise_sd": sd} for name, sd in zip(names, noise.tolist(), strict=True)}}
