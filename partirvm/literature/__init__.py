"""Systems of the sources beyond the main path, for comparisons with the literature. No other part imports them.

Each module states what it builds on: estimator clones, or a fitted model.
"""
