"""The share of small wrong changes to the lower floors that the tests find: ``python -m benchmarks.mutants``."""
