"""Checkpoints of real strategies: the same bits back at every step, and a run that goes on as if nothing had been."""

from __future__ import annotations

import sys
from dataclasses import replace

import numpy as np
import pytest
import zarr
from kernel_cases import NAMED
from same import assert_same
from simulator import Simulator, wave

from partirvm.core.termination import Termination
from partirvm.errors import ExistsError, FormatError, MissingDataError, PartirvmError
from partirvm.jobs import checkpoint
from partirvm.jobs.checkpoint import CODEC, load_checkpoint, save_checkpoint
from partirvm.storage import sealed
from partirvm.storage.folder import digest
from partirvm.strategies import STRATEGIES
from partirvm.strategies.instructions import Finish, Stop
from partirvm.strategies.problem import Options
from partirvm.strategies.rounds import Phase

pytestmark = pytest.mark.usefixtures("one_blas_thread")

PROBLEMS = {
    "plain": {},
    "weights and held-out rows": {"w": True, "held_out": True},
    "partition likelihood, no bias": {"bias": False, "likelihood": "partition", "noise_every": 3},
    "nearly no noise": {"noise": 1e-7, "gamma": 0.05},
    "known noise, in order": {"noise_variance": 0.01, "shuffled": False},
}


def simulated(asked):
    """A simulator and options."""
    asked = dict(asked)
    X, y = wave(n=72, noise=asked.pop("noise", 0.2))
    rng = np.random.default_rng(3)
    choices = {name: asked.pop(name) for name in ("likelihood", "noise_every") if name in asked}
    if asked.pop("w", None):
        asked["w"] = rng.uniform(0.5, 2, len(X)) * (rng.random(len(X)) > 0.1)
    if asked.pop("held_out", None):
        asked["held_out"] = wave(n=30, seed=1)
    return Simulator(X, y, **asked), Options(partition_size=18, selection="gain", max_iterations=40, **choices)


def steps(simulator, strategy, options):
    """Every (state, instructions) of a run."""
    state, instructions = strategy.start(simulator.problem, options)
    yield state, instructions
    while not isinstance(instructions[0], Finish):
        events = tuple(map(simulator.answer, instructions))
        yield state, events
        state, instructions = strategy.next(state, *events)
        yield state, instructions


@pytest.mark.parametrize("asked", PROBLEMS.values(), ids=PROBLEMS)
@pytest.mark.parametrize("name", STRATEGIES)
def test_every_state_of_every_strategy_comes_back(name, asked, tmp_path):
    """With its instructions and their answers; through the codec at every step, through the disk at every seventh."""
    simulator, options = simulated(asked)
    count = 0
    for count, value in enumerate(steps(simulator, STRATEGIES[name](), options)):
        tree, arrays = CODEC.encode(value)
        if count % 2 == 0:  # a state and its instructions, not what the simulator answers
            assert all(a.flags.c_contiguous or a.flags.f_contiguous for a in arrays), "gaps would not come back"
        assert_same(value, CODEC.decode(tree, [array.copy(order="K") for array in arrays]))
        if count % 7 == 3:
            save_checkpoint(value, str(tmp_path / f"{count}"))
            assert_same(value, load_checkpoint(str(tmp_path / f"{count}")))
    assert count > 3


def last_save(simulator):
    """The bits of the model that a run left."""
    fit = simulator.saves[-1].fit
    return fit.alpha.tobytes(), fit.posterior.mean.tobytes(), fit.beta, fit.posterior.log_evidence


@pytest.mark.parametrize("name", STRATEGIES)
def test_a_run_that_is_written_and_read_at_every_step_ends_in_the_same_bits(name, tmp_path):
    """``run(2n) == run(n) + resume(n)``, for every n at once."""
    simulator, options = simulated(PROBLEMS["weights and held-out rows"])
    reason = simulator.run(name, options)
    whole = last_save(simulator)
    strategy = STRATEGIES[name]()
    state, instructions = strategy.start(simulator.problem, options)
    simulator.turns, number = [instructions], 0
    while not isinstance(instructions[0], Finish):
        tree, arrays = CODEC.encode({"state": state, "instructions": instructions})
        found = CODEC.decode(tree, [array.copy(order="K") for array in arrays])
        events = tuple(map(simulator.answer, found["instructions"]))
        state, instructions = strategy.next(found["state"], *events)
        simulator.turns.append(instructions)
        number += 1
    assert instructions[0].reason is reason
    assert last_save(simulator) == whole


def test_every_class_that_a_strategy_may_hold_is_known():
    """Kernels by their list; phases and terminations as enums."""
    for case in NAMED:
        assert_same(case.kernel, CODEC.decode(*CODEC.encode(case.kernel)))
    for member in (*Phase, *Termination):
        assert CODEC.decode(*CODEC.encode(member)) is member
    assert_same(Stop(Termination.TIME), CODEC.decode(*CODEC.encode(Stop(Termination.TIME))))


def test_large_arrays_lie_alone_and_small_ones_together(place):
    """Of any shape and order of memory; thousands of small ones cost a handful of files."""
    rng = np.random.default_rng(0)
    big = rng.normal(size=(300, 200))
    value = {
        "big": big, "columns": np.asfortranarray(big), "many": tuple(rng.normal(size=k) for k in range(300)),
        "cube": np.asfortranarray(rng.normal(size=(40, 30, 20))), "mask": rng.random(90_000) > 0.5,
        "empty": np.zeros((0, 3)), "swapped": np.arange(20_000, dtype=">i4"), "nan": np.full(10_000, np.nan),
    }  # fmt: skip
    save_checkpoint(value, place)
    assert_same(value, load_checkpoint(place))
    names = set(zarr.open_group(place, mode="r").array_keys())
    assert "packed" in names
    assert len(names) == 7


def test_chunks_are_of_bounded_size(tmp_path, monkeypatch):
    """An array of many chunks comes back; one that is lost is an error, not zeros."""
    monkeypatch.setattr(sealed, "CHUNK", 100_000)
    value = np.random.default_rng(0).normal(size=(100, 1000))
    save_checkpoint(value, str(tmp_path / "c"))
    assert_same(value, load_checkpoint(str(tmp_path / "c")))
    chunks = sorted((tmp_path / "c" / "a0" / "c").iterdir())
    assert len(chunks) == 9
    (chunks[4] / "0").unlink()
    with pytest.raises(MissingDataError, match=r"'a0' of the checkpoint has lost a chunk, c.* is missing"):
        load_checkpoint(str(tmp_path / "c"))


def test_what_is_no_checkpoint(place):
    """Nothing there, another group, a newer format, a strange class: an error that names the place."""
    with pytest.raises(MissingDataError, match="no checkpoint here"):
        load_checkpoint(f"{place}/nothing")
    zarr.open_group(f"{place}/other", mode="w")
    with pytest.raises(FormatError, match=r"other: this is not a partirvm checkpoint"):
        load_checkpoint(f"{place}/other")
    save_checkpoint((1,), f"{place}/mine")
    with pytest.raises(ExistsError, match="something here already"):
        save_checkpoint((2,), f"{place}/mine")
    assert load_checkpoint(f"{place}/mine") == (1,)
    group = zarr.open_group(f"{place}/mine", mode="r+")
    for attribute, value, says in (
        (
            "tree",
            '{"class": "Path", "fields": {}}',
            r"mine: the checkpoint cannot be read: the class 'Path' is unknown",
        ),
        ("tree", "{", "cannot be read"),
        ("format", 99, "format 99.*upgrade"),
    ):
        about = {name: item for name, item in group.attrs.asdict().items() if name != "digest"} | {attribute: value}
        group.attrs.put({**about, "digest": digest(about)})
        with pytest.raises(PartirvmError, match=says):
            load_checkpoint(f"{place}/mine")
    group.update_attributes({"format": checkpoint.FORMAT, "tree": "3"})
    with pytest.raises(MissingDataError, match="attributes of the checkpoint are damaged"):
        load_checkpoint(f"{place}/mine")


def calls(act):
    """How many Python functions this thread enters."""
    count, before = 0, sys.getprofile()

    def hear(frame, event, argument):
        nonlocal count
        count += event == "call"

    sys.setprofile(hear)
    try:
        act()
    finally:
        sys.setprofile(before)
    return count


def test_a_thousand_parts_cost_no_more_each_than_a_hundred(tmp_path):
    """A split-merge of 2,000 partitions saves a checkpoint after each of its batches: work in proportion to the parts,
    and a handful of files."""
    simulator, options = simulated({})
    for state, _ in steps(simulator, STRATEGIES["split-merge"](), options):
        if getattr(state, "parts", ()):
            break
    part, work = state.parts[0], {}
    for n in (100, 1000):
        fresh = [replace(part, gain=part.gain.copy(), design=replace(part.design, centres=part.design.centres.copy()))
                 for _ in range(n)]  # fmt: skip
        many, place, found = replace(state, parts=tuple(fresh)), tmp_path / f"{n}", []
        work[n] = (
            calls(lambda many=many, place=place: save_checkpoint(many, str(place))),
            calls(lambda place=place, found=found: found.append(load_checkpoint(str(place)))),
        )
        assert_same(many, found[0])
        assert sum(path.is_file() for path in place.rglob("*")) < 10
    assert all(many <= 10.5 * few for few, many in zip(work[100], work[1000], strict=True)), work
