"""Likelihoods: the model of a target given the linear predictors. One file each, found by name in one registry."""

from __future__ import annotations

from typing import Any, TypeAlias

from partirvm.likelihoods.base import Likelihood
from partirvm.likelihoods.bernoulli import BernoulliLikelihood
from partirvm.likelihoods.gaussian import GaussianLikelihood
from partirvm.likelihoods.softmax import OneVsRestLikelihood, SoftmaxLikelihood

GAUSSIAN = GaussianLikelihood()
BERNOULLI = BernoulliLikelihood()

AnyLikelihood: TypeAlias = Likelihood[Any, Any]

LIKELIHOODS: dict[str, AnyLikelihood] = {
    each.name: each for each in (GAUSSIAN, BERNOULLI, SoftmaxLikelihood(), OneVsRestLikelihood())
}
"""Every likelihood by name."""

__all__ = [
    "BERNOULLI",
    "GAUSSIAN",
    "LIKELIHOODS",
    "AnyLikelihood",
    "BernoulliLikelihood",
    "GaussianLikelihood",
    "Likelihood",
    "OneVsRestLikelihood",
    "SoftmaxLikelihood",
]
