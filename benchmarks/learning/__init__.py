"""Kernel learning compared with cross-validated widths, and on experiments from papers."""
