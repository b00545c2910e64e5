"""Small regression problems, and fitted models in the form that dense formulas need."""

import naive
import numpy as np
from numpy.random import default_rng
from scipy.stats import norm


def sinc(n=100, noise=0.1, seed=0):
    """Return Tipping's example: sin(x)/x on [−10, 10] with noise of this standard deviation."""
    rng = default_rng(seed)
    X = rng.uniform(-10, 10, size=(n, 1))
    return X, np.sinc(X[:, 0] / np.pi) + noise * rng.normal(size=n)


def plane(n=300, d=3, noise=0.1, seed=0):
    """Return a smooth function of several inputs."""
    rng = default_rng(seed)
    X = rng.normal(size=(n, d))
    return X, 5 + np.sin(X[:, 0]) + 0.5 * X[:, -1] + noise * rng.normal(size=n)


def plain_deviation(model, X):
    """Return the deviation of a new target by the posterior at the most probable noise (Tipping,
    eq. 22)."""
    lower, upper = model.predict_interval(X, 0.5, hyperparameters=False)
    return (upper - lower) / 2 / norm.ppf(0.75)


def design_of(model, X):
    """Return the design of a fitted Gaussian model at raw rows, by pairwise differences."""
    design = model.model_.design
    x, z = (
        (rows - design.scaling.x_shift) / design.scaling.x_scale for rows in (X, design.centres)
    )
    return np.hstack(
        [np.ones((len(X), int(design.bias))), naive.gaussian(x, z, np.array(design.kernel.gamma))]
    )


class Dense:
    """A target of a fitted model for use in dense formulas, in units of its scaling.

    ``problem`` holds the arguments (Φ, t, α, β) of these formulas.
    """

    def __init__(self, model, X, y, Phi=None, target=0):
        scaling = model.model_.design.scaling
        self.shift = scaling.t_shift[target]
        self.scale = scaling.t_scale[target]
        self.Phi = design_of(model, X) if Phi is None else Phi
        self.t = (y - self.shift) / self.scale
        self.alpha = model.model_.alpha
        self.beta = self.scale**2 / np.atleast_1d(model.model_.evidence_noise)[target]
        self.problem = (self.Phi, self.t, self.alpha, self.beta)
