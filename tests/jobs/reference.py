"""Small models to store in jobs, and leases with a short heartbeat."""

import numpy as np
from journals import REQUEST
from numpy.random import default_rng
from waiting import LOAD

from partirvm.jobs import JobStore
from partirvm.kernels import Design, Gaussian
from partirvm.model import Model
from partirvm.scaling import Scaling
from partirvm.storage import LeaseTimes
from partirvm.types import Columns

QUICK = LeaseTimes(beat=0.1, expiry=1.5 * LOAD)
"""Times of leases in tests."""


def model(seed=0, m=3):
    """Return a model of random numbers, with a covariance below the prior one, the unit matrix."""
    rng = default_rng(seed)
    scaling = Scaling(np.zeros(2), np.ones(2), np.zeros(1), np.ones(1))
    design = Design(Gaussian((0.5,)), scaling, rng.normal(size=(m, 2)), np.arange(m), bias=False)
    root = 0.2 * np.tril(rng.normal(size=(m, m)))
    return Model(
        design, rng.normal(size=m), root, np.ones(m), -1.0, 9, Columns(("a", "b")), 1.0, 1.0
    )


def written(place, spec=None, times=None):
    """Return the store of a new job, which this process may write."""
    store = JobStore.create(place, spec or REQUEST, times=times)
    store.acquire()
    return store
