"""Systems of the sources beyond the main path, for comparisons with the literature. No other part imports them.

Each module stands on the seam that it states: ``basis=`` of the estimators, a fitted model, or a registry (solvers,
links, likelihoods). ``benchmarks/LITERATURE.md`` has the results.
"""
