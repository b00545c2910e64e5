"""Local residuals: corrections of a model at a new row, based on its errors at the nearest training
rows.

``metric`` defines the coordinates in which distances are measured; ``kriging`` predicts a row's
error from its neighbours' errors, and searches for the local kernel; ``cells`` finds the exact
nearest rows; ``residuals`` holds a model's training rows. ``fit.local_residuals`` is the stage of a
fit that decides whether a model has local residuals.
"""

from partirvm.local.cells import LOG_FACTOR, NUMBER, Cells
from partirvm.local.kriging import CORRELATIONS, LocalKernel, moments
from partirvm.local.kriging_search import learned
from partirvm.local.metric import Metric
from partirvm.local.residuals import LocalResiduals

__all__ = [
    "CORRELATIONS",
    "LOG_FACTOR",
    "NUMBER",
    "Cells",
    "LocalKernel",
    "LocalResiduals",
    "Metric",
    "learned",
    "moments",
]
