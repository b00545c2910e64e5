"""Local residuals: what the nearest training rows tell about a model's error at a new row.

``metric`` defines the coordinates in which nearness is measured; ``kriging`` predicts a row's error
from those of its neighbours, and searches for the local kernel; ``cells`` finds the exact nearest
rows; ``residuals`` holds a model's training rows. ``fit.local_residuals`` is the stage of a fit
that decides whether a model has them.
"""
