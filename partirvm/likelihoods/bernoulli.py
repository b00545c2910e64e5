"""The Bernoulli likelihood of two classes: one linear predictor, p = 1 / (1 + e⁻ᶠ) (Tipping 2001, eq. 23)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from partirvm.likelihoods.laplace import ClassLikelihood


@dataclass(frozen=True)
class BernoulliLikelihood(ClassLikelihood):
    """Two classes."""

    name: ClassVar[str] = "bernoulli"
