"""Local residuals: what the nearest training rows tell about a model's error at a new row.

``metric`` has the coordinates in which nearness is measured, ``kriging`` the error of a row given those of its
neighbours and the search for the local kernel, ``cells`` the exact nearest-row search, and ``residuals`` a model's
training rows. ``learning.neighbours`` is the stage of a fit that decides whether a model has them.
"""
