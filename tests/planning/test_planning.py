"""Plans are arithmetic: units, bytes, columns that fit, refusals with numbers, and a text that says it all."""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from partirvm.errors import MemoryLimitError, UsageError
from partirvm.planning.cost import Looking, Rates, round_cost, working_set_cost
from partirvm.planning.memory import ALLOWANCE, DataShape, most_columns, step_bytes
from partirvm.planning.plan import Machine, make_plan
from partirvm.planning.units import format_bytes, format_duration, parse_bytes, parse_duration
from partirvm.types import PANEL_ROWS

RATES = Rates(read=1e-7, element=2e-9, product=1e10)


@given(st.integers(1, 10**15))
def test_plain_bytes_are_bytes(number):
    """A number and its text."""
    assert parse_bytes(number) == parse_bytes(str(number)) == parse_bytes(f" {number} B ") == number


@given(st.integers(1, 999), st.sampled_from(["KiB", "MiB", "GiB", "TiB"]), st.sampled_from(["", " "]), st.booleans())
def test_units_of_bytes(number, unit, space, lower):
    """Binary units, a single letter is binary too, and kB MB GB TB are decimal."""
    power = "KMGT".index(unit[0]) + 1
    text = f"{number}{space}{unit}"
    assert parse_bytes(text.lower() if lower else text) == number * 1024**power
    assert parse_bytes(f"{number}{unit[0]}") == number * 1024**power
    assert parse_bytes(f"{number}{unit[0]}B") == number * 1000**power


@given(st.integers(1, 2**55))
def test_formatted_bytes_parse_back(number):
    """To the three digits that are shown."""
    assert parse_bytes(format_bytes(number)) == pytest.approx(number, rel=6e-3)


@given(st.floats(1e-3, 1e7))
def test_durations(seconds):
    """Numbers, suffixes, and the texts that people read."""
    assert parse_duration(seconds) == pytest.approx(seconds, rel=1e-12)
    for suffix, factor in [("s", 1), ("m", 60), ("min", 60), ("h", 3600), ("d", 86400)]:
        assert parse_duration(f"{seconds!r}{suffix}") == pytest.approx(seconds * factor, rel=1e-12)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.04, "0.0 s"),
        (59.94, "59.9 s"),
        (60, "1 min 0 s"),
        (3599.4, "59 min 59 s"),
        (3600, "1 h 0 min"),
        (90061, "25 h 1 min"),
    ],
)
def test_durations_for_people(seconds, text):
    """Seconds below a minute, minutes and seconds below an hour, hours and minutes from there."""
    assert format_duration(seconds) == text


@pytest.mark.parametrize("parse", [parse_bytes, parse_duration])
@pytest.mark.parametrize("text", ["", "much", "-1", "0", "1 parsec", "1 2", "nan", "inf", None, "1h30"])
def test_what_is_no_quantity(parse, text):
    """UsageError that names the option, the text and an example."""
    with pytest.raises(UsageError, match=r"limit .*expected a (size|duration) such as"):
        parse(text)


shapes = st.builds(
    DataShape,
    n_rows=st.integers(2, 10**8),
    n_features=st.integers(1, 200),
    n_targets=st.integers(1, 3),
    tile_rows=st.sampled_from([1, 100, 2048, 16384]),
)


@given(shapes, st.integers(0, 3000), st.integers(1, 1000), st.integers(1, 64), st.booleans())
def test_bytes_are_the_formulas(shape, kept, candidates, threads, held_out):
    """The table at the head of planning/memory.py, written down again."""
    f, M, P, d, T = 8, kept, candidates, shape.n_features, shape.n_targets
    R = min(shape.tile_rows, shape.n_rows)
    B = min(PANEL_ROWS, R)
    tiles = -(-shape.n_rows // shape.tile_rows)
    levels = max((tiles - 1).bit_length(), 1)
    tile, panel, block = 3 * f * R * (d + T + 1), 2 * f * B * (M + P + d + 2), 3 * f * (M + P) * P
    waiting = f * (levels + threads + 1) * (M + P) * P
    passing = threads * (tile + panel + block) + waiting + 3 * f * (M + P) ** 2
    solving = 10 * f * (M + P) ** 2
    best = 2 * f * (M + P) ** 2 if held_out else 0
    found = step_bytes(shape, kept, candidates, threads, held_out=held_out)
    assert (found.passing, found.solving) == (passing + best, solving + best)
    assert found.peak == max(passing, solving) + best


@given(shapes, st.integers(0, 1000), st.integers(1, 500), st.integers(1, 16), st.booleans())
def test_more_of_anything_never_needs_less(shape, kept, candidates, threads, held_out):
    """Monotone in kept columns, candidates, threads, features and held-out rows."""
    peak = step_bytes(shape, kept, candidates, threads, held_out=held_out).peak
    wider = DataShape(shape.n_rows, shape.n_features + 1, shape.n_targets, shape.tile_rows)
    for more in (
        step_bytes(shape, kept + 1, candidates, threads, held_out=held_out),
        step_bytes(shape, kept, candidates + 1, threads, held_out=held_out),
        step_bytes(shape, kept, candidates, threads + 1, held_out=held_out),
        step_bytes(wider, kept, candidates, threads, held_out=held_out),
        step_bytes(shape, kept, candidates, threads, held_out=True),
    ):
        assert more.peak >= peak


@given(
    st.integers(2, 5000),
    st.integers(1, 30),
    st.integers(1, 40),
    st.integers(1, 4),
    st.integers(0, 3_000_000),
    st.booleans(),
)
def test_the_most_columns_by_search(n, d, candidates, threads, budget, held_out):
    """The largest M + P that fits, found by trying them all; 0 where not even one kept column does."""
    shape = DataShape(n, d, 1, 64)
    fitting = [
        columns
        for columns in range(candidates + 1, 700)
        if step_bytes(shape, columns - candidates, candidates, threads, held_out=held_out).peak <= budget
    ]
    assert most_columns(shape, candidates, threads, budget, held_out=held_out) == max(fitting, default=0)


def plan_of(**changes):
    """A plan of 10⁶ rows × 8 features with 500 candidates a round on two threads under 1 GiB."""
    shape = changes.pop("shape", DataShape(1_000_000, 8, 1, 16384))
    machine = changes.pop("machine", Machine(threads=2, base=150 << 20, limit=1 << 30))
    options = {
        "strategy": "working-set",
        "selection": "error",
        "likelihood": "full",
        "partition_size": 500,
        "stop_fraction": 0.5,
        "max_rounds": 5,
        "max_vectors": None,
        "held_out": False,
    }
    return make_plan(shape, machine, RATES, **(options | changes))


def test_a_plan_says_it_all():
    """Rows, tiles, strategy, P, rounds, every cap, passes, threads, time and memory of what."""
    plan = plan_of(max_vectors=1200, notes=("P was held to 500",))
    text = str(plan)
    for part in (
        "1,000,000 rows × 8 features",
        "62 tiles of 16,384 rows",
        "working-set, likelihood full, selection error",
        "P = 500 per round, 5 rounds",
        f"at most {plan.max_columns:,} fit in memory",
        "max_vectors 1,200",
        f"{plan.passes} passes over the rows",
        "2 threads",
        format_duration(plan.seconds),
        f"{format_bytes(plan.peak)} of 1 GiB",
        "process 150 MiB",
        "P was held to 500",
    ):
        assert part in text, part
    assert "no limit set" not in text
    assert "no limit set; 10 assumed" in str(plan_of(max_rounds=None))
    assert "3 workers × 2 threads" in str(plan_of(machine=Machine(2, 150 << 20, 1 << 30, workers=3)))


def test_a_plan_is_json():
    """Plain values that say the same."""
    plan = plan_of(max_vectors=1200)
    found = json.loads(json.dumps(plan.to_json()))
    assert found["rows"] == 1_000_000
    assert found["max_vectors"] == 1200
    assert found["memory_peak"] == plan.peak <= found["memory_limit"] == 1 << 30
    assert found["passes"] == plan.passes
    assert found["seconds"] == pytest.approx(plan.seconds, abs=0.01)


def test_what_cannot_fit_is_refused_with_need_have_and_advice():
    """The need is the formula's, and raising the limit to it is enough."""
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


def test_fewer_threads_where_all_would_not_fit():
    """A note says so; without leave to shrink the limit of all threads counts."""
    shape = DataShape(1_000_000, 8, 1, 16384)
    need = 150 * 2**20 + ALLOWANCE + step_bytes(shape, 501, 500, 16).peak
    few = plan_of(machine=Machine(16, 150 << 20, need - 1))
    assert few.threads == 15
    assert any("15 of 16 threads" in note for note in few.notes)
    assert plan_of(machine=Machine(16, 150 << 20, need)).threads == 16
    fixed = plan_of(machine=Machine(16, 150 << 20, need - 1), shrink_threads=False)
    assert fixed.threads == 16
    assert fixed.max_columns < few.max_columns


@given(st.integers(2, 10**6), st.integers(1, 1000), st.integers(1, 30), st.booleans())
def test_a_plan_keeps_its_promises(n, partition_size, max_rounds, held_out):
    """P ≤ N; rounds no more than the rows can feed; the expected peak is within the limit."""
    plan = plan_of(
        shape=DataShape(n, 4, 1, 2048), partition_size=partition_size, max_rounds=max_rounds, held_out=held_out
    )
    assert plan.partition_size == min(n, partition_size)
    assert 1 <= len(plan.rounds) <= min(max_rounds, -(-n // plan.partition_size))
    assert plan.peak <= plan.machine.limit
    assert plan_of(shape=DataShape(n, 4, 1, 2048), partition_size=min(n, 800), strategy="basic").rounds[1:] == ()


@given(st.integers(2, 10**6), st.integers(0, 500), st.integers(1, 500), st.sampled_from("-eEg"), st.integers(1, 16))
def test_the_cost_of_a_round(n, kept, candidates, look, threads):
    """2MP + P² products and M + P elements per row; 30 dense iterations of (M + P)³; and the look for candidates.

    M elements for each row whose residual is taken, all (E) or half of them (e); M + Q elements and 2MQ products per
    row for a pool of Q (g).
    """
    looking = {"-": Looking(), "e": Looking(rows=n // 2), "E": Looking(rows=n), "g": Looking(pool=4 * candidates)}[look]
    cost = round_cost(n, kept, candidates, looking, RATES, threads)
    pool, read = looking.pool, n if look == "g" else looking.rows
    assert cost.gram_flops == n * (2 * kept * candidates + candidates**2) + 2 * n * kept * pool
    elements = n * (kept + candidates) + read * (kept + pool)
    seconds = ((n + read) * 1e-7 + elements * 2e-9 + cost.gram_flops / 1e10) / threads
    assert cost.passes == (2 if look in "Eg" else 1)
    assert cost.pass_seconds == pytest.approx(seconds)
    assert cost.solve_seconds == pytest.approx(30 * (kept + candidates) ** 3 / 1e10)


@given(st.integers(10, 300), st.integers(1, 12))
def test_sets_grow_as_in_the_paper(partition_size, rounds):
    """With stop_fraction ½ the candidates are P, 1.5P, 1.75P … and stay below 2P (the bias aside)."""
    assume(partition_size % 2 == 0)
    costs = working_set_cost(10**6, partition_size, rounds, 0.5, looking=Looking(rows=10**6), rates=RATES, threads=1)
    totals = [cost.kept - 1 + cost.candidates for cost in costs]
    expected = [partition_size * (2 - 0.5**k) for k in range(rounds)]
    assert totals == pytest.approx(expected, abs=rounds)
    assert max(totals) <= 2 * partition_size


def test_a_pool_takes_its_memory():
    """With Q columns on trial: panels of M + Q columns, nodes of M·Q where that is more than (M + P)·P."""
    shape, f, M, P, Q, threads = DataShape(10**6, 4, 1, 8192), 8, 1000, 100, 400, 2
    plain, pooled = step_bytes(shape, M, P, threads), step_bytes(shape, M, P, threads, pool=Q)
    assert pooled.panel - plain.panel == 2 * f * PANEL_ROWS * (Q - P)
    assert pooled.block == 3 * f * M * Q > plain.block == 3 * f * (M + P) * P


def test_candidates_are_held_by_the_most_vectors():
    """No more than max_vectors candidates ever join: what they need is what is asked for."""
    plan = plan_of(partition_size=2500, max_vectors=10)
    assert plan.partition_size == 10
    assert "P held to 10 by max_vectors" in str(plan)


def test_a_partition_that_was_left_open_is_held_by_memory():
    """Asked for, it is refused; left to the plan, it shrinks until a round of 2P columns fits, and the plan says so."""
    machine = Machine(threads=1, base=100 << 20, limit=200 << 20)
    with pytest.raises(MemoryLimitError):
        plan_of(machine=machine, partition_size=4000)
    plan = plan_of(machine=machine, partition_size=4000, shrink_partition=True)
    assert 50 <= plan.partition_size < 4000
    assert plan.max_columns >= 2 * plan.partition_size + 1
    assert f"P held to {plan.partition_size} by the memory limit" in str(plan)
