"""RVMs of other libraries, and other Bayesian regressions, beside ours: ``python -m benchmarks.peers``."""
