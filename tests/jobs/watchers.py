"""Watchers that abort a run, or break off in a dense fit, after a number of history lines."""

import pytest

from partirvm import jobs, open_job
from partirvm.fit import Watcher


class Stopper(Watcher):
    """Aborts once there are ``after`` history lines."""

    def __init__(self, after):
        self.after = after
        self.lines = 0

    def on_record(self, entry):
        self.lines += 1

    def aborted(self):
        return self.lines >= self.after


class Broken(Stopper):
    """Raises an exception in the middle of a round after this number of lines."""

    aborted = Watcher.aborted

    def on_step(self, info):
        if self.lines >= self.after:
            raise KeyboardInterrupt


def broken_off(data, job, request, after=1, **options):
    """Return a job whose process stopped in the middle of a round."""
    with pytest.raises(KeyboardInterrupt):
        jobs.fit(data, job, request, watcher=Broken(after), **options)
    return open_job(job)
