"""Likelihoods: models of a target given the linear predictors. The registry ``LIKELIHOODS`` holds them by name."""

from partirvm.likelihoods.base import Likelihood
from partirvm.likelihoods.classes import BERNOULLI, SOFTMAX
from partirvm.likelihoods.gaussian import GaussianLikelihood
from partirvm.likelihoods.indicators import IndicatorLikelihood

GAUSSIAN, POOLED = GaussianLikelihood(), IndicatorLikelihood()

LIKELIHOODS: dict[str, Likelihood] = {each.name: each for each in (GAUSSIAN, BERNOULLI, POOLED, SOFTMAX)}
"""Likelihoods by name. An entry in this dictionary makes a likelihood available under its ``words``."""


MANY_ROWS, CLEAR = 50_000, 0.25
"""Two classes are pooled by default above the first number of rows, or with less noise in their indicators, ÷ variance,
than the second when the kernel is learned. On 220,551 rows of skin_nonskin .04 % are wrong after 5 CPU seconds, with a
logistic link .03 % after 135. Even and odd digits, with a noise of .002, have the log loss .021 pooled and .056 by a
logistic link, spambase (.2) .167 and .196, but moons (.29) .206 and .201, and magic (.5) .301 and .295."""


def likelihood_for(n_classes: int, word: float | str, n_rows: int = 0, noise: float = 1.0) -> Likelihood:
    """Return the likelihood for ``n_classes`` classes (0 for regression) and the value ``word`` of an option.

    The option is ``multi_class`` in classification and ``noise_variance`` in regression. Raises ``KeyError``.
    """
    if n_classes and word == "auto" and (n_rows > MANY_ROWS or noise < CLEAR):
        return POOLED
    for each in LIKELIHOODS.values():
        fits = each.classifies == (n_classes > 0) and (n_classes == 2 or not each.binary)
        if fits and (word in each.words or not isinstance(word, str)):
            return each
    raise KeyError(word)


def words_of(*, classes: bool) -> tuple[str, ...]:
    """Return the option values that select a likelihood in classification (``classes=True``) or regression."""
    found = (word for each in LIKELIHOODS.values() if each.classifies == classes for word in each.words)
    return tuple(dict.fromkeys(found))
