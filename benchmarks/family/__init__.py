"""Repetition of small examples of RVM papers and of other libraries: ``python -m benchmarks.family``."""
