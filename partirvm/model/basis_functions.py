"""The leading columns of a model by name: the bias and the explicit basis functions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from partirvm.core.fast import log_contribution
from partirvm.kernels.bases import labels_by_name
from partirvm.kernels.design import Design
from partirvm.types import Columns

Float = NDArray[np.float64]


class FittedFunction(Protocol):
    """Required attributes of a model.

    ``mean`` and ``alpha`` are (M,) or (M, C), and ``root`` is R with Σ = RRᵀ, (M, M) or (C, M, M). For T targets that
    share vectors the mean is (M, T), α is (M,) and the root is (T, M, M).
    """

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
    """The bias and the B basis functions, including pruned functions: ``names`` (B + 1,), the bias first.

    ``weights`` refer to the standardised problem and are 0 for pruned functions. The shape of ``weights`` is (B + 1,),
    (B + 1, C) for C outputs or (B + 1, T) for T targets. ``alpha`` has the same shape, or (B + 1,) if targets share α,
    and is ∞ for pruned functions. ``relevance`` (B + 1,) is the loss of log evidence, in nats, if only this function is
    deleted (Tipping & Faul 2003, eq. 27), summed over outputs. The relevance of a pruned function is 0. Functions that
    can replace each other all have low relevance.
    """

    names: tuple[str, ...]
    weights: Float
    alpha: Float
    relevance: Float


def bases_of(model: FittedFunction) -> Bases:
    """Return the bias and the basis functions of a model; without a basis only the bias."""
    design, labels = model.design, labels_by_name(model.design.functions, model.columns.features)
    places = {label: place for place, label in enumerate(labels.values())}
    mine = np.array([places[label] for label in design.leading.tolist()], dtype=np.int64)
    count, shape = design.n_leading, (len(labels), *model.mean.shape[1:])
    weights, relevance = np.zeros(shape), np.zeros(shape)
    alpha = np.full((len(labels), *model.alpha.shape[1:]), np.inf)
    weights[mine], alpha[mine] = model.mean[:count], model.alpha[:count]
    own = model.alpha[:count].reshape(count, *[1] * (model.mean.ndim - model.alpha.ndim), *model.alpha.shape[1:])
    variance = np.einsum("...mk,...mk->...m", model.root, model.root)[..., :count].T  # (L,) or (L, C)
    there = np.isfinite(own) & (variance > 0)
    precision = 1.0 / np.where(there, variance, 1.0)
    sparsity = np.maximum(precision - np.where(there, own, 0.0), 0.0)
    worth = log_contribution(np.where(there, own, np.inf), sparsity, model.mean[:count] * precision)
    relevance[mine] = np.where(there, worth, 0.0)
    return Bases(tuple(labels), weights, alpha, relevance.reshape(len(labels), -1).sum(axis=1))
