"""The small examples of the papers on RVMs and of other libraries, measured again: ``python -m benchmarks.family``."""
