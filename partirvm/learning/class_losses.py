"""Log losses of left-out rows with the kernels of a classification.

An exact process predicts the indicators of the classes. The ramp with the lowest loss turns them
into probabilities (``core.ramp``), so that kernels are compared by what a classification is judged
by. The squared error would not do: it prefers Matérn kernels on pendigits, whose log loss they
raise.
"""

import numpy as np

from partirvm.core.ramp import LeftOutClasses, Ramp
from partirvm.learning.exact_process import ProcessFit, ProcessRows
from partirvm.spec.problem import Problem
from partirvm.types import Float, Int

SURE = 2.0
"""Minimum gain, in standard errors, of another family or form, and with many features of any
kernel over the class frequencies: unlike a noise variance, probabilities are not adjusted to the
errors in left-out rows."""


def left_out_classes(
    rows: ProcessRows, fit: ProcessFit, new: ProcessRows, numbers: Int
) -> LeftOutClasses:
    """Return the indicators that a process predicts for left-out rows.

    Args:
        rows: the rows of the process
        fit: its kernel and variances
        new: the left-out rows
        numbers: their numbers (n,) in the sample
    """
    codes = rows.sample.rows.gather(np.sort(numbers)).t[:, 0]
    errors, _ = rows.predicted(fit, new)
    return LeftOutClasses(class_indicators(rows.problem, new.t - errors), codes, 1 / new.inverse)


def class_indicators(problem: Problem, standardised: Float) -> Float:
    """Return indicators (n, K) of all classes from the standardised indicators (n, T) of a
    process."""
    K = problem.n_classes
    counts = np.bincount(np.asarray(problem.codes), minlength=K)
    shares = (counts / counts.sum())[int(K == 2) :]
    indicators = shares + np.sqrt((shares * (1 - shares)).mean()) * standardised
    return np.hstack([1 - indicators, indicators]) if K == 2 else indicators


def row_losses(parts: list[LeftOutClasses]) -> Float:
    """Return the log loss (n,) of each row with the best ramp, times the row's weight."""
    rows = parts[0]
    for part in parts[1:]:
        rows += part
    return -rows.weights * rows.log_probability(rows.ramp(Ramp()))


def is_lower(losses: Float, others: Float, margin: float) -> bool:
    """Return True if losses (n,) are lower than others on the same rows (n,) by more than
    ``margin`` standard errors."""
    gain = others - losses
    return bool(gain.mean() > margin * gain.std() / np.sqrt(len(gain)))
