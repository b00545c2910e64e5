"""Mutation check: the fraction of small wrong changes that the tests detect. Run ``python -m
benchmarks.mutants``."""
