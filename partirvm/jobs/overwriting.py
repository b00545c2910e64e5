"""The jobs in one folder: the current job, and the job that it overwrites until it has saved its first model.

    JOB/spec.json, JOB/events/…                            the first job
    JOB/spec-000005-000005.json, JOB/run-000005/events/…   a job that overwrites it: the epoch of the writer of its
                                                           spec, and its run; its objects lie in the folder of the run
    JOB/spec-000006-000000.json                            the first job again, restored by the holder of epoch 6

The newest spec names the current job, so that one exclusive creation of a small object overwrites a job, and another
one restores it. No object is moved, because a store of objects has no rename. All jobs of a folder share its lease:
the claim that overwrites a job also makes void what its driver writes later. Specs are a guarded series themselves
(``storage.lease``): a process that lost its lease can neither overwrite a job nor restore one. The objects of other
jobs are removed last, specs first. A process killed at any moment leaves the old job or the new one as the current job.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from partirvm.storage import Folder
from partirvm.storage.lease import limits, valid

SERIES = "spec"

OWN = ("events", "models", "specs", "checkpoints", "control")
"""The names of a job's objects in the folder of its run."""


@dataclass(frozen=True, order=True)
class SpecName:
    """The name of a spec: the epoch of its writer, 0 without a lease, and the run of the job, 0 for the first one."""

    epoch: int = 0
    run: int = 0

    def __str__(self) -> str:
        return f"spec-{self.epoch:06d}-{self.run:06d}.json" if self.epoch else "spec.json"

    @property
    def prefix(self) -> str:
        """The beginning of the names of the job's objects."""
        return f"run-{self.run:06d}/" if self.run else ""


def has_spec(folder: Folder) -> bool:
    """Return True if the folder holds the spec of a job, valid or not, readable or not."""
    return any(_parsed(name) is not None for name in folder.list())


def spec_names(folder: Folder) -> list[SpecName]:
    """Return the names of all valid specs, the current one last."""
    found = sorted(spec for name in folder.list() if (spec := _parsed(name)) is not None)
    marks = limits(folder, SERIES) if any(spec.epoch for spec in found) else []
    return [spec for spec in found if valid(spec.epoch, (spec.epoch, spec.run), marks)]


def remove_others(folder: Folder, current: SpecName) -> None:
    """Remove all jobs except the current one, specs first. Jobs of later epochs are kept: their writer took over."""
    names = folder.list()
    specs = [spec for name in names if (spec := _parsed(name)) is not None and spec < current]
    runs = [name for name in names if (match := re.fullmatch(r"run-(\d{6,})", name)) and _is_old(match[1], current)]
    for name in [*map(str, specs), *runs, *(OWN if current.run else ())]:
        folder.remove(name)


def _is_old(run: str, current: SpecName) -> bool:
    return int(run) <= current.epoch and int(run) != current.run


def _parsed(name: str) -> SpecName | None:
    match = re.fullmatch(r"spec(?:-(\d{6,})-(\d{6,}))?\.json", name)
    return None if match is None else SpecName(int(match[1] or 0), int(match[2] or 0))
