"""The compared methods: construction, cross-validation grid, and number of vectors.

partirvm     ``RVMClassifier`` at a width of the grid; options may follow its name: ``partirvm moderate=True``
learned      ``RVMClassifier`` with defaults: kernel learning, no cross-validation
fastrvm      ``fastrvm.RVC`` with a bias (PyPI, a compiled fast marginal likelihood RVM; one-vs-rest, softmax of scores)
svc          ``SVC`` in ``CalibratedClassifierCV(ensemble=False)``: one SVC on all rows, a sigmoid of 5-fold scores
nystroem     ``LogisticRegression`` on 200 Nystroem features
gp           ``GaussianProcessClassifier``: Laplace, width and amplitude by evidence; up to 1,000 rows
boosting     ``HistGradientBoostingClassifier``, the number of trees by cross-validation

Kernel methods share one grid of widths: gamma = 2^p / d with p = −7 … 4, on standardised inputs,
for which 1/(d·var) is 1/d. In addition, svc and nystroem choose C from 1, 10 and 100.
"""

from __future__ import annotations

import ast
import importlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from benchmarks.estimator_parameters import grouped

POWERS = tuple(range(-7, 5))
"""The binary logarithms of gamma·d in the grid of widths."""

COSTS = (1.0, 10.0, 100.0)

COMPONENTS = 200

TREES = (25, 50, 100, 200)

Parameters = dict[str, Any]


def widths(features: int) -> list[Parameters]:
    """Return the grid of Gaussian widths."""
    return [{"gamma": 2.0**power / features} for power in POWERS]


def widths_and_costs(features: int) -> list[Parameters]:
    """Return the grid of widths, combined with every C."""
    return [{**width, "C": cost} for width in widths(features) for cost in COSTS]


def nothing(features: int) -> list[Parameters]:
    """Return a grid without parameters."""
    return [{}]


def length(features: int) -> list[Parameters]:
    """Return the initial length scale, which equals gamma = 1/d; the evidence is maximised from
    this value."""
    return [{"length_scale": (0.5 * features) ** 0.5}]


def trees(features: int) -> list[Parameters]:
    """Return the grid of numbers of boosting iterations."""
    return [{"max_iter": number} for number in TREES]


@dataclass(frozen=True)
class Method:
    """A method of the comparison: constructor, grid of parameters for d features, and vectors of a
    fitted estimator.

    ``vectors`` returns the points (n, d), their number if the points are unknown, or None.
    ``quick`` contains parameters for cross-validation only. ``max_rows`` is the maximum number of
    training rows. ``borrows`` names the method whose chosen parameters are used.
    """

    name: str
    make: Callable[[Parameters, int], Any]
    grid: Callable[[int], list[Parameters]]
    vectors: Callable[[Any, Any], Any]
    max_rows: int | None = None
    needs: str = "sklearn"
    quick: Parameters = field(default_factory=dict)
    borrows: str | None = None

    def missing(self) -> bool:
        """Return True if the required package, or the required name in the package, is missing."""
        module, _, name = self.needs.partition(":")
        try:
            return bool(name) and not hasattr(importlib.import_module(module), name)
        except ImportError:
            return True


def make_svc(parameters: Parameters, seed: int) -> Any:
    """Make a support vector machine with Platt's probabilities."""
    from sklearn.calibration import CalibratedClassifierCV
    from sklearn.svm import SVC

    return CalibratedClassifierCV(SVC(**parameters), ensemble=False)


def make_nystroem(parameters: Parameters, seed: int) -> Any:
    """Make a logistic regression on Nystroem features; the number of features is at most the number
    of rows."""
    from sklearn.kernel_approximation import Nystroem
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline

    features = Nystroem(gamma=parameters["gamma"], n_components=COMPONENTS, random_state=seed)
    return make_pipeline(features, LogisticRegression(C=parameters["C"], max_iter=1000))


def make_gp(parameters: Parameters, seed: int) -> Any:
    """Make a Gaussian process with k = a·exp(−r²/2l²); a and l are chosen by evidence, without
    cross-validation."""
    from sklearn.gaussian_process import GaussianProcessClassifier
    from sklearn.gaussian_process.kernels import RBF, ConstantKernel

    kernel = ConstantKernel(1.0, (1e-2, 1e4)) * RBF(parameters["length_scale"], (1e-1, 1e2))
    return GaussianProcessClassifier(kernel, random_state=seed)


def make_boosting(parameters: Parameters, seed: int) -> Any:
    """Make a gradient boosting of trees."""
    from sklearn.ensemble import HistGradientBoostingClassifier

    return HistGradientBoostingClassifier(**parameters, early_stopping=False, random_state=seed)


def make_fastrvm(parameters: Parameters, seed: int) -> Any:
    """Make fastrvm's RVC, which has no seed."""
    from fastrvm import RVC

    return RVC(kernel="rbf", fit_intercept=True, **parameters)


def make_partirvm(options: Parameters) -> Callable[[Parameters, int], Any]:
    """Return a constructor of ``RVMClassifier`` with the given options."""

    def make(parameters: Parameters, seed: int) -> Any:
        from partirvm import RVMClassifier

        return RVMClassifier(random_state=seed, **grouped({**options, **parameters}))

    return make


METHODS = {
    method.name: method
    for method in (
        Method(
            "partirvm", make_partirvm({}), widths, lambda fitted, X: fitted.relevance_vectors_,
            needs="partirvm:RVMClassifier",
        ),
        Method(
            "learned", make_partirvm({}), nothing, lambda fitted, X: fitted.relevance_vectors_,
            needs="partirvm:RVMClassifier",
        ),
        Method(
            "fastrvm", make_fastrvm, widths, lambda fitted, X: fitted.relevance_vectors_, max_rows=5000,
            needs="fastrvm:RVC", quick={"max_iter": 1000},
        ),
        Method(
            "svc", make_svc, widths_and_costs, lambda fitted, X: X[fitted.calibrated_classifiers_[0].estimator.support_]
        ),
        Method("nystroem", make_nystroem, widths_and_costs, lambda fitted, X: fitted[0].components_),
        Method("gp", make_gp, length, lambda fitted, X: len(X), max_rows=1000),
        Method("boosting", make_boosting, trees, lambda fitted, X: None),
    )
}  # fmt: skip


def value_of(text: str) -> Any:
    """Convert a text to a Python value; a text that is not a literal is returned unchanged.

    >>> value_of("True"), value_of("0.5"), value_of("working-set")
    (True, 0.5, 'working-set')
    """
    try:
        return ast.literal_eval(text)
    except (SyntaxError, ValueError):
        return text


def method_of(name: str) -> Method:
    """Return the method of a name, or ``partirvm`` with the options after the name. Raises
    ``KeyError`` for an unknown name.

    >>> method_of("partirvm moderate=True").borrows
    'partirvm'
    """
    first, *words = name.split()
    if not words:
        return METHODS[first]
    if first != "partirvm" or not all("=" in word for word in words):
        raise KeyError(name)
    options = {key: value_of(text) for key, _, text in (word.partition("=") for word in words)}
    own = METHODS["partirvm"]
    most = BASIC_ROWS if options.get("strategy") == "basic" else None
    return Method(
        name, make_partirvm(options), own.grid, own.vectors, most, own.needs, borrows="partirvm"
    )


BASIC_ROWS = 4000
"""Maximum number of training rows for the strategy in which every row is a candidate."""
