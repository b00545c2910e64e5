"""Replication of the experiments of Ben-Shimon & Shmilovici (2006): ``python -m
benchmarks.ben_shimon --help``."""
