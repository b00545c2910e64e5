"""Small regression problems."""

import naive
import numpy as np
from scipy.stats import norm


def sinc(n=100, noise=0.1, seed=0):
    """Tipping's example: sin(x)/x on [−10, 10] with noise of this sd."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-10, 10, size=(n, 1))
    return X, np.sinc(X[:, 0] / np.pi) + noise * rng.normal(size=n)


def plane(n=300, d=3, noise=0.1, seed=0):
    """A smooth function of several inputs."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    return X, 5 + np.sin(X[:, 0]) + 0.5 * X[:, -1] + noise * rng.normal(size=n)


def plain_deviation(model, X):
    """Standard deviation of a new target by the posterior alone, at the noise of maximum evidence
    (Tipping, eq. 22)."""
    lower, upper = model.predict_interval(X, 0.5, hyperparameters=False)
    return (upper - lower) / 2 / norm.ppf(0.75)


def design_of(model, X):
    """The design of a fitted Gaussian model at raw rows, by pairwise differences scaled by the
    model's own moments."""
    design = model.model_.design
    x, z = (
        (rows - design.scaling.x_shift) / design.scaling.x_scale for rows in (X, design.centres)
    )
    return np.hstack(
        [np.ones((len(X), int(design.bias))), naive.gaussian(x, z, np.array(design.kernel.gamma))]
    )
