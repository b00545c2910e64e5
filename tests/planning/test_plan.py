"""Plans: decisions based on memory, refusals with numbers, and their text."""

import json
import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from partirvm.errors import MemoryLimitError
from partirvm.options import Request
from partirvm.planning import (
    DataShape,
    Machine,
    Rates,
    comparison_bytes,
    kernel_store,
    make_plan,
    residual_stage_bytes,
    step_bytes,
)
from partirvm.planning.memory import ALLOWANCE
from partirvm.planning.plan import affordable, trees_text
from partirvm.quoting import format_bytes, format_duration
from partirvm.strategies import STRATEGIES
from partirvm.strategies.fit_rows import rows_read

RATES = Rates(read=1e-7, element=2e-9, product=1e10)


def plan_of(**changes):
    """Return a plan for 10⁶ rows × 8 features with 500 candidates a round on two threads under 1
    GiB."""
    shape = changes.pop("shape", DataShape(1_000_000, 8, 1, 16384))
    machine = changes.pop("machine", Machine(threads=2, base=150 << 20, limit=1 << 30))
    pool = changes.pop("pool", 0)
    facts = changes.pop("facts", {})
    rest = {name: changes.pop(name) for name in ("held_out", "shrink_partition") if name in changes}
    request = Request(
        strategy="working-set", selection="error", fit_rows="full", partition_size=500, max_rounds=5
    )
    request = replace(request, **changes)
    schedule = STRATEGIES[request.strategy].schedule
    read = replace(rows_read(request, shape, shuffled=True), searched=0, pool=pool)
    return make_plan(shape, machine, RATES, request, schedule, read, **rest, **facts)


def test_a_plan_that_does_not_fit_is_refused_with_need_and_advice():
    """Raising the limit to the need is enough."""
    machine = Machine(threads=2, base=150 << 20, limit=220 << 20)
    with pytest.raises(MemoryLimitError) as caught:
        plan_of(machine=machine)
    message = str(caught.value)
    shape = DataShape(1_000_000, 8, 1, 16384)
    need = machine.base + ALLOWANCE + step_bytes(shape, 1, 500, 1).peak
    assert format_bytes(need) in message
    assert "220 MiB" in message
    assert re.search(r"raise memory_limit or lower partition_size", message)
    assert plan_of(machine=Machine(2, machine.base, need)).threads == 1
    with pytest.raises(MemoryLimitError):
        plan_of(machine=Machine(2, machine.base, need - 1))


def test_the_peak_of_a_small_fit_includes_neighbours_and_boosting():
    """It includes freed blocks from the rounds (32 MiB) and from neighbours (80 MiB), and growth by
    learning."""
    shape = DataShape(3000, 5, 1, 1000)
    libraries = 70 << 20
    machine = Machine(threads=2, base=90 << 20, limit=4 << 30, libraries=libraries)
    small = {"shape": shape, "machine": machine, "partition_size": 100}
    alone = plan_of(**small, residual="none", reference="none")
    assert alone.peak == machine.base + ALLOWANCE + alone.bytes.peak
    grown = plan_of(**small, residual="none", reference="none", facts={"grown": 9 << 20})
    assert grown.peak == alone.peak + (9 << 20)
    stage = residual_stage_bytes(shape, 3000, 60)
    kept = min(alone.bytes.peak, 32 << 20)
    corrected = plan_of(**small, neighbours=60, reference="none")
    assert corrected.peak == machine.base + ALLOWANCE + max(alone.bytes.peak, kept + stage)
    compared = plan_of(**small, neighbours=60, facts={"learned": "gaussian"})
    trees = min(kept + stage, 80 << 20) + comparison_bytes(shape, 3000, libraries, 120)
    assert compared.peak == machine.base + ALLOWANCE + trees
    grown = plan_of(**small, neighbours=60, facts={"learned": "gaussian", "grown": 100 << 20})
    assert grown.peak == machine.base + (100 << 20) + ALLOWANCE + comparison_bytes(
        shape, 3000, libraries, 120
    )
    boosting = format_bytes(comparison_bytes(shape, 3000, libraries, 120))
    assert f"neighbours {format_bytes(stage)}, boosting {boosting}" in str(compared)
    # without a learned kernel, only a model without vectors is compared
    judged = plan_of(**small, neighbours=60)
    assert judged.comparison is None
    assert judged.comparison_bytes == comparison_bytes(shape, 2000, libraries, 100)
    less = replace(machine, limit=(1 << 30) - 1)
    without = plan_of(**{**small, "machine": less}, neighbours=60, facts={"learned": "gaussian"})
    assert (without.comparison, without.comparison_bytes) == (None, 0)


def test_the_plan_shows_memory_and_speed_of_local_residuals():
    """They are in memory if they take at most a tenth of it, otherwise in files."""
    plan = plan_of(neighbours=30)
    size = 8 * 12 * 10**6
    columns = plan.rounds[-1].columns
    seconds = 10**6 * (RATES.read + columns * RATES.element + 2 * columns / RATES.product) / 2
    assert f"{format_bytes(size)} in files of a job, a pass of {format_duration(seconds)}" in str(
        plan
    )
    assert ", 12,000 predictions per second" in str(plan)
    limit = 20 * size + 10 * 8 * 4096 * 40 * (40 + 12)
    for place, less in (("in memory", 0), ("in files of a job", 1)):
        assert f"{place}, a pass" in str(plan_of(machine=Machine(2, 150 << 20, limit - less)))
    limit = 10 * 8 * (2 * 50_000 * 12 + 4096 * 40 * (40 + 12))
    assert f"not tried below a memory_limit of {format_bytes(limit)}" in str(
        plan_of(machine=Machine(1, 0, limit - 1))
    )
    sizes = (300, 8, 1, 1024), (10**6, 8, 3, 16384, 3), (10**6, 8, 5, 16384, 5)
    few, several, many = ({"shape": DataShape(*each)} for each in sizes)
    for unusual in (few, many):
        assert "predictions per second" in plan_of(**unusual, residual="local").residuals
    for never in (few, many, {"residual": "none"}, {"noise": 0.1}):
        assert plan_of(**never).residuals is None
    found = plan_of(
        **several, neighbours=30
    ).residuals  # 3 errors per row; 12,000/s for one target, 2/3 of that for 3
    assert f"{format_bytes(8 * 14 * 10**6)} in files of a job" in found
    assert "8,000 predictions per second" in found


def test_fewer_threads_are_used_if_not_all_fit():
    """A note says so; required threads reduce the number of columns instead."""
    shape = DataShape(1_000_000, 8, 1, 16384)
    need = 150 * 2**20 + ALLOWANCE + step_bytes(shape, 501, 500, 16).peak
    few = plan_of(machine=Machine(16, 150 << 20, need - 1))
    assert few.threads == 15
    assert any("15 of 16 threads" in note for note in few.notes)
    assert plan_of(machine=Machine(16, 150 << 20, need)).threads == 16
    fixed = plan_of(machine=Machine(16, 150 << 20, need - 1, least_threads=16))
    assert fixed.threads == 16
    assert fixed.max_columns < few.max_columns


def test_an_automatic_partition_size_is_lowered_to_fit():
    """A requested one is refused."""
    machine = Machine(threads=1, base=100 << 20, limit=200 << 20)
    with pytest.raises(MemoryLimitError):
        plan_of(machine=machine, partition_size=4000)
    plan = plan_of(machine=machine, partition_size=4000, shrink_partition=True)
    assert 50 <= plan.partition_size < 4000
    assert plan.max_columns >= 2 * plan.partition_size + 1
    assert f"partition size lowered to {plan.partition_size} because of the memory limit" in str(
        plan
    )


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("likelihood", ["full", "sample"])
def test_every_plan_respects_its_limit_and_is_json(strategy, likelihood):
    options = {"strategy": strategy, "fit_rows": likelihood, "sample_rows": 2000}
    size = 3000 if strategy == "basic" else 64
    shape = DataShape(3000, 4, 1, 2048)
    plan = plan_of(shape=shape, partition_size=size, max_rounds=None, **options)
    assert plan.peak <= plan.machine.limit
    found = json.loads(json.dumps(plan.to_json()))
    assert (found["strategy"], found["fit_rows"]) == (strategy, likelihood)
    assert found["sample_rows"] == (2000 if likelihood == "sample" else None)
    assert found["partitions"] == plan.partitions == -(-3000 // plan.partition_size)
    assert found["rounds"] == len(plan.rounds)
    assert found["rho"] is None
    assert ("sample of 2,000 rows" in str(plan)) == (likelihood == "sample")
    assert (plan.batch_elements > 0) == (strategy == "split-merge")


@pytest.mark.parametrize(
    ("strategy", "most"),
    [("split-merge", 40), ("incremental", 40), ("working-set", 81), ("basic", 600)],
)
def test_max_vectors_lowers_the_partition_size(strategy, most):
    """It is half of the limit if as many old vectors join a partition; basic has no P."""
    plan = plan_of(
        shape=DataShape(600, 4, 1, 2048), strategy=strategy, partition_size=500, max_vectors=81
    )
    assert plan.partition_size == most
    assert plan.notes == (
        () if strategy == "basic" else (f"partition size lowered to {most} because of max_vectors",)
    )
    assert len(plan.rounds) == 1 or strategy != "basic"


@given(st.integers(2, 3000), st.integers(1, 8), st.integers(60, 600), st.booleans())
def test_the_heuristic_uses_as_many_rows_as_fit(candidates, threads, limit, shrink):
    """Its fit adds all columns at once, on as many threads as possible."""
    least = 1 if shrink else threads
    shape = DataShape(10**6, 8, 1, 4096)
    machine = Machine(threads, 50 << 20, limit << 20, least_threads=least)
    found, rows = affordable(shape, machine, candidates)
    room = machine.limit - machine.base - ALLOWANCE
    assert 2 <= rows <= candidates
    if rows > 2:
        assert step_bytes(shape, 0, rows + 1, found).peak <= room
    if rows < candidates:
        assert found == least
        assert step_bytes(shape, 0, rows + 2, found).peak > room or rows == 2
    elif found < threads:
        assert step_bytes(shape, 0, rows + 1, found + 1).peak > room


@given(st.integers(10, 400), st.integers(0, 4), st.integers(1, 4), st.booleans(), st.booleans())
def test_stored_kernel_blocks_leave_memory_for_every_pass(
    candidates, pools, threads, newton, held_out
):
    plan = plan_of(
        shape=DataShape(10**6, 8, 1, 8192, 3 if newton else 1, newton=newton),
        machine=Machine(threads=threads, base=150 << 20, limit=2 << 30),
        partition_size=candidates,
        pool=pools * candidates,
        held_out=held_out,
    )
    columns = min(max(cost.columns for cost in plan.rounds), plan.max_columns)
    spare = plan.room(columns)
    asked = replace(plan.request, kernel_store="memory")
    kept = replace(plan, kernel_store=kernel_store(asked, plan.shape, plan.machine, columns, spare))
    assert kept.kernel_store.bytes == min(spare, 8 * 10**6 * columns) > 0
    assert kept.peak <= kept.machine.limit


def test_the_cost_of_boosted_trees_is_stated():
    """By hand: 10,000 rows × 3 trees × 100 rounds at 30 million values a second take .1 s."""
    text = trees_text((6, 3, 100), 10_000, 3 << 20)
    assert "6 forests of 300 trees" in text
    assert "3 MiB" in text
    assert "0.1 s" in text
    assert "100,000 predictions per second" in text
    assert "training rows" not in trees_text((6, 3, 100), 1_000, 3 << 20)
