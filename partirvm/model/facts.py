"""Facts about fitted models for reports, as plain JSON."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from partirvm.kernels import Directions, Kernel
from partirvm.kernels.composed import inside
from partirvm.model.base import FittedModel, bases_of
from partirvm.types import Float


def directions_json(
    kernel: Kernel, variance: Float, features: Sequence[str]
) -> list[dict[str, Any]]:
    """Return each kernel direction's ``share`` and ``loadings`` by feature, as plain JSON; empty
    without directions.

    The share of a direction is gamma times its variance, as a fraction of the sum over all
    directions, for uncorrelated inputs of ``variance`` (d,). The squares of the loadings add up to
    1.
    """
    directions: list[tuple[float, dict[str, float]]] = []
    for part, columns in inside(kernel, len(features), Directions):
        matrix = part.matrix
        weights = part.kernel.widths(len(matrix)) * (matrix**2 @ variance[columns])
        units = matrix / np.linalg.norm(matrix, axis=1, keepdims=True)
        loadings = (
            dict(zip([features[j] for j in columns], unit, strict=True)) for unit in units.tolist()
        )
        directions += zip(weights.tolist(), loadings, strict=True)
    total = sum(weight for weight, _ in directions)
    return [
        {"share": weight / total if total else 0.0, "loadings": loadings}
        for weight, loadings in directions
    ]


def basis_functions_json(model: FittedModel) -> list[dict[str, Any]]:
    """Return ``name``, ``weights`` (one per output) and ``relevance`` (nats) of the bias and each
    basis function."""
    if model.design.functions is None:
        return []
    bases = bases_of(model)
    weights = bases.weights.reshape(len(bases.names), -1).tolist()
    parts = zip(bases.names, weights, bases.relevance.tolist(), strict=True)
    return [
        {"name": name, "weights": of_outputs, "relevance": relevance}
        for name, of_outputs, relevance in parts
    ]


def sizes_json(model: FittedModel) -> list[list[float]]:
    """Return decreasing numbers of vectors, down to 1, and the increase in mean squared error if
    the model is pruned to each of them.

    The increase is defined as in ``Pruned``, computed from the vectors alone, and averaged over
    several targets. The list is empty for a model that measures no error.
    """
    if not model.measures_error:
        return []
    sizes = list[list[float]]()
    model = model.sparse()
    while model.n_vectors:
        sizes.append([model.n_vectors, float(np.mean(model.pruned.squared_error))])
        model = model.prune(model.n_vectors * 4 // 5)
    return sizes


def targets_json(model: Any) -> dict[str, Any]:
    """Return each target's ``noise_sd`` by name, in its units, under the key ``targets``; empty
    without named targets, e.g. for a single target."""
    names = model.columns.targets
    if not names:
        return {}
    deviations = np.sqrt(model.noise_variance).tolist()
    noise = {name: {"noise_sd": sd} for name, sd in zip(names, deviations, strict=True)}
    return {"targets": noise}
