"""Systems of the sources beyond the main path, for comparisons with the literature. No other part imports them.

Each module stands on the seam that it states: clones of an estimator, or a fitted model.
"""
