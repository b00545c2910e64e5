"""Comparison with RVMs of other libraries and other Bayesian regressions: ``python -m benchmarks.peers``."""
