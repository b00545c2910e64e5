"""Steps that every strategy shares, whatever the target: where a fit starts, how it is scored, what it tells.

Those of a target that is a number are in ``regressing``, those of classes in ``classifying``.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from partirvm.core.laplace import LaplaceState
from partirvm.kernels.design import Design
from partirvm.strategies import classifying, regressing
from partirvm.strategies.instructions import AnyFit, Record, Start
from partirvm.strategies.passes import Pass
from partirvm.strategies.problem import Options, Problem
from partirvm.strategies.regressing import Warm

Int = NDArray[np.int64]

AnyWarm: TypeAlias = Warm | Start


def nothing(problem: Problem) -> AnyFit:
    """The fit of no columns."""
    return classifying.nothing(problem) if problem.classifies else regressing.nothing(problem)


def warm(fit: AnyFit) -> AnyWarm:
    """Where a fit over other rows, or of more columns, begins."""
    return Start.of(fit) if isinstance(fit, LaplaceState) else Warm.of(fit)


def merged(left: AnyWarm, right: AnyWarm, labels: Int) -> AnyWarm:
    """Where a fit of the columns of two others begins."""
    if isinstance(left, Start) and isinstance(right, Start):
        return left.merge(right, labels)
    assert isinstance(left, Warm)
    assert isinstance(right, Warm)
    return left.merge(right, labels)


def score(options: Options, design: Design, fit: AnyFit) -> Pass:
    """The pass over held-out rows that scores a fit, in the target's own units."""
    if isinstance(fit, LaplaceState):
        return classifying.score(design, fit, options.moderate)
    return regressing.score(design, fit)


def record(problem: Problem, fit: AnyFit, scores: Any = None, **facts: Any) -> Record:
    """A fit's line of history; ``facts`` are the fields of ``Record`` that the strategy knows."""
    if isinstance(fit, LaplaceState):
        return classifying.record(fit, scores, **facts)
    return regressing.record(problem, fit, scores, **facts)
