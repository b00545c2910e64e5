"""Kernel learning on samples of the rows. The registry ``SEARCHES`` holds the search for each kind
of target."""

from collections.abc import Callable
from dataclasses import dataclass

from partirvm.learning.class_search import class_centres, learn_classes
from partirvm.learning.process_search import learn_regression
from partirvm.learning.sample import SampledRows
from partirvm.learning.search import OF_NUMBERS, CentreLimits, SearchSettings
from partirvm.spec.problem import Problem


@dataclass(frozen=True)
class TargetSearch:
    """How the kernel is searched for a kind of target.

    Attributes:
        learn: learns the kernel, and returns the problem with it
        centres: returns the limits of the numbers of centres for a number of classes, or 0
        of_given_form: True if it also learns kernels of a given form, which otherwise the tied
            evidence learns
        judged: True if left-out rows judge the kernel beside rivals
    """

    learn: Callable[[SampledRows, Problem, SearchSettings], Problem]
    centres: Callable[[int], CentreLimits]
    of_given_form: bool
    judged: bool


SEARCHES = {
    "numbers": TargetSearch(learn_regression, lambda n_classes: OF_NUMBERS, True, True),
    "classes": TargetSearch(learn_classes, class_centres, False, False),
}
"""Searches by the word of ``WorkingTargets.search``."""
