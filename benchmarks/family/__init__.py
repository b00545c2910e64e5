"""Replication of small examples from RVM papers and other libraries: ``python -m
benchmarks.family``."""
