"""Search for columns that a fit does not contain yet."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from partirvm.kernels import Several
from partirvm.kernels.design import Design
from partirvm.strategies.problem import Problem
from partirvm.strategies.selection import distinct

Int = NDArray[np.int64]


def fresh(new: Design, present: Design) -> Int:
    """Return positions of the columns of ``new`` that differ from all present and all earlier new columns, in order."""
    kernel = new.kernel
    if not isinstance(kernel, Several):
        return distinct(new.centres, present.centres)
    found = [np.zeros(0, np.int64)]
    for k in range(len(kernel.kernels)):
        own = np.flatnonzero(new.which == k)
        points = kernel.without_ignored(new.centres[own], k)
        others = kernel.without_ignored(present.centres[present.which == k], k)
        found.append(own[distinct(points, others)])
    return np.sort(np.concatenate(found))


def lacking(problem: Problem, design: Design) -> Int:
    """Return the labels of the leading columns that a design lacks."""
    return np.setdiff1d(problem.leading, design.leading)


def left_out(chosen: Design, new: Design) -> int:
    """Return the number of chosen rows that give no new column."""
    return len(np.setdiff1d(chosen.rows, new.rows))
