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
"""Every likelihood by name. One that is entered here can be asked for, by one of its ``words``."""


def likelihood_for(n_classes: int, word: float | str) -> AnyLikelihood:
    """The likelihood of a target of K = ``n_classes`` classes, 0 for a number, that an option's value asks for.

    That is the value of ``multi_class`` for classes, of ``noise_variance`` for a number. ``KeyError`` for one that no
    likelihood of such a target has.

    >>> likelihood_for(2, "ovr").name, likelihood_for(3, "auto").name, likelihood_for(0, 0.25).name
    ('bernoulli', 'multinomial', 'gaussian')
    """
    for each in LIKELIHOODS.values():
        if each.serves(n_classes, word):
            return each
    raise KeyError(word)


def words_of(*, classes: bool) -> tuple[str, ...]:
    """The words by which likelihoods of classes, or of a number, are asked for.

    >>> words_of(classes=True), words_of(classes=False)
    (('auto', 'multinomial', 'ovr'), ('estimate',))
    """
    found = (word for each in LIKELIHOODS.values() if each.of_classes == classes for word in each.words)
    return tuple(dict.fromkeys(found))


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
    "likelihood_for",
    "words_of",
]
