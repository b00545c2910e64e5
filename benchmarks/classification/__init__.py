"""Comparison of probabilistic classifiers: error, log loss, calibration, vectors, time and
memory."""
