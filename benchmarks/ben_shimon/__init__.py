"""The experiments of Ben-Shimon & Shmilovici (2006), repeated: ``python -m benchmarks.ben_shimon --help``."""
