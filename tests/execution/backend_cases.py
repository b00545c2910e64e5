"""Rows, passes and fits for tests of executors, and the formulas of their statistics."""

import time

import naive
import numpy as np
from numpy.random import default_rng
from scipy.stats import norm
from waiting import wait_for

from partirvm.core import GramStatistics, HyperState, LeftOut, QuantileCurves, StopRule
from partirvm.core.diagnostics import NORMAL_ENDS
from partirvm.core.scores import LEVELS
from partirvm.data import ZarrSource
from partirvm.execution import MomentsPass
from partirvm.kernels import Design, Gaussian
from partirvm.likelihoods import (
    ErrorPass,
    GramPass,
    LeaveOneOutPass,
    ResidualPass,
    ScorePass,
    SlopePass,
    Solve,
)
from partirvm.model import Model
from partirvm.scaling import Scaling
from partirvm.types import PANEL_ROWS, Columns

N, D, TILE, GAMMA = 7 * 2500 + 123, 3, 2500, 0.4
"""Eight tiles of more than one panel each; the last tile is short."""

EXECUTORS = "one thread", "three threads", "one worker", "three workers"

assert TILE > PANEL_ROWS


def rows():
    """Return inputs, targets and weights; some weights are zero."""
    rng = default_rng(11)
    X = rng.uniform(-2, 2, size=(N, D))
    y = 10 + np.sin(2 * X[:, 0]) + X[:, 1] + 0.1 * rng.normal(size=N)
    return X, y, rng.choice([0.0, 0.5, 2.0], size=N, p=[0.1, 0.4, 0.5])


def design(labels, bias=False):
    """Return a design whose centres are these rows, with a nontrivial scaling."""
    X, y, _ = rows()
    shifts = np.array([0.1, -0.2, 0.0])
    scales = np.array([1.0, 2.0, 0.5])
    scaling = Scaling(shifts, scales, np.array([y.mean()]), np.array([y.std()]))
    labels = np.array(labels, dtype=np.int64)
    return Design(Gaussian((GAMMA,)), scaling, X[labels], labels, bias)


KEPT, NEW = design([5, 900, 17000], bias=True), design([1, 2, 3, 4000, 12000])
OFFSET = np.array([[0.5], [-1.0], [0.2], [0.0]])
MEAN = np.array([0.3, 1.0, -0.5, 0.1])
ROOT = np.triu(np.ones((4, 4))) * 0.1
BETA = 0.7
EXCLUDED = np.arange(0, N, 3)
NOISE = 0.05 * float(KEPT.scaling.t_scale[0] ** 2)
MODEL = Model(KEPT, MEAN, ROOT, np.ones(4), 0.0, N, Columns(("x0", "x1", "x2")), NOISE, NOISE)

INSIDE = np.arange(2 * TILE + 10, 2 * TILE + 310)
ASTRIDE = np.arange(3 * TILE - 700, 3 * TILE + 1300, 3)
EVERYWHERE = np.arange(7, N, 41)
PANELS = np.setdiff1d(np.arange(5 * TILE, 6 * TILE), [5 * TILE + 1, 6 * TILE - 3])
"""Rows of one tile, of two, of all, and of one tile in two panels."""

PASSES = {
    "moments": MomentsPass(),
    "gram": GramPass(KEPT, NEW, OFFSET),
    "gram, first": GramPass(design([]), NEW, np.zeros((0, 1))),
    "gram, diagonal": GramPass(KEPT, NEW, OFFSET, diagonal=True),
    "residual": ResidualPass(KEPT, MEAN[:, None]),
    "error": ErrorPass(KEPT, MEAN[:, None], 40, EXCLUDED),
    "left out": LeaveOneOutPass(KEPT, MEAN, ROOT, BETA),
    "score": ScorePass(MODEL, (QuantileCurves.constant(NORMAL_ENDS.ravel()),)),
    "gram, one tile": GramPass(KEPT, NEW, OFFSET, rows=INSIDE),
    "gram, two tiles": GramPass(KEPT, NEW, OFFSET, rows=ASTRIDE),
    "gram, the same two": GramPass(design([]), KEPT, np.zeros((0, 1)), rows=ASTRIDE[::2]),
    "gram, diagonal, two tiles": GramPass(KEPT, NEW, OFFSET, diagonal=True, rows=ASTRIDE),
    "gram, everywhere": GramPass(KEPT, NEW, OFFSET, rows=EVERYWHERE),
    "gram, panels": GramPass(KEPT, NEW, OFFSET, rows=PANELS),
    "error, one tile": ErrorPass(KEPT, MEAN[:, None], 40, EXCLUDED, rows=INSIDE),
    "error, last tile": ErrorPass(KEPT, MEAN[:, None], 5, rows=np.arange(N - 50, N)),
    "error, everywhere": ErrorPass(KEPT, MEAN[:, None], 40, rows=EVERYWHERE),
    "slope": SlopePass(KEPT, MEAN[:, None], (ROOT @ ROOT.T)[None], 3.0),
    "slope, two tiles": SlopePass(KEPT, MEAN[:, None], (ROOT @ ROOT.T)[None], 3.0, rows=ASTRIDE),
    "slope, everywhere": SlopePass(
        KEPT, MEAN[:, None], (ROOT @ ROOT.T)[None], 3.0, rows=EVERYWHERE
    ),
}


def phi(design, X):
    """Return the design matrix from pairwise differences of scaled inputs."""
    s = design.scaling
    kernels = naive.gaussian(
        (X - s.x_shift) / s.x_scale, (design.centres - s.x_shift) / s.x_scale, GAMMA
    )
    return np.hstack([np.ones((len(X), int(design.bias))), kernels])


def expected(pass_):
    """Return fields of the statistic according to the formulas, over all rows at once."""
    X, y, w = rows()
    t = ((y - y.mean()) / y.std())[:, None]
    if (sample := getattr(pass_, "rows", None)) is not None:
        w = np.where(np.isin(np.arange(N), sample), w, 0.0)
    weighted = w > 0
    if isinstance(pass_, MomentsPass):
        mean = np.average(X, axis=0, weights=w)
        return {"inputs.n": weighted.sum(), "inputs.mean": mean, "targets.mean": [np.average(y, weights=w)], "bad": 0,
                "inputs.square": w @ (X - mean) ** 2, "inputs.minimum": X[weighted].min(axis=0)}  # fmt: skip
    if isinstance(pass_, GramPass):
        kept = phi(pass_.kept, X)
        new = phi(pass_.new, X)
        r = t - kept @ pass_.offset
        root = np.sqrt(w)[:, None]
        kept = kept * root
        new = new * root
        r = r * root
        fields = {"cross": kept.T @ new, "projection": new.T @ r, "n": weighted.sum()}
        fields["sum_squares"] = (r**2).sum(axis=0)
        gram = (new**2).sum(axis=0) if pass_.diagonal else new.T @ new
        return fields | {"gram": gram, "log_weight": np.log(w[weighted]).sum()}
    Phi = phi(KEPT, X)
    if isinstance(pass_, SlopePass):
        return {"": slope(Phi, t[:, 0], w)}
    r = t[:, 0] - Phi @ MEAN
    if isinstance(pass_, ResidualPass):
        return {"sum_squares": [w @ r**2], "projection": Phi.T @ (w * r)[:, None]}
    if isinstance(pass_, ErrorPass):
        candidates = np.setdiff1d(np.flatnonzero(weighted), pass_.exclude)
        best = candidates[np.lexsort((candidates, -np.abs(r[candidates])))][: pass_.select]
        return {"rows": best, "values": X[best], "errors": np.abs(r[best])}
    if isinstance(pass_, LeaveOneOutPass):
        centre_columns = [(row, np.array([k])) for k, row in enumerate(KEPT.labels, start=1)]
        # compared with formulas in core/test_left_out
        left_out = LeftOut.of(Phi, t[:, 0], MEAN, ROOT, BETA, w, centre_columns)
        return {name: getattr(left_out, name) for name in ("errors", "variances", "owner")}
    mean = y.mean() + y.std() * Phi @ MEAN
    sd = y.std() * np.sqrt(((Phi @ ROOT) ** 2).sum(axis=1) + 0.05)
    hits = [np.mean(np.abs(y - mean) <= norm.ppf(0.5 + level / 2) * sd) for level in LEVELS]
    names = [f"figures.coverage_{100 * level:.0f}" for level in LEVELS]
    fields = dict(zip(names, hits, strict=True))
    fields["figures.nlpd"] = -norm(mean, sd).logpdf(y).mean()
    return fields | {"n": N, "square": [((y - mean) ** 2).sum()]}


def slope(Phi, t, w):
    """Return Σ D ∂Φ/∂ log gamma, where ∂k/∂ log gamma = k log k."""
    D = 3.0 * w[:, None] * (np.outer(t - Phi @ MEAN, MEAN) - Phi @ ROOT @ ROOT.T)
    return [(D * Phi * np.log(Phi))[:, 1:].sum()]


def field(value, path):
    """Return ``value.a.b`` for the path "a.b"."""
    for name in filter(None, path.split(".")):
        value = value[name] if isinstance(value, dict) else getattr(value, name)
        value = value() if callable(value) else value
    return value


def bits(value):
    """Return all numbers of a statistic as bytes."""
    if isinstance(value, np.ndarray):
        return value.shape, value.tobytes()
    if isinstance(value, tuple):
        return tuple(map(bits, value))
    if hasattr(value, "__dataclass_fields__"):
        return tuple(bits(getattr(value, name)) for name in value.__dataclass_fields__)
    return value.hex() if isinstance(value, float) else value


class HeldSource(ZarrSource):
    """DATA of which only the first tile can be read until the file ``gate`` exists."""

    def __init__(self, url, gate):
        super().__init__(url)
        self.gate = gate

    def tile(self, number):
        if number:
            wait_for(self.gate.exists, "the gate")
        return super().tile(number)


def fit(M, seed, steps=500, tol=1e-9, vectors=None, rows=1200):
    """Return the instruction for a dense fit of M smooth columns."""
    rng = default_rng(seed)
    x = rng.uniform(-3, 3, size=(rows, 2))
    centres = rng.uniform(-3, 3, size=(M, 2))
    Phi = np.exp(-0.7 * ((x[:, None, :] - centres) ** 2).sum(axis=-1))
    t = (np.sin(2 * x[:, 0]) * x[:, 1] + 0.2 * rng.normal(size=rows))[:, None]
    offset = np.zeros((M, 1)) if seed % 2 else 0.01 * rng.normal(size=(M, 1))
    r = t - Phi @ offset
    gram = GramStatistics(np.arange(M), Phi.T @ Phi, Phi.T @ r, (r**2).sum(axis=0), offset, rows)
    start = HyperState(gram, np.full(M, 0.1), 5.0, target_variance=float(t.var()))
    return Solve(start, StopRule(tol, steps, vectors, guard=False))


def long_fit(seed, steps):
    """Return the instruction for a fit of 400 necessary columns: 400 steps of at least 5 ms."""
    rng = default_rng(seed)
    Phi = rng.normal(size=(1200, 400))
    t = Phi @ rng.normal(size=(400, 1)) + 0.1 * rng.normal(size=(1200, 1))
    gram = GramStatistics(
        np.arange(400), Phi.T @ Phi, Phi.T @ t, (t**2).sum(axis=0), np.zeros((400, 1)), len(t)
    )
    # no change of the evidence is below a NaN tolerance
    return Solve(
        HyperState(gram, np.ones(400), 5.0, target_variance=float(t.var())),
        StopRule(np.nan, steps, guard=False),
    )


def first_row(source, number):
    """Return a tile's first row; this takes longest for the first tiles."""
    time.sleep(0.05 / (1 + number))
    return float(source.tile(number).X[0, 0])
