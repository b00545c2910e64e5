"""Benchmarks for the claims of the README. Each module runs by itself: ``python -m benchmarks.NAME --help``."""
