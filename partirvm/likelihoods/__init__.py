"""Likelihoods: models of a target given the linear predictors. The registry ``LIKELIHOODS`` maps
names to likelihoods."""

from typing import Any

from partirvm.likelihoods.classes import BERNOULLI, SOFTMAX, Newton
from partirvm.likelihoods.gaussian import GaussianLikelihood, Solve
from partirvm.likelihoods.indicators import IndicatorLikelihood
from partirvm.likelihoods.passes import (
    ErrorPass,
    GramPass,
    LeaveOneOutPass,
    LogisticPass,
    ResidualPass,
    ScorePass,
    SlopePass,
)
from partirvm.options import Request
from partirvm.options.constraints import Check
from partirvm.spec.problem import Likelihood

__all__ = [
    "BERNOULLI",
    "GAUSSIAN",
    "LIKELIHOODS",
    "MANY_ROWS",
    "POOLED",
    "SOFTMAX",
    "ErrorPass",
    "GaussianLikelihood",
    "GramPass",
    "IndicatorLikelihood",
    "LeaveOneOutPass",
    "LogisticPass",
    "Newton",
    "ResidualPass",
    "ScorePass",
    "SlopePass",
    "Solve",
    "likelihood_for",
    "requested_likelihood",
    "words_of",
]

GAUSSIAN = GaussianLikelihood()
POOLED = IndicatorLikelihood()

LIKELIHOODS: dict[str, Likelihood] = {
    each.name: each for each in (GAUSSIAN, BERNOULLI, POOLED, SOFTMAX)
}
"""Likelihoods by name. Adding an entry makes a likelihood available under its ``words``."""

MANY_ROWS = 50_000
"""Above this number of rows, two classes are pooled by default: on 220,551 rows of skin_nonskin,
.04 % are misclassified after 5 CPU seconds; with a logistic link, .03 % after 135. On 6,000 rows of
magic, pooling would raise the log loss by .003 to .01."""


def likelihood_for(n_classes: int, word: str, n_rows: int = 0) -> Likelihood:
    """Return the likelihood for ``n_classes`` classes (0 for regression) and the value ``word`` of
    the option ``likelihood``. Raises ``KeyError`` if there is none."""
    if n_classes and n_rows > MANY_ROWS and word == "auto":
        return POOLED
    for likelihood in LIKELIHOODS.values():
        fits = likelihood.classifies == (n_classes > 0) and (
            n_classes == 2 or not likelihood.binary
        )
        if fits and word in likelihood.words:
            return likelihood
    raise KeyError(word)


def requested_likelihood(
    classes: tuple[Any, ...] | None, request: Request, n_rows: int
) -> Likelihood:
    """Return the likelihood of a request. Raises ``UsageError`` for a value that belongs to another
    kind of target.

    Args:
        classes: classes of the target, None for a numeric target
        request: the options, of which likelihood is used
        n_rows: number of rows
    """
    Check("word", words_of(classes=classes is not None))("likelihood", request.likelihood)
    n_classes = 0 if classes is None else max(len(classes), 1)
    return likelihood_for(n_classes, request.likelihood, n_rows)


def words_of(*, classes: bool | None) -> tuple[str, ...]:
    """Return the option values that select a likelihood for classification (``classes=True``), for
    regression, or for either (None)."""
    words = (
        word
        for likelihood in LIKELIHOODS.values()
        if classes is None or likelihood.classifies == classes
        for word in likelihood.words
    )
    return tuple(dict.fromkeys(words))
