"""Pairs of processes at once on one DATA or JOB: serialised or refused by name, and nothing is lost.

``pytest -m slow -s tests/faults/test_pairs.py`` runs 60 pairs and prints how each ended.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter

import pytest
from by_default import some
from fault_cases import TILE, act, rows
from test_writers import contents, expected

from partirvm import errors, ingest, open_job
from partirvm.jobs.state import Status

ACTIONS = ("append", "ingest", "fit", "resume", "update")
PAIRS = [*itertools.combinations_with_replacement(ACTIONS, 2), ("append", "predict")]

CHANGED = re.compile("have changed|has changed|were replaced|there is no such folder")
"""How the reason of a job states that its DATA changed; an overwrite has a moment without DATA."""


@pytest.mark.parametrize(
    ("pair", "times"), some([(("append", "ingest"), 1), *((pair, 4) for pair in PAIRS)], [(("append", "ingest"), 1)])
)
def test_a_pair(breeder, pair, times, tmp_path):
    """Every error is one of partirvm; the rows are those of a serial order; a job that is done predicts."""
    found = Counter()
    for number in range(times):
        folder = tmp_path / str(number)
        data, job = str(folder / "d.zarr"), str(folder / "job")
        ingest(rows(700, 0), data, tile_rows=TILE)
        breeder.call(act, what="fit", data=data, job=job, seed=0, gate=str(folder / "first"), others=1).end()
        if "update" in pair:
            ingest(rows(100, 9), data, append=True)
        start = [(700, 0), *([(100, 9)] if "update" in pair else [])]
        both = [
            breeder.call(act, what=what, data=data, job=job, seed=seed, gate=str(folder / "gate"))
            for seed, what in enumerate(pair, 1)
        ]
        said = [child.said() for child in both]
        for end in said:
            assert "error" not in end or issubclass(getattr(errors, end["error"]), errors.PartirvmError), end
        done = [(seed, what) for seed, (what, end) in enumerate(zip(pair, said, strict=True), 1) if "error" not in end]
        assert any(same(contents(data), serial(start, order)) for order in (done, done[::-1])), said
        if (2, "predict") in done:
            assert len((folder / "gate.csv").read_text().splitlines()) - 1 in {700, 850}
        state = open_job(job).state()
        assert state.status is Status.DONE or (data in state.reason and CHANGED.search(state.reason)), state
        open_job(job).model().predict(rows(10, 5)[0])
        found[tuple(end.get("error", "done") for end in said)] += 1
    print(*pair, dict(found))


def serial(start, order):
    """The rows after these actions, one after another."""
    parts = list(start)
    for seed, what in order:
        parts = [*parts, (150, seed)] if what == "append" else [(500, seed)] if what == "ingest" else parts
    return expected(*parts)


def same(found, rows):
    """Whether two arrays are equal."""
    return found.shape == rows.shape and (found == rows).all()
