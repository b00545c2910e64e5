"""The small examples of RVM papers and of other libraries, repeated: ``python -m benchmarks.family``."""
