"""Settings of hypothesis and fixtures that several parts share."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, settings

from partirvm.backends.threads import one_blas_thread as _one

collect_ignore_glob = ["*conftest.py"]
"""Files of this name in several folders cannot all be searched for doctests."""

settings.register_profile(
    "partirvm",
    derandomize=True,
    deadline=None,
    database=None,
    max_examples=30,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
settings.register_profile("thorough", settings.get_profile("partirvm"), derandomize=False, max_examples=300)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "partirvm"))


@pytest.fixture(scope="session", autouse=True)
def no_waiting_for_the_disk():
    """No machine loses power in a test: what this process flushes it need not wait for."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(os, "fsync", lambda handle: None)
        yield


@pytest.fixture(scope="module")
def one_blas_thread():
    """Many small factorisations: threads that wait for each other on a busy machine would take most of the time."""
    with _one():
        yield


@pytest.fixture
def open_to_all(tmp_path: Path) -> Path:
    """``tmp_path``, with it and the folders around it open to a process that has given up its rights."""
    for folder in (tmp_path, *tmp_path.parents):
        mode = folder.stat().st_mode
        if mode & 0o005 != 0o005:
            folder.chmod(mode | 0o055)
    return tmp_path


@pytest.fixture
def rng() -> np.random.Generator:
    """A generator with a fixed seed."""
    return np.random.default_rng(20260801)
