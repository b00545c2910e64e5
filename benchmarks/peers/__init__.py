"""Comparison with other libraries' RVMs and other Bayesian regressions: ``python -m
benchmarks.peers``."""
