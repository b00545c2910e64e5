"""Callbacks are called for each pass and round and may end a fit; ``verbose`` shows progress."""

import pickle

import numpy as np
import pytest
from numpy.random import default_rng
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV

from partirvm import FitCallback, RVMRegressor
from partirvm.core import Termination
from partirvm.errors import UsageError

ROUNDS = {
    "gamma": 0.5,
    "strategy": "working-set",
    "partition_size": 20,
    "max_rounds": 3,
    "reference": "none",
    "residual": "none",
    "random_state": 0,
}


def rows(n=150):
    rng = default_rng(3)
    X = rng.uniform(-4, 4, (n, 1))
    return X, np.sin(X[:, 0]) + 0.1 * rng.standard_normal(n)


class Listener(FitCallback):
    """Records the calls it receives, and ends the fit after ``last`` rounds."""

    def __init__(self, last=None):
        self.calls = []
        self.entries = []
        self._last = last

    def on_plan(self, plan):
        self.calls.append("plan")

    def on_pass(self, name, done, total):
        assert 0 < done <= total
        self.calls.append("pass")

    def on_round(self, entry):
        self.calls.append("round")
        self.entries.append(entry)
        return len(self.entries) == self._last

    def on_end(self, termination):
        self.calls.append(termination)


def test_callbacks_are_called_for_each_step_in_order():
    listener = Listener()
    model = RVMRegressor(**ROUNDS).set_callbacks(listener).fit(*rows())
    assert listener.calls[0] == "plan"
    assert listener.calls[-1] is model.termination_
    assert listener.calls.index("pass") < listener.calls.index("round")
    assert [entry["kind"] for entry in listener.entries] == ["round", "round", "final"]
    assert listener.entries[-1]["vectors"] == model.n_relevance_vectors_


def test_callbacks_do_not_change_the_bits_of_a_fit(capsys):
    X, y = rows()
    plain = RVMRegressor(**ROUNDS).fit(X, y)
    listener = RVMRegressor(**ROUNDS, verbose=True).set_callbacks(Listener()).fit(X, y)
    assert listener.model_.digest() == plain.model_.digest()
    err = capsys.readouterr().err
    assert all(text in err for text in ("150 rows × 1 feature", "vectors", "final"))


def test_a_fit_ended_by_a_callback_has_the_model_of_that_round():
    """No later round runs, and the estimator can predict."""
    listener = Listener(last=1)
    X, y = rows()
    model = RVMRegressor(**ROUNDS).set_callbacks(listener).fit(X, y)
    assert model.termination_ is Termination.ABORTED
    assert len(listener.entries) == 1
    assert model.n_relevance_vectors_ == listener.entries[0]["vectors"]
    assert model.score(X, y) > 0.9


def test_clones_keep_callbacks_and_pickles_do_not():
    listener = Listener()
    model = RVMRegressor(**ROUNDS).set_callbacks(listener)
    GridSearchCV(model, {"partition_size": [15, 25]}, cv=2).fit(*rows(100))
    assert listener.calls.count("plan") == 5
    calls = len(listener.calls)
    pickle.loads(pickle.dumps(model)).fit(*rows(100))
    assert len(listener.calls) == calls
    clone(model).fit(*rows(100))
    assert len(listener.calls) > calls


def test_an_object_that_is_not_a_callback_is_refused():
    with pytest.raises(UsageError, match=r"derive its class from partirvm\.FitCallback"):
        RVMRegressor().set_callbacks(print)
