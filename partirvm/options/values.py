"""Option values: strategies, kernels, solvers, noise and priors, each with its own options.

``RVMRegressor(strategy=WorkingSet(selection="gain"))`` is the same as
``--strategy working-set --selection gain`` on the command line. Each field of a value is one option of the table
(``options.table``) and has the default and the check of that option. Values have scikit-learn's ``get_params`` and
``set_params``, so that ``clone`` copies them and ``GridSearchCV`` finds ``strategy__selection``. A fit does not change
its option values.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal, TypeAlias

from partirvm.options import names
from partirvm.options.table import TABLE
from partirvm.options.value import Value, held


@dataclass(eq=False)
class Sample(Value):
    """Fits see one random sample of ``rows`` rows, which all of them share; "auto" is 20·P.

    Examples
    --------
    >>> import numpy as np
    >>> from partirvm import RVMRegressor, Sample, SplitMerge
    >>> X = np.linspace(-5, 5, 400)[:, None]
    >>> y = np.sinc(X[:, 0]) + 0.05 * np.random.default_rng(0).normal(size=len(X))
    >>> model = RVMRegressor(gamma=2.0, strategy=SplitMerge(fit_rows=Sample(200)), partition_size=50).fit(X, y)
    >>> model.history_[0]["rows"], model.history_[-1]["rows"]
    (200, 400)
    """

    name = "sample"
    of = ("fit_rows",)
    rows: int | names.Auto = held("sample_rows")


@dataclass(eq=False)
class Growing(Value):
    """Intermediate fits use a random sample of at least 100 rows per column, which grows with the columns.

    It begins with ``rows`` rows; "auto" is 100·P.

    Examples
    --------
    >>> import numpy as np
    >>> from partirvm import Growing, RVMRegressor, WorkingSet
    >>> X = np.linspace(-5, 5, 400)[:, None]
    >>> y = np.sinc(X[:, 0]) + 0.05 * np.random.default_rng(0).normal(size=len(X))
    >>> strategy = WorkingSet(fit_rows=Growing(100))
    >>> model = RVMRegressor(gamma=2.0, strategy=strategy, partition_size=10, max_rounds=3).fit(X, y)
    >>> model.history_[0]["rows"] < model.history_[-1]["rows"]
    True
    """

    name = "growing"
    of = ("fit_rows",)
    rows: int | names.Auto = held("sample_rows")


@dataclass(eq=False)
class Strategy(Value):
    """Base of the strategies."""

    of = ("strategy",)


@dataclass(eq=False)
class Basic(Strategy):
    """One fit with every row as a candidate, for some thousand rows; the reference.

    Examples
    --------
    >>> import numpy as np
    >>> from partirvm import Basic, RVMRegressor
    >>> X = np.linspace(-5, 5, 100)[:, None]
    >>> y = np.sinc(X[:, 0]) + 0.05 * np.random.default_rng(0).normal(size=len(X))
    >>> model = RVMRegressor(gamma=2.0, strategy=Basic()).fit(X, y)
    >>> len(model.history_), model.n_relevance_vectors_ < 50
    (1, True)
    """

    name = "basic"


@dataclass(eq=False)
class SplitMerge(Strategy):
    """Partitions of P rows are fitted side by side, and their vectors are merged in pairs.

    Parameters
    ----------
    fit_rows : {"auto", "full", "growing", "sample"}, Growing or Sample
        Rows that the posterior of an intermediate fit uses: all; a random sample that grows with the number of columns
        (not of split-merge); or one random sample. "auto" is "full", or of many rows
        "growing" for the working set and "sample" for split-merge and incremental.
    stop_fraction : float in [0, 1)
        Intermediate fits end when the vectors fall to this fraction of the candidates.
    heuristic_rows : int
        Most rows on which ``partition_size="auto"`` measures.

    Examples
    --------
    >>> import numpy as np
    >>> from partirvm import RVMRegressor, SplitMerge
    >>> X = np.linspace(-5, 5, 200)[:, None]
    >>> y = np.sinc(X[:, 0]) + 0.05 * np.random.default_rng(0).normal(size=len(X))
    >>> model = RVMRegressor(gamma=2.0, strategy=SplitMerge(stop_fraction=0.6), partition_size=50).fit(X, y)
    >>> model.score(X, y) > 0.95
    True
    """

    name = "split-merge"
    fit_rows: names.FitRows | Sample = held("fit_rows")
    stop_fraction: float = held("stop_fraction")
    heuristic_rows: int = held("heuristic_rows")


@dataclass(eq=False)
class Incremental(Strategy):
    """Partitions join the kept vectors one after the other, each as candidates.

    Parameters are those of ``SplitMerge``.

    Examples
    --------
    >>> import numpy as np
    >>> from partirvm import Incremental, RVMRegressor
    >>> X = np.linspace(-5, 5, 200)[:, None]
    >>> y = np.sinc(X[:, 0]) + 0.05 * np.random.default_rng(0).normal(size=len(X))
    >>> model = RVMRegressor(gamma=2.0, strategy=Incremental(), partition_size=50).fit(X, y)
    >>> len(model.history_)
    4
    """

    name = "incremental"
    fit_rows: names.FitRows | Growing | Sample = held("fit_rows")
    stop_fraction: float = held("stop_fraction")
    heuristic_rows: int = held("heuristic_rows")


@dataclass(eq=False)
class WorkingSet(Strategy):
    """Rounds in which the P most promising rows join the vectors kept so far.

    Parameters
    ----------
    selection : {"auto", "error", "largest-error", "random", "gain"}
        Next candidates: the rows of largest error among 20·P random rows or among all, random ones, those of largest
        evidence gain in a random pool. Mislabelled rows have the largest errors. "auto" is "error", and "gain" for
        classes.
    fit_rows, stop_fraction, heuristic_rows
        As of ``SplitMerge``.

    Examples
    --------
    >>> import numpy as np
    >>> from partirvm import RVMRegressor, WorkingSet
    >>> X = np.linspace(-5, 5, 500)[:, None]
    >>> y = np.sinc(X[:, 0]) + 0.05 * np.random.default_rng(0).normal(size=len(X))
    >>> strategy = WorkingSet(selection="gain")
    >>> model = RVMRegressor(gamma=2.0, strategy=strategy, partition_size=20, max_rounds=3).fit(X, y)
    >>> [entry["kind"] for entry in model.history_]
    ['round', 'round', 'final']
    """

    name = "working-set"
    selection: names.Selection = held("selection")
    fit_rows: names.FitRows | Growing | Sample = held("fit_rows")
    stop_fraction: float = held("stop_fraction")
    heuristic_rows: int = held("heuristic_rows")


@dataclass(eq=False)
class Solver(Value):
    """Base of the solvers."""

    of = ("solver",)


@dataclass(eq=False)
class Auto(Solver):
    """The fixed point. In the last fit of a regression, deleted columns return while this raises the evidence.

    Parameters
    ----------
    max_iterations : int or None
        Maximum number of iterations of a regression fit, or of passes of a classification fit. None means 500
        iterations or 200 passes.

    Examples
    --------
    >>> import numpy as np
    >>> from partirvm import Auto, RVMRegressor
    >>> X = np.linspace(-5, 5, 100)[:, None]
    >>> y = np.sinc(X[:, 0]) + 0.05 * np.random.default_rng(0).normal(size=len(X))
    >>> RVMRegressor(gamma=2.0, solver=Auto(max_iterations=200)).fit(X, y).score(X, y) > 0.95
    True
    """

    name = "auto"
    max_iterations: int | None = held("max_iterations")


@dataclass(eq=False)
class FixedPoint(Solver):
    """All precisions are updated together.

    Parameters
    ----------
    max_iterations : int or None
        As of ``Auto``.

    Examples
    --------
    >>> import numpy as np
    >>> from partirvm import FixedPoint, RVMRegressor
    >>> X = np.linspace(-5, 5, 100)[:, None]
    >>> y = np.sinc(X[:, 0]) + 0.05 * np.random.default_rng(0).normal(size=len(X))
    >>> RVMRegressor(gamma=2.0, solver=FixedPoint(max_iterations=200)).fit(X, y).score(X, y) > 0.95
    True
    """

    name = "fixed-point"
    max_iterations: int | None = held("max_iterations")


@dataclass(eq=False)
class Fast(Solver):
    """Each step adds, deletes or re-estimates the one column that gains most evidence (Tipping & Faul 2003).

    Parameters
    ----------
    actions : {"best", "random"}
        Order of the steps: the one with the largest gain, or a random one of those that gain.
    max_iterations : int or None
        The same as for ``Auto``.

    Examples
    --------
    >>> import numpy as np
    >>> from partirvm import Fast, RVMRegressor
    >>> X = np.linspace(-5, 5, 100)[:, None]
    >>> y = np.sinc(X[:, 0]) + 0.05 * np.random.default_rng(0).normal(size=len(X))
    >>> RVMRegressor(gamma=2.0, solver=Fast(actions="best")).fit(X, y).score(X, y) > 0.85
    True
    """

    name = "fast"
    actions: names.Actions = held("actions")
    max_iterations: int | None = held("max_iterations")


@dataclass(eq=False)
class Noise(Value):
    """Noise that is estimated under a prior.

    Parameters
    ----------
    prior : pair of float
        Shape and rate (c, d) of a Gamma prior on the noise precision 1/σ². It acts like 2c additional rows with a sum
        of squared residuals of 2d, in the squared unit of the target. (0, 0) is flat in log σ².

    Examples
    --------
    >>> import numpy as np
    >>> from partirvm import Noise, RVMRegressor
    >>> X = np.linspace(-5, 5, 100)[:, None]
    >>> y = np.sinc(X[:, 0]) + 0.05 * np.random.default_rng(0).normal(size=len(X))
    >>> known = RVMRegressor(gamma=2.0, noise_variance=Noise(prior=(1e6, 1e4)), noise="constant").fit(X, y)
    >>> round(float(known.model_.evidence_noise), 3)  # the prior has the mean 0.01 and outweighs 100 rows
    0.01
    """

    name = "estimate"
    of = ("noise_variance",)
    prior: tuple[float, float] = held("noise_prior")


@dataclass(eq=False)
class AlphaPrior(Value):
    """Gamma prior on the precision α of each weight, and precisions that are given.

    Parameters
    ----------
    shape, rate : float
        Shape and rate for the standardised problem (Tipping 2001, appendix A). (0, 0) is flat in log α. With a positive
        rate no α becomes infinite: a vector is deleted if this raises the sum of the log evidence and the log prior.
        Kernel learning does not use this prior.
    fixed : None or dict of str and float
        Precisions that are not updated, by the name of their basis function: "bias" or another of ``basis_names_``.
        These basis functions are never deleted.

    Examples
    --------
    >>> import numpy as np
    >>> from partirvm import AlphaPrior, RVMRegressor
    >>> X = np.linspace(-5, 5, 100)[:, None]
    >>> y = np.sinc(X[:, 0]) + 0.05 * np.random.default_rng(0).normal(size=len(X))
    >>> model = RVMRegressor(gamma=2.0, alpha_prior=AlphaPrior(fixed={"bias": 1e-6})).fit(X, y)
    >>> dict(zip(model.basis_names_, model.basis_alpha_.tolist()))
    {'bias': 1e-06}
    """

    name = "gamma"
    of = ("alpha_prior",)
    shape: float = TABLE["alpha_prior"].default[0]
    rate: float = TABLE["alpha_prior"].default[1]
    fixed: Mapping[str, float] | None = held("fixed_alpha")

    def flat(self, given_for: str) -> dict[str, Any]:
        """Return the checked shape and rate, and the fixed precisions."""
        self._require(given_for)
        density = TABLE["alpha_prior"].check("(AlphaPrior.shape, AlphaPrior.rate)", (self.shape, self.rate))
        return {"alpha_prior": density, "fixed_alpha": TABLE["fixed_alpha"].check("AlphaPrior.fixed", self.fixed)}


@dataclass(eq=False)
class KernelFamily(Value):
    """A kernel family, whose gamma is learned, computed from the data or given.

    A fit turns it into a kernel of ``partirvm.kernels`` with fixed numbers. Instead of a family, such a kernel or a sum
    of such kernels can be given.

    Parameters
    ----------
    gamma : {"auto", "scale", "learn", "learn-per-feature"}, float or array of shape (d,)
        Width(s), as the estimators' ``gamma``.
    prior : {"flat", "half-normal", "half-normal-gamma"}
        Prior of the gamma of each feature, if gamma is learned per feature. "half-normal" is a prior on the square
        roots with one precision per feature; it switches off more features than "flat". "half-normal-gamma" is a prior
        on gamma itself, as of PFCVM in the TMB paper.
    multiples : sequence of float
        Several widths at once, for targets with structure of several sizes, such as (1, 8, 64): each candidate row
        offers one basis function for each of these multiples of gamma. If gamma is learned, the multiples are the
        start.
    """

    of = ("kernel",)
    gamma: names.Gamma = held("gamma")
    prior: names.GammaPrior = held("gamma_prior")
    multiples: Sequence[float] = held("gamma_multiples")


@dataclass(eq=False)
class Radial(KernelFamily):
    """A kernel of a distance: the Gaussian or Matérn family of largest evidence, if gamma is learned.

    Parameters
    ----------
    metric : {"auto", "widths", "directions", "low-rank"}
        Learned distances: a width per feature; learned combinations of the features, each with its width; a few such
        combinations beside the features; or "auto", which takes directions where they predict better.

    The other parameters are those of ``KernelFamily``.

    Examples
    --------
    >>> import numpy as np
    >>> from partirvm import RVMRegressor, Radial
    >>> X = np.linspace(-5, 5, 100)[:, None]
    >>> y = np.sinc(X[:, 0]) + 0.05 * np.random.default_rng(0).normal(size=len(X))
    >>> model = RVMRegressor(kernel=Radial(metric="widths")).fit(X, y)
    >>> type(model.kernel_).__name__ in {"Gaussian", "Matern32", "Matern52"}
    True
    """

    name = "auto"
    metric: names.Metric = held("metric")


class Gaussian(Radial):
    """``k(x, z) = exp(−Σ_j gamma_j (x_j − z_j)²)``.

    Examples
    --------
    >>> import numpy as np
    >>> from partirvm import Gaussian, RVMRegressor
    >>> X = np.linspace(-5, 5, 100)[:, None]
    >>> y = np.sinc(X[:, 0]) + 0.05 * np.random.default_rng(0).normal(size=len(X))
    >>> model = RVMRegressor(kernel=Gaussian(gamma=2.0, multiples=(1, 4))).fit(X, y)
    >>> model.score(X, y) > 0.95
    True
    """

    name = "gaussian"


class Laplacian(KernelFamily):
    """``k(x, z) = exp(−Σ_j gamma_j |x_j − z_j|)``.

    Examples
    --------
    >>> import numpy as np
    >>> from partirvm import Laplacian, RVMRegressor
    >>> X = np.linspace(-5, 5, 100)[:, None]
    >>> y = np.sinc(X[:, 0]) + 0.05 * np.random.default_rng(0).normal(size=len(X))
    >>> model = RVMRegressor(kernel=Laplacian(gamma=0.5), strategy="working-set", partition_size=20, max_rounds=1)
    >>> model.set_params(random_state=0).fit(X, y).score(X, y) > 0.8
    True
    """

    name = "laplacian"


class Matern32(Radial):
    """Matérn kernel of smoothness 3/2.

    Examples
    --------
    >>> import numpy as np
    >>> from partirvm import Matern32, RVMRegressor
    >>> X = np.linspace(-5, 5, 100)[:, None]
    >>> y = np.sinc(X[:, 0]) + 0.05 * np.random.default_rng(0).normal(size=len(X))
    >>> model = RVMRegressor(kernel=Matern32(gamma=1.0)).fit(X, y)
    >>> model.score(X, y) > 0.95
    True
    """

    name = "matern32"


class Matern52(Radial):
    """Matérn kernel of smoothness 5/2.

    Examples
    --------
    >>> import numpy as np
    >>> from partirvm import Matern52, RVMRegressor
    >>> X = np.linspace(-5, 5, 100)[:, None]
    >>> y = np.sinc(X[:, 0]) + 0.05 * np.random.default_rng(0).normal(size=len(X))
    >>> model = RVMRegressor(kernel=Matern52(gamma=1.0)).fit(X, y)
    >>> model.score(X, y) > 0.95
    True
    """

    name = "matern52"


class Polynomial(KernelFamily):
    """``k(x, z) = (Σ_j gamma_j x_j z_j + 1)³``; of another degree give ``partirvm.kernels.Polynomial``.

    Examples
    --------
    >>> import numpy as np
    >>> from partirvm import Polynomial, RVMRegressor
    >>> X = np.linspace(-5, 5, 100)[:, None]
    >>> y = X[:, 0] ** 3 - 10 * X[:, 0] + np.random.default_rng(0).normal(size=len(X))
    >>> model = RVMRegressor(kernel=Polynomial(gamma=1.0)).fit(X, y)
    >>> model.score(X, y) > 0.95
    True
    """

    name = "polynomial"


class Sigmoid(KernelFamily):
    """``k(x, z) = tanh(Σ_j gamma_j x_j z_j + coef0)``, as ``partirvm.kernels.Sigmoid`` has it by default.

    Examples
    --------
    >>> import numpy as np
    >>> from partirvm import RVMRegressor, Sigmoid
    >>> X = np.linspace(-5, 5, 100)[:, None]
    >>> y = np.tanh(X[:, 0]) + 0.05 * np.random.default_rng(0).normal(size=len(X))
    >>> model = RVMRegressor(kernel=Sigmoid(gamma=1.0)).fit(X, y)
    >>> model.score(X, y) > 0.95
    True
    """

    name = "sigmoid"


class Categorical(KernelFamily):
    """Categories that agree or not: ``Π_j exp(−gamma_j [x_j ≠ z_j])``.

    Examples
    --------
    >>> import numpy as np
    >>> from partirvm import Categorical, RVMRegressor
    >>> X = np.stack(np.meshgrid(np.arange(6), np.arange(7)), axis=-1).reshape(-1, 2)  # two codes
    >>> y = np.array([0.0, 3.0, -1.0, 5.0, 2.0, 4.0])[X[:, 0]] + 0.1 * np.random.default_rng(0).normal(size=42)
    >>> model = RVMRegressor(kernel=Categorical(gamma=(2.0, 0.01)), standardize=False, noise_variance=0.01).fit(X, y)
    >>> model.predict([[0, 3], [1, 3], [2, 3]]).round().astype(int)
    array([ 0,  3, -1])
    """

    name = "categorical"


StrategyName: TypeAlias = Literal["auto", "basic", "split-merge", "incremental", "working-set"]
STRATEGIES = (Basic, SplitMerge, Incremental, WorkingSet)
SOLVERS = (Auto, FixedPoint, Fast)
FAMILIES = (Radial, Gaussian, Laplacian, Matern32, Matern52, Polynomial, Sigmoid, Categorical)
VALUES: tuple[type[Value], ...] = (
    *STRATEGIES,
    Growing,
    Sample,
    *SOLVERS,
    Noise,
    AlphaPrior,
    *FAMILIES,
)
"""Every value that an estimator may be given."""


def written(parameters: Mapping[str, Any], name: str) -> str:
    """Return the name of the option ``name`` of the table as an estimator with these parameters writes it.

    >>> written({"strategy": WorkingSet(fit_rows="sample")}, "fit_rows"), written({"gamma": 1.0}, "gamma")
    ('WorkingSet.fit_rows', 'gamma')
    """
    given = list(parameters.values())
    given += [own for each in given if isinstance(each, Value) for own in vars(each).values()]
    types = [type(each) for each in given if isinstance(each, Value)]
    for each in types if name in parameters else (*types, *VALUES):
        for place in fields(each):
            if place.metadata["option"] == name:
                return f"{each.__name__}.{place.name}"
    return name
