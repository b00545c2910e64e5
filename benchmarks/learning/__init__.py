"""Kernel learning, compared with widths chosen by cross-validation, and on the experiments of papers."""
