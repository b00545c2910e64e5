"""Preloaded by the workers of test_driver_on_cluster.py: drivers and tiles wait where a test
specifies."""

import os
import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1])]

import fault_watchers  # noqa: E402


def dask_setup(worker):
    """Install the watchers; ``dask worker --preload`` calls this."""
    fault_watchers.listen(os.environ["LISTEN_IN"])
