"""The Bernoulli likelihood of two classes: one linear predictor, p = 1 / (1 + e⁻ᶠ) (Tipping 2001, eq. 23)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from partirvm.likelihoods.laplace import ClassLikelihood


@dataclass(frozen=True)
class BernoulliLikelihood(ClassLikelihood):
    """The likelihood of two classes, the same for every value of ``multi_class``."""

    name: ClassVar[str] = "bernoulli"
    words: ClassVar[tuple[str, ...]] = ("auto", "pooled", "multinomial", "ovr")

    def serves(self, n_classes: int, word: float | str) -> bool:
        """Return whether there are two classes; they need only one linear predictor."""
        return n_classes == 2 and word in self.words
