"""Row samples for tests of small fits, and records of the passes over them."""

from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.random import default_rng

from partirvm.data import ArraySource
from partirvm.execution import LocalExecutor
from partirvm.kernels import Design, Gaussian
from partirvm.learning import gathered
from partirvm.likelihoods import GAUSSIAN, LIKELIHOODS
from partirvm.scaling import Scaling
from partirvm.spec import Problem, Spent


def problem_of(X, y, kernel=None, K=0, bias=True, shuffled=True):
    """Return rows of standardised inputs with targets (n,), or codes of K classes."""
    d = X.shape[1]
    scaling = Scaling(np.zeros(d), np.ones(d), np.zeros(1), np.ones(1))
    kernel = kernel or Gaussian((1 / d,) * d)
    empty = Design(
        kernel, scaling, np.zeros((0, d)), np.zeros(0, np.int64), bias=False, origin=np.zeros(d)
    )
    target_variance = 1.0 if K else float(np.mean(y**2))
    problem = Problem(
        len(X), empty, bias, target_variance, None, 1.0, shuffled, False, likelihood=GAUSSIAN
    )
    if not K:
        return problem
    likelihood = LIKELIHOODS["bernoulli" if K == 2 else "pooled"]
    return replace(problem, likelihood=likelihood, n_classes=K, codes=y.astype(np.int8))


def arm(n, d, seed=0, noise=0.2):
    """Return a smooth function of two of d features, with noise and a standard deviation near 1."""
    rng = default_rng(seed)
    X = rng.normal(size=(n, d))
    y = np.sin(1.5 * X[:, 0]) * np.cos(X[:, 1]) + noise * rng.normal(size=n)
    return X, y - y.mean()


class Stopped(Exception):
    """A request to stop."""


@dataclass
class Passes:
    """Passes over a sample, recorded with the row numbers read; raises after ``most`` passes."""

    most: float = np.inf
    made: list[tuple[Any, np.ndarray]] = field(default_factory=list)

    def of(self, kind):
        return [pass_ for pass_, _ in self.made if isinstance(pass_, kind)]


@contextmanager
def sample_of(
    X,
    y,
    w=None,
    rows=None,
    tile_rows=100,
    threads=1,
    passes=None,
    lines=None,
    on_best=None,
    groups=None,
    **options,
):
    """Return these rows (all, if None) from a source with tiles of this size; ``options`` are those
    of ``gathered``."""
    executor = LocalExecutor(threads)
    seen = passes or Passes()
    run = executor.run

    def watched(asked, source, *arguments):
        seen.made += [(one, source.rows) for one in asked]
        return run(asked, source, *arguments)

    def heard(asked, done, total):
        if len(seen.made) > seen.most:
            raise Stopped

    executor.run = watched
    log, found = ([] if one is None else one for one in (lines, on_best))
    source = ArraySource(X, y, w, groups=groups, tile_rows=tile_rows)
    hooks = {"log": log.append, "on_best": found.append}
    with gathered(source, rows, executor, heard, Spent(), **hooks, **options) as sample:
        yield sample
    executor.close()
