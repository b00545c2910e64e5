"""Functions that a file names are not called, whichever library restored the objects, until they
are allowed.

Fields of our own objects are forged before they are written: the function leaves a trace when its
module is imported. The default run takes a part of the cases; all are

    python -m pytest -m slow tests/integrity/test_forged_functions.py
"""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
from dataclasses import replace

import joblib
import numpy as np
import pytest
from by_default import some
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, cross_val_score

from partirvm import RVMRegressor, allow_functions, load_model, save_model
from partirvm.errors import PartirvmError, UsageError
from partirvm.kernels import (
    FunctionKernel,
    Gaussian,
    LinearSpline,
    OnColumns,
    Product,
    Several,
    Sum,
    permission,
)
from partirvm.kernels.design import LocalNoise
from partirvm.kernels.functions import Basis
from partirvm.model import files

MODULE = """
from pathlib import Path
(Path(__file__).parent / "imported").touch()
import numpy as np
def kernel(X, Z):
    return np.exp(-((X[:, None] - Z[None]) ** 2).sum(axis=2))
def basis(X):
    return np.sin(X)
"""

RNG = np.random.default_rng(0)
X = RNG.normal(size=(60, 3))
Y = X[:, 0] + 0.1 * RNG.normal(size=60)

NAME = "forged_code:kernel"
OF_BASIS = "forged_code:basis"


@pytest.fixture
def trace(tmp_path, monkeypatch):
    """The file that appears when the module of the functions is imported; nothing is permitted at
    the start."""
    folder = tmp_path / "code"
    folder.mkdir()
    (folder / "forged_code.py").write_text(MODULE)
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.setenv("PYTHONPATH", str(folder), prepend=":")
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    sys.modules.pop("forged_code", None)
    permission._allowed.clear()
    permission._called.clear()
    yield folder / "imported"
    sys.modules.pop("forged_code", None)
    permission._allowed.clear()
    permission._called.clear()


def fitted():
    return RVMRegressor(gamma=0.5, basis="linear", max_rounds=1, random_state=0).fit(X, Y)


def with_design(model, **changed):
    model.model_ = replace(model.model_, design=replace(model.model_.design, **changed))
    return model


def with_parameters(model, **parameters):
    model.__dict__.update(parameters)
    return model


def shadowed(model, name, value):
    """Put an attribute that is no field into the state of the design."""
    model.model_.design.__dict__[name] = value
    return model


def spline_with(function):
    """Return a kernel with an attribute that has the name of its class's function."""
    kernel = LinearSpline()
    kernel.__dict__["function"] = function
    return kernel


FUNCTION = FunctionKernel(NAME)
COLUMN = OnColumns(FUNCTION, (0,))

FORGERIES = {
    "kernel": lambda m: with_design(m, kernel=FUNCTION),
    "part of a sum": lambda m: with_design(m, kernel=Sum((Gaussian(0.5), COLUMN))),
    "part of a product": lambda m: with_design(m, kernel=Product((Gaussian(0.5), FUNCTION))),
    "one of several": lambda m: with_design(m, kernel=Several((FUNCTION, Gaussian(0.5)))),
    "columns": lambda m: with_design(m, kernel=COLUMN),
    "basis": lambda m: with_design(m, functions=Basis(((OF_BASIS, 3),))),
    "basis beside features": lambda m: with_design(
        m, functions=Basis((("linear", 3), (OF_BASIS, 3)))
    ),
    "noise": lambda m: with_design(m, noise=LocalNoise(FUNCTION, X[:3], np.ones(3), 0.0)),
    "parameter kernel": lambda m: with_parameters(m, kernel=NAME),
    "parameter list": lambda m: with_parameters(m, kernel=["gaussian", NAME]),
    "parameter value": lambda m: with_parameters(m, kernel=FUNCTION),
    "parameter sum": lambda m: with_parameters(m, kernel=Sum((Gaussian(0.5), FUNCTION))),
    "parameter basis": lambda m: with_parameters(m, basis=OF_BASIS),
    "parameter basis list": lambda m: with_parameters(m, basis=["linear", OF_BASIS]),
    "learned kernel": lambda m: with_parameters(m, kernel_=FUNCTION),
    "history": lambda m: with_parameters(
        m, history_=[{**m.history_[0], "kernel": NAME, "basis": [OF_BASIS]}]
    ),
    "function of a class": lambda m: with_design(m, kernel=spline_with(NAME)),
    "cached value": lambda m: shadowed(m, "_prepared", FUNCTION),
    "method": lambda m: shadowed(m, "block", FUNCTION),
    "set_params": lambda m: m.set_params(kernel=NAME, gamma="learn"),
}


def by_joblib(model, place):
    joblib.dump(model, place)
    return joblib.load(place)


def by_pickle(model, place):
    place.write_bytes(pickle.dumps(model))
    return pickle.loads(place.read_bytes())


def by_skops(model, place):
    skops = pytest.importorskip("skops.io")
    stored = skops.dumps(model)
    trusted = skops.get_untrusted_types(data=stored)
    assert all(name.startswith("partirvm.") for name in trusted)
    return skops.loads(stored, trusted=trusted)


def by_load_model(model, place):
    save_model(model, place)
    return load_model(place)


def by_mlflow(model, place):
    """What MLflow calls to load the files of ``partirvm.integrations.mlflow.log_model``."""
    from partirvm.integrations.mlflow import _load_pyfunc

    save_model(model, place)
    return _load_pyfunc(str(place))


def by_mlflow_runs(model, place):
    """What MLflow logs to a tracking store of files, and loads from it."""
    mlflow = pytest.importorskip("mlflow")
    from partirvm.integrations.mlflow import log_model

    mlflow.set_tracking_uri((place / "runs").as_uri())
    with mlflow.start_run():
        made = log_model(model, "any", X[:3])
    return mlflow.pyfunc.load_model(made.model_uri)


DOORS = {
    "skops": by_skops,
    "joblib": by_joblib,
    "pickle": by_pickle,
    "load_model": by_load_model,
    "mlflow": by_mlflow,
    "mlflow runs": by_mlflow_runs,
}

CASES = [(door, forgery) for door in DOORS for forgery in FORGERIES]
QUICK = [
    (door, name)
    for door in ("skops", "joblib")
    for name in ("part of a sum", "basis", "parameter kernel")
]
QUICK += [("load_model", "kernel"), ("mlflow", "noise"), ("pickle", "parameter value")]


def use(model):
    """Whatever somebody does with a model; errors of partirvm are expected."""
    uses = [
        lambda: model.predict(X),
        lambda: model.predict(X, return_std=True),
        lambda: model.model_.design.block(X),
        lambda: model.explain(X[:2], X),
        lambda: copy.deepcopy(model).predict(X),
        lambda: pickle.loads(pickle.dumps(model)).predict(X),
        lambda: model.prune(3).predict(X),
        lambda: clone(model).fit(X, Y),
        lambda: copy.copy(model).fit(X, Y),
        lambda: RVMRegressor(kernel=model.kernel_, max_rounds=1).fit(X, Y),
        lambda: model.fit(X, Y),
    ]
    for each in uses:
        try:
            each()
        except (PartirvmError, AttributeError, TypeError, ValueError):
            continue


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("door", "forgery"), some(CASES, QUICK))
def test_a_forged_function_is_not_called(door, forgery, trace, tmp_path):
    model = FORGERIES[forgery](fitted())
    try:
        found = DOORS[door](model, tmp_path / "file")
    except PartirvmError:
        found = None
    if found is not None:
        use(found)
    assert not trace.exists()


@pytest.mark.filterwarnings("ignore")
def test_skops_constructs_nothing_that_is_permitted(trace):
    """It calls constructors with arguments from a file, for objects whose pickles do; so could a
    forged file."""
    skops = pytest.importorskip("skops.io")

    class Forged(FunctionKernel):
        def __reduce__(self):
            return type(self), (self.function,)

    Forged.__module__ = FunctionKernel.__module__
    Forged.__qualname__ = Forged.__name__ = "FunctionKernel"
    model = with_design(fitted(), kernel=Forged(NAME))
    stored = skops.dumps(model)
    found = skops.loads(stored, trusted=skops.get_untrusted_types(data=stored))
    assert type(found.model_.design.kernel) is FunctionKernel
    use(found)
    assert not trace.exists()


def test_the_error_names_the_function_and_what_to_do(trace, tmp_path):
    found = by_joblib(FORGERIES["kernel"](fitted()), tmp_path / "m")
    with pytest.raises(
        UsageError, match=r"forged_code:kernel comes from a file.*allow_functions\('forged_code"
    ):
        found.predict(X)
    found = by_joblib(FORGERIES["parameter basis"](fitted()), tmp_path / "m")
    with pytest.raises(UsageError, match=r"basis forged_code:basis comes from a file"):
        found.fit(X, Y)
    assert not trace.exists()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("door", some(DOORS, {"skops", "load_model"}))
def test_allowed_functions_are_called(door, trace, tmp_path):
    """After ``allow_functions``, whichever library restored the estimator; it predicts what the
    original predicts."""
    model = RVMRegressor(kernel=NAME, max_rounds=1, random_state=0).fit(X, Y)
    permission._called.clear()
    allow_functions(NAME)
    found = DOORS[door](model, tmp_path / "file")
    if "mlflow" not in door:
        np.testing.assert_array_equal(found.predict(X), model.predict(X))
        np.testing.assert_array_equal(clone(found).fit(X, Y).predict(X), model.predict(X))


@pytest.mark.parametrize("name", ["no colon", "", 3, "a:b; import os", None])
def test_only_names_are_allowed(name):
    with pytest.raises(UsageError, match="pass 'module:function'"):
        allow_functions(name)


def radial(A, B):
    return np.exp(-((A[:, None] - B[None]) ** 2).sum(axis=2))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "kernel", [NAME, FunctionKernel(NAME), Sum((Gaussian(0.5), FunctionKernel(NAME)))]
)
def test_copies_and_searches_keep_permission(kernel, trace):
    """clone and copies in this process, and a search in two worker processes, need nothing more."""
    model = RVMRegressor(kernel=kernel, max_rounds=1, random_state=0)
    expected = clone(model).fit(X, Y).predict(X)
    for made in (copy.copy(model), copy.deepcopy(model), clone(clone(model))):
        np.testing.assert_array_equal(made.fit(X, Y).predict(X), expected)
        np.testing.assert_array_equal(copy.deepcopy(made).predict(X), expected)
        np.testing.assert_array_equal(copy.deepcopy(made.model_).predict(X), expected)
    search = GridSearchCV(model, {"max_rounds": [1, 2]}, cv=2, n_jobs=2, error_score="raise").fit(
        X, Y
    )
    np.testing.assert_array_equal(search.best_estimator_.predict(X).shape, (60,))


@pytest.mark.filterwarnings("ignore")
def test_callables_and_names_in_a_grid_reach_workers(trace):
    grid = {"kernel": [NAME, FunctionKernel(NAME), radial, "gaussian"]}
    search = GridSearchCV(
        RVMRegressor(max_rounds=1, random_state=0), grid, cv=2, n_jobs=2, error_score="raise"
    )
    scores = search.fit(X, Y).cv_results_["mean_test_score"]
    assert np.ptp(scores[:3]) == 0
    same = cross_val_score(
        RVMRegressor(kernel=radial, max_rounds=1, random_state=0), X, Y, cv=2, n_jobs=2
    )
    assert same.mean() == scores[0]


@pytest.mark.filterwarnings("ignore")
def test_a_pickle_of_a_callable_works(tmp_path, trace):
    """A callable is part of the pickle, which runs code anyway."""
    model = RVMRegressor(kernel=radial, max_rounds=1, random_state=0).fit(X, Y)
    for door in (by_joblib, by_pickle):
        found = door(model, tmp_path / "m")
        np.testing.assert_array_equal(found.predict(X), model.predict(X))
        np.testing.assert_array_equal(clone(found).fit(X, Y).predict(X), model.predict(X))


@pytest.mark.slow
def test_another_program_needs_permission(tmp_path, trace):
    """A pickle in a file, opened by a program that this process did not start as a worker."""
    joblib.dump(RVMRegressor(kernel=NAME, max_rounds=1, random_state=0).fit(X, Y), tmp_path / "m")
    allowed = "import partirvm; partirvm.allow_functions('forged_code:kernel');"
    for before, status in (("", 1), (allowed, 0)):
        code = f"{before}import joblib; joblib.load('m').predict([[0.0, 0.0, 0.0]])"
        python = [sys.executable, "-c", code]
        done = subprocess.run(python, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == status, done.stderr
        assert ("allow_functions" in done.stderr) == (status == 1)


def test_files_are_read_with_permission(trace, tmp_path):
    model = RVMRegressor(kernel=NAME, max_rounds=1, random_state=0).fit(X, Y)
    save_model(model, tmp_path / "m")
    with pytest.raises(UsageError, match="allow_code=True"):
        files.load_model(tmp_path / "m")
    permission._called.clear()
    np.testing.assert_array_equal(
        load_model(tmp_path / "m", allow_code=True).predict(X), model.predict(X)
    )
