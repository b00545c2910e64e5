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
"""Every likelihood by name. A new one becomes available by an entry here, under its ``words``."""


def likelihood_for(n_classes: int, word: float | str) -> AnyLikelihood:
    """The likelihood for an option's value, of a target with K = ``n_classes`` classes (0 for regression).

    ``word`` is the value of ``multi_class`` in classification, of ``noise_variance`` in regression.
    Raises ``KeyError`` if no likelihood of such a target has this word.

    >>> likelihood_for(2, "ovr").name, likelihood_for(3, "auto").name, likelihood_for(0, 0.25).name
    ('bernoulli', 'multinomial', 'gaussian')
    """
    for each in LIKELIHOODS.values():
        if each.serves(n_classes, word):
            return each
    raise KeyError(word)


def words_of(*, classes: bool) -> tuple[str, ...]:
    """The words that select a likelihood in classification (``classes``) or regression.

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
