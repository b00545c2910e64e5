"""Formulas for the memory and the run time of a fit, and the plan computed from them. Pure
arithmetic."""
