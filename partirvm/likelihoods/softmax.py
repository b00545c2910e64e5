"""Likelihoods of K classes with one linear predictor per class: softmax, and one-vs-rest."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from partirvm.likelihoods.laplace import ClassLikelihood


@dataclass(frozen=True)
class SoftmaxLikelihood(ClassLikelihood):
    """p_k = exp f_k / Σ_l exp f_l (Tipping 2001, eq. 28); the K weights of a column share one α."""

    name: ClassVar[str] = "multinomial"
    words: ClassVar[tuple[str, ...]] = ("multinomial",)


@dataclass(frozen=True)
class OneVsRestLikelihood(ClassLikelihood):
    """A Bernoulli likelihood of each class against the rest; each linear predictor has separate α."""

    name: ClassVar[str] = "ovr"
    words: ClassVar[tuple[str, ...]] = ("ovr",)

    def n_likelihoods(self, outputs: int) -> int:
        """Return one log likelihood per output."""
        return outputs
