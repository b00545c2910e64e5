"""Kernels that learn themselves, beside a width chosen by cross-validation."""
