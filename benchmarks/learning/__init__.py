"""Kernels that learn themselves: beside a width chosen by cross-validation, and on the experiments of papers."""
