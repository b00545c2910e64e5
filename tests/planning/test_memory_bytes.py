"""Bytes of each step follow the table at the head of planning/memory.py; the largest fits are
found."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from partirvm.local.cells import KEPT_BYTES
from partirvm.planning import (
    DataShape,
    bytes_of_residuals,
    comparison_bytes,
    max_columns_within,
    residual_stage_bytes,
    step_bytes,
    trial_bytes,
)
from partirvm.planning.memory import BATCH, CELLS, batch_elements
from partirvm.types import PANEL_ROWS

shapes = st.builds(
    DataShape,
    n_rows=st.integers(2, 10**8),
    n_features=st.integers(1, 200),
    n_targets=st.integers(1, 3),
    tile_rows=st.sampled_from([1, 100, 2048, 16384]),
    n_outputs=st.integers(1, 30),
    newton=st.booleans(),
    n_classes=st.sampled_from([0, 2, 1000]),
    local_noise_rows=st.sampled_from([0, 50, 16384]),
)


@given(
    shapes,
    st.integers(0, 3000),
    st.integers(1, 1000),
    st.integers(1, 64),
    st.booleans(),
    st.integers(0, 4000),
    st.integers(0, 10**7),
    st.booleans(),
)
def test_bytes_follow_the_table(shape, kept, candidates, threads, held_out, pool, elements, whole):
    how = {"held_out": held_out, "pool": pool, "elements": elements, "whole": whole}
    f = 8
    M = kept
    P = candidates
    d = shape.n_features
    T = shape.n_targets
    if whole:
        M = 0
        P = kept + candidates
        pool = pool and pool + kept
    Q = max(P, pool)
    R = min(shape.tile_rows, shape.n_rows)
    B = min(PANEL_ROWS, R)
    tiles = -(-shape.n_rows // shape.tile_rows)
    C = shape.n_outputs
    levels = (tiles - 1).bit_length()
    threads = min(threads, tiles)
    batch = f * C * elements * (4 * threads + max(levels, 1) + 9)
    node = f * max((M + P) * P, M * pool)
    node = C * node if shape.newton else node + f * shape.n_classes * P
    tile = 3 * f * R * (d + T + 1)
    panel = 2 * f * B * (M + Q + d + shape.n_classes + 2)
    block = 2 * node
    held, solved = (3 * C, 12 * C) if shape.newton else (C + 3, 4 * C + 6)
    passing = (
        threads * (tile + panel + block) + (levels + threads + 1) * node + held * f * (M + P) ** 2
    )
    S = shape.local_noise_rows
    noise = f * S * (d + 256) + (C + 3) * f * (M + P) ** 2 if S else 0
    solving = max(solved * f * (M + P) ** 2, noise)
    best = 2 * C * f * (M + P) ** 2 if held_out else 0
    found = step_bytes(shape, kept, candidates, threads, **how)
    beside = best + batch + (0 if shape.newton else 8 * f * shape.n_classes * (M + P))
    assert (found.passing, found.solving) == (passing + beside, solving + beside)
    assert found.peak == max(passing, solving) + beside


@given(
    st.integers(2, 5000),
    st.integers(1, 30),
    st.integers(1, 40),
    st.integers(1, 4),
    st.integers(0, 3_000_000),
    st.booleans(),
    st.booleans(),
)
def test_the_largest_number_of_columns_equals_an_exhaustive_search(
    n, d, candidates, threads, budget, held_out, whole
):
    """It is 0 if no column fits; with ``whole`` all columns count as new."""
    shape = DataShape(n, d, 1, 64)
    fitting = [
        columns
        for columns in range(candidates + 1, 700)
        if step_bytes(
            shape,
            0 if whole else columns - candidates,
            columns if whole else candidates,
            threads,
            held_out=held_out,
        ).peak
        <= budget
    ]
    found = max_columns_within(shape, candidates, threads, budget, held_out=held_out, whole=whole)
    assert found == max(fitting, default=0)


@given(shapes, st.integers(1, 500), st.integers(1, 16), st.integers(-(10**6), 10**9))
def test_a_batch_is_as_large_as_the_free_memory_allows(shape, candidates, threads, spare):
    """It has between 1 and 64 fits of P candidates and the bias."""
    one = (candidates + 1) ** 2
    found = batch_elements(shape, candidates, threads, spare)
    assert one <= found <= BATCH * one
    alone = step_bytes(shape, 0, 1, threads).peak
    if found > one:
        assert step_bytes(shape, 0, 1, threads, elements=found).peak - alone <= spare
    if found < BATCH * one:
        assert step_bytes(shape, 0, 1, threads, elements=found + 1).peak - alone > spare


def test_bytes_of_the_stages_after_the_rounds_follow_the_table():
    """Neighbours are learned and judged with records of 9 numbers; with 60 features the metric
    takes most."""
    shape = DataShape(3000, 5, 1, 1000)
    numbers = 3000 * (3 * 9 + 5 + 20) + 3000 * (40 + 60) * 9 + 1024 * 60 * (30 + 2 * 9)
    assert residual_stage_bytes(shape, 3000, 60) == 8 * numbers
    shape = DataShape(10_000, 5, 1, 1000)
    numbers = 10_000 * (3 * 9 + 5 + 20) + 4096 * (20 + 20) * 9 + 1000 * 20**2 * (2.5 + 3)
    assert residual_stage_bytes(shape, 10_000, 20) == 8 * numbers
    shape = DataShape(3000, 60, 1, 1000)
    numbers = 3000 * (3 * 64 + 60 + 20) + 3000 * (20 + 20) * 64 + 1000 * 20**2 * (30 + 3)
    assert residual_stage_bytes(shape, 3000, 20) == 8 * numbers


def test_bytes_for_residuals_of_all_rows():
    """50,000 of 200,000 rows are left out; records are in memory three times, or sorted in
    files."""
    shape = DataShape(200_000, 5, 1, 1000)
    left_out = residual_stage_bytes(DataShape(50_000, 5, 1, 1000), 50_000, 60)
    assert residual_stage_bytes(shape, 50_000, 60) == left_out + 3 * 8 * 200_000 * 9
    assert (
        residual_stage_bytes(shape, 50_000, 60, in_memory=False) == left_out + 4 * 8 * 200_000 * 9
    )
    shape = DataShape(20_000_000, 5, 1, 1000)
    assert residual_stage_bytes(shape, 50_000, 60, in_memory=False) == left_out + (128 << 20) + (
        256 << 20
    )


@pytest.mark.parametrize(("features", "classes"), [(5, 0), (5, 2), (60, 5), (500, 0)])
def test_bytes_for_boosted_trees(features, classes):
    """Rows are held twice, with six scores per class and histograms of 32 nodes × 256 bins."""
    shape = DataShape(3000, features, 1, 1000, n_classes=classes)
    rows = 8 * 3000 * (4 * (features + 1) + 6 * classes)
    histograms = 32 * 256 * 20 * features
    assert (
        comparison_bytes(shape, 3000, 7, 120)
        == 7 + (16 << 20) + 120 * (16 << 10) + rows + histograms
    )


def test_bytes_for_local_residuals():
    """Rows are held twice while they are built; 4,096 rows are used to learn; a trial has 60 × 60
    matrices."""
    assert bytes_of_residuals(9, 3000, 60) == (
        8 * 3000 * 9,
        8 * (2 * 3000 * 9 + 4096 * 40 * (40 + 9)),
    )
    assert bytes_of_residuals(9, 3000, 20)[1] == 8 * (2 * 3000 * 9 + 4096 * 20 * (20 + 9))
    assert trial_bytes(60) == 2 * 1024 * 8 * 60 * 60


def test_the_plan_counts_the_cells_that_are_kept():
    assert KEPT_BYTES == CELLS
