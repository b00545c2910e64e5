"""Functions named in a file are not called until they are allowed, whichever library reads it.

Fields of partirvm's objects are forged before they are written; the function leaves a trace when
its module is imported.
"""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
from contextlib import suppress
from dataclasses import replace

import joblib
import numpy as np
import pytest
from by_default import some
from numpy.random import default_rng
from numpy.testing import assert_array_equal
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, cross_val_score

from partirvm import RVMRegressor, allow_functions, load_model, save_model
from partirvm.errors import PartirvmError, UsageError
from partirvm.kernels import (
    Basis,
    FunctionKernel,
    Gaussian,
    LinearSpline,
    LocalNoise,
    OnColumns,
    Product,
    Several,
    Sum,
    permission,
)
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

RNG = default_rng(0)
X = RNG.normal(size=(60, 3))
Y = X[:, 0] + 0.1 * RNG.normal(size=60)

NAME = "forged_code:kernel"
OF_BASIS = "forged_code:basis"


@pytest.fixture
def trace(tmp_path, monkeypatch):
    """Yield the file that appears when the functions' module is imported."""
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
    """Put an attribute that is not a field into the state of the design."""
    model.model_.design.__dict__[name] = value
    return model


def spline_with(function):
    """Return a kernel with an instance attribute ``function``, which shadows one of its class."""
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
    "basis and features": lambda m: with_design(m, functions=Basis((("linear", 3), (OF_BASIS, 3)))),
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
    """Save a model, and load its files as MLflow does."""
    from partirvm.integrations.mlflow import _load_pyfunc

    save_model(model, place)
    return _load_pyfunc(str(place))


def by_mlflow_runs(model, place):
    """Log an estimator to a file-based tracking store with MLflow, and load it from there."""
    mlflow = pytest.importorskip("mlflow")
    from partirvm.integrations.mlflow import log_model

    mlflow.set_tracking_uri((place / "runs").as_uri())
    with mlflow.start_run():
        logged = log_model(model, "any", X[:3])
    return mlflow.pyfunc.load_model(logged.model_uri)


READERS = {
    "skops": by_skops,
    "joblib": by_joblib,
    "pickle": by_pickle,
    "load_model": by_load_model,
    "mlflow": by_mlflow,
    "mlflow runs": by_mlflow_runs,
}

CASES = [(reader, forgery) for reader in READERS for forgery in FORGERIES]
QUICK = [
    (reader, name)
    for reader in ("skops", "joblib")
    for name in ("part of a sum", "basis", "parameter kernel")
]
QUICK += [("load_model", "kernel"), ("mlflow", "noise"), ("pickle", "parameter value")]


def use(model):
    """Use a model as a user would; errors from partirvm are expected."""
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
    for call in uses:
        try:
            call()
        except (PartirvmError, AttributeError, TypeError, ValueError):
            continue


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("reader", "forgery"), some(CASES, QUICK))
def test_a_forged_function_is_not_called(reader, forgery, trace, tmp_path):
    model = FORGERIES[forgery](fitted())
    with suppress(PartirvmError):
        use(READERS[reader](model, tmp_path / "file"))
    assert not trace.exists()


@pytest.mark.filterwarnings("ignore")
def test_objects_constructed_by_skops_are_not_permitted(trace):
    """skops calls constructors with arguments from a file."""
    skops = pytest.importorskip("skops.io")

    class Forged(FunctionKernel):
        def __reduce__(self):
            return type(self), (self.function,)

    Forged.__module__ = FunctionKernel.__module__
    Forged.__qualname__ = Forged.__name__ = "FunctionKernel"
    model = with_design(fitted(), kernel=Forged(NAME))
    stored = skops.dumps(model)
    loaded = skops.loads(stored, trusted=skops.get_untrusted_types(data=stored))
    assert type(loaded.model_.design.kernel) is FunctionKernel
    use(loaded)
    assert not trace.exists()


def test_the_error_names_the_function_and_the_permission(trace, tmp_path):
    loaded = by_joblib(FORGERIES["kernel"](fitted()), tmp_path / "m")
    with pytest.raises(
        UsageError, match=r"forged_code:kernel comes from a file.*allow_functions\('forged_code"
    ):
        loaded.predict(X)
    loaded = by_joblib(FORGERIES["parameter basis"](fitted()), tmp_path / "m")
    with pytest.raises(UsageError, match=r"basis forged_code:basis comes from a file"):
        loaded.fit(X, Y)
    assert not trace.exists()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("reader", some(READERS, {"skops", "load_model"}))
def test_allowed_functions_are_called(reader, trace, tmp_path):
    """They are called after ``allow_functions``, whichever library reads the estimator."""
    model = RVMRegressor(kernel=NAME, max_rounds=1, random_state=0).fit(X, Y)
    permission._called.clear()
    allow_functions(NAME)
    loaded = READERS[reader](model, tmp_path / "file")
    if "mlflow" not in reader:
        assert_array_equal(loaded.predict(X), model.predict(X))
        assert_array_equal(clone(loaded).fit(X, Y).predict(X), model.predict(X))


@pytest.mark.parametrize("name", ["no colon", "", 3, "a:b; import os", None])
def test_permission_needs_the_name_of_a_function(name):
    with pytest.raises(UsageError, match="pass 'module:function'"):
        allow_functions(name)


def radial(A, B):
    return np.exp(-((A[:, None] - B[None]) ** 2).sum(axis=2))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "kernel", [NAME, FunctionKernel(NAME), Sum((Gaussian(0.5), FunctionKernel(NAME)))]
)
def test_copies_and_searches_keep_permission(kernel, trace):
    """These are copies in this process, and a search in two worker processes."""
    model = RVMRegressor(kernel=kernel, max_rounds=1, random_state=0)
    expected = clone(model).fit(X, Y).predict(X)
    for copied in (copy.copy(model), copy.deepcopy(model), clone(clone(model))):
        assert_array_equal(copied.fit(X, Y).predict(X), expected)
        assert_array_equal(copy.deepcopy(copied).predict(X), expected)
        assert_array_equal(copy.deepcopy(copied.model_).predict(X), expected)
    search = GridSearchCV(model, {"max_rounds": [1, 2]}, cv=2, n_jobs=2, error_score="raise").fit(
        X, Y
    )
    assert_array_equal(search.best_estimator_.predict(X).shape, (60,))


@pytest.mark.filterwarnings("ignore")
def test_callables_and_names_in_a_grid_reach_the_workers(trace):
    grid = {"kernel": [NAME, FunctionKernel(NAME), radial, "gaussian"]}
    search = GridSearchCV(
        RVMRegressor(max_rounds=1, random_state=0), grid, cv=2, n_jobs=2, error_score="raise"
    )
    scores = search.fit(X, Y).cv_results_["mean_test_score"]
    assert np.ptp(scores[:3]) == 0
    direct = cross_val_score(
        RVMRegressor(kernel=radial, max_rounds=1, random_state=0), X, Y, cv=2, n_jobs=2
    )
    assert direct.mean() == scores[0]


@pytest.mark.filterwarnings("ignore")
def test_a_pickle_with_a_callable_works(tmp_path, trace):
    """The callable is part of the pickle, which runs code anyway."""
    model = RVMRegressor(kernel=radial, max_rounds=1, random_state=0).fit(X, Y)
    for reader in (by_joblib, by_pickle):
        loaded = reader(model, tmp_path / "m")
        assert_array_equal(loaded.predict(X), model.predict(X))
        assert_array_equal(clone(loaded).fit(X, Y).predict(X), model.predict(X))


@pytest.mark.slow
def test_another_program_needs_permission(tmp_path, trace):
    """The program opens a pickle, and is not a worker of this process."""
    joblib.dump(RVMRegressor(kernel=NAME, max_rounds=1, random_state=0).fit(X, Y), tmp_path / "m")
    allowed = "import partirvm; partirvm.allow_functions('forged_code:kernel');"
    for before, status in (("", 1), (allowed, 0)):
        code = f"{before}import joblib; joblib.load('m').predict([[0.0, 0.0, 0.0]])"
        python = [sys.executable, "-c", code]
        done = subprocess.run(python, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == status, done.stderr
        assert ("allow_functions" in done.stderr) == (status == 1)


def test_load_model_gives_permission_on_request(trace, tmp_path):
    model = RVMRegressor(kernel=NAME, max_rounds=1, random_state=0).fit(X, Y)
    save_model(model, tmp_path / "m")
    with pytest.raises(UsageError, match="allow_code=True"):
        files.load_model(tmp_path / "m")
    permission._called.clear()
    assert_array_equal(load_model(tmp_path / "m", allow_code=True).predict(X), model.predict(X))
