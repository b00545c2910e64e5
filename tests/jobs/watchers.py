"""Watchers that abort a run, or leave it in a dense fit, after so many lines of history."""

import pytest

from partirvm import jobs, open_job
from partirvm.fit.driver import Watcher


class Stopper(Watcher):
    """Aborts once there are ``after`` lines of history."""

    def __init__(self, after):
        self.after = after
        self.lines = 0

    def on_record(self, entry):
        self.lines += 1

    def aborted(self):
        return self.lines >= self.after


class Broken(Stopper):
    """Leaves in the middle of a round then."""

    aborted = Watcher.aborted

    def on_step(self, info):
        if self.lines >= self.after:
            raise KeyboardInterrupt


def broken_off(data, job, request, after=1, **options):
    """A job whose process left in the middle of a round."""
    with pytest.raises(KeyboardInterrupt):
        jobs.fit(data, job, request, watcher=Broken(after), **options)
    return open_job(job)
