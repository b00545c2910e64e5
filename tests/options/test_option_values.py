"""Options as values: the resulting request, scikit-learn's conventions, refusals."""

import os
import subprocess
import sys
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest
from numpy.random import default_rng
from sklearn.base import clone

import partirvm
from benchmarks.estimator_parameters import grouped
from partirvm import (
    AlphaPrior,
    Gaussian,
    Incremental,
    Laplacian,
    Matern52,
    Noise,
    Polynomial,
    RVMRegressor,
    WorkingSet,
)
from partirvm.errors import UsageError
from partirvm.kernels import WITH_GAMMA
from partirvm.options import Request
from partirvm.options.values import VALUES

LEARNED = {"gamma": "learn-per-feature", "metric": "directions"}

ASKED = {
    "working set": (
        {"strategy": WorkingSet(selection="gain", stop_fraction=0.25)},
        {"strategy": "working-set", "selection": "gain", "stop_fraction": 0.25},
    ),
    "sample": (
        {"strategy": Incremental(fit_rows="sample", sample_rows=70, stop_fraction=0.9)},
        {"strategy": "incremental", "fit_rows": "sample", "sample_rows": 70, "stop_fraction": 0.9},
    ),
    "kernel": (
        {"kernel": Gaussian(gamma="learn-per-feature", multiples=(1, 8), metric="directions")},
        {"kernel": "gaussian", "gamma_multiples": (1.0, 8.0), **LEARNED},
    ),
    "a default beside a value": (
        {"kernel": Gaussian("scale"), "gamma": "learn"},
        {"kernel": "gaussian", "gamma": "scale"},
    ),
    "noise": ({"noise": Noise(prior=(1, 2))}, {"noise_prior": (1.0, 2.0)}),
    "a given variance": ({"noise": 0.5}, {"noise": 0.5}),
    "precisions": (
        {"alpha_prior": AlphaPrior(1, 2, fixed={"bias": 1e-6})},
        {"alpha_prior": (1.0, 2.0), "fixed_alpha": {"bias": 1e-6}},
    ),
}


@pytest.mark.parametrize("case", ASKED)
def test_values_and_flags_give_the_same_request(case):
    """``grouped`` is the inverse."""
    given, expected = ASKED[case]
    assert RVMRegressor(**given, random_state=0).parameters() == replace(
        Request(classify=False), **expected
    )
    made = RVMRegressor(**grouped(expected), random_state=0).parameters()
    assert made == replace(Request(classify=False), **expected)


def test_a_family_with_a_numeric_gamma_becomes_a_kernel():
    """Its multiples become options of the request."""
    asked = RVMRegressor(
        kernel=Matern52(np.array([0.5, 2.0]), multiples=(1, 8)), random_state=0
    ).parameters()
    assert asked == replace(
        Request(classify=False), kernel=Matern52((0.5, 2.0)), gamma_multiples=(1.0, 8.0)
    )


@pytest.mark.parametrize("kind", [*VALUES, *WITH_GAMMA.values()])
def test_values_follow_scikit_learns_conventions(kind):
    """They have clone, get_params and set_params, and are compared by value."""
    made = kind()
    assert getattr(partirvm, kind.__name__) is kind
    assert clone(made) == made
    assert clone(made) is not made
    assert set(made.get_params(deep=False)) == {each.name for each in fields(kind)}
    assert made.set_params(**made.get_params(deep=False)) is made
    with pytest.raises(ValueError, match=f"{kind.__name__} has no 'nothing'; known: "):
        made.set_params(nothing=1)


def test_nested_parameters_are_set_by_scikit_learns_names():
    """A clone does not share its values."""
    model = RVMRegressor(strategy=WorkingSet(sample_rows=30), kernel=Gaussian(np.array([1.0, 2.0])))
    other = clone(model).set_params(
        strategy__selection="gain", strategy__sample_rows=40, kernel__gamma=0.5
    )
    assert other.strategy == WorkingSet("gain", sample_rows=40) != WorkingSet("gain")
    assert other.kernel == Gaussian(0.5) != Laplacian(0.5)
    assert model.strategy == WorkingSet(sample_rows=30)
    assert model.kernel == Gaussian([1.0, 2.0])
    assert other.get_params()["strategy__sample_rows"] == 40


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        (
            {"strategy": WorkingSet(selection="all")},
            r"WorkingSet\.selection is 'all'; known: auto, error",
        ),
        (
            {"strategy": Incremental(sample_rows=0)},
            r"Incremental\.sample_rows is 0: it must be a whole number ≥ 1 or",
        ),
        ({"strategy": "workingset"}, "strategy is 'workingset'; known: auto, basic"),
        ({"strategy": WorkingSet}, "strategy is <class .*; known: auto, basic"),
        ({"strategy": Gaussian()}, r"strategy is Gaussian\(.*which is a value of kernel"),
        ({"kernel": Gaussian(0.5), "gamma": 2.0}, "gamma is 2.0, but the kernel has its own"),
        (
            {"kernel": Gaussian(), "gamma": "learn-shared"},
            "gamma is 'learn-shared', and Gaussian.*leave gamma out",
        ),
        (
            {"kernel": Polynomial("scale", 2)},
            r"Polynomial\(gamma='scale', degree=2\) needs a numeric gamma",
        ),
        ({"kernel": ["linear", Gaussian()]}, "must be numbers in a list"),
        (
            {"kernel": ["linear", Gaussian(0.5, multiples=(1, 2))]},
            "must not set multiples or metric here",
        ),
        ({"noise": Noise(prior=(1,))}, r"Noise\.prior is \(1,\): it must be 2 numbers"),
        (
            {"alpha_prior": AlphaPrior(-1.0)},
            r"each of \(AlphaPrior\.shape, AlphaPrior\.rate\) is -1\.0",
        ),
    ],
)
def test_impossible_options_are_refused_by_name(asked, message):
    """They are refused before anything is fitted."""
    X = default_rng(0).normal(size=(30, 2))
    with pytest.raises(UsageError, match=message):
        RVMRegressor(**asked).fit(X, X[:, 0])


SCRIPT = """
import partirvm
from partirvm import AlphaPrior, Gaussian, Noise, RVMClassifier, RVMRegressor, WorkingSet
from partirvm import ingest, load_model, open_job, plan, save_model, submit

RVMRegressor(strategy=WorkingSet(selection="gain", sample_rows=50), kernel=Gaussian("learn"), gamma=0.5)
asked = RVMRegressor(noise=Noise(prior=(50.0, 0.5)), alpha_prior=AlphaPrior(fixed={"bias": 1e-6}))
fitted = asked.fit("d.zarr")
mean, std = fitted.predict([[0.0]], return_std=True)
advice: str = fitted.termination_.advice
print(fitted.noise_variance_, fitted.log_evidence_, fitted.get_params(), fitted.set_params(tol=1e-6), fitted.history_)
fitted.set_fit_request(sample_weight=True).partial_fit([[0.0]], [0.0]).score([[0.0]], [0.0])
save_model(fitted, "m.rvm")
load_model("m.rvm").predict([[0.0]])
ingest(([[0.0]], [0.0]), "d.zarr")
job = submit(RVMRegressor(), "d.zarr", "jobs/run1")
print(plan(RVMRegressor(), "d.zarr"), open_job("jobs/run1").status(), job.model(), partirvm.__version__)

# The lines below are wrong.
RVMRegressor(strategy="workingset")
RVMRegressor(strategy=WorkingSet(selection="gains"))
RVMRegressor(gamma="learnt")
WorkingSet(select="gain")
open_job("jobs/run1").staus()
load_model("m.rvm").predct([[0.0]])
"""


@pytest.mark.slow
def test_a_type_checker_finds_wrong_options_and_names(tmp_path):
    """mypy --strict checks a user's script: only the lines after the comment are wrong."""
    pytest.importorskip("mypy")
    (tmp_path / "script.py").write_text(SCRIPT)
    asked = [
        sys.executable,
        "-m",
        "mypy",
        "--strict",
        "--follow-imports=silent",
        "--ignore-missing-imports",
    ]
    asked += ["--cache-dir", str(tmp_path / "cache"), "script.py"]
    where = {**os.environ, "MYPYPATH": str(Path(partirvm.__file__).parents[1])}
    found = subprocess.run(
        asked, capture_output=True, text=True, cwd=tmp_path, env=where, check=False
    )
    lines = [line for line in found.stdout.splitlines() if ": error:" in line]
    script = SCRIPT.splitlines()
    wrong = range(script.index("# The lines below are wrong.") + 2, len(script) + 1)
    assert sorted({int(line.split(":")[1]) for line in lines}) == list(wrong), (
        found.stdout + found.stderr
    )
    kinds = {"arg-type", "call-arg", "attr-defined", "union-attr"}
    assert {line.rpartition("[")[2].rstrip("]") for line in lines} == kinds
