"""Kernel learning on row samples. The registry ``SEARCHES`` maps each kind of target to its kernel
search."""

from collections.abc import Callable
from dataclasses import dataclass

from partirvm.learning.class_search import class_centres, learn_classes
from partirvm.learning.exact_process import ProcessFit, ProcessRows
from partirvm.learning.process_search import learn_regression
from partirvm.learning.sample import SampledRows, SearchEffort, gathered
from partirvm.learning.search import OF_NUMBERS, CentreLimits, SearchSettings, learning_options
from partirvm.spec.problem import Problem

__all__ = [
    "OF_NUMBERS",
    "SEARCHES",
    "CentreLimits",
    "ProcessFit",
    "ProcessRows",
    "SampledRows",
    "SearchEffort",
    "SearchSettings",
    "TargetSearch",
    "class_centres",
    "gathered",
    "learn_classes",
    "learn_regression",
    "learning_options",
]


@dataclass(frozen=True)
class TargetSearch:
    """The kernel search for one kind of target.

    Attributes:
        learn: learns the kernel and returns the problem with this kernel
        centres: returns the limits on the number of centres, given the number of classes (0 for
            regression)
        of_given_form: True if the search also learns kernels of a given form; otherwise the tied
            evidence learns them
        judged: True if left-out rows compare the kernel with rivals
    """

    learn: Callable[[SampledRows, Problem, SearchSettings], Problem]
    centres: Callable[[int], CentreLimits]
    of_given_form: bool
    judged: bool


SEARCHES = {
    "numbers": TargetSearch(learn_regression, lambda n_classes: OF_NUMBERS, True, True),
    "classes": TargetSearch(learn_classes, class_centres, False, False),
}
"""Searches by the value of ``WorkingTargets.search``."""
