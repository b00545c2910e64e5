"""Local residuals: what the nearest training rows tell about a model's error at a new row.

``metric`` has the coordinates in which rows are near, ``kriging`` the error of a row given those of its neighbours and
the search for the local kernel, ``residuals`` the training rows of a model with the exact search for the nearest ones,
``choice`` the stage of a fit that decides whether a model has them.
"""
