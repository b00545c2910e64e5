"""Benchmarks: what the README claims, measured. Each module runs by itself: ``python -m benchmarks.NAME --help``."""
