"""Checkpoints of real strategies: the same bits back at every line, and a run that goes on as if nothing had been."""

from __future__ import annotations

import numpy as np
import pytest
from same import assert_same, reread
from simulator import Simulator, wave

from partirvm.errors import ExistsError, FormatError, MissingDataError, PartirvmError
from partirvm.jobs import checkpoint
from partirvm.jobs.checkpoint import CODEC, attached, load_checkpoint, save_checkpoint
from partirvm.storage import codec
from partirvm.strategies import STRATEGIES
from partirvm.strategies.problem import Options

PROBLEMS = {
    "plain": {},
    "weights and held-out rows": {"w": True, "held_out": True},
    "a sample, no bias": {"bias": False, "fit_rows": "sample", "sample_rows": 40},
    "nearly no noise": {"noise": 1e-7, "gamma": 0.05},
    "known noise, in order": {"noise_variance": 0.01, "shuffled": False},
}


def simulated(asked):
    """A simulator and options."""
    asked = dict(asked)
    X, y = wave(n=72, noise=asked.pop("noise", 0.2))
    rng = np.random.default_rng(3)
    choices = {name: asked.pop(name) for name in ("fit_rows", "sample_rows") if name in asked}
    if asked.pop("w", None):
        asked["w"] = rng.uniform(0.5, 2, len(X)) * (rng.random(len(X)) > 0.1)
    if asked.pop("held_out", None):
        asked["held_out"] = wave(n=30, seed=1)
    return Simulator(X, y, **asked), Options(partition_size=18, selection="gain", max_iterations=40, **choices)


def states(simulator, name, options):
    """The state after each line of history."""
    simulator.run(name, options)
    return [state for state, _ in simulator.lines]


def last_save(simulator):
    """The bits of the model that a run left."""
    fit = simulator.saves[-1].fit
    beta = np.asarray(fit.beta).tobytes()
    return fit.alpha.tobytes(), fit.posterior.mean.tobytes(), beta, fit.posterior.log_evidence


@pytest.mark.parametrize("asked", PROBLEMS.values(), ids=PROBLEMS)
@pytest.mark.parametrize("name", STRATEGIES)
def test_a_run_that_is_written_and_read_at_every_line_ends_in_the_same_bits(name, asked):
    """``run(2n) == run(n) + resume(n)``, for every n at once."""
    simulator, options = simulated(asked)
    reason, whole = simulator.run(name, options), None
    whole, lines = last_save(simulator), [str(save.record) for save in simulator.saves]
    simulator, options = simulated(asked)
    strategy, number, simulator.turns = STRATEGIES[name](), 0, []
    state = strategy.start(simulator.problem, options)
    while state.end is None:
        state, number = simulator.step(strategy.step(state)), number + 1
        state = reread(state, simulator.problem, options)
    assert state.end is reason
    assert last_save(simulator) == whole
    assert [str(save.record) for save in simulator.saves] == lines
    assert number >= 1


@pytest.mark.parametrize("name", ["working-set", "split-merge"])
def test_an_array_of_wrong_length_is_named_as_damage(name, tmp_path):
    """Each array of a checkpoint, one longer in each direction: refused where it is read, not where it is used."""
    simulator, options = simulated({"noise": 0.1})
    save_checkpoint(states(simulator, name, options)[0], str(tmp_path / "c"))
    stored = load_checkpoint(str(tmp_path / "c"))
    attached(stored, simulator.problem, options)
    tree, arrays = CODEC.encode(stored)
    empty = stored.problem.empty  # not used: the spec gives it
    for number, axis in [(number, axis) for number, array in enumerate(arrays) for axis in range(array.ndim)]:
        pad = [(0, int(axis == each)) for each in range(arrays[number].ndim)]
        damaged = [*arrays[:number], np.pad(arrays[number], pad, constant_values=10**6), *arrays[number + 1 :]]
        if not any(arrays[number] is given for given in (empty.centres, empty.labels, empty.active)):
            with pytest.raises(FormatError, match="the checkpoint of this fit"):
                attached(CODEC.decode(tree, damaged), simulator.problem, options)


def test_arrays_of_every_size_come_back(place, monkeypatch):
    """Of any shape and order of memory, across the bounds of parts."""
    monkeypatch.setattr(codec, "PART", 100_000)
    rng = np.random.default_rng(0)
    big = rng.normal(size=(300, 200))
    value = {
        "big": big, "columns": np.asfortranarray(big), "many": tuple(rng.normal(size=k) for k in range(300)),
        "cube": np.asfortranarray(rng.normal(size=(40, 30, 20))), "mask": rng.random(90_000) > 0.5,
        "empty": np.zeros((0, 3)), "swapped": np.arange(20_000, dtype=">i4"), "nan": np.full(10_000, np.nan),
    }  # fmt: skip
    save_checkpoint(value, place)
    assert_same(value, load_checkpoint(place))


def test_what_is_no_checkpoint(place):
    """Nothing there, another group, a newer format, a strange class: an error that names the place."""
    with pytest.raises(MissingDataError, match="no checkpoint here"):
        load_checkpoint(f"{place}/nothing")
    codec.write_group({}, [], f"{place}/other", "partirvm-thing", 1)
    with pytest.raises(FormatError, match=r"other: this is not a partirvm checkpoint"):
        load_checkpoint(f"{place}/other")
    save_checkpoint((1,), f"{place}/mine")
    with pytest.raises(ExistsError, match="exists already and is never overwritten"):
        save_checkpoint((2,), f"{place}/mine")
    assert load_checkpoint(f"{place}/mine") == (1,)
    strange = {"value": {"object": 0}, "objects": [["Path", {}]]}
    unknown = r"the checkpoint: cannot be read .*the class 'Path' is unknown"
    cases = (strange, 0, unknown), ({}, 0, "cannot be read"), (strange, 99, "format 99.*upgrade")
    for number, (tree, newer, says) in enumerate(cases):
        codec.write_group(tree, [], f"{place}/{number}", checkpoint.KIND, newer or checkpoint.FORMAT)
        with pytest.raises(PartirvmError, match=says):
            load_checkpoint(f"{place}/{number}")
