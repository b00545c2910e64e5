"""Benchmarks that support the claims in the README. Run each module with ``python -m
benchmarks.NAME --help``."""
