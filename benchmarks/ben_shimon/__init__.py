"""Ben-Shimon & Shmilovici (2006) measured again: ``python -m benchmarks.ben_shimon --help``."""
