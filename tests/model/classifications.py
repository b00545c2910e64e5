"""Models of classes made of numbers, for tests of what follows from them."""

from __future__ import annotations

import numpy as np

from partirvm.kernels import Gaussian
from partirvm.kernels.design import Design
from partirvm.model import ClassModel
from partirvm.types import Columns, Scaling

LABELS = {
    "text": ("blue", "n/a", "réd"),
    "numbers": (-3, 0, 7),
    "fractions": (0.1, 0.25, 2.5),
    "mixed": (1, "a", "b"),
}
"""Three labels of each type; the truth values are only two."""


def classifier(likelihood="multinomial", classes=LABELS["text"], *, m=5, bias=True, moderate=True, seed=0):
    """A model of any numbers, of two features; in every predictor but the first a column is missing."""
    rng = np.random.default_rng(seed)
    M, outputs = m + bias, 1 if likelihood == "bernoulli" else len(classes)
    scaling = Scaling(rng.normal(size=2), rng.uniform(0.5, 2, 2), np.zeros(1), np.ones(1))
    design = Design(Gaussian((0.4, 0.7)), scaling, rng.normal(size=(m, 2)), rng.permutation(100)[:m], bias)
    mean, alpha = 2 * rng.normal(size=(M, outputs)), rng.uniform(0.1, 1e9, (M, outputs))
    root = np.tril(rng.normal(size=(outputs, M, M)))
    for k in range(1, outputs if M else 0):
        mean[k % M, k], alpha[k % M, k], root[k, k % M] = 0.0, np.inf, 0.0
    columns = Columns(("x0", "x1"), "kind", {}, tuple(classes))
    return ClassModel(design, mean, root, alpha, -12.345678901234567, 10**6, columns, likelihood, moderate)
