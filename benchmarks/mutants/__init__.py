"""Mutation check: the fraction of small wrong changes that the tests find. Run ``python -m benchmarks.mutants``."""
