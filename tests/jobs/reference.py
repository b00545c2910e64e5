"""A job store in three dicts: what the real ones are compared with. And small models to put in."""

from __future__ import annotations

import copy
from dataclasses import replace

import numpy as np

from partirvm.errors import ExistsError, LeaseError, LeaseLostError, MissingDataError
from partirvm.jobs.state import fold, observed
from partirvm.jobs.store import FORMAT
from partirvm.kernels import Gaussian
from partirvm.kernels.design import Design
from partirvm.model import Model
from partirvm.types import Columns, Scaling

QUICK = 0.1, 1.5
"""Seconds of ``lease.BEAT`` and ``lease.EXPIRY`` in tests."""

WORLD: dict[str, dict] = {}
"""Reference jobs by location."""


def model(seed=0, m=3):
    """A model of any numbers."""
    rng = np.random.default_rng(seed)
    scaling = Scaling(np.zeros(2), np.ones(2), np.zeros(1), np.ones(1))
    design = Design(Gaussian((0.5,)), scaling, rng.normal(size=(m, 2)), np.arange(m), bias=False)
    return Model(
        design, rng.normal(size=m), np.tril(rng.normal(size=(m, m))), np.ones(m), -1.0, 9, Columns(("a", "b")), 1.0, 1.0
    )


class ReferenceLease:
    """An epoch."""

    def __init__(self, job, epoch):
        self.job, self.epoch, self.lost = job, epoch, False

    def check(self):
        if self.job["epoch"] != self.epoch:
            raise LeaseLostError("taken over")

    def release(self):
        if self.job["epoch"] == self.epoch:
            self.job["held"] = False


class ReferenceStore:
    """As ``JobStore``, without a store. A lease is free once it is released or ``WORLD`` says that it is not held."""

    def __init__(self, location):
        self.location, self.lease = location, None

    @property
    def job(self):
        if self.location not in WORLD:
            raise MissingDataError("no job here")
        return WORLD[self.location]

    @classmethod
    def create(cls, location, spec, *, overwrite=False):
        before = WORLD.get(location)
        if before is not None:
            if not overwrite:
                raise ExistsError("the job exists already: replace a job with --overwrite")
            if before["held"]:
                raise LeaseError("in use")
        store, epoch = cls(location), 0 if before is None else before["epoch"] + 1
        WORLD[location] = {
            "spec": copy.deepcopy(spec), "events": [], "models": None, "checkpoints": [], "control": set(),
            "epoch": epoch, "held": epoch > 0,
        }  # fmt: skip
        if epoch:
            store.lease = ReferenceLease(store.job, epoch)
        return store

    def spec(self):
        return {"format": FORMAT, **self.job["spec"]}

    def acquire(self, *, patience=0.0):
        if self.job["held"]:
            raise LeaseError("in use by somebody")
        self.job["epoch"] += 1
        self.job["held"] = True
        self.lease = ReferenceLease(self.job, self.job["epoch"])
        return self.lease

    def _check(self):
        if self.lease is not None:
            self.lease.check()
        elif self.job["epoch"]:
            raise LeaseError("only the holder of the lease may write")

    def record(self, entry):
        self._check()
        self.job["events"].append({"time": 0.0, **copy.deepcopy(entry), "epoch": self.lease.epoch if self.lease else 0})

    def events(self):
        return copy.deepcopy(self.job["events"])

    def state(self):
        state = fold(self.events())
        return observed(state, held=self.job["held"], aborting=self.requested(state.attempt) is not None)

    def request(self, what, attempt, reason=""):
        self.job["control"].add((what, attempt))

    def requested(self, attempt):
        return next((what for what in ("cancel", "abort") if (what, attempt) in self.job["control"]), None)

    def save(self, model):
        self._check()
        self.job["models"] = replace(model)

    def has_model(self):
        return self.job["models"] is not None

    def model(self):
        if not self.has_model():
            raise MissingDataError("the job has no model yet")
        return self.job["models"]

    def checkpoint(self, value):
        self._check()
        self.job["checkpoints"].append(copy.deepcopy(value))

    def restore(self):
        return self.job["checkpoints"][-1] if self.job["checkpoints"] else None
