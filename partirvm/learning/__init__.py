"""Kernel learning: candidate kernels, the evidence that compares them, and small fits on a sample
of rows."""
