"""Methods from the literature that are not on the main path, for comparisons. No other part imports
them.

Each module says what it builds on: estimator clones, or a fitted model.
"""
