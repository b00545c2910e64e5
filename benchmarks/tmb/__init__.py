"""Figures 1–3 of the TMB paper, and its three systems beside the main path."""
