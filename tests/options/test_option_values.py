"""Options as values: the request they make, scikit-learn's conventions, what is refused."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV

import partirvm
from benchmarks.estimator_parameters import grouped
from partirvm import (
    AlphaPrior,
    Auto,
    Fast,
    FixedPoint,
    Gaussian,
    Incremental,
    Laplacian,
    Matern52,
    Noise,
    RVMClassifier,
    RVMRegressor,
    Sample,
    WorkingSet,
    kernels,
)
from partirvm.core.termination import Termination
from partirvm.errors import PartirvmWarning, UsageError
from partirvm.options import Request
from partirvm.options.value import flat
from partirvm.options.values import VALUES

ASKED = {
    "working set": (
        {"strategy": WorkingSet(selection="gain", stop_fraction=0.25)},
        {"strategy": "working-set", "selection": "gain", "stop_fraction": 0.25},
    ),
    "sample": (
        {"strategy": Incremental(fit_rows=Sample(rows=70), heuristic_rows=90)},
        {
            "strategy": "incremental",
            "fit_rows": "sample",
            "sample_rows": 70,
            "heuristic_rows": 90,
        },
    ),
    "kernel": (
        {"kernel": Gaussian(gamma="learn-per-feature", prior="half-normal", multiples=(1, 8), metric="low-rank")},
        {
            "kernel": "gaussian",
            "metric": "low-rank",
            "gamma": "learn-per-feature",
            "gamma_prior": "half-normal",
            "gamma_multiples": (1.0, 8.0),
        },
    ),
    "widths": ({"kernel": Matern52(np.array([0.5, 2.0]))}, {"kernel": "matern52", "gamma": [0.5, 2.0]}),
    "solvers": ({"solver": FixedPoint(max_iterations=9)}, {"solver": "fixed-point", "max_iterations": 9}),
    "fast": ({"solver": Fast()}, {"solver": "fast"}),
    "noise": ({"noise_variance": Noise(prior=(1, 2))}, {"noise_prior": (1.0, 2.0)}),
    "precisions": (
        {"alpha_prior": AlphaPrior(1, 2, fixed={"bias": 1e-6})},
        {"alpha_prior": (1.0, 2.0), "fixed_alpha": {"bias": 1e-6}},
    ),
}


@pytest.mark.parametrize("case", ASKED)
def test_values_make_the_request_of_the_flags(case):
    """Both faces make the same flat request."""
    given, expected = ASKED[case]
    asked = RVMRegressor(**given, random_state=0).parameters()
    assert asked == replace(Request(classify=False), **expected)


@pytest.mark.parametrize("case", ASKED)
def test_grouped_is_the_inverse(case):
    _, expected = ASKED[case]
    made = RVMRegressor(**grouped(expected), random_state=0).parameters()
    assert replace(made, solver="auto") == replace(Request(classify=False), **{**expected, "solver": "auto"})


@pytest.mark.parametrize("kind", VALUES)
def test_values_keep_scikit_learns_conventions(kind):
    """clone, get_params and set_params; equal by what they hold; public names."""
    made = kind()
    assert getattr(partirvm, kind.__name__) is kind
    assert clone(made) == made
    assert clone(made) is not made
    assert set(made.get_params(deep=False)) == {each.name for each in fields(kind)}
    assert made.set_params(**made.get_params(deep=False)) is made
    with pytest.raises(ValueError, match=f"{kind.__name__} has no 'nothing'; known: "):
        made.set_params(nothing=1)


def test_nested_names():
    """As scikit-learn writes them, two deep; a clone has values of its own."""
    model = RVMRegressor(strategy=WorkingSet(fit_rows=Sample(30)), kernel=Gaussian())
    other = clone(model).set_params(strategy__selection="gain", strategy__fit_rows__rows=40, kernel__gamma=0.5)
    assert other.strategy == WorkingSet("gain", fit_rows=Sample(40))
    assert model.strategy == WorkingSet(fit_rows=Sample(30))
    assert other.get_params()["strategy__fit_rows__rows"] == 40
    assert clone(RVMClassifier(kernel=Gaussian(0.5))).kernel == Gaussian(0.5)


@pytest.mark.filterwarnings("ignore::partirvm.errors.PartirvmWarning")
def test_grid_search_over_nested_names():
    rng = np.random.default_rng(0)
    X = rng.uniform(-3, 3, size=(60, 1))
    y = np.sin(X[:, 0]) + 0.1 * rng.normal(size=60)
    model = RVMRegressor(strategy=WorkingSet(), partition_size=20, kernel=Gaussian(), random_state=0)
    grid = {"strategy__selection": ["random", "error"], "kernel__gamma": [0.5, 500.0]}
    search = GridSearchCV(model, grid, cv=2).fit(X, y)
    assert search.best_params_["kernel__gamma"] == 0.5
    assert search.best_estimator_.gamma_ == 0.5


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"strategy": WorkingSet(selection="all")}, r"WorkingSet\.selection is 'all'; known: auto, error"),
        ({"strategy": WorkingSet(fit_rows="half")}, r"WorkingSet\.fit_rows is 'half'; known: auto, full"),
        ({"strategy": Incremental(fit_rows=Sample(0))}, r"Sample\.rows is 0: it must be a whole number ≥ 1 or 'auto'"),
        ({"strategy": Incremental(stop_fraction=1.5)}, r"Incremental\.stop_fraction is 1\.5: .*≥ 0 and < 1"),
        ({"strategy": "workingset"}, "strategy is 'workingset'; known: auto, basic"),
        ({"strategy": WorkingSet}, "strategy is the class WorkingSet: give a value"),
        ({"strategy": Gaussian()}, r"strategy is Gaussian\(.*which is a value of kernel"),
        ({"kernel": WorkingSet()}, "which is a value of strategy"),
        ({"strategy": WorkingSet(fit_rows=Noise())}, "WorkingSet.fit_rows is Noise.*a value of noise_variance"),
        ({"kernel": Gaussian(0.5), "gamma": 2.0}, r"gamma is 2\.0, and the value Gaussian\(gamma=0\.5.* has its own"),
        ({"kernel": Gaussian(), "gamma": "learn"}, "gamma is 'learn', and the value Gaussian.*leave gamma out"),
        ({"kernel": kernels.Gaussian(0.5), "gamma": 2.0}, "gamma is 2.0, but the kernel has its own"),
        ({"kernel": Gaussian(-1.0)}, "gamma of the gaussian kernel is .*positive"),
        ({"kernel": ["linear", Gaussian()]}, "in a list give kernels with numbers, such as partirvm.kernels.Gaussian"),
        ({"noise_variance": Noise((1,))}, r"Noise\.prior is \(1,\): it must be two numbers"),
        ({"alpha_prior": AlphaPrior(-1.0)}, r"each of \(AlphaPrior\.shape, AlphaPrior\.rate\) is -1\.0"),
    ],
)
def test_what_is_refused(asked, message):
    """Before anything is fitted, by the names that were written."""
    X = np.random.default_rng(0).normal(size=(30, 2))
    with pytest.raises(UsageError, match=message):
        RVMRegressor(**asked).fit(X, X[:, 0])


def test_max_iterations_end_a_fit():
    """The last fit ends there, and says why; the default lets it converge."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-3, 3, size=(80, 1))
    y = np.sin(X[:, 0]) + 0.1 * rng.normal(size=80)
    asked = {"gamma": 0.5, "strategy": "basic", "random_state": 0}
    with pytest.warns(PartirvmWarning):
        model = RVMRegressor(solver=FixedPoint(max_iterations=3), **asked).fit(X, y)
    assert model.termination_ is Termination.ITERATIONS
    assert model.history_[-1]["iterations"] == 3
    assert RVMRegressor(solver=FixedPoint(), **asked).fit(X, y).history_[-1]["iterations"] > 3


def test_names_that_moved_are_no_parameters():
    """As any other wrong name."""
    with pytest.raises(TypeError, match="unexpected keyword argument 'selection'"):
        RVMRegressor(selection="gain")


def test_defaults_may_be_given_beside_a_value():
    """gamma="auto" is what an estimator has anyway."""
    assert flat({"kernel": Gaussian(2.0), "gamma": "auto"})["gamma"] == 2.0


SCRIPT = """
import partirvm
from partirvm import AlphaPrior, FixedPoint, Gaussian, Noise, RVMClassifier, RVMRegressor, Sample, WorkingSet
from partirvm import ingest, load_model, open_job, plan, save_model, submit

RVMRegressor(strategy=WorkingSet(selection="gain", fit_rows=Sample(rows=50)), kernel=Gaussian("learn"), gamma=0.5)
RVMClassifier(strategy="working-set", solver=FixedPoint(max_iterations=9), moderate=True, class_weight={"a": 2.0})
asked = RVMRegressor(noise_variance=Noise(prior=(50.0, 0.5)), alpha_prior=AlphaPrior(fixed={"bias": 1e-6}))
fitted = asked.fit("d.zarr")
mean, std = fitted.predict([[0.0]], return_std=True)
lower, upper = fitted.predict_interval([[0.0]], 0.95)
count: int = fitted.n_relevance_vectors_
advice: str = fitted.termination_.advice
print(fitted.noise_variance_, fitted.log_evidence_, fitted.get_params(), fitted.set_params(tol=1e-6), fitted.history_)
fitted.set_fit_request(sample_weight=True).partial_fit([[0.0]], [0.0]).score([[0.0]], [0.0])
RVMClassifier().fit([[0.0]], ["a"], sample_weight=[1.0]).classes_
save_model(fitted, "m.rvm", storage_options=None)
load_model("m.rvm").predict([[0.0]])
ingest(([[0.0]], [0.0]), "d.zarr")
job = submit(RVMRegressor(), "d.zarr", "jobs/run1")
print(plan(RVMRegressor(), "d.zarr"), open_job("jobs/run1").status(), job.model(), partirvm.__version__)

# The lines below are wrong.
RVMRegressor(strategy="workingset")
RVMRegressor(strategy=WorkingSet(selection="gains"))
RVMRegressor(solver="newton")
RVMRegressor(gamma="learnt")
RVMClassifier(multi_class="ovo")
RVMRegressor(kernal="gaussian")
RVMClassifier(noise="local")
WorkingSet(select="gain")
fitted.n_relevance_vector_
RVMClassifier().fit([[0.0]], ["a"]).class_
fitted.predct([[0.0]])
open_job("jobs/run1").staus()
load_model("m.rvm").predct([[0.0]])
"""


@pytest.mark.slow
def test_a_type_checker_finds_wrong_options_and_names(tmp_path):
    """mypy --strict of a user's script: the lines after the comment are wrong, the others right."""
    pytest.importorskip("mypy")
    (tmp_path / "script.py").write_text(SCRIPT)
    asked = [sys.executable, "-m", "mypy", "--strict", "--follow-imports=silent", "--ignore-missing-imports"]
    asked += ["--cache-dir", str(tmp_path / "cache"), "script.py"]
    where = {**os.environ, "MYPYPATH": str(Path(partirvm.__file__).parents[1])}
    found = subprocess.run(asked, capture_output=True, text=True, cwd=tmp_path, env=where, check=False)
    lines = [line for line in found.stdout.splitlines() if ": error:" in line]
    script = SCRIPT.splitlines()
    wrong = range(script.index("# The lines below are wrong.") + 2, len(script) + 1)
    assert sorted({int(line.split(":")[1]) for line in lines}) == list(wrong), found.stdout + found.stderr
    kinds = {"arg-type", "call-arg", "attr-defined", "union-attr"}
    assert {line.rpartition("[")[2].rstrip("]") for line in lines} == kinds


def test_values_are_equal_by_their_fields():
    """Arrays of numbers, too, as scikit-learn's clone and caches compare them."""
    assert Gaussian(np.array([1.0, 2.0])) == Gaussian([1.0, 2.0]) != Gaussian([1.0, 3.0])
    assert Gaussian() != Laplacian()
    assert WorkingSet(fit_rows=Sample(5)) == WorkingSet(fit_rows=Sample(5)) != WorkingSet(fit_rows=Sample(6))


@pytest.mark.parametrize("solver", [Auto, Fast])
def test_every_solver_has_its_limit_of_iterations(solver):
    """As ``--solver S --max-iterations 7``; the solver stays what it is."""
    found = flat({"solver": solver(max_iterations=7)})
    assert (found["solver"], found["max_iterations"]) == (solver.name, 7)


def test_a_nested_name_of_a_word_is_refused():
    """The message says that a value is needed, which a grid search by nested names has to begin with."""
    with pytest.raises(UsageError, match=r"strategy is 'auto'.*give a value first"):
        RVMRegressor().set_params(strategy__selection="gain")
    with pytest.raises(UsageError, match=r"WorkingSet.fit_rows is 'auto', which has no 'rows'"):
        WorkingSet().set_params(fit_rows__rows=5)
    chosen = RVMRegressor().set_params(strategy=WorkingSet(), strategy__selection="gain")
    assert chosen.strategy == WorkingSet(selection="gain")
