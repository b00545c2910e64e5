"""What a model's leading columns tell: the bias and the basis functions of the fit's own, by name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from partirvm.core.updates import evidence_gain
from partirvm.kernels.bases import labels_by_name
from partirvm.kernels.design import Design
from partirvm.types import Columns

Float = NDArray[np.float64]


class Fitted(Protocol):
    """What is asked of a model: mean and α, (M,) or (M, C), and Σ = RRᵀ by its root, (M, M) or (C, M, M)."""

    @property
    def design(self) -> Design: ...
    @property
    def columns(self) -> Columns: ...
    @property
    def mean(self) -> Float: ...
    @property
    def alpha(self) -> Float: ...
    @property
    def root(self) -> Float: ...


@dataclass(frozen=True)
class Bases:
    """The bias and the B basis functions, those that were pruned too: ``names`` (B + 1,), the bias first.

    ``weights`` (B + 1,), of classes (B + 1, C), are of the standardised problem, 0 where pruned; ``alpha`` likewise, ∞
    where pruned. ``relevance`` (B + 1,) is the log evidence, in nats, that the deletion of each function would cost
    while all else stays as it is (Tipping & Faul 2003, eq. 27), outputs together: 0 where pruned. Functions that can
    stand in for each other are each of little relevance.
    """

    names: tuple[str, ...]
    weights: Float
    alpha: Float
    relevance: Float


def bases_of(model: Fitted) -> Bases:
    """Those of a model; of one without a basis the bias alone."""
    design, labels = model.design, labels_by_name(model.design.functions, model.columns.features)
    places = {label: place for place, label in enumerate(labels.values())}
    mine = np.array([places[label] for label in design.leading.tolist()], dtype=np.int64)
    count, shape = design.n_leading, (len(labels), *model.mean.shape[1:])
    weights, alpha, relevance = np.zeros(shape), np.full(shape, np.inf), np.zeros(shape)
    weights[mine], alpha[mine] = model.mean[:count], model.alpha[:count]
    variance = np.einsum("...mk,...mk->...m", model.root, model.root)[..., :count].T  # (L,) or (L, C)
    there = np.isfinite(model.alpha[:count]) & (variance > 0)
    precision = 1.0 / np.where(there, variance, 1.0)
    sparsity = np.maximum(precision - np.where(there, model.alpha[:count], 0.0), 0.0)
    relevance[mine] = np.where(there, evidence_gain(sparsity, model.mean[:count] * precision), 0.0)
    return Bases(tuple(labels), weights, alpha, relevance.reshape(len(labels), -1).sum(axis=1))
