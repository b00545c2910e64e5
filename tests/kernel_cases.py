"""All kernels for three features, each with its pairwise formula, for all kernel tests."""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import combinations

import naive
import numpy as np
from sklearn.gaussian_process.kernels import Matern
from sklearn.metrics.pairwise import laplacian_kernel, polynomial_kernel

from partirvm.kernels import (
    Anova,
    Categorical,
    Directions,
    FunctionKernel,
    Gaussian,
    Kernel,
    Laplacian,
    Linear,
    LinearSpline,
    Matern32,
    Matern52,
    OnColumns,
    Polynomial,
    Product,
    Sum,
)

D = 3


def cauchy(X, Z):
    """Return 1/(1 + ‖x − z‖²), a kernel that a user names as ``kernel_cases:cauchy``."""
    return 1 / (1 + (np.abs(X[:, None] - Z[None]) ** 2).sum(axis=-1))


def narrow(X, Z):
    """Return points of the wrong shape, so that this is not a kernel."""
    return X


def unknown(X, Z):
    """Return NaN, so that this is not a kernel."""
    return np.full((len(X), len(Z)), np.nan)


def matern(nu, gamma):
    """Return scikit-learn's Matérn kernel with length scales 1/√gamma."""
    return lambda X, Z: Matern(length_scale=1 / np.sqrt(gamma), nu=nu)(X, Z)


def spline(X, Z):
    """Return the kernel in Tipping (2001), eq. 29, as printed."""
    x = X[:, None]
    z = Z[None]
    least = np.minimum(x, z)
    return (1 + x * z + x * z * least - (x + z) / 2 * least**2 + least**3 / 3).prod(axis=-1)


def categorical(*gamma):
    """Return exp(−Σ_j gamma_j [x_j ≠ z_j])."""
    return lambda X, Z: np.exp(-(np.array(gamma) * (X[:, None] != Z[None])).sum(axis=-1))


def subsets(shares, order=None):
    """Yield the non-empty subsets of features, of up to ``order``."""
    for size in range(1, (order or len(shares)) + 1):
        yield from combinations(range(len(shares)), size)


def anova(shares, of_feature, order=None):
    """Return Σ_S Π_{j ∈ S} a_j k_j / Σ_S Π_{j ∈ S} a_j, for ``of_feature(X[:, [j]], Z[:, [j]], j)``."""

    def twin(X, Z):
        terms = [a * of_feature(X[:, [j]], Z[:, [j]], j) for j, a in enumerate(shares)]
        products = (np.prod([terms[j] for j in each], axis=0) for each in subsets(shares, order))
        return sum(products) / sum(
            np.prod([shares[j] for j in each]) for each in subsets(shares, order)
        )

    return twin


def portions(shares, order=None):
    """Return, for each feature, the part of Σ_S Π_{j ∈ S} a_j whose subsets contain it."""
    every = {each: np.prod([shares[j] for j in each]) for each in subsets(shares, order)}
    of_feature = [sum(a for each, a in every.items() if j in each) for j in range(len(shares))]
    return np.array(of_feature) / sum(every.values())


@dataclass(frozen=True)
class Case:
    """A kernel for ``D`` features and its formula for points (n, d) and centres (m, d).

    ``distant`` kernels depend only on x − z, ``unit`` kernels lie between 0 and 1, ``mercer``
    kernels are positive semi-definite; ``relevances`` are the relevances of the ``D`` features.
    """

    name: str
    kernel: Kernel
    twin: Callable
    distant: bool = False
    unit: bool = False
    mercer: bool = True
    relevances: tuple | None = None


def falling(name, kernel, twin, relevances):
    """Return a kernel that decreases from 1 with the distance."""
    return Case(name, kernel, twin, distant=True, unit=True, relevances=relevances)


WIDTHS = (0.1, 0.0, 2.0)
ALL = (0.2, 0.4, 1.0)
ARD = np.array(WIDTHS)
AXES = np.array([[0.6, 0.8, 0.0], [-0.5, 0.2, 1.0]])

CASES = [
    falling("gaussian", Gaussian((0.5,)), lambda X, Z: naive.gaussian(X, Z, 0.5), (0.5,) * 3),
    falling("gaussian, widths", Gaussian(WIDTHS), lambda X, Z: naive.gaussian(X, Z, ARD), WIDTHS),
    falling("laplacian", Laplacian((0.5,)), lambda X, Z: laplacian_kernel(X, Z, 0.5), (0.5,) * 3),
    falling(
        "laplacian, widths",
        Laplacian(WIDTHS),
        lambda X, Z: laplacian_kernel(X * ARD, Z * ARD, 1.0),
        WIDTHS,
    ),
    falling("matern32", Matern32((0.5,)), matern(1.5, 0.5), (0.5,) * 3),
    falling("matern32, widths", Matern32(ALL), matern(1.5, ALL), ALL),
    falling("matern52", Matern52((0.5,)), matern(2.5, 0.5), (0.5,) * 3),
    falling("matern52, widths", Matern52(ALL), matern(2.5, ALL), ALL),
    falling("categorical", Categorical((0.5,)), categorical(0.5, 0.5, 0.5), (0.5,) * 3),
    falling("categorical, costs", Categorical(WIDTHS), categorical(*WIDTHS), WIDTHS),
    falling(
        "directions",
        Directions(Gaussian((0.5, 2.0)), AXES, free=True),
        lambda X, Z: naive.gaussian(X @ AXES.T, Z @ AXES.T, np.array((0.5, 2.0))),
        tuple(0.5 * AXES[0] ** 2 + 2.0 * AXES[1] ** 2),
    ),
    falling(
        "one width along directions",
        Directions(Matern32(0.5), AXES),
        lambda X, Z: matern(1.5, 0.5)(X @ AXES.T, Z @ AXES.T),
        tuple(0.5 * (AXES**2).sum(axis=0)),
    ),
    falling(
        "on columns",
        OnColumns(Gaussian((2.0, 0.1)), (2, 0)),
        lambda X, Z: naive.gaussian(X, Z, ARD),
        WIDTHS,
    ),
    falling(
        "product",
        Product(
            (
                OnColumns(Laplacian((0.4, 0.3)), (0, 1)),
                OnColumns(Categorical(0.7), (2,)),
                Gaussian(0.2),
            )
        ),
        lambda X, Z: (
            laplacian_kernel(X * (0.4, 0.3, 0), Z * (0.4, 0.3, 0), 1.0)
            * categorical(0, 0, 0.7)(X, Z)
            * naive.gaussian(X, Z, 0.2)
        ),
        (0.6, 0.5, 0.9),
    ),
    Case(
        "sum",
        Sum((Gaussian(0.5), OnColumns(Matern32(0.3), (1,))), (0.7, 2.0)),
        lambda X, Z: 0.7 * naive.gaussian(X, Z, 0.5) + 2 * matern(1.5, 0.3)(X[:, [1]], Z[:, [1]]),
        distant=True,
        relevances=(0.35, 0.95, 0.35),
    ),
    Case(
        "sum of products",
        Sum(
            (
                Product((Polynomial(0.2, 2), Linear())),
                Sum((Laplacian(0.3), LinearSpline()), (0.0, 1.0)),
            )
        ),
        lambda X, Z: polynomial_kernel(X, Z, degree=2, gamma=0.2) * (X @ Z.T) + spline(X, Z),
        mercer=False,
    ),
    falling(
        "anova",
        Anova(0.5),
        anova((1 / 3,) * 3, lambda X, Z, j: naive.gaussian(X, Z, 0.5)),
        tuple(0.5 * portions((1 / 3,) * 3)),
    ),
    falling(
        "anova, widths and shares",
        Anova(ALL, (0.5, 0.0, 3.0)),
        anova((0.5, 0.0, 3.0), lambda X, Z, j: naive.gaussian(X, Z, ALL[j])),
        tuple(ALL * portions((0.5, 0.0, 3.0))),
    ),
    falling(
        "anova, matern32, one share",
        Anova(ALL, 0.7, base="matern32"),
        anova((0.7,) * 3, lambda X, Z, j: matern(1.5, ALL[j])(X, Z)),
        tuple(ALL * portions((0.7,) * 3)),
    ),
    falling(
        "anova, laplacian, tiny shares",
        Anova(WIDTHS, (1e-12, 2e-12, 5e-13), base="laplacian"),
        anova(
            (1e-12, 2e-12, 5e-13), lambda X, Z, j: laplacian_kernel(X, Z, WIDTHS[j] or 1e-300), 1
        ),
        tuple(WIDTHS * portions((1e-12, 2e-12, 5e-13))),
    ),
    falling(
        "anova, pairs and a category",
        Anova(ALL, (0.5, 2.0, 1.0), order=2, categorical=(2,)),
        anova(
            (0.5, 2.0, 1.0),
            lambda X, Z, j: categorical(ALL[j])(X, Z) if j == 2 else naive.gaussian(X, Z, ALL[j]),
            2,
        ),
        tuple(ALL * portions((0.5, 2.0, 1.0), 2)),
    ),
    falling(
        "anova, effects of single features",
        Anova(ALL, (0.5, 2.0, 1.0), base="matern52", order=1),
        anova((0.5, 2.0, 1.0), lambda X, Z, j: matern(2.5, ALL[j])(X, Z), 1),
        (0.2 / 7, 0.4 * 4 / 7, 2 / 7),
    ),
    Case("linear", Linear(), lambda X, Z: X @ Z.T),
    Case(
        "polynomial",
        Polynomial(0.4),
        lambda X, Z: polynomial_kernel(X, Z, 3, 0.4, 1),
        relevances=(0.4,) * 3,
    ),
    Case(
        "polynomial, widths",
        Polynomial(WIDTHS, 6, 0.5),
        lambda X, Z: (X * ARD @ Z.T + 0.5) ** 6,
        relevances=WIDTHS,
    ),
    Case("linear spline", LinearSpline(), spline, mercer=False),
    Case("named function", FunctionKernel("kernel_cases:cauchy"), cauchy, distant=True, unit=True),
    Case("callable", FunctionKernel(cauchy), cauchy, distant=True, unit=True),
]
"""Cases with every kernel at least once."""


def slopes(function, kernel, step):
    """Return ∂ function(kernel) / ∂ log parameter (p,) from fourth-order differences; 0 for a
    parameter of 0."""
    found = np.zeros(len(kernel.logs))
    for k in np.flatnonzero(np.isfinite(kernel.logs)):
        ends = kernel.logs + step * np.outer([1, -1, 2, -2], np.eye(len(found))[k])
        up, down, far_up, far_down = (function(kernel.with_logs(logs)) for logs in ends)
        found[k] = (8 * (up - down) - (far_up - far_down)) / (12 * step)
    return found


NAMED = [case for case in CASES if case.name != "callable"]
"""Cases with a spec."""

IMPOSSIBLE = {
    "anova": [
        {},
        {"gamma": [0.0]},
        {"gamma": "learn"},
        *(
            {"gamma": [1.0], "shares": shares}
            for shares in ([0.0], [-1.0], [np.nan], [np.inf], "1", [[1.0]], None, 1e7, 1e-40)
        ),
        *({"gamma": [1.0], "base": base} for base in ("linear", "anova", "sum", "", None, 3)),
        *({"gamma": [1.0], "order": order} for order in (0, -1, 1.5, True, "2")),
        *(
            {"gamma": [1.0], "categorical": positions}
            for positions in ([0, 0], [-1], [0.5], [True], "0", 3, None)
        ),
    ],
    "gaussian": [
        {"gamma": gamma} for gamma in ([], [0.0, 0.0], [1.0, -1.0], [np.nan], [1e308], "learn", {})
    ],
    "laplacian": [{"gamma": [-1.0]}, {}, {"gamma": [1.0], "length": 3}],
    "matern32": [{"gamma": [0.0]}, {"gamma": None}],
    "matern52": [{"gamma": [0.0]}, {"gamma": [[1.0]]}],
    "categorical": [{"gamma": [np.nan]}],
    "polynomial": [
        {"gamma": [-1.0]},
        *({"gamma": [1.0], "degree": degree} for degree in (0, -1, 1.5, True, "3")),
        *({"gamma": [1.0], "coef0": coef0} for coef0 in (-1.0, np.inf, "1", None)),
    ],
    "linear": [{"gamma": [1.0]}],
    "linear-spline": [{"gamma": [1.0]}],
    "sum": [
        *({"parts": parts} for parts in ([], "gaussian", [3.0], [{"name": "nothing"}])),
        *(
            {"parts": [{"name": "linear"}], "weights": given}
            for given in ([-1.0], [0.0], [np.inf], ["1"], [1.0, 2.0])
        ),
    ],
    "several": [
        {"kernels": []},
        {"kernels": [{"name": "linear"}, {"name": "linear"}]},
        {"kernels": [{"name": "several", "kernels": [{"name": "linear"}]}]},
        {"kernels": [{"name": "linear"}], "weights": [1.0]},
    ],
    "product": [{"parts": []}, {"parts": [{"name": "gaussian", "gamma": [0.0]}]}],
    "columns": [
        {"kernel": {"name": "linear"}},
        {"kernel": "linear", "columns": [0]},
        *(
            {"kernel": {"name": "linear"}, "columns": columns}
            for columns in ([], [0, 0], [-1], [0.5], [True], "0", 3)
        ),
    ],
    "directions": [
        {"kernel": {"name": "gaussian", "gamma": [1.0]}},
        {"kernel": {"name": "linear"}, "axes": [[1.0]]},
        {
            "kernel": {"name": "gaussian", "gamma": [1.0, 2.0, 3.0]},
            "axes": [[1.0, 0.0], [0.0, 1.0]],
        },
        *(
            {"kernel": {"name": "gaussian", "gamma": [1.0]}, "axes": axes}
            for axes in ([], [[]], [1.0], [[np.nan]], [[1.0], [1.0, 2.0]], "1", None)
        ),
    ],
    "function": [
        {},
        *(
            {"function": path}
            for path in ("module", "module:", ":name", "a b:c", "os.path:", 3, None)
        ),
    ],
}
"""Fields of a spec that are impossible, for every kernel by name."""
