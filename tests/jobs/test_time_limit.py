"""A run that reaches its time limit leaves a model: its last one, or a small fit to few rows."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
from by_default import some
from surfaces import bent_plane

from partirvm.core import Termination
from partirvm.data import ArraySource
from partirvm.execution import LocalExecutor
from partirvm.fit import Driver, MemoryJournal, Watcher
from partirvm.fit.run import run
from partirvm.likelihoods import LIKELIHOODS
from partirvm.options import Request
from partirvm.resolve.resolve import resolve
from partirvm.spec import Options
from partirvm.strategies import STRATEGIES
from partirvm.strategies.rounds import MAX_COLUMNS, STEPS, early_state
from partirvm.types import Columns

QUIET = pytest.mark.filterwarnings("ignore::partirvm.errors.PartirvmWarning")

N = 500


def arrays(classes):
    """Return a plane with a wave, or the side of it on which each row lies."""
    X, y = bent_plane(N)
    return X, (y > 0).astype(float) if classes else y


def rows_of(classes):
    """Return the same rows as a source of eight tiles."""
    columns = Columns(("a", "b"), "y", classes=("below", "above")) if classes else None
    return ArraySource(*arrays(classes), tile_rows=64, columns=columns)


class After(Watcher):
    """Returns ``TIME`` after poll number ``at``, and counts the work after that poll."""

    def __init__(self, at):
        self.at = at
        self.polls = 0
        self.steps = 0
        self.tiles = 0

    def __call__(self):
        self.polls += 1
        return Termination.TIME if self.polls > self.at else None

    @property
    def over(self):
        return self.polls > self.at

    def on_tiles(self, name, done, total):
        self.tiles += self.over

    def on_step(self, info):
        self.steps += self.over


def ended(request, classes, at):
    """Resolve and run a request that reaches its time limit at a poll."""
    source = rows_of(classes)
    executor = LocalExecutor(1)
    after = After(at)
    journal = MemoryJournal()
    spec = resolve(source, request, executor, interrupted=after)
    outcome = run(Driver(executor, source, None, after, after), spec, journal)
    executor.close()
    return after, journal, outcome.reason


def error(journal, classes):
    """Return the model's error relative to that of the mean or the class frequencies."""
    (X, y) = arrays(classes)
    model = journal.model
    assert model is not None
    if classes:
        return float(
            np.mean((model.predict_proba(X)[:, 1] > 0.5) != y) / min(y.mean(), 1 - y.mean())
        )
    return float(np.sqrt(np.mean((np.ravel(model.predict(X)) - y) ** 2)) / y.std())


@pytest.mark.usefixtures("interruptions")
@pytest.mark.parametrize(
    ("strategy", "gamma", "classes"),
    some(
        itertools.product(STRATEGIES, [0.4, "learn-shared"], [False, True]),
        {("working-set", "learn-shared", False), ("incremental", 0.4, True), ("basic", 0.4, False)},
    ),
)
@QUIET
def test_a_model_is_left_whenever_the_time_limit_is_reached(strategy, gamma, classes):
    """This may be at the first poll, while the kernel is learned, halfway, or at the last poll."""
    partition = 60 if gamma == 0.4 else "auto"
    rounds = None if strategy in ("basic", "split-merge") else 4
    request = Request(gamma=gamma, strategy=strategy, partition_size=partition, max_rounds=rounds)
    complete, _, reason = ended(request, classes, np.inf)
    assert reason is not Termination.TIME
    kinds = set()
    for part in (0.0, 1 / 3, 1 - 1.5 / complete.polls):
        after, journal, reason = ended(request, classes, int(part * complete.polls))
        assert reason is Termination.TIME
        saved = [entry["kind"] for entry in journal.history if entry["saved"]]
        assert "final" not in saved
        assert error(journal, classes) < 0.6
        early = saved[-1] == "early"
        assert saved.count("early") == early
        kinds.add(saved[-1])
        # the current tile or iteration; an early fit has this many steps, and at most this many
        # passes over 8 tiles
        assert after.steps <= 1 + early * STEPS
        assert after.tiles <= 2 + early * 8 * (STEPS + 3)
    assert "early" in kinds
    if strategy != "basic" and gamma == 0.4:
        assert kinds & {"round", "part"}


@pytest.mark.slow
@QUIET
def test_reaching_the_time_limit_while_fitting_noise_leaves_constant_noise():
    """The time ends between the learning of the noise kernels and the last pass over weighted
    rows."""
    request = Request(gamma=0.4, strategy="basic", noise="local", residual="none", seed=1)
    complete, journal, _ = ended(request, False, np.inf)
    assert journal.model.design.noise is not None
    for at in range(complete.polls - 20, complete.polls - 1, 8):
        _, journal, reason = ended(request, False, at)
        assert (reason, journal.history[-1]["kind"]) == (Termination.TIME, "early")
        assert journal.model.design.noise is None
        assert journal.model.calibration is not None


def test_the_cost_of_an_early_fit_is_bounded():
    """It uses few rows and steps, and few columns in all outputs together."""
    source = rows_of(False)
    executor = LocalExecutor(1)
    problem = resolve(source, Request(gamma=0.4), executor).problem
    executor.close()
    classes = replace(problem, likelihood=LIKELIHOODS["multinomial"], n_classes=20)
    for case, outputs in (
        (problem, 1),
        (replace(problem, target_variances=np.ones(20)), 20),
        (classes, 20),
    ):
        options = early_state(case, Options(60, "error")).options
        assert options.partition_size * outputs <= MAX_COLUMNS
        assert (options.max_iterations, options.max_passes) == (STEPS, STEPS)
        assert options.sample_rows == N
