"""Any sequence of what two processes may do: the store on disk, or in memory, says what the reference says."""

from __future__ import annotations

import tempfile

import fsspec
import numpy as np
import pytest
import reference
from by_default import examples
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from reference import ReferenceStore, model

from partirvm.errors import PartirvmError, TransitionError
from partirvm.jobs.state import Status
from partirvm.jobs.store import JobStore
from partirvm.storage import lease as leases
from partirvm.storage import open_folder

WHO = st.integers(0, 1)
"""A holder is gone when it says so; threads stay out of it."""


def bare(events):
    """Without the time of the clock, and the name of the model that was saved before."""
    return [{key: value for key, value in event.items() if key not in ("time", "model")} for event in events]


class Jobs(RuleBasedStateMachine):
    """Two stores of one job, each with its twin in the reference."""

    kind = "folder"

    @initialize()
    def begin(self):
        reference.WORLD.clear()
        self.patch = pytest.MonkeyPatch()
        self.patch.setattr(leases, "BEAT", 1000)
        self.patch.setattr(leases, "EXPIRY", 1000)
        self.folder = tempfile.TemporaryDirectory() if self.kind == "folder" else None
        self.place = f"{self.folder.name}/job" if self.folder else "memory://machine/job"
        self.pairs = [(JobStore(self.place), ReferenceStore("job")) for _ in range(2)]
        self.leases = []
        self.count = 0

    def teardown(self):
        self.patch.undo()
        for lease in getattr(self, "leases", []):
            lease._ended.set()
        if getattr(self, "folder", None):
            self.folder.cleanup()
        fs = fsspec.filesystem("memory")
        if fs.exists("/machine"):
            fs.rm("/machine", recursive=True)

    def both(self, who, act):
        """Do it in both worlds; the same kind of error, or the same answer."""
        outcomes = []
        for store in self.pairs[who]:
            try:
                outcomes.append(act(store))
            except PartirvmError as error:
                outcomes.append(type(error))
        return outcomes

    @rule(who=WHO, overwrite=st.booleans())
    def create(self, who, overwrite):
        self.count += 1
        made = self.both(who, lambda store: type(store).create(store.location, {"n": self.count}, overwrite=overwrite))
        if isinstance(made[1], type):
            assert made[0] is made[1]
        else:
            self.pairs[who] = tuple(made)
            self.pairs[1 - who] = JobStore(self.place), ReferenceStore("job")
            self.leases += [made[0].lease] if made[0].lease else []

    @rule(who=WHO)
    def acquire(self, who):
        mine, theirs = self.both(who, lambda store: store.acquire())
        if isinstance(theirs, type):
            assert mine is theirs
        else:
            assert mine.epoch == theirs.epoch
            self.leases.append(mine)

    @rule(who=WHO)
    def release(self, who):
        for store in self.pairs[who]:
            if store.lease is not None:
                store.lease.release()

    @rule()
    def lapse(self):
        """The holder falls silent: as seen by others it is gone, itself it does not know."""
        if "job" in reference.WORLD and reference.WORLD["job"]["held"]:
            reference.WORLD["job"]["held"] = False
            epoch = reference.WORLD["job"]["epoch"]
            open_folder(self.place).write(f"lease/{epoch:06d}.over.json", b"{}")

    def alike(self, who, act):
        """Do it, numbered, where there is a job; the answers or the kinds of error are one."""
        if "job" in reference.WORLD:
            self.count += 1
            mine, theirs = self.both(who, act)
            assert mine is theirs

    @rule(who=WHO, kind=st.sampled_from(["plan", "fit", "note", *(status.value for status in Status)]))
    def record(self, who, kind):
        self.alike(who, lambda store: store.record({"event": kind, "n": self.count}))

    @rule(who=WHO)
    def save(self, who):
        self.alike(who, lambda store: store.save(model(self.count, m=1)))

    @rule(who=WHO)
    def checkpoint(self, who):
        self.alike(who, lambda store: store.checkpoint({"n": self.count}))

    @rule(who=WHO, what=st.sampled_from(["abort", "cancel"]), attempt=st.integers(1, 2))
    def request(self, who, what, attempt):
        self.alike(who, lambda store: store.request(what, attempt))

    @rule(who=WHO)
    def discard(self, who):
        if "job" in reference.WORLD and not reference.WORLD["job"]["held"]:
            self.pairs[who][0].folder.remove()
            del reference.WORLD["job"]
            self.pairs = [(JobStore(self.place), ReferenceStore("job")) for _ in range(2)]

    @invariant()
    def what_a_newcomer_sees(self):
        if not hasattr(self, "pairs"):
            return
        mine, theirs = JobStore(self.place), ReferenceStore("job")
        if "job" not in reference.WORLD:
            assert not open_folder(self.place).exists()
            return
        assert mine.spec().items() >= theirs.spec().items()
        assert bare(mine.events()) == bare(theirs.events())
        assert mine.has_model() == theirs.has_model()
        if theirs.has_model():
            np.testing.assert_array_equal(mine.model().mean, theirs.model().mean)
        found, expected = mine.restore(), theirs.restore()
        assert found == expected
        for attempt in (1, 2):
            assert mine.requested(attempt) == theirs.requested(attempt)
        try:
            status = theirs.state().status
        except TransitionError:
            status = TransitionError
        try:
            assert mine.state().status is status
        except TransitionError:
            assert status is TransitionError


class JobsInMemory(Jobs):
    """Behind an fsspec URL."""

    kind = "memory"


TestFolder = Jobs.TestCase
TestMemory = JobsInMemory.TestCase
TestFolder.settings = TestMemory.settings = settings(max_examples=examples(25), stateful_step_count=25)
