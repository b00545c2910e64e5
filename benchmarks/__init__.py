"""Benchmarks that support the claims of the README. Run each module by ``python -m benchmarks.NAME --help``."""
